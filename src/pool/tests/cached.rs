//! The heap with caches in front, as the server uses them: random actions of four simulated threads against a naive list,
//! and the cases that have a name.

use proptest::prelude::*;

use super::super::{
    CACHED_MAX, Cache, Caches, Claim, Drain, Epoch, Fit, Freed, Heap, Index, Popped, Rules, cached_need,
};
use super::{MIB, index};

const THREADS: usize = 4;

#[derive(Clone, Debug)]
pub enum Step {
    Alloc {
        thread: usize,
        bytes: u64,
    },
    Free {
        thread: usize,
        which: usize,
    },
    FreeAgain {
        which: usize,
    },
    Seal,
    Retire {
        lag: u64,
    },
    Drain {
        like: Option<u64>,
    },
    DrainOne {
        bytes: u64,
    },
    /// The thread ends; the next thing that it does is another thread's first.
    End {
        thread: usize,
    },
    GiveBack,
    Clear,
}

struct Freedom {
    addr: u64,
    size: u64,
    epoch: Epoch,
}

pub struct Run {
    pub heap: Heap,
    pub index: &'static Index,
    pub caches: &'static Caches,
    threads: [Option<&'static Cache>; THREADS],
    /// Address, requested bytes and size.
    pub live: Vec<(u64, u64, u64)>,
    freed: Vec<Freedom>,
    gone: Vec<u64>,
    next: u64,
    pub epoch: Epoch,
    pub retired: Epoch,
    peak: u64,
    allocs: u64,
}

impl Run {
    pub fn new() -> Run {
        let index = index();
        Run {
            heap: Heap::new(3, index, Rules::default()),
            index,
            caches: Box::leak(Box::new(Caches::new(3, index))),
            threads: [None; THREADS],
            live: Vec::new(),
            freed: Vec::new(),
            gone: Vec::new(),
            next: 0x7f00_0000_0000,
            epoch: 1,
            retired: 0,
            peak: 0,
            allocs: 0,
        }
    }

    pub fn cache(&mut self, thread: usize) -> &'static Cache {
        let caches = self.caches;
        self.threads[thread].get_or_insert_with(|| caches.enter().expect("few threads"))
    }

    pub fn drain(&mut self, which: Drain) {
        let now = self.epoch;
        self.caches.drain(&mut self.heap, which, || now);
    }

    fn serve(&mut self, thread: usize, bytes: u64) -> u64 {
        let (cache, need) = (self.cache(thread), cached_need(bytes));
        let mut lend = false;
        if need <= CACHED_MAX {
            let mut popped = cache.pop(need, bytes, self.retired);
            if popped == Popped::Empty && self.caches.refill(cache, need, self.retired) {
                popped = cache.pop(need, bytes, self.retired);
                assert!(matches!(popped, Popped::Block(_)), "what came from the depot is clean");
            }
            if let Popped::Block(addr) = popped {
                return addr;
            }
            lend = popped == Popped::Empty;
        }
        self.heap.settle(cache);
        let mut addr = self.heap.alloc(bytes, bytes, Fit::Any, self.retired);
        if addr.is_none() {
            self.drain(Drain::All);
            addr = self.heap.alloc(bytes, bytes, Fit::Any, self.retired);
        }
        let addr = addr.unwrap_or_else(|| {
            let growth = self.heap.growth(bytes);
            assert!(self.heap.add_region(self.next, growth.preferred));
            self.next += growth.preferred;
            self.heap.alloc(bytes, bytes, Fit::Any, self.retired).expect("the new region serves")
        });
        if lend {
            self.heap.lend(cache, addr, need);
        }
        addr
    }

    pub fn alloc(&mut self, thread: usize, bytes: u64) {
        let addr = self.serve(thread, bytes);
        self.allocs += 1;
        let view = self.heap.find(addr).expect("a block that was just handed out");
        assert_eq!((view.start, view.requested), (addr, bytes));
        let end = addr + view.size;
        for (other, _, size) in &self.live {
            assert!(end <= *other || other + size <= addr, "{addr:#x} overlaps {other:#x}");
        }
        for old in &self.freed {
            let apart = end <= old.addr || old.addr + old.size <= addr;
            assert!(
                apart || old.epoch <= self.retired,
                "{addr:#x} is reused before epoch {} is over",
                old.epoch
            );
        }
        self.freed.retain(|old| old.epoch > self.retired);
        self.live.push((addr, bytes, view.size));
        self.peak = self.peak.max(self.live.iter().map(|(_, bytes, _)| bytes).sum());
    }

    pub fn free(&mut self, thread: usize, which: usize) {
        if self.live.is_empty() {
            return;
        }
        let (addr, _, size) = self.live.swap_remove(which % self.live.len());
        let cache = self.cache(thread);
        let claim = match self.index.keep(addr, |owner| (owner == 3).then_some(cache)) {
            Freed::Kept(kept) => {
                kept.put(self.epoch);
                None
            }
            Freed::Claimed(claimed) => Some(Claim::Claimed(claimed)),
            Freed::No => Some(match self.index.claim(addr) {
                Claim::Ask { .. } => self.heap.claim(addr),
                decided => decided,
            }),
        };
        if let Some(claim) = claim {
            let Claim::Claimed(claimed) = claim else { panic!("{addr:#x} is live, and gave {claim:?}") };
            let batch = self.caches.relieve(cache, size);
            self.heap.settle(cache);
            self.heap.free(claimed, self.epoch);
            if let Some(batch) = batch {
                self.heap.take_batch(&batch);
            }
        }
        self.freed.push(Freedom { addr, size, epoch: self.epoch });
        self.gone.push(addr);
    }

    pub fn step(&mut self, step: &Step) {
        match *step {
            Step::Alloc { thread, bytes } => self.alloc(thread % THREADS, bytes),
            Step::Free { thread, which } => self.free(thread % THREADS, which),
            Step::FreeAgain { which } => {
                let Some(&addr) = which.checked_rem(self.gone.len()).map(|at| &self.gone[at]) else { return };
                if self.live.iter().all(|(other, ..)| *other != addr) {
                    let cache = self.cache(0);
                    assert!(matches!(self.index.keep(addr, |_| Some(cache)), Freed::No), "freed twice");
                    assert!(!matches!(self.index.claim(addr), Claim::Claimed(_)), "freed twice");
                    assert!(!matches!(self.heap.claim(addr), Claim::Claimed(_)), "freed twice");
                }
            }
            Step::Seal => self.epoch += 1,
            Step::Retire { lag } => self.retired = self.retired.max((self.epoch - 1).saturating_sub(lag)),
            Step::Drain { like } => self.drain(like.map_or(Drain::All, Drain::Like)),
            Step::DrainOne { bytes } => self.drain(Drain::One { bytes, retired: self.retired }),
            Step::End { thread } => {
                if let Some(cache) = self.threads[thread % THREADS].take() {
                    cache.leave();
                }
            }
            Step::GiveBack => {
                self.drain(Drain::All);
                let mut idle = Vec::new();
                self.heap.idle_regions(&mut idle);
                for region in idle {
                    assert_eq!(self.heap.take_region(region.addr), Some(region.size));
                    self.freed.retain(|old| !(region.addr..region.addr + region.size).contains(&old.addr));
                }
            }
            Step::Clear => {
                self.caches.clear(&mut self.heap);
                self.live.clear();
                self.freed.clear();
            }
        }
        self.check();
    }

    fn check(&self) {
        self.heap.check_with(Some(self.caches)).unwrap();
        assert!(self.caches.are_counted());
        let mut usage = self.heap.usage();
        self.caches.add_to(&mut usage);
        assert_eq!(usage.requested.current, self.live.iter().map(|(_, bytes, _)| bytes).sum::<u64>());
        assert_eq!(usage.allocated.current, self.live.iter().map(|(.., size)| size).sum::<u64>());
        assert_eq!(usage.live_blocks, self.live.len() as u64);
        assert!(usage.requested.peak <= usage.allocated.peak);
        assert!(self.heap.clock() + self.caches.allocs() >= self.allocs);
    }

    /// Everything that is freed can go back, wherever it was cached.
    pub fn end(&mut self) {
        while !self.live.is_empty() {
            self.free(1, 0);
        }
        self.step(&Step::GiveBack);
        assert_eq!(self.heap.reserved().current, 0, "nothing is stranded");
    }
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![5 => Just(512u64), 3 => 1..5_000u64, 2 => 1..33_000u64, 2 => Just(300_000u64), 1 => 33_000..2 * MIB];
    prop_oneof![
        14 => (0..THREADS, bytes).prop_map(|(thread, bytes)| Step::Alloc { thread, bytes }),
        14 => (0..THREADS, any::<usize>()).prop_map(|(thread, which)| Step::Free { thread, which }),
        1 => any::<usize>().prop_map(|which| Step::FreeAgain { which }),
        3 => Just(Step::Seal),
        3 => (0..3u64).prop_map(|lag| Step::Retire { lag }),
        1 => proptest::option::of(1..MIB).prop_map(|like| Step::Drain { like }),
        1 => (1..2 * MIB).prop_map(|bytes| Step::DrainOne { bytes }),
        1 => (0..THREADS).prop_map(|thread| Step::End { thread }),
        1 => Just(Step::GiveBack),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_actions_breaks_the_heap_behind_caches(steps in prop::collection::vec(step(), 1..300)) {
        let mut run = Run::new();
        for step in &steps {
            run.step(step);
        }
        run.end();
    }

    #[test]
    fn the_peak_of_one_thread_is_exact(steps in prop::collection::vec(step(), 1..200)) {
        let mut run = Run::new();
        for step in &steps {
            match *step {
                Step::Alloc { bytes, .. } => run.step(&Step::Alloc { thread: 0, bytes }),
                Step::Free { which, .. } => run.step(&Step::Free { thread: 0, which }),
                Step::End { .. } => {}
                ref other => run.step(other),
            }
        }
        let mut usage = run.heap.usage();
        run.caches.add_to(&mut usage);
        prop_assert_eq!(usage.requested.peak, run.peak);
    }
}

#[test]
fn long_runs_with_overflows_and_cleared_heaps_keep_every_invariant() {
    for seed in 1..=4u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % below
        };
        let mut run = Run::new();
        for at in 0..4_000u64 {
            // Two threads that mostly allocate and two that mostly free, then the other way about, so that rings overflow.
            let swell = at / 400 % 2 == 0;
            let (makers, which) = (random(2) as usize, random(u64::MAX) as usize);
            let bytes = [512, 512, 4096, 20_000, 100_000, 100_512, MIB][random(7) as usize];
            run.step(&match random(100) {
                roll if roll < if swell { 60 } else { 20 } => Step::Alloc { thread: makers, bytes },
                roll if roll < 80 => Step::Free { thread: 2 + makers, which },
                80..83 => Step::FreeAgain { which },
                83..90 => Step::Seal,
                90..96 => Step::Retire { lag: random(3) },
                96 => Step::DrainOne { bytes },
                97 => Step::Drain { like: Some(bytes) },
                98 => Step::End { thread: which },
                _ if at % 40 == 39 => Step::Clear,
                _ => Step::Seal,
            });
        }
        run.end();
    }
}

#[test]
fn a_block_that_was_drained_and_came_back_is_not_taken_for_what_it_was() {
    let mut run = Run::new();
    for _ in 0..3 {
        run.alloc(0, 512);
    }
    run.free(0, 0);
    run.free(0, 0);
    // The first of them goes out by the heap, and comes back under a later epoch: its first cell must not give it away.
    run.drain(Drain::All);
    run.epoch = 9;
    run.retired = 8;
    let now = run.retired;
    let drained: Vec<u64> = (0..40).filter_map(|_| run.heap.alloc(512, 512, Fit::Any, now)).collect();
    let cache = run.cache(0);
    for &addr in &drained {
        if let Freed::Kept(kept) = run.index.keep(addr, |_| Some(cache)) {
            kept.put(9);
        }
    }
    assert!(matches!(cache.pop(512, 512, 8), Popped::Waiting(9)));
    assert!(matches!(cache.pop(512, 512, 9), Popped::Block(_)));
}

#[test]
fn what_one_thread_frees_another_gets_without_the_heap() {
    let mut run = Run::new();
    for _ in 0..400 {
        run.alloc(0, 4096);
    }
    for _ in 0..400 {
        run.free(1, 0);
    }
    run.retired = run.epoch;
    let served_by_heap = run.heap.clock();
    let cache = run.cache(2);
    let got = (0..320)
        .filter(|_| match cache.pop(4096, 4096, run.retired) {
            Popped::Block(_) => true,
            _ => run.caches.refill(cache, 4096, run.retired),
        })
        .count();
    assert_eq!((got, run.heap.clock()), (320, served_by_heap));
}

#[test]
fn the_most_since_the_last_look_is_that_of_caches_too() {
    let mut run = Run::new();
    for _ in 0..20 {
        run.alloc(0, 2048);
    }
    for _ in 0..20 {
        run.free(0, 0);
    }
    run.retired = run.epoch;
    assert_eq!(run.caches.take_recent(&mut run.heap), (20 * 2048, 20 * 2048));
    // Everything has gone into the cache, of which the heap has not heard.
    assert_eq!(run.caches.in_use(&run.heap), (0, 0));
    assert_eq!(run.caches.take_recent(&mut run.heap), (0, 0));
    let cache = run.cache(0);
    let hit = |need| matches!(cache.pop(need, 2000, run.retired), Popped::Block(_));
    assert!((0..5).all(|_| hit(2048)));
    assert_eq!(run.caches.in_use(&run.heap), (5 * 2000, 5 * 2048));
    assert_eq!(run.caches.take_recent(&mut run.heap), (5 * 2000, 5 * 2048));
    assert!(hit(2048));
    assert_eq!(run.caches.take_recent(&mut run.heap), (6 * 2000, 6 * 2048));
    // What was highest before is the peak's still.
    let mut usage = run.heap.usage();
    run.caches.add_to(&mut usage);
    assert_eq!((usage.requested.peak, usage.requested.recent), (20 * 2048, 6 * 2000));
}
