//! Each step of the ladder, and each fault, on its own.

use super::*;
use crate::sync::Apart;

#[test]
fn a_free_waits_for_nothing_and_calls_nothing() {
    let bench = Bench::new(1 << 30, 1 << 30);
    let block = bench.alloc(MIB).unwrap();
    bench.model().submit();
    let before: u64 = bench.model().state.lock().calls.values().sum();
    bench.free(block);
    assert_eq!(bench.model().state.lock().calls.values().sum::<u64>(), before);
}

#[test]
fn every_so_many_frees_seal_an_epoch() {
    let bench = Bench::new(1 << 30, 1 << 30);
    let blocks: Vec<u64> = (0..256).map(|_| bench.alloc(512).unwrap()).collect();
    let before = bench.model().calls("record");
    for block in blocks {
        bench.free(block);
    }
    let seals = bench.model().calls("record") - before;
    assert!((3..=16).contains(&seals), "{seals} seals in 256 frees");
}

#[test]
fn a_loop_that_misses_again_and_again_gets_more_blocks_in_rotation() {
    let bench = Bench::new(1 << 30, 1 << 30);
    let mut calls = Vec::new();
    for _ in 0..20 {
        for _ in 0..100 {
            let block = bench.alloc(MIB).unwrap();
            bench.model().submit();
            bench.free(block);
            bench.model().complete();
        }
        calls.push(bench.model().calls("query") + bench.model().calls("record"));
    }
    let steady = calls[19] - calls[18];
    assert!(steady <= 40, "{steady} driver calls in 100 allocations and frees");
    assert!(bench.reserved() <= 40 * MIB, "{} MiB reserved", bench.reserved() / MIB);
}

#[test]
fn a_single_miss_asks_before_it_grows() {
    let bench = Bench::new(1 << 30, 1 << 30);
    let block = bench.alloc(2 * MIB).unwrap();
    bench.free(block);
    bench.alloc(MIB / 2).unwrap();
    assert_eq!(bench.reserved(), 2 * MIB);
}

#[test]
fn done_work_is_found_by_polling_and_never_waited_for() {
    let bench = Bench::new(1 << 30, 1 << 30);
    for _ in 0..200 {
        let block = bench.alloc(MIB).unwrap();
        bench.model().submit();
        bench.free(block);
        bench.model().complete();
    }
    assert_eq!(bench.fence.barriers(), 0);
    assert!(bench.reserved() <= 40 * MIB, "{} MiB reserved", bench.reserved() / MIB);
}

#[test]
fn one_wait_serves_at_least_sixteen_reuses_while_there_is_slack() {
    let bench = Bench::new(1 << 30, 1 << 30);
    for _ in 0..1600 {
        let block = bench.alloc(MIB).unwrap();
        bench.model().submit(); // never completes: the host runs far ahead
        bench.free(block);
    }
    let barriers = bench.fence.barriers();
    assert!(barriers > 0 && barriers <= 100, "{barriers} waits in 1600 reuses");
    assert!(bench.reserved() <= 40 * MIB, "{} MiB reserved", bench.reserved() / MIB);
}

#[test]
fn pending_blocks_that_alone_fit_are_used_and_not_out_of_memory() {
    let bench = Bench::new(64 * MIB, 64 * MIB);
    let block = bench.alloc(60 * MIB).unwrap();
    let work = bench.model().submit();
    bench.free(block);
    assert_eq!(bench.alloc(60 * MIB), Ok(block));
    assert!(bench.model().is_safe(work));
    bench.check();
}

#[test]
fn the_cap_holds_and_what_is_idle_goes_back_before_it_is_hit() {
    let bench = Bench::new(1 << 30, 100 * MIB);
    let first = bench.alloc(60 * MIB).unwrap();
    assert_eq!(bench.alloc(60 * MIB), Err(CuResult::OUT_OF_MEMORY));
    bench.free(first);
    let second = bench.alloc(90 * MIB).unwrap();
    assert!(bench.model().state.lock().peak <= 100 * MIB);
    bench.free(second);
    bench.check();
    assert_eq!(bench.server.books().ooms.lock().len(), 1);
}

#[test]
fn equal_halves_and_their_whole_need_no_more_than_the_whole() {
    let bench = Bench::new(1 << 30, 1 << 30);
    for (count, size) in [(8, 16 * MIB), (4, 32 * MIB), (8, 16 * MIB)] {
        let blocks: Vec<u64> = (0..count).map(|_| bench.alloc(size).unwrap()).collect();
        assert_eq!(bench.reserved(), 128 * MIB);
        for block in blocks {
            bench.free(block);
        }
        bench.model().complete();
    }
    assert_eq!(bench.model().state.lock().peak, 128 * MIB);
}

#[test]
fn a_request_above_the_cap_fails_without_emptying_the_cache() {
    let bench = Bench::new(1 << 30, 100 * MIB);
    let block = bench.alloc(50 * MIB).unwrap();
    bench.free(block);
    let frees = bench.model().calls("mem_free");
    assert_eq!(bench.alloc(101 * MIB), Err(CuResult::OUT_OF_MEMORY));
    assert_eq!(bench.model().calls("mem_free"), frees);
    assert_eq!(bench.alloc(u64::MAX - 100), Err(CuResult::OUT_OF_MEMORY));
    assert_eq!(bench.alloc(0), Err(CuResult::INVALID_VALUE));
}

#[test]
fn a_capture_survives_everything_the_pool_does() {
    let bench = Bench::new(1 << 30, 256 * MIB);
    let blocks: Vec<u64> = (0..4).map(|_| bench.alloc(32 * MIB).unwrap()).collect();
    bench.model().submit();
    for block in &blocks[..3] {
        bench.free(*block);
    }
    bench.fence.gate().begin().succeeded();
    bench.model().state.lock().capturing = true;
    let mut inside = Vec::new();
    while let Ok(block) = bench.alloc(32 * MIB) {
        inside.push(block);
    }
    assert_eq!(inside.len(), 7, "all that fits under the cap, idle regions given back for it");
    for _ in 0..200 {
        if let Some(block) = inside.pop() {
            bench.free(block);
        }
    }
    assert!(!bench.model().state.lock().killed);
    bench.model().state.lock().capturing = false;
    bench.fence.gate().ended();
    bench.check();
}

#[test]
fn a_driver_without_context_events_synchronises_instead() {
    let bench = Bench::with(Model::new(64 * MIB, false), 64 * MIB, Tuning::default());
    let block = bench.alloc(60 * MIB).unwrap();
    let work = bench.model().submit();
    bench.free(block);
    assert_eq!(bench.alloc(60 * MIB), Ok(block));
    assert!(bench.model().is_safe(work));
    assert_eq!((bench.model().calls("synchronize"), bench.model().calls("record")), (1, 0));
}

#[test]
fn free_sync_waits_for_the_device_first() {
    let tuning = Tuning { free_sync: true, ..Tuning::default() };
    let bench = Bench::with(Model::new(1 << 30, true), 1 << 30, tuning);
    let block = bench.alloc(MIB).unwrap();
    bench.model().submit();
    bench.free(block);
    let state = bench.model().state.lock();
    assert_eq!(state.completed, state.submitted);
}

#[test]
fn the_programs_own_synchronisation_makes_memory_clean() {
    let bench = Bench::new(64 * MIB, 64 * MIB);
    let block = bench.alloc(60 * MIB).unwrap();
    bench.model().submit();
    bench.free(block);
    let epoch = bench.fence.before_sync();
    bench.model().complete();
    bench.fence.synced(Ctx(1), epoch);
    assert_eq!(local::with(|thread| bench.server.try_hit(thread, 60 * MIB)), Some(block));
    assert_eq!((bench.fence.barriers(), bench.model().calls("query")), (0, 0));
}

#[test]
fn a_call_that_may_end_the_context_keeps_everything_pending() {
    let bench = Bench::new(64 * MIB, 64 * MIB);
    let block = bench.alloc(60 * MIB).unwrap();
    let work = bench.model().submit();
    bench.free(block);
    bench.fence.seal();
    let ending = bench.fence.end();
    assert_eq!(bench.alloc(60 * MIB), Err(CuResult::NOT_SUPPORTED), "left to the driver");
    assert_eq!((bench.model().calls("query"), bench.model().calls("wait")), (0, 0));
    drop(ending);
    assert_eq!(bench.alloc(60 * MIB), Ok(block));
    assert!(bench.model().is_safe(work));
    bench.check();
}

#[test]
fn garbage_collection_gives_the_oldest_idle_regions_back() {
    let tuning = Tuning { gc_threshold: Some(0.5), ..Tuning::default() };
    let bench = Bench::with(Model::new(1 << 30, true), 200 * MIB, tuning);
    let old = bench.alloc(60 * MIB).unwrap();
    let kept = bench.alloc(30 * MIB).unwrap();
    bench.free(old);
    bench.model().complete();
    let _more = bench.alloc(70 * MIB).unwrap();
    assert_eq!(bench.reserved(), 100 * MIB, "the idle 60 MiB went back at the threshold of 100");
    assert_eq!(bench.server.figures().unwrap().counts.gc, 1);
    bench.free(kept);
    bench.check();
}

#[test]
fn roundup_divisions_reach_the_heap() {
    let bench = Bench::with(Model::new(1 << 30, true), 1 << 30, rounding(4));
    bench.alloc(5 * MIB / 4 + 1).unwrap();
    assert_eq!(bench.server.usage().allocated.current, 3 * MIB / 2);
}

#[test]
fn any_failing_call_leaves_the_books_true() {
    for name in ["mem_alloc", "mem_free", "event_create", "record", "query", "wait", "synchronize"] {
        for code in [CuResult::OUT_OF_MEMORY, CuResult(999), CuResult(700)] {
            for nth in 0..4 {
                let bench = Bench::new(96 * MIB, 96 * MIB);
                let mut live = Vec::new();
                for step in 0..60u64 {
                    if step == 10 + nth * 7 {
                        bench.model().state.lock().failures.push((name, code));
                    }
                    match bench.alloc((1 + step * 7 % 40) * MIB) {
                        Ok(block) => live.push(block),
                        Err(_) => {
                            for block in live.drain(..) {
                                bench.free(block);
                            }
                        }
                    }
                    bench.model().submit();
                    if step % 3 == 0 && !live.is_empty() {
                        bench.free(live.remove(0));
                    }
                }
                for block in live {
                    bench.free(block);
                }
                bench.check();
            }
        }
    }
}

#[test]
fn the_end_of_a_context_returns_everything_to_the_account() {
    let bench = Bench::new(1 << 30, 100 * MIB);
    let block = bench.alloc(80 * MIB).unwrap();
    bench.server.end();
    assert!(matches!(bench.index.claim(block), Claim::Foreign));
    assert_eq!(bench.server.books().account.in_use(), 0);
    bench.server.end();
    assert_eq!(bench.server.books().account.in_use(), 0, "once");
}

#[test]
fn a_growth_never_waits_for_work_that_is_under_way() {
    let bench = Bench::new(1 << 30, 1 << 30);
    let block = bench.alloc(64 * MIB).unwrap();
    bench.free(block);
    bench.model().submit(); // ends only after the next allocation
    bench.alloc(128 * MIB).unwrap();
    let state = bench.model().state.lock();
    assert!(state.completed < state.submitted, "the allocation has waited for the device");
}

#[test]
fn a_failed_context_does_not_end_reuse_for_the_others() {
    let bench = Bench::new(1 << 30, 64 * MIB);
    let sticky = std::sync::Arc::new(Apart(std::sync::atomic::AtomicI32::new(0)));
    bench.fence.join(Ctx(2), std::sync::Arc::clone(&sticky));
    bench.model().state.lock().failed = Some((Ctx(2), CuResult(700)));
    for _ in 0..10 {
        let block = bench.alloc(60 * MIB).unwrap();
        bench.model().submit();
        bench.free(block);
    }
    assert_eq!(bench.model().calls("mem_alloc"), 1);
    assert_eq!(sticky.load(std::sync::atomic::Ordering::Relaxed), 700, "and its own pool learns of it");
}

#[test]
fn a_region_that_the_driver_does_not_take_back_is_still_pending() {
    let bench = Bench::new(1 << 30, 160 * MIB);
    let block = bench.alloc(64 * MIB).unwrap();
    let work = bench.model().submit();
    bench.free(block);
    bench.model().state.lock().failures.extend([("mem_free", CuResult::INVALID_VALUE); 2]);
    assert!(bench.server.give_back(u64::MAX) == 0);
    assert_eq!(local::with(|thread| bench.server.try_hit(thread, 64 * MIB)), None, "its memory is in use");
    assert_eq!(bench.alloc(64 * MIB), Ok(block));
    assert!(bench.model().is_safe(work));
    bench.check();
}

#[test]
fn a_region_that_nobody_takes_back_stays_in_the_account_until_its_context_ends() {
    let bench = Bench::new(1 << 30, 1 << 30);
    let block = bench.alloc(64 * MIB).unwrap();
    bench.free(block);
    let rules = crate::pool::Rules { max_split: u64::MAX, max_non_split_rounding: 20 * MIB };
    let other: &'static mut _ = Box::leak(Box::new(crate::pool::Heap::new(7, bench.index, rules)));
    {
        let mut state = bench.model().state.lock();
        state.failures.push(("mem_free", CuResult(999)));
        state.at_free = Some(Box::new(move |address| {
            assert!(other.add_region(address, 2 * MIB));
        }));
    }
    assert_eq!(bench.server.give_back(u64::MAX), 0);
    assert_eq!((bench.reserved(), bench.server.books().account.in_use()), (0, 64 * MIB));
    bench.server.end();
    assert_eq!(bench.server.books().account.in_use(), 0);
}

#[test]
fn a_request_outlasts_the_end_of_another_context() {
    let bench = Bench::new(1 << 30, 100 * MIB);
    let first = bench.alloc(60 * MIB).unwrap();
    bench.free(first);
    let fence = bench.fence;
    let ending = fence.end(); // another thread ends another context
    let request = std::thread::spawn(move || bench.alloc(90 * MIB));
    std::thread::sleep(std::time::Duration::from_millis(20));
    drop(ending);
    assert!(request.join().unwrap().is_ok(), "60 MiB were idle, and 90 of 100 are what was asked");
}

#[test]
fn without_context_events_the_device_is_never_known_to_be_idle() {
    let bench = Bench::with(Model::new(1 << 30, false), 1 << 30, Tuning::default());
    let epoch = bench.fence.before_sync();
    bench.fence.synced(Ctx(1), epoch);
    bench.model().submit();
    assert!(!bench.fence.is_idle());
}

#[test]
fn waits_that_race_with_a_contexts_end_leave_nothing_of_it() {
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
    for _ in 0..200 {
        let bench = Bench::new(1 << 30, 1 << 30);
        let fence = bench.fence;
        let other = fence.join(Ctx(2), std::sync::Arc::new(Apart(AtomicI32::new(0))));
        bench.model().submit();
        assert!(fence.seal());
        let (upto, stop) = (fence.newest_sealed(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let ending = fence.end();
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    fence.barrier(upto);
                }
            });
            std::thread::sleep(std::time::Duration::from_micros(100));
            fence.leave(other);
            stop.store(true, Ordering::Relaxed);
            drop(ending);
        });
        assert!(!fence.knows(other), "an event of a context that is gone");
    }
}
