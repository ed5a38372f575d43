//! The ways in which a process ends that the report must not miss: `exit` (the finaliser), `_exit` and `_Exit`.
//! `quick_exit` has a handler of its own; signals leave no chance.

use super::dlsym::Library;
use crate::life::exit;
use crate::report::model::EndedBy;
use std::ffi::{CStr, c_int};

/// Run by the dynamic linker after all of the program's exit handlers.
#[used]
#[cfg_attr(not(test), unsafe(link_section = ".fini_array"))]
static FINALISER: extern "C" fn() = finalise;

extern "C" fn finalise() {
    exit::finish(EndedBy::Exit);
}

/// Ends the process by the function that lies behind ours, so that other preloaded libraries keep theirs.
fn leave(name: &CStr, status: c_int) -> ! {
    let next = Library::NEXT.symbol(name);
    if !next.is_null() {
        // SAFETY: `_exit` or `_Exit` of the C library or of another preloaded one.
        let next: unsafe extern "C" fn(c_int) -> ! = unsafe { std::mem::transmute(next) };
        // SAFETY: as above.
        unsafe { next(status) }
    }
    loop {
        // SAFETY: ends the process; does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// `_exit(2)`
///
/// # Safety
/// As the C library's.
#[cfg_attr(all(not(test), feature = "exports"), unsafe(no_mangle))]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    exit::finish(EndedBy::ImmediateExit);
    leave(c"_exit", status)
}

/// `_Exit(3)`
///
/// # Safety
/// As the C library's.
#[allow(non_snake_case)]
#[cfg_attr(all(not(test), feature = "exports"), unsafe(no_mangle))]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    exit::finish(EndedBy::StandardImmediateExit);
    leave(c"_Exit", status)
}
