//! Small requests: slabs of equal objects, carved from the heap like any block.
//!
//! A free object waits in its slab's queue and is reusable once its epoch is over; nothing is done when that happens.
//! The fullest slabs serve first, so that the others run empty and go back to the heap. One empty slab per class stays,
//! so that a program that allocates and frees one object does not carve a slab each time.

use super::arena::Arena;
use super::bins::Bins;
use super::classes::{CELL, CLASSES, class};
use super::gauges::Gauges;
use super::heap::{Heap, OBJECT};
use super::lists::{NO_SLAB, QUARTERS};
use super::record::{Id, NONE, State};
use super::{Epoch, Fit};

/// Slabs of a quarter that are asked for an object whose epoch is over, before the next quarter is.
const PROBES: u32 = 4;
/// Slots in the table of slabs: what a record's tag has room for.
const SLOTS: usize = 1 << 24;

/// What the heap knows of a slab besides its record.
pub(super) struct Slab {
    /// The record of its block; [`NONE`] when the slot is spare.
    pub block: Id,
    pub class: usize,
    /// The record of its first object.
    pub first: Id,
    pub capacity: u32,
    /// Objects that are out: live, claimed or cached.
    pub live: u32,
    /// Objects that were ever handed out: those below this number have a record in use.
    pub fresh: u32,
    /// Free objects, oldest first.
    pub head: Id,
    pub tail: Id,
    /// The latest epoch of its objects.
    pub epoch: Epoch,
    /// Neighbours in its list.
    pub left: u32,
    pub right: u32,
    /// The quarter that it is listed under; [`QUARTERS`] when it is full and in no list.
    pub quarter: usize,
}

impl Heap {
    /// An object from a slab that there is.
    pub(super) fn alloc_object(&mut self, number: usize, requested: u64) -> Option<u64> {
        for quarter in (0..QUARTERS).rev() {
            let mut slot = self.lists[number].ends[quarter].0;
            let mut probes = PROBES;
            while slot != NO_SLAB && probes > 0 {
                if let Some(id) = self.take_object(slot) {
                    return Some(self.hand_out(slot, id, requested));
                }
                // Its oldest object is still pending: ask the others first, next time.
                let next = self.slabs[slot as usize].right;
                self.unlist(slot);
                self.list(slot);
                slot = next;
                probes -= 1;
            }
        }
        None
    }

    /// An object from any clean memory, or a block in its place.
    pub(super) fn alloc_small(&mut self, number: usize, need: u64, requested: u64) -> Option<u64> {
        if let Some(addr) = self.alloc_object(number, requested) {
            return Some(addr);
        }
        if let Some(slot) = self.carve(number)
            && let Some(id) = self.take_object(slot)
        {
            return Some(self.hand_out(slot, id, requested));
        }
        // Memory is short: look at every slab, and then into holes too small for one.
        let clean = (0..QUARTERS).rev().flat_map(|quarter| self.slabs_of(number, quarter)).find(|&slot| {
            let head = self.slabs[slot as usize].head;
            head != NONE && self.arena.get(head).epoch() <= self.retired
        });
        if let Some(slot) = clean
            && let Some(id) = self.take_object(slot)
        {
            return Some(self.hand_out(slot, id, requested));
        }
        self.alloc_block(need, requested, Fit::Any)
    }

    /// Takes a reusable object out of the slab's queue, or one never used.
    fn take_object(&mut self, slot: u32) -> Option<Id> {
        let arena = self.arena;
        let slab = &mut self.slabs[slot as usize];
        let id = slab.head;
        if id != NONE && arena.get(id).epoch() <= self.retired {
            slab.head = arena.get(id).right();
            if slab.head == NONE {
                slab.tail = NONE;
            }
            return Some(id);
        }
        if slab.fresh == slab.capacity {
            return None;
        }
        let id = slab.first + slab.fresh;
        let size = u64::from(class(slab.class).size);
        let record = arena.get(id);
        record.set_word(arena.get(slab.block).addr() + u64::from(slab.fresh) * size, State::Pending);
        record.set_size(size);
        record.set_prev(slab.block);
        record.set_region(OBJECT);
        record.set_owner(self.owner);
        slab.fresh += 1;
        Some(id)
    }

    /// Gives an object of the slab to the program.
    fn hand_out(&mut self, slot: u32, id: Id, requested: u64) -> u64 {
        let arena = self.arena;
        let record = arena.get(id);
        let (addr, size) = (record.addr(), record.size());
        record.set_requested(requested);
        record.set_serial(self.clock);
        record.set_word(addr, State::Live);
        self.gauges.win(size, requested);
        self.count_out(slot, size);
        addr
    }

    /// Further clean objects of the slab that the object at `addr` is of, at most `most`: each goes to `place`, which caches
    /// it, and counts as out.
    pub(super) fn lend_objects(&mut self, addr: u64, most: u32, mut place: impl FnMut(Arena, Id)) {
        let Some((id, _)) = self.locate(addr) else { return };
        let arena = self.arena;
        if arena.get(id).region() != OBJECT {
            return; // a block in a hole
        }
        let slot = arena.get(arena.get(id).prev()).tag() >> 8;
        for _ in 0..most {
            let Some(id) = self.take_object(slot) else { break };
            place(self.arena, id);
            self.count_out(slot, self.arena.get(id).size());
        }
    }

    fn count_out(&mut self, slot: u32, size: u64) {
        let arena = self.arena;
        self.gauges.objects += size;
        let slab = &mut self.slabs[slot as usize];
        slab.live += 1;
        let (first_one, number, region) = (slab.live == 1, slab.class, arena.get(slab.block).region());
        if first_one {
            if self.lists[number].kept == slot {
                self.lists[number].kept = NO_SLAB;
            }
            self.occupy(region);
        }
        self.relist(slot);
    }

    /// Takes back an object that was claimed.
    pub(super) fn free_object(&mut self, id: Id, epoch: Epoch) {
        let arena = self.arena;
        let record = arena.get(id);
        let block = arena.get(record.prev());
        let slot = block.tag() >> 8;
        let slab = &mut self.slabs[slot as usize];
        record.set_state(State::Pending);
        record.set_epoch(epoch);
        record.set_right(NONE);
        if slab.tail == NONE {
            slab.head = id;
        } else {
            arena.get(slab.tail).set_right(id);
        }
        slab.tail = id;
        slab.epoch = slab.epoch.max(epoch);
        self.newest_object = self.newest_object.max(epoch);
        slab.live -= 1;
        self.gauges.objects -= record.size();
        let (empty, number, epoch, region) = (slab.live == 0, slab.class, slab.epoch, block.region());
        if !empty {
            self.relist(slot);
            return;
        }
        self.vacate(region, epoch);
        if self.lists[number].kept == NO_SLAB {
            self.lists[number].kept = slot;
            self.relist(slot);
        } else {
            self.release_slab(slot);
        }
    }

    /// Gives the empty slabs that are kept back to the heap, when memory is short. They are pending under their latest
    /// epochs.
    pub fn flush_slabs(&mut self) {
        for number in 0..CLASSES {
            let slot = self.lists[number].kept;
            if slot != NO_SLAB {
                self.release_slab(slot);
            }
        }
    }

    /// Makes an empty slab a free block.
    fn release_slab(&mut self, slot: u32) {
        let (id, epoch) = (self.slabs[slot as usize].block, self.slabs[slot as usize].epoch);
        self.dissolve(id);
        self.release_block(id, epoch);
    }

    /// Ends a slab, whatever lives in it. Its block is left in state `Slab`.
    pub(super) fn dissolve(&mut self, id: Id) {
        let arena = self.arena;
        let block = arena.get(id);
        let slot = block.tag() >> 8;
        self.unlist(slot);
        let slab = &mut self.slabs[slot as usize];
        if self.lists[slab.class].kept == slot {
            self.lists[slab.class].kept = NO_SLAB;
        }
        for object in slab.first..slab.first + slab.fresh {
            let record = arena.get(object);
            let state = record.state();
            if matches!(state, State::Live | State::Claimed) {
                self.gauges.lose(record.size(), record.requested());
            }
            if matches!(state, State::Live | State::Claimed | State::Cached) {
                self.gauges.objects -= record.size();
            }
            record.set_word(0, State::Unused);
        }
        arena.get(slab.first).set_right(self.spare_runs[slab.class]);
        self.spare_runs[slab.class] = slab.first;
        slab.block = NONE;
        self.spare_slabs.push(slot);
        self.gauges.slabs -= block.size();
        if self.gauges.slabs == 0 {
            self.newest_object = 0;
        }
        self.index.unset(block.addr(), block.size(), id);
    }

    /// Carves a slab out of clean memory: of the class's size, or smaller where only that fits.
    fn carve(&mut self, number: usize) -> Option<u32> {
        let class = class(number);
        let mut size = u64::from(class.slab);
        loop {
            if let Some(id) = self.carve_block(size) {
                return self.make_slab(id, number);
            }
            size /= 2;
            if size < CELL || size < 2 * u64::from(class.size) {
                return None;
            }
        }
    }

    /// A clean block of exactly `size` bytes, aligned to cells and in no bin.
    fn carve_block(&mut self, size: u64) -> Option<Id> {
        let arena = self.arena;
        let limit = self.rules.max_split;
        let slack = |id: Id| arena.get(id).addr().next_multiple_of(CELL) - arena.get(id).addr();
        let fits = |bins: &Bins| {
            bins.pick(arena, size, limit)
                .filter(|&(id, found)| slack(id) + size <= found)
                .or_else(|| bins.pick(arena, size + CELL - super::GRANULE, limit))
        };
        let (id, _) = fits(&self.holes).or_else(|| fits(&self.wholes))?;
        let before = slack(id);
        self.unbin(id);
        let mut block = id;
        if before > 0 {
            let Some((low, high)) = self.split(id, before) else {
                self.bin(id);
                return None;
            };
            self.bin(low);
            block = high;
        }
        if self.arena.get(block).size() > size {
            let Some((low, high)) = self.split(block, size) else {
                self.clean(block);
                return None;
            };
            self.bin(high);
            block = low;
        }
        Some(block)
    }

    fn make_slab(&mut self, id: Id, number: usize) -> Option<u32> {
        let arena = self.arena;
        let mut first = self.spare_runs[number];
        if first == NONE {
            first = self.index.records.take_run(number);
        } else {
            self.spare_runs[number] = arena.get(first).right();
        }
        if first == NONE || (self.spare_slabs.is_empty() && self.slabs.len() == SLOTS) {
            // Out of records.
            if first != NONE {
                arena.get(first).set_right(self.spare_runs[number]);
                self.spare_runs[number] = first;
            }
            self.clean(id);
            return None;
        }
        let record = arena.get(id);
        let (addr, size) = (record.addr(), record.size());
        let slab = Slab {
            block: id,
            class: number,
            first,
            capacity: (size / u64::from(class(number).size)) as u32,
            live: 0,
            fresh: 0,
            head: NONE,
            tail: NONE,
            epoch: 0,
            left: NO_SLAB,
            right: NO_SLAB,
            quarter: QUARTERS,
        };
        let slot = if let Some(slot) = self.spare_slabs.pop() {
            self.slabs[slot as usize] = slab;
            slot
        } else {
            self.slabs.push(slab);
            self.slabs.len() as u32 - 1
        };
        record.set_first(first);
        record.set_tag(slot << 8 | number as u32);
        record.set_word(addr, State::Slab);
        self.index.set(addr, size, id);
        self.gauges.slabs += size;
        self.list(slot);
        Some(slot)
    }

    /// The smallest epoch not over yet that an object of the class waits for, at the head of its slab's queue.
    pub(super) fn object_epoch(&self, number: usize) -> Option<Epoch> {
        let slabs = (0..QUARTERS).flat_map(|quarter| self.slabs_of(number, quarter));
        let heads = slabs.map(|slot| self.slabs[slot as usize].head).filter(|&head| head != NONE);
        heads.map(|head| self.arena.get(head).epoch()).min()
    }
}

impl Gauges {
    /// Free space in slabs.
    pub fn cached_objects(&self) -> u64 {
        self.slabs - self.objects
    }
}
