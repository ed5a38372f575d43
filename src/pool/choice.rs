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

impl Heap {
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
        // Holes of this size there are none, so the largest block is an idle region.
        let largest = self.bins.pick_largest(arena, limit.min(need.saturating_mul(LARGEST)));
        largest.filter(|id| arena.get(*id).size() >= need).or_else(|| self.bins.pick(arena, need, limit))
    }
}

/// Whether a free block is all of its region.
fn is_whole_region(block: &Record) -> bool {
    block.prev() == NONE && block.next() == NONE
}
