//! Which clean block serves a request, and so which one is cut.
//!
//! The best fit, with one exception: a region in which nothing lives is worth more than its bytes. It can go back to the driver, or
//! be traded for one of another size (`trade.rs`), and when it is cut for a smaller block it can do neither. So holes of regions
//! that are in use anyway come first. Where there is none, the largest idle region is cut and no smaller one: what else the
//! request's neighbours in time need is then cut from the same, and the others stay whole.
//!
//! But a small block does not pin the largest region, which is what the next large request needs.

use super::Fit;
use super::heap::Heap;
use super::record::{Id, NONE, Record};

/// An idle region is as good as a hole if the request takes all of it but this part.
const CLOSE: u64 = 4;
/// A request pins no region that is more than so many times as large, if a smaller one serves.
const LARGEST: u64 = 256;

/// Bytes from which on a block is no tight fit.
pub(super) fn tight(need: u64) -> u64 {
    need.saturating_add(need / 8 + 1)
}

/// A clean block that would serve a request.
#[derive(Clone, Copy, Debug)]
pub struct Best {
    id: Id,
    size: u64,
}

impl Best {
    /// Whether it is one for [`Fit::Tight`].
    pub fn is_tight(&self, need: u64) -> bool {
        self.size < tight(need)
    }
}

impl Heap {
    /// The clean block of the best fit for a request of `need` bytes above the slabs' sizes, a multiple of 512; everything that
    /// is over has been retired.
    pub fn best(&self, need: u64) -> Option<Best> {
        self.bins.pick(self.arena, need, self.limit(need, Fit::Any)).map(|id| self.as_best(id))
    }

    /// The clean block that serves such a request if its best fit, where that is known to be `best`, is not tight.
    pub fn choice(&self, need: u64, fit: Fit, best: Option<Best>) -> Option<Best> {
        if best.is_some() && self.gauges.idle < need {
            return best;
        }
        self.choose(need, fit).map(|id| self.as_best(id))
    }

    fn as_best(&self, id: Id) -> Best {
        Best { id, size: self.arena.get(id).size() }
    }

    /// Serves the request with what was found for it, since when nothing else has happened: the address.
    pub fn take_best(&mut self, best: Best, need: u64, requested: u64) -> u64 {
        let addr = self.take_block(best.id, best.size, need, requested);
        // After that: until then it is the block's serial number.
        self.clock += 1;
        addr
    }

    /// The clean block that serves a request of `need` bytes.
    pub(super) fn choose(&self, need: u64, fit: Fit) -> Option<Id> {
        let (arena, limit) = (self.arena, self.limit(need, fit));
        if fit == Fit::Tight || self.gauges.idle < need {
            return self.bins.pick(arena, need, limit);
        }
        let close = if fit == Fit::Any { need.saturating_add(need / CLOSE + 1) } else { 0 };
        let good = |record: &Record| record.size() < close || !is_whole_region(record);
        if let Some(id) = self.bins.pick_good(arena, need, limit, good) {
            return Some(id);
        }
        if fit == Fit::Begun {
            return None;
        }
        // Hardly a hole is of this size, so the largest block is mostly an idle region.
        let largest = self.bins.pick_largest(arena, limit.min(need.saturating_mul(LARGEST)));
        largest.filter(|id| arena.get(*id).size() >= need).or_else(|| self.bins.pick(arena, need, limit))
    }
}

/// Whether a free block is all of its region.
fn is_whole_region(block: &Record) -> bool {
    block.prev() == NONE && block.next() == NONE
}
