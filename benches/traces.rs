//! The pool on the allocations of real training jobs: how much memory it takes from the driver, and how long a pair of
//! alloc and free takes. `cargo bench --bench traces`; no GPU is needed, the driver is a counter.
//!
//! Each trace is played twice into one heap, as two phases of one program; what lives at the end of the first is freed.
//! The driver hands out fresh addresses. Before a growth that would raise the high-water mark, idle regions go back,
//! smallest first. `lag N` means that the GPU is N frees behind: what was freed since is pending. The pool waits for it
//! before it grows; with `wait N` also when no clean block is a tight fit and the last wait is at least N allocations
//! ago, so that it need not cut a larger block.

#![allow(missing_docs)]

#[path = "common/player.rs"]
mod player;
#[path = "common/trace.rs"]
mod trace;

use std::time::Instant;

use player::Player;
use trace::{MODES, Op, PACKED, TRACES, parse};

const TIMED_RUNS: usize = 5;

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
        player.end_phase(ops.len());
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
    for (name, packed) in TRACES.into_iter().chain(PACKED) {
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
        player.end_phase(ops.len());
        let start = Instant::now();
        player.play(ops);
        means.push(start.elapsed().as_nanos() as u64 / pairs as u64);
    }
    means.sort_unstable();
    let mut player = Player::new(MODES[0], ops.len());
    player.play(ops);
    player.end_phase(ops.len());
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
