//! The arena of all records of the process, in which a block's number leads to its record by one step.
//!
//! Records lie in memory that is never given back, so that a free can look a block up and claim it without any lock, whatever the
//! lock's holder does meanwhile.

use super::classes::{CLASSES, class};
use super::record::{Id, NONE, Record};
use parking_lot::Mutex;
use std::sync::OnceLock;
#[cfg(not(loom))]
use zerocopy::FromBytes;

/// Records of the process: 512 MiB of addresses, of which the system backs what has been used. Where it does not have several times
/// that, half as many, and so on.
const RECORDS: usize = if cfg!(any(test, fuzzing, loom)) { 1 << 20 } else { 1 << 23 };
/// What must be left of the process's addresses, in reservations like that: the program has a use for them, too.
const LEFT: usize = 3;
/// Records that a heap takes at once.
const BATCH: u32 = 64;

/// All records of the process, by their numbers. A reader without the lock may have a number that is out of date.
#[derive(Clone, Copy)]
pub struct Arena {
    records: &'static [Record],
    nothing: &'static Record,
}

impl Arena {
    fn of(records: &'static [Record]) -> Arena {
        Arena { records, nothing: &records[NONE as usize] }
    }

    /// The record `id`; a number that no record has gets that of [`NONE`], which describes nothing.
    #[inline(always)]
    pub fn get(self, id: Id) -> &'static Record {
        self.records.get(id as usize).unwrap_or(self.nothing)
    }
}

/// Where the records are, and which of them are in use. Heaps recycle theirs and leave them here when they end.
pub struct Store {
    arena: OnceLock<Arena>,
    spare: Mutex<Spare>,
}

struct Spare {
    /// First record never handed out.
    fresh: u32,
    /// Chains of single records, linked through `right`, left behind by ended heaps.
    chains: Vec<Id>,
    /// The same for the runs of each class, linked through the first record's `right`.
    runs: [Vec<Id>; CLASSES],
}

impl Store {
    pub const fn new() -> Store {
        Store {
            arena: OnceLock::new(),
            spare: Mutex::new(Spare {
                fresh: NONE + 1,
                chains: Vec::new(),
                runs: [const { Vec::new() }; CLASSES],
            }),
        }
    }

    /// The records themselves.
    #[inline(always)]
    pub fn arena(&self) -> Arena {
        *self.arena.get_or_init(|| Arena::of(reserve()))
    }

    /// A chain of single records, linked through `right`; [`NONE`] when all are in use.
    pub fn take_chain(&self) -> Id {
        let mut spare = self.spare.lock();
        if let Some(chain) = spare.chains.pop() {
            return chain;
        }
        let Some(first) = self.bump(&mut spare, BATCH) else { return NONE };
        drop(spare);
        for id in first..first + BATCH - 1 {
            self.arena().get(id).set_right(id + 1);
        }
        first
    }

    /// Consecutive records for the objects of a slab of `number`; [`NONE`] when all are in use.
    pub fn take_run(&self, number: usize) -> Id {
        let mut spare = self.spare.lock();
        match spare.runs[number].pop() {
            Some(run) => run,
            None => self.bump(&mut spare, class(number).capacity).unwrap_or(NONE),
        }
    }

    /// Consecutive records never handed out before; `None` when there are no more.
    fn bump(&self, spare: &mut Spare, records: u32) -> Option<Id> {
        let first = spare.fresh;
        let end = first.checked_add(records).filter(|end| *end as usize <= self.arena().records.len())?;
        spare.fresh = end;
        Some(first)
    }

    /// Takes back the records of a heap that ends: a chain of singles, and a chain of runs per class.
    pub fn give_back(&self, chain: Id, runs: &[Id; CLASSES]) {
        let mut spare = self.spare.lock();
        if chain != NONE {
            spare.chains.push(chain);
        }
        for (class, &run) in runs.iter().enumerate() {
            let mut run = run;
            while run != NONE {
                let next = self.arena().get(run).right();
                spare.runs[class].push(run);
                run = next;
            }
        }
    }

    /// Records handed out so far, in use or recycled.
    pub fn handed_out(&self) -> u32 {
        self.spare.lock().fresh - 1
    }
}

/// As many zeroed records as the system gives addresses for; at least one.
fn reserve() -> &'static [Record] {
    reserve_by(map)
}

fn reserve_by(map: impl Fn(usize) -> Option<&'static [Record]>) -> &'static [Record] {
    let fewer = (0..=RECORDS.ilog2()).rev().map(|bits| 1 << bits);
    fewer.into_iter().find_map(map).unwrap_or_else(|| Vec::leak(vec![Record::default()]))
}

/// Only addresses: what is never touched costs nothing, unless the system is strict about promises.
#[cfg(not(loom))]
fn map(records: usize) -> Option<&'static [Record]> {
    let mapping = |len: usize| memmap2::MmapOptions::new().len(len).no_reserve_swap().map_anon();
    let bytes = records * size_of::<Record>();
    let (mapping, _left) = (mapping(bytes), mapping(LEFT * bytes).ok()?);
    <[Record]>::mut_from_bytes(&mut Box::leak(Box::new(mapping.ok()?))[..]).ok().map(|records| &*records)
}

#[cfg(loom)]
fn map(records: usize) -> Option<&'static [Record]> {
    Some(Vec::leak((0..records.min(64)).map(|_| Record::default()).collect()))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::pool::record::State;

    #[test]
    fn a_system_without_so_many_addresses_gives_as_many_as_it_has() {
        let scarce = |records: usize| (records <= 1 << 10).then(|| map(records)).flatten();
        assert_eq!(reserve_by(scarce).len(), 1 << 10);
        assert_eq!(reserve_by(|_| None).len(), 1);
        assert_eq!(reserve().len(), RECORDS);
    }

    #[test]
    fn a_number_that_no_record_has_gets_the_record_of_nothing() {
        let arena = Arena::of(reserve_by(|_| map(8)));
        arena.get(7).set_word(512, State::Live);
        assert_eq!(arena.get(7).word(), (512, State::Live));
        for id in [NONE, 8, Id::MAX] {
            assert_eq!(arena.get(id).word(), (0, State::Unused), "{id}");
        }
    }

    #[test]
    fn when_all_are_in_use_there_is_none() {
        let store = Store::new();
        let few = map(2 * BATCH as usize).unwrap();
        assert!(store.arena.set(Arena::of(few)).is_ok());
        assert_ne!(store.take_chain(), NONE);
        assert_eq!(store.take_chain(), NONE, "the first is nobody's, so a second batch has no room");
        let fits = (0..CLASSES).find(|&number| class(number).capacity < BATCH).unwrap();
        assert_ne!(store.take_run(fits), NONE);
    }
}
