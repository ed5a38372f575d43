//! Who asks the GPU, and for what, before memory is taken that another request will need.

use super::*;

#[test]
fn a_question_that_another_thread_is_in_the_way_of_is_not_in_vain() {
    let bench = Bench::new(1 << 30, 1 << 30);
    let blocks: Vec<u64> = (0..32).map(|_| bench.alloc(MIB).unwrap()).collect();
    for block in &blocks {
        bench.free(*block);
    }
    let other = bench.fence.turn.lock();
    assert!(!bench.fence.inquire(bench.fence.current(), true), "nothing is known");
    let further = bench.alloc(MIB).unwrap();
    assert!(!blocks.contains(&further), "none is known to be done with");
    drop(other);
    assert!(blocks.contains(&bench.alloc(MIB).unwrap()), "asked at once");
    assert_eq!(bench.fence.barriers(), 0);
    bench.check();
}

/// A block of `fitting` MiB, freed while the device is `busy` or not, and idle regions of 300 and 100 MiB that are clean. 400
/// MiB live, so it is far from the peak.
fn with_a_larger_block(fitting: u64, busy: bool) -> (Bench, u64) {
    let bench = Bench::new(1 << 30, 1 << 30);
    bench.alloc(400 * MIB).unwrap();
    let [fits, larger, largest] = [fitting, 100, 300].map(|size| bench.alloc(size * MIB).unwrap());
    bench.free(larger);
    bench.free(largest);
    assert!(bench.fence.seal() && bench.fence.poll());
    if busy {
        bench.model().submit();
    }
    bench.free(fits);
    if busy {
        assert!(bench.fence.seal(), "so that there is something to wait for");
    }
    (bench, fits)
}

#[test]
fn a_huge_request_asks_and_waits_before_it_cuts_a_larger_block() {
    for busy in [false, true] {
        let (bench, fits) = with_a_larger_block(40, busy);
        assert_eq!(bench.alloc(40 * MIB), Ok(fits), "busy: {busy}");
        assert_eq!(bench.fence.barriers(), u64::from(busy));
        bench.check();
        let (bench, fits) = with_a_larger_block(4, busy);
        assert_ne!(bench.alloc(4 * MIB), Ok(fits), "busy: {busy}");
        assert_eq!(bench.fence.barriers(), 0, "for so little");
    }
}

/// At the cap, half of the blocks in a cache, this thread's or another's: the GPU is done with them, their epoch is sealed, and
/// nobody has asked. With and without a capture that has begun.
#[test]
fn what_is_done_and_only_in_caches_serves_a_request_of_another_size() {
    for (other, capture) in [(false, false), (true, false), (false, true), (true, true)] {
        let bench = Bench::new(20 * MIB, 20 * MIB);
        let blocks: Vec<u64> = (0..40).map(|_| bench.alloc(MIB / 2).unwrap()).collect();
        bench.model().submit();
        let free = || blocks.iter().step_by(2).for_each(|block| bench.free(*block));
        if other {
            std::thread::scope(|scope| scope.spawn(free).join().unwrap());
        } else {
            free();
        }
        bench.fence.seal();
        bench.model().complete();
        if capture {
            let beginning = bench.fence.gate().begin();
            bench.model().state.lock().capturing = true;
            beginning.succeeded();
        }
        assert!(bench.alloc(MIB / 2 - 65_536).is_ok(), "another thread: {other}, a capture: {capture}");
        assert_eq!(bench.fence.barriers(), 0, "another thread: {other}, a capture: {capture}");
    }
}

#[test]
fn a_miss_takes_what_one_thread_has_put_by_and_leaves_the_others_theirs() {
    let bench = Bench::new(20 * MIB, 20 * MIB);
    let blocks: Vec<u64> = (0..40).map(|_| bench.alloc(MIB / 2).unwrap()).collect();
    let both = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for part in blocks[..16].chunks(8) {
            let (bench, both) = (&bench, &both);
            scope.spawn(move || {
                for block in part {
                    bench.free(*block);
                }
                both.wait();
            });
        }
    });
    assert!(bench.fence.inquire(bench.fence.current(), true));
    assert_eq!(bench.server.with_heap(|heap| heap.usage().clean), 0, "all of it is in caches");
    assert!(blocks[..16].contains(&bench.alloc(MIB / 2).unwrap()));
    assert_eq!(bench.server.with_heap(|heap| heap.usage().clean), 7 * MIB / 2);
}

#[test]
fn whoever_asks_finds_out_all_that_is_done() {
    let bench = Bench::new(1 << 30, 1 << 30);
    let epochs: Vec<u64> = (0..10)
        .map(|at| {
            bench.model().submit();
            let epoch = bench.fence.current();
            assert!(bench.fence.seal());
            if at == 5 {
                bench.model().complete();
            }
            epoch
        })
        .collect();
    assert!(bench.fence.inquire(epochs[4], true));
    assert!(bench.fence.retired() >= epochs[4], "{} of {epochs:?}", bench.fence.retired());
    assert!(bench.fence.inquire(epochs[9], true));
    assert_eq!(bench.fence.retired(), epochs[5]);
}

/// The wait of a driver without context-wide events holds the host up.
#[test]
fn huge_requests_make_an_old_driver_wait_no_more_often_than_others() {
    let waits = |context_events| {
        let bench = Bench::with(Model::new(4 << 30, context_events), 4 << 30, Tuning::default());
        bench.alloc(400 * MIB).unwrap();
        let larger: Vec<u64> = (0..4).map(|_| bench.alloc(300 * MIB).unwrap()).collect();
        for block in larger {
            bench.free(block);
        }
        assert!(bench.fence.complete_all());
        let before = bench.fence.barriers();
        let mut block = bench.alloc(40 * MIB).unwrap();
        for _ in 0..64 {
            bench.model().submit();
            bench.free(block);
            block = bench.alloc(40 * MIB).unwrap();
        }
        bench.fence.barriers() - before
    };
    let [old, new] = [false, true].map(waits);
    assert!(old <= 64 / 16, "{old} in 64 requests");
    assert!(new > 64 / 16, "{new} in 64 requests: there is nothing that an old driver could do more often");
}

#[test]
fn a_wait_for_what_is_over_is_none() {
    let bench = Bench::new(1 << 30, 1 << 30);
    let block = bench.alloc(MIB).unwrap();
    bench.free(block);
    assert!(bench.fence.seal() && bench.fence.poll());
    let due = || {
        let inner = bench.server.locked();
        let served = bench.server.served(&inner);
        (served..served + 1000).find(|served| inner.pace.is_due_for_huge(*served))
    };
    let before = due();
    assert!((0..100).all(|_| bench.server.wait_until(bench.fence.retired())));
    assert_eq!(due(), before);
}
