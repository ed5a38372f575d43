//! `cuGetProcAddress` in both forms: the real one answers, and where its answer is a hooked function the hook goes out.

use super::resolve;
use super::table::real;
use super::types::CuResult;
use std::ffi::{CStr, c_char, c_int, c_ulonglong, c_void};

macro_rules! resolvers {
    ($( $(#[$doc:meta])* $name:ident => $real:ident ( $($more:ident : $ty:ty)? ); )*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the driver's.
        pub unsafe fn $name(
            symbol: *const c_char,
            function: *mut *mut c_void,
            version: c_int,
            flags: c_ulonglong,
            $($more: $ty)?
        ) -> CuResult {
            // SAFETY: the caller's arguments.
            unsafe {
                let result = real::$real(symbol, function, version, flags, $($more)?);
                replace(result, symbol, function);
                result
            }
        }
    )*};
}

resolvers! {
    /// `cuGetProcAddress` of CUDA 11.3.
    get => cuGetProcAddress();
    /// `cuGetProcAddress` of CUDA 12.0; `status` may be null.
    get_v2 => cuGetProcAddress_v2(status: *mut c_int);
    /// The same for processes with per-thread default streams, where the driver has it.
    get_v2_ptsz => cuGetProcAddress_v2_ptsz(status: *mut c_int);
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
