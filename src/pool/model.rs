//! A naive heap: a list of what is live and what was freed when. Every answer of the real one is held against it, for
//! random actions of proptest (`tests/random.rs`) and of the coverage-guided fuzzer (`fuzz/`).

use super::bins::Bins;
use super::classes::class;
use super::record::NONE;
use super::{BlockState, Claim, Claimed, Epoch, Fit, GRANULE, Heap, Index, PAGE, Rules};
use std::cell::Cell;

const MIB: u64 = 1 << 20;

/// What one step of a random run does.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each variant says what its fields are")]
pub enum Action {
    /// Asks for `bytes`, from a block of nearly that size only if `tight`.
    Alloc { bytes: u64, tight: bool },
    /// Frees the `which`-th live block, or keeps the claim for later.
    Free { which: usize, late: bool },
    /// Hands a kept claim in.
    Deliver,
    /// Frees a block that was freed before.
    FreeAgain { which: usize },
    /// Frees an address inside a live block.
    FreeInside { which: usize, offset: u64 },
    /// Frees an address that is not the pool's.
    FreeForeign { addr: u64 },
    /// The next epoch begins.
    Seal,
    /// All but the newest `lag` epochs are over.
    Retire { lag: u64 },
    /// Gives all idle regions back.
    GiveBack,
    /// Takes an idle region out and puts it back pending, as when the driver refuses to free it.
    Refuse { which: usize },
    /// Empty slabs become free blocks.
    Flush,
    /// The context ends.
    Clear,
}

#[derive(Debug)]
struct Live {
    addr: u64,
    requested: u64,
    size: u64,
}

#[derive(Debug)]
struct Freed {
    addr: u64,
    size: u64,
    epoch: Epoch,
}

thread_local! {
    /// The index of the last run: it lasts for ever, and a fuzzer makes millions of runs. Lost where a check fails.
    static INDEX: Cell<Option<&'static Index>> = const { Cell::new(None) };
}

/// Bytes of one action.
pub const ACTION: usize = 4;

/// Plays the actions in `bytes` on an empty heap; the first byte chooses its rules.
///
/// # Panics
/// If any answer of the heap is wrong, or an invariant does not hold.
pub fn play(bytes: &[u8]) {
    let Some((first, actions)) = bytes.split_first() else { return };
    let whole = Rules { max_split: 20 * MIB, max_non_split_rounding: 3 * MIB };
    let mut model = Model::new(if first % 2 == 0 { Rules::default() } else { whole });
    for action in actions.chunks_exact(ACTION) {
        model.step(&Action::of([action[0], action[1], action[2], action[3]]));
    }
    model.finish();
}

impl Action {
    fn of([what, a, b, c]: [u8; ACTION]) -> Action {
        let which = usize::from(a) << 8 | usize::from(b);
        let n = u64::from(b) << 8 | u64::from(c);
        match what % 32 {
            0..11 => {
                let bytes = match a % 8 {
                    0 => 1 + n % 1024,
                    1 | 2 => 1 + n % 40_000,
                    3 => 30_000 + n * 9,
                    4 => 1 + n * 48,
                    5 => n * 512 + 512,
                    6 => (1 + n % 40) * MIB,
                    _ => MIB + n * 600,
                };
                Action::Alloc { bytes, tight: a >= 200 }
            }
            11..20 => Action::Free { which, late: c >= 224 },
            20 => Action::Deliver,
            21 => Action::FreeAgain { which },
            22 => Action::FreeInside { which, offset: u64::from(c) * 331 },
            23 => Action::FreeForeign { addr: u64::from(a) << 36 | n << 8 },
            24 | 25 => Action::Seal,
            26 | 27 => Action::Retire { lag: u64::from(a % 4) },
            28 => Action::GiveBack,
            29 => Action::Refuse { which },
            30 => Action::Flush,
            _ => Action::Clear,
        }
    }
}

/// The run.
pub struct Model {
    heap: Heap,
    index: &'static Index,
    rules: Rules,
    live: Vec<Live>,
    freed: Vec<Freed>,
    late: Vec<(Claimed, Live)>,
    gone: Vec<u64>,
    regions: Vec<(u64, u64)>,
    next: u64,
    epoch: Epoch,
    retired: Epoch,
}

impl Model {
    /// An empty heap.
    pub fn new(rules: Rules) -> Model {
        let index = INDEX.take().unwrap_or_else(|| Box::leak(Box::new(Index::new())));
        Model {
            heap: Heap::new(7, index, rules),
            index,
            rules,
            live: Vec::new(),
            freed: Vec::new(),
            late: Vec::new(),
            gone: Vec::new(),
            regions: Vec::new(),
            next: 0x7f00_0000_0000,
            epoch: 1,
            retired: 0,
        }
    }

    /// Does one action, and checks everything after it.
    ///
    /// # Panics
    /// If any answer of the heap is wrong, or an invariant does not hold.
    pub fn step(&mut self, action: &Action) {
        match *action {
            Action::Alloc { bytes, tight } => self.alloc(bytes, tight),
            Action::Free { which, late } => self.free(which, late),
            Action::Deliver => {
                if let Some((claimed, live)) = self.late.pop() {
                    self.give(claimed, &live);
                }
            }
            Action::FreeAgain { which } => {
                if let Some(&addr) = pick(&self.gone, which) {
                    let known =
                        self.regions.iter().any(|(start, size)| (*start..start + size).contains(&addr));
                    let live = self.live.iter().any(|live| live.addr == addr);
                    if !live {
                        match self.claim(addr) {
                            Claim::NotLive { owner: 7 } => assert!(known),
                            Claim::Interior { owner: 7, start } => {
                                assert!(
                                    self.live
                                        .iter()
                                        .any(|live| live.addr == start && addr < start + live.size)
                                );
                            }
                            Claim::Foreign => assert!(!known),
                            other => panic!("double free of {addr:#x} gave {other:?}"),
                        }
                    }
                }
            }
            Action::FreeInside { which, offset } => {
                if let Some(live) = pick(&self.live, which) {
                    let (start, inside) = (live.addr, live.addr + 1 + offset % (live.size - 1));
                    let found = self.claim(inside);
                    assert!(
                        matches!(found, Claim::Interior { owner: 7, start: at } if at == start),
                        "{inside:#x} in {start:#x} gave {found:?}"
                    );
                }
            }
            Action::FreeForeign { addr } => assert!(matches!(self.claim(addr), Claim::Foreign)),
            Action::Seal => self.epoch += 1,
            Action::Retire { lag } => {
                self.retired = self.retired.max((self.epoch - 1).saturating_sub(lag));
                self.heap.retire(self.retired);
            }
            Action::GiveBack => self.give_back(),
            Action::Refuse { which } => self.refuse(which),
            Action::Flush => self.heap.flush_slabs(),
            Action::Clear => {
                self.heap.clear();
                self.gone.extend(self.live.drain(..).map(|live| live.addr));
                self.freed.clear();
                self.regions.clear();
            }
        }
        self.check();
    }

    /// The end of a run in which everything held.
    pub fn finish(self) {
        INDEX.set(Some(self.index));
    }

    fn claim(&self, addr: u64) -> Claim {
        match self.index.claim(addr) {
            Claim::Ask { owner } => {
                assert_eq!(owner, 7);
                self.heap.claim(addr)
            }
            decided => decided,
        }
    }

    fn alloc(&mut self, bytes: u64, tight: bool) {
        let rounded = bytes.next_multiple_of(GRANULE);
        let fit = match (tight, bytes.is_multiple_of(2)) {
            (true, true) => Fit::Tight,
            (true, false) => Fit::Begun,
            (false, _) => Fit::Any,
        };
        let largest = |bins: &Bins| bins.largest(self.heap.arena);
        let before = largest(&self.heap.holes).max(largest(&self.heap.wholes));
        let mut addr = self.heap.alloc(bytes, rounded, fit, self.retired);
        if addr.is_none() && !tight {
            assert!(
                self.rules.max_split < u64::MAX || before < rounded,
                "{before} clean in one piece, and none for {rounded}"
            );
            addr = self.wait(bytes, rounded);
        }
        if addr.is_none() && !tight {
            let growth = self.heap.growth(bytes);
            assert!(
                growth.minimum >= rounded
                    && growth.minimum.is_multiple_of(PAGE)
                    && growth.preferred.is_multiple_of(PAGE)
            );
            // Not always a neighbour of the last one, not always the preferred size.
            let size = if bytes.is_multiple_of(3) { growth.minimum } else { growth.preferred };
            self.next += if bytes.is_multiple_of(2) { 0 } else { 6 * MIB };
            assert!(self.heap.add_region(self.next, size));
            self.regions.push((self.next, size));
            self.next += size;
            addr = self.heap.alloc(bytes, rounded, Fit::Any, self.retired);
            assert!(addr.is_some(), "the region made for {bytes} does not serve it");
        }
        let Some(addr) = addr else { return };
        let view = self.heap.find(addr).expect("a block that was just handed out");
        assert_eq!((view.start, view.state, view.requested), (addr, BlockState::Live, bytes));
        assert!(addr.is_multiple_of(GRANULE) && view.size >= rounded);
        let end = addr + view.size;
        assert!(self.regions.iter().any(|(start, size)| *start <= addr && end <= start + size), "outside");
        for other in self.live.iter().chain(self.late.iter().map(|(_, live)| live)) {
            assert!(end <= other.addr || other.addr + other.size <= addr, "{addr:#x} overlaps {other:?}");
        }
        for old in &self.freed {
            let apart = end <= old.addr || old.addr + old.size <= addr;
            assert!(apart || old.epoch <= self.retired, "{addr:#x} reuses {old:?} before its epoch is over");
        }
        self.live.push(Live { addr, requested: bytes, size: view.size });
    }

    /// What the heap says about waiting, tried out.
    fn wait(&mut self, bytes: u64, rounded: u64) -> Option<u64> {
        let needed = self.heap.epoch_needed(rounded);
        if let Some(needed) = needed {
            assert!(needed > self.retired && needed <= self.epoch);
            // Nothing earlier would do, unless the rules make joined blocks too large.
            if needed - 1 > self.retired {
                self.retired = needed - 1;
                let early = self.heap.alloc(bytes, rounded, Fit::Any, self.retired);
                assert!(
                    early.is_none() || self.rules.max_split < u64::MAX,
                    "{needed} is not the first that serves"
                );
                if early.is_some() {
                    return early;
                }
            }
            self.retired = needed;
            let addr = self.heap.alloc(bytes, rounded, Fit::Any, self.retired);
            assert!(addr.is_some(), "epoch {needed} is over and does not serve {rounded}");
            return addr;
        }
        if bytes.is_multiple_of(5) {
            self.retired = self.retired.max(self.epoch - 1);
            let addr = self.heap.alloc(bytes, rounded, Fit::Any, self.retired);
            let pending = self.freed.iter().any(|old| old.epoch > self.retired);
            assert!(
                addr.is_none() || pending || self.rules.max_split < u64::MAX,
                "waiting serves {rounded} after all"
            );
            return addr;
        }
        None
    }

    fn free(&mut self, which: usize, late: bool) {
        if self.live.is_empty() {
            return;
        }
        let live = self.live.swap_remove(which % self.live.len());
        let Claim::Claimed(claimed) = self.claim(live.addr) else { panic!("{live:?} cannot be freed") };
        assert_eq!((claimed.addr(), claimed.owner()), (live.addr, 7));
        assert_eq!((claimed.size(), claimed.requested()), (live.size, live.requested));
        self.gone.push(live.addr);
        if late {
            self.late.push((claimed, live));
        } else {
            self.give(claimed, &live);
        }
    }

    fn give(&mut self, claimed: Claimed, live: &Live) {
        self.heap.free(claimed, self.epoch);
        self.freed.push(Freed { addr: live.addr, size: live.size, epoch: self.epoch });
    }

    fn give_back(&mut self) {
        let mut idle = Vec::new();
        self.heap.idle_regions(&mut idle);
        for (start, size) in self.regions.clone() {
            let inside = |addr: u64| (start..start + size).contains(&addr);
            let busy =
                self.live.iter().chain(self.late.iter().map(|(_, live)| live)).any(|live| inside(live.addr));
            let found = idle.iter().find(|idle| idle.addr == start);
            assert_eq!(found.is_none(), busy, "region {start:#x}");
            if busy {
                assert_eq!(self.heap.take_region(start), None);
                continue;
            }
            assert_eq!(self.heap.take_region(start), Some(size));
            self.regions.retain(|region| region.0 != start);
            self.freed.retain(|old| !inside(old.addr));
        }
    }

    /// The largest free piece by what is live: a slab with a live object is a whole that nothing is cut from.
    fn largest_free(&self) -> u64 {
        let mut pieces = vec![0];
        for &(addr, size) in &self.regions {
            let held = self.live.iter().chain(self.late.iter().map(|(_, live)| live));
            let inside = held.filter(|live| (addr..addr + size).contains(&live.addr));
            let mut taken: Vec<(u64, u64)> = inside.map(|live| self.block_of(live.addr)).collect();
            taken.sort_unstable();
            taken.dedup();
            taken.push((addr + size, 0));
            let mut end = addr;
            for (start, size) in taken {
                pieces.push(start - end);
                end = start + size;
            }
        }
        let slabs = self.heap.slabs.iter().filter(|slab| slab.block != NONE && slab.live < slab.capacity);
        pieces.extend(slabs.map(|slab| u64::from(class(slab.class).size)));
        pieces.into_iter().max().unwrap_or(0)
    }

    /// Start and size of the block at `addr`, which may be a slab.
    fn block_of(&self, addr: u64) -> (u64, u64) {
        let (regions, arena) = (&self.heap.regions, self.heap.arena);
        let slot = regions.slot_of(addr).expect("in a region");
        let mut id = regions.get(slot).expect("known").first;
        while arena.get(id).end() <= addr {
            id = arena.get(id).next();
        }
        (arena.get(id).addr(), arena.get(id).size())
    }

    fn refuse(&mut self, which: usize) {
        let mut idle = Vec::new();
        self.heap.idle_regions(&mut idle);
        let Some(region) = pick(&idle, which) else { return };
        assert_eq!(self.heap.take_region(region.addr), Some(region.size));
        assert!(self.heap.add_region_pending(region.addr, region.size, self.epoch));
        self.freed.push(Freed { addr: region.addr, size: region.size, epoch: self.epoch });
    }

    fn check(&self) {
        if let Err(broken) = self.heap.check() {
            panic!("{broken}");
        }
        let usage = self.heap.usage();
        let held = || self.live.iter().chain(self.late.iter().map(|(_, live)| live));
        // What a cleared heap forgot may still be on its way in.
        if self.late.iter().all(|(_, live)| self.heap.find(live.addr).is_some()) {
            assert_eq!(usage.requested.current, held().map(|live| live.requested).sum::<u64>());
            assert_eq!(usage.allocated.current, held().map(|live| live.size).sum::<u64>());
            assert_eq!(usage.live_blocks, held().count() as u64);
        }
        assert_eq!(
            (usage.requested, usage.allocated, usage.reserved, usage.idle, usage.pending),
            (
                self.heap.requested(),
                self.heap.allocated(),
                self.heap.reserved(),
                self.heap.idle(),
                self.heap.pending()
            )
        );
        assert!(self.heap.newest_pending().is_none_or(|newest| newest <= self.epoch));
        assert_eq!(usage.reserved.current, self.regions.iter().map(|(_, size)| size).sum::<u64>());
        assert_eq!(usage.largest_free, self.largest_free());
        let snapshot = self.heap.snapshot();
        assert_eq!(snapshot.len(), self.regions.len());
        for region in snapshot {
            assert_eq!(region.blocks.iter().map(|block| block.size).sum::<u64>(), region.size);
        }
        for live in &self.live {
            for probe in [live.addr, live.addr + live.size / 2, live.addr + live.size - 1] {
                let view = self.heap.find(probe).expect("inside a live block");
                assert_eq!((view.start, view.size, view.state), (live.addr, live.size, BlockState::Live));
            }
        }
    }
}

fn pick<T>(from: &[T], which: usize) -> Option<&T> {
    from.get(which.checked_rem(from.len())?)
}
