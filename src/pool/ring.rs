//! A ring of cached blocks of one size: what one thread has freed, oldest first, to be handed out again by the same thread.
//!
//! No lock guards it. The record's word is the arbiter: a block belongs to the cell that its word names, and whoever moves
//! the word by a compare-exchange has the block.
//!
//! | step | by | how |
//! |---|---|---|
//! | free | the ring's thread | exchanges `Live` for `Cached` at the cell behind the last one, reads the epoch, publishes both in the cell |
//! | hand out | the ring's thread | takes the first cell out of the ring if its epoch is over; exchanges `Cached` for `Live` |
//! | drain | any thread that holds the heap's lock | exchanges `Cached` for `Cached` at [`Place::BETWEEN`]; leaves ring and cell as they are |
//! | clear | the heap's lock holder, when the context has died | overwrites the words |
//!
//! A cell whose block was taken by one of the latter two stays in the ring, and is passed over when its turn comes: its
//! exchange fails. Only the ring's thread ever makes a word name one of the ring's cells, and it does so for the cell that it
//! is about to fill. So a cell never mistakes a block that came back to the thread in another cell for its own.

use super::Epoch;
use super::arena::Arena;
use super::record::{Id, NONE, Place, Record};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// In the place of a cell's epoch: its thread has taken a block from the program and has not said when.
const UNKNOWN: Epoch = Epoch::MAX;

/// Where records are found.
pub(super) trait Records<'a>: Copy {
    fn get(self, id: Id) -> &'a Record;
}

impl Records<'static> for Arena {
    #[inline(always)]
    fn get(self, id: Id) -> &'static Record {
        Arena::get(self, id)
    }
}

#[derive(Default)]
struct Cell {
    epoch: AtomicU64,
    id: AtomicU32,
}

/// The rings of one cache, and the cells that they share out among themselves.
pub(super) struct Rings<const RINGS: usize, const CELLS: usize> {
    // Apart, and made there one by one: the thread may have a small stack.
    rings: Box<[State; RINGS]>,
    cells: Box<[Cell; CELLS]>,
}

/// What a ring is but for its cells.
struct State {
    /// Cells filled and emptied so far; written by the ring's thread only.
    tail: AtomicU32,
    head: AtomicU32,
    /// Cells before this one have been drained; written under the heap's lock.
    drained: AtomicU32,
    mask: u32,
    cache: u32,
    first: u32,
}

fn boxed<T, const N: usize>(each: impl Iterator<Item = T>) -> Box<[T; N]> {
    let Ok(all) = each.collect::<Box<[T]>>().try_into() else { unreachable!("as many as that") };
    all
}

impl<const RINGS: usize, const CELLS: usize> Rings<RINGS, CELLS> {
    const MASK: u32 = CELLS as u32 - 1;

    /// The rings of cache number `cache`, with as many cells each as `capacity` says, powers of two.
    pub fn new(cache: u32, capacity: impl Fn(usize) -> u32) -> Rings<RINGS, CELLS> {
        const { assert!(CELLS.is_power_of_two() && CELLS <= 1 << Place::CELL_BITS, "every cell has a number") };
        let mut used = 0;
        let rings = (0..RINGS).map(|ring| {
            let (first, len) = (used, capacity(ring));
            used += len;
            assert!(len.is_power_of_two() && used as usize <= CELLS, "a ring has its own cells");
            let [tail, head, drained] = [const { 0 }; 3].map(AtomicU32::new);
            State { tail, head, drained, mask: len - 1, cache, first }
        });
        Rings { rings: boxed(rings), cells: boxed((0..CELLS).map(|_| Cell::default())) }
    }

    /// Ring number `at`.
    #[inline(always)]
    pub fn at(&self, at: usize) -> Ring<'_, CELLS> {
        Ring { ring: &self.rings[at], cells: &self.cells }
    }
}

/// What is next in a ring.
#[derive(Clone, Copy)]
pub(super) enum Next<'a> {
    /// A block, now the program's: its record and its address.
    Block(&'a Record, u64),
    /// Nothing before this epoch is over.
    Waiting(Epoch),
    Empty,
}

/// A block on its way out of a cache: record, address, and the epoch under which it was freed.
pub(super) type Moved = (Id, u64, Epoch);

/// One of them.
#[derive(Clone, Copy)]
pub(super) struct Ring<'a, const CELLS: usize> {
    ring: &'a State,
    cells: &'a [Cell; CELLS],
}

impl<'c, const CELLS: usize> Ring<'c, CELLS> {
    #[inline(always)]
    fn number(self, at: u32) -> u32 {
        self.ring.first + (at & self.ring.mask)
    }

    #[inline(always)]
    fn place(self, at: u32) -> Place {
        Place::new(self.ring.cache, self.number(at))
    }

    #[inline(always)]
    fn cell(self, at: u32) -> &'c Cell {
        // The mask is what the compiler knows the array's length by.
        &self.cells[(self.number(at) & Rings::<1, CELLS>::MASK) as usize]
    }

    /// Cells in use.
    #[inline(always)]
    pub fn len(self) -> u32 {
        self.ring.tail.load(Ordering::Relaxed).wrapping_sub(self.ring.head.load(Ordering::Relaxed))
    }

    /// Number of the cache that it is part of.
    pub fn cache(self) -> u32 {
        self.ring.cache
    }

    /// Cells in all.
    pub fn capacity(self) -> u32 {
        self.ring.mask + 1
    }

    #[inline(always)]
    pub fn is_full(self) -> bool {
        self.len() > self.ring.mask
    }

    /// Takes the live block at `addr` from the program, as [`Record::claim`] does. By the ring's thread, while the ring is not
    /// full. [`Ring::publish`] must follow.
    #[inline]
    pub fn accept(self, record: &Record, addr: u64) -> bool {
        record.cache(addr, self.place(self.ring.tail.load(Ordering::Relaxed)))
    }

    /// The same with a block that the caller has claimed.
    pub fn accept_claimed(self, record: &Record, addr: u64) -> bool {
        record.cache_claimed(addr, self.place(self.ring.tail.load(Ordering::Relaxed)))
    }

    /// Takes back what [`Ring::accept`] has done; the block is then claimed, unless it was taken meanwhile.
    pub fn reject(self, record: &Record, addr: u64) -> bool {
        record.disown(addr, self.place(self.ring.tail.load(Ordering::Relaxed)))
    }

    /// Fills the cell of the block that was accepted; `epoch` was read after that.
    #[inline]
    pub fn publish(self, id: Id, epoch: Epoch) {
        let tail = self.ring.tail.load(Ordering::Relaxed);
        let cell = self.cell(tail);
        cell.epoch.store(epoch, Ordering::Release);
        cell.id.store(id, Ordering::Release);
        self.ring.tail.store(tail.wrapping_add(1), Ordering::Release);
    }

    /// Adds a block that is the caller's alone. By the ring's thread, while the ring is not full.
    pub fn put(self, record: &Record, id: Id, addr: u64, epoch: Epoch) {
        record.set_cached(addr, self.place(self.ring.tail.load(Ordering::Relaxed)));
        self.publish(id, epoch);
    }

    /// The oldest block for the program, if its epoch is over by `retired`, and how many cells were passed over. By the ring's
    /// thread.
    #[inline(always)]
    pub fn pop<'a>(self, records: impl Records<'a>, retired: Epoch) -> (Next<'a>, u32) {
        let mut passed = 0;
        loop {
            let head = self.ring.head.load(Ordering::Relaxed);
            if head == self.ring.tail.load(Ordering::Relaxed) {
                return (Next::Empty, passed);
            }
            let epoch = self.cell(head).epoch.load(Ordering::Relaxed);
            if epoch > retired {
                return (Next::Waiting(epoch), passed);
            }
            let record = records.get(self.shift(head));
            if let Some(addr) = record.revive(self.place(head)) {
                return (Next::Block(record, addr), passed);
            }
            passed += 1;
        }
    }

    /// Takes the oldest block out, whatever its epoch; `Err` for a cell that has lost its block. By the ring's thread.
    pub fn remove<'a>(self, records: impl Records<'a>) -> Option<Result<Moved, ()>> {
        let head = self.ring.head.load(Ordering::Relaxed);
        if head == self.ring.tail.load(Ordering::Relaxed) {
            return None;
        }
        let epoch = self.cell(head).epoch.load(Ordering::Relaxed);
        let id = self.shift(head);
        Some(records.get(id).uncache(self.place(head)).map(|addr| (id, addr, epoch)).ok_or(()))
    }

    /// Takes the cell `head` out of the ring.
    #[inline]
    fn shift(self, head: u32) -> Id {
        let cell = self.cell(head);
        // Before the word changes. A drain may still look at this cell with the record in hand, and find the same block here
        // once more: then it must not take the epoch of this time for that of the next.
        cell.epoch.store(UNKNOWN, Ordering::Relaxed);
        self.ring.head.store(head.wrapping_add(1), Ordering::Release);
        cell.id.load(Ordering::Relaxed)
    }

    /// Whether its oldest block can be handed out once epochs up to `retired` are over, as far as another thread can tell.
    pub fn is_over(self, retired: Epoch) -> bool {
        let (tail, left) = self.undrained();
        left > 0 && self.cell(tail.wrapping_sub(left)).epoch.load(Ordering::Relaxed) <= retired
    }

    /// Where the ring ends, and how many cells before that may still have their blocks, as far as another thread can tell.
    fn undrained(self) -> (u32, u32) {
        let tail = self.ring.tail.load(Ordering::Acquire);
        let used = tail.wrapping_sub(self.ring.head.load(Ordering::Acquire)).min(self.ring.mask + 1);
        // What an earlier drain has seen is not looked at again: its blocks are gone, though the cells stay.
        (tail, used.min(tail.wrapping_sub(self.ring.drained.load(Ordering::Relaxed))))
    }

    /// Takes every block out, by whoever holds the heap's lock; cells that are being filled or emptied meanwhile may be missed.
    /// `now` tells the current epoch.
    pub fn drain<'a>(self, records: impl Records<'a>, now: impl Fn() -> Epoch, mut each: impl FnMut(Moved)) {
        let (tail, used) = self.undrained();
        self.ring.drained.store(tail, Ordering::Relaxed);
        for back in (1..=used).rev() {
            let at = tail.wrapping_sub(back);
            let cell = self.cell(at);
            let id = cell.id.load(Ordering::Acquire);
            if id == NONE {
                continue;
            }
            if let Some(addr) = records.get(id).uncache(self.place(at)) {
                let epoch = cell.epoch.load(Ordering::Acquire);
                each((id, addr, if epoch == UNKNOWN { now() } else { epoch }));
            }
        }
    }

    /// The records whose blocks the ring holds; for checks, while nothing else happens.
    pub fn held<'a>(self, records: impl Records<'a>) -> Vec<Id> {
        let (head, tail) = (self.ring.head.load(Ordering::Relaxed), self.ring.tail.load(Ordering::Relaxed));
        let cells = (0..tail.wrapping_sub(head)).map(|n| head.wrapping_add(n));
        let named = cells.map(|at| (self.cell(at).id.load(Ordering::Relaxed), self.place(at)));
        named
            .filter(|&(id, place)| records.get(id).is_cached_at(records.get(id).addr(), place))
            .map(|(id, _)| id)
            .collect()
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::super::record::State;
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    const ADDR: u64 = 0x7f00_0000_0200;

    /// A ring of one cell, so that a block that comes back meets its old cell; one record; the epoch.
    struct World {
        rings: Rings<1, 1>,
        records: [Record; 2],
        epoch: AtomicU64,
        freed_under: AtomicU64,
    }

    impl<'a> Records<'a> for &'a [Record; 2] {
        fn get(self, id: Id) -> &'a Record {
            &self[id as usize]
        }
    }

    impl World {
        fn new() -> Arc<World> {
            let world = World {
                rings: Rings::new(3, |_| 1),
                records: Default::default(),
                epoch: AtomicU64::new(1),
                freed_under: AtomicU64::new(0),
            };
            world.records[1].set_word(ADDR, State::Live);
            Arc::new(world)
        }

        /// A free by the ring's thread in the epoch `epoch`, which has just begun.
        fn free(&self, epoch: Epoch) -> bool {
            self.epoch.store(epoch, Ordering::SeqCst);
            self.freed_under.store(epoch, Ordering::SeqCst);
            let accepted = self.rings.at(0).accept(&self.records[1], ADDR);
            if accepted {
                self.rings.at(0).publish(1, self.epoch.load(Ordering::SeqCst));
            }
            accepted
        }

        fn drain(&self) -> Option<Moved> {
            let mut got = None;
            self.rings.at(0).drain(
                &self.records,
                || self.epoch.load(Ordering::SeqCst),
                |moved| got = Some(moved),
            );
            got
        }
    }

    #[test]
    fn a_drain_takes_a_block_or_leaves_it_and_never_makes_its_free_older() {
        loom::model(|| {
            let world = World::new();
            let drainer = {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let got = world.drain();
                    if let Some((id, addr, epoch)) = got {
                        assert_eq!((id, addr), (1, ADDR));
                        // Nobody can have freed it again since.
                        assert!(
                            epoch >= world.freed_under.load(Ordering::SeqCst),
                            "freed later than {epoch}"
                        );
                    }
                    got.is_some()
                })
            };
            let mut mine = world.free(1);
            assert!(mine, "nobody else frees it");
            if let (Next::Block(_, ADDR), _) = world.rings.at(0).pop(&world.records, 1) {
                mine = world.free(2);
                assert!(mine, "it was handed out");
            } else {
                mine = false;
            }
            let drained = drainer.join().unwrap();
            let left = world.rings.at(0).held(&world.records).len();
            assert_eq!(usize::from(drained) + left, 1, "in one place");
            assert!(mine || drained, "only a drain can have taken it");
        });
    }

    #[test]
    fn of_a_free_into_the_ring_and_a_free_past_it_one_wins() {
        loom::model(|| {
            let world = World::new();
            let other = {
                let world = Arc::clone(&world);
                thread::spawn(move || world.records[1].claim(ADDR))
            };
            let kept = world.free(1);
            assert!(kept ^ other.join().unwrap());
            assert_eq!(world.rings.at(0).held(&world.records).len(), usize::from(kept));
        });
    }

    #[test]
    fn what_is_cleared_is_neither_handed_out_nor_drained_again() {
        loom::model(|| {
            let world = World::new();
            assert!(world.free(1));
            let clearer = {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    // And the record describes a block of the next context at once.
                    world.records[1].overwrite(0, State::Unused);
                    world.records[1].overwrite(ADDR + 512, State::Live);
                })
            };
            let (next, _) = world.rings.at(0).pop(&world.records, 1);
            assert!(matches!(next, Next::Block(_, ADDR) | Next::Empty));
            clearer.join().unwrap();
            assert_eq!(world.records[1].word(), (ADDR + 512, State::Live));
            assert!(world.drain().is_none() && !world.rings.at(0).accept(&world.records[1], ADDR));
        });
    }
}
