//! From an address to its block, for all heaps of the process, without a lock.
//!
//! A radix tree over 49-bit addresses. Its leaves have a cell per 32 KiB: the record of the block that was last handed
//! out starting there or, for all cells of a slab, the slab's. A cell is a hint: the record's own word proves it. So a
//! cell may be out of date (a live block that shares its cell with a younger one, freed memory, an interior pointer);
//! then the owning heap is asked under its lock. Every block above 32 KiB and every object of a slab is found directly.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::sync::Apart;
use parking_lot::RwLock;

use super::arena::Store;
use super::cached::Cached;
use super::classes::{CELL, CLASSES, class};
use super::record::{Id, NONE, Place, Record};

/// Width of the addresses that can be indexed: what CUDA devices use.
pub const ADDRESS_BITS: u32 = 49;
const CELL_BITS: u32 = CELL.ilog2();
/// A leaf covers 4 GiB, a middle table 1 TiB.
const LEAF_BITS: u32 = 17;
const MIDDLE_BITS: u32 = 8;
const ROOT_BITS: u32 = ADDRESS_BITS - MIDDLE_BITS - LEAF_BITS - CELL_BITS;

type Leaf = Box<[AtomicU32]>;
type Middle = Box<[OnceLock<Leaf>]>;

/// A block that a free has taken from the program. It must reach [`Heap::free`](super::Heap::free) of heap `owner`, or
/// its memory is lost until the heap is cleared. Cannot be copied: a block is freed once.
#[derive(Debug)]
#[must_use = "the block leaks unless the heap gets it"]
pub struct Claimed {
    pub(super) id: Id,
    pub(super) addr: u64,
    owner: u32,
    size: u64,
    requested: u64,
}

impl Claimed {
    pub(super) fn new(id: Id, addr: u64, record: &Record) -> Claimed {
        Claimed { id, addr, owner: record.owner(), size: record.size(), requested: record.requested() }
    }

    /// Number of the heap that the block belongs to.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Address of the block.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Bytes of the block.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that the program had asked for.
    pub fn requested(&self) -> u64 {
        self.requested
    }
}

/// What a free found at an address.
#[derive(Debug)]
pub enum Claim {
    /// A live block, now the caller's to give to the heap.
    Claimed(Claimed),
    /// Memory of the pool, but nothing live: a double free.
    NotLive {
        /// Number of the heap.
        owner: u32,
    },
    /// Inside a live block.
    Interior {
        /// Number of the heap.
        owner: u32,
        /// Where that block starts.
        start: u64,
    },
    /// Not decided without the heap's lock: call [`Heap::claim`](super::Heap::claim) of this heap.
    Ask {
        /// Number of the heap.
        owner: u32,
    },
    /// Not the pool's.
    Foreign,
}

/// The address index and the records of all heaps. One for the process.
pub struct Index {
    root: [OnceLock<Middle>; 1 << ROOT_BITS],
    regions: RwLock<BTreeMap<u64, (u64, u32)>>,
    /// Moments counted so far, at which a heap got its first region or was cleared.
    moments: AtomicU64,
    /// Caches made so far.
    caches: AtomicU32,
    /// What they hold.
    pub(super) cached: Apart<Cached>,
    pub(super) records: Store,
}

impl Default for Index {
    fn default() -> Index {
        Index::new()
    }
}

impl Index {
    /// An empty index; allocates nothing, so that it can be a static.
    pub const fn new() -> Index {
        Index {
            root: [const { OnceLock::new() }; 1 << ROOT_BITS],
            regions: RwLock::new(BTreeMap::new()),
            moments: AtomicU64::new(0),
            caches: AtomicU32::new(0),
            cached: Apart(Cached::new()),
            records: Store::new(),
        }
    }

    /// Takes the live block that starts at `addr` from the program, or says what is there instead. Of several racing
    /// frees of one block exactly one gets it. Lock-free for live blocks, but for a few small ones (see
    /// [`Claim::Ask`]); others take a shared lock to tell foreign memory apart.
    pub fn claim(&self, addr: u64) -> Claim {
        let (id, record, _) = self.candidate(addr);
        if record.claim(addr) {
            return Claim::Claimed(Claimed::new(id, addr, record));
        }
        match self.owner_of(addr) {
            Some(owner) => Claim::Ask { owner },
            None => Claim::Foreign,
        }
    }

    /// Number of the heap with a region that covers `addr`. Takes a shared lock, so not for a forked child.
    pub fn owner_of(&self, addr: u64) -> Option<u32> {
        let regions = self.regions.read();
        let (start, (size, owner)) = regions.range(..=addr).next_back()?;
        (addr - start < *size).then_some(*owner)
    }

    /// Host memory of all records in bytes, in use or kept to be reused.
    pub fn record_bytes(&self) -> u64 {
        u64::from(self.records.handed_out()) * size_of::<Record>() as u64
    }

    /// A number larger than at every earlier call.
    pub(super) fn moment(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::Relaxed)
    }

    /// A number for one more cache, if there are not too many.
    pub(super) fn next_cache(&self) -> Option<u32> {
        let next = |made: u32| (made < Place::CACHES).then_some(made + 1);
        self.caches.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()
    }

    /// The record that probably describes the block at `addr`; that of [`NONE`], which never does, if none is likely. And its
    /// class, if it is probably an object of a slab.
    #[inline(always)]
    pub(super) fn candidate(&self, addr: u64) -> (Id, &Record, Option<usize>) {
        let id = self.cell(addr).map_or(NONE, |cell| cell.load(Ordering::Acquire));
        let arena = self.records.arena();
        let record = arena.get(id);
        let Some(start) = record.slab() else { return (id, record, None) };
        let offset = addr.wrapping_sub(start);
        let number = record.tag() as usize % CLASSES;
        let class = class(number);
        // The cell may be out of date, and the slab of this record anywhere.
        let object = if offset < u64::from(class.slab) {
            record.first().wrapping_add(class.object_at(offset))
        } else {
            NONE
        };
        (object, arena.get(object), Some(number))
    }

    #[inline(always)]
    fn cell(&self, addr: u64) -> Option<&AtomicU32> {
        let (root, middle, leaf) = split(addr);
        self.root.get(root)?.get()?[middle].get()?.get(leaf)
    }

    fn cell_or_new(&self, addr: u64) -> Option<&AtomicU32> {
        let (root, middle, leaf) = split(addr);
        let middles =
            self.root.get(root)?.get_or_init(|| (0..1 << MIDDLE_BITS).map(|_| OnceLock::new()).collect());
        let cells =
            middles[middle].get_or_init(|| (0..1u32 << LEAF_BITS).map(|_| AtomicU32::new(NONE)).collect());
        cells.get(leaf)
    }

    /// Makes `id` what is found at the cells of `addr..addr + size`.
    pub(super) fn set(&self, addr: u64, size: u64, id: Id) {
        for at in (addr..addr + size).step_by(CELL as usize) {
            if let Some(cell) = self.cell_or_new(at) {
                cell.store(id, Ordering::Release);
            }
        }
    }

    /// Forgets `id` at these cells, where nothing else has taken its place.
    pub(super) fn unset(&self, addr: u64, size: u64, id: Id) {
        for at in (addr..addr + size).step_by(CELL as usize) {
            if let Some(cell) = self.cell(at)
                && cell.load(Ordering::Relaxed) == id
            {
                cell.store(NONE, Ordering::Release);
            }
        }
    }

    /// What the cell of `addr` holds; for checks.
    pub(super) fn at(&self, addr: u64) -> Id {
        self.cell(addr).map_or(NONE, |cell| cell.load(Ordering::Acquire))
    }

    /// Adds a region of heap `owner`. False, and nothing done, when it cannot be indexed or overlaps another.
    pub(super) fn add_region(&self, addr: u64, size: u64, owner: u32) -> bool {
        let Some(end) = addr.checked_add(size) else { return false };
        if size == 0 || end > 1 << ADDRESS_BITS {
            return false;
        }
        let mut regions = self.regions.write();
        let overlaps = regions.range(..end).next_back().is_some_and(|(start, (size, _))| start + size > addr);
        if !overlaps {
            regions.insert(addr, (size, owner));
        }
        !overlaps
    }

    /// The region at `addr` has grown or shrunk.
    pub(super) fn resize_region(&self, addr: u64, size: u64) {
        if let Some((known, _)) = self.regions.write().get_mut(&addr) {
            *known = size;
        }
    }

    pub(super) fn remove_region(&self, addr: u64) {
        self.regions.write().remove(&addr);
    }
}

fn split(addr: u64) -> (usize, usize, usize) {
    let cell = addr >> CELL_BITS;
    let leaf = cell & ((1 << LEAF_BITS) - 1);
    let middle = (cell >> LEAF_BITS) & ((1 << MIDDLE_BITS) - 1);
    ((cell >> (LEAF_BITS + MIDDLE_BITS)) as usize, middle as usize, leaf as usize)
}
