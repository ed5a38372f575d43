//! What begins and what ends a context.

use super::table::real;
use super::types::{Context, CuResult, Device, Opaque};
use crate::driver::real::thread;
use crate::driver::{Ctx, real as gpu};
use crate::life::{contexts as lives, green as greens};
use std::ffi::{c_int, c_uint};

/// `cuInit`: nothing but the first call of most processes.
///
/// # Safety
/// As the driver's.
pub unsafe fn init(flags: c_uint) -> CuResult {
    // SAFETY: the caller's argument.
    let result = unsafe { real::cuInit(flags) };
    if result == CuResult::SUCCESS {
        crate::life::process::initialised();
    }
    result
}

/// `cuDevicePrimaryCtxRetain`
///
/// # Safety
/// As the driver's.
pub unsafe fn primary_retain(context: *mut Context, device: Device) -> CuResult {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::cuDevicePrimaryCtxRetain(context, device) };
    if result == CuResult::SUCCESS
        && let Ok(device) = u32::try_from(device)
    {
        // SAFETY: written by the successful call.
        lives::primary_is(device, Ctx(unsafe { *context } as usize));
    }
    result
}

/// The primary context ends with its last release.
fn releasing(device: Device, call: impl FnOnce() -> CuResult) -> CuResult {
    lives::while_ending(
        || primary(device),
        || {
            let result = call();
            (result, result == CuResult::SUCCESS && lives::primary_has_ended(device))
        },
    )
}

/// A reset ends the primary context whoever holds it.
fn resetting(device: Device, call: impl FnOnce() -> CuResult) -> CuResult {
    lives::while_ending(
        || primary(device),
        || {
            let result = call();
            (result, result == CuResult::SUCCESS)
        },
    )
}

fn primary(device: Device) -> Option<Ctx> {
    lives::primary(u32::try_from(device).ok()?)
}

/// `cuDevicePrimaryCtxRelease`
///
/// # Safety
/// As the driver's.
pub unsafe fn primary_release_v1(device: Device) -> CuResult {
    // SAFETY: the caller's argument.
    releasing(device, || unsafe { real::cuDevicePrimaryCtxRelease(device) })
}

/// `cuDevicePrimaryCtxRelease_v2`
///
/// # Safety
/// As the driver's.
pub unsafe fn primary_release(device: Device) -> CuResult {
    // SAFETY: the caller's argument.
    releasing(device, || unsafe { real::cuDevicePrimaryCtxRelease_v2(device) })
}

/// `cuDevicePrimaryCtxReset`
///
/// # Safety
/// As the driver's.
pub unsafe fn primary_reset_v1(device: Device) -> CuResult {
    // SAFETY: the caller's argument.
    resetting(device, || unsafe { real::cuDevicePrimaryCtxReset(device) })
}

/// `cuDevicePrimaryCtxReset_v2`
///
/// # Safety
/// As the driver's.
pub unsafe fn primary_reset(device: Device) -> CuResult {
    // SAFETY: the caller's argument.
    resetting(device, || unsafe { real::cuDevicePrimaryCtxReset_v2(device) })
}

/// `cuCtxCreate_v2`
///
/// # Safety
/// As the driver's.
pub unsafe fn create_v2(context: *mut Context, flags: c_uint, device: Device) -> CuResult {
    // SAFETY: the caller's arguments.
    unsafe { began(context, real::cuCtxCreate_v2(context, flags, device)) }
}

/// `cuCtxCreate_v3`
///
/// # Safety
/// As the driver's.
pub unsafe fn create_v3(
    context: *mut Context,
    params: Opaque,
    count: c_int,
    flags: c_uint,
    device: Device,
) -> CuResult {
    // SAFETY: the caller's arguments.
    unsafe { began(context, real::cuCtxCreate_v3(context, params, count, flags, device)) }
}

/// `cuCtxCreate_v4`
///
/// # Safety
/// As the driver's.
pub unsafe fn create_v4(context: *mut Context, params: Opaque, flags: c_uint, device: Device) -> CuResult {
    // SAFETY: the caller's arguments.
    unsafe { began(context, real::cuCtxCreate_v4(context, params, flags, device)) }
}

/// A new context is current now. It takes part in barriers from its first moment: its work may touch the memory of
/// other contexts before it allocates any of its own.
unsafe fn began(context: *mut Context, result: CuResult) -> CuResult {
    if result == CuResult::SUCCESS {
        // SAFETY: written by the successful call.
        lives::begun(Ctx(unsafe { *context } as usize), || true);
        thread::with(lives::current);
    }
    result
}

/// `cuCtxDestroy_v2`
///
/// # Safety
/// As the driver's.
pub unsafe fn destroy(context: Context) -> CuResult {
    lives::while_ending(
        || (!context.is_null()).then_some(Ctx(context as usize)),
        || {
            // SAFETY: the caller's argument.
            let result = unsafe { real::cuCtxDestroy_v2(context) };
            (result, result == CuResult::SUCCESS)
        },
    )
}

/// `cuCtxDestroy` of CUDA 2: the same but for what it demands of the context.
///
/// # Safety
/// As the driver's.
pub unsafe fn destroy_v1(context: Context) -> CuResult {
    lives::while_ending(
        || (!context.is_null()).then_some(Ctx(context as usize)),
        || {
            // SAFETY: the caller's argument.
            let result = unsafe { real::cuCtxDestroy(context) };
            (result, result == CuResult::SUCCESS)
        },
    )
}

/// `cuCtxDetach`: destroys the calling thread's current context when nothing else is attached to it.
///
/// # Safety
/// As the driver's.
pub unsafe fn detach(context: Context) -> CuResult {
    let ctx = if context.is_null() { gpu::current_ctx() } else { Some(Ctx(context as usize)) };
    lives::while_ending(
        || ctx,
        || {
            // SAFETY: the caller's argument.
            let result = unsafe { real::cuCtxDetach(context) };
            // A destroyed context is nobody's current one.
            (result, result == CuResult::SUCCESS && gpu::current_ctx() != ctx)
        },
    )
}

/// `cuGreenCtxCreate`: keeps the primary context of its device alive, and uses its memory.
///
/// # Safety
/// As the driver's.
pub unsafe fn green_create(
    green: *mut Opaque,
    description: Opaque,
    device: Device,
    flags: c_uint,
) -> CuResult {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::cuGreenCtxCreate(green, description, device, flags) };
    if result == CuResult::SUCCESS
        && let Ok(ordinal) = u32::try_from(device)
    {
        let mut primary = std::ptr::null_mut();
        // SAFETY: writes one handle to our local. The green context holds the context, so the release ends nothing.
        unsafe {
            if real::cuDevicePrimaryCtxRetain(&raw mut primary, device) == CuResult::SUCCESS {
                lives::primary_is(ordinal, Ctx(primary as usize));
                real::cuDevicePrimaryCtxRelease_v2(device);
            }
        }
        // SAFETY: written by the successful call.
        greens::begun(unsafe { *green } as usize, ordinal);
    }
    result
}

/// `cuCtxFromGreenCtx`
///
/// # Safety
/// As the driver's.
pub unsafe fn from_green(context: *mut Context, green: Opaque) -> CuResult {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::cuCtxFromGreenCtx(context, green) };
    if result == CuResult::SUCCESS {
        // SAFETY: written by the successful call.
        greens::is_shown_as(green as usize, Ctx(unsafe { *context } as usize));
    }
    result
}

/// `cuGreenCtxDestroy`: a release of the primary context, too.
///
/// # Safety
/// As the driver's.
pub unsafe fn green_destroy(green: Opaque) -> CuResult {
    // SAFETY: the caller's argument.
    let call = || unsafe { real::cuGreenCtxDestroy(green) };
    let Some(known) = greens::take(green as usize) else { return call() };
    let result = releasing(known.device as Device, call);
    if result == CuResult::SUCCESS {
        known.ended();
    } else {
        greens::put_back(known);
    }
    result
}
