//! Gives the driver layer the addresses of the functions that the pool calls.

use super::dlsym::Library;
use crate::driver::CuResult;
use crate::driver::real::{Calls, install, mapping};
use std::ffi::c_void;

/// The first driver with context-wide events.
const CONTEXT_EVENTS_SINCE: i32 = 12_050;

/// Looks the functions up in the driver library. `None`: it lacks a necessary one, so it is too old or too foreign to
/// pool on.
///
/// Calls the dynamic linker and the driver, so nothing that either may wait for must be held.
pub fn look_up(driver: Library) -> Option<Calls> {
    macro_rules! function {
        ($name:literal) => {{
            let address = driver.symbol($name);
            // SAFETY: the driver's function of this name; the field that takes it has its parameters.
            (!address.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, _>(address) })
        }};
    }
    let mapping = || {
        Some(mapping::Calls {
            attribute: function!(c"cuDeviceGetAttribute")?,
            granularity: function!(c"cuMemGetAllocationGranularity")?,
            reserve: function!(c"cuMemAddressReserve")?,
            free: function!(c"cuMemAddressFree")?,
            create: function!(c"cuMemCreate")?,
            release: function!(c"cuMemRelease")?,
            map: function!(c"cuMemMap")?,
            unmap: function!(c"cuMemUnmap")?,
            set_access: function!(c"cuMemSetAccess")?,
        })
    };
    let events = version(driver) >= CONTEXT_EVENTS_SINCE;
    Some(Calls {
        mem_alloc: function!(c"cuMemAlloc_v2")?,
        mem_free: function!(c"cuMemFree_v2")?,
        mem_info: function!(c"cuMemGetInfo_v2")?,
        total_mem: function!(c"cuDeviceTotalMem_v2")?,
        device_name: function!(c"cuDeviceGetName")?,
        ctx_current: function!(c"cuCtxGetCurrent")?,
        ctx_device: function!(c"cuCtxGetDevice")?,
        ctx_push: function!(c"cuCtxPushCurrent_v2")?,
        ctx_pop: function!(c"cuCtxPopCurrent_v2")?,
        ctx_synchronize: function!(c"cuCtxSynchronize")?,
        event_create: function!(c"cuEventCreate")?,
        event_query: function!(c"cuEventQuery")?,
        ctx_id: function!(c"cuCtxGetId"),
        primary_state: function!(c"cuDevicePrimaryCtxGetState"),
        exchange_mode: function!(c"cuThreadExchangeStreamCaptureMode"),
        stream_capturing: function!(c"cuStreamIsCapturing"),
        stream_ctx: function!(c"cuStreamGetCtx"),
        capture_info: function!(c"cuStreamGetCaptureInfo_v2"),
        ctx_record: events.then(|| function!(c"cuCtxRecordEvent")).flatten(),
        ctx_wait: events.then(|| function!(c"cuCtxWaitEvent")).flatten(),
        can_access_peer: function!(c"cuDeviceCanAccessPeer"),
        mapping: mapping(),
    })
}

/// Installs what [`look_up`] found; without it, everything is forwarded.
pub fn connect(calls: Option<Calls>) {
    match calls {
        Some(calls) => install(calls),
        None => crate::life::notes::add(
            "the driver lacks functions that the pool needs: nothing is pooled".to_owned(),
        ),
    }
}

fn version(driver: Library) -> i32 {
    let address = driver.symbol(c"cuDriverGetVersion");
    if address.is_null() {
        return 0;
    }
    let mut version = 0;
    // SAFETY: cuDriverGetVersion; writes one integer to our local, before cuInit too.
    let result = unsafe {
        let get: unsafe extern "C" fn(*mut i32) -> CuResult = std::mem::transmute(address);
        get(&raw mut version)
    };
    if result == CuResult::SUCCESS { version } else { 0 }
}
