//! Growth that waits for the device, so that idle regions can go back first.

use super::*;
use std::time::{Duration, Instant};

/// 64 MiB are idle on a device that is busy, and 96 MiB are asked for.
fn raise_the_mark(patience: Duration, complete: bool) -> (Bench, Duration) {
    let tuning = Tuning { patience, ..Tuning::default() };
    let bench = Bench::with(Model::new(1 << 30, true), 1 << 30, tuning);
    let block = bench.alloc(64 * MIB).unwrap();
    bench.model().submit();
    bench.free(block);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            if complete {
                bench.model().complete();
            }
        });
        bench.alloc(96 * MIB).unwrap();
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
