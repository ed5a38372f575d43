//! Access of one context to the memory of another. Memory of `cuMemAlloc` follows the driver's own switch; mapped memory
//! has access set piece by piece, so the switch is repeated for what a pool has mapped.

use super::table::real;
use super::types::{Context, CuResult};
use crate::driver::{Ctx, real as gpu};
use crate::life::{contexts, process};
use std::ffi::c_uint;

/// `cuCtxEnablePeerAccess`: the current context may reach the memory of `peer`, what is there and what is to come.
///
/// # Safety
/// As the driver's.
pub unsafe fn enable(peer: Context, flags: c_uint) -> CuResult {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::cuCtxEnablePeerAccess(peer, flags) };
    let owner = Ctx(peer as usize);
    if result == CuResult::SUCCESS
        && process::is_active()
        && let (Some(fence), Some(ctx), Some(device)) =
            (contexts::fence(), gpu::current_ctx(), gpu::current_device())
    {
        // Before what is there: what another thread maps meanwhile is then seen by one or the other.
        fence.peers().add(owner, ctx, device);
        if let Err(code) = contexts::set_peer_access(owner, device, true) {
            let _ = fence.peers().remove(owner, ctx);
            // SAFETY: takes back what has just been done.
            unsafe { real::cuCtxDisablePeerAccess(peer) };
            return code;
        }
    }
    result
}

/// `cuCtxDisablePeerAccess`
///
/// # Safety
/// As the driver's.
pub unsafe fn disable(peer: Context) -> CuResult {
    // SAFETY: the caller's argument.
    let result = unsafe { real::cuCtxDisablePeerAccess(peer) };
    let owner = Ctx(peer as usize);
    if result == CuResult::SUCCESS
        && let (Some(fence), Some(ctx)) = (contexts::fence(), gpu::current_ctx())
        && let Some(device) = fence.peers().remove(owner, ctx)
    {
        // Access that is left over harms no correct program.
        let _ = contexts::set_peer_access(owner, device, false);
    }
    result
}
