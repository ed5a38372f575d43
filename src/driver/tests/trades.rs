//! An idle region is traded for one of the size that is asked for, or cut.

use super::*;
use std::time::Duration;

/// 400 MiB live and 200 idle; 100 are asked for, which is near the peak of 600.
fn ask(tuning: Tuning, limit: u64, before: impl FnOnce(&Bench)) -> Bench {
    ask_for(MIB, tuning, limit, before)
}

/// The same in another unit.
fn ask_for(unit: u64, tuning: Tuning, limit: u64, before: impl FnOnce(&Bench)) -> Bench {
    let bench = Bench::with(Model::new(2048 * unit, true), limit, tuning);
    bench.alloc(400 * unit).unwrap();
    let block = bench.alloc(200 * unit).unwrap();
    bench.free(block);
    before(&bench);
    bench.alloc(100 * unit).unwrap();
    bench.check();
    bench
}

#[test]
fn a_region_of_the_right_size_takes_the_place_of_one_that_would_be_cut() {
    let bench = ask(Tuning::default(), 1 << 30, |_| ());
    assert_eq!(bench.reserved(), 500 * MIB);
    assert_eq!(bench.model().calls("mem_free"), 1);
    let bench = ask(Tuning::default(), 600 * MIB, |_| ());
    assert_eq!(
        bench.reserved(),
        600 * MIB,
        "nothing is given where another could take the room under the cap"
    );
    assert_eq!(bench.model().calls("mem_free"), 0);
}

#[test]
fn a_busy_device_is_waited_for_within_bounds_if_that_can_be_paid_for() {
    let done_after = |unit, patience, delay: Option<u64>| {
        let tuning = Tuning { patience: Duration::from_millis(patience), ..Tuning::default() };
        let bench = std::thread::scope(|scope| {
            ask_for(unit, tuning, 1536 * unit, |bench| {
                bench.model().submit();
                let model = bench.model();
                if let Some(delay) = delay {
                    scope.spawn(move || {
                        std::thread::sleep(Duration::from_millis(delay));
                        model.complete();
                    });
                }
            })
        });
        (bench.reserved() / unit, bench.model().calls("mem_free"))
    };
    assert_eq!(done_after(10 * MIB, 60_000, Some(20)), (500, 1));
    assert_eq!(done_after(10 * MIB, 40, None), (600, 0), "it never gets done");
    assert_eq!(done_after(MIB / 2, 60_000, Some(20)), (600, 0), "the mark of 300 MiB is not worth a wait");
}

#[test]
fn without_patience_a_busy_device_is_not_waited_for_nor_asked_again_soon() {
    let bench = ask(Tuning::default(), 3 << 29, |bench| {
        bench.model().submit();
    });
    assert_eq!(bench.reserved(), 600 * MIB, "cut");
    assert_eq!(bench.model().calls("mem_free"), 0, "the driver's free would have waited");

    // Another idle region, and an idle device.
    bench.alloc(90 * MIB).unwrap();
    let block = bench.alloc(200 * MIB).unwrap();
    bench.free(block);
    bench.model().complete();
    bench.alloc(100 * MIB).unwrap();
    assert_eq!(bench.model().calls("mem_free"), 0, "put off");
    for _ in 0..64 {
        let block = bench.alloc(512).unwrap();
        bench.free(block);
    }
    let block = bench.alloc(200 * MIB).unwrap();
    bench.free(block);
    bench.model().complete();
    bench.alloc(150 * MIB).unwrap();
    assert_eq!(bench.model().calls("mem_free"), 1, "a trade at last");
}

#[test]
fn nobody_waits_for_a_thread_that_grows_the_heap() {
    let bench = ask(Tuning::default(), 1 << 30, |bench| {
        std::mem::forget(bench.server.growing.lock());
    });
    assert_eq!(bench.reserved(), 600 * MIB);
}

#[test]
fn the_driver_that_does_not_take_the_region_back_costs_nothing_but_the_trade() {
    let bench = ask(Tuning::default(), 1 << 30, |bench| {
        bench.model().state.lock().failures.push(("mem_free", CuResult(999)));
    });
    assert_eq!(bench.reserved(), 600 * MIB);
}

#[test]
fn nothing_is_given_back_for_a_region_that_the_cap_has_no_room_for() {
    let bench = Bench::new(2 << 30, 1 << 30);
    bench.alloc(640 * MIB).unwrap();
    let blocks = [200, 80, 40, 40].map(|mib| bench.alloc(mib * MIB).unwrap());
    for block in blocks {
        bench.free(block);
    }
    assert_eq!(bench.server.give_back(80 * MIB), 80 * MIB);
    let outside = bench.server.books().account.reserve(40 * MIB);
    bench.alloc(160 * MIB).unwrap();
    assert_eq!(bench.reserved(), 920 * MIB);
    drop(outside);
}

#[test]
fn a_region_that_is_only_pending_is_not_traded_for_one_like_it() {
    let bench = Bench::new(8 << 30, 4 << 30);
    bench.alloc(1000 * MIB).unwrap();
    let [larger, block] = [200, 100].map(|mib| bench.alloc(mib * MIB).unwrap());
    bench.free(larger);
    assert!(bench.fence.complete_all());
    bench.free(block);
    let calls = |bench: &Bench| (bench.model().calls("mem_alloc"), bench.model().calls("mem_free"));
    let before = calls(&bench);
    for _ in 0..3 {
        let again = bench.alloc(100 * MIB).unwrap();
        assert_eq!(again, block);
        bench.free(again);
    }
    assert_eq!(calls(&bench), before);
}

#[test]
fn nothing_is_asked_for_a_trade_that_cannot_be_paid_for() {
    let bench = Bench::new(4 << 30, 2 << 30);
    bench.alloc(150 * MIB).unwrap();
    let block = bench.alloc(150 * MIB).unwrap();
    bench.free(block);
    assert!(bench.fence.complete_all());
    let before = bench.model().calls("record");
    for _ in 0..20 {
        let block = bench.alloc(100 * MIB).unwrap();
        bench.free(block);
        bench.fence.complete_all();
    }
    assert!(bench.model().calls("record") - before <= 2, "{}", bench.model().calls("record") - before);
    assert_eq!(bench.model().calls("mem_free"), 0);
}
