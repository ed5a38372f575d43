//! The caches of one heap, of all threads, and the depots between them.
//!
//! A thread that ends leaves its cache as it is; the next thread that wants one takes it over. What a ring has no room for goes
//! to a depot, a batch at a time, and comes back from there, to the same thread or to one that allocates more than it frees.
//! Under pressure [`Caches::drain`] takes everything back into the heap, whatever the threads do meanwhile.

use super::arena::Arena;
use super::cache::{CACHED_MAX, Cache, RINGS};
use super::classes::{CLASSES, SMALL_MAX, class_of};
use super::depot::{BATCH, Batch, Depots, Open};
use super::gauges::Usage;
use super::heap::Heap;
use super::index::Index;
use super::record::{Id, Place};
use super::{Epoch, GRANULE};
use crate::stats::SizeHistogram;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Caches of one heap; more threads than that go without.
const MOST: usize = 256;

/// The rings above the classes, a bit each.
const LARGE_RINGS: u64 = (1 << RINGS) - (1 << CLASSES);

/// The numbers of the bits that are set, lowest first.
fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit as usize)
    })
}

/// What to take back from caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// Blocks like those that a request of so many bytes is served with: of its class, or all above the classes.
    Like(u64),
    /// Everything.
    All,
    /// Blocks like those that a request of so many bytes is served with, of one cache: one that has some which can be handed out
    /// now. Nothing for requests that no cache serves.
    One {
        /// Bytes of the request.
        bytes: u64,
        /// The newest epoch that is over.
        retired: Epoch,
    },
}

/// All caches of one heap.
pub struct Caches {
    owner: u32,
    index: &'static Index,
    arena: Arena,
    // Apart, like the depots, and made there: the thread that meets a context first may have a small stack.
    list: Box<[OnceLock<Box<Cache>>]>,
    made: AtomicU32,
    making: Mutex<()>,
    /// Drains of one cache so far.
    drains: AtomicU32,
    depots: Depots,
    /// Odd while the heap is being cleared. Nothing gets into a depot then: it would outlive the clearing.
    clearings: AtomicU64,
}

impl Caches {
    /// No caches yet, for heap number `owner` of `index`.
    pub fn new(owner: u32, index: &'static Index) -> Caches {
        Caches {
            owner,
            index,
            arena: index.records.arena(),
            list: (0..MOST).map(|_| OnceLock::new()).collect(),
            made: AtomicU32::new(0),
            making: Mutex::new(()),
            drains: AtomicU32::new(0),
            depots: Depots::new(usize::MAX),
            clearings: AtomicU64::new(0),
        }
    }

    /// Number of the heap.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// The index of the heap's addresses.
    pub fn index(&self) -> &'static Index {
        self.index
    }

    /// Forgets what threads have counted: these are the caches of another heap from now on, whose predecessor is cleared.
    #[cfg(any(test, fuzzing))]
    pub fn begin_anew(&self) {
        self.all().for_each(|cache| cache.tally.begin_anew());
    }

    fn all(&self) -> impl Iterator<Item = &Cache> + Clone {
        let made = self.made.load(Ordering::SeqCst) as usize;
        self.list[..made].iter().filter_map(|slot| slot.get().map(|cache| &**cache))
    }

    /// A cache for the calling thread, to be [left](Cache::leave) when the thread ends; `None` if there are too many.
    pub fn enter(&self) -> Option<&Cache> {
        let free = |cache: &&Cache| {
            cache.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        if let Some(cache) = self.all().find(free) {
            return Some(cache);
        }
        let _one_at_a_time = self.making.lock();
        let made = self.made.load(Ordering::Relaxed);
        let slot = self.list.get(made as usize)?;
        let number = self.index.next_cache()?;
        slot.set(Cache::new(number, self.owner, self.index)).ok()?;
        self.made.store(made + 1, Ordering::SeqCst);
        slot.get().map(|cache| &**cache)
    }

    /// After a free of `size` bytes, at most [`CACHED_MAX`], found no room in its ring: the oldest half of the
    /// ring, or a batch of it, goes to the depot. What finds no room there is the caller's to bring to [`Heap::take_batch`]. By the cache's
    /// thread, without the heap's lock.
    pub fn relieve(&self, cache: &Cache, size: u64) -> Option<Batch> {
        let (ring, cells) = cache.crowded(size)?;
        if cache.size_of(ring) != size {
            // Of that other size there was no need for long.
            return Some(cache.remove(ring, cells));
        }
        self.deposit(cache, ring, cells)
    }

    /// The same with all that waits in the ring for requests of `need` bytes, so that others may take its place.
    pub fn vacate(&self, cache: &Cache, need: u64) -> Option<Batch> {
        let (ring, _) = cache.ring_for(need)?;
        while cache.holds(ring) > 0 {
            let back = self.deposit(cache, ring, u32::MAX);
            if back.is_some() {
                return back;
            }
        }
        None
    }

    fn deposit(&self, cache: &Cache, ring: usize, cells: u32) -> Option<Batch> {
        self.put_away(cache, ring, || cache.remove(ring, cells))
    }

    /// Puts what `take` takes out of a ring into a depot, or returns it.
    pub(super) fn put_away(&self, cache: &Cache, ring: usize, take: impl FnOnce() -> Batch) -> Option<Batch> {
        // Under the depot's lock before any block is taken: a clearing that has not begun waits for it.
        let mut depot = cache.depots.of(ring);
        if depot.is_full() {
            drop(depot);
            depot = self.depots.of(ring);
        }
        // Asked before as well: a clearing that is past this depot may be over once the blocks are out of the ring.
        let clearing = self.clearings.load(Ordering::SeqCst) & 1 == 1;
        let batch = take();
        if batch.is_empty() {
            return None;
        }
        if clearing || !self.index.cached.reserve(batch.bytes()) {
            return Some(batch);
        }
        depot.put(batch);
        None
    }

    /// Brings a batch whose epoch is over from a depot into the cache, for requests of `need` bytes; what waits in the ring
    /// goes to the depot for it. By the cache's thread, without the heap's lock. False if there is none.
    pub fn refill(&self, cache: &Cache, need: u64, retired: Epoch) -> bool {
        let Some((ring, size)) = cache.ring_for(need) else { return false };
        [&cache.depots, &self.depots]
            .into_iter()
            .any(|depots| depots.has(ring) && self.refill_from(depots.of(ring), cache, (ring, size), retired))
    }

    /// The epoch after which a depot has blocks for requests of `need` bytes; `None` if there are none.
    pub fn waiting(&self, cache: &Cache, need: u64) -> Option<Epoch> {
        let (ring, size) = cache.ring_for(need)?;
        let stocked = [&cache.depots, &self.depots].into_iter().filter(|depots| depots.has(ring));
        stocked.filter_map(|depots| depots.of(ring).first(size)).min()
    }

    fn refill_from(
        &self,
        mut depot: Open<'_>,
        cache: &Cache,
        (ring, size): (usize, u64),
        retired: Epoch,
    ) -> bool {
        let Some(at) = depot.find(size, retired) else { return false };
        let waiting = cache.holds(ring);
        if waiting > 0 {
            if self.clearings.load(Ordering::SeqCst) & 1 == 1 || !self.index.cached.reserve(waiting) {
                return false;
            }
            let mut put_away = 0;
            while cache.holds(ring) > 0 {
                let batch = cache.remove(ring, BATCH);
                put_away += batch.bytes();
                if !batch.is_empty() {
                    depot.put(batch);
                }
            }
            // Some of it may have been drained meanwhile.
            self.index.cached.release(waiting - put_away);
        }
        // Under the depot's lock, which a clearing takes first: nobody else has these records.
        let stocked = cache.stock(ring, depot.at(at));
        if stocked && let Some(batch) = depot.remove(at) {
            self.index.cached.release(batch.bytes());
        }
        stocked
    }

    /// Takes cached blocks back into the heap, whose lock the caller holds. `now` tells the current epoch. False if there were
    /// none.
    pub fn drain(&self, heap: &mut Heap, which: Drain, now: impl Fn() -> Epoch) -> bool {
        let (arena, mut any) = (self.arena, false);
        let wanted = match which {
            Drain::One { bytes, .. } if bytes > CACHED_MAX => return false,
            Drain::One { bytes, retired } => return self.drain_one(heap, cached_need(bytes), retired, now),
            Drain::All => (1 << RINGS) - 1,
            Drain::Like(bytes) if bytes <= SMALL_MAX => 1 << class_of(bytes),
            Drain::Like(_) => LARGE_RINGS,
        };
        for cache in self.all() {
            // What came into the others is still there, or was taken by an earlier drain.
            let fresh = if wanted == LARGE_RINGS { cache.take_arrivals() } else { wanted };
            for ring in bits(fresh) {
                cache.ring(ring).drain(arena, &now, |(id, addr, epoch)| {
                    any = true;
                    heap.free_cached(id, addr, epoch);
                });
            }
        }
        for depots in self.all_depots() {
            for ring in bits(depots.stocked() & wanted) {
                for batch in self.released(depots.empty(ring, which == Drain::All)) {
                    any = true;
                    heap.take_batch(&batch);
                }
            }
        }
        any
    }

    fn drain_one(&self, heap: &mut Heap, need: u64, retired: Epoch, now: impl Fn() -> Epoch) -> bool {
        let made = self.made.load(Ordering::SeqCst);
        // Begins with another one each time, lest it is always the first that loses its blocks.
        let first = self.drains.fetch_add(1, Ordering::Relaxed) % made.max(1);
        self.all().cycle().skip(first as usize).take(made as usize).any(|cache| {
            let Some((ring, size)) = cache.ring_for(need) else { return false };
            if let Some(batch) = cache.depots.take(ring, size, retired) {
                self.index.cached.release(batch.bytes());
                heap.take_batch(&batch);
                return true;
            }
            let mut any = false;
            if cache.ring(ring).is_over(retired) {
                cache.ring(ring).drain(self.arena, &now, |(id, addr, epoch)| {
                    any |= epoch <= retired;
                    heap.free_cached(id, addr, epoch);
                });
            }
            any
        })
    }

    fn all_depots(&self) -> impl Iterator<Item = &Depots> {
        self.all().map(|cache| &cache.depots).chain([&self.depots])
    }

    /// What has been taken out of a depot, and is not cached any more.
    fn released(&self, batches: VecDeque<Batch>) -> VecDeque<Batch> {
        self.index.cached.release(batches.iter().map(Batch::bytes).sum());
        batches
    }

    /// [`Heap::clear`], and with it everything cached. The cells of threads' caches stay, and name nothing any more.
    pub fn clear(&self, heap: &mut Heap) {
        self.clearings.fetch_add(1, Ordering::SeqCst);
        for depots in self.all_depots() {
            (0..RINGS).for_each(|ring| drop(self.released(depots.of(ring).take_all())));
        }
        heap.clear();
        self.clearings.fetch_add(1, Ordering::SeqCst);
    }

    /// Adds what threads have counted to the heap's figures, whose lock the caller holds.
    pub fn add_to(&self, usage: &mut Usage) {
        for cache in self.all() {
            cache.tally.add_to(usage);
        }
        usage.clamp();
        // Where several threads count, either peak may miss something.
        usage.allocated.peak = usage.allocated.peak.max(usage.requested.peak);
        usage.allocated.recent = usage.allocated.recent.max(usage.requested.recent);
    }

    /// What is requested and allocated now, with what threads have counted; the caller holds the heap's lock.
    pub fn in_use(&self, heap: &Heap) -> (u64, u64) {
        let (requested, allocated) = self
            .all()
            .map(|cache| cache.tally.deltas())
            .fold((heap.requested().current, heap.allocated().current), |sum, delta| {
                (sum.0.wrapping_add(delta.0), sum.1.wrapping_add(delta.1))
            });
        let clamp = |bytes: u64| if bytes.cast_signed() < 0 { 0 } else { bytes };
        (clamp(requested), clamp(allocated))
    }

    /// The most that was requested and allocated since the last call, under the heap's lock.
    pub fn take_recent(&self, heap: &mut Heap) -> (u64, u64) {
        let mut usage = heap.sums();
        self.add_to(&mut usage);
        self.all().for_each(|cache| cache.tally.begin_recent());
        heap.begin_recent(&usage);
        (usage.requested.recent, usage.allocated.recent)
    }

    /// The most threads that have had a cache at the same time.
    pub fn most_threads(&self) -> u32 {
        self.made.load(Ordering::Relaxed)
    }

    /// Threads that have a cache. Asks all caches.
    pub fn threads(&self) -> u32 {
        self.all().filter(|cache| cache.taken.load(Ordering::Relaxed)).count() as u32
    }

    /// Allocations that caches have served.
    pub fn allocs(&self) -> u64 {
        self.all().map(|cache| cache.tally.allocs()).sum()
    }

    /// Frees that caches have taken.
    pub fn frees(&self) -> u64 {
        self.all().map(|cache| cache.tally.frees()).sum()
    }

    /// Sizes of the requests that caches have served.
    pub fn sizes(&self) -> SizeHistogram {
        let mut sizes = SizeHistogram::default();
        self.all().for_each(|cache| sizes.merge(&cache.tally.sizes()));
        sizes
    }

    /// Whether what the index counts as cached is what these caches have been granted and their depots hold; for checks of an
    /// index that has no other caches, while nothing else happens.
    #[cfg(test)]
    pub(super) fn are_counted(&self) -> bool {
        let mut bytes: u64 = self.all().map(Cache::granted).sum();
        self.all_depots().for_each(|depots| depots.each(|batch| bytes += batch.bytes()));
        self.index.cached.bytes() == bytes
    }

    /// Every record that a cache or the depot holds, with duplicates if there are any; for checks, while nothing else happens.
    pub(super) fn held(&self) -> Vec<Id> {
        let arena = self.arena;
        let mut held: Vec<Id> =
            self.all().flat_map(|cache| (0..RINGS).flat_map(|ring| cache.ring(ring).held(arena))).collect();
        for depots in self.all_depots() {
            depots.each(|batch| {
                let between = |&(id, addr): &(Id, u64)| arena.get(id).is_cached_at(addr, Place::BETWEEN);
                held.extend(batch.blocks().filter(between).map(|(id, _)| id));
            });
        }
        held
    }
}

impl Heap {
    fn begin_recent(&mut self, seen: &Usage) {
        self.gauges.requested.begin_recent(&seen.requested);
        self.gauges.allocated.begin_recent(&seen.allocated);
    }

    /// Takes back what had no room in the depot.
    pub fn take_batch(&mut self, batch: &Batch) {
        for (id, addr) in batch.blocks() {
            self.free_cached(id, addr, batch.epoch);
        }
    }
}

/// Bytes that a request of `rounded` bytes takes of a cache: the next multiple of 512.
#[inline]
pub fn cached_need(rounded: u64) -> u64 {
    rounded.next_multiple_of(GRANULE)
}
