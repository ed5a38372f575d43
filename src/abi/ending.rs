//! The ways in which a process ends that the report must not miss: `exit` (the finaliser), `_exit` and `_Exit`.
//! `quick_exit` has a handler of its own; signals leave no chance.

use super::dlsym::Library;
use crate::life::exit;
use crate::report::model::EndedBy;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Run by the dynamic linker after all of the program's exit handlers.
#[used]
#[cfg_attr(not(test), unsafe(link_section = ".fini_array"))]
static FINALISER: extern "C" fn() = finalise;

extern "C" fn finalise() {
    exit::finish(EndedBy::Exit);
}

/// What lies behind our two functions, so that other preloaded libraries keep theirs.
static NEXT: [AtomicPtr<c_void>; 2] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 2];
const EXIT: usize = 0;
const STANDARD_EXIT: usize = 1;

/// Run by the dynamic linker when it loads the library.
#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static INITIALISER: extern "C" fn() = look_up;

/// Looks both functions up ahead of time: the end of a process may come in a signal handler, or in a child that shares
/// the memory of its parent, and must not wait for the dynamic linker's lock there.
extern "C" fn look_up() {
    for (at, name) in [(EXIT, c"_exit"), (STANDARD_EXIT, c"_Exit")] {
        NEXT[at].store(Library::NEXT.symbol(name), Ordering::Relaxed);
    }
}

/// Ends the process.
fn leave(by: usize, status: c_int) -> ! {
    let next = NEXT[by].load(Ordering::Relaxed);
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
    leave(EXIT, status)
}

/// `_Exit(3)`
///
/// # Safety
/// As the C library's.
#[allow(non_snake_case)]
#[cfg_attr(all(not(test), feature = "exports"), unsafe(no_mangle))]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    exit::finish(EndedBy::StandardImmediateExit);
    leave(STANDARD_EXIT, status)
}
