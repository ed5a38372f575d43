//! What threads put away, beside others that take it back or end its heap.

use super::super::{Caches, Drain, Epoch, Fit, Freed, Heap, Popped, Rules};
use super::cached::Run;
use super::{MIB, index};
use std::time::Duration;

/// Every epoch is over.
const OVER: Epoch = Epoch::MAX - 1;

/// A clearing that is past a depot, and over before the blocks that a thread is putting away there are in: they are of a heap
/// that is no more, and their records are other blocks' from then on.
#[test]
fn what_is_put_away_during_a_clearing_does_not_outlive_it() {
    let index = index();
    let mut heap = Heap::new(3, index, Rules::default());
    let caches: &'static Caches = Box::leak(Box::new(Caches::new(3, index)));
    assert!(heap.add_region(1 << 40, 64 * MIB));
    let cache = caches.enter().expect("the first");
    let mut fill = |bytes| {
        let blocks: Vec<u64> =
            (0..8).map(|_| heap.alloc(bytes, bytes, Fit::Any, OVER).expect("room")).collect();
        for addr in blocks {
            let Freed::Kept(kept) = index.keep(addr, |_| Some(cache)) else { panic!("the ring has room") };
            kept.put(1);
        }
    };
    // By what is put away first it shows where the clearing is.
    fill(512);
    assert!(caches.vacate(cache, 512).is_none(), "there is room in the depot");
    fill(512);
    let (ring, _) = cache.ring_for(512).expect("a class");
    std::thread::scope(|scope| {
        // The last depot of the cache holds the clearing up.
        let last = cache.depots.of(super::super::cache::RINGS - 1);
        let clearing = scope.spawn(|| caches.clear(&mut heap));
        while cache.depots.has(ring) {
            std::thread::sleep(Duration::from_millis(1));
        }
        caches.put_away(cache, ring, || {
            let batch = cache.remove(ring, u32::MAX);
            assert!(!batch.is_empty(), "the clearing has not got to the records");
            drop(last);
            clearing.join().expect("nothing fails");
            batch
        });
    });
    assert!(!caches.refill(cache, 512, OVER), "blocks of a heap that is no more are in a depot");
    assert_eq!(cache.pop(512, 512, OVER), Popped::Empty);
}

/// The cells of a ring whose blocks were drained make room for a batch, and are none themselves.
#[test]
fn what_comes_from_a_depot_is_never_nothing() {
    let mut run = Run::new();
    for _ in 0..410 {
        run.alloc(0, 2048);
    }
    let cache = run.cache(0);
    run.epoch = 6;
    for _ in 0..10 {
        run.free(0, 0);
    }
    run.drain(Drain::All);
    run.epoch = 5;
    for _ in 0..400 {
        run.free(1, 0);
    }
    run.retired = 5;
    let mut got = 0;
    loop {
        match cache.pop(2048, 2048, run.retired) {
            Popped::Block(_) => got += 1,
            _ if run.caches.refill(cache, 2048, run.retired) => {
                assert!(matches!(cache.pop(2048, 2048, run.retired), Popped::Block(_)), "nothing came");
                got += 1;
            }
            _ => break,
        }
    }
    assert!(got > 200, "{got} of the other thread's");
    assert!(run.caches.are_counted());
}
