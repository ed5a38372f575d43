//! Every invariant of the heap, as one walk over everything. For tests.

use std::collections::HashSet;

use super::GRANULE;
use super::caches::Caches;
use super::classes::{CELL, SMALL_MAX, class};
use super::heap::{Heap, OBJECT};
use super::lists::{NO_SLAB, QUARTERS};
use super::record::{Id, NONE, Record, State};
use super::region::{PAGE, Region};
use super::slab::Slab;

macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}

/// What the walk adds up, to be held against the gauges.
#[derive(Default, Debug, PartialEq, Eq)]
struct Sums {
    requested: u64,
    allocated: u64,
    reserved: u64,
    pending: u64,
    clean: u64,
    slabs: u64,
    objects: u64,
    idle: u64,
    live_blocks: u64,
    /// Of the blocks that caches have, those that the walk has not met yet.
    cached: HashSet<Id>,
}

impl Heap {
    /// Walks everything and names the first invariant that does not hold. O(blocks); for tests.
    ///
    /// # Errors
    /// A text that says which invariant is broken, and where.
    pub fn check(&self) -> Result<(), String> {
        self.check_with(None)
    }

    /// The same for a heap with caches, while no thread uses them.
    ///
    /// # Errors
    /// As [`Heap::check`].
    pub fn check_with(&self, caches: Option<&Caches>) -> Result<(), String> {
        let arena = self.arena;
        let mut sums = Sums::default();
        let held = caches.map(Caches::held).unwrap_or_default();
        sums.cached = held.iter().copied().collect();
        ensure!(sums.cached.len() == held.len(), "a block is cached twice: {held:?}");
        let mut clean = HashSet::new();
        let mut pending = HashSet::new();
        let mut slabs = 0;
        for (slot, region) in self.regions.iter() {
            let mut gaps = Vec::new();
            let (mut busy, mut at, mut before, mut id) = (0, region.addr, NONE, region.first);
            while id != NONE {
                let record = arena.get(id);
                let (addr, state) = record.word();
                ensure!(addr == at, "block {id} at {addr:#x} where {at:#x} is next");
                self.check_record(id, before, slot)?;
                match state {
                    State::Clean => {
                        let joined = before == NONE || arena.get(before).state() != State::Clean;
                        ensure!(joined, "clean blocks {before} and {id} are not joined");
                        sums.clean += record.size();
                        clean.insert(id);
                    }
                    State::Pending => {
                        ensure!(
                            record.epoch() > self.retired,
                            "block {id} is pending though its epoch is over"
                        );
                        ensure!(
                            record.epoch() <= region.epoch,
                            "block {id} is newer than its region's epoch"
                        );
                        sums.pending += record.size();
                        pending.insert(id);
                    }
                    State::Live | State::Claimed => {
                        let indexed = record.size() <= SMALL_MAX || self.index.at(addr) == id;
                        ensure!(indexed, "block {id} is not in the index");
                        busy += 1;
                        sums.live(record.size(), record.requested());
                    }
                    State::Cached => {
                        busy += 1;
                        ensure!(sums.cached.remove(&id), "block {id} is cached, and no cache has it");
                    }
                    State::Slab => {
                        let slab = &self.slabs[(record.tag() >> 8) as usize];
                        ensure!(
                            slab.block == id && slab.first == record.first(),
                            "slab {id} and its entry disagree"
                        );
                        slabs += 1;
                        busy += u32::from(slab.live > 0);
                        sums.slabs += record.size();
                        self.check_slab(record.tag() >> 8, slab, region, &mut sums)?;
                    }
                    State::Gap => {
                        ensure!(region.expandable, "block {id} is a gap in a segment");
                        gaps.push((addr, record.size()));
                    }
                    State::Unused => return Err(format!("block {id} is unused")),
                }
                self.check_pages(id, region)?;
                at += record.size();
                before = id;
                id = record.next();
            }
            ensure!(
                at == region.addr + region.size,
                "blocks end at {at:#x} in the region at {:#x}",
                region.addr
            );
            ensure!(self.remembers_its_runs(region), "the region at {:#x} has other free runs", region.addr);
            ensure!(busy == region.busy, "{busy} busy blocks where {} are counted", region.busy);
            if region.expandable {
                sums.reserved += self.check_range(slot, region, &gaps)?;
            } else {
                sums.reserved += region.size;
                sums.idle += if busy == 0 { region.size } else { 0 };
            }
        }
        if let Some(range) = self.range.as_ref().filter(|range| range.slot.is_none()) {
            sums.reserved += range.detached;
        }
        for (bins, wholes) in [(&self.holes, false), (&self.wholes, true)] {
            for (id, placed) in bins.all(arena) {
                ensure!(placed, "block {id} is in the wrong bin, or its bin is not marked");
                ensure!(self.is_whole(id) == wholes, "block {id} is among the whole regions: {wholes}");
                ensure!(clean.remove(&id), "block {id} is in a bin and not clean, or twice");
            }
        }
        ensure!(clean.is_empty(), "clean blocks {clean:?} are in no bin");
        self.check_queue(&mut pending)?;
        let filled = self.slabs.iter().filter(|slab| slab.block != NONE).count();
        ensure!(slabs == filled, "{slabs} slabs where {filled} are listed");
        ensure!(sums.cached.is_empty(), "caches have {:?}, which are not cached blocks", sums.cached);
        let counted = self.counted(caches);
        ensure!(sums == counted, "found {sums:?}, counted {counted:?}");
        Ok(())
    }

    fn check_record(&self, id: Id, before: Id, slot: u32) -> Result<(), String> {
        let record = self.arena.get(id);
        ensure!(record.prev() == before, "block {id} does not know the one below it");
        ensure!(record.region() == slot, "block {id} names another region");
        ensure!(record.owner() == self.owner, "block {id} names another heap");
        let size = record.size();
        ensure!(size > 0 && size.is_multiple_of(GRANULE), "block {id} has {size} bytes");
        Ok(())
    }

    /// What the books say, with what the caches have counted.
    fn counted(&self, caches: Option<&Caches>) -> Sums {
        let gauges = &self.gauges;
        let mut usage = self.usage();
        if let Some(caches) = caches {
            caches.add_to(&mut usage);
        }
        Sums {
            requested: usage.requested.current,
            allocated: usage.allocated.current,
            reserved: gauges.reserved.current,
            pending: gauges.pending,
            clean: gauges.clean,
            slabs: gauges.slabs,
            objects: gauges.objects,
            idle: gauges.idle,
            live_blocks: usage.live_blocks,
            cached: HashSet::new(),
        }
    }

    /// The range's own books against its blocks; returns the bytes of its handles.
    fn check_range(&self, slot: u32, region: &Region, gaps: &[(u64, u64)]) -> Result<u64, String> {
        let Some(range) = &self.range else { return Err("a range's region without a range".to_owned()) };
        ensure!(range.slot == Some(slot) && range.base == region.addr, "the range has another region");
        ensure!(region.addr + region.size <= range.end, "the region is larger than the range");
        let listed: Vec<(u64, u64)> = range.gaps.iter().map(|(addr, size)| (*addr, *size)).collect();
        ensure!(listed == gaps, "gaps {gaps:x?} where {listed:x?} are listed");
        for pair in gaps.windows(2) {
            ensure!(
                pair[0].0 + pair[0].1 < pair[1].0,
                "gaps at {:#x} and {:#x} are not joined",
                pair[0].0,
                pair[1].0
            );
        }
        let last =
            gaps.last().is_some_and(|gap| gap.0 + gap.1 == region.addr + region.size && gap.0 > region.addr);
        ensure!(!last, "the region ends with a gap");
        // Pieces and gaps tile the region.
        let mut tiles: Vec<(u64, u64)> =
            range.pieces.iter().map(|(addr, (size, _))| (*addr, *size)).collect();
        let mapped: u64 = tiles.iter().map(|(_, size)| size).sum();
        tiles.extend(gaps);
        tiles.sort_unstable();
        let mut at = region.addr;
        for (addr, size) in tiles {
            ensure!(
                addr == at && size > 0 && size.is_multiple_of(PAGE),
                "a piece or gap at {addr:#x}, not {at:#x}"
            );
            at += size;
        }
        ensure!(at == region.addr + region.size, "pieces and gaps end at {at:#x}");
        ensure!(mapped == range.mapped, "{mapped} bytes mapped where {} are counted", range.mapped);
        ensure!(range.used.len() as u64 == region.size / PAGE, "{} pages have epochs", range.used.len());
        let kept: u64 = range.loose.iter().chain(&range.stuck).map(|piece| piece.size).sum();
        ensure!(kept <= range.detached, "{kept} bytes are kept where {} are loose", range.detached);
        Ok(mapped + range.detached)
    }

    fn check_pages(&self, id: Id, region: &Region) -> Result<(), String> {
        let record = self.arena.get(id);
        let (first, end) = (record.addr().div_ceil(PAGE), record.end().div_ceil(PAGE));
        for page in first..end {
            let named = region.pages[(page - region.addr.div_ceil(PAGE)) as usize];
            ensure!(named == id, "page {page} of {:#x} names {named} and not {id}", region.addr);
        }
        Ok(())
    }

    fn check_queue(&self, pending: &mut HashSet<Id>) -> Result<(), String> {
        let arena = self.arena;
        let (mut before, mut id, mut epoch) = (NONE, self.queue.0, 0);
        while id != NONE {
            let record = arena.get(id);
            ensure!(pending.remove(&id), "block {id} is queued and not pending, or twice");
            ensure!(record.left() == before, "block {id} does not know the one before it in the queue");
            ensure!(record.epoch() >= epoch, "the queue is out of order at {id}");
            epoch = record.epoch();
            before = id;
            id = record.right();
        }
        ensure!(self.queue.1 == before, "the queue's last block is wrong");
        ensure!(pending.is_empty(), "pending blocks {pending:?} are not queued");
        let slabs = self.slabs.iter().filter(|slab| slab.block != NONE);
        let objects = slabs.flat_map(|slab| slab.first..slab.first + slab.fresh).map(|id| arena.get(id));
        let freed = objects.filter(|object| object.state() == State::Pending).map(Record::epoch).max();
        let (newest, told) = (epoch.max(freed.unwrap_or(0)), self.newest_pending());
        ensure!(
            newest <= told.unwrap_or(self.retired),
            "epoch {newest} is pending, and the newest is said to be {told:?}"
        );
        Ok(())
    }

    fn check_slab(&self, slot: u32, slab: &Slab, region: &Region, sums: &mut Sums) -> Result<(), String> {
        let arena = self.arena;
        let block = arena.get(slab.block);
        let size = u64::from(class(slab.class).size);
        ensure!(block.addr().is_multiple_of(CELL), "slab {slot} is not aligned");
        ensure!(block.tag() & 255 == slab.class as u32, "slab {slot} has two classes");
        ensure!(u64::from(slab.capacity) == block.size() / size, "slab {slot} has a wrong capacity");
        for cell in (block.addr()..block.end()).step_by(CELL as usize) {
            ensure!(self.index.at(cell) == slab.block, "slab {slot} is not indexed at {cell:#x}");
        }
        let mut free = HashSet::new();
        let mut live = 0;
        for number in 0..slab.fresh {
            let id = slab.first + number;
            let record = arena.get(id);
            let (addr, state) = record.word();
            ensure!(addr == block.addr() + u64::from(number) * size, "object {id} is at {addr:#x}");
            ensure!(
                record.region() == OBJECT && record.prev() == slab.block,
                "object {id} is not its slab's"
            );
            ensure!(
                record.size() == size && record.owner() == self.owner,
                "object {id} has a wrong size or owner"
            );
            match state {
                State::Live | State::Claimed => {
                    live += 1;
                    sums.live(size, record.requested());
                    sums.objects += size;
                }
                State::Cached => {
                    live += 1;
                    sums.objects += size;
                    ensure!(sums.cached.remove(&id), "object {id} is cached, and no cache has it");
                }
                State::Pending => {
                    ensure!(record.epoch() <= slab.epoch, "object {id} is newer than its slab's epoch");
                    ensure!(
                        record.epoch() <= region.epoch || slab.live > 0,
                        "object {id} is newer than its region's epoch"
                    );
                    free.insert(id);
                }
                other => return Err(format!("object {id} is {other:?}")),
            }
        }
        ensure!(live == slab.live, "slab {slot} has {live} live objects and counts {}", slab.live);
        let kept = self.lists[slab.class].kept == slot;
        ensure!(kept == (live == 0), "slab {slot} has {live} live objects and kept is {kept}");
        let (mut id, mut last) = (slab.head, NONE);
        while id != NONE {
            ensure!(free.remove(&id), "object {id} is queued and not free, or twice");
            last = id;
            id = arena.get(id).right();
        }
        ensure!(free.is_empty() && last == slab.tail, "objects {free:?} of slab {slot} are not queued");
        ensure!(self.is_listed(slot), "slab {slot} is in the wrong list");
        Ok(())
    }

    /// Whether a slab is where its fullness puts it, and the kept slab of its class is a slab.
    fn is_listed(&self, slot: u32) -> bool {
        let slab = &self.slabs[slot as usize];
        let kept = self.lists[slab.class].kept;
        let expected = if slab.live < slab.capacity { Some(slab.quarter()) } else { None };
        let mut found = None;
        for quarter in 0..QUARTERS {
            if self.slabs_of(slab.class, quarter).any(|other| other == slot) {
                found = Some(quarter);
            }
        }
        found == expected && (kept == NO_SLAB || self.slabs[kept as usize].block != NONE)
    }
}

impl Sums {
    fn live(&mut self, size: u64, requested: u64) {
        self.requested += requested;
        self.allocated += size;
        self.live_blocks += 1;
    }
}
