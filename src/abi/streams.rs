//! Stream-ordered memory, counted and held under the cap; and the program's own synchronisations of whole contexts,
//! which prove to the pool what it would otherwise have to ask.

use super::memory::{counted_on, free_or};
use super::pools;
use super::table::real;
use super::types::{Context, CuResult, DevicePtr, MemPool, Stream};
use crate::driver::books::DeviceBooks;
use crate::driver::real::thread;
use crate::driver::{Ctx, real as gpu};
use crate::life::{captures, contexts, graphs};
use crate::stats::ExternalKind;

/// Allocates in stream order by `call`, on the device of `books`. While the stream captures, the memory belongs to the
/// graph: the driver reserves it for every run, whenever the program frees it.
unsafe fn allocating(
    books: Option<&'static DeviceBooks>,
    address: *mut DevicePtr,
    bytes: usize,
    graph: Option<usize>,
    mut call: impl FnMut() -> CuResult,
) -> CuResult {
    if address.is_null() || bytes == 0 {
        return call();
    }
    let kind = if graph.is_some() { ExternalKind::Graph } else { ExternalKind::Async };
    // SAFETY: `address` is what the call writes.
    let result = unsafe { counted_on(books, address, bytes as u64, kind, call) };
    if result == CuResult::SUCCESS
        && let Some(graph) = graph
    {
        // SAFETY: written by the successful call.
        graphs::hold(graph, unsafe { *address });
    }
    result
}

/// What stands for the graph of a capture that has been invalidated and not ended.
const BROKEN: usize = 0;

/// Frees in stream order by `call`.
///
/// The driver also takes memory of `cuMemAlloc`. For a pooled block the stream's order needs no care of its own: what is
/// submitted before the free is covered by the epoch that the block is freed under. While the stream captures, nothing is
/// freed now: the driver adds a node, or has its own answer for memory that is not the graph's and for a broken capture.
fn freeing(address: DevicePtr, graph: Option<usize>, call: impl FnOnce(DevicePtr) -> CuResult) -> CuResult {
    match graph {
        Some(BROKEN) if contexts::index().owner_of(address).is_some() => CuResult::STREAM_CAPTURE_INVALIDATED,
        Some(_) => call(address),
        None => thread::with(|thread| free_or(thread, address, call)),
    }
}

/// Makes the hooks of one function in its legacy and its per-thread form.
macro_rules! stream_ordered {
    ($( $name:ident => $real:ident, $pool_name:ident => $pool_real:ident, $free_name:ident => $free_real:ident, $per_thread:literal; )*) => {$(
        #[doc = concat!("`", stringify!($real), "`")]
        ///
        /// # Safety
        /// As the driver's.
        pub unsafe fn $name(address: *mut DevicePtr, bytes: usize, stream: Stream) -> CuResult {
            let graph = captures::graph_of(stream as usize, $per_thread);
            // SAFETY: the caller's arguments.
            unsafe {
                allocating(contexts::current_books(), address, bytes, graph, || real::$real(address, bytes, stream))
            }
        }

        #[doc = concat!("`", stringify!($pool_real), "`: charged to the pool's device")]
        ///
        /// # Safety
        /// As the driver's.
        pub unsafe fn $pool_name(address: *mut DevicePtr, bytes: usize, pool: MemPool, stream: Stream) -> CuResult {
            let graph = captures::graph_of(stream as usize, $per_thread);
            // SAFETY: the caller's arguments.
            unsafe {
                allocating(pools::books(pool), address, bytes, graph, || real::$pool_real(address, bytes, pool, stream))
            }
        }

        #[doc = concat!("`", stringify!($free_real), "`")]
        ///
        /// # Safety
        /// As the driver's.
        pub unsafe fn $free_name(address: DevicePtr, stream: Stream) -> CuResult {
            let graph = captures::graph_of(stream as usize, $per_thread);
            // SAFETY: the caller's arguments, or an address that the driver refuses.
            freeing(address, graph, |address| unsafe { real::$free_real(address, stream) })
        }
    )*};
}

stream_ordered! {
    alloc_async => cuMemAllocAsync, alloc_from_pool_async => cuMemAllocFromPoolAsync, free_async => cuMemFreeAsync, false;
    alloc_async_ptsz => cuMemAllocAsync_ptsz, alloc_from_pool_async_ptsz => cuMemAllocFromPoolAsync_ptsz,
        free_async_ptsz => cuMemFreeAsync_ptsz, true;
}

/// `cuCtxSynchronize`
///
/// # Safety
/// As the driver's.
pub unsafe fn context_synchronize() -> CuResult {
    // SAFETY: no arguments.
    proving(gpu::current_ctx(), || unsafe { real::cuCtxSynchronize() })
}

/// `cuCtxSynchronize` of CUDA 13, which names the context.
///
/// # Safety
/// As the driver's.
pub unsafe fn context_synchronize_v2(context: Context) -> CuResult {
    let ctx = if context.is_null() { gpu::current_ctx() } else { Some(Ctx(context as usize)) };
    // SAFETY: the caller's argument.
    proving(ctx, || unsafe { real::cuCtxSynchronize_v2(context) })
}

fn proving(ctx: Option<Ctx>, call: impl FnOnce() -> CuResult) -> CuResult {
    let (Some(ctx), Some(fence)) = (ctx, contexts::fence()) else { return call() };
    let epoch = fence.before_sync();
    let result = call();
    if result == CuResult::SUCCESS {
        fence.synced(ctx, epoch);
    } else {
        contexts::has_answered(ctx, result);
    }
    result
}
