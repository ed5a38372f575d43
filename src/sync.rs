//! The primitives of what is lock-free or excludes by its own means: the real ones, or under `--cfg loom` those of the
//! model checker, which runs a test through every order of its threads' steps.

#[cfg(loom)]
pub use checked::*;
#[cfg(not(loom))]
pub use real::*;

#[cfg(not(loom))]
mod real {
    pub use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
}

#[cfg(loom)]
mod checked {
    pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
    pub use loom::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    /// [`parking_lot::Mutex`]'s interface over the checker's: a model that panics has failed anyway.
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// A mutex.
        pub fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        /// Waits for the lock.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no thread of a model has panicked")
        }
    }

    /// [`parking_lot::RwLock`]'s interface over the checker's.
    #[derive(Default)]
    pub struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T> RwLock<T> {
        /// A lock.
        pub fn new(value: T) -> RwLock<T> {
            RwLock(loom::sync::RwLock::new(value))
        }

        /// Shared access, unless somebody has the lock for themselves.
        pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
            self.0.try_read().ok()
        }

        /// Waits for the lock, for oneself.
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().expect("no thread of a model has panicked")
        }
    }
}

/// In cache lines of its own: what is written often must not lie beside what every thread reads.
#[derive(Default)]
#[repr(align(128))]
pub struct Apart<T>(pub T);

impl<T> std::ops::Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Looks at a lock that is never held for long, and pauses between two of them at most.
const LOOKS: u32 = 100;
const PAUSES: u32 = 32;

/// A lock that is held for less than a microsecond at a time. To be woken takes a waiter some microseconds, and as long as one
/// sleeps the others queue up behind it: so it is looked at again for some dozen microseconds before this thread sleeps, too.
#[inline]
pub fn soon<T>(mutex: &parking_lot::Mutex<T>) -> parking_lot::MutexGuard<'_, T> {
    mutex.try_lock().unwrap_or_else(|| look_again(mutex))
}

#[cold]
fn look_again<T>(mutex: &parking_lot::Mutex<T>) -> parking_lot::MutexGuard<'_, T> {
    for look in 0..LOOKS {
        for _ in 0..(1 << look.min(PAUSES.ilog2())) {
            std::hint::spin_loop();
        }
        if !mutex.is_locked()
            && let Some(guard) = mutex.try_lock()
        {
            return guard;
        }
    }
    mutex.lock()
}

/// The lock, unless it stays taken: its holder may be the very thread that asks, interrupted by a signal, or one that
/// `exit` has stopped for good. Waits by sleeping, because a thread's first wait in a queue allocates memory, and at the
/// end of the process the allocator may be what was interrupted.
pub fn patiently<T>(mutex: &parking_lot::Mutex<T>) -> Option<parking_lot::MutexGuard<'_, T>> {
    for _ in 0..100 {
        if let Some(guard) = mutex.try_lock() {
            return Some(guard);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    None
}
