//! What a passer-by may know of a pool without waiting for it: a few figures that the pool leaves outside its lock now and
//! then, and the whole of them where the lock happens to be free.

use super::Gpu;
use super::books::Change;
use super::figures::Figures;
use super::inner::Inner;
use super::server::Server;
use crate::stats::{Counts, SizeHistogram};
use crate::sync::patiently;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Figures that a pool leaves behind once in so many calls, and whenever it grows or shrinks. Threads' caches serve
/// without it: what they have counted is in what is left, and they have it left once in so many frees.
#[derive(Debug, Default)]
pub struct Glance {
    requested: AtomicU64,
    allocated: AtomicU64,
    allocs: AtomicU64,
    frees: AtomicU64,
    hits: AtomicU64,
    largest_free: AtomicU64,
    /// When they were left, by the books' clock, and how often that has been put off since.
    noted_at: AtomicU64,
    put_off: AtomicU32,
}

/// Those figures as read. Each is exact as of some moment; they need not be of the same one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Glimpse {
    /// Bytes that the program has asked for.
    pub requested: u64,
    /// Bytes of the blocks for that.
    pub allocated: u64,
    /// Allocations served.
    pub allocs: u64,
    /// Frees.
    pub frees: u64,
    /// Allocations without a driver call.
    pub hits: u64,
    /// Largest free block, as of when somebody last looked for it.
    pub largest_free: u64,
}

/// How often the lock is tried: a holder is done within a few dozen nanoseconds, unless it does not run.
const TRIES: u32 = 200;

/// Nanoseconds between two times that figures are left although nothing rare has happened, for nobody looks more often; and how
/// often it is put off for that reason, for each thread, because a process may be killed at any time.
const NOTE_EVERY: u64 = 4_000_000;
const PUT_OFF: u32 = 7;

impl<G: Gpu> Server<G> {
    /// Leaves the figures of now if that has not been done for a while, and says so. The caller holds no lock.
    pub(super) fn note_in_passing(&self) {
        let (now, account) = ((self.books.clock)(), &self.books.account);
        let noted_at = &self.glance.noted_at;
        let recent = now.wrapping_sub(noted_at.load(Ordering::Relaxed)) < NOTE_EVERY;
        // Above a cap that has been lowered, whoever hears of it gives back what has become idle.
        if recent && account.in_use() <= account.limit_bytes() {
            let put_off = self.glance.put_off.fetch_add(1, Ordering::Relaxed);
            if put_off < PUT_OFF * self.caches.most_threads().max(1) {
                return;
            }
        }
        self.glance.put_off.store(0, Ordering::Relaxed);
        noted_at.store(now, Ordering::Relaxed);
        self.note(&self.locked());
        (self.books.changed)(self.books.device, Change::Counted);
    }

    /// Leaves the figures of now, under the pool's lock.
    pub(super) fn note(&self, inner: &Inner) {
        let glance = &self.glance;
        let (requested, allocated) = self.caches.in_use(&inner.heap);
        glance.requested.store(requested, Ordering::Relaxed);
        glance.allocated.store(allocated, Ordering::Relaxed);
        let counts = self.counts_of(inner);
        glance.allocs.store(counts.alloc, Ordering::Relaxed);
        glance.frees.store(counts.free, Ordering::Relaxed);
        glance.hits.store(counts.cache_hit, Ordering::Relaxed);
    }

    /// What the pool last left; no lock.
    pub fn glimpse(&self) -> Glimpse {
        let glance = &self.glance;
        Glimpse {
            requested: glance.requested.load(Ordering::Relaxed),
            allocated: glance.allocated.load(Ordering::Relaxed),
            allocs: glance.allocs.load(Ordering::Relaxed),
            frees: glance.frees.load(Ordering::Relaxed),
            hits: glance.hits.load(Ordering::Relaxed),
            largest_free: glance.largest_free.load(Ordering::Relaxed),
        }
    }

    /// What is requested and allocated now.
    pub fn in_use(&self) -> (u64, u64) {
        self.with_heap(|heap| self.caches.in_use(heap))
    }

    /// The most that was requested and allocated since the last call, and how often each thing happened so far.
    pub fn take_recent(&self) -> Option<(u64, u64, Counts)> {
        let mut inner = patiently(&self.inner)?;
        let (requested, allocated) = self.caches.take_recent(&mut inner.heap);
        Some((requested, allocated, self.counts_of(&inner)))
    }

    /// The figures of now, but for the sizes of what is live, which take long to find out; with `look`, the largest free
    /// piece is looked for, else it is the one that was last found. `None` where the lock cannot be had at once.
    pub fn passing_figures(&self, look: bool) -> Option<Figures> {
        let inner = (0..TRIES).find_map(|_| {
            std::hint::spin_loop();
            self.inner.try_lock()
        })?;
        self.note(&inner);
        let mut usage = inner.heap.sums();
        self.caches.add_to(&mut usage);
        let largest = &self.glance.largest_free;
        if look {
            largest.store(inner.heap.largest_free(), Ordering::Relaxed);
        }
        // What was the largest may have been taken from since, and cannot be more than there is.
        usage.largest_free = largest.load(Ordering::Relaxed).min(usage.free());
        Some(Figures {
            usage,
            counts: self.counts_of(&inner),
            histogram: self.histogram_of(&inner),
            peak: inner.peak,
            live: SizeHistogram::default(),
            driver_time: inner.driver_time,
            mapped: Server::<G>::mapped_figures(&inner),
            lived: inner.heap.lived(),
        })
    }
}
