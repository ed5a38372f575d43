//! The heap of one context: requests in, addresses out, and frees back in.

use super::arena::Arena;
use super::bins::Bins;
use super::choice;
use super::classes::{CLASSES, SMALL_MAX, class_of};
use super::gauges::Gauges;
use super::index::{Claim, Claimed, Index};
use super::lists::SlabLists;
use super::range::Range;
use super::record::{Id, NONE, Place, State};
use super::region::{PAGE, Regions};
use super::slab::Slab;
use super::{Epoch, GRANULE};

/// Blocks up to this size are cut from the upper end of a free block, larger ones from the lower end: the short-lived
/// small ones stay together, and holes between large ones join.
const TOP_MAX: u64 = 1 << 20;

/// Limits on which block may serve which request; `PyTorch`'s meanings of the keys of the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Bytes. A smaller request never takes a block of this size or more, and a block that serves a request of this size
    /// or more is not split. `u64::MAX`: off.
    pub max_split: u64,
    /// Bytes. A request of `max_split` or more refuses a block larger by this much or more.
    pub max_non_split_rounding: u64,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { max_split: u64::MAX, max_non_split_rounding: 20 << 20 }
    }
}

/// How far a request may reach into clean memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// A clean object of an existing slab, or a clean block at most an eighth larger than asked: keeps larger blocks whole
    /// while the caller has other means. Waiting for pending memory when this finds nothing, now and
    /// then, before [`Fit::Any`] cuts a larger block, keeps a program whose GPU lags near the memory of one whose
    /// GPU does not (`benches/NOTES.md`).
    Tight,
    /// The same, or any clean block of a region in which something else is: leaves idle regions whole, for
    /// [`trades`](super::trade).
    Begun,
    /// Any clean memory.
    Any,
}

/// Blocks that the program holds, free blocks, and the regions that they tile. Not thread-safe by itself: the caller
/// holds a lock, except for [`Index::claim`].
pub struct Heap {
    pub(super) owner: u32,
    pub(super) index: &'static Index,
    pub(super) arena: Arena,
    pub(super) rules: Rules,
    /// The clean blocks, by size: those that have neighbours in their region, and those that are all of it.
    pub(super) holes: Bins,
    pub(super) wholes: Bins,
    pub(super) regions: Regions,
    /// The expandable range, if the heap has one.
    pub(super) range: Option<Box<Range>>,
    /// Pending blocks, oldest epoch first: first and last.
    pub(super) queue: (Id, Id),
    /// Every epoch up to this one is over.
    pub(super) retired: Epoch,
    /// Newest epoch under which an object was freed; 0 once no slab is left.
    pub(super) newest_object: Epoch,
    pub(super) slabs: Vec<Slab>,
    pub(super) spare_slabs: Vec<u32>,
    pub(super) lists: [SlabLists; CLASSES],
    /// Records to reuse, linked through `right`; and runs of them, one chain per class.
    pub(super) spare: Id,
    pub(super) spare_runs: [Id; CLASSES],
    /// Allocations so far.
    pub(super) clock: u64,
    /// When it got its first region, and when it was last cleared, in the index's moments.
    pub(super) lived: Option<(u64, u64)>,
    pub(super) gauges: Gauges,
}

impl Heap {
    /// An empty heap. `owner` is the number by which [`Claimed`] names it; it must be unique among the heaps of `index`.
    pub fn new(owner: u32, index: &'static Index, rules: Rules) -> Heap {
        Heap {
            owner,
            index,
            arena: index.records.arena(),
            rules,
            holes: Bins::new(),
            wholes: Bins::new(),
            regions: Regions::default(),
            range: None,
            queue: (NONE, NONE),
            retired: 0,
            newest_object: 0,
            slabs: Vec::new(),
            spare_slabs: Vec::new(),
            lists: [SlabLists::EMPTY; CLASSES],
            spare: NONE,
            spare_runs: [NONE; CLASSES],
            clock: 0,
            lived: None,
            gauges: Gauges::default(),
        }
    }

    /// Serves a request from clean memory: the block's address, or `None` when `fit` allows none. `requested` is what the
    /// program asked for in bytes, for the books; `rounded` what it is to get at least, by the caller's rounding rules.
    /// Every epoch up to `retired` is taken to be over.
    pub fn alloc(&mut self, requested: u64, rounded: u64, fit: Fit, retired: Epoch) -> Option<u64> {
        self.retire(retired);
        let need = rounded.max(requested).max(1).checked_next_multiple_of(GRANULE)?;
        let addr = if need <= SMALL_MAX {
            let class = class_of(need);
            match fit {
                Fit::Tight | Fit::Begun => self.alloc_object(class, requested),
                Fit::Any => self.alloc_small(class, need, requested),
            }
        } else {
            self.alloc_block(need, requested, fit)
        }?;
        self.clock += 1;
        Some(addr)
    }

    /// Bytes from which on a block is too large for a request of `need`.
    pub(super) fn limit(&self, need: u64, fit: Fit) -> u64 {
        let tight = match fit {
            Fit::Tight => choice::tight(need),
            Fit::Begun | Fit::Any => u64::MAX,
        };
        let rule = if need >= self.rules.max_split {
            need.saturating_add(self.rules.max_non_split_rounding.max(PAGE))
        } else {
            // But never so strict that the region made for this very request would be refused.
            let own = need.checked_next_multiple_of(PAGE).unwrap_or(need);
            self.rules.max_split.max(own.saturating_add(1))
        };
        tight.min(rule)
    }

    /// Whether a clean block of `size` bytes may serve a request of `need` bytes under the rules.
    pub(super) fn serves(&self, size: u64, need: u64) -> bool {
        size >= need && size < self.limit(need, Fit::Any)
    }

    pub(super) fn alloc_block(&mut self, need: u64, requested: u64, fit: Fit) -> Option<u64> {
        let fits = self.fits(need, fit);
        let best = match fit {
            Fit::Tight => fits.tight(need),
            Fit::Begun => fits.begun(),
            Fit::Any => self.choose(need, fits),
        }?;
        Some(self.take_block(best.id, best.size, need, requested))
    }

    /// Makes `need` bytes of the binned block `id` of `size` bytes a live block.
    pub(super) fn take_block(&mut self, id: Id, size: u64, need: u64, requested: u64) -> u64 {
        let mut taken = NONE;
        if size > need && need < self.rules.max_split {
            taken = self.cut(id, size, need).unwrap_or(NONE);
        }
        if taken == NONE {
            // An exact fit; or without a record for the rest, the whole block serves.
            self.unbin(id);
            taken = id;
        }
        let record = self.arena.get(taken);
        record.set_requested(requested);
        record.set_serial(self.clock);
        let (addr, size, slot) = (record.addr(), record.size(), record.region());
        if size > SMALL_MAX {
            // The only one in its cell. A small block in a hole is looked up under the lock instead.
            self.index.set(addr, 1, taken);
        }
        record.set_word(addr, State::Live);
        self.occupy(slot);
        self.gauges.win(size, requested);
        addr
    }

    /// Cuts `need` bytes off the binned block `id` of `size` bytes; the rest stays in the bins. `None`, and nothing changed,
    /// when the records are exhausted.
    fn cut(&mut self, id: Id, size: u64, need: u64) -> Option<Id> {
        let arena = self.arena;
        let top = need <= TOP_MAX;
        let whole = self.is_whole(id);
        let (low, high) = self.split(id, if top { size - need } else { need })?;
        let (taken, rest) = if top { (high, low) } else { (low, high) };
        self.gauges.clean -= need;
        if rest == id && !whole {
            self.holes.resized(arena, id, size);
        } else {
            self.bins(whole).remove_sized(arena, id, size);
            self.holes.insert(arena, rest);
        }
        Some(taken)
    }

    /// [`Index::claim`] under the heap's lock: decides what that left open, and never answers [`Claim::Ask`].
    pub fn claim(&self, addr: u64) -> Claim {
        let Some((id, start)) = self.locate(addr) else { return Claim::Foreign };
        let record = self.arena.get(id);
        if record.claim(addr) {
            return Claim::Claimed(Claimed::new(id, addr, record));
        }
        if start != addr && record.word() == (start, State::Live) {
            return Claim::Interior { owner: self.owner, start };
        }
        Claim::NotLive { owner: self.owner }
    }

    /// Takes a claimed block back. It can be reused when `epoch` is over: at once, if it already is.
    #[allow(clippy::needless_pass_by_value)] // Giving the claim up is the point: a block is freed once.
    pub fn free(&mut self, claimed: Claimed, epoch: Epoch) {
        let Claimed { id, addr, .. } = claimed;
        let record = self.arena.get(id);
        // After `clear` the record is another block's, or nobody's.
        if record.word() != (addr, State::Claimed) || record.owner() != self.owner {
            return;
        }
        self.gauges.lose(record.size(), record.requested());
        self.put(id, epoch);
    }

    /// Takes back a block that was cached, from between the caches and the heap: the thread that freed it has counted that.
    pub(super) fn free_cached(&mut self, id: Id, addr: u64, epoch: Epoch) {
        let record = self.arena.get(id);
        if record.is_cached_at(addr, Place::BETWEEN) && record.owner() == self.owner {
            self.put(id, epoch);
        }
    }

    fn put(&mut self, id: Id, epoch: Epoch) {
        let slot = self.arena.get(id).region();
        if slot == OBJECT {
            self.free_object(id, epoch);
            return;
        }
        self.vacate(slot, epoch);
        self.release_block(id, epoch);
    }

    /// Makes a block that is nobody's any more free: pending, or clean if its epoch is over.
    pub(super) fn release_block(&mut self, id: Id, epoch: Epoch) {
        if self.range.is_some() {
            self.mark_used(id, epoch);
        }
        if epoch <= self.retired {
            self.clean(id);
            return;
        }
        let record = self.arena.get(id);
        let (_, last) = self.queue;
        let (mut epoch, mut raised) = (epoch, false);
        if last == NONE {
            self.queue.0 = id;
        } else {
            let tail = self.arena.get(last);
            // The queue stays in order: who comes late waits for those before it.
            raised = tail.epoch() > epoch;
            epoch = epoch.max(tail.epoch());
            tail.set_right(id);
        }
        record.set_state(State::Pending);
        record.set_epoch(epoch);
        record.set_left(last);
        record.set_right(NONE);
        self.queue.1 = id;
        self.gauges.pending += record.size();
        if raised && let Some(region) = self.regions.get_mut(record.region()) {
            region.epoch = region.epoch.max(epoch);
        }
    }

    pub(super) fn unqueue(&mut self, id: Id) {
        let arena = self.arena;
        let record = arena.get(id);
        let (left, right) = (record.left(), record.right());
        if left == NONE {
            self.queue.0 = right;
        } else {
            arena.get(left).set_right(right);
        }
        if right == NONE {
            self.queue.1 = left;
        } else {
            arena.get(right).set_left(left);
        }
        self.gauges.pending -= record.size();
    }

    /// Every epoch up to `upto` is over: what was freed under them becomes clean and joins its clean neighbours. O(blocks
    /// that become clean).
    pub fn retire(&mut self, upto: Epoch) {
        if upto <= self.retired {
            return;
        }
        self.retired = upto;
        while self.queue.0 != NONE {
            let id = self.queue.0;
            if self.arena.get(id).epoch() > upto {
                break;
            }
            self.unqueue(id);
            self.clean(id);
        }
    }

    /// Makes a block clean, joined with its clean neighbours.
    pub(super) fn clean(&mut self, id: Id) {
        let arena = self.arena;
        let record = arena.get(id);
        record.set_state(State::Clean);
        let (size, prev, next) = (record.size(), record.prev(), record.next());
        let free = |id: Id| id != NONE && arena.get(id).state() == State::Clean;
        let (below, above) = (free(prev), free(next));
        self.gauges.clean += size;
        let mut joined = id;
        // The larger block's record survives a merge, and mostly stays in its bin: then the bins do not change. Who has a
        // neighbour is no whole region.
        let mut listed = None;
        if below {
            let other = arena.get(prev).size();
            if other >= size {
                listed = Some(other);
            } else {
                self.holes.remove(arena, prev);
            }
            joined = self.merge(prev, id);
        }
        if above {
            let other = arena.get(next).size();
            if other > arena.get(joined).size() {
                if let Some(old) = listed {
                    self.holes.remove_sized(arena, joined, old);
                }
                listed = Some(other);
            } else {
                self.holes.remove(arena, next);
            }
            joined = self.merge(joined, next);
        }
        let whole = self.is_whole(joined);
        match listed {
            Some(old) if !whole => self.holes.resized(arena, joined, old),
            Some(old) => {
                self.holes.remove_sized(arena, joined, old);
                self.wholes.insert(arena, joined);
            }
            None => self.bins(whole).insert(arena, joined),
        }
    }

    /// The bins of blocks that are all of their region, or of those that are not.
    fn bins(&mut self, whole: bool) -> &mut Bins {
        if whole { &mut self.wholes } else { &mut self.holes }
    }

    pub(super) fn bin(&mut self, id: Id) {
        let arena = self.arena;
        self.gauges.clean += arena.get(id).size();
        self.bins(self.is_whole(id)).insert(arena, id);
    }

    pub(super) fn unbin(&mut self, id: Id) {
        let arena = self.arena;
        self.gauges.clean -= arena.get(id).size();
        self.bins(self.is_whole(id)).remove(arena, id);
    }

    /// Forgets everything: the context died. Blocks that the program still holds become foreign.
    pub fn clear(&mut self) {
        let _ = self.take_range();
        let slots: Vec<u32> = self.regions.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.forget_region(slot);
        }
        self.retired = 0;
        if let Some((_, end)) = &mut self.lived {
            *end = self.index.moment();
        }
    }

    /// A record of this heap, describing nothing.
    pub(super) fn new_record(&mut self) -> Option<Id> {
        let arena = self.arena;
        if self.spare == NONE {
            self.spare = self.index.records.take_chain();
        }
        let id = self.spare;
        if id == NONE {
            return None;
        }
        let record = arena.get(id);
        self.spare = record.right();
        record.set_owner(self.owner);
        Some(id)
    }

    pub(super) fn spare_record(&mut self, id: Id) {
        let record = self.arena.get(id);
        record.set_word(0, State::Unused);
        record.set_right(self.spare);
        self.spare = id;
    }
}

/// In the place of a region's slot: the record is an object's.
pub(super) const OBJECT: u32 = u32::MAX;

impl Drop for Heap {
    fn drop(&mut self) {
        self.clear();
        self.index.records.give_back(self.spare, &self.spare_runs);
    }
}
