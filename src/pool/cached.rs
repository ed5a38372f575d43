//! What all caches and depots of the process may hold together.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that one cache may hold, and all of the process together.
pub const EACH: u64 = 32 << 20;
const TOTAL: u64 = 32 * EACH;

/// Bytes that caches hold by grant, and the depots by content.
#[derive(Default)]
pub struct Cached(AtomicU64);

impl Cached {
    pub const fn new() -> Cached {
        Cached(AtomicU64::new(0))
    }

    pub fn reserve(&self, bytes: u64) -> bool {
        let add = |held: u64| held.checked_add(bytes).filter(|held| *held <= TOTAL);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    #[cfg(test)]
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn release(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}
