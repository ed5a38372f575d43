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
use super::record::{Id, NONE};

/// An idle region is as good as a hole if the request takes all of it but this part.
const CLOSE: u64 = 4;
/// A request pins no region that is more than so many times as large, if a smaller one serves.
const LARGEST: u64 = 256;

/// The smallest huge request, in bytes, and as a part of what is reserved.
const HUGE: u64 = 16 << 20;
const HUGE_SHARE: u64 = 64;

/// Bytes from which on a block is no tight fit.
pub(super) fn tight(need: u64) -> u64 {
    need.saturating_add(need / 8 + 1)
}

/// A clean block that would serve a request.
#[derive(Clone, Copy, Debug)]
pub struct Best {
    pub(super) id: Id,
    pub(super) size: u64,
}

/// The clean blocks that would serve a request best: of those in regions where something else is, and of whole regions.
#[derive(Clone, Copy, Debug)]
pub struct Fits {
    hole: Option<Best>,
    whole: Option<Best>,
}

impl Fits {
    /// The one that is a tight fit: of a hole that is, no region is looked for.
    #[inline]
    pub fn tight(&self, need: u64) -> Option<Best> {
        let fits = |best: &Best| best.size < tight(need);
        self.hole.filter(fits).or(self.whole.filter(fits))
    }

    /// Whether there is none.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.hole.is_none() && self.whole.is_none()
    }

    /// The one in whose region something else is.
    pub fn begun(&self) -> Option<Best> {
        self.hole
    }
}

impl Heap {
    /// Whether a request of `need` bytes is huge: so large that what it is cut from makes a difference to how much is reserved.
    /// Few are, so for these questions, waits and trades are worth their time.
    #[inline]
    pub fn is_huge(&self, need: u64) -> bool {
        need >= HUGE && need >= self.gauges.reserved.current / HUGE_SHARE
    }

    /// The clean blocks of the best fit for a request of `need` bytes above the slabs' sizes, a multiple of 512; everything that
    /// is over has been retired.
    #[inline]
    pub fn fits(&self, need: u64, fit: Fit) -> Fits {
        let (arena, limit) = (self.arena, self.limit(need, fit));
        let best = |(id, size)| Best { id, size };
        let hole = self.holes.pick(arena, need, limit).map(best);
        // A hole that fits is not compared with regions: what they are spared is not worth a second search.
        let search = self.gauges.idle >= need && hole.is_none_or(|hole| hole.size >= tight(need));
        let whole = if search { self.wholes.pick(arena, need, limit).map(best) } else { None };
        Fits { hole, whole }
    }

    /// Which clean block serves such a request, of which `fits` is what there is with [`Fit::Any`].
    pub fn choose(&self, need: u64, fits: Fits) -> Option<Best> {
        let close = need.saturating_add(need / CLOSE + 1);
        match (fits.hole, fits.whole) {
            (Some(hole), Some(whole)) if whole.size < close.min(hole.size) => Some(whole),
            (Some(hole), _) => Some(hole),
            (None, Some(whole)) if whole.size >= close => {
                let limit = self.limit(need, Fit::Any).min(need.saturating_mul(LARGEST));
                let largest = self.wholes.pick_largest(self.arena, limit).filter(|largest| largest.1 >= need);
                Some(largest.map_or(whole, |(id, size)| Best { id, size }))
            }
            (None, whole) => whole,
        }
    }

    /// Serves the request with what was found for it, since when nothing else has happened: the address.
    pub fn take_best(&mut self, best: Best, need: u64, requested: u64) -> u64 {
        let addr = self.take_block(best.id, best.size, need, requested);
        // After that: until then it is the block's serial number.
        self.clock += 1;
        addr
    }

    /// Whether a free block is all of its region. The range is no region of this kind: it cannot go back as a whole.
    #[inline]
    pub(super) fn is_whole(&self, id: Id) -> bool {
        let block = self.arena.get(id);
        block.prev() == NONE
            && block.next() == NONE
            && self.range.as_ref().is_none_or(|range| range.slot != Some(block.region()))
    }
}
