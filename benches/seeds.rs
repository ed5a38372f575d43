//! Placement is chaotic: a block more or a free later moves the peak of reserved memory by some per cent. So each trace is
//! played under small disturbances, and what counts is the distribution. `cargo bench --bench seeds [SEEDS] [--each] [--others]`.
//!
//! A seed holds some small blocks from the start, changes each size by up to a per cent (equal sizes alike), lets the
//! GPU be 0 to 20 frees behind, and every second one begins somewhere in the first half of the trace, with what lives there.
//! With `--others` each seed is another program of the kind: the tensors of every step have their sizes by a factor of the
//! step's own, half to a third more, but for what outlives the step. So a choice is not made for three programs alone.
//! Two phases each, as in `traces.rs`, with a wait at most every 24 allocations.

#![allow(missing_docs)]

#[path = "common/player.rs"]
mod player;
#[path = "common/trace.rs"]
mod trace;

use player::Player;
use std::time::Instant;
use trace::{Op, PACKED, TRACES, parse};

const SEEDS: u64 = 32;
const WAIT: u64 = 24;
const HELD: u64 = 64;

struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % below
    }
}

fn mixed(seed: u64) -> Random {
    let mut random = Random((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for _ in 0..8 {
        random.below(2);
    }
    random
}

/// The size, up to a per cent more or less; the same for the same size and seed.
fn jittered(bytes: u64, seed: u64) -> u64 {
    let share = mixed(bytes ^ seed << 40).below(bytes / 50 + 1);
    bytes - bytes / 100 + share
}

/// What lives before operation `begin`, in the order of its allocation, and then the rest.
fn begun_at(ops: &[Op], begin: usize) -> Vec<Op> {
    let mut freed: Vec<usize> = ops[..begin]
        .iter()
        .filter_map(|op| if let Op::Free { id } = op { Some(*id) } else { None })
        .collect();
    freed.sort_unstable();
    let lives = |op: &&Op| matches!(op, Op::Alloc { id, .. } if freed.binary_search(id).is_err());
    ops[..begin].iter().filter(lives).chain(&ops[begin..]).copied().collect()
}

/// Where the program's steps end: the least lives, of some hundreds of operations around.
fn step_ends(ops: &[Op]) -> Vec<usize> {
    const AROUND: usize = 500;
    let mut sizes = vec![0; ops.len()];
    let mut live = 0;
    let after = |op: &Op| {
        match *op {
            Op::Alloc { id, bytes } => {
                sizes[id] = bytes;
                live += bytes;
            }
            Op::Free { id } => live -= sizes[id],
        }
        live
    };
    let lives: Vec<u64> = ops.iter().map(after).collect();
    let mut ends: Vec<usize> = Vec::new();
    for at in 0..lives.len() {
        let around = &lives[at.saturating_sub(AROUND)..(at + AROUND).min(lives.len())];
        let apart = ends.last().is_none_or(|last| at > last + AROUND / 2);
        if apart && around.iter().min() == Some(&lives[at]) {
            ends.push(at);
        }
    }
    ends
}

/// Another program of the kind: each step's tensors by a factor of its own, but for what outlives it.
fn another(ops: &[Op], ends: &[usize], seed: u64) -> Vec<Op> {
    const OUTLIVES: usize = 3_000;
    const TENSOR: u64 = 256 << 10;
    let mut random = mixed(seed ^ 0x005c_a1ed);
    let per_cent: Vec<u64> = (0..=ends.len()).map(|_| 50 + random.below(80)).collect();
    let mut freed = vec![usize::MAX; ops.len()];
    for (at, op) in ops.iter().enumerate() {
        if let Op::Free { id } = op {
            freed[*id] = at;
        }
    }
    let scaled = |(at, op): (usize, &Op)| match *op {
        Op::Alloc { id, bytes } if bytes >= TENSOR && freed[id] < at + OUTLIVES => {
            let step = ends.partition_point(|end| *end <= at);
            Op::Alloc { id, bytes: bytes * per_cent[step] / 100 / 512 * 512 }
        }
        other => other,
    };
    ops.iter().enumerate().map(scaled).collect()
}

/// Plays two phases. Gives the player back with what the driver did in the second: calls, and nanoseconds.
fn disturbed(ops: &[Op], seed: u64) -> (Player, u32, u64) {
    let mut random = mixed(seed);
    let ids = ops.len();
    let mut player = Player::new((random.below(21), WAIT), ids + HELD as usize);
    for held in 0..random.below(HELD) {
        let bytes = 512 << random.below(12);
        player.alloc(ids + held as usize, bytes + random.below(bytes));
    }
    let begin = if seed % 2 == 1 { random.below(ops.len() as u64 / 2) as usize } else { 0 };
    let size = |op: &Op| match *op {
        Op::Alloc { id, bytes } => Op::Alloc { id, bytes: jittered(bytes, seed) },
        Op::Free { id } => Op::Free { id },
    };
    let ops: Vec<Op> = ops.iter().map(size).collect();
    player.play(&begun_at(&ops, begin));
    player.end_phase(ids);
    let (calls, ns) = (player.grown + player.given_back, player.driver_ns);
    player.play(&ops);
    let calls = player.grown + player.given_back - calls;
    let ns = player.driver_ns - ns;
    (player, calls, ns)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let seeds = words.iter().find_map(|word| word.parse().ok()).unwrap_or(SEEDS);
    let each = words.iter().any(|word| word == "--each");
    let others = words.iter().any(|word| word == "--others");
    println!("                                 second phase, by the driver     ms a seed");
    println!("ratio     mean   p50   p90   max    calls   ns a pair");
    for (name, packed) in TRACES.into_iter().chain(PACKED) {
        let ops = parse(packed);
        let ends = if others { step_ends(&ops) } else { Vec::new() };
        let pairs = ops.iter().filter(|op| matches!(op, Op::Alloc { .. })).count() as u64;
        let (mut ratios, mut calls, mut ns) = (Vec::new(), 0, 0);
        let begun = Instant::now();
        for seed in 0..seeds {
            let own = if others { Some(another(&ops, &ends, seed)) } else { None };
            let (player, its_calls, its_ns) = disturbed(own.as_deref().unwrap_or(&ops), seed);
            player.heap.check_with(Some(player.caches)).expect("the heap is sound");
            let ratio = player.heap.usage().reserved.peak as f64 / player.live_peak as f64;
            if each {
                println!("{name} {seed} lag {} {ratio:.3} {its_calls}", player.lag);
            }
            ratios.push(ratio);
            calls += its_calls;
            ns += its_ns;
        }
        let took = begun.elapsed().as_millis() as u64 / seeds;
        ratios.sort_unstable_by(f64::total_cmp);
        let at = |percent: usize| ratios[((ratios.len() - 1) * percent).div_ceil(100)];
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        println!(
            "{name:<8} {mean:>5.3} {:>5.3} {:>5.3} {:>5.3} {:>8.1} {:>11} {took:>13}",
            at(50),
            at(90),
            at(100),
            f64::from(calls) / seeds as f64,
            ns / seeds / pairs
        );
    }
}
