//! Access of one context to the memory of another, which the program switches for whole contexts.

use super::table::real;
use super::types::{Context, CuResult};
use crate::driver::{Ctx, real as gpu};
use crate::life::{peers, process};
use std::ffi::c_uint;

/// `cuCtxEnablePeerAccess`: the current context may reach the memory of `peer`, what is there and what is to come.
///
/// # Safety
/// As the driver's.
pub unsafe fn enable(peer: Context, flags: c_uint) -> CuResult {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::cuCtxEnablePeerAccess(peer, flags) };
    if result == CuResult::SUCCESS
        && process::is_active()
        && let (Some(ctx), Some(device)) = (gpu::current_ctx(), gpu::current_device())
        && let Err(code) = peers::allow(Ctx(peer as usize), ctx, device)
    {
        // SAFETY: takes back what has just been done.
        unsafe { real::cuCtxDisablePeerAccess(peer) };
        return code;
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
    if result == CuResult::SUCCESS
        && process::is_active()
        && let Some(ctx) = gpu::current_ctx()
    {
        peers::forbid(Ctx(peer as usize), ctx);
    }
    result
}
