//! The entry of `dlsym` on x86-64.

use crate::abi::dlsym::{REAL_DLSYM, route};
use crate::abi::runtime;
use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_void};

/// Versions under which glibc has published `dlsym` on this processor, newest first.
pub const DLSYM_VERSIONS: [&CStr; 2] = [c"GLIBC_2.34", c"GLIBC_2.2.5"];

/// The interposed `dlsym`.
///
/// glibc reads the caller's return address to give `RTLD_NEXT` and `RTLD_DEFAULT` their meaning, so the real function
/// must see the caller's frame and not ours: [`route`] is asked what to do, and unless it has an answer of its own the
/// real `dlsym` is reached by a jump with registers and stack as they came.
///
/// # Safety
/// As `dlsym(3)`: `handle` from `dlopen` or a pseudo-handle, `name` a C string.
#[unsafe(naked)]
#[cfg_attr(all(not(test), feature = "exports"), unsafe(no_mangle))]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        "mov rdx, qword ptr [rsp]", // where the caller goes on
        "push rdi",
        "push rsi",
        "sub rsp, 8", // keep the stack aligned to 16 at the call
        "call {route}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        // rax: the answer, rdx: 1 when it is one
        "test rdx, rdx",
        "jne 2f",
        "mov rax, qword ptr [rip + {real}]",
        "jmp rax",
        "2:",
        "ret",
        route = sym route,
        real = sym REAL_DLSYM,
    )
}

runtime_entries!(second: "mov rsi, qword ptr [rsp]", third: "mov rdx, qword ptr [rsp]", jump: "jmp {body}");
