//! Green contexts: shares of a device's processors with a context handle of their own. They are not contexts of their own
//! as far as memory goes: what is allocated while one is current is the primary context's and outlives it. The driver
//! documents that what is recorded and waited for in a primary context concerns its green contexts too, so the primary
//! context's pool serves them, and its part in a barrier is theirs.

use super::{captures, contexts};
use crate::driver::Ctx;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A green context that lives.
#[derive(Clone, Copy)]
pub struct Green {
    handle: usize,
    /// The device's ordinal.
    pub device: u32,
    /// The handle that stands for it where a context is asked for, once the program has one.
    ctx: Option<Ctx>,
}

static LIVING: Mutex<Vec<Green>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A green context of `device` has begun.
pub fn begun(handle: usize, device: u32) {
    put_back(Green { handle, device, ctx: None });
}

/// `ctx` stands for the green context.
pub fn is_shown_as(handle: usize, ctx: Ctx) {
    if let Some(green) = LIVING.lock().iter_mut().find(|green| green.handle == handle) {
        green.ctx = Some(ctx);
    }
    contexts::handles_changed();
}

/// The context whose memory is allocated while `ctx` is current.
pub fn home(ctx: Ctx) -> Ctx {
    if COUNT.load(Ordering::Acquire) == 0 {
        return ctx;
    }
    let device = LIVING.lock().iter().find(|green| green.ctx == Some(ctx)).map(|green| green.device);
    device.and_then(contexts::primary).unwrap_or(ctx)
}

/// Takes a green context out that is about to end: its handle may come back at once.
pub fn take(handle: usize) -> Option<Green> {
    let mut living = LIVING.lock();
    let at = living.iter().position(|green| green.handle == handle)?;
    let green = living.swap_remove(at);
    COUNT.store(living.len(), Ordering::Release);
    Some(green)
}

/// It has not ended.
pub fn put_back(green: Green) {
    let mut living = LIVING.lock();
    living.retain(|other| other.handle != green.handle);
    living.push(green);
    COUNT.store(living.len(), Ordering::Release);
}

impl Green {
    /// It has ended: the driver has invalidated the captures of its streams, and lets none of those be used any more.
    pub fn ended(self) {
        if let Some(ctx) = self.ctx {
            captures::forget_context(ctx);
        }
        contexts::handles_changed();
    }
}
