//! What one thread has counted of what it served from its cache. One writer, so counting takes no exchange; readers add up
//! the tallies of all threads.

use super::gauges::{Gauges, Usage};
use crate::stats::{OwnedHistogram, SizeHistogram};
use std::sync::atomic::{AtomicU64, Ordering};

/// A sum of bytes since it was last settled with the heap's, modulo 2^64, and the most that it was since then.
#[derive(Default)]
struct Swing {
    delta: AtomicU64,
    high: AtomicU64,
}

impl Swing {
    #[inline]
    fn up(&self, bytes: u64) {
        let now = self.delta.load(Ordering::Relaxed).wrapping_add(bytes);
        self.delta.store(now, Ordering::Relaxed);
        if now.cast_signed() > self.high.load(Ordering::Relaxed).cast_signed() {
            self.high.store(now, Ordering::Relaxed);
        }
    }

    #[inline]
    fn down(&self, bytes: u64) {
        self.delta.store(self.delta.load(Ordering::Relaxed).wrapping_sub(bytes), Ordering::Relaxed);
    }

    /// The sum, and the most that it was.
    fn read(&self) -> (u64, u64) {
        let delta = self.delta.load(Ordering::Relaxed);
        let high = self.high.load(Ordering::Relaxed);
        // Whoever began anew may have done so while the thread counted.
        (delta, if delta.cast_signed() > high.cast_signed() { delta } else { high })
    }

    /// The most from now on. By anyone: the thread that counts meanwhile may lose a moment's height, and nothing of the sum.
    fn begin_recent(&self) {
        self.high.store(self.delta.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn take(&self) -> (u64, u64) {
        let taken = self.read();
        self.delta.store(0, Ordering::Relaxed);
        self.high.store(0, Ordering::Relaxed);
        taken
    }
}

#[inline]
fn bump(figure: &AtomicU64, by: u64) {
    figure.store(figure.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// The figures of one cache. Everything but the swings counts since the cache was made.
#[derive(Default)]
pub(super) struct Tally {
    allocs: AtomicU64,
    /// Of these, how many the heap knows of.
    settled: AtomicU64,
    frees: AtomicU64,
    /// Bytes of the blocks handed out.
    handed_out: AtomicU64,
    requested: Swing,
    allocated: Swing,
    sizes: OwnedHistogram,
}

impl Tally {
    /// Back to nothing, by the thread whose tally it is or while it does not count.
    #[cfg(any(test, fuzzing))]
    pub fn begin_anew(&self) {
        for figure in [&self.allocs, &self.settled, &self.frees, &self.handed_out] {
            figure.store(0, Ordering::Relaxed);
        }
        self.requested.take();
        self.allocated.take();
        self.sizes.clear();
    }

    #[inline(always)]
    pub fn alloc(&self, size: u64, requested: u64) {
        bump(&self.allocs, 1);
        bump(&self.handed_out, size);
        self.requested.up(requested);
        self.allocated.up(size);
        self.sizes.record(requested);
    }

    #[inline]
    pub fn free(&self, size: u64, requested: u64) {
        bump(&self.frees, 1);
        self.requested.down(requested);
        self.allocated.down(size);
    }

    pub fn allocs(&self) -> u64 {
        self.allocs.load(Ordering::Relaxed)
    }

    pub fn frees(&self) -> u64 {
        self.frees.load(Ordering::Relaxed)
    }

    pub fn sizes(&self) -> SizeHistogram {
        self.sizes.snapshot()
    }

    /// Bytes requested and allocated since they were last settled, modulo 2^64.
    pub fn deltas(&self) -> (u64, u64) {
        (self.requested.delta.load(Ordering::Relaxed), self.allocated.delta.load(Ordering::Relaxed))
    }

    /// Peaks are those from now on. Under the heap's lock, so that nothing is settled meanwhile.
    pub fn begin_recent(&self) {
        self.requested.begin_recent();
        self.allocated.begin_recent();
    }

    /// Moves the swings into the heap's gauges, whose lock the caller holds, and returns how many allocations are new to the
    /// heap; by the thread whose tally it is. Peaks of a
    /// program with one thread are exact by this; where several count at once, a peak may miss what the others have not
    /// settled, at most what their caches hold.
    pub fn settle(&self, gauges: &mut Gauges) -> u64 {
        let (delta, high) = self.requested.take();
        gauges.requested.settle(delta, high);
        let (delta, high) = self.allocated.take();
        gauges.allocated.settle(delta, high);
        let new = self.allocs().wrapping_sub(self.settled.load(Ordering::Relaxed));
        bump(&self.settled, new);
        new
    }

    /// Adds these figures to those of the heap.
    pub fn add_to(&self, usage: &mut Usage) {
        let bytes: u64 = self.sizes().buckets().iter().map(|bucket| bucket.bytes).sum();
        for (gauge, swing, total) in [
            (&mut usage.requested, &self.requested, bytes),
            (&mut usage.allocated, &self.allocated, self.handed_out.load(Ordering::Relaxed)),
        ] {
            let (delta, high) = swing.read();
            gauge.settle(delta, high);
            gauge.total_allocated += total;
        }
        usage.live_blocks = usage.live_blocks.wrapping_add(self.allocs()).wrapping_sub(self.frees());
    }
}
