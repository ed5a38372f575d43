//! What caches hold is bounded, and what threads leave behind is found again.

use super::super::{Drain, Freed};
use super::MIB;
use super::cached::{Run, Step};

#[test]
fn caches_together_hold_a_bounded_amount() {
    let mut run = Run::new();
    let mut held = Vec::new();
    for size in [MIB, 500_000, 32_768, 8192, 512] {
        for _ in 0..40 {
            for _ in 0..64 {
                run.alloc(0, size);
            }
            // Another thread each time: none of them gives anything back.
            let cache = run.caches.enter().expect("few");
            for (addr, ..) in std::mem::take(&mut run.live) {
                match run.index.keep(addr, |_| Some(cache)) {
                    Freed::Kept(kept) => {
                        kept.put(0);
                    }
                    _ => held.push(addr),
                }
            }
        }
    }
    let live: u64 = held.iter().map(|addr| run.heap.find(*addr).expect("live").size).sum();
    let cached = run.heap.reserved().current - live;
    assert!(cached <= 40 * MIB, "{} MiB are cached", cached / MIB);
    run.drain(Drain::All);
    run.heap.check_with(Some(run.caches)).unwrap();
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
