//! The ends of threads: what a thread has kept to itself is left to others.
//!
//! Not by Rust's thread-locals with destructors. The C library registers those under the dynamic linker's lock, which is held
//! while constructors run: a thread would wait there for the constructor of a library that is being loaded, at its first
//! allocation, and that constructor may be waiting for the thread.

use super::captures;
use crate::driver::real::thread;
use crate::pool::local::{self, Thread};
use std::ffi::c_void;
use std::sync::OnceLock;

/// The key whose value every thread has that is to be noticed; `None` if the process has no more keys.
static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();

/// From now on threads that get a cache are noticed when they end.
pub fn start() {
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: writes to our local; the library is never unloaded, so the function stays where it is.
        (unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) } == 0).then_some(key)
    });
    if key.is_none() {
        tracing::warn!(
            "the process has no thread-specific key left: ends of threads are noticed by Rust's means"
        );
    }
    local::notice_ends_by(notice);
}

/// Sees to it that the calling thread's end is noticed.
pub fn notice() {
    if let Some(Some(key)) = KEY.get() {
        // SAFETY: a key that was created, and any value but null.
        unsafe { libc::pthread_setspecific(*key, std::ptr::from_ref(&KEY).cast()) };
    } else {
        thread_local! {
            static ENDS: Ends = const { Ends };
        }
        ENDS.try_with(|_| ()).unwrap_or_default();
    }
}

/// What stands in where there is no key: it ends with the thread, unless that holds up a constructor.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        captures::thread_ended();
        thread::with(Thread::leave);
    }
}

/// Runs once for every thread that was noticed, and again if it was noticed meanwhile.
extern "C" fn ended(_: *mut c_void) {
    captures::thread_ended();
    thread::with(Thread::leave);
}
