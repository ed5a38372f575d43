//! exp
#![allow(missing_docs)]

use flate2::read::GzDecoder;
use gpucache::pool::{Claim, Fit, Heap, Index, PAGE, Piece, Rules, SMALL_MAX};
use std::io::Read;

const TRACES: [(&str, &[u8]); 3] = [
    ("gpt", include_bytes!("traces/gpt.trace.gz")),
    ("resnet", include_bytes!("traces/resnet.trace.gz")),
    ("unet", include_bytes!("traces/unet.trace.gz")),
];
#[derive(Clone, Copy)]
enum Op {
    Alloc { id: usize, bytes: u64 },
    Free { id: usize },
}
fn parse(packed: &[u8]) -> Vec<Op> {
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).expect("the trace unpacks");
    text.lines()
        .map(|line| {
            let mut words = line.split_ascii_whitespace();
            let kind = words.next().expect("a kind");
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).expect("a number");
            let id = number() as usize;
            if kind == "a" { Op::Alloc { id, bytes: number() } } else { Op::Free { id } }
        })
        .collect()
}

#[derive(Clone, Copy, Default, Debug)]
struct Cost {
    grown: u32,
    created: u32,
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
    since_wait: u64,
    waited: u64,
    frees: u64,
    live: u64,
    live_peak: u64,
    held: Vec<(u64, u64)>,
    cost: Cost,
    next: u64,
    grain: u64,
    share: u64,
    slack: u64,
    small: u64,
}
impl Player {
    fn new((lag, spacing): (u64, u64), ids: usize, grain: u64, share: u64, slack: u64, small: u64) -> Player {
        let index: &'static Index = Box::leak(Box::new(Index::new()));
        let mut heap = Heap::new(0, index, Rules::default());
        heap.set_range(0x7f00_0000_0000, 8 << 40);
        Player {
            heap,
            index,
            lag,
            spacing,
            since_wait: 0,
            waited: 0,
            frees: 0,
            live: 0,
            live_peak: 0,
            held: vec![(0, 0); ids],
            cost: Cost::default(),
            next: 1,
            grain,
            share,
            slack,
            small,
        }
    }
    fn completed(&self) -> u64 {
        self.frees.saturating_sub(self.lag)
    }
    fn retired(&self) -> u64 {
        self.completed().max(self.waited)
    }
    fn alloc(&mut self, id: usize, bytes: u64) {
        let retired = self.retired();
        self.since_wait += 1;
        let mut addr = None;
        if self.since_wait >= self.spacing && bytes > SMALL_MAX {
            addr = self.heap.alloc(bytes, bytes, Fit::Tight, retired);
            if addr.is_none() && retired < self.frees {
                self.wait(self.frees);
            }
        }
        let retired = self.retired();
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
        self.waited = self.waited.max(epoch);
    }
    #[cold]
    fn miss(&mut self, bytes: u64) -> u64 {
        if let Some(epoch) = self.heap.epoch_needed(bytes) {
            self.wait(epoch);
            if let Some(addr) = self.heap.alloc(bytes, bytes, Fit::Any, epoch) {
                return addr;
            }
        }
        let need = bytes.next_multiple_of(512);
        let reserved = self.heap.usage().reserved;
        self.cost.grown += 1;
        let plan =
            self.heap.plan(need, reserved.peak - reserved.current, self.completed()).expect("addresses");
        self.cost.remaps += u32::from(!plan.moves.is_empty());
        self.cost.moved += plan.moves.len() as u32;
        self.cost.created += plan.makes.len() as u32;
        self.cost.us += 63.7 * plan.moves.len() as f64 + 50.7 * plan.makes.len() as f64;
        for (piece, to) in plan.moves {
            assert!(self.heap.attach(Piece { addr: to, ..piece }));
        }
        for (addr, size) in plan.makes {
            self.heap.gain(size);
            assert!(self.heap.attach(Piece { addr, size, handle: self.next }));
            self.next += 1;
        }
        self.heap.alloc(bytes, bytes, Fit::Any, 0).expect("the new room serves")
    }
    fn piece_size(&self, m: u64) -> u64 {
        let reserved = self.heap.usage().reserved.current;
        let floor = |x: u64| if x < PAGE { PAGE } else { 1 << x.ilog2() };
        let (a, b) = (self.grain >> 20 >> 16, (self.grain >> 20) & 0xffff);
        let s = match a {
            0 => b << 20,
            1 => floor(m / b),
            2 => floor(reserved / b),
            3 => floor(m / (b & 255)).min(floor(reserved / ((b >> 8) * 64))),
            _ => floor(m / (b & 255)).max(floor(reserved / ((b >> 8) * 64))),
        };
        s.clamp(PAGE, 32 << 20)
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
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let lags: &[(u64, u64)] = if args.first() == Some(&1) {
        &[(0, u64::MAX), (256, u64::MAX), (256, 16), (4096, u64::MAX), (4096, 16)]
    } else {
        &[(0, u64::MAX)]
    };
    let mut grains: Vec<u64> = args[1..].to_vec();
    for a in std::env::args().skip(1) {
        if let Some((k, b)) = a.split_once(':') {
            grains.push(
                k.parse::<u64>().unwrap() << 16
                    | if let Some((x, y)) = b.split_once('/') {
                        y.parse::<u64>().unwrap() << 8 | x.parse::<u64>().unwrap()
                    } else {
                        b.parse().unwrap()
                    },
            );
        }
    }
    let slacks: Vec<u64> =
        std::env::var("SLACK").map_or(vec![0], |s| s.split(',').map(|x| x.parse().unwrap()).collect());
    let shares: Vec<u64> =
        std::env::var("SHARE").map_or(vec![0], |s| s.split(',').map(|x| x.parse().unwrap()).collect());
    let policies: Vec<u64> =
        std::env::var("POLICY").map_or(vec![0], |s| s.split(',').map(|x| x.parse().unwrap()).collect());
    println!(
        "trace lag wait grain share slack policy | ratio again | grown | created | remaps moved | waits | ms  | span GiB"
    );
    for (name, packed) in TRACES {
        let ops = parse(packed);
        for &mode in lags {
            for &grain in &grains {
                for &share in &shares {
                    for &slack in &slacks {
                        for &policy in &policies {
                            let mut p = Player::new(mode, ops.len(), grain << 20, share, slack, 16 << 20);
                            let mut rows = Vec::new();
                            for _ in 0..3 {
                                p.play(&ops);
                                rows.push((p.heap.usage().reserved.peak as f64 / p.live_peak as f64, p.cost));
                                p.end_phase();
                            }
                            p.heap.check().expect("sound");
                            let _ = PAGE;
                            let (a, b, c) = (rows[0].1, rows[1].1, rows[2].1);
                            println!(
                                "{name:<6} {:>5} {:>5} {:>9} {share:>4} {slack:>4} {policy} | {:.4} {:.4} {:.4} | {}+{}+{} | {}+{}+{} | {}+{}+{} {}+{}+{} | {}+{} | {:.0}+{:.1}+{:.1} | {:.2}",
                                mode.0,
                                if mode.1 == u64::MAX { 0 } else { mode.1 },
                                format!("{}:{}/{}", grain >> 16, grain & 255, (grain >> 8) & 255),
                                rows[0].0,
                                rows[1].0,
                                rows[2].0,
                                a.grown,
                                b.grown - a.grown,
                                c.grown - b.grown,
                                a.created,
                                b.created - a.created,
                                c.created - b.created,
                                a.remaps,
                                b.remaps - a.remaps,
                                c.remaps - b.remaps,
                                a.moved,
                                b.moved - a.moved,
                                c.moved - b.moved,
                                a.waits,
                                b.waits - a.waits,
                                a.us / 1000.0,
                                (b.us - a.us) / 1000.0,
                                (c.us - b.us) / 1000.0,
                                p.heap.range_usage().spanned as f64 / f64::from(1 << 30)
                            );
                        }
                    }
                }
            }
        }
    }
}
