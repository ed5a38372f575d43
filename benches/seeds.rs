//! Placement is chaotic: a block more or a free later moves the peak of reserved memory by some per cent. So each trace is
//! played under small disturbances, and what counts is the distribution. `cargo bench --bench seeds [SEEDS] [--each]`.
//!
//! A seed holds some small blocks from the start, changes each size by up to a per cent (equal sizes alike), lets the
//! GPU be 0 to 20 frees behind, and every second one begins somewhere in the first half of the trace, with what lives there.
//! Two phases each, as in `traces.rs`, with a wait at most every 16 allocations.

#![allow(missing_docs)]

#[path = "common/player.rs"]
mod player;
#[path = "common/trace.rs"]
mod trace;

use player::Player;
use std::time::Instant;
use trace::{Op, TRACES, parse};

const SEEDS: u64 = 32;
const WAIT: u64 = 16;
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

fn disturbed(ops: &[Op], seed: u64) -> Player {
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
    player.play(&ops);
    player
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let seeds = words.iter().find_map(|word| word.parse().ok()).unwrap_or(SEEDS);
    let each = words.iter().any(|word| word == "--each");
    println!("ratio     mean   p50   p90   max   grown  given back   ms");
    for (name, packed) in TRACES {
        let ops = parse(packed);
        let (mut ratios, mut grown, mut given) = (Vec::new(), 0, 0);
        let begun = Instant::now();
        for seed in 0..seeds {
            let player = disturbed(&ops, seed);
            let ratio = player.heap.usage().reserved.peak as f64 / player.live_peak as f64;
            if each {
                println!("{name} {seed} lag {} {ratio:.3}", player.lag);
            }
            ratios.push(ratio);
            grown += player.grown;
            given += player.given_back;
        }
        let took = begun.elapsed().as_millis() as u64 / seeds;
        ratios.sort_unstable_by(f64::total_cmp);
        let at = |percent: usize| ratios[((ratios.len() - 1) * percent).div_ceil(100)];
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        let (grown, given) = (f64::from(grown) / seeds as f64, f64::from(given) / seeds as f64);
        println!(
            "{name:<8} {mean:>5.3} {:>5.3} {:>5.3} {:>5.3} {grown:>7.1} {given:>11.1} {took:>4}",
            at(50),
            at(90),
            at(100)
        );
    }
}
