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
    (bench, fits)
}

#[test]
fn a_request_that_makes_a_difference_is_asked_and_waited_for_before_it_cuts_a_larger_block() {
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
