//! The pool on the allocations of real training jobs: how much memory it takes from the driver, and how long a pair of
//! alloc and free takes. `cargo bench --bench traces`; no GPU is needed, the driver is a counter.
//!
//! Each trace is played twice into one heap, as two phases of one program; what lives at the end of the first is freed.
//! The driver hands out fresh addresses. Before a growth that would raise the high-water mark, idle regions go back,
//! smallest first. `lag N` means that the GPU is N frees behind: what was freed since is pending. The pool waits for it
//! before it grows; with `wait N` also when no clean block is a tight fit and the last wait is at least N allocations
//! ago, so that it need not cut a larger block.

#![allow(missing_docs)]

#[path = "common/trace.rs"]
mod trace;

use std::time::Instant;

use gpucache::pool::{
    CACHED_MAX, Cache, Caches, Claim, Drain, Fit, Freed, Heap, Index, Popped, Rules, SMALL_MAX, cached_need,
};
use trace::{MODES, Op, TRACES, parse};

/// Requests between two drains for the sake of a tighter fit.
const SERVED_PER_DRAIN: u64 = 4;
const TIMED_RUNS: usize = 5;

/// The pool of one run, with its driver and what it cost.
struct Player {
    heap: Heap,
    index: &'static Index,
    caches: &'static Caches,
    cache: &'static Cache,
    lag: u64,
    spacing: u64,
    since_wait: u64,
    since_drain: u64,
    waited: u64,
    frees: u64,
    live: u64,
    live_peak: u64,
    next_region: u64,
    grown: u32,
    given_back: u32,
    waits: u32,
    /// Address and bytes by the trace's number.
    held: Vec<(u64, u64)>,
}

impl Player {
    fn new((lag, spacing): (u64, u64), ids: usize) -> Player {
        let index: &'static Index = Box::leak(Box::new(Index::new()));
        let caches: &'static Caches = Box::leak(Box::new(Caches::new(0, index)));
        Player {
            heap: Heap::new(0, index, Rules::default()),
            index,
            caches,
            cache: caches.enter().expect("the first cache"),
            lag,
            spacing,
            since_wait: 0,
            since_drain: 0,
            waited: 0,
            frees: 0,
            live: 0,
            live_peak: 0,
            next_region: 0x7f00_0000_0000,
            grown: 0,
            given_back: 0,
            waits: 0,
            held: vec![(0, 0); ids],
        }
    }

    fn retired(&self) -> u64 {
        self.frees.saturating_sub(self.lag).max(self.waited)
    }

    fn alloc(&mut self, id: usize, bytes: u64) {
        self.since_wait += 1;
        self.since_drain += 1;
        let addr = self.serve(bytes);
        self.held[id] = (addr, bytes);
        self.live += bytes;
        self.live_peak = self.live_peak.max(self.live);
    }

    fn drain(&mut self, which: Drain) {
        let now = self.frees;
        self.caches.drain(&mut self.heap, which, || now);
    }

    /// What the server does, but for its locks, and for asking the driver what is over.
    fn serve(&mut self, bytes: u64) -> u64 {
        let retired = self.retired();
        let need = cached_need(bytes);
        let mut lend = false;
        if need <= CACHED_MAX {
            let mut popped = self.cache.pop(need, bytes, retired);
            if popped == Popped::Empty && self.caches.refill(self.cache, need, retired) {
                popped = self.cache.pop(need, bytes, retired);
            }
            if let Popped::Block(addr) = popped {
                return addr;
            }
            lend = popped == Popped::Empty;
        }
        self.heap.settle(self.cache);
        let mut addr = None;
        if self.since_wait >= self.spacing && bytes > SMALL_MAX {
            addr = self.heap.alloc(bytes, bytes, Fit::Tight, retired);
            if addr.is_none() && need > CACHED_MAX && self.since_drain >= SERVED_PER_DRAIN {
                self.since_drain = 0;
                self.drain(Drain::Like(bytes));
                addr = self.heap.alloc(bytes, bytes, Fit::Tight, retired);
            }
            if addr.is_none() && retired < self.frees {
                self.wait(self.frees);
            }
        }
        let retired = self.retired();
        if addr.is_none() && need > CACHED_MAX && self.since_drain >= SERVED_PER_DRAIN {
            addr = self.heap.alloc(bytes, bytes, Fit::Tight, retired);
            if addr.is_none() {
                self.since_drain = 0;
                self.drain(Drain::Like(bytes));
            }
        }
        let addr = addr.or_else(|| self.heap.alloc(bytes, bytes, Fit::Any, retired));
        let Some(addr) = addr else { return self.miss(bytes) };
        if lend {
            self.heap.lend(self.cache, addr, need);
        }
        addr
    }

    fn wait(&mut self, epoch: u64) {
        self.waits += 1;
        self.since_wait = 0;
        self.waited = self.waited.max(epoch);
    }

    /// What the ladder above the pool does: drain, wait, give idle regions back, grow.
    #[cold]
    fn miss(&mut self, bytes: u64) -> u64 {
        self.drain(Drain::All);
        let retired = self.retired();
        if let Some(addr) = self.heap.alloc(bytes, bytes, Fit::Any, retired) {
            return addr;
        }
        if let Some(epoch) = self.heap.epoch_needed(bytes) {
            self.wait(epoch);
            if let Some(addr) = self.heap.alloc(bytes, bytes, Fit::Any, epoch) {
                return addr;
            }
        }
        let growth = self.heap.growth(bytes);
        let mark = self.heap.usage().reserved.peak;
        let mut idle = Vec::new();
        self.heap.idle_regions(&mut idle);
        idle.sort_unstable_by_key(|idle| (idle.size, idle.addr));
        for idle in idle {
            if self.heap.usage().reserved.current + growth.preferred <= mark {
                break;
            }
            self.heap.take_region(idle.addr);
            self.given_back += 1;
        }
        self.grown += 1;
        assert!(self.heap.add_region(self.next_region, growth.preferred));
        self.next_region += growth.preferred;
        self.heap.alloc(bytes, bytes, Fit::Any, 0).expect("the new region serves")
    }

    fn free(&mut self, id: usize) {
        let (addr, bytes) = std::mem::take(&mut self.held[id]);
        self.frees += 1;
        self.live -= bytes;
        let cache = self.cache;
        let claim = match self.index.keep(addr, |_| Some(cache)) {
            Freed::Kept(kept) => {
                kept.put(self.frees);
                return;
            }
            Freed::Claimed(claimed) => Claim::Claimed(claimed),
            Freed::No => match self.index.claim(addr) {
                Claim::Ask { .. } => self.heap.claim(addr),
                decided => decided,
            },
        };
        let Claim::Claimed(claimed) = claim else { panic!("{addr:#x} gave {claim:?}") };
        let batch = self.caches.relieve(cache, claimed.size());
        self.heap.settle(cache);
        self.heap.free(claimed, self.frees);
        if let Some(batch) = batch {
            self.heap.take_batch(&batch);
        }
        if self.lag == 0 {
            self.heap.retire(self.frees);
        }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Alloc { id, bytes } => self.alloc(id, bytes),
            Op::Free { id } => self.free(id),
        }
    }

    fn play(&mut self, ops: &[Op]) {
        for op in ops {
            self.step(*op);
        }
    }

    fn end_phase(&mut self) {
        for id in 0..self.held.len() {
            if self.held[id].0 != 0 {
                self.free(id);
            }
        }
    }
}

/// `time` as an argument leaves the memory out and repeats the timing; `ratios` prints nothing but what
/// `scripts/bench.sh` holds against limits.
fn main() {
    if std::env::args().any(|word| word == "ratios") {
        ratios();
        return;
    }
    let timing = std::env::args().any(|word| word == "time");
    if !timing {
        memory();
    }
    println!(
        "time (second phase)   mean ns a pair   alloc p50  p99   free p50  p99 (timer of ~{} ns taken off)",
        timer()
    );
    for (name, packed) in TRACES {
        time(name, &parse(packed), if timing { 40 * TIMED_RUNS } else { TIMED_RUNS });
    }
    println!("\nlive blocks   mean ns a pair (random sizes of 1 B to 1 MiB, replacing random blocks)");
    for live in [100, 1_000, 10_000, 100_000] {
        println!("{live:>11} {:>16}", scale(live));
    }
}

/// A pair's mean time with so many other blocks live, in ns: must not grow but for cache misses.
fn scale(live: usize) -> u64 {
    const PAIRS: u64 = 200_000;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % below
    };
    let mut player = Player::new(MODES[0], live);
    for id in 0..live {
        let bytes = random(20);
        let bytes = 1 + random(2 << bytes);
        player.alloc(id, bytes);
    }
    let mut round = |player: &mut Player, pairs: u64| {
        for _ in 0..pairs {
            let id = random(live as u64) as usize;
            let bytes = random(20);
            let bytes = 1 + random(2 << bytes);
            player.free(id);
            player.alloc(id, bytes);
        }
    };
    round(&mut player, PAIRS);
    let start = Instant::now();
    round(&mut player, PAIRS);
    start.elapsed().as_nanos() as u64 / PAIRS
}

/// Plays a trace twice into one pool. Gives it back with peak of reserved over peak of live bytes after each phase, and
/// with the regions taken and given back and the waits until then.
fn pack(ops: &[Op], mode: (u64, u64)) -> (Player, [f64; 2], [(u32, u32, u32); 2]) {
    let mut player = Player::new(mode, ops.len());
    let mut ratios = [0.0; 2];
    let mut counts = [(0, 0, 0); 2];
    for phase in 0..2 {
        player.play(ops);
        ratios[phase] = player.heap.usage().reserved.peak as f64 / player.live_peak as f64;
        counts[phase] = (player.grown, player.given_back, player.waits);
        player.end_phase();
    }
    player.heap.check_with(Some(player.caches)).expect("the heap is sound");
    (player, ratios, counts)
}

fn wait_name(spacing: u64) -> String {
    if spacing == u64::MAX { "late".into() } else { spacing.to_string() }
}

/// Lines of backing, trace, lag, wait and the ratio after both phases: for a GPU that keeps up, and for one far behind.
fn ratios() {
    for (name, packed) in TRACES {
        let ops = parse(packed);
        for mode in [MODES[0], MODES[5]] {
            let (_, ratios, _) = pack(&ops, mode);
            println!("segments\t{name}\t{}\t{}\t{:.3}", mode.0, wait_name(mode.1), ratios[1]);
        }
    }
}

fn memory() {
    println!("memory     lag  wait  peak live MiB  reserved  ratio  again   grown   given back    waits");
    for (name, packed) in TRACES {
        let ops = parse(packed);
        for mode in MODES {
            let (player, ratios, counts) = pack(&ops, mode);
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            let [first, all] = counts;
            println!(
                "{name:<8} {:>5} {:>5} {:>14.1} {:>9.1} {:>6.3} {:>6.3} {:>5}+{:<4} {:>5}+{:<4} {:>5}+{}",
                mode.0,
                wait_name(mode.1),
                mib(player.live_peak),
                mib(player.heap.usage().reserved.peak),
                ratios[0],
                ratios[1],
                first.0,
                all.0 - first.0,
                first.1,
                all.1 - first.1,
                first.2,
                all.2 - first.2
            );
        }
    }
    println!();
}

/// What reading the clock costs, in ns: the median of many.
fn timer() -> u64 {
    let mut costs: Vec<u64> = (0..10_001)
        .map(|_| {
            let start = Instant::now();
            start.elapsed().as_nanos() as u64
        })
        .collect();
    costs.sort_unstable();
    costs[costs.len() / 2]
}

fn time(name: &str, ops: &[Op], runs: usize) {
    let pairs = ops.iter().filter(|op| matches!(op, Op::Alloc { .. })).count();
    let mut means = Vec::new();
    for _ in 0..runs {
        let mut player = Player::new(MODES[0], ops.len());
        player.play(ops);
        player.end_phase();
        let start = Instant::now();
        player.play(ops);
        means.push(start.elapsed().as_nanos() as u64 / pairs as u64);
    }
    means.sort_unstable();
    let mut player = Player::new(MODES[0], ops.len());
    player.play(ops);
    player.end_phase();
    let (mut allocs, mut frees) = (Vec::with_capacity(ops.len()), Vec::with_capacity(ops.len()));
    let overhead = timer();
    for op in ops {
        let start = Instant::now();
        player.step(*op);
        let took = (start.elapsed().as_nanos() as u64).saturating_sub(overhead);
        if matches!(op, Op::Alloc { .. }) { &mut allocs } else { &mut frees }.push(took);
    }
    let at = |times: &mut Vec<u64>, percent: usize| {
        times.sort_unstable();
        times[times.len() * percent / 100]
    };
    println!(
        "{name:<22} {:>13} {:>11} {:>4} {:>10} {:>4}",
        means[runs / 2],
        at(&mut allocs, 50),
        at(&mut allocs, 99),
        at(&mut frees, 50),
        at(&mut frees, 99)
    );
}
