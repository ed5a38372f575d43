//! [`Gpu`] over the real driver: the few functions that the pool calls, given to it by the layer that resolved them.

pub mod mapping;
pub mod thread;

use super::{Ctx, CuResult, Event, Gpu};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;

/// Addresses of the driver's functions. Those that an older driver lacks are `None`.
#[derive(Clone, Copy)]
pub struct Calls {
    /// `cuMemAlloc_v2`
    pub mem_alloc: unsafe extern "C" fn(*mut u64, usize) -> CuResult,
    /// `cuMemFree_v2`
    pub mem_free: unsafe extern "C" fn(u64) -> CuResult,
    /// `cuMemGetInfo_v2`
    pub mem_info: unsafe extern "C" fn(*mut usize, *mut usize) -> CuResult,
    /// `cuDeviceTotalMem_v2`
    pub total_mem: unsafe extern "C" fn(*mut usize, c_int) -> CuResult,
    /// `cuDeviceGetName`
    pub device_name: unsafe extern "C" fn(*mut u8, c_int, c_int) -> CuResult,
    /// `cuCtxGetCurrent`
    pub ctx_current: unsafe extern "C" fn(*mut *mut c_void) -> CuResult,
    /// `cuCtxGetDevice`, of the current context
    pub ctx_device: unsafe extern "C" fn(*mut c_int) -> CuResult,
    /// `cuCtxPushCurrent_v2`
    pub ctx_push: unsafe extern "C" fn(*mut c_void) -> CuResult,
    /// `cuCtxPopCurrent_v2`
    pub ctx_pop: unsafe extern "C" fn(*mut *mut c_void) -> CuResult,
    /// `cuCtxSynchronize`, of the current context
    pub ctx_synchronize: unsafe extern "C" fn() -> CuResult,
    /// `cuEventCreate`
    pub event_create: unsafe extern "C" fn(*mut *mut c_void, c_uint) -> CuResult,
    /// `cuEventQuery`
    pub event_query: unsafe extern "C" fn(*mut c_void) -> CuResult,
    /// `cuCtxGetId`, driver 12.0 and later
    pub ctx_id: Option<unsafe extern "C" fn(*mut c_void, *mut u64) -> CuResult>,
    /// `cuDevicePrimaryCtxGetState`
    pub primary_state: Option<unsafe extern "C" fn(c_int, *mut c_uint, *mut c_int) -> CuResult>,
    /// `cuThreadExchangeStreamCaptureMode`
    pub exchange_mode: Option<unsafe extern "C" fn(*mut c_uint) -> CuResult>,
    /// `cuStreamIsCapturing`
    pub stream_capturing: Option<unsafe extern "C" fn(*mut c_void, *mut c_uint) -> CuResult>,
    /// `cuStreamGetCtx`
    pub stream_ctx: Option<unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> CuResult>,
    /// `cuStreamGetCaptureInfo_v2`: stream, status, id, graph, dependencies, their number
    pub capture_info: Option<
        unsafe extern "C" fn(
            *mut c_void,
            *mut c_uint,
            *mut u64,
            *mut *mut c_void,
            *mut *const c_void,
            *mut usize,
        ) -> CuResult,
    >,
    /// `cuCtxRecordEvent`, driver 12.5 and later
    pub ctx_record: Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> CuResult>,
    /// `cuCtxWaitEvent`, driver 12.5 and later
    pub ctx_wait: Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> CuResult>,
    /// `cuDeviceCanAccessPeer`
    pub can_access_peer: Option<unsafe extern "C" fn(*mut c_int, c_int, c_int) -> CuResult>,
    /// Virtual memory management, driver 10.2 and later
    pub mapping: Option<mapping::Calls>,
}

const RELAXED: c_uint = 2;
const EVENT_DISABLE_TIMING: c_uint = 2;

static CALLS: OnceLock<Calls> = OnceLock::new();

/// Gives the driver's functions to this layer; the first call counts.
pub fn install(calls: Calls) {
    let _ = CALLS.set(calls);
}

/// The functions, once [`install`]ed.
pub fn calls() -> Option<&'static Calls> {
    CALLS.get()
}

/// Whether this thread is inside a driver call that the pool makes. A profiler's callback that allocates there must
/// reach the driver directly: the pool may hold a lock of its own around the call.
#[inline(always)]
pub fn inside() -> bool {
    thread::with(|thread| thread.inside.get())
}

/// Marks the thread as [`inside`] for as long as it lives.
struct Within(bool);

impl Within {
    fn enter() -> Within {
        Within(thread::with(|thread| thread.inside.replace(true)))
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        thread::with(|thread| thread.inside.set(self.0));
    }
}

/// The current context of the calling thread, if the driver is up and there is one.
#[inline(always)]
pub fn current_ctx() -> Option<Ctx> {
    let mut handle = std::ptr::null_mut();
    // SAFETY: writes one handle to our local.
    let result = unsafe { (calls()?.ctx_current)(&raw mut handle) };
    (result == CuResult::SUCCESS && !handle.is_null()).then_some(Ctx(handle as usize))
}

/// The device ordinal of the calling thread's current context.
pub fn current_device() -> Option<u32> {
    let _within = Within::enter();
    let mut device = -1;
    // SAFETY: writes one integer to our local.
    let result = unsafe { (calls()?.ctx_device)(&raw mut device) };
    if result == CuResult::SUCCESS { u32::try_from(device).ok() } else { None }
}

/// The driver's id of a context's life, if it tells.
pub fn ctx_id(ctx: Ctx) -> Option<u64> {
    let _within = Within::enter();
    let mut id = 0;
    // SAFETY: a context that its owner has not destroyed; writes one integer to our local.
    let result = unsafe { (calls()?.ctx_id?)(ctx.0 as *mut c_void, &raw mut id) };
    (result == CuResult::SUCCESS).then_some(id)
}

/// Whether the primary context of `device` is alive, if the driver says so.
pub fn primary_active(device: i32) -> Option<bool> {
    let _within = Within::enter();
    let (mut flags, mut active) = (0, 0);
    // SAFETY: writes two integers to our locals.
    let result = unsafe { (calls()?.primary_state?)(device, &raw mut flags, &raw mut active) };
    (result == CuResult::SUCCESS).then_some(active != 0)
}

/// The device's memory in bytes, as the driver tells it.
pub fn device_total(device: u32) -> Option<u64> {
    let _within = Within::enter();
    let mut bytes = 0;
    // SAFETY: writes one integer to our local.
    let result = unsafe { (calls()?.total_mem)(&raw mut bytes, device as c_int) };
    (result == CuResult::SUCCESS).then_some(bytes as u64)
}

/// Whether `device` can reach the memory of `peer`.
pub fn can_access_peer(device: u32, peer: u32) -> bool {
    let _within = Within::enter();
    let mut can = 0;
    let Some(ask) = calls().and_then(|calls| calls.can_access_peer) else { return false };
    // SAFETY: writes one integer to our local.
    let result = unsafe { ask(&raw mut can, device as c_int, peer as c_int) };
    result == CuResult::SUCCESS && can != 0
}

/// The device's name; empty if the driver does not tell.
pub fn device_name(device: u32) -> String {
    let _within = Within::enter();
    let mut text = [0u8; 256];
    let Some(calls) = calls() else { return String::new() };
    // SAFETY: writes at most the given length, NUL included, to our local.
    let result = unsafe { (calls.device_name)(text.as_mut_ptr(), 255, device as c_int) };
    if result != CuResult::SUCCESS {
        return String::new();
    }
    String::from_utf8_lossy(text.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// Free bytes of the device as the driver tells them; it tells them of the current context's device only.
pub fn driver_free(device: u32) -> Option<u64> {
    if current_device() != Some(device) {
        return None;
    }
    let _within = Within::enter();
    let (mut free, mut total) = (0, 0);
    // SAFETY: writes two integers to our locals.
    let result = unsafe { (calls()?.mem_info)(&raw mut free, &raw mut total) };
    (result == CuResult::SUCCESS).then_some(free as u64)
}

/// Whether a stream captures, or has captured and been invalidated without an end; `None` if the driver cannot tell.
pub fn stream_capturing(stream: usize) -> Option<bool> {
    let _within = Within::enter();
    let mut status = 0;
    // SAFETY: a stream that its owner has not destroyed (the caller tracks that); writes one integer to our local.
    let result = unsafe { (calls()?.stream_capturing?)(stream as *mut c_void, &raw mut status) };
    (result == CuResult::SUCCESS).then_some(status != 0)
}

/// The context of a stream that is no default one, if the driver tells.
pub fn stream_ctx(stream: usize) -> Option<Ctx> {
    let _within = Within::enter();
    let mut ctx = std::ptr::null_mut();
    // SAFETY: the caller's stream; writes one handle to our local.
    let result = unsafe { (calls()?.stream_ctx?)(stream as *mut c_void, &raw mut ctx) };
    (result == CuResult::SUCCESS && !ctx.is_null()).then_some(Ctx(ctx as usize))
}

/// The graph that a stream captures into, 0 if that capture has been invalidated and not ended; `None` if the stream does
/// not capture, or the driver cannot tell.
pub fn captured_into(stream: usize) -> Option<usize> {
    const ACTIVE: c_uint = 1;
    const INVALIDATED: c_uint = 2;
    let _within = Within::enter();
    let (mut status, mut id, mut graph) = (0, 0, std::ptr::null_mut());
    // SAFETY: the caller's stream; writes to our locals, and nothing where null is given.
    let result = unsafe {
        (calls()?.capture_info?)(
            stream as *mut c_void,
            &raw mut status,
            &raw mut id,
            &raw mut graph,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    match status {
        _ if result != CuResult::SUCCESS => None,
        ACTIVE if !graph.is_null() => Some(graph as usize),
        INVALIDATED => Some(0),
        _ => None,
    }
}

/// Runs `body` with this thread's capture mode relaxed, so that calls which other modes forbid neither fail nor kill a
/// capture.
pub fn relaxed<T>(body: impl FnOnce() -> T) -> T {
    let Some(exchange) = calls().and_then(|calls| calls.exchange_mode) else { return body() };
    let mut mode = RELAXED;
    // SAFETY: swaps the thread's mode with our local.
    let swapped = unsafe { exchange(&raw mut mode) } == CuResult::SUCCESS;
    let value = body();
    if swapped {
        // SAFETY: as above; puts back what was there.
        unsafe { exchange(&raw mut mode) };
    }
    value
}

/// [`Gpu`] over the installed functions.
pub struct RealGpu {
    calls: &'static Calls,
}

impl RealGpu {
    /// `None` before [`install`].
    pub fn new() -> Option<RealGpu> {
        calls().map(|calls| RealGpu { calls })
    }

    /// Runs `body` with `ctx` current and the thread's own context put back afterwards.
    fn with<T>(&self, ctx: Ctx, body: impl FnOnce() -> Result<T, CuResult>) -> Result<T, CuResult> {
        if current_ctx() == Some(ctx) {
            return body();
        }
        // SAFETY: a context handle; a dead one gives an error.
        unsafe { (self.calls.ctx_push)(ctx.0 as *mut c_void) }.ok()?;
        let value = body();
        let mut popped = std::ptr::null_mut();
        // A second time if need be: the program must not go on in another context than its own.
        for _ in 0..2 {
            // SAFETY: pops what was pushed above, as long as it is still there.
            if unsafe { (self.calls.ctx_pop)(&raw mut popped) } == CuResult::SUCCESS {
                break;
            }
        }
        value
    }
}

impl Gpu for RealGpu {
    fn mem_alloc(&self, ctx: Ctx, bytes: u64) -> Result<u64, CuResult> {
        let _within = Within::enter();
        self.with(ctx, || {
            let mut address = 0;
            // SAFETY: writes one address to our local.
            relaxed(|| unsafe { (self.calls.mem_alloc)(&raw mut address, bytes as usize) }).ok()?;
            Ok(address)
        })
    }

    fn mem_free(&self, ctx: Ctx, address: u64) -> Result<(), CuResult> {
        let _within = Within::enter();
        // SAFETY: an address from mem_alloc that the heap no longer knows.
        self.with(ctx, || relaxed(|| unsafe { (self.calls.mem_free)(address) }).ok())
    }

    fn has_context_events(&self) -> bool {
        self.calls.ctx_record.is_some() && self.calls.ctx_wait.is_some()
    }

    fn event_create(&self, ctx: Ctx) -> Result<Event, CuResult> {
        let _within = Within::enter();
        self.with(ctx, || {
            let mut event = std::ptr::null_mut();
            // SAFETY: writes one handle to our local.
            unsafe { (self.calls.event_create)(&raw mut event, EVENT_DISABLE_TIMING) }.ok()?;
            Ok(Event(event as usize))
        })
    }

    fn record(&self, ctx: Ctx, event: Event) -> Result<(), CuResult> {
        let _within = Within::enter();
        let record = self.calls.ctx_record.ok_or(CuResult::NOT_SUPPORTED)?;
        // SAFETY: an event of this context, made by event_create.
        unsafe { record(ctx.0 as *mut c_void, event.0 as *mut c_void) }.ok()
    }

    fn query(&self, event: Event, relax: bool) -> Result<bool, CuResult> {
        let _within = Within::enter();
        // SAFETY: an event made by event_create.
        let ask = || unsafe { (self.calls.event_query)(event.0 as *mut c_void) };
        match if relax { relaxed(ask) } else { ask() } {
            CuResult::SUCCESS => Ok(true),
            CuResult::NOT_READY => Ok(false),
            code => Err(code),
        }
    }

    fn wait(&self, ctx: Ctx, event: Event) -> Result<(), CuResult> {
        let _within = Within::enter();
        let wait = self.calls.ctx_wait.ok_or(CuResult::NOT_SUPPORTED)?;
        // SAFETY: a context and an event made by event_create.
        unsafe { wait(ctx.0 as *mut c_void, event.0 as *mut c_void) }.ok()
    }

    fn synchronize(&self, ctx: Ctx) -> Result<(), CuResult> {
        let _within = Within::enter();
        // SAFETY: no arguments; acts on the context made current.
        self.with(ctx, || unsafe { (self.calls.ctx_synchronize)() }.ok())
    }
}
