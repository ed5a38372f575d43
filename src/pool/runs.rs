//! How much free memory lies in one piece: the figure that reports judge fragmentation by.
//!
//! Pending memory counts like clean memory: it only waits for the end of work that has been submitted, and a report is
//! about what lies where. Each region remembers its longest run until a block in it comes or goes, so that asking at
//! every growth of a large heap looks at what has changed since, and not at everything.

use super::classes::{CLASSES, class};
use super::heap::Heap;
use super::lists::NO_SLAB;
use super::record::{NONE, State};
use super::region::Region;

/// In the place of a region's longest run: look again.
pub(super) const UNKNOWN: u64 = u64::MAX;

impl Heap {
    /// Bytes of the largest piece of free memory: neighbouring free blocks of one region, pending or clean, with slabs
    /// that hold no live object; or the largest free object of the other slabs, where that is more. O(regions, and the
    /// blocks of those that have changed).
    pub fn largest_free(&self) -> u64 {
        let runs = self.regions.iter().map(|(_, region)| self.longest_run(region));
        runs.max().unwrap_or(0).max(self.largest_object())
    }

    fn longest_run(&self, region: &Region) -> u64 {
        if region.busy == 0 && !region.expandable {
            return region.size;
        }
        if region.longest_run.get() == UNKNOWN {
            region.longest_run.set(self.walk(region));
        }
        region.longest_run.get()
    }

    /// Whether what is remembered of the region is what a walk finds; for checks.
    pub(super) fn remembers_its_runs(&self, region: &Region) -> bool {
        [UNKNOWN, self.walk(region)].contains(&region.longest_run.get())
    }

    fn walk(&self, region: &Region) -> u64 {
        let arena = self.arena;
        let (mut longest, mut run, mut id) = (0, 0, region.first);
        while id != NONE {
            let record = arena.get(id);
            let free = match record.state() {
                State::Clean | State::Pending => true,
                State::Slab => self.slabs[(record.tag() >> 8) as usize].live == 0,
                State::Unused | State::Live | State::Claimed | State::Cached | State::Gap => false,
            };
            run = if free { run + record.size() } else { 0 };
            longest = longest.max(run);
            id = record.next();
        }
        longest
    }

    /// Size of the largest class of which a slab has room.
    fn largest_object(&self) -> u64 {
        let has_room = |number: &usize| self.lists[*number].ends.iter().any(|ends| ends.0 != NO_SLAB);
        (0..CLASSES).rev().find(has_room).map_or(0, |number| u64::from(class(number).size))
    }
}
