//! What waiting would bring: the epoch whose end lets a request be served.

use super::classes::{SMALL_MAX, class_of};
use super::heap::Heap;
use super::record::{Id, NONE, State};
use super::{Epoch, GRANULE};

/// Pending blocks that are looked at, before the runs of the regions are.
const SCAN: usize = 16;

impl Heap {
    /// The smallest epoch after whose end, and [`retire`](Heap::retire), [`alloc`](Heap::alloc) with
    /// [`Fit::Any`](super::Fit::Any) serves `rounded` bytes. `None` when the end of no epoch would; the kept empty slabs
    /// count only after [`flush_slabs`](Heap::flush_slabs). O(pending blocks × log epochs) where only joined
    /// blocks serve; mostly a few steps.
    pub fn epoch_needed(&self, rounded: u64) -> Option<Epoch> {
        let need = rounded.max(1).checked_next_multiple_of(GRANULE)?;
        let object = if need <= SMALL_MAX { self.object_epoch(class_of(need)) } else { None };
        let block = self.block_epoch(need);
        match (object, block) {
            (Some(object), Some(block)) => Some(object.min(block)),
            (one, other) => one.or(other),
        }
    }

    fn block_epoch(&self, need: u64) -> Option<Epoch> {
        let arena = self.arena;
        let (first, last) = self.queue;
        if last == NONE || self.gauges.pending + self.gauges.clean < need {
            return None;
        }
        let mut alone = self.first_alone(need, SCAN);
        if alone.is_none() {
            // The regions remember their longest runs: that mostly spares a walk over everything that is pending. Of a range
            // they would have to be looked for in all of its blocks, which are more than those.
            if self.range.is_none() && self.largest_free() < need {
                return None;
            }
            alone = self.first_alone(need, usize::MAX);
        }
        let (mut low, mut high) = (arena.get(first).epoch(), arena.get(last).epoch());
        // Mostly a block that is large enough by itself answers, and then nothing freed after it is looked at. Under
        // `max_split` it may be the joining that puts it out of reach, so that has the last word.
        if let Some(alone) = alone.filter(|&epoch| self.would_serve(epoch, need)) {
            high = alone;
        } else if !self.would_serve(high, need) {
            return None;
        }
        // Serving is monotone in the epoch but for `max_split`, where joined blocks may grow out of reach: then the answer
        // is an epoch that serves, if not always the first.
        while low < high {
            let middle = low + (high - low) / 2;
            if self.would_serve(middle, need) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(high)
    }

    /// Epoch of the oldest pending block that serves `need` without its neighbours, if it is among the oldest `scan`.
    fn first_alone(&self, need: u64, scan: usize) -> Option<Epoch> {
        let arena = self.arena;
        let mut id = self.queue.0;
        for _ in 0..scan {
            if id == NONE {
                break;
            }
            let record = arena.get(id);
            if self.serves(record.size(), need) {
                return Some(record.epoch());
            }
            id = record.right();
        }
        None
    }

    /// Whether the end of `epoch` would make a clean block that serves `need`.
    fn would_serve(&self, epoch: Epoch, need: u64) -> bool {
        let arena = self.arena;
        let mut id = self.queue.0;
        while id != NONE {
            let record = arena.get(id);
            if record.epoch() > epoch {
                return false;
            }
            if let Some(size) = self.joined(id, epoch)
                && self.serves(size, need)
            {
                return true;
            }
            id = record.right();
        }
        false
    }

    /// Bytes of the free run that pending block `id` would be in after `epoch`; `None` unless it is the run's lowest
    /// pending block, so that every run is summed once.
    fn joined(&self, id: Id, epoch: Epoch) -> Option<u64> {
        let arena = self.arena;
        let freed = |id: Id| {
            let record = arena.get(id);
            match record.state() {
                State::Clean => Some((record.size(), false)),
                State::Pending if record.epoch() <= epoch => Some((record.size(), true)),
                _ => None,
            }
        };
        let mut size = arena.get(id).size();
        let mut below = arena.get(id).prev();
        while below != NONE
            && let Some((bytes, pending)) = freed(below)
        {
            if pending {
                return None;
            }
            size += bytes;
            below = arena.get(below).prev();
        }
        let mut above = arena.get(id).next();
        while above != NONE
            && let Some((bytes, _)) = freed(above)
        {
            size += bytes;
            above = arena.get(above).next();
        }
        Some(size)
    }
}
