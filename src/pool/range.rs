//! The expandable range: one stretch of reserved addresses whose memory comes and goes piece by piece.
//!
//! Where a segment is one allocation of the driver's, the range is a reservation of addresses of which **pieces** are
//! backed by physical memory, one driver handle each. To the heap it is one region that grows at its end, tiled by
//! blocks like any other; what is not backed is a block in state [`State::Gap`], which is in no list and serves nobody:
//!
//! ```text
//!  reserved addresses
//!  ├──────────────────────────────────────────────────────────────────────────── … ──┤
//!  │ live │ clean │ gap │ live │ clean            │ live │                            blocks
//!  ├────────┬─────┤     ├────────┬────────┬───────┬──────┤                            pieces
//!                 └ its piece was free, and now backs memory elsewhere                └ the region's end
//! ```
//!
//! A free piece can be taken out of a hole and mapped where it is needed, so that all free memory is usable memory. The
//! layers: this file keeps the books over addresses as numbers, `room.rs` chooses where to map and what to take,
//! `driver/backing.rs` makes the calls, and each of its failures ends in one of the states below.
//!
//! | a handle is | counted as | its addresses |
//! |---|---|---|
//! | **attached** | reserved, mapped | blocks |
//! | **loose**: taken out or made, and mapped nowhere | reserved, loose | gap, or none |
//! | **stuck**: mapped, but the driver failed to make it accessible and then to unmap it | reserved, loose | gap that is not mapped over |
//!
//! **When a piece may go.** Unmapping does not wait for the GPU. A clean block may be clean because later work was ordered
//! after what still uses it: good enough to be handed out, not to be unmapped. So the range knows for every page the
//! newest epoch under which memory in it was freed, and a piece may go only when that epoch has *completed*.

use std::collections::BTreeMap;

use super::Epoch;
use super::heap::{Heap, Rules};
use super::record::{Id, NONE, State};
use super::region::PAGE;

/// Physical memory behind a stretch of the range: one handle of the driver's. Sizes are multiples of 2 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it is or was mapped; 0 for one that never was.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
    /// The driver's handle.
    pub handle: u64,
}

/// What the books of a range say, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeUsage {
    /// From its start to the end of what is mapped.
    pub spanned: u64,
    /// Mapped and accessible.
    pub mapped: u64,
    /// Physical memory that is mapped nowhere.
    pub loose: u64,
    /// Number of handles that are mapped.
    pub pieces: u64,
}

pub(super) struct Range {
    pub base: u64,
    /// End of the reserved addresses.
    pub end: u64,
    /// The region, once anything has been mapped.
    pub slot: Option<u32>,
    /// Attached pieces by address: size and handle.
    pub pieces: BTreeMap<u64, (u64, u64)>,
    /// Gaps of the region by address.
    pub gaps: BTreeMap<u64, u64>,
    /// For every page the newest epoch of a free in it.
    pub used: Vec<Epoch>,
    /// Bytes of the attached pieces.
    pub mapped: u64,
    /// Bytes of handles that are not attached.
    pub detached: u64,
    pub loose: Vec<Piece>,
    pub stuck: Vec<Piece>,
    /// The heap's rules before.
    rules: Rules,
}

impl Range {
    /// Numbers of the first page of `addr..addr + size` and of the one after the last.
    pub fn pages(&self, addr: u64, size: u64) -> (usize, usize) {
        (((addr - self.base) / PAGE) as usize, (addr + size - self.base).div_ceil(PAGE) as usize)
    }
}

impl Heap {
    /// Makes `size` reserved addresses from `base` on the heap's range, both multiples of 2 MiB. The limits on splitting end
    /// with it: they keep segments whole, and the range has none.
    pub fn set_range(&mut self, base: u64, size: u64) {
        debug_assert!(base.is_multiple_of(PAGE) && size.is_multiple_of(PAGE) && self.range.is_none());
        let rules = std::mem::take(&mut self.rules);
        self.range = Some(Box::new(Range {
            base,
            end: base + size,
            slot: None,
            pieces: BTreeMap::new(),
            gaps: BTreeMap::new(),
            used: Vec::new(),
            mapped: 0,
            detached: 0,
            loose: Vec::new(),
            stuck: Vec::new(),
            rules,
        }));
    }

    /// Lets the range end earlier, for a test of what happens then.
    #[cfg(test)]
    pub fn shorten_range(&mut self, end: u64) {
        if let Some(range) = &mut self.range {
            range.end = end;
        }
    }

    /// The range's reserved addresses: start and size.
    pub fn range(&self) -> Option<(u64, u64)> {
        self.range.as_ref().map(|range| (range.base, range.end - range.base))
    }

    /// What the range holds.
    pub fn range_usage(&self) -> RangeUsage {
        let Some(range) = &self.range else { return RangeUsage::default() };
        RangeUsage {
            spanned: range.slot.and_then(|slot| self.regions.get(slot)).map_or(0, |region| region.size),
            mapped: range.mapped,
            loose: range.detached,
            pieces: range.pieces.len() as u64,
        }
    }

    /// All attached pieces, by address.
    pub fn attached(&self) -> Vec<Piece> {
        let pieces = self.range.iter().flat_map(|range| &range.pieces);
        pieces.map(|(&addr, &(size, handle))| Piece { addr, size, handle }).collect()
    }

    /// Memory was freed under `epoch`: it may not be unmapped before that has completed.
    pub(super) fn mark_used(&mut self, id: Id, epoch: Epoch) {
        let Some(range) = &mut self.range else { return };
        let record = self.arena.get(id);
        if Some(record.region()) != range.slot {
            return;
        }
        let (first, end) = range.pages(record.addr(), record.size());
        for used in &mut range.used[first..end] {
            *used = epoch.max(*used);
        }
    }

    /// A counted handle is mapped and accessible at its address, which is a gap or the region's end: its memory is clean.
    /// False, and nothing changed, if the address is neither, or the records are exhausted.
    #[must_use]
    pub fn attach(&mut self, piece: Piece) -> bool {
        let Some(range) = &self.range else { return false };
        if piece.addr < range.base || piece.addr + piece.size > range.end {
            return false;
        }
        let end = self.range_end();
        if piece.addr > end && !self.stretch(end, piece.addr - end) {
            return false;
        }
        let id = if piece.addr >= end { self.extend(piece.addr, piece.size) } else { self.fill(piece) };
        let Some(id) = id else { return false };
        self.arena.get(id).set_state(State::Clean);
        self.runs_changed(self.arena.get(id).region());
        self.clean(id);
        if let Some(range) = &mut self.range {
            range.pieces.insert(piece.addr, (piece.size, piece.handle));
            range.mapped += piece.size;
            range.detached -= piece.size;
            // What the handle held elsewhere has completed, and so has what these addresses meant before.
            let (first, end) = range.pages(piece.addr, piece.size);
            range.used[first..end].fill(0);
        }
        true
    }

    /// End of what the region spans.
    pub(super) fn range_end(&self) -> u64 {
        let Some(range) = &self.range else { return 0 };
        range
            .slot
            .and_then(|slot| self.regions.get(slot))
            .map_or(range.base, |region| region.addr + region.size)
    }

    /// Adds a gap at the end of the region.
    fn stretch(&mut self, addr: u64, size: u64) -> bool {
        let Some(id) = self.extend(addr, size) else { return false };
        self.arena.get(id).set_state(State::Gap);
        self.make_gap(id, true);
        true
    }

    /// Adds a block at the end of the region, which begins with the first. It is in no list.
    fn extend(&mut self, addr: u64, size: u64) -> Option<Id> {
        let Some(slot) = self.range.as_ref()?.slot else {
            let id = self.insert_region(addr, size, true)?;
            let slot = self.arena.get(id).region();
            if let Some(range) = &mut self.range {
                range.slot = Some(slot);
                range.used = vec![0; (size / PAGE) as usize];
            }
            return Some(id);
        };
        let last = self.last_block(slot)?;
        let id = self.new_record()?;
        let arena = self.arena;
        let record = arena.get(id);
        record.set_word(addr, State::Gap);
        record.set_size(size);
        record.set_prev(last);
        record.set_next(NONE);
        record.set_region(slot);
        arena.get(last).set_next(id);
        let pages = (size / PAGE) as usize;
        let region = self.regions.get_mut(slot)?;
        region.size += size;
        region.pages.resize(region.pages.len() + pages, id);
        self.index.resize_region(region.addr, region.size);
        if let Some(range) = &mut self.range {
            range.used.resize(range.used.len() + pages, 0);
        }
        Some(id)
    }

    /// Makes a block for `piece` out of the gap that it was mapped in.
    fn fill(&mut self, piece: Piece) -> Option<Id> {
        let range = self.range.as_ref()?;
        let (&start, &size) = range.gaps.range(..=piece.addr).next_back()?;
        if piece.addr + piece.size > start + size {
            return None;
        }
        let gap = self.block_of_page(start)?;
        let (low, id, high) = self.cut_out(gap, piece.addr, piece.size)?;
        if let Some(range) = &mut self.range {
            range.gaps.remove(&start);
        }
        // No gap any more, so that neither rest is joined with it.
        self.arena.get(id).set_state(State::Clean);
        for rest in [low, high] {
            if rest != NONE {
                self.make_gap(rest, false);
            }
        }
        Some(id)
    }

    /// Takes an attached piece out of the clean block that covers it, so that the driver can unmap it: its addresses become
    /// a gap, its handle is the caller's, still counted. `None`, and nothing changed, when it is not all clean.
    pub(super) fn detach(&mut self, addr: u64) -> Option<Piece> {
        let &(size, handle) = self.range.as_ref()?.pieces.get(&addr)?;
        let id = self.clean_cover(addr, size)?;
        self.unbin(id);
        let Some((low, id, high)) = self.cut_out(id, addr, size) else {
            self.bin(id);
            return None;
        };
        for rest in [low, high] {
            if rest != NONE {
                self.bin(rest);
            }
        }
        if let Some(range) = &mut self.range {
            range.pieces.remove(&addr);
            range.mapped -= size;
            range.detached += size;
        }
        self.make_gap(id, false);
        Some(Piece { addr, size, handle })
    }

    /// The clean block that covers all of `addr..addr + size`.
    pub(super) fn clean_cover(&self, addr: u64, size: u64) -> Option<Id> {
        let id = self.block_of_page(addr)?;
        let record = self.arena.get(id);
        (record.state() == State::Clean && record.end() >= addr + size).then_some(id)
    }

    /// The block that covers the first byte of a page of the range.
    pub(super) fn block_of_page(&self, addr: u64) -> Option<Id> {
        let region = self.regions.get(self.range.as_ref()?.slot?)?;
        region.pages.get(((addr - region.addr) / PAGE) as usize).copied()
    }

    pub(super) fn last_block(&self, slot: u32) -> Option<Id> {
        let mut id = *self.regions.get(slot)?.pages.last()?;
        while self.arena.get(id).next() != NONE {
            id = self.arena.get(id).next();
        }
        Some(id)
    }

    /// Cuts `addr..addr + size` out of a block that is in no list. Returns what is below (or [`NONE`]), that, and what is
    /// above; all in state clean and in no list. `None` when the records are exhausted.
    fn cut_out(&mut self, id: Id, addr: u64, size: u64) -> Option<(Id, Id, Id)> {
        let (start, end) = (self.arena.get(id).addr(), self.arena.get(id).end());
        let state = self.arena.get(id).state();
        let (mut low, mut middle, mut high) = (NONE, id, NONE);
        if addr > start {
            (low, middle) = self.split(id, addr - start)?;
        }
        if addr + size < end {
            let Some((first, second)) = self.split(middle, size) else {
                if low != NONE {
                    let whole = self.merge(low, middle);
                    self.arena.get(whole).set_state(state);
                }
                return None;
            };
            (middle, high) = (first, second);
        }
        Some((low, middle, high))
    }

    /// Makes a block that is in no list a gap, joined with the gaps beside it. None is left at the region's end, unless it
    /// is to be the `last` for now.
    fn make_gap(&mut self, id: Id, last: bool) {
        let arena = self.arena;
        let (prev, next) = (arena.get(id).prev(), arena.get(id).next());
        let is_gap = |id: Id| id != NONE && arena.get(id).state() == State::Gap;
        let (below, above) = (is_gap(prev), is_gap(next));
        let mut whole = id;
        if below {
            self.forget_gap(prev);
            whole = self.merge(prev, whole);
        }
        if above {
            self.forget_gap(next);
            whole = self.merge(whole, next);
        }
        let record = self.arena.get(whole);
        record.set_state(State::Gap);
        let (addr, size, slot, prev) = (record.addr(), record.size(), record.region(), record.prev());
        self.runs_changed(slot);
        if last || record.next() != NONE || prev == NONE {
            // One that is all there is stays, so that the region keeps its place.
            if let Some(range) = &mut self.range {
                range.gaps.insert(addr, size);
            }
            return;
        }
        self.arena.get(prev).set_next(NONE);
        self.spare_record(whole);
        let pages = (size / PAGE) as usize;
        if let Some(region) = self.regions.get_mut(slot) {
            region.size -= size;
            region.pages.truncate(region.pages.len() - pages);
            self.index.resize_region(region.addr, region.size);
        }
        if let Some(range) = &mut self.range {
            range.used.truncate(range.used.len() - pages);
        }
    }

    fn forget_gap(&mut self, id: Id) {
        let addr = self.arena.get(id).addr();
        if let Some(range) = &mut self.range {
            range.gaps.remove(&addr);
        }
    }

    /// All handles, wherever they are, with the reserved addresses: for the end of the context. The heap has been
    /// [cleared](Heap::clear) then and has no range any more.
    pub fn take_range(&mut self) -> Option<(u64, u64, Vec<Piece>, Vec<Piece>)> {
        let slot = self.range.as_ref()?.slot;
        if let Some(slot) = slot {
            self.forget_region(slot);
        }
        let range = self.range.take()?;
        self.rules = range.rules;
        self.gauges.reserved.sub(range.mapped + range.detached);
        let attached = range
            .pieces
            .into_iter()
            .map(|(addr, (size, handle))| Piece { addr, size, handle })
            .chain(range.stuck);
        Some((range.base, range.end - range.base, attached.collect(), range.loose))
    }
}
