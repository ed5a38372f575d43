//! The heap as others see it: the block at an address, sums, and everything for a report.

use super::Epoch;
use super::classes::class;
use super::gauges::{Gauge, Usage};
use super::heap::Heap;
use super::record::{Id, NONE, State};

/// What a block is to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// The program's.
    Live,
    /// Freed, but its epoch is not over.
    Pending,
    /// Free and reusable.
    Clean,
    /// Addresses of the range that no memory is mapped at.
    Gap,
}

/// A block, and the region that it is in. Addresses and sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockView {
    /// Address of the block.
    pub start: u64,
    /// Bytes of the block.
    pub size: u64,
    /// Bytes that the program asked for; 0 unless live.
    pub requested: u64,
    /// Of a live block, the number of its allocation: never the same twice in a heap, also when the address comes back.
    pub serial: u64,
    /// Address of its region.
    pub region_start: u64,
    /// Bytes of its region.
    pub region_size: u64,
    /// Whose it is.
    pub state: BlockState,
}

/// A region with all that is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionView {
    /// Its address.
    pub addr: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Its blocks by address; of slabs the objects, and what was never handed out as one clean block.
    pub blocks: Vec<BlockView>,
}

impl Heap {
    /// The block that covers `addr`, also in its middle; `None` when no region does. Takes a few steps.
    pub fn find(&self, addr: u64) -> Option<BlockView> {
        let (id, _) = self.locate(addr)?;
        let slot = self.regions.slot_of(addr)?;
        let view = self.view(id, slot)?;
        if self.arena.get(id).state() != State::Slab {
            return Some(view);
        }
        // Space of a slab that is no object yet.
        let issued = self.issued_end(id);
        Some(BlockView {
            start: issued,
            size: view.start + view.size - issued,
            state: BlockState::Clean,
            ..view
        })
    }

    /// The record that covers `addr`: an object's where it is one, else a block's; with where that starts.
    pub(super) fn locate(&self, addr: u64) -> Option<(Id, u64)> {
        let arena = self.arena;
        let region = self.regions.get(self.regions.slot_of(addr)?)?;
        let mut id = region.before(addr);
        while arena.get(id).end() <= addr {
            id = arena.get(id).next();
            if id == NONE {
                return None;
            }
        }
        let block = arena.get(id);
        if block.state() == State::Slab {
            let slab = &self.slabs[(block.tag() >> 8) as usize];
            let number = class(slab.class).object_at(addr - block.addr());
            if number < slab.fresh {
                id = slab.first + number;
            }
        }
        Some((id, arena.get(id).addr()))
    }

    /// Where the objects end that a slab ever handed out.
    fn issued_end(&self, block: Id) -> u64 {
        let record = self.arena.get(block);
        let slab = &self.slabs[(record.tag() >> 8) as usize];
        record.addr() + u64::from(slab.fresh) * u64::from(class(slab.class).size)
    }

    fn view(&self, id: Id, slot: u32) -> Option<BlockView> {
        let region = self.regions.get(slot)?;
        let record = self.arena.get(id);
        let (start, state) = record.word();
        let state = match state {
            State::Live => BlockState::Live,
            State::Claimed | State::Cached => BlockState::Pending,
            State::Gap => BlockState::Gap,
            State::Pending if record.epoch() > self.retired => BlockState::Pending,
            _ => BlockState::Clean,
        };
        Some(BlockView {
            start,
            size: record.size(),
            requested: if state == BlockState::Live { record.requested() } else { 0 },
            serial: if state == BlockState::Live { record.serial() } else { 0 },
            region_start: region.addr,
            region_size: region.size,
            state,
        })
    }

    /// The sums. O(1), but for the largest free piece: see [`largest_free`](Heap::largest_free).
    pub fn usage(&self) -> Usage {
        Usage { largest_free: self.largest_free(), ..self.sums() }
    }

    /// The same but for the largest free piece, which is left at 0. O(1).
    pub fn sums(&self) -> Usage {
        Usage {
            requested: self.gauges.requested,
            allocated: self.gauges.allocated,
            reserved: self.gauges.reserved,
            pending: self.gauges.pending,
            clean: self.gauges.clean,
            cached_objects: self.gauges.cached_objects(),
            idle: self.gauges.idle,
            largest_free: 0,
            live_blocks: self.gauges.live_blocks,
        }
    }

    /// Allocations so far, as far as the heap knows of them.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// What the program asked for and holds, in bytes. O(1).
    pub fn requested(&self) -> Gauge {
        self.gauges.requested
    }

    /// The blocks that the program holds, in bytes. O(1).
    pub fn allocated(&self) -> Gauge {
        self.gauges.allocated
    }

    /// The regions, in bytes. O(1).
    pub fn reserved(&self) -> Gauge {
        self.gauges.reserved
    }

    /// Bytes of regions without a live block: what can be given back to the driver. O(1).
    pub fn idle(&self) -> u64 {
        self.gauges.idle
    }

    /// Bytes of blocks that wait for their epoch's end; without the free objects of slabs. O(1).
    pub fn pending(&self) -> u64 {
        self.gauges.pending
    }

    /// When the heap got its first region, and when it was [cleared](Heap::clear) (`u64::MAX` while it has not been), in
    /// moments that all heaps of the index count together: two heaps of which one ended before the other began did not
    /// hold memory at the same time. A heap that is used again after it was cleared counts as having lived all along.
    /// `None` for one that never had a region.
    pub fn lived(&self) -> Option<(u64, u64)> {
        self.lived
    }

    /// The newest epoch under which anything of the heap waits, if any does. O(1).
    ///
    /// Never older than what waits. It may be newer for a while, where the newest free was of an object that has been
    /// handed out or given back to the driver since.
    pub fn newest_pending(&self) -> Option<Epoch> {
        // The queue is in order, so its last block is its newest.
        let (_, last) = self.queue;
        let block = if last == NONE { 0 } else { self.arena.get(last).epoch() };
        Some(block.max(self.newest_object)).filter(|&epoch| epoch > self.retired)
    }

    /// All regions and blocks, by address. O(blocks).
    pub fn snapshot(&self) -> Vec<RegionView> {
        let mut regions: Vec<RegionView> = Vec::new();
        self.visit(|block| {
            if regions.last().is_none_or(|region| region.addr != block.region_start) {
                regions.push(RegionView {
                    addr: block.region_start,
                    size: block.region_size,
                    blocks: Vec::new(),
                });
            }
            if let Some(region) = regions.last_mut() {
                region.blocks.push(*block);
            }
        });
        regions
    }

    /// Calls `each` with every block, region by region and in each by address; what blocks tile is never empty. Takes no
    /// memory. O(blocks).
    pub fn visit(&self, mut each: impl FnMut(&BlockView)) {
        let arena = self.arena;
        for (slot, region) in self.regions.iter() {
            let mut id = region.first;
            while id != NONE {
                let record = arena.get(id);
                if record.state() == State::Slab {
                    let slab = &self.slabs[(record.tag() >> 8) as usize];
                    (slab.first..slab.first + slab.fresh)
                        .filter_map(|object| self.view(object, slot))
                        .for_each(|object| each(&object));
                    let rest = self.issued_end(id);
                    if rest < record.end() {
                        self.find(rest).iter().for_each(&mut each);
                    }
                } else {
                    self.view(id, slot).iter().for_each(&mut each);
                }
                id = record.next();
            }
        }
    }
}
