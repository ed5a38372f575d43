//! The whole state of the driver behind one lock, and the one gate through which every call enters it.
//!
//! The gate ([`call`]) does what all functions have in common, so that none can forget it: exit and fork checks,
//! counting, virtual (and on request real) cost, injected failures, checks for initialisation, the current context and
//! its sticky fault, and the trace.

use crate::area::Area;
use crate::capture::{Capture, Exec, Graph};
use crate::codes::{
    DEINITIALIZED, INVALID_CONTEXT, NOT_INITIALIZED, NOT_PERMITTED, NOT_SUPPORTED, R, SUCCESS,
};
use crate::config::Config;
use crate::context::{Context, Primary};
use crate::engine::Engine;
use crate::memory::{Account, Alloc, Chunk};
use crate::stream::{Event, Stream};
use crate::vmm::{Handle, Mapping};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a call needs before it may start.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// `cuInit` has been called.
    Init,
    /// A current context that is alive and has no fault.
    Ctx,
}

/// Bookkeeping of one exported function.
#[derive(Default)]
pub struct CallInfo {
    /// Calls so far.
    pub count: u64,
    cost: u64,
    overridden: bool,
    too_new: bool,
}

/// The state of the driver.
pub struct World {
    /// Settings.
    pub config: Config,
    /// Process that made this state, or initialised it after a fork.
    pid: u32,
    /// Whether `cuInit` succeeded.
    pub initialised: bool,
    /// Virtual time and pending effects.
    pub engine: Engine,
    /// Bytes and addresses.
    pub area: Area,
    /// One account a device.
    pub accounts: Vec<Account>,
    /// Chunks shared by small allocations, by offset.
    pub chunks: BTreeMap<u64, Chunk>,
    /// Live allocations by base address.
    pub allocs: BTreeMap<u64, Alloc>,
    /// Physical handles of the virtual memory functions.
    pub handles: HashMap<u64, Handle>,
    /// Reserved address ranges: base to length.
    pub reservations: BTreeMap<u64, u64>,
    /// Mapped ranges by base.
    pub mappings: BTreeMap<u64, Mapping>,
    /// Live contexts by handle.
    pub ctxs: HashMap<u64, Context>,
    /// Primary context of each device.
    pub primaries: Vec<Primary>,
    /// Live streams by handle.
    pub streams: HashMap<u64, Stream>,
    /// Live events by handle.
    pub events: HashMap<u64, Event>,
    /// Captures that have not ended, by id.
    pub captures: BTreeMap<u64, Capture>,
    /// Live graphs by handle.
    pub graphs: HashMap<u64, Graph>,
    /// Live executable graphs by handle.
    pub execs: HashMap<u64, Exec>,
    /// Modules, libraries, functions, pools, arrays: handle to what it stands for.
    pub things: HashMap<u64, Thing>,
    /// Default memory pool of each device.
    pub default_pools: Vec<u64>,
    /// Current memory pool of each device; 0 means the default one.
    pub current_pools: Vec<u64>,
    /// Bytes in use by pool.
    pub pool_used: HashMap<u64, u64>,
    /// Source of identities that are never reused.
    pub ids: u64,
    /// Current context of the calling thread, 0 if none.
    pub cur: u64,
    /// Number of the calling thread.
    pub thread: u64,
    /// Whether the entry point called is a per-thread one.
    pub per_thread: bool,
    calls: HashMap<&'static str, CallInfo>,
    current: &'static str,
    spent: u64,
    fixed_cost: bool,
    trace: Option<std::fs::File>,
}

/// Handles of small kinds.
#[derive(Clone, Debug)]
pub enum Thing {
    /// A loaded module or library.
    Module,
    /// A built-in kernel, by name.
    Function(&'static str),
    /// A memory pool of a device; attributes by number.
    Pool { device: i32, attributes: HashMap<i32, u64> },
    /// An array, backed by the allocation with this address and identity.
    Array(u64, u64),
    /// A green context of a context.
    Green(u64),
}

// SAFETY: the raw pointers point into mappings that live as long as the process, and are followed under the lock only.
unsafe impl Send for World {}

static WORLD: Mutex<Option<Box<World>>> = Mutex::new(None);
static INITIALISED: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);
static EXITED: AtomicBool = AtomicBool::new(false);
static TRAP: AtomicBool = AtomicBool::new(false);

thread_local! {
    // Never dropped: destructors of other thread-local values may still call the driver.
    static STACK: ManuallyDrop<RefCell<Vec<u64>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
    /// Capture mode of this thread: 0 global, 1 thread-local, 2 relaxed.
    pub static MODE: Cell<i32> = const { Cell::new(0) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Works on the contexts that the calling thread has pushed, the current one last.
pub fn stack<T>(f: impl FnOnce(&mut Vec<u64>) -> T) -> T {
    STACK.with(|s| f(&mut s.borrow_mut()))
}

/// Marks that the driver runs a function of the program, which must not call the driver.
pub struct InCallback(bool);

impl InCallback {
    /// Marks until dropped.
    pub fn enter() -> InCallback {
        InCallback(IN_CALLBACK.replace(true))
    }
}

impl Drop for InCallback {
    fn drop(&mut self) {
        IN_CALLBACK.set(self.0);
    }
}

impl World {
    /// A driver with these settings, not initialised yet.
    pub fn new(config: Config) -> World {
        let devices = config.devices as usize;
        let trace = config.trace.as_ref().map(|path| {
            std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap_or_else(|error| {
                eprintln!("simcuda: SIMCUDA_TRACE={path}: {error}");
                std::process::abort();
            })
        });
        World {
            config,
            pid: std::process::id(),
            initialised: false,
            engine: Engine::default(),
            area: Area::new(),
            accounts: vec![Account::default(); devices],
            chunks: BTreeMap::new(),
            allocs: BTreeMap::new(),
            handles: HashMap::new(),
            reservations: BTreeMap::new(),
            mappings: BTreeMap::new(),
            ctxs: HashMap::new(),
            primaries: (0..devices).map(|_| Primary::default()).collect(),
            streams: HashMap::new(),
            events: HashMap::new(),
            captures: BTreeMap::new(),
            graphs: HashMap::new(),
            execs: HashMap::new(),
            things: HashMap::new(),
            default_pools: vec![0; devices],
            current_pools: vec![0; devices],
            pool_used: HashMap::new(),
            ids: 0,
            cur: 0,
            thread: 0,
            per_thread: false,
            calls: HashMap::new(),
            current: "",
            spent: 0,
            fixed_cost: false,
            trace,
        }
    }

    /// A handle that no program can mistake for memory and that is never reused.
    pub fn handle(&mut self) -> u64 {
        self.ids += 1;
        0x5C00_0000_0000_0000 | (self.ids << 4)
    }

    /// Adds to the cost of the current call, unless the settings fix it.
    pub fn spend(&mut self, ns: u64) {
        if !self.fixed_cost {
            self.spent += ns;
            self.advance_to(self.engine.now + ns);
        }
    }

    /// Calls of an exported function so far.
    pub fn count(&self, name: &str) -> u64 {
        self.calls.get(name).map_or(0, |c| c.count)
    }

    /// The current context.
    pub fn ctx(&mut self) -> R<&mut Context> {
        self.ctxs.get_mut(&self.cur).ok_or(INVALID_CONTEXT)
    }

    /// Marks the driver as initialised, for calls and for children to come.
    pub fn mark_initialised(&mut self) {
        self.initialised = true;
        self.pid = std::process::id();
        INITIALISED.store(true, Ordering::Relaxed);
    }

    fn begin(&mut self, name: &'static str) -> R {
        let config = &self.config;
        let info = self.calls.entry(name).or_insert_with(|| {
            let cost = config.costs.get(name).copied();
            CallInfo {
                count: 0,
                cost: cost.unwrap_or_else(|| crate::costs::flat(name)),
                overridden: cost.is_some(),
                too_new: crate::procaddress::introduced(name) > config.version as u32,
            }
        });
        info.count += 1;
        let (count, cost, too_new) = (info.count, info.cost, info.too_new);
        self.current = name;
        self.fixed_cost = info.overridden;
        self.spent = cost;
        self.advance_to(self.engine.now + cost);
        if too_new {
            return Err(NOT_SUPPORTED);
        }
        for f in &self.config.failures {
            if f.name == name && (count == f.nth || (f.onwards && count > f.nth)) {
                return Err(f.code);
            }
        }
        Ok(())
    }

    fn check(&mut self, need: Need) -> R {
        self.cur = stack(|s| s.last().copied().unwrap_or(0));
        self.thread = thread_number();
        if need != Need::Nothing && !self.initialised {
            return Err(NOT_INITIALIZED);
        }
        if need == Need::Ctx {
            if self.cur == 0 {
                return Err(INVALID_CONTEXT);
            }
            let ctx = self.ctxs.get(&self.cur).ok_or(crate::codes::CONTEXT_IS_DESTROYED)?;
            if let Some(code) = ctx.fault {
                return Err(code);
            }
        }
        Ok(())
    }

    fn write_stats(&self) {
        use std::fmt::Write;
        let Some(path) = &self.config.stats else { return };
        let mut names: Vec<_> = self.calls.iter().collect();
        names.sort_by_key(|(name, _)| **name);
        let mut text = String::new();
        for (name, info) in names {
            let _ = writeln!(text, "{name} {}", info.count);
        }
        let peak: u64 = self.accounts.iter().map(|a| a.peak).sum();
        let leaked: u64 = self.allocs.values().map(|a| a.size).sum::<u64>()
            + self.handles.values().map(|h| h.size).sum::<u64>();
        let live = self.allocs.len() + self.handles.len();
        let _ = writeln!(text, "peak_used_bytes {peak}\nlive_allocations {live}\nleaked_bytes {leaked}");
        if let Err(error) = std::fs::write(path, text) {
            eprintln!("simcuda: SIMCUDA_STATS={path}: {error}");
        }
    }
}

fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let n = THREAD.get();
    if n != 0 {
        return n;
    }
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    THREAD.set(n);
    n
}

/// Locks the driver, making it from the environment on first use.
pub fn lock() -> MutexGuard<'static, Option<Box<World>>> {
    let mut guard = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    if guard.is_none() {
        let config = Config::from_env();
        TRAP.store(config.trap_at_exit, Ordering::Relaxed);
        *guard = Some(Box::new(World::new(config)));
        // SAFETY: registers handlers that live as long as this library.
        unsafe {
            libc::atexit(at_exit);
            libc::pthread_atfork(None, None, Some(in_child));
        }
    }
    guard
}

extern "C" fn in_child() {
    // A child of a process that had initialised the driver gets "not initialised" from every call, as with the real
    // driver; any other child may initialise it for itself.
    FORKED.store(INITIALISED.load(Ordering::Relaxed), Ordering::Relaxed);
}

extern "C" fn at_exit() {
    if FORKED.load(Ordering::Relaxed) {
        return;
    }
    if let Some(world) = WORLD.try_lock().ok().as_deref_mut().and_then(Option::as_mut)
        && world.pid == std::process::id()
    {
        world.write_stats();
    }
    EXITED.store(true, Ordering::Relaxed);
}

/// The gate. `args` writes the arguments for the trace, `body` is what the function does.
pub fn call(
    name: &'static str,
    need: Need,
    per_thread: bool,
    args: &dyn Fn() -> String,
    body: &mut dyn FnMut(&mut World) -> R,
) -> i32 {
    if EXITED.load(Ordering::Relaxed) {
        if !TRAP.load(Ordering::Relaxed) {
            return DEINITIALIZED;
        }
        let text = format!("simcuda: call to {name} after exit\n");
        // SAFETY: one write and the end of the process.
        unsafe {
            libc::write(2, text.as_ptr().cast(), text.len());
            libc::_exit(99);
        }
    }
    if FORKED.load(Ordering::Relaxed) {
        return NOT_INITIALIZED;
    }
    if IN_CALLBACK.try_with(Cell::get).unwrap_or(false) {
        return NOT_PERMITTED;
    }
    let mut guard = lock();
    let world = guard.as_mut().expect("made by lock");
    let start = world.config.real_cost.then(std::time::Instant::now);
    world.per_thread = per_thread;
    let result = world.begin(name).and_then(|()| world.check(need)).and_then(|()| body(world));
    let code = result.err().unwrap_or(SUCCESS);
    if let Some(trace) = &mut world.trace {
        let line = format!("{name}{} -> {code}\n", args());
        let _ = trace.write_all(line.as_bytes());
    }
    if let Some(start) = start {
        // Under the lock: the real driver serialises these calls too.
        let cost = std::time::Duration::from_nanos(world.spent);
        while start.elapsed() < cost {
            std::hint::spin_loop();
        }
    }
    code
}

/// Replaces the driver by a fresh one, for one test after another.
#[cfg(all(test, not(feature = "old-driver")))]
pub fn replace(config: Config) {
    drop(lock());
    let mut guard = lock();
    *guard = None;
    *guard = Some(Box::new(World::new(config)));
    stack(Vec::clear);
    MODE.set(0);
}
