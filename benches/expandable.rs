//! The expandable range on the allocations of real training jobs: how much memory it maps, how many handles it makes and
//! moves, and what the driver's calls for that would cost. `cargo bench --bench expandable`; no GPU is needed.
//!
//! The traces and what `lag` and `wait` mean are those of `traces.rs`; each trace is played three times into one heap.
//! What the GPU has completed is what was freed `lag` frees ago: the waits order later work, they complete none.

#![allow(missing_docs)]

#[path = "common/trace.rs"]
mod trace;

use gpucache::driver::pace::Pace;
use gpucache::pool::{Claim, Fit, Heap, Index, Piece, Rules, SMALL_MAX};
use trace::{MODES, Op, TRACES, parse};

const PHASES: usize = 3;
/// Microseconds of the driver's calls for a handle, read off an H200.
const MAKE: f64 = 10.0;
const UNMAP: f64 = 23.0;
const MAP: f64 = 40.7;

/// What a phase took.
#[derive(Clone, Copy, Default)]
struct Cost {
    grown: u32,
    made: u32,
    remaps: u32,
    moved: u32,
    waits: u32,
    us: f64,
}

struct Player {
    heap: Heap,
    index: &'static Index,
    lag: u64,
    spacing: u64,
    served: u64,
    since_wait: u64,
    pace: Pace,
    waited: u64,
    frees: u64,
    live: u64,
    live_peak: u64,
    /// Address and bytes by the trace's number.
    held: Vec<(u64, u64)>,
    cost: Cost,
    next_handle: u64,
}

impl Player {
    fn new((lag, spacing): (u64, u64), ids: usize) -> Player {
        let index: &'static Index = Box::leak(Box::new(Index::new()));
        let mut heap = Heap::new(0, index, Rules::default());
        heap.set_range(0x7f00_0000_0000, 8 << 40);
        Player {
            heap,
            index,
            lag,
            spacing,
            served: 0,
            since_wait: 0,
            pace: Pace::default(),
            waited: 0,
            frees: 0,
            live: 0,
            live_peak: 0,
            held: vec![(0, 0); ids],
            cost: Cost::default(),
            next_handle: 1,
        }
    }

    fn completed(&self) -> u64 {
        self.frees.saturating_sub(self.lag)
    }

    fn alloc(&mut self, id: usize, bytes: u64) {
        let retired = self.completed().max(self.waited);
        self.served += 1;
        self.since_wait += 1;
        let mut addr = None;
        let huge = || self.heap.is_huge(bytes) && self.pace.is_due_for_huge(self.served);
        let due = self.since_wait >= self.spacing || (self.spacing != u64::MAX && huge());
        if due && bytes > SMALL_MAX {
            addr = self.heap.alloc(bytes, bytes, Fit::Tight, retired);
            if addr.is_none() && retired < self.frees {
                self.wait(self.frees);
            }
        }
        let retired = self.completed().max(self.waited);
        let addr = addr
            .or_else(|| self.heap.alloc(bytes, bytes, Fit::Any, retired))
            .unwrap_or_else(|| self.miss(bytes));
        self.held[id] = (addr, bytes);
        self.live += bytes;
        self.live_peak = self.live_peak.max(self.live);
    }

    fn wait(&mut self, epoch: u64) {
        self.cost.waits += 1;
        self.since_wait = 0;
        self.pace.waited(self.served);
        self.waited = self.waited.max(epoch);
    }

    /// What the ladder above the pool does: wait, then map, moving what is free before the high-water mark rises.
    #[cold]
    fn miss(&mut self, bytes: u64) -> u64 {
        if let Some(epoch) = self.heap.epoch_needed(bytes) {
            self.wait(epoch);
            if let Some(addr) = self.heap.alloc(bytes, bytes, Fit::Any, epoch) {
                return addr;
            }
        }
        let reserved = self.heap.reserved();
        let fresh = reserved.peak - reserved.current;
        let plan = self.heap.plan(bytes.next_multiple_of(512), fresh, self.completed()).expect("addresses");
        let (moves, makes) = (plan.moves.len() as u32, plan.makes.len() as u32);
        self.cost.grown += 1;
        self.cost.remaps += u32::from(moves > 0);
        self.cost.moved += moves;
        self.cost.made += makes;
        self.cost.us += f64::from(moves) * (UNMAP + MAP) + f64::from(makes) * (MAKE + MAP);
        for (piece, to) in plan.moves {
            assert!(self.heap.attach(Piece { addr: to, ..piece }));
        }
        for (addr, size) in plan.makes {
            self.heap.gain(size);
            assert!(self.heap.attach(Piece { addr, size, handle: self.next_handle }));
            self.next_handle += 1;
        }
        self.heap.alloc(bytes, bytes, Fit::Any, 0).expect("what was mapped for it serves")
    }

    fn free(&mut self, id: usize) {
        let (addr, bytes) = std::mem::take(&mut self.held[id]);
        let claim = match self.index.claim(addr) {
            Claim::Ask { .. } => self.heap.claim(addr),
            decided => decided,
        };
        let Claim::Claimed(claimed) = claim else { panic!("{addr:#x} gave {claim:?}") };
        self.frees += 1;
        self.heap.free(claimed, self.frees);
        if self.lag == 0 {
            self.heap.retire(self.frees);
        }
        self.live -= bytes;
    }

    fn play(&mut self, ops: &[Op]) {
        for op in ops {
            match *op {
                Op::Alloc { id, bytes } => self.alloc(id, bytes),
                Op::Free { id } => self.free(id),
            }
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

fn main() {
    println!(
        "trace    lag  wait | ratio             | grown       | made        | remaps  moved         | waits         | ms             | span GiB"
    );
    for (name, packed) in TRACES {
        let ops = parse(packed);
        for mode in MODES {
            let mut player = Player::new(mode, ops.len());
            let mut phases = Vec::new();
            for _ in 0..PHASES {
                player.cost = Cost::default();
                player.play(&ops);
                let ratio = player.heap.reserved().peak as f64 / player.live_peak as f64;
                phases.push((ratio, player.cost));
                player.end_phase();
            }
            player.heap.check().expect("the heap is sound");
            let each = |one: fn(&Cost) -> u32| {
                phases.iter().map(|(_, cost)| one(cost).to_string()).collect::<Vec<_>>().join("+")
            };
            let ratios: Vec<String> = phases.iter().map(|(ratio, _)| format!("{ratio:.3}")).collect();
            let times: Vec<String> = phases.iter().map(|(_, cost)| format!("{:.1}", cost.us / 1e3)).collect();
            println!(
                "{name:<6} {:>5} {:>5} | {} | {:<11} | {:<11} | {:<7} {:<13} | {:<13} | {:<14} | {:.2}",
                mode.0,
                if mode.1 == u64::MAX { "late".into() } else { mode.1.to_string() },
                ratios.join(" "),
                each(|cost| cost.grown),
                each(|cost| cost.made),
                each(|cost| cost.remaps),
                each(|cost| cost.moved),
                each(|cost| cost.waits),
                times.join("+"),
                player.heap.range_usage().spanned as f64 / f64::from(1 << 30),
            );
        }
    }
}
