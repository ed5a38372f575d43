//! A free that goes into the calling thread's cache: the block changes hands by one exchange, and then the epoch is read.

use super::Epoch;
use super::cache::{CACHED_MAX, CELLS, Cache, load};
use super::classes::{SMALL_MAX, class};
use super::index::{Claimed, Index};
use super::record::Id;
use super::ring::Ring;
use std::sync::atomic::Ordering;

/// Frees between two seals: larger blocks, of which fewer go round, count for more.
pub(super) const SEAL_EVERY: u32 = 64;
const WEIGHTS: [(u64, u32); 3] = [(2 << 10, 1), (SMALL_MAX, 2), (512 << 10, 4)];
const LAST_WEIGHT: u32 = 8;

/// A block that its free has put into a cache, all but the epoch: [`Kept::put`] must follow.
#[must_use = "the block leaks unless it is put"]
pub struct Kept<'a> {
    cache: &'a Cache,
    ring: usize,
    id: Id,
    size: u64,
    requested: u64,
}

/// What came of a free that tried a cache first.
pub enum Freed<'a> {
    /// A cache has the block.
    Kept(Kept<'a>),
    /// The free has the block.
    Claimed(Claimed),
    /// Nothing was done.
    No,
}

impl Cache {
    /// Keeps a block that a free has claimed, if there is room for it now. By the cache's thread.
    ///
    /// # Errors
    /// The block is still the free's.
    pub fn keep(&self, claimed: Claimed) -> Result<Kept<'_>, Claimed> {
        let (id, size, requested) = (claimed.id, claimed.size(), claimed.requested());
        let ring = self.ring_of(size).filter(|ring| !self.ring(*ring).is_full() && self.has_room(size));
        match ring {
            Some(ring) if self.ring(ring).accept_claimed(self.arena.get(id), claimed.addr) => {
                Ok(Kept { cache: self, ring, id, size, requested })
            }
            _ => Err(claimed),
        }
    }
}

impl Index {
    /// Takes the live block that starts at `addr` from the program into the calling thread's cache of the block's heap,
    /// which `cache_of` looks up by that heap's number. Of several racing frees of one block exactly one gets it. Without
    /// room, or where the block is not found at once, nothing is done: [`Index::claim`] decides.
    #[inline(always)]
    pub fn keep<'a>(&self, addr: u64, cache_of: impl FnOnce(u32) -> Option<&'a Cache>) -> Freed<'a> {
        let (id, record, class_of_slab) = self.candidate(addr);
        // Hints, until the exchange has proved that the block is live, and another look that it is still that one.
        let (owner, size) = (record.owner(), record.size());
        if size > CACHED_MAX {
            return if record.claim(addr) {
                Freed::Claimed(Claimed::new(id, addr, record))
            } else {
                Freed::No
            };
        }
        let Some(cache) = cache_of(owner) else { return Freed::No };
        let ring = match class_of_slab {
            Some(number) if u64::from(class(number).size) == size => number,
            Some(_) => return Freed::No,
            None => match cache.ring_of(size) {
                Some(ring) => ring,
                None => return Freed::No,
            },
        };
        let cells = cache.ring(ring);
        if cells.is_full() || !cache.has_room(size) || !cells.accept(record, addr) {
            return Freed::No;
        }
        if record.owner() != owner || record.size() != size {
            return self.keep_not(addr, id, cells);
        }
        Freed::Kept(Kept { cache, ring, id, size, requested: record.requested() })
    }

    #[cold]
    fn keep_not<'a>(&self, addr: u64, id: Id, ring: Ring<'_, CELLS>) -> Freed<'a> {
        let record = self.records.arena().get(id);
        if ring.reject(record, addr) { Freed::Claimed(Claimed::new(id, addr, record)) } else { Freed::No }
    }
}

impl Kept<'_> {
    /// Number of the heap that the block belongs to.
    #[inline]
    pub fn owner(&self) -> u32 {
        self.cache.owner
    }

    /// Bytes of the block, and of what the program had asked for.
    #[inline(always)]
    pub fn sizes(&self) -> (u64, u64) {
        (self.size, self.requested)
    }

    /// The block can be handed out again once `epoch`, which is read now, is over. After so many frees of this thread, says
    /// whether to seal: if nobody has sealed meanwhile.
    #[inline(always)]
    pub fn put(self, epoch: Epoch) -> Option<bool> {
        let Kept { cache, ring, id, size, requested } = self;
        cache.ring(ring).publish(id, epoch);
        cache.arrived(ring);
        cache.grow(size);
        cache.tally.free(size, requested);
        let weight =
            WEIGHTS.iter().find(|(upto, _)| size <= *upto).map_or(LAST_WEIGHT, |(_, weight)| *weight);
        let left = cache.to_seal.load(Ordering::Relaxed);
        if left > weight {
            cache.to_seal.store(left - weight, Ordering::Relaxed);
            return None;
        }
        cache.to_seal.store(SEAL_EVERY, Ordering::Relaxed);
        let seen = load(&cache.seen_epoch);
        let due = seen == epoch || seen == 0;
        // The seal that is due ends this epoch.
        cache.seen_epoch.store(if due { epoch + 1 } else { epoch }, Ordering::Relaxed);
        Some(due)
    }
}
