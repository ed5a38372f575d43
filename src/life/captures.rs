//! Which streams of the process capture.

use super::{contexts, graphs, process, threads};
use crate::driver::{Ctx, CuResult, real};
use parking_lot::Mutex;
use std::collections::HashMap;

/// A stream as a key: its handle, and for per-thread default streams the thread and the context that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StreamKey {
    handle: usize,
    thread: u64,
    ctx: usize,
}

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

/// What stands for the null stream of an entry point: the legacy stream, or the calling thread's own.
pub fn handle_of(handle: usize, per_thread: bool) -> usize {
    if handle == 0 && per_thread { PER_THREAD } else { handle }
}

/// The graph that a stream captures into, if it captures; 0 if the capture is broken. Costs one load while nothing captures.
pub fn graph_of(handle: usize, per_thread: bool) -> Option<usize> {
    let capturing = contexts::fence().is_some_and(|fence| fence.gate().capturing());
    if capturing { real::captured_into(handle_of(handle, per_thread)) } else { None }
}

impl StreamKey {
    /// The key of `handle` as passed to an entry point whose null stream is the legacy one, or the per-thread one.
    pub fn new(handle: usize, per_thread: bool) -> StreamKey {
        let handle = handle_of(handle, per_thread);
        if handle != PER_THREAD {
            return StreamKey { handle, thread: 0, ctx: 0 };
        }
        StreamKey { handle, thread: this_thread(), ctx: real::current_ctx().map_or(0, |ctx| ctx.0) }
    }

    /// The context that the stream is of: not always the current one.
    fn ctx(self) -> Option<Ctx> {
        let named = if self.handle > PER_THREAD { real::stream_ctx(self.handle) } else { None };
        named.or_else(real::current_ctx)
    }
}

fn this_thread() -> u64 {
    // SAFETY: no arguments; the id of the calling thread.
    unsafe { libc::pthread_self() }
}

/// A capture that has begun.
struct Open {
    /// The context of its stream.
    ctx: usize,
    /// The graph that it makes; `None` if it adds to a graph of the program's, which outlives it.
    graph: Option<usize>,
}

impl Open {
    /// The capture has come to nothing: the driver has destroyed the graph that it was making.
    fn lost(self) {
        if let Some(taken) = self.graph.and_then(graphs::take) {
            taken.gone();
        }
    }
}

/// Streams that capture.
static OPEN: Mutex<Option<HashMap<StreamKey, Open>>> = Mutex::new(None);

/// Begins a capture by `call` that makes a graph, at a moment when no barrier is under way.
pub fn begin(key: StreamKey, call: impl FnOnce() -> CuResult) -> CuResult {
    begin_capture(key, true, call)
}

/// The same for a capture that adds to a graph of the program's.
pub fn begin_into(key: StreamKey, call: impl FnOnce() -> CuResult) -> CuResult {
    begin_capture(key, false, call)
}

fn begin_capture(key: StreamKey, makes_graph: bool, call: impl FnOnce() -> CuResult) -> CuResult {
    let Some(fence) = contexts::fence() else { return call() };
    // Asked before: a question about a stream may be one that a capture forbids.
    let ctx = key.ctx().map_or(0, |ctx| ctx.0);
    // Nothing can be recorded while it is open: so that what has been freed before can be seen to be done.
    fence.seal();
    let beginning = fence.gate().begin();
    let result = call();
    if result == CuResult::SUCCESS {
        let graph = if makes_graph { real::captured_into(key.handle) } else { None };
        let graph = graph.filter(|graph| *graph != 0);
        if let Some(graph) = graph {
            graphs::begins(graph);
        }
        if key.handle == PER_THREAD {
            threads::notice();
        }
        // A stream that was already known ended its capture unseen; it is counted once.
        if OPEN.lock().get_or_insert_default().insert(key, Open { ctx, graph }).is_none() {
            beginning.succeeded();
            tracing::debug!(
                "a capture has begun on stream {:#x}: nothing is waited for until it ends",
                key.handle
            );
        }
    }
    result
}

/// The calling thread ends: nobody can name its default stream from then on, so a capture on it comes to nothing,
/// whatever the driver does about it. It is no longer a reason to make no barrier: if the driver still refuses one, that
/// is what the barrier finds, and all that it breaks is this capture. (Its memory stays charged: the graph may be there.)
pub fn thread_ended() {
    // In a forked child the lock may be held for ever.
    if process::is_active() {
        let mine = |key: &StreamKey| key.handle == PER_THREAD && key.thread == this_thread();
        let gone = OPEN.lock().as_mut().map_or(0, |open| open.extract_if(|key, _| mine(key)).count());
        (0..gone).for_each(|_| one_ended());
    }
}

/// Ends a capture by `call`, whose result does not alone tell: an invalidated capture ends with an error, one that is
/// ended from the wrong thread goes on.
pub fn end(key: StreamKey, call: impl FnOnce() -> CuResult) -> CuResult {
    let graph = OPEN.lock().as_ref().and_then(|open| open.get(&key)).map(|open| open.graph);
    let Some(graph) = graph else { return call() };
    // Out of the books before the call: if it destroys the graph, its handle may come back at once.
    let taken = graph.and_then(graphs::take);
    let result = call();
    let ended = result == CuResult::SUCCESS || real::stream_capturing(key.handle) != Some(true);
    match taken {
        Some(taken) if ended && result != CuResult::SUCCESS => taken.gone(),
        Some(taken) => taken.put_back(),
        None => {}
    }
    if ended && remove(key).is_some() {
        one_ended();
        tracing::debug!("the capture on stream {:#x} has ended", key.handle);
    }
    result
}

/// Destroys a stream by `call`, and a capture on it with it. The stream is forgotten before the call, after which its
/// handle may at once be another stream's; until the call is over the capture still counts.
pub fn while_destroying(handle: usize, call: impl FnOnce() -> CuResult) -> CuResult {
    let key = StreamKey::new(handle, false);
    let Some(open) = remove(key) else { return call() };
    let taken = open.graph.and_then(graphs::take);
    let result = call();
    if result == CuResult::SUCCESS {
        if let Some(taken) = taken {
            taken.gone();
        }
        one_ended();
    } else {
        if let Some(taken) = taken {
            taken.put_back();
        }
        OPEN.lock().get_or_insert_default().insert(key, open);
    }
    result
}

/// The context is gone, and all captures on its streams with it.
pub fn forget_context(ctx: Ctx) {
    let gone: Vec<Open> = OPEN.lock().as_mut().map_or_else(Vec::new, |open| {
        open.extract_if(|_, open| open.ctx == ctx.0).map(|(_, open)| open).collect()
    });
    for open in gone {
        open.lost();
        one_ended();
    }
}

fn remove(key: StreamKey) -> Option<Open> {
    OPEN.lock().as_mut()?.remove(&key)
}

fn one_ended() {
    if let Some(fence) = contexts::fence() {
        fence.gate().ended();
    }
}
