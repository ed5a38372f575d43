//! Regions: what the driver gave, one allocation each, and the blocks that tile them.
//!
//! Blocks tile a region without gaps; `prev` and `next` of their records link them by address. A region also has a page
//! table, a record number per 2 MiB of addresses: the block that covers the page's first byte. It makes any address of a region
//! findable in a few steps, and costs a split or merge one store per 2 MiB of the smaller part.

use super::Epoch;
use super::heap::Heap;
use super::record::{Id, NONE, Record, State};
use super::runs::UNKNOWN;
use std::cell::Cell;

/// The driver's physical granularity; regions are multiples of it where the caller can choose.
pub const PAGE: u64 = 2 << 20;
/// Smallest and largest region that small requests are given.
const CHUNK_MIN: u64 = PAGE;
const CHUNK_MAX: u64 = 32 << 20;
/// Part of the reserved memory that one region for small requests may be.
const CHUNK_SHARE: u64 = 16;

/// Sizes for a new region, in bytes, multiples of 2 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// What serves this request and some of the next.
    pub preferred: u64,
    /// What serves this request.
    pub minimum: u64,
}

/// A region without a live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Its address.
    pub addr: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Allocations of the heap since its last block was freed.
    pub age: u64,
    /// The epoch after which all of it is clean; `None` when it is.
    pub pending_epoch: Option<Epoch>,
}

pub(super) struct Region {
    pub addr: u64,
    pub size: u64,
    /// The heap's expandable range: not one allocation, so it is never idle as a whole.
    pub expandable: bool,
    /// The block at its start.
    pub first: Id,
    /// Blocks that are out (live, claimed or cached), and slabs with such objects.
    pub busy: u32,
    /// Epoch of the latest free.
    pub epoch: Epoch,
    /// The heap's allocation count when the last live block was freed.
    pub idle_since: u64,
    /// Its longest run of free blocks while a block of it is live, or [`UNKNOWN`].
    pub longest_run: Cell<u64>,
    /// For every address in it that is a multiple of 2 MiB, the block that covers that byte.
    pub pages: Vec<Id>,
}

impl Region {
    /// The block to start from to find the one at `addr`, which lies in the region.
    pub fn before(&self, addr: u64) -> Id {
        let page = (addr / PAGE).checked_sub(self.addr.div_ceil(PAGE));
        page.and_then(|page| self.pages.get(page as usize)).copied().unwrap_or(self.first)
    }
}

#[derive(Default)]
pub(super) struct Regions {
    slots: Vec<Option<Region>>,
    /// Address and slot, by address.
    sorted: Vec<(u64, u32)>,
}

impl Regions {
    pub fn get(&self, slot: u32) -> Option<&Region> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, slot: u32) -> Option<&mut Region> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    fn insert(&mut self, region: Region) -> u32 {
        let addr = region.addr;
        let free = self.slots.iter().position(Option::is_none);
        let slot = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(region);
        let at = self.sorted.partition_point(|(start, _)| *start < addr);
        self.sorted.insert(at, (addr, slot as u32));
        slot as u32
    }

    fn remove(&mut self, slot: u32) -> Option<Region> {
        let region = self.slots.get_mut(slot as usize)?.take()?;
        self.sorted.retain(|(_, other)| *other != slot);
        Some(region)
    }

    /// The slot of the region that covers `addr`.
    pub fn slot_of(&self, addr: u64) -> Option<u32> {
        let after = self.sorted.partition_point(|(start, _)| *start <= addr);
        let (start, slot) = *self.sorted.get(after.checked_sub(1)?)?;
        (addr - start < self.get(slot)?.size).then_some(slot)
    }

    /// All regions by address.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Region)> {
        self.sorted.iter().filter_map(|(_, slot)| Some((*slot, self.get(*slot)?)))
    }
}

impl Heap {
    /// How large a region to ask the driver for, for a request of `rounded` bytes that the heap cannot serve.
    ///
    /// Large requests get a region of their own size: then a region empties when its block is freed, and can go back.
    /// Requests much below share regions that grow with what is reserved, so that a small program stays small and a
    /// large one makes few driver calls.
    pub fn growth(&self, rounded: u64) -> Growth {
        let minimum = rounded.max(1).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX / PAGE * PAGE);
        let mut chunk = (self.gauges.reserved.current / CHUNK_SHARE).clamp(CHUNK_MIN, CHUNK_MAX);
        if rounded < self.rules.max_split {
            // A block of `max_split` or more is closed to smaller requests.
            chunk = chunk.min(self.rules.max_split.saturating_sub(1));
        }
        // As many such blocks as a chunk holds, and no rest: near a cap the rests would be what is missing.
        Growth { preferred: minimum.saturating_mul((chunk / minimum).max(1)), minimum }
    }

    /// Adds memory that the driver gave. False, and nothing changed, when `addr` or `size` is not a multiple of 512 B, lies
    /// beyond 49 bits or overlaps a known region, or when the records are exhausted: then the memory cannot be pooled.
    #[must_use]
    pub fn add_region(&mut self, addr: u64, size: u64) -> bool {
        let Some(id) = self.insert_region(addr, size, false) else { return false };
        self.bin(id);
        true
    }

    /// The same for memory that the GPU may still use: all of it is pending under `epoch`. For a region that was taken
    /// out with [`take_region`](Heap::take_region) and that the driver then would not take back.
    #[must_use]
    pub fn add_region_pending(&mut self, addr: u64, size: u64, epoch: Epoch) -> bool {
        let Some(id) = self.insert_region(addr, size, false) else { return false };
        if let Some(region) = self.regions.get_mut(self.arena.get(id).region()) {
            region.epoch = epoch;
        }
        self.release_block(id, epoch);
        true
    }

    /// A region of one free block, which is in no list yet.
    pub(super) fn insert_region(&mut self, addr: u64, size: u64, expandable: bool) -> Option<Id> {
        if addr.checked_add(size).is_none()
            || !addr.is_multiple_of(super::GRANULE)
            || !size.is_multiple_of(super::GRANULE)
        {
            return None;
        }
        let id = self.new_record()?;
        if !self.index.add_region(addr, size, self.owner) {
            self.spare_record(id);
            return None;
        }
        let region = Region {
            addr,
            size,
            expandable,
            first: id,
            busy: 0,
            epoch: 0,
            idle_since: self.clock,
            longest_run: Cell::new(UNKNOWN),
            pages: vec![id; ((addr + size).div_ceil(PAGE) - addr.div_ceil(PAGE)) as usize],
        };
        let slot = self.regions.insert(region);
        let record = self.arena.get(id);
        record.set_word(addr, State::Clean);
        record.set_size(size);
        record.set_prev(NONE);
        record.set_next(NONE);
        record.set_region(slot);
        if !expandable {
            self.gauges.reserved.add(size);
            self.gauges.idle += size;
        }
        let (begin, _) = self.lived.unwrap_or_else(|| (self.index.moment(), 0));
        self.lived = Some((begin, u64::MAX));
        Some(id)
    }

    /// Appends the regions without a live block, by address. A slab without live objects does not keep a region busy.
    pub fn idle_regions(&self, out: &mut Vec<Idle>) {
        out.extend(self.regions.iter().filter(|(_, region)| region.busy == 0 && !region.expandable).map(
            |(_, region)| Idle {
                addr: region.addr,
                size: region.size,
                age: self.clock - region.idle_since,
                pending_epoch: (region.epoch > self.retired).then_some(region.epoch),
            },
        ));
    }

    /// Removes the region at `addr`, so that the caller can give it to the driver, and returns its size in bytes.
    /// `None`, and nothing changed, when it has a live block or is not a region. Memory still pending goes too: whoever
    /// gives it to the driver must see to it that its epoch is over, as cuMemFree does by waiting.
    pub fn take_region(&mut self, addr: u64) -> Option<u64> {
        let slot = self.regions.slot_of(addr)?;
        let region = self.regions.get(slot)?;
        if region.addr != addr || region.busy != 0 || region.expandable {
            return None;
        }
        self.forget_region(slot)
    }

    /// Removes a region whatever lives in it.
    pub(super) fn forget_region(&mut self, slot: u32) -> Option<u64> {
        let region = self.regions.remove(slot)?;
        let mut id = region.first;
        while id != NONE {
            let record = self.arena.get(id);
            let (next, size) = (record.next(), record.size());
            match record.state() {
                State::Clean => self.unbin(id),
                State::Pending => self.unqueue(id),
                State::Slab => self.dissolve(id),
                State::Live | State::Claimed => self.gauges.lose(size, record.requested()),
                State::Cached | State::Unused | State::Gap => {}
            }
            self.spare_record(id);
            id = next;
        }
        self.index.remove_region(region.addr);
        if region.expandable {
            return Some(region.size);
        }
        if region.busy == 0 {
            self.gauges.idle -= region.size;
        }
        self.gauges.reserved.sub(region.size);
        Some(region.size)
    }

    /// Free memory of the region has come or gone other than by a block that becomes live or is freed.
    pub(super) fn runs_changed(&self, slot: u32) {
        if let Some(region) = self.regions.get(slot) {
            region.longest_run.set(UNKNOWN);
        }
    }

    /// Counts a block or slab of the region as live, or no longer.
    pub(super) fn occupy(&mut self, slot: u32) {
        let Some(region) = self.regions.get_mut(slot) else { return };
        region.busy += 1;
        region.longest_run.set(UNKNOWN);
        if region.busy == 1 && !region.expandable {
            self.gauges.idle -= region.size;
        }
    }

    pub(super) fn vacate(&mut self, slot: u32, epoch: Epoch) {
        let clock = self.clock;
        let Some(region) = self.regions.get_mut(slot) else { return };
        region.epoch = region.epoch.max(epoch);
        region.busy -= 1;
        region.longest_run.set(UNKNOWN);
        if region.busy == 0 && !region.expandable {
            region.idle_since = clock;
            self.gauges.idle += region.size;
        }
    }

    /// Cuts the clean block `id`, which is in no bin, after `front` bytes. Returns the two parts, in no bin either;
    /// `None` when the records are exhausted.
    pub(super) fn split(&mut self, id: Id, front: u64) -> Option<(Id, Id)> {
        let new = self.new_record()?;
        let arena = self.arena;
        let (old_record, record) = (arena.get(id), arena.get(new));
        let (addr, size, slot) = (old_record.addr(), old_record.size(), old_record.region());
        let back = size - front;
        record.set_region(slot);
        // The larger part keeps the record, so that few pages change hands.
        let low = front <= back;
        if low {
            let prev = old_record.prev();
            record.set_word(addr, State::Clean);
            record.set_size(front);
            record.set_prev(prev);
            record.set_next(id);
            old_record.set_word(addr + front, State::Clean);
            old_record.set_size(back);
            old_record.set_prev(new);
            if prev == NONE {
                self.set_first(slot, new);
            } else {
                arena.get(prev).set_next(new);
            }
        } else {
            let next = old_record.next();
            record.set_word(addr + front, State::Clean);
            record.set_size(back);
            record.set_prev(id);
            record.set_next(next);
            old_record.set_size(front);
            old_record.set_next(new);
            if next != NONE {
                arena.get(next).set_prev(new);
            }
        }
        self.set_pages(new);
        Some(if low { (new, id) } else { (id, new) })
    }

    /// Joins two clean neighbours that are in no bin into one.
    pub(super) fn merge(&mut self, low: Id, high: Id) -> Id {
        let arena = self.arena;
        let (low_record, high_record) = (arena.get(low), arena.get(high));
        let (addr, slot) = (low_record.addr(), low_record.region());
        let (front, back) = (low_record.size(), high_record.size());
        let (kept, gone) = if front >= back { (low, high) } else { (high, low) };
        // Before the survivor covers them both: only the pages of the smaller part change hands.
        self.hand_pages(gone, kept);
        let arena = self.arena;
        if kept == low {
            let next = high_record.next();
            low_record.set_next(next);
            if next != NONE {
                arena.get(next).set_prev(low);
            }
        } else {
            let prev = low_record.prev();
            high_record.set_prev(prev);
            if prev == NONE {
                self.set_first(slot, high);
            } else {
                arena.get(prev).set_next(high);
            }
        }
        let record = self.arena.get(kept);
        record.set_word(addr, State::Clean);
        record.set_size(front + back);
        self.spare_record(gone);
        kept
    }

    fn set_first(&mut self, slot: u32, id: Id) {
        if let Some(region) = self.regions.get_mut(slot) {
            region.first = id;
        }
    }

    fn set_pages(&mut self, id: Id) {
        self.hand_pages(id, id);
    }

    /// The pages whose first byte the block `from` covers now name `to`.
    #[inline]
    fn hand_pages(&mut self, from: Id, to: Id) {
        let record = self.arena.get(from);
        let addr = record.addr();
        let (first, end) = (addr.div_ceil(PAGE), (addr + record.size()).div_ceil(PAGE));
        if first < end {
            self.fill_pages(record, first, end, to);
        }
    }

    fn fill_pages(&mut self, record: &Record, first: u64, end: u64, to: Id) {
        let Some(region) = self.regions.get_mut(record.region()) else { return };
        let base = region.addr.div_ceil(PAGE);
        region.pages[(first - base) as usize..(end - base) as usize].fill(to);
    }
}
