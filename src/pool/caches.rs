//! The caches of one heap, of all threads, and the depot between them.
//!
//! A thread that ends leaves its cache as it is; the next thread that wants one takes it over. A thread that frees more than
//! it allocates hands half a ring at a time to the **depot**, from which a thread that allocates more than it frees takes it:
//! one lock for a batch and no step in the heap. Under pressure [`Caches::drain`] takes everything back into the heap,
//! whatever the threads do meanwhile.

use super::cache::{Cache, RINGS};
use super::classes::{CLASSES, SMALL_MAX, class, class_of};
use super::gauges::Usage;
use super::heap::Heap;
use super::index::Index;
use super::record::{Id, Place};
use super::ring::Moved;
use super::{Epoch, GRANULE};
use crate::stats::SizeHistogram;
use crate::sync::patiently;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Caches of one heap; more threads than that go without.
const MOST: usize = 256;
/// Looks at a lock that is held for less than a microsecond, before time is given to its holder.
const SPINS: u32 = 1000;
/// Blocks of a batch.
const BATCH: usize = 32;

/// Blocks on their way from thread to thread.
#[derive(Default)]
pub struct Batch {
    blocks: [(Id, u64); BATCH],
    len: usize,
    /// The newest epoch under which one of them was freed.
    epoch: Epoch,
}

impl Batch {
    fn push(&mut self, (id, addr, epoch): Moved) {
        self.blocks[self.len] = (id, addr);
        self.len += 1;
        self.epoch = self.epoch.max(epoch);
    }

    fn blocks(&self) -> impl Iterator<Item = (Id, u64)> {
        self.blocks[..self.len].iter().copied()
    }
}

/// Batches of one class, oldest first.
#[derive(Default)]
struct Depot {
    batches: VecDeque<Batch>,
    /// Rises when the heap is cleared: what was on its way then is gone.
    cleared: u64,
    closed: bool,
}

/// Which caches to drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// Blocks like those that a request of so many bytes is served with: of its class, or all above the classes.
    Like(u64),
    /// Everything.
    All,
}

/// All caches of one heap.
pub struct Caches {
    owner: u32,
    index: &'static Index,
    // Apart, like the depots, and made there: the thread that meets a context first may have a small stack.
    list: Box<[OnceLock<Box<Cache>>]>,
    made: AtomicU32,
    making: Mutex<()>,
    depots: Box<[Mutex<Depot>]>,
    /// Whether the depots may hold anything.
    stocked: AtomicBool,
}

impl Caches {
    /// No caches yet, for heap number `owner` of `index`.
    pub fn new(owner: u32, index: &'static Index) -> Caches {
        Caches {
            owner,
            index,
            list: (0..MOST).map(|_| OnceLock::new()).collect(),
            made: AtomicU32::new(0),
            making: Mutex::new(()),
            depots: (0..CLASSES).map(|_| Mutex::default()).collect(),
            stocked: AtomicBool::new(false),
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

    fn all(&self) -> impl Iterator<Item = &Cache> {
        let made = self.made.load(Ordering::Acquire) as usize;
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
        self.made.store(made + 1, Ordering::Release);
        slot.get().map(|cache| &**cache)
    }

    /// After a free of `size` bytes found no room in its ring: the older half of the ring goes to the depot. What finds no
    /// room there is the caller's to bring to [`Heap::take_batch`]. By the cache's thread, without the heap's lock.
    pub fn relieve(&self, cache: &Cache, size: u64) -> Option<Batch> {
        let small = size <= SMALL_MAX;
        let (ring, cells) = cache.crowded(size)?;
        let number = if small { class_of(size) } else { 0 };
        // Before any block is taken: what is taken before a clearing must not get into the depot after it.
        let cleared = self.depots[number].lock().cleared;
        let mut batch = Batch::default();
        cache.remove(ring, cells, |moved| batch.push(moved));
        if batch.len == 0 {
            return None;
        }
        let bytes = u64::from(class(number).size) * batch.len as u64;
        if !small || !self.index.cached.reserve(bytes) {
            return Some(batch);
        }
        self.stocked.store(true, Ordering::Release);
        let mut depot = self.depots[number].lock();
        if depot.closed || depot.cleared != cleared {
            self.index.cached.release(bytes);
        } else {
            depot.batches.push_back(batch);
        }
        None
    }

    /// Brings a batch whose epoch is over from the depot into the cache, for requests of `need` bytes. By the cache's thread,
    /// without the heap's lock. False if there is none.
    pub fn refill(&self, cache: &Cache, need: u64, retired: Epoch) -> bool {
        if need > SMALL_MAX || !self.stocked.load(Ordering::Acquire) {
            return false;
        }
        let Some((ring, size, vacant)) = cache.vacancy(need, BATCH as u32) else { return false };
        let mut depot = self.depots[class_of(need)].lock();
        let fits = |batch: &Batch| batch.epoch <= retired && batch.len <= vacant as usize;
        if !depot.batches.front().is_some_and(fits) {
            return false;
        }
        let Some(batch) = depot.batches.pop_front() else { return false };
        // Under the depot's lock, which a clearing takes first: nobody else has these records.
        for (id, addr) in batch.blocks() {
            ring.put(self.index.arena.get(id), id, addr, batch.epoch);
        }
        drop(depot);
        let bytes = size * batch.len as u64;
        self.index.cached.release(bytes);
        cache.added(bytes);
        true
    }

    /// Takes cached blocks back into the heap, whose lock the caller holds. `now` tells the current epoch.
    pub fn drain(&self, heap: &mut Heap, which: Drain, now: impl Fn() -> Epoch) {
        let rings = match which {
            Drain::All => 0..RINGS,
            Drain::Like(bytes) if bytes <= SMALL_MAX => class_of(bytes)..class_of(bytes) + 1,
            Drain::Like(_) => CLASSES..RINGS,
        };
        let arena = &self.index.arena;
        for cache in self.all() {
            for ring in cache.rings(rings.clone()).filter(|ring| ring.len() > 0) {
                ring.drain(arena, &now, |(id, addr, epoch)| heap.free_cached(id, addr, epoch));
            }
        }
        for number in rings.take_while(|number| *number < CLASSES) {
            for batch in self.empty(number) {
                heap.take_batch(&batch);
            }
        }
    }

    /// Everything out of one depot.
    fn empty(&self, number: usize) -> VecDeque<Batch> {
        if !self.stocked.load(Ordering::Acquire) {
            return VecDeque::new();
        }
        // The end of the process may have stopped the thread that has the lock, for good: then the depot is left alone.
        let depot = (0..SPINS).find_map(|_| self.depots[number].try_lock().or_else(pause));
        depot
            .or_else(|| patiently(&self.depots[number]))
            .map_or_else(VecDeque::new, |mut depot| self.empty_locked(number, &mut depot))
    }

    fn empty_locked(&self, number: usize, depot: &mut MutexGuard<'_, Depot>) -> VecDeque<Batch> {
        let batches = std::mem::take(&mut depot.batches);
        let blocks: usize = batches.iter().map(|batch| batch.len).sum();
        self.index.cached.release(u64::from(class(number).size) * blocks as u64);
        batches
    }

    /// [`Heap::clear`], and with it everything cached. The cells of threads' caches stay, and name nothing any more.
    pub fn clear(&self, heap: &mut Heap) {
        for (number, depot) in self.depots.iter().enumerate() {
            let mut depot = depot.lock();
            depot.closed = true;
            drop(self.empty_locked(number, &mut depot));
        }
        heap.clear();
        for depot in &*self.depots {
            let mut depot = depot.lock();
            depot.closed = false;
            depot.cleared += 1;
        }
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

    /// Every record that a cache or the depot holds, with duplicates if there are any; for checks, while nothing else happens.
    pub(super) fn held(&self) -> Vec<Id> {
        let arena = &self.index.arena;
        let mut held: Vec<Id> =
            self.all().flat_map(|cache| cache.rings(0..RINGS)).flat_map(|ring| ring.held(arena)).collect();
        for depot in &*self.depots {
            let depot = depot.lock();
            let blocks = depot.batches.iter().flat_map(Batch::blocks);
            held.extend(
                blocks
                    .filter(|&(id, addr)| arena.get(id).is_cached_at(addr, Place::BETWEEN))
                    .map(|(id, _)| id),
            );
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

fn pause<T>() -> Option<T> {
    std::hint::spin_loop();
    None
}

/// Bytes that a request of `rounded` bytes takes of a cache: the next multiple of 512.
#[inline]
pub fn cached_need(rounded: u64) -> u64 {
    rounded.next_multiple_of(GRANULE)
}
