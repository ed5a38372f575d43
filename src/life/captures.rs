//! Which streams of the process capture.

use super::contexts;
use crate::driver::{Ctx, CuResult, real};
use parking_lot::Mutex;
use std::collections::HashMap;

/// A stream as a key: its handle, and for per-thread default streams the thread that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StreamKey {
    handle: usize,
    thread: u64,
}

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

/// What stands for the null stream of an entry point: the legacy stream, or the calling thread's own.
pub fn handle_of(handle: usize, per_thread: bool) -> usize {
    if handle == 0 && per_thread { PER_THREAD } else { handle }
}

/// The graph that a stream captures into, if it captures. Costs one load while nothing captures.
pub fn graph_of(handle: usize, per_thread: bool) -> Option<usize> {
    let capturing = contexts::fence().is_some_and(|fence| fence.gate().capturing());
    if capturing { real::captured_into(handle_of(handle, per_thread)) } else { None }
}

impl StreamKey {
    /// The key of `handle` as passed to an entry point whose null stream is the legacy one, or the per-thread one.
    pub fn new(handle: usize, per_thread: bool) -> StreamKey {
        let handle = handle_of(handle, per_thread);
        // SAFETY: no arguments; the id of the calling thread.
        let this_thread = unsafe { libc::pthread_self() };
        let thread = if handle == PER_THREAD { this_thread } else { 0 };
        StreamKey { handle, thread }
    }
}

/// Streams that capture, each with the context that was current when it began.
static OPEN: Mutex<Option<HashMap<StreamKey, usize>>> = Mutex::new(None);

/// Begins a capture by `call`, at a moment when no barrier is under way.
pub fn begin(key: StreamKey, call: impl FnOnce() -> CuResult) -> CuResult {
    let Some(fence) = contexts::fence() else { return call() };
    // Nothing can be recorded while it is open: so that what has been freed before can be seen to be done.
    fence.seal();
    let beginning = fence.gate().begin();
    let result = call();
    if result == CuResult::SUCCESS {
        let ctx = real::current_ctx().map_or(0, |ctx| ctx.0);
        // A stream that was already known ended its capture unseen; it is counted once.
        if OPEN.lock().get_or_insert_default().insert(key, ctx).is_none() {
            beginning.succeeded();
        }
    }
    result
}

/// Ends a capture by `call`, whose result does not alone tell: an invalidated capture ends with an error, one that is
/// ended from the wrong thread goes on.
pub fn end(key: StreamKey, call: impl FnOnce() -> CuResult) -> CuResult {
    let result = call();
    let open = OPEN.lock().as_ref().is_some_and(|open| open.contains_key(&key));
    if open && (result == CuResult::SUCCESS || real::stream_capturing(key.handle) != Some(true)) {
        closed(key);
    }
    result
}

/// Destroys a stream by `call`, and a capture on it with it. The stream is forgotten before the call, after which its
/// handle may at once be another stream's; until the call is over the capture still counts.
pub fn while_destroying(handle: usize, call: impl FnOnce() -> CuResult) -> CuResult {
    let key = StreamKey::new(handle, false);
    let open = OPEN.lock().as_mut().and_then(|open| open.remove(&key));
    let result = call();
    if let Some(ctx) = open {
        if result == CuResult::SUCCESS {
            one_ended();
        } else {
            OPEN.lock().get_or_insert_default().insert(key, ctx);
        }
    }
    result
}

/// The context is gone, and all captures on its streams with it.
pub fn forget_context(ctx: Ctx) {
    let keys: Vec<StreamKey> = OPEN.lock().as_ref().map_or_else(Vec::new, |open| {
        open.iter().filter(|(_, of)| **of == ctx.0).map(|(key, _)| *key).collect()
    });
    keys.into_iter().for_each(closed);
}

fn closed(key: StreamKey) {
    let was_open = OPEN.lock().as_mut().is_some_and(|open| open.remove(&key).is_some());
    if was_open {
        one_ended();
    }
}

fn one_ended() {
    if let Some(fence) = contexts::fence() {
        fence.gate().ended();
    }
}
