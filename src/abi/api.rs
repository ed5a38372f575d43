//! The functions that a program may call on purpose: `include/gpucache.h`. All else in this library answers for CUDA.

use super::guard::shield;
use crate::driver::real;
use crate::life::{contexts, control, exit, phases, process, say};
use crate::report::cap::SetBy;
use crate::report::model::EndedBy;
use crate::report::{to_json, write_atomically};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

const OK: c_int = 0;
const INACTIVE: c_int = -1;
const INVALID: c_int = -2;
const FAILED: c_int = -3;
/// The calling thread's current device.
const CURRENT: c_int = -1;

/// The version, as a C string.
static VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => unreachable!(),
};

/// The device that is meant; `None` if it cannot be told.
fn device(device: c_int) -> Option<u32> {
    match device {
        CURRENT => real::current_device(),
        device => u32::try_from(device).ok(),
    }
}

/// A figure of a device; 0 where there is none.
fn figure(which: c_int, read: impl FnOnce(u32) -> u64) -> u64 {
    if !control::can_be_asked() {
        return 0;
    }
    shield(|| device(which).map_or(0, read)).unwrap_or(0)
}

/// Something to be done.
fn action(act: impl FnOnce() -> c_int) -> c_int {
    if !control::can_be_asked() {
        return INACTIVE;
    }
    shield(act).unwrap_or(INACTIVE)
}

/// Whether there are figures to tell: also after an internal fault, whose report they are.
fn has_figures() -> bool {
    !real::inside() && process::is_owner() && (process::is_active() || process::is_degraded())
}

fn in_use(device: u32) -> (u64, u64) {
    let lives = contexts::all().filter(|life| life.device == device);
    lives.map(|life| life.server.in_use()).fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
}

macro_rules! functions {
    ($( $(#[$doc:meta])* fn $name:ident($($arg:ident : $ty:ty),*) -> $result:ty $body:block )*) => {
        /// The exported symbols.
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As `include/gpucache.h` says.
            #[cfg_attr(all(not(test), feature = "exports"), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> $result $body
        )*
    };
}

functions! {
    /// The library's version.
    fn gpucache_version() -> *const c_char {
        VERSION.as_ptr()
    }

    /// Gives idle memory back.
    fn gpucache_empty_cache() -> u64 {
        if !control::can_be_asked() {
            return 0;
        }
        shield(control::empty_cache).unwrap_or(0)
    }

    /// Bytes of blocks in use.
    fn gpucache_memory_allocated(device: c_int) -> u64 {
        figure(device, |device| in_use(device).1)
    }

    /// The most of that.
    fn gpucache_max_memory_allocated(device: c_int) -> u64 {
        figure(device, |device| phases::peaks(device).allocated)
    }

    /// Bytes that the pool holds.
    fn gpucache_memory_reserved(device: c_int) -> u64 {
        figure(device, |device| {
            contexts::known_books(device).map_or(0, |books| books.account.reserved().current)
        })
    }

    /// The most of that.
    fn gpucache_max_memory_reserved(device: c_int) -> u64 {
        figure(device, |device| phases::peaks(device).reserved)
    }

    /// Bytes that the program has asked for.
    fn gpucache_memory_requested(device: c_int) -> u64 {
        figure(device, |device| in_use(device).0)
    }

    /// The most of that.
    fn gpucache_max_memory_requested(device: c_int) -> u64 {
        figure(device, |device| phases::peaks(device).requested)
    }

    /// Starts the peaks anew.
    fn gpucache_reset_peak(which: c_int) -> c_int {
        action(|| device(which).map_or(INVALID, |device| { phases::reset(Some(device)); OK }))
    }

    /// The cap.
    fn gpucache_limit(device: c_int) -> u64 {
        figure(device, |device| {
            contexts::known_books(device).map_or(0, |books| books.account.limit_bytes())
        })
    }

    /// Changes the cap.
    fn gpucache_set_limit(which: c_int, bytes: u64) -> c_int {
        if !process::is_active() {
            // Before the first CUDA call it is kept; a device must then be named.
            let kept = process::is_new() && u32::try_from(which).is_ok_and(|device| control::want_limit(device, bytes, SetBy::Program));
            return if kept { OK } else if process::is_new() { INVALID } else { INACTIVE };
        }
        action(|| {
            let Some(device) = device(which).filter(|device| control::want_limit(*device, bytes, SetBy::Program)) else {
                return INVALID;
            };
            control::set_limit(device, bytes, SetBy::Program);
            OK
        })
    }

    /// The report as of now.
    fn gpucache_stats_json(buffer: *mut c_char, size: usize) -> i64 {
        let text = if has_figures() {
            shield(|| to_json(&exit::gather(EndedBy::Running))).unwrap_or_default()
        } else {
            String::new()
        };
        if size > 0 && !buffer.is_null() {
            let length = text.len().min(size - 1);
            // SAFETY: the caller's buffer has `size` bytes, of which this writes at most all.
            unsafe {
                std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), length);
                *buffer.add(length) = 0;
            }
        }
        text.len() as i64
    }

    /// Writes the report as of now.
    fn gpucache_write_report(path: *const c_char) -> c_int {
        if !has_figures() {
            return INACTIVE;
        }
        shield(|| {
            if path.is_null() {
                let written = exit::write(EndedBy::Running);
                return if written == exit::Written::Elsewhere { FAILED } else { OK };
            }
            // SAFETY: a C string of the caller's.
            let path = OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
            let report = exit::gather_all(EndedBy::Running);
            match write_atomically(path.as_ref(), to_json(&report).as_bytes()) {
                Ok(()) => OK,
                Err(error) => {
                    say::line(&format!("error: could not write the report: {error}"));
                    FAILED
                }
            }
        }).unwrap_or(FAILED)
    }

    /// Begins a phase.
    fn gpucache_mark(name: *const c_char) -> c_int {
        if name.is_null() {
            return INVALID;
        }
        if !process::is_new() && !control::can_be_asked() {
            return INACTIVE;
        }
        // SAFETY: a C string of the caller's.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        shield(|| phases::mark(&name)).map_or(INACTIVE, |()| OK)
    }
}

#[cfg(test)]
mod tests {
    use super::NAMES;

    #[test]
    fn the_header_declares_what_is_exported() {
        let header = include_str!("../../include/gpucache.h");
        let mut declared: Vec<&str> = header
            .lines()
            .filter(|line| line.starts_with("GPUCACHE_WEAK "))
            .filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next())
            .collect();
        let mut exported = NAMES.to_vec();
        declared.sort_unstable();
        exported.sort_unstable();
        assert_eq!(declared, exported);
    }
}
