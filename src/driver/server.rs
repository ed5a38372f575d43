//! The pool of one context: what goes through the heap's lock, and what is asked of it. What needs no lock is in `hits.rs`,
//! what a miss does in `ladder.rs`.
//!
//! Locks: the heap's is held for a few dozen nanoseconds at a time and never across a driver call. `growing` is held
//! across the calls by which a miss grows the heap, so that threads which miss together grow it once; hits and frees
//! never take it.

use super::backing::Backing;
use super::books::{Change, DeviceBooks};
use super::fence::Fence;
use super::glance::Glance;
use super::inner::{ALLOCS_PER_PASS, FREES_PER_SEAL, Inner, PASSES_PER_POLL};
use super::patience::Patience;
use super::{Ctx, CuResult, Gpu, is_sticky};
use crate::policy::Rounding;
use crate::pool::local::Thread;
use crate::pool::{CACHED_MAX, Cache, Caches, Claim, Claimed, Drain, Fit, Heap, Idle, Rules};
use crate::report::history::What;
use crate::report::units::human;
use crate::sync::{Apart, soon};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

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
    /// `expandable_segments`: one range of addresses, whose memory is moved where it is needed.
    pub expandable: bool,
}

/// The pool of one context.
pub struct Server<G: Gpu> {
    ctx: AtomicUsize,
    member: AtomicU64,
    pub(super) fence: &'static Fence<G>,
    pub(super) books: &'static DeviceBooks,
    pub(super) tuning: Tuning,
    /// Whether `tuning` rounds sizes to more than the next multiple of 512.
    pub(super) rounds: bool,
    pub(super) owner: u32,
    /// For ever: threads keep references to their caches.
    pub(super) caches: &'static Caches,
    pub(super) inner: Apart<Mutex<Inner>>,
    pub(super) growing: Mutex<()>,
    pub(super) patience: Patience,
    pub(super) backing: Backing,
    pub(super) alive: AtomicBool,
    /// The code of an error that the context will not recover from; 0 for none.
    pub(super) sticky: Arc<Apart<AtomicI32>>,
    /// What passers-by may know.
    pub(super) glance: Glance,
}

impl<G: Gpu> Server<G> {
    /// The pool of `ctx`, whose heap has the number and the index of `caches`. Makes the context take part in `fence`.
    pub fn new(
        ctx: Ctx,
        caches: &'static Caches,
        fence: &'static Fence<G>,
        books: &'static DeviceBooks,
        tuning: Tuning,
    ) -> Server<G> {
        let rules =
            Rules { max_split: tuning.max_split, max_non_split_rounding: tuning.max_non_split_rounding };
        let sticky = Arc::new(Apart(AtomicI32::new(0)));
        Server {
            ctx: AtomicUsize::new(ctx.0),
            member: AtomicU64::new(fence.join(ctx, Arc::clone(&sticky))),
            fence,
            books,
            patience: Patience::new(tuning.patience),
            rounds: !tuning.rounding.is_none(),
            backing: Backing::new(tuning.expandable),
            tuning,
            owner: caches.owner(),
            caches,
            inner: Apart(Mutex::new(Inner::new(caches, rules))),
            growing: Mutex::new(()),
            alive: AtomicBool::new(true),
            sticky,
            glance: Glance::default(),
        }
    }

    /// The heap, under its lock.
    #[inline]
    pub(super) fn locked(&self) -> MutexGuard<'_, Inner> {
        soon(&self.inner)
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
        Some(self.standing()).filter(|code| *code != CuResult::SUCCESS)
    }

    /// That error, or success.
    #[inline(always)]
    pub(super) fn standing(&self) -> CuResult {
        CuResult(self.sticky.load(Ordering::Acquire))
    }

    /// Takes `bytes` from the heap if it can be done now; `hit` says whether it counts as a cache hit, `lend` whether the
    /// thread's cache gets some more of the kind.
    pub(super) fn take(
        &self,
        cache: Option<&Cache>,
        bytes: u64,
        rounded: u64,
        hit: bool,
        lend: bool,
    ) -> Option<u64> {
        let mut inner = self.locked();
        let address = self.take_locked(&mut inner, cache, bytes, rounded, hit)?;
        if lend && let Some(cache) = cache {
            inner.heap.lend(cache, address, rounded);
        }
        self.pass_by(inner);
        Some(address)
    }

    /// Once in so many allocations asks about sealed epochs, and lets those who watch know how things stand.
    pub(super) fn pass_by(&self, mut inner: MutexGuard<'_, Inner>) {
        if inner.allocs_to_pass != 0 {
            return;
        }
        inner.allocs_to_pass = ALLOCS_PER_PASS;
        inner.passes = inner.passes.wrapping_add(1);
        let due = inner.passes.is_multiple_of(PASSES_PER_POLL) && inner.heap.newest_pending().is_some();
        drop(inner);
        if due {
            self.fence.poll();
        }
        self.note_in_passing();
    }

    /// The same under a lock that the caller holds, without the poll.
    pub(super) fn take_locked(
        &self,
        inner: &mut Inner,
        cache: Option<&Cache>,
        bytes: u64,
        rounded: u64,
        hit: bool,
    ) -> Option<u64> {
        self.catch_up(inner);
        if let Some(cache) = cache {
            inner.heap.settle(cache);
        }
        let address = inner.heap.alloc(bytes, rounded, Fit::Any, inner.seen_retired)?;
        inner.count(bytes, hit);
        Some(address)
    }

    /// Requests served so far, by the caches too: not for every request, for it asks all threads' caches.
    pub(super) fn served(&self, inner: &Inner) -> u64 {
        inner.counts.alloc + self.caches.allocs()
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

    /// Takes a block back that a free has claimed. Calls nothing but, once in so many frees, for a seal. Answers with the error
    /// that the context has failed with, if it has: so would the driver.
    pub fn free(&self, thread: &Thread, claimed: Claimed) -> CuResult {
        if self.tuning.free_sync {
            self.fence.host_wait(self.ctx());
        }
        let (cache, size) = (self.cache(thread), claimed.size());
        let (mut claimed, mut batch) = (claimed, None);
        if let Some(cache) = cache.filter(|_| size <= CACHED_MAX) {
            // Why the block did not go there: perhaps its ring was full.
            batch = self.caches.relieve(cache, size);
            match cache.keep(claimed) {
                Ok(kept) => {
                    let result = self.put(kept);
                    if let Some(batch) = batch {
                        self.locked().heap.take_batch(&batch);
                    }
                    return result;
                }
                Err(back) => claimed = back,
            }
        }
        let mut inner = self.locked();
        if let Some(cache) = cache {
            inner.heap.settle(cache);
        }
        let epoch = self.fence.current();
        inner.counts.free += 1;
        inner.heap.free(claimed, epoch);
        if let Some(batch) = batch {
            inner.heap.take_batch(&batch);
        }
        inner.frees_to_seal = inner.frees_to_seal.saturating_sub(1);
        if inner.frees_to_seal == 0 {
            inner.frees_to_seal = FREES_PER_SEAL;
            drop(inner);
            self.turn(true);
        }
        self.standing()
    }

    /// The claims that [`Index::claim`](crate::pool::Index::claim) could not decide without the heap's lock.
    pub fn claim(&self, address: u64) -> Claim {
        self.locked().heap.claim(address)
    }

    /// One refused free of an address of this pool.
    pub fn count_invalid_free(&self) {
        self.locked().counts.invalid_free += 1;
    }

    /// Reads from the heap under its lock.
    pub fn with_heap<T>(&self, read: impl FnOnce(&Heap) -> T) -> T {
        read(&self.locked().heap)
    }

    /// Gives idle regions back to the driver, smallest first, until `bytes` are returned or none is left.
    ///
    /// The driver waits for all device work when it frees, so a region whose memory is still pending is safe to return.
    pub fn give_back(&self, bytes: u64) -> u64 {
        let mut idle = Vec::new();
        self.idle_regions(&mut idle);
        idle.sort_unstable_by_key(|region| region.size);
        let mut returned = 0;
        // A second time for what the driver would not take: memory is short, or nobody would have asked.
        for region in idle.iter().chain(&idle) {
            if returned >= bytes {
                break;
            }
            returned += self.return_region(region);
        }
        if returned < bytes && self.range_in_use() {
            returned += self.give_pieces_back(bytes - returned, true);
        }
        if returned > 0 {
            self.chronicle(What::Trim, 0, returned);
            tracing::debug!("gave {} of idle memory back to the driver", human(returned));
        }
        returned
    }

    /// Gives one region back if it is still idle; returns its bytes.
    pub(super) fn return_region(&self, region: &Idle) -> u64 {
        let Some(_touch) = self.fence.touch().filter(|_| self.is_alive()) else { return 0 };
        // Out of the books first: the driver may hand the address out again at once.
        let Some(size) = self.locked().heap.take_region(region.addr) else { return 0 };
        let begun = Instant::now();
        match self.fence.gpu().mem_free(self.ctx(), region.addr) {
            Ok(()) => {
                self.books.account.release_pool(size);
                let mut inner = self.locked();
                inner.counts.driver_free += 1;
                inner.driver_time.frees += 1;
                inner.driver_time.free_ns += begun.elapsed().as_nanos() as u64;
                drop(inner);
                self.chronicle(What::SegmentFree, region.addr, size);
                (self.books.changed)(self.books.device, Change::Held);
                size
            }
            Err(code) => {
                self.note_error(code);
                tracing::warn!("the driver did not take {} back: error {}", human(size), code.0);
                // Back as it was: its memory may still be in use. It was known a moment ago and can be known again.
                let mut inner = self.locked();
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

    /// Regions that hold no live block.
    pub(super) fn idle_regions(&self, out: &mut Vec<Idle>) {
        let mut inner = self.locked();
        self.drain_locked(&mut inner.heap, Drain::All);
        inner.heap.idle_regions(out);
    }

    /// Bytes that could go back to the driver: in regions, and in pieces of the range, that hold no live block.
    pub fn idle_bytes(&self) -> u64 {
        let mut inner = self.locked();
        self.drain_locked(&mut inner.heap, Drain::All);
        inner.heap.idle() + inner.heap.range_idle()
    }

    /// The context has died: its memory is gone, and no call is made on it any more.
    pub fn end(&self) {
        self.end_with(true);
    }

    /// The same without giving back what is not the context's: the process is ending, and no call is to be made.
    pub fn end_silently(&self) {
        self.end_with(false);
    }

    fn end_with(&self, give_back: bool) {
        if !self.alive.swap(false, Ordering::AcqRel) {
            return;
        }
        self.fence.leave(self.member.load(Ordering::Acquire));
        if give_back {
            self.chronicle_end();
        }
        let reserved = {
            let mut inner = self.locked();
            inner.heap.reserved().current + std::mem::take(&mut inner.stranded)
        };
        let kept = self.end_range(give_back);
        self.caches.clear(&mut self.locked().heap);
        self.books.account.release_pool(reserved - kept);
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

    /// Records that `bytes` could not be served.
    pub(super) fn note_oom(&self, bytes: u64) {
        let usage = self.usage();
        self.locked().counts.oom += 1;
        self.books.note_oom("pool", bytes, usage);
    }
}
