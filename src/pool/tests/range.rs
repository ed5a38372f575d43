//! The expandable range against a naive model: pages and what is in them. No page is taken that is live or whose last
//! free has not completed, no block lies where nothing is mapped, and every handle is somewhere.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::super::{Claim, Epoch, Fit, GRANULE, Heap, Index, PAGE, Piece, Rules};
use super::MIB;

const BASE: u64 = 0x7e00_0000_0000;
const RESERVED: u64 = 4 << 30;

#[derive(Clone, Debug)]
enum Action {
    Alloc {
        bytes: u64,
        fresh: u64,
    },
    /// A growth that fails after so many pieces have been unmapped, or before anything.
    Fail {
        bytes: u64,
        unmapped: usize,
    },
    Free {
        which: usize,
    },
    Seal,
    /// All but the newest `lag` epochs are over, seen from the device or from the host.
    Retire {
        lag: u64,
        seen: bool,
    },
    GiveBack {
        bytes: u64,
        refused: bool,
    },
    Flush,
    End,
}

struct Model {
    heap: Heap,
    index: &'static Index,
    /// Handle by mapped page.
    pages: BTreeMap<u64, u64>,
    /// Bytes of every handle that is the pool's.
    handles: HashMap<u64, u64>,
    live: Vec<(u64, u64)>,
    freed: Vec<(u64, u64, Epoch)>,
    next: u64,
    epoch: Epoch,
    retired: Epoch,
    completed: Epoch,
}

impl Model {
    fn new() -> Model {
        let index = super::index();
        let mut heap = Heap::new(7, index, Rules::default());
        heap.set_range(BASE, RESERVED);
        Model {
            heap,
            index,
            pages: BTreeMap::new(),
            handles: HashMap::new(),
            live: Vec::new(),
            freed: Vec::new(),
            next: 0,
            epoch: 1,
            retired: 0,
            completed: 0,
        }
    }

    fn step(&mut self, action: &Action) {
        match *action {
            Action::Alloc { bytes, fresh } => self.alloc(bytes, fresh),
            Action::Fail { bytes, unmapped } => self.fail(bytes, unmapped),
            Action::Free { which } => self.free(which),
            Action::Seal => self.epoch += 1,
            Action::Retire { lag, seen } => {
                self.retired = self.retired.max((self.epoch - 1).saturating_sub(lag));
                if seen {
                    self.completed = self.retired;
                }
                self.heap.retire(self.retired);
            }
            Action::GiveBack { bytes, refused } => {
                for piece in self.heap.take_pieces(bytes, self.completed) {
                    self.unmap(piece);
                    if refused {
                        self.heap.keep_loose(Piece { addr: 0, ..piece });
                    } else {
                        self.handles.remove(&piece.handle);
                        self.heap.lose(piece.size);
                    }
                }
            }
            Action::Flush => self.heap.flush_slabs(),
            Action::End => {
                let (base, size, mapped, loose) = self.heap.take_range().expect("there is a range");
                assert_eq!((base, size), (BASE, RESERVED));
                let mut handles: Vec<u64> = mapped.iter().chain(&loose).map(|piece| piece.handle).collect();
                handles.sort_unstable();
                let mut known: Vec<u64> = self.handles.keys().copied().collect();
                known.sort_unstable();
                assert_eq!(handles, known, "every handle is told, once");
                self.heap.clear();
                assert_eq!(self.heap.usage().reserved.current, 0);
                self.pages.clear();
                self.handles.clear();
                self.live.clear();
                self.freed.clear();
                self.heap.set_range(BASE, RESERVED);
                self.retired = 0; // what the heap believes; epochs go on
                self.completed = 0;
            }
        }
        self.check();
    }

    /// The driver unmaps a piece: it must be free, and done with.
    fn unmap(&mut self, piece: Piece) {
        if piece.addr == 0 {
            return;
        }
        let end = piece.addr + piece.size;
        let inside = |addr: u64, size: u64| addr < end && addr + size > piece.addr;
        assert!(!self.live.iter().any(|(addr, size)| inside(*addr, *size)), "{piece:x?} is in use");
        for (addr, size, epoch) in &self.freed {
            assert!(!inside(*addr, *size) || *epoch <= self.completed, "{piece:x?} may still be written");
        }
        for page in (piece.addr..end).step_by(PAGE as usize) {
            assert_eq!(self.pages.remove(&page), Some(piece.handle));
        }
    }

    fn map(&mut self, piece: Piece) {
        assert!(piece.addr >= BASE && piece.addr + piece.size <= BASE + RESERVED);
        for page in (piece.addr..piece.addr + piece.size).step_by(PAGE as usize) {
            assert_eq!(self.pages.insert(page, piece.handle), None, "mapped over another");
        }
        self.freed.retain(|(addr, size, _)| *addr >= piece.addr + piece.size || addr + size <= piece.addr);
        assert!(self.heap.attach(piece));
    }

    fn alloc(&mut self, bytes: u64, fresh: u64) {
        let mut addr = self.heap.alloc(bytes, bytes, Fit::Any, self.retired);
        if addr.is_none() {
            let need = bytes.next_multiple_of(GRANULE);
            let free = self.heap.idle_pieces(self.completed).iter().map(|(_, size, _)| size).sum::<u64>();
            let Some(plan) = self.heap.plan(need, fresh, self.completed) else { return };
            // What must not be made is moved, if there is as much.
            assert!(
                plan.fresh() <= fresh || free < need + 8 * MIB,
                "{free} free, {} made for {need}",
                plan.fresh()
            );
            for (piece, to) in plan.moves {
                self.unmap(piece);
                self.map(Piece { addr: to, ..piece });
            }
            for (at, size) in plan.makes {
                self.next += 1;
                self.handles.insert(self.next, size);
                self.heap.gain(size);
                self.map(Piece { addr: at, size, handle: self.next });
            }
            for (start, size) in plan.spans {
                assert!(
                    (start..start + size).step_by(PAGE as usize).all(|page| self.pages.contains_key(&page))
                );
            }
            addr = self.heap.alloc(bytes, bytes, Fit::Any, self.retired);
            assert!(addr.is_some(), "what was mapped for {bytes} does not serve it");
        }
        let Some(addr) = addr else { return };
        let size = self.heap.find(addr).expect("just handed out").size;
        assert!(!self.live.iter().any(|(other, bytes)| *other < addr + size && other + bytes > addr));
        for (old, bytes, epoch) in &self.freed {
            assert!(*old >= addr + size || old + bytes <= addr || *epoch <= self.retired, "reused too early");
        }
        self.live.push((addr, size));
    }

    fn fail(&mut self, bytes: u64, unmapped: usize) {
        let need = bytes.next_multiple_of(GRANULE);
        let Some(plan) = self.heap.plan_apart(need, 0, self.completed) else { return };
        for (number, (piece, _)) in plan.moves.into_iter().enumerate() {
            if number < unmapped {
                self.unmap(piece);
                self.heap.keep_loose(Piece { addr: 0, ..piece });
            } else {
                self.heap.restore(piece);
            }
        }
    }

    fn free(&mut self, which: usize) {
        if self.live.is_empty() {
            return;
        }
        let (addr, size) = self.live.swap_remove(which % self.live.len());
        let claim = match self.index.claim(addr) {
            Claim::Ask { .. } => self.heap.claim(addr),
            decided => decided,
        };
        let Claim::Claimed(claimed) = claim else { panic!("{addr:#x} gave {claim:?}") };
        self.heap.free(claimed, self.epoch);
        self.freed.push((addr, size, self.epoch));
    }

    fn check(&self) {
        if let Err(broken) = self.heap.check() {
            panic!("{broken}");
        }
        for &(addr, size) in &self.live {
            let mut pages = (addr / PAGE * PAGE..addr + size).step_by(PAGE as usize);
            assert!(pages.all(|page| self.pages.contains_key(&page)), "{addr:#x} is not mapped");
        }
        let attached = self.heap.attached();
        assert_eq!(attached.iter().map(|piece| piece.size / PAGE).sum::<u64>(), self.pages.len() as u64);
        for piece in &attached {
            assert_eq!(self.pages.get(&piece.addr), Some(&piece.handle));
        }
        // Asked for after the check, so that the next one sees whether what is remembered of this has become wrong.
        assert_eq!(self.heap.usage().reserved.current, self.handles.values().sum::<u64>());
        let usage = self.heap.range_usage();
        assert_eq!(usage.mapped, self.pages.len() as u64 * PAGE);
        for region in self.heap.snapshot() {
            assert_eq!(region.blocks.iter().map(|block| block.size).sum::<u64>(), region.size);
        }
    }
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![2 => 1..40_000u64, 3 => 30_000..600_000u64, 4 => 1..5 * MIB, 3 => MIB..60 * MIB]
}

fn action() -> impl Strategy<Value = Action> {
    let fresh = prop_oneof![Just(0), Just(u64::MAX), 0..30 * MIB];
    prop_oneof![
        10 => (bytes(), fresh).prop_map(|(bytes, fresh)| Action::Alloc { bytes, fresh }),
        1 => (bytes(), 0..4usize).prop_map(|(bytes, unmapped)| Action::Fail { bytes, unmapped }),
        9 => any::<usize>().prop_map(|which| Action::Free { which }),
        3 => Just(Action::Seal),
        4 => (0..3u64, any::<bool>()).prop_map(|(lag, seen)| Action::Retire { lag, seen }),
        1 => (0..80 * MIB, any::<bool>()).prop_map(|(bytes, refused)| Action::GiveBack { bytes, refused }),
        1 => Just(Action::Flush),
        1 => prop::bool::weighted(0.1).prop_map(|end| if end { Action::End } else { Action::Seal }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_actions_breaks_the_range(actions in prop::collection::vec(action(), 1..250)) {
        let mut model = Model::new();
        for action in &actions {
            model.step(action);
        }
    }
}

#[test]
fn a_request_goes_into_a_gap_where_that_takes_no_more_than_the_end() {
    let mut model = Model::new();
    for _ in 0..4 {
        model.alloc(16 * MIB, u64::MAX);
    }
    let hole = model.live[1].0;
    model.free(1);
    model.step(&Action::Seal);
    model.step(&Action::Retire { lag: 0, seen: true });
    model.step(&Action::GiveBack { bytes: 16 * MIB, refused: false });
    assert_eq!(model.heap.range_usage().mapped, 48 * MIB);
    assert_eq!(model.heap.find(hole).map(|block| block.state), Some(super::super::BlockState::Gap));
    model.alloc(16 * MIB, u64::MAX);
    assert!(model.live.iter().any(|(addr, _)| *addr == hole), "{:x?}", model.live);
}

#[test]
fn free_pieces_that_do_not_fill_a_gap_are_moved_to_the_end() {
    // A gap of 6 MiB, free memory at the end, and free pieces of 4 MiB elsewhere: of these one fits into the gap, and what is
    // left of it takes none. With 2 MiB to map beyond the gap as well, and with nothing to map beyond it.
    for (tail, need) in [(2, 8), (2, 10)] {
        let mut model = Model::new();
        let mut at = BASE;
        for size in [4, 2, 4, 2, 4, 2, 2, 2, 2, tail] {
            model.next += 1;
            model.handles.insert(model.next, size * MIB);
            model.heap.gain(size * MIB);
            model.map(Piece { addr: at, size: size * MIB, handle: model.next });
            at += size * MIB;
        }
        for size in [4, 2, 4, 2, 4, 2, 6, tail] {
            model.alloc(size * MIB, 0);
        }
        let free: Vec<u64> = [0, 6, 12, 18, 24].map(|offset| BASE + offset * MIB).into();
        for addr in &free {
            model.free(model.live.iter().position(|(live, _)| live == addr).expect("it is live"));
        }
        model.step(&Action::Seal);
        model.step(&Action::Retire { lag: 0, seen: true });
        for addr in [18, 20, 22].map(|offset| BASE + offset * MIB) {
            let piece = model.heap.take_piece(addr).expect("it is free");
            model.unmap(piece);
            model.handles.remove(&piece.handle);
            model.heap.lose(piece.size);
        }
        model.check();
        let plan = model.heap.plan(need * MIB, 0, model.completed).expect("there are addresses");
        assert_eq!((plan.fresh(), plan.moves.len()), (0, (need as usize - 2).div_ceil(4)), "{plan:?}");
        model.heap.abandon(plan);
        model.check();
    }
}
