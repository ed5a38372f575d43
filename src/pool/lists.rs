//! The lists of slabs: for each class, the slabs with room by how full they are.
//!
//! Doubly linked through the slabs' slots, so that a slab changes its list in a few steps whenever an object comes or
//! goes.

use super::heap::Heap;
use super::slab::Slab;

/// Slabs are listed by how full they are, in quarters.
pub(super) const QUARTERS: usize = 4;
/// No slab.
pub(super) const NO_SLAB: u32 = u32::MAX;

/// The slabs of one class.
pub(super) struct SlabLists {
    /// First and last slab of each quarter that has room.
    pub ends: [(u32, u32); QUARTERS],
    /// The one slab that may be empty.
    pub kept: u32,
}

impl SlabLists {
    pub const EMPTY: SlabLists = SlabLists { ends: [(NO_SLAB, NO_SLAB); QUARTERS], kept: NO_SLAB };
}

impl Slab {
    /// The list that it belongs in.
    pub fn quarter(&self) -> usize {
        (self.live as usize * QUARTERS) / self.capacity as usize
    }
}

impl Heap {
    /// Moves a slab whose fullness changed to the list that it belongs to.
    pub(super) fn relist(&mut self, slot: u32) {
        let slab = &self.slabs[slot as usize];
        if slab.quarter != slab.quarter() {
            self.unlist(slot);
            self.list(slot);
        }
    }

    /// Puts a slab at the end of the list that it belongs to.
    pub(super) fn list(&mut self, slot: u32) {
        let slab = &mut self.slabs[slot as usize];
        slab.quarter = slab.quarter();
        slab.right = NO_SLAB;
        slab.left = NO_SLAB;
        if slab.quarter == QUARTERS {
            return;
        }
        let ends = &mut self.lists[slab.class].ends[slab.quarter];
        let last = ends.1;
        slab.left = last;
        ends.1 = slot;
        if last == NO_SLAB {
            ends.0 = slot;
        } else {
            self.slabs[last as usize].right = slot;
        }
    }

    /// Takes a slab out of its list.
    pub(super) fn unlist(&mut self, slot: u32) {
        let slab = &self.slabs[slot as usize];
        let (number, quarter, left, right) = (slab.class, slab.quarter, slab.left, slab.right);
        if quarter == QUARTERS {
            return;
        }
        let ends = &mut self.lists[number].ends[quarter];
        if left == NO_SLAB {
            ends.0 = right;
        } else {
            self.slabs[left as usize].right = right;
        }
        if right == NO_SLAB {
            self.lists[number].ends[quarter].1 = left;
        } else {
            self.slabs[right as usize].left = left;
        }
        self.slabs[slot as usize].quarter = QUARTERS;
    }

    /// The slabs of a class that are listed under a quarter.
    pub(super) fn slabs_of(&self, number: usize, quarter: usize) -> impl Iterator<Item = u32> {
        let listed = |slot: u32| (slot != NO_SLAB).then_some(slot);
        let first = listed(self.lists[number].ends[quarter].0);
        std::iter::successors(first, move |&slot| listed(self.slabs[slot as usize].right))
    }
}
