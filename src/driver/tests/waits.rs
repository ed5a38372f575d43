//! Growth that waits for the device, so that idle regions can go back first; and what neither a device that lags nor blocks that come
//! back at the same address may change.

use super::*;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Allocates; a moment later, while that may be waiting, another thread does something.
fn alloc_beside(bench: &Bench, bytes: u64, then: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            then();
        });
        bench.alloc(bytes).unwrap();
    });
}

/// 64 MiB are idle on a device that is busy, and 96 MiB are asked for.
fn raise_the_mark(patience: Duration, complete: bool) -> (Bench, Duration) {
    let tuning = Tuning { patience, ..Tuning::default() };
    let bench = Bench::with(Model::new(1 << 30, true), 1 << 30, tuning);
    let block = bench.alloc(64 * MIB).unwrap();
    bench.model().submit();
    bench.free(block);
    let begun = Instant::now();
    alloc_beside(&bench, 96 * MIB, || {
        if complete {
            bench.model().complete();
        }
    });
    let took = begun.elapsed();
    bench.check();
    (bench, took)
}

#[test]
fn idle_regions_go_back_once_the_device_has_caught_up() {
    let (bench, _) = raise_the_mark(Duration::from_secs(60), true);
    assert_eq!(bench.reserved(), 96 * MIB);
    let (bench, _) = raise_the_mark(Duration::ZERO, true);
    assert_eq!(bench.reserved(), 160 * MIB, "without patience it grows at once");
}

#[test]
fn a_device_that_never_catches_up_is_waited_for_twice() {
    let bound = Duration::from_millis(60);
    let (bench, took) = raise_the_mark(bound, false);
    assert_eq!(bench.reserved(), 160 * MIB);
    assert!(took >= bound);
    assert!(bench.server.patience.next().is_some(), "a second wait may be in vain");
    bench.alloc(96 * MIB).unwrap();
    assert_eq!(bench.server.patience.next(), None, "and then growth is not held up");
    bench.alloc(96 * MIB).unwrap();
    assert_eq!(bench.reserved(), 352 * MIB);
    assert_eq!(bench.model().calls("mem_free"), 0, "the driver's free would have waited for ever");
}

/// Two holes of 64 MiB between blocks as large, which the device is busy with.
fn with_two_holes(patience: Duration, expandable: bool) -> Bench {
    let tuning = Tuning { patience, expandable, ..Tuning::default() };
    let bench = Bench::with(Model::new(1 << 30, true), 1 << 30, tuning);
    let blocks: Vec<u64> = (0..4).map(|_| bench.alloc(64 * MIB).unwrap()).collect();
    bench.model().submit();
    bench.free(blocks[0]);
    bench.free(blocks[2]);
    bench
}

/// A block of 128 MiB is asked for in a range with such holes, with which the device gets done after a while.
fn fill_two_holes(patience: Duration) -> Bench {
    let bench = with_two_holes(patience, true);
    alloc_beside(&bench, 128 * MIB, || bench.model().complete());
    bench.check();
    bench
}

#[test]
fn a_range_waits_for_what_it_may_move_before_it_grows() {
    let bench = fill_two_holes(Duration::from_secs(60));
    assert_eq!((bench.reserved(), bench.model().calls("synchronize")), (256 * MIB, 0));
    assert!(bench.model().calls("unmap") > 0);
    assert_eq!(fill_two_holes(Duration::ZERO).reserved(), 384 * MIB, "without patience it grows at once");
}

#[test]
fn a_range_that_could_not_serve_a_request_anyway_waits_for_nothing() {
    let patience = Duration::from_secs(60);
    let tuning = Tuning { patience, expandable: true, ..Tuning::default() };
    let bench = Bench::with(Model::new(1 << 30, true), 1 << 30, tuning);
    let small = bench.alloc(4 * MIB).unwrap();
    bench.alloc(64 * MIB).unwrap();
    bench.model().submit();
    bench.free(small);
    let begun = Instant::now();
    bench.alloc(256 * MIB).unwrap();
    assert!(begun.elapsed() < patience / 2, "for a sixty-fourth of what is asked for");
    bench.check();
}

/// While one thread waits for a busy device, another's barrier makes all pending memory clean; then a kernel ends, or none does.
fn wait_beside_a_barrier(expandable: bool, complete: bool) -> Bench {
    let patience = if complete { Duration::from_secs(60) } else { Duration::from_millis(100) };
    let bench = with_two_holes(patience, expandable);
    alloc_beside(&bench, 128 * MIB, || {
        assert!(bench.fence.barrier(bench.fence.newest_sealed()));
        std::thread::sleep(Duration::from_millis(40));
        let calls = (bench.model().calls("mem_free"), bench.model().calls("unmap"));
        assert_eq!(calls, (0, 0), "ordered is not done: the driver's free would have waited");
        if complete {
            bench.model().complete();
        }
    });
    bench.check();
    bench
}

#[test]
fn memory_that_another_threads_barrier_has_made_clean_is_waited_for_all_the_same() {
    for expandable in [false, true] {
        let caught_up = wait_beside_a_barrier(expandable, true);
        assert_eq!(caught_up.reserved(), 256 * MIB, "expandable: {expandable}");
        let lagging = wait_beside_a_barrier(expandable, false);
        assert_eq!(lagging.reserved(), 384 * MIB, "expandable: {expandable}");
        assert!(lagging.server.patience.next().is_some(), "one wait was in vain");
    }
}

#[test]
fn who_has_waited_for_another_threads_wait_does_not_begin_one_of_his_own() {
    let bound = Duration::from_millis(500);
    for expandable in [false, true] {
        let tuning = Tuning { patience: bound, expandable, ..Tuning::default() };
        let bench = Bench::with(Model::new(2 << 30, true), 2 << 30, tuning);
        let block = bench.alloc(256 * MIB).unwrap();
        bench.alloc(4 * MIB).unwrap();
        bench.model().submit();
        bench.free(block);
        let grow = || {
            let begun = Instant::now();
            bench.alloc(300 * MIB).unwrap();
            begun.elapsed()
        };
        let took = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(grow));
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(took.iter().any(|took| *took >= bound), "one has waited: {took:?}");
        assert!(took.iter().all(|took| *took < bound * 8 / 5), "and nobody twice: {took:?}");
        bench.check();
    }
}

#[test]
fn a_capture_that_begins_ends_a_wait_and_survives_it() {
    for expandable in [false, true] {
        let patience = Duration::from_secs(4);
        let bench = Bench::with(
            Model::new(1 << 30, true),
            1 << 30,
            Tuning { patience, expandable, ..Tuning::default() },
        );
        let blocks: Vec<u64> = (0..2).map(|_| bench.alloc(64 * MIB).unwrap()).collect();
        bench.model().submit();
        bench.free(blocks[0]);
        let begun = Instant::now();
        alloc_beside(&bench, 128 * MIB, || {
            bench.fence.gate().begin().succeeded();
            bench.model().state.lock().capturing = true;
        });
        assert!(begun.elapsed() < patience / 2);
        assert!(!bench.model().state.lock().killed);
        assert_eq!((bench.reserved(), bench.model().calls("mem_free")), (256 * MIB, 0));
        bench.check();
    }
}

/// Threads that find no memory at the same time, while the device lags, captures come and go, and the cap is near.
#[test]
fn racing_threads_that_wait_share_no_memory_and_come_back() {
    for expandable in [false, true] {
        let tuning = Tuning { patience: Duration::from_millis(2), expandable, ..Tuning::default() };
        let bench = Bench::with(Model::new(512 * MIB, true), 160 * MIB, tuning);
        let stop = AtomicBool::new(false);
        // For each MiB of addresses: whether it is live, and the work that last used it.
        let used = Mutex::new(HashMap::<u64, (bool, u64)>::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0_u64.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    std::thread::sleep(Duration::from_micros(400));
                    bench.model().complete();
                    if round % 8 == 0 {
                        bench.fence.gate().begin().succeeded();
                        std::thread::sleep(Duration::from_micros(100));
                        bench.fence.gate().ended();
                    }
                }
            });
            let threads = [1, 2, 3, 4].map(|seed: u64| {
                let (bench, used) = (&bench, &used);
                scope.spawn(move || {
                    let mut random = seed * 0x9e37_79b9;
                    let mut live = Vec::new();
                    for round in 0..400 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let pages = 1 + (random >> 40) % 24;
                        if let Ok(address) = bench.alloc(pages * MIB) {
                            let work = bench.model().submit();
                            let mut used = used.lock();
                            for page in address / MIB..address / MIB + pages {
                                let (held, last) = used.insert(page, (true, work)).unwrap_or_default();
                                assert!(!held, "page {page:#x} is live in two blocks");
                                assert!(
                                    bench.model().is_safe(last),
                                    "page {page:#x} is in use by work {last}"
                                );
                            }
                            live.push((address, pages));
                        }
                        let kept = if round == 399 { 0 } else { (random >> 20) as usize % 4 };
                        while live.len() > kept {
                            let (address, pages) = live.swap_remove((random >> 30) as usize % live.len());
                            let mut used = used.lock();
                            for page in address / MIB..address / MIB + pages {
                                used.entry(page).and_modify(|(held, _)| *held = false);
                            }
                            drop(used);
                            bench.free(address);
                        }
                    }
                })
            });
            let ends = threads.map(std::thread::ScopedJoinHandle::join);
            stop.store(true, Ordering::Relaxed);
            assert!(ends.iter().all(Result::is_ok), "an assertion failed");
        });
        bench.check();
        assert_eq!(bench.server.usage().allocated.current, 0);
        assert!(bench.model().state.lock().peak <= 160 * MIB);
    }
}

#[test]
fn a_device_that_is_far_behind_is_waited_for_although_no_further_epoch_can_be_sealed() {
    let tuning = Tuning { patience: Duration::from_secs(60), ..Tuning::default() };
    let bench = Bench::with(Model::new(1 << 30, true), 1 << 30, tuning);
    let block = bench.alloc(64 * MIB).unwrap();
    bench.model().submit();
    bench.free(block);
    while bench.fence.seal() {
        bench.model().submit();
    }
    alloc_beside(&bench, 96 * MIB, || bench.model().complete());
    assert_eq!(bench.reserved(), 96 * MIB);
    bench.check();
}

#[test]
fn no_two_allocations_have_the_same_number() {
    let bench = Bench::new(2 << 30, 1 << 30);
    let serial = |address: u64| bench.server.with_heap(|heap| heap.find(address).unwrap().serial);
    let mut seen = std::collections::HashSet::new();
    for round in 0..8 {
        // By way of a search, of a growth, and of the caches.
        for bytes in [8 * MIB, (8 + round) * MIB, 512, 8 * MIB] {
            let block = bench.alloc(bytes).unwrap();
            assert!(seen.insert(serial(block)), "{bytes} in round {round}");
            bench.free(block);
            assert!(bench.fence.complete_all());
        }
    }
}

#[test]
fn a_device_that_lags_leaves_the_smallest_classes_their_caches() {
    for size in [512_u64, 2048, 2560] {
        let bench = Bench::new(2 << 30, 1 << 30);
        let blocks: Vec<u64> = (0..128).map(|_| bench.alloc(size).unwrap()).collect();
        bench.model().submit();
        for block in blocks {
            bench.free(block);
        }
        bench.model().submit();
        let before = bench.server.caches.allocs();
        for _ in 0..400 {
            bench.alloc(size).unwrap();
        }
        let served = bench.server.caches.allocs() - before;
        assert!(served > 300, "{size}: {served} of 400 by the cache");
    }
}
