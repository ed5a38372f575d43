//! `cuGetProcAddress` in both forms: the real one answers, and where its answer is a hooked function the hook goes out.

use super::resolve;
use super::table::real;
use super::types::CuResult;
use std::ffi::{CStr, c_char, c_int, c_ulonglong, c_void};

/// `cuGetProcAddress` of CUDA 11.3.
///
/// # Safety
/// As the driver's.
pub unsafe fn get(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: c_ulonglong,
) -> CuResult {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::cuGetProcAddress(symbol, function, version, flags) };
    // SAFETY: as above.
    unsafe { replace(result, symbol, function) };
    result
}

/// `cuGetProcAddress` of CUDA 12.0; `status` may be NULL.
///
/// # Safety
/// As the driver's.
pub unsafe fn get_v2(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: c_ulonglong,
    status: *mut c_int,
) -> CuResult {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::cuGetProcAddress_v2(symbol, function, version, flags, status) };
    // SAFETY: as above.
    unsafe { replace(result, symbol, function) };
    result
}

/// `cuGetProcAddress_v2_ptsz`: the same for processes with per-thread default streams, where the driver has it.
///
/// # Safety
/// As the driver's.
pub unsafe fn get_v2_ptsz(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: c_ulonglong,
    status: *mut c_int,
) -> CuResult {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::cuGetProcAddress_v2_ptsz(symbol, function, version, flags, status) };
    // SAFETY: as above.
    unsafe { replace(result, symbol, function) };
    result
}

unsafe fn replace(result: CuResult, symbol: *const c_char, function: *mut *mut c_void) {
    if result != CuResult::SUCCESS || symbol.is_null() || function.is_null() {
        return;
    }
    // SAFETY: the driver accepted both: `function` is written, `symbol` is a C string.
    unsafe {
        if !(*function).is_null() {
            *function = resolve::substitute(CStr::from_ptr(symbol), *function);
        }
    }
}
