//! Tests of the whole heap: random actions against a naive model, and the cases that have a name.

mod beside;
mod bounds;
mod cached;
mod cases;
mod claims;
mod depots;
mod random;
mod range;
mod trades;

use super::{Claim, Claimed, Fit, Heap, Index, Rules};

pub const MIB: u64 = 1 << 20;

/// An index that lives as long as the process, as the real one does.
fn index() -> &'static Index {
    Box::leak(Box::new(Index::new()))
}

/// A heap alone in its index.
fn heap() -> (Heap, &'static Index) {
    let index = index();
    (Heap::new(0, index, Rules::default()), index)
}

/// Takes the live block at `addr`, as cuMemFree would.
fn claim(heap: &Heap, index: &Index, addr: u64) -> Option<Claimed> {
    let claim = match index.claim(addr) {
        Claim::Ask { .. } => heap.claim(addr),
        decided => decided,
    };
    match claim {
        Claim::Claimed(claimed) => Some(claimed),
        _ => None,
    }
}

/// Frees the live block at `addr` under `epoch`.
fn free(heap: &mut Heap, index: &Index, addr: u64, epoch: u64) {
    let claimed = claim(heap, index, addr).expect("the block is live");
    heap.free(claimed, epoch);
}

/// Allocates, growing by a region at `*next` when the heap has no clean memory, as the simplest driver would.
fn alloc(heap: &mut Heap, next: &mut u64, bytes: u64) -> u64 {
    if let Some(addr) = heap.alloc(bytes, bytes, Fit::Any, 0) {
        return addr;
    }
    let growth = heap.growth(bytes);
    assert!(heap.add_region(*next, growth.preferred));
    *next += growth.preferred;
    heap.alloc(bytes, bytes, Fit::Any, 0).expect("the new region serves")
}
