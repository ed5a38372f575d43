//! The recorded allocations of training jobs, and how far behind the GPU is when they are played.

use std::io::Read;

use flate2::read::GzDecoder;

pub const TRACES: [(&str, &[u8]); 3] = [
    ("gpt", include_bytes!("../traces/gpt.trace.gz")),
    ("resnet", include_bytes!("../traces/resnet.trace.gz")),
    ("unet", include_bytes!("../traces/unet.trace.gz")),
];
/// Jobs of few large blocks, of which no two steps have the same sizes.
#[allow(dead_code)] // Not of every program.
pub const PACKED: [(&str, &[u8]); 2] = [
    ("rnn", include_bytes!("../traces/rnn.trace.gz")),
    ("mixed", include_bytes!("../traces/mixed.trace.gz")),
];
/// Lag, and allocations between waits.
#[allow(dead_code)] // Not of every program.
pub const MODES: [(u64, u64); 6] =
    [(0, u64::MAX), (16, u64::MAX), (256, u64::MAX), (256, 24), (4096, u64::MAX), (4096, 24)];

#[derive(Clone, Copy)]
pub enum Op {
    Alloc { id: usize, bytes: u64 },
    Free { id: usize },
}

/// A line is `a ID BYTES` or `f ID`.
pub fn parse(packed: &[u8]) -> Vec<Op> {
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).expect("the trace unpacks");
    let ops = text.lines().map(|line| {
        let mut words = line.split_ascii_whitespace();
        let kind = words.next().expect("a kind");
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).expect("a number");
        let id = number() as usize;
        if kind == "a" { Op::Alloc { id, bytes: number() } } else { Op::Free { id } }
    });
    ops.collect()
}
