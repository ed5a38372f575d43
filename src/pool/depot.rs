//! Batches of blocks on their way from one thread to another, or from a thread's past to its future.
//!
//! A ring holds few blocks, so that little memory lies idle in it. A thread whose ring is full puts a batch away instead of
//! going to the heap, and brings it back once its epoch is over: one lock for a batch, and no step in the heap. Each cache has
//! **depots** of its own, a few batches for each ring, whose locks nobody else wants; what finds no room there goes to those of
//! the heap, where threads that allocate what others free get it.

use super::Epoch;
use super::cache::RINGS;
use super::record::Id;
use super::ring::Moved;
use crate::sync::{patiently, soon};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Looks at a lock that is held for less than a microsecond, before time is given to its holder.
const SPINS: u32 = 1000;
/// Batches of a depot that are looked through for one that will do.
const LOOKED_THROUGH: usize = 4;

/// Blocks of a batch at most.
pub(super) const BATCH: u32 = 32;

/// Blocks of one size.
#[derive(Default)]
pub struct Batch {
    blocks: [(Id, u64); BATCH as usize],
    len: usize,
    /// Bytes of each.
    size: u64,
    /// The newest epoch under which one of them was freed.
    pub(super) epoch: Epoch,
}

impl Batch {
    pub(super) fn of(size: u64) -> Batch {
        Batch { size, ..Batch::default() }
    }

    /// Adds a block, at most [`BATCH`].
    pub(super) fn push(&mut self, (id, addr, epoch): Moved) {
        self.blocks[self.len] = (id, addr);
        self.len += 1;
        self.epoch = self.epoch.max(epoch);
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = (Id, u64)> {
        self.blocks[..self.len].iter().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn bytes(&self) -> u64 {
        self.size * self.len as u64
    }
}

/// Batches of blocks that one ring of each cache is for, oldest first.
type Depot = VecDeque<Batch>;

/// A depot for every ring.
pub(super) struct Depots {
    // Apart, and made there: the thread that meets a context first may have a small stack.
    list: Box<[Mutex<Depot>]>,
    /// Which may hold anything, a bit each.
    stocked: AtomicU64,
    /// Batches that one holds at most.
    most: usize,
}

impl Depots {
    pub fn new(most: usize) -> Depots {
        Depots { list: (0..RINGS).map(|_| Mutex::default()).collect(), stocked: AtomicU64::new(0), most }
    }

    /// The depot of a ring; the caller sees to it that what it takes from it, and puts there, belongs to no other.
    pub fn of(&self, ring: usize) -> Open<'_> {
        Open { depots: self, ring, depot: soon(&self.list[ring]) }
    }

    /// Whether the depot of `ring` may hold anything.
    #[inline]
    pub fn has(&self, ring: usize) -> bool {
        self.stocked() >> ring & 1 == 1
    }

    /// Which depots may hold anything, a bit each.
    pub fn stocked(&self) -> u64 {
        self.stocked.load(Ordering::Acquire)
    }

    /// A batch of blocks of `size` bytes that can be handed out now, if there is one and nobody is at the depot.
    pub fn take(&self, ring: usize, size: u64, retired: Epoch) -> Option<Batch> {
        let depot = if self.has(ring) { self.list[ring].try_lock()? } else { return None };
        let mut depot = Open { depots: self, ring, depot };
        depot.find(size, retired).and_then(|at| depot.remove(at))
    }

    /// Everything out of one depot. The end of the process may have stopped the thread that has its lock, for good: then, or
    /// without patience where that thread does not run just now, the depot is left alone.
    pub fn empty(&self, ring: usize, patient: bool) -> Depot {
        let free = (0..SPINS).find_map(|_| {
            std::hint::spin_loop();
            self.list[ring].try_lock()
        });
        let depot = free.or_else(|| if patient { patiently(&self.list[ring]) } else { None });
        depot.map_or_else(Depot::new, |depot| Open { depots: self, ring, depot }.take_all())
    }

    /// Whatever is in them; for checks, while nothing else happens.
    pub fn each(&self, mut each: impl FnMut(&Batch)) {
        self.list.iter().for_each(|depot| depot.lock().iter().for_each(&mut each));
    }
}

/// A depot under its lock.
pub(super) struct Open<'a> {
    depots: &'a Depots,
    ring: usize,
    depot: parking_lot::MutexGuard<'a, Depot>,
}

impl Open<'_> {
    pub fn is_full(&self) -> bool {
        self.depot.len() >= self.depots.most
    }

    pub fn put(&mut self, batch: Batch) {
        self.depots.stocked.fetch_or(1 << self.ring, Ordering::Release);
        self.depot.push_back(batch);
    }

    /// Where a batch of blocks of `size` bytes is that can be handed out now.
    pub fn find(&self, size: u64, retired: Epoch) -> Option<usize> {
        let fits = |batch: &Batch| batch.size == size && batch.epoch <= retired;
        self.depot.iter().take(LOOKED_THROUGH).position(fits)
    }

    /// The epoch of the first batch of blocks of `size` bytes.
    pub fn first(&self, size: u64) -> Option<Epoch> {
        let mut near = self.depot.iter().take(LOOKED_THROUGH);
        near.find(|batch| batch.size == size).map(|batch| batch.epoch)
    }

    pub fn at(&self, at: usize) -> &Batch {
        &self.depot[at]
    }

    pub fn take_all(&mut self) -> Depot {
        self.unmark();
        std::mem::take(&mut self.depot)
    }

    pub fn remove(&mut self, at: usize) -> Option<Batch> {
        let batch = self.depot.remove(at);
        if self.depot.is_empty() {
            // Nobody takes the lock for nothing: that of a heap's depot is many threads'.
            self.unmark();
        }
        batch
    }

    fn unmark(&self) {
        self.depots.stocked.fetch_and(!(1 << self.ring), Ordering::Release);
    }
}
