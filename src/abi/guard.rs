//! No fault of this library reaches the program: panics stop here and turn the library into a pass-through.

use crate::life::{process, say};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body`; `None` if it panicked, in which case the library forwards to the driver from now on and has said so.
#[inline(always)]
pub fn shield<T>(body: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => Some(value),
        Err(cause) => {
            caught(&*cause);
            None
        }
    }
}

#[cold]
fn caught(cause: &(dyn Any + Send)) {
    let text = cause
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| cause.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    process::degrade(&format!("internal fault: {text}"));
}

/// For what makes the process unable to go on at all: the dynamic linker gave us no way to reach the C library.
pub fn fatal(text: &str) -> ! {
    say::line(text);
    // SAFETY: ends the process at once, running nothing that could need what is missing.
    unsafe { libc::_exit(127) }
}
