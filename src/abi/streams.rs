//! Stream-ordered memory, counted and held under the cap; and the program's own synchronisations of whole contexts,
//! which prove to the pool what it would otherwise have to ask.

use super::memory::{counted, free_or};
use super::table::real;
use super::types::{Context, CuResult, DevicePtr, MemPool, Stream};
use crate::driver::{Ctx, real as gpu};
use crate::life::contexts;
use crate::stats::ExternalKind;

/// Makes the hooks of one allocating function in its legacy and its per-thread form.
macro_rules! allocators {
    ($( $name:ident => $real:ident ( $($arg:ident : $ty:ty),* ); )*) => {$(
        #[doc = concat!("`", stringify!($real), "`")]
        ///
        /// # Safety
        /// As the driver's.
        pub unsafe fn $name(address: *mut DevicePtr, bytes: usize, $($arg: $ty),*) -> CuResult {
            // SAFETY: the caller's arguments.
            let call = || unsafe { real::$real(address, bytes, $($arg),*) };
            if address.is_null() || bytes == 0 {
                return call();
            }
            // SAFETY: `address` is what the call writes.
            unsafe { counted(address, bytes as u64, ExternalKind::Async, call) }
        }
    )*};
}

allocators! {
    alloc_async => cuMemAllocAsync(stream: Stream);
    alloc_async_ptsz => cuMemAllocAsync_ptsz(stream: Stream);
    alloc_from_pool_async => cuMemAllocFromPoolAsync(pool: MemPool, stream: Stream);
    alloc_from_pool_async_ptsz => cuMemAllocFromPoolAsync_ptsz(pool: MemPool, stream: Stream);
}

/// `cuMemFreeAsync`, which the driver also takes for memory of `cuMemAlloc`. For a pooled block the stream's order needs
/// no care of its own: what is submitted before the free is covered by the epoch that the block is freed under.
///
/// # Safety
/// As the driver's.
pub unsafe fn free_async(address: DevicePtr, stream: Stream) -> CuResult {
    // SAFETY: the caller's arguments.
    free_or(address, || unsafe { real::cuMemFreeAsync(address, stream) })
}

/// `cuMemFreeAsync_ptsz`
///
/// # Safety
/// As the driver's.
pub unsafe fn free_async_ptsz(address: DevicePtr, stream: Stream) -> CuResult {
    // SAFETY: the caller's arguments.
    free_or(address, || unsafe { real::cuMemFreeAsync_ptsz(address, stream) })
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
    }
    result
}
