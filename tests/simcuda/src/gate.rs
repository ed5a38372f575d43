//! The lock around the driver, and the one gate through which every call enters it.
//!
//! The gate ([`call`]) does what all functions have in common, so that none can forget it: exit and fork checks,
//! counting, virtual (and on request real) cost, injected failures, checks for initialisation, the current context and
//! its sticky fault, and the trace.

use crate::codes::{
    CONTEXT_IS_DESTROYED, DEINITIALIZED, INVALID_CONTEXT, NOT_INITIALIZED, NOT_PERMITTED, NOT_SUPPORTED, R,
    SUCCESS,
};
use crate::config::Config;
use crate::thread::{in_callback, number, stack};
use crate::world::{CallInfo, World};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
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

static WORLD: Mutex<Option<Box<World>>> = Mutex::new(None);
static INITIALISED: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);
static EXITED: AtomicBool = AtomicBool::new(false);
static TRAP: AtomicBool = AtomicBool::new(false);

impl World {
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
        self.thread = number();
        if need != Need::Nothing && !self.initialised {
            return Err(NOT_INITIALIZED);
        }
        if need == Need::Ctx {
            if self.cur == 0 {
                return Err(INVALID_CONTEXT);
            }
            let ctx = self.ctxs.get(&self.cur).ok_or(CONTEXT_IS_DESTROYED)?;
            if let Some(code) = ctx.fault {
                return Err(code);
            }
        }
        Ok(())
    }
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
    if in_callback() {
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
    crate::thread::MODE.set(0);
}
