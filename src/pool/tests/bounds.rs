//! What caches hold is bounded, and what threads leave behind is found again.

use super::super::{Drain, Freed};
use super::MIB;
use super::cached::{Run, Step};

#[test]
fn caches_together_hold_a_bounded_amount() {
    let mut run = Run::new();
    for size in [MIB, 500_000, 32_768, 8192] {
        for _ in 0..40 * 32 {
            run.alloc(0, size);
        }
    }
    let mut kept = 0;
    // Each thread frees as many of each size as its rings would hold.
    for thread in 0..40 {
        let cache = run.caches.enter().expect("few");
        for &(addr, _, size) in run.live.iter().skip(thread).step_by(40) {
            if let Freed::Kept(block) = run.index.keep(addr, |_| Some(cache)) {
                block.put(0);
                kept += size;
            }
        }
    }
    assert!((512 * MIB..=1024 * MIB).contains(&kept), "{} MiB are cached", kept / MIB);
    run.drain(Drain::All);
    run.heap.check_with(Some(run.caches)).unwrap();
}

#[test]
fn a_peak_that_the_heap_has_not_seen_counts() {
    let mut run = Run::new();
    for _ in 0..10 {
        run.alloc(0, 512);
    }
    while !run.live.is_empty() {
        run.free(0, 0);
    }
    assert_eq!(run.heap.clock(), 1, "the heap served one of them, and lent the others");
    let mut usage = run.heap.usage();
    run.caches.add_to(&mut usage);
    assert_eq!((usage.requested.peak, usage.requested.current), (5120, 0));
    let cache = run.cache(0);
    run.heap.settle(cache);
    assert_eq!((run.heap.requested().peak, run.heap.requested().current), (5120, 0));
}

#[test]
fn threads_that_end_leave_their_caches_to_the_next() {
    let mut run = Run::new();
    let mut caches = Vec::new();
    for _ in 0..64 {
        for _ in 0..8 {
            run.alloc(0, 4096);
        }
        while !run.live.is_empty() {
            run.free(0, 0);
        }
        run.retired = run.epoch;
        caches.push(std::ptr::from_ref(run.cache(0)));
        run.step(&Step::End { thread: 0 });
    }
    caches.dedup();
    assert_eq!(caches.len(), 1, "one cache for 64 threads, one after the other");
    assert_eq!(run.heap.reserved().current, 2 * MIB);
    run.end();
}
