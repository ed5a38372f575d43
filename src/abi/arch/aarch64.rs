//! The entry of `dlsym` on 64-bit Arm.

use crate::abi::dlsym::{REAL_DLSYM, route};
use crate::abi::runtime;
use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_void};

/// Versions under which glibc has published `dlsym` on this processor, newest first.
pub const DLSYM_VERSIONS: [&CStr; 2] = [c"GLIBC_2.34", c"GLIBC_2.17"];

/// The interposed `dlsym`; see the x86-64 one for why it ends in a jump.
///
/// # Safety
/// As `dlsym(3)`: `handle` from `dlopen` or a pseudo-handle, `name` a C string.
#[unsafe(naked)]
#[cfg_attr(all(not(test), feature = "exports"), unsafe(no_mangle))]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "mov x29, sp",
        "mov x2, x30", // where the caller goes on
        "bl {route}",
        "mov x2, x0",
        "mov x3, x1",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        // x2: the answer, x3: 1 when it is one
        "cbnz x3, 2f",
        "adrp x16, {real}",
        "ldr x16, [x16, #:lo12:{real}]",
        "br x16",
        "2:",
        "mov x0, x2",
        "ret",
        route = sym route,
        real = sym REAL_DLSYM,
    )
}

runtime_entries!(second: "mov x1, x30", third: "mov x2, x30", jump: "b {body}");
