//! One thread's cache of one heap: blocks that the thread has freed and takes again without a lock, two exchanges a pair.
//!
//! Small blocks stand in a ring per size class. Larger ones, up to 1 MiB, stand in a few rings of one exact size each; a size
//! finds its ring by a hash, and takes an empty one over. What all caches may hold together is bounded: a cache has a
//! grant, which it enlarges in steps from what the process has left.

use super::Epoch;
use super::arena::Arena;
use super::cached::EACH;
use super::classes::{CLASSES, GRANULE, SMALL_MAX, class, class_of};
use super::depot::{BATCH, Batch, Depots};
use super::heap::Heap;
use super::index::Index;
use super::kept::SEAL_EVERY;
use super::record::Place;
use super::ring::{Next, Ring, Rings};
use super::tally::Tally;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Blocks up to this size are cached.
pub const CACHED_MAX: u64 = 1 << 20;
/// Grants grow by steps of this many bytes.
const STEP: u64 = 128 << 10;

/// Rings for exact sizes above the classes.
const LARGE_BITS: u32 = 4;
const LARGE: usize = 1 << LARGE_BITS;
pub(super) const RINGS: usize = CLASSES + LARGE;
/// Cells of all rings, and of one. Blocks of the smallest classes cost nothing to keep, and the more of them go round the rarer
/// is the question whether the GPU is done with them.
pub(super) const CELLS: usize = 1 << Place::CELL_BITS;
const RING_CELLS: u32 = 32;
const LONG_RINGS: usize = 4;
const LONG_RING_CELLS: u32 = 128;
/// Batches of one ring that a thread puts away for itself.
const DEPOSITED: usize = 3;
/// Frees that find their ring taken by another size before it changes hands.
const PATIENCE: u32 = 16;
/// Objects taken from the heap at once when a ring is empty.
pub(super) const LENT: u32 = 16;

/// Allocations between two looks at the sealed epochs once a look was in vain.
const POLL_EVERY: u32 = 16;

const _: () = assert!(RINGS < 64, "every ring has a bit");

/// The cache of one thread for one heap. All but [`Cache::owner`] is for the thread that has it.
#[repr(align(128))]
pub struct Cache {
    pub(super) owner: u32,
    /// Whether a thread has it.
    pub(super) taken: AtomicBool,
    pub(super) index: &'static Index,
    pub(super) arena: Arena,
    /// The next in the list of its thread's caches.
    next: Mutex<Option<&'static Cache>>,
    bytes: AtomicU64,
    granted: AtomicU64,
    pub(super) to_seal: AtomicU32,
    to_poll: AtomicU32,
    /// Rings above the classes into which blocks have come since the last drain, a bit each; perhaps some more.
    arrivals: AtomicU64,
    /// The epoch at which this thread would have sealed last; 0 before.
    pub(super) seen_epoch: AtomicU64,
    pub(super) tally: Tally,
    /// Exact sizes, and how often another size has met them.
    sizes: [AtomicU64; LARGE],
    conflicts: [AtomicU32; LARGE],
    /// What its thread has put away.
    pub(super) depots: Depots,
    rings: Rings<RINGS, CELLS>,
}

/// What a cache has for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popped {
    /// A block: its address.
    Block(u64),
    /// Only blocks that are pending, the oldest under this epoch.
    Waiting(Epoch),
    /// Nothing.
    Empty,
}

pub(super) fn load(figure: &AtomicU64) -> u64 {
    figure.load(Ordering::Relaxed)
}

impl Cache {
    // No part of the frame of a thread's first allocation, which goes on from there.
    #[inline(never)]
    pub(super) fn new(number: u32, owner: u32, index: &'static Index) -> Box<Cache> {
        let capacity = |ring| if ring < LONG_RINGS { LONG_RING_CELLS } else { RING_CELLS };
        Box::new(Cache {
            owner,
            taken: AtomicBool::new(true),
            index,
            arena: index.records.arena(),
            next: Mutex::new(None),
            bytes: AtomicU64::new(0),
            granted: AtomicU64::new(0),
            to_seal: AtomicU32::new(SEAL_EVERY),
            to_poll: AtomicU32::new(0),
            arrivals: AtomicU64::new(0),
            seen_epoch: AtomicU64::new(0),
            tally: Tally::default(),
            sizes: [const { AtomicU64::new(0) }; LARGE],
            conflicts: [const { AtomicU32::new(0) }; LARGE],
            depots: Depots::new(DEPOSITED),
            rings: Rings::new(number, capacity),
        })
    }

    /// Number of the heap whose blocks it caches.
    #[inline]
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Leaves the cache, with what is in it, to whichever thread asks for one next.
    pub fn leave(&self) {
        let unused = load(&self.granted) - load(&self.bytes);
        self.granted.store(load(&self.bytes), Ordering::Relaxed);
        self.index.cached.release(unused);
        self.taken.store(false, Ordering::Release);
    }

    pub(super) fn next(&self) -> Option<&'static Cache> {
        *self.next.lock()
    }

    pub(super) fn link(&self, next: Option<&'static Cache>) {
        *self.next.lock() = next;
    }

    pub(super) fn unlink(&self) -> Option<&'static Cache> {
        self.next.lock().take()
    }

    fn large(size: u64) -> usize {
        ((size / GRANULE) as u32).wrapping_mul(0x9E37_79B1) as usize >> (u32::BITS - LARGE_BITS)
    }

    /// The ring that holds blocks for a request of `need` bytes, a multiple of 512, and the size of those blocks.
    #[inline(always)]
    pub(super) fn ring_for(&self, need: u64) -> Option<(usize, u64)> {
        if need <= SMALL_MAX {
            let number = class_of(need);
            return Some((number, u64::from(class(number).size)));
        }
        let at = Cache::large(need);
        (load(&self.sizes[at]) == need).then_some((CLASSES + at, need))
    }

    /// The ring that a block of `size` bytes, at most [`CACHED_MAX`], may go to.
    pub(super) fn ring_of(&self, size: u64) -> Option<usize> {
        if size <= SMALL_MAX {
            // A block in a hole may be of a size that no class has.
            let number = class_of(size);
            return (u64::from(class(number).size) == size).then_some(number);
        }
        let at = Cache::large(size);
        let ring = CLASSES + at;
        if load(&self.sizes[at]) != size {
            if self.ring(ring).len() != 0 {
                return None;
            }
            self.conflicts[at].store(0, Ordering::Relaxed);
            self.sizes[at].store(size, Ordering::Relaxed);
        }
        Some(ring)
    }

    pub(super) fn size_of(&self, ring: usize) -> u64 {
        if ring < CLASSES { u64::from(class(ring).size) } else { load(&self.sizes[ring - CLASSES]) }
    }

    /// A block for a request that is to get `need` bytes, a multiple of 512; epochs up to `retired` are over.
    #[inline(always)]
    pub fn pop(&self, need: u64, requested: u64, retired: Epoch) -> Popped {
        let Some((ring, size)) = self.ring_for(need) else { return Popped::Empty };
        let (next, passed) = self.ring(ring).pop(self.arena, retired);
        let popped = match next {
            Next::Block(record, addr) => {
                record.set_requested(requested);
                // Above the numbers that the heap gives, and no other's.
                record
                    .set_serial((u64::from(self.number()) + 1) << 38 | self.tally.allocs() & ((1 << 38) - 1));
                self.tally.alloc(size, requested);
                self.shrink(size);
                Popped::Block(addr)
            }
            Next::Waiting(epoch) => Popped::Waiting(epoch),
            Next::Empty => Popped::Empty,
        };
        if passed > 0 {
            self.shrink(size * u64::from(passed));
        }
        popped
    }

    fn number(&self) -> u32 {
        self.ring(0).cache()
    }

    #[inline]
    fn shrink(&self, bytes: u64) {
        self.bytes.store(load(&self.bytes) - bytes, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn grow(&self, bytes: u64) {
        self.bytes.store(load(&self.bytes) + bytes, Ordering::Relaxed);
    }

    /// Whether `bytes` more may be cached.
    #[inline]
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        load(&self.bytes) + bytes <= load(&self.granted) || self.ask(bytes)
    }

    /// Enlarges the grant.
    #[cold]
    fn ask(&self, bytes: u64) -> bool {
        let missing = load(&self.bytes) + bytes - load(&self.granted);
        let step = missing.next_multiple_of(STEP);
        if load(&self.granted) + step > EACH || !self.index.cached.reserve(step) {
            return false;
        }
        self.granted.store(load(&self.granted) + step, Ordering::Relaxed);
        true
    }

    /// Bytes that it may hold.
    #[cfg(test)]
    pub(super) fn granted(&self) -> u64 {
        load(&self.granted)
    }

    /// How many objects the heap may add to the ring for `need`, at most `most`; with the ring.
    fn vacancy(&self, need: u64, most: u32) -> Option<(Ring<'_, CELLS>, u64, u32)> {
        let (ring, size) = self.ring_for(need).filter(|(ring, _)| *ring < CLASSES)?;
        let mut vacant = (self.ring(ring).capacity() - self.ring(ring).len()).min(most);
        while vacant > 0 && !self.has_room(size * u64::from(vacant)) {
            vacant /= 2;
        }
        (vacant > 0).then_some((self.ring(ring), size, vacant))
    }

    /// Puts blocks that are nobody's into the empty ring `ring`. False, and nothing done, if they may not all be cached.
    pub(super) fn stock(&self, ring: usize, batch: &Batch) -> bool {
        let bytes = batch.bytes();
        if self.ring(ring).len() != 0 || !self.has_room(bytes) {
            return false;
        }
        for (id, addr) in batch.blocks() {
            self.ring(ring).put(self.arena.get(id), id, addr, batch.epoch);
        }
        self.arrived(ring);
        self.grow(bytes);
        true
    }

    #[inline]
    pub(super) fn arrived(&self, ring: usize) {
        if ring >= CLASSES {
            // No exchange: should a drain come in between, what it has seen is marked once more.
            self.arrivals.store(load(&self.arrivals) | 1 << ring, Ordering::Release);
        }
    }

    /// Takes the marks of the rings above the classes into which blocks have come since this was last asked, a bit each.
    pub(super) fn take_arrivals(&self) -> u64 {
        if load(&self.arrivals) == 0 { 0 } else { self.arrivals.swap(0, Ordering::Acquire) }
    }

    /// Bytes in the cells of a ring.
    pub(super) fn holds(&self, ring: usize) -> u64 {
        self.size_of(ring) * u64::from(self.ring(ring).len())
    }

    /// Whether a look at the sealed epochs is due for a request whose blocks wait.
    pub fn may_poll(&self) -> bool {
        let left = self.to_poll.load(Ordering::Relaxed);
        self.to_poll.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 0
    }

    /// That look was in vain.
    pub fn polled_in_vain(&self) {
        self.to_poll.store(POLL_EVERY, Ordering::Relaxed);
    }

    /// Whether the ring for `need` is nearly full, or as full as it may get: its blocks go round, and more of them
    /// would not help.
    pub fn goes_round(&self, need: u64) -> bool {
        self.ring_for(need).is_some_and(|(ring, size)| {
            self.ring(ring).len() * 8 >= self.ring(ring).capacity() * 7 || !self.has_room(size)
        })
    }

    /// Which ring to make room in after a block of `size` bytes, at most [`CACHED_MAX`], found none, and how many cells: half of
    /// a full ring; all of one that has kept another size waiting for long.
    pub(super) fn crowded(&self, size: u64) -> Option<(usize, u32)> {
        if let Some(ring) = self.ring_of(size) {
            let cells = self.ring(ring);
            return cells.is_full().then_some((ring, cells.capacity() / 2));
        }
        if size <= SMALL_MAX {
            return None;
        }
        let at = Cache::large(size);
        let met = self.conflicts[at].load(Ordering::Relaxed) + 1;
        self.conflicts[at].store(met, Ordering::Relaxed);
        (met >= PATIENCE).then_some((CLASSES + at, u32::MAX))
    }

    /// Takes the oldest `most` cells out of a ring, or as many as a batch holds.
    pub(super) fn remove(&self, ring: usize, most: u32) -> Batch {
        let size = self.size_of(ring);
        let mut batch = Batch::of(size);
        for _ in 0..most.min(BATCH) {
            let Some(removed) = self.ring(ring).remove(self.arena) else { break };
            self.shrink(size);
            if let Ok(moved) = removed {
                batch.push(moved);
            }
        }
        batch
    }

    #[inline(always)]
    pub(super) fn ring(&self, at: usize) -> Ring<'_, CELLS> {
        self.rings.at(at)
    }
}

impl Heap {
    /// Lets the heap's books know what the cache's thread has counted. By that thread.
    pub fn settle(&mut self, cache: &Cache) {
        self.clock += cache.tally.settle(&mut self.gauges);
    }

    /// Gives the cache some more clean objects of the slab that the object at `addr` is of, which serves requests of
    /// `need` bytes. By the cache's thread.
    pub fn lend(&mut self, cache: &Cache, addr: u64, need: u64) {
        let Some((ring, size, vacant)) = cache.vacancy(need, LENT) else { return };
        let mut lent = 0;
        self.lend_objects(addr, vacant, |arena: Arena, id| {
            let record = arena.get(id);
            ring.put(record, id, record.addr(), 0);
            lent += size;
        });
        cache.grow(lent);
    }
}
