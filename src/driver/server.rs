//! The pool of one context: hits, frees, and what is asked of it. What a miss does is in `ladder.rs`.
//!
//! Locks: the heap's is held for a few dozen nanoseconds at a time and never across a driver call. `growing` is held
//! across the calls by which a miss grows the heap, so that threads which miss together grow it once; hits and frees
//! never take it.

use super::books::{Change, DeviceBooks};
use super::fence::Fence;
use super::glance::Glance;
use super::patience::Patience;
use super::{Ctx, CuResult, Gpu, is_sticky};
use crate::policy::Rounding;
use crate::pool::{BlockState, Claim, Claimed, Epoch, Fit, Heap, Idle, Index, Rules, Usage};
use crate::report::model::DriverTime;
use crate::report::units::human;
use crate::stats::{Counts, SizeHistogram};
use crate::sync::patiently;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Frees after which the current epoch is sealed even if nobody has missed.
const FREES_PER_SEAL: u32 = 32;
/// Allocations between two looks at the sealed epochs while nothing is missed.
const ALLOCS_PER_POLL: u32 = 16;
/// Blocks up to this size go round, first in, first out, instead of being asked about one by one.
pub(super) const ROTATED_MAX: u64 = 1 << 20;

/// What the configuration says to a pool.
#[derive(Clone, Debug, Default)]
pub struct Tuning {
    /// `roundup_power2_divisions`.
    pub rounding: Rounding,
    /// `max_split_size_mb` in bytes, or `u64::MAX`.
    pub max_split: u64,
    /// `max_non_split_rounding_mb` in bytes.
    pub max_non_split_rounding: u64,
    /// `garbage_collection_threshold`; `None` is off.
    pub gc_threshold: Option<f64>,
    /// `free_sync`: a free waits for the device first.
    pub free_sync: bool,
    /// How long a growth may wait for the device, to give idle regions back first; zero for not at all.
    pub patience: Duration,
}

/// The heap's state at its high-water mark.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeakMoment {
    /// The heap at that moment.
    pub usage: Usage,
    /// Bytes outside the pools at that moment.
    pub external: u64,
}

pub(super) struct Inner {
    pub heap: Heap,
    pub seen_retired: Epoch,
    pub allocs_to_poll: u32,
    pub frees_to_seal: u32,
    /// Requests served since the last wait.
    pub served_since_barrier: u32,
    /// Requests served since the last miss, and how many misses have followed each other closely.
    pub served_since_miss: u32,
    pub close_misses: u32,
    pub counts: Counts,
    pub histogram: SizeHistogram,
    pub peak: PeakMoment,
    pub driver_time: DriverTime,
    /// Bytes that the driver would not take back and the heap could not; they stay in the account.
    pub stranded: u64,
}

/// The pool of one context.
pub struct Server<G: Gpu> {
    ctx: AtomicUsize,
    member: AtomicU64,
    pub(super) fence: &'static Fence<G>,
    pub(super) books: &'static DeviceBooks,
    pub(super) tuning: Tuning,
    pub(super) inner: Mutex<Inner>,
    pub(super) growing: Mutex<()>,
    pub(super) patience: Patience,
    pub(super) alive: AtomicBool,
    /// The code of an error that the context will not recover from; 0 for none.
    pub(super) sticky: Arc<AtomicI32>,
    /// What passers-by may know.
    pub(super) glance: Glance,
}

impl<G: Gpu> Server<G> {
    /// The pool of `ctx`, whose heap is number `owner` of `index`. Makes the context take part in `fence`.
    pub fn new(
        ctx: Ctx,
        owner: u32,
        index: &'static Index,
        fence: &'static Fence<G>,
        books: &'static DeviceBooks,
        tuning: Tuning,
    ) -> Server<G> {
        let rules =
            Rules { max_split: tuning.max_split, max_non_split_rounding: tuning.max_non_split_rounding };
        let inner = Inner {
            heap: Heap::new(owner, index, rules),
            seen_retired: 0,
            allocs_to_poll: ALLOCS_PER_POLL,
            frees_to_seal: FREES_PER_SEAL,
            served_since_barrier: 0,
            served_since_miss: 0,
            close_misses: 0,
            counts: Counts::default(),
            histogram: SizeHistogram::default(),
            peak: PeakMoment::default(),
            driver_time: DriverTime::default(),
            stranded: 0,
        };
        let sticky = Arc::new(AtomicI32::new(0));
        Server {
            ctx: AtomicUsize::new(ctx.0),
            member: AtomicU64::new(fence.join(ctx, Arc::clone(&sticky))),
            fence,
            books,
            patience: Patience::new(tuning.patience),
            tuning,
            inner: Mutex::new(inner),
            growing: Mutex::new(()),
            alive: AtomicBool::new(true),
            sticky,
            glance: Glance::default(),
        }
    }

    /// The context that is served.
    #[inline]
    pub fn ctx(&self) -> Ctx {
        Ctx(self.ctx.load(Ordering::Acquire))
    }

    /// Serves another context of the same device once the last one has ended; the figures go on.
    pub fn revive(&self, ctx: Ctx) {
        debug_assert!(!self.is_alive(), "one context at a time");
        self.sticky.store(0, Ordering::Release);
        self.ctx.store(ctx.0, Ordering::Release);
        self.member.store(self.fence.join(ctx, Arc::clone(&self.sticky)), Ordering::Release);
        self.alive.store(true, Ordering::Release);
    }

    /// The device's books.
    pub fn books(&self) -> &'static DeviceBooks {
        self.books
    }

    /// Whether the context still lives.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// The error that the context will not recover from, if one has been seen.
    pub fn sticky_error(&self) -> Option<CuResult> {
        match self.sticky.load(Ordering::Acquire) {
            0 => None,
            code => Some(CuResult(code)),
        }
    }

    /// Serves `bytes` from memory that is clean now, without any driver call but a poll now and then.
    #[inline]
    pub fn try_hit(&self, bytes: u64) -> Option<u64> {
        if !self.fence.is_ordered() {
            return None;
        }
        let rounded = self.tuning.rounding.round(bytes)?;
        // Blocks of these sizes go round through whatever is clean; larger ones are not cut before pending memory has
        // been looked at.
        let fit = if rounded <= ROTATED_MAX { Fit::Any } else { Fit::Tight };
        self.take(bytes, rounded, fit, true)
    }

    /// Takes `bytes` from the heap if it can be done now; `hit` says whether it counts as a cache hit.
    pub(super) fn take(&self, bytes: u64, rounded: u64, fit: Fit, hit: bool) -> Option<u64> {
        let mut inner = self.inner.lock();
        let address = self.take_locked(&mut inner, bytes, rounded, fit, hit)?;
        if inner.allocs_to_poll == 0 {
            inner.allocs_to_poll = ALLOCS_PER_POLL;
            let pending = inner.heap.newest_pending().is_some();
            self.glance.note(&inner);
            drop(inner);
            if pending {
                self.fence.poll();
            }
            (self.books.changed)(self.books.device, Change::Counted);
        }
        Some(address)
    }

    /// The same under a lock that the caller holds, without the poll.
    pub(super) fn take_locked(
        &self,
        inner: &mut Inner,
        bytes: u64,
        rounded: u64,
        fit: Fit,
        hit: bool,
    ) -> Option<u64> {
        self.catch_up(inner);
        let address = inner.heap.alloc(bytes, rounded, fit, inner.seen_retired)?;
        inner.counts.alloc += 1;
        inner.counts.cache_hit += u64::from(hit);
        inner.histogram.record(bytes);
        inner.served_since_barrier = inner.served_since_barrier.saturating_add(1);
        inner.served_since_miss = inner.served_since_miss.saturating_add(1);
        inner.allocs_to_poll = inner.allocs_to_poll.saturating_sub(1);
        Some(address)
    }

    /// Lets the heap know of epochs that have retired since it last looked.
    #[inline]
    pub(super) fn catch_up(&self, inner: &mut Inner) {
        let retired = self.fence.retired();
        if retired > inner.seen_retired || cfg!(feature = "unsafe-no-barrier") {
            inner.seen_retired = retired;
            inner.heap.retire(retired);
        }
    }

    /// Takes a block back that a free has claimed. Calls nothing but, once in so many frees, for a seal.
    ///
    /// # Errors
    /// The error that the context has failed with: the driver would answer with it, too.
    pub fn free(&self, claimed: Claimed) -> Result<(), CuResult> {
        if self.tuning.free_sync {
            self.fence.host_wait(self.ctx());
        }
        let mut inner = self.inner.lock();
        let epoch = self.fence.current();
        inner.counts.free += 1;
        inner.heap.free(claimed, epoch);
        inner.frees_to_seal -= 1;
        if inner.frees_to_seal == 0 {
            inner.frees_to_seal = FREES_PER_SEAL;
            self.glance.note(&inner);
            drop(inner);
            self.fence.seal();
            (self.books.changed)(self.books.device, Change::Counted);
        }
        self.sticky_error().map_or(Ok(()), Err)
    }

    /// The claims that [`Index::claim`] could not decide without the heap's lock.
    pub fn claim(&self, address: u64) -> Claim {
        self.inner.lock().heap.claim(address)
    }

    /// One refused free of an address of this pool.
    pub fn count_invalid_free(&self) {
        self.inner.lock().counts.invalid_free += 1;
    }

    /// The heap's figures, after what has retired.
    pub fn usage(&self) -> Usage {
        let mut inner = self.inner.lock();
        self.catch_up(&mut inner);
        inner.heap.usage()
    }

    /// Reads from the heap under its lock.
    pub fn with_heap<T>(&self, read: impl FnOnce(&Heap) -> T) -> T {
        read(&self.inner.lock().heap)
    }

    /// The figures for a report, if the lock can be had in time: at exit another thread may have died with it.
    pub fn figures(&self) -> Option<Figures> {
        let inner = patiently(&self.inner)?;
        Some(Figures {
            usage: inner.heap.usage(),
            counts: inner.counts,
            histogram: inner.histogram.clone(),
            peak: inner.peak,
            live: live_sizes(&inner.heap),
            driver_time: inner.driver_time,
            lived: inner.heap.lived(),
        })
    }

    /// Gives idle regions back to the driver, smallest first, until `bytes` are returned or none is left.
    ///
    /// The driver waits for all device work when it frees, so a region whose memory is still pending is safe to return.
    pub fn give_back(&self, bytes: u64) -> u64 {
        let mut idle = Vec::new();
        self.inner.lock().heap.idle_regions(&mut idle);
        idle.sort_unstable_by_key(|region| region.size);
        let mut returned = 0;
        for region in idle {
            if returned >= bytes {
                break;
            }
            returned += self.return_region(&region);
        }
        if returned > 0 {
            tracing::debug!("gave {} of idle memory back to the driver", human(returned));
        }
        returned
    }

    /// Gives one region back if it is still idle; returns its bytes.
    pub(super) fn return_region(&self, region: &Idle) -> u64 {
        let Some(_touch) = self.fence.touch().filter(|_| self.is_alive()) else { return 0 };
        // Out of the books first: the driver may hand the address out again at once.
        let Some(size) = self.inner.lock().heap.take_region(region.addr) else { return 0 };
        let begun = Instant::now();
        match self.fence.gpu().mem_free(self.ctx(), region.addr) {
            Ok(()) => {
                self.books.account.release_pool(size);
                let mut inner = self.inner.lock();
                inner.counts.driver_free += 1;
                inner.driver_time.frees += 1;
                inner.driver_time.free_ns += begun.elapsed().as_nanos() as u64;
                drop(inner);
                (self.books.changed)(self.books.device, Change::Held);
                size
            }
            Err(code) => {
                self.note_error(code);
                tracing::warn!("the driver did not take {} back: error {}", human(size), code.0);
                // Back as it was: its memory may still be in use. It was known a moment ago and can be known again.
                let mut inner = self.inner.lock();
                let epoch = self.fence.current();
                if !inner.heap.add_region_pending(region.addr, size, epoch) {
                    // Another region lies there: so the driver has freed it all the same, or says of both what is true
                    // of one. Held until the context ends is the one figure that is not too low.
                    inner.stranded += size;
                    tracing::warn!(address = region.addr, size, "a region can neither be freed nor kept");
                }
                0
            }
        }
    }

    /// Bytes in regions that hold no live block.
    pub fn idle_bytes(&self) -> u64 {
        self.inner.lock().heap.idle()
    }

    /// The context has died: its memory is gone, and no call is made on it any more.
    pub fn end(&self) {
        if !self.alive.swap(false, Ordering::AcqRel) {
            return;
        }
        self.fence.leave(self.member.load(Ordering::Acquire));
        let mut inner = self.inner.lock();
        let reserved = inner.heap.reserved().current + std::mem::take(&mut inner.stranded);
        inner.heap.clear();
        drop(inner);
        self.books.account.release_pool(reserved);
    }

    /// Remembers errors that a context does not recover from: from then on the driver answers every call itself.
    pub fn note_error(&self, code: CuResult) {
        if is_sticky(code) && self.sticky.swap(code.0, Ordering::AcqRel) == 0 {
            let (ctx, device, code) = (self.ctx().0, self.books.device, code.0);
            tracing::warn!(
                "context {ctx:#x} on GPU {device} has failed with error {code}; its calls go to the driver from now on"
            );
        }
    }

    /// Remembers the heap's state if its high-water mark has risen.
    pub(super) fn note_peak(&self) {
        let external = self.books.account.external().current;
        let mut inner = self.inner.lock();
        // Only where it counts: a look for the largest free piece is not for nothing.
        if inner.heap.reserved().current >= inner.peak.usage.reserved.current {
            inner.peak = PeakMoment { usage: inner.heap.usage(), external };
        }
    }

    /// Records that `bytes` could not be served.
    pub(super) fn note_oom(&self, bytes: u64) {
        let usage = self.usage();
        self.inner.lock().counts.oom += 1;
        self.books.note_oom("pool", bytes, usage);
    }
}

/// What a pool tells a report.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The heap now.
    pub usage: Usage,
    /// What happened how often.
    pub counts: Counts,
    /// Sizes of all requests.
    pub histogram: SizeHistogram,
    /// The high-water mark.
    pub peak: PeakMoment,
    /// Requested sizes of what is live, each with how many blocks.
    pub live: SizeHistogram,
    /// Time inside the driver calls that grew and shrank the heap.
    pub driver_time: DriverTime,
    /// When the heap held memory: [`Heap::lived`].
    pub lived: Option<(u64, u64)>,
}

fn live_sizes(heap: &Heap) -> SizeHistogram {
    let mut sizes = SizeHistogram::default();
    let blocks = heap.snapshot().into_iter().flat_map(|region| region.blocks);
    blocks.filter(|block| block.state == BlockState::Live).for_each(|block| sizes.record(block.requested));
    sizes
}
