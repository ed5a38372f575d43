//! What a free finds: live, freed already, interior, foreign; alone and against another thread.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::{Claim, Claimed, Fit, Heap, Index};
use super::{MIB, alloc, free, heap};

/// A heap may be locked from any thread, and the index used from all at once.
const _: () = {
    const fn sent<T: Send>() {}
    const fn shared<T: Sync>() {}
    sent::<Heap>();
    sent::<Claimed>();
    shared::<Index>();
};

#[test]
fn of_two_threads_that_free_a_block_exactly_one_wins() {
    let (mut heap, index) = heap();
    let mut next = 1 << 40;
    for round in 0..400u64 {
        let bytes = if round % 2 == 0 { 1024 } else { MIB };
        let addr = alloc(&mut heap, &mut next, bytes);
        let (start, wins) = (Barrier::new(2), AtomicUsize::new(0));
        let claimed: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        match index.claim(addr) {
                            Claim::Claimed(claimed) => {
                                wins.fetch_add(1, Ordering::Relaxed);
                                Some(claimed)
                            }
                            Claim::Ask { owner: 0 } => None,
                            other => panic!("{other:?}"),
                        }
                    })
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(wins.into_inner(), 1, "round {round}");
        assert!(matches!(heap.claim(addr), Claim::NotLive { owner: 0 }));
        for claimed in claimed {
            heap.free(claimed, 0);
        }
        heap.check().unwrap();
    }
}

#[test]
fn a_claim_is_right_while_another_thread_splits_and_joins_all_around() {
    let (mut heap, index) = heap();
    let mut next = 1 << 40;
    let kept: Vec<u64> =
        (0..64).map(|n| alloc(&mut heap, &mut next, if n % 2 == 0 { 700 } else { 300_000 })).collect();
    let claims: Vec<_> = std::thread::scope(|scope| {
        let churn = scope.spawn(|| {
            for round in 0..2_000u64 {
                let bytes = 1 + round * 7_919 % (2 * MIB);
                let (one, two) =
                    (alloc(&mut heap, &mut next, bytes), alloc(&mut heap, &mut next, bytes / 3 + 1));
                free(&mut heap, index, one, 0);
                free(&mut heap, index, two, 0);
            }
        });
        let claims = kept.iter().map(|addr| index.claim(*addr)).collect();
        churn.join().expect("no panic");
        claims
    });
    for (addr, claim) in kept.iter().zip(claims) {
        let Claim::Claimed(claimed) = claim else { panic!("{addr:#x} gave {claim:?}") };
        assert_eq!(claimed.addr(), *addr);
        heap.free(claimed, 0);
    }
    assert_eq!(heap.usage().live_blocks, 0);
    heap.check().unwrap();
}

#[test]
fn what_is_not_live_is_told_apart() {
    let (mut heap, index) = heap();
    let mut next = 1 << 40;
    let (large, small) = (alloc(&mut heap, &mut next, MIB), alloc(&mut heap, &mut next, 3000));
    assert!(matches!(index.claim(0), Claim::Foreign));
    assert!(matches!(index.claim(u64::MAX), Claim::Foreign));
    assert!(matches!(index.claim(next), Claim::Foreign));
    for (start, inside) in [(large, large + 512), (large, large + MIB - 1), (small, small + 8)] {
        assert!(matches!(index.claim(inside), Claim::Ask { owner: 0 }));
        assert!(matches!(heap.claim(inside), Claim::Interior { owner: 0, start: at } if at == start));
    }
    for addr in [large, small] {
        free(&mut heap, index, addr, 5);
        assert!(matches!(heap.claim(addr), Claim::NotLive { owner: 0 }), "pending");
        assert!(matches!(heap.claim(addr + 512), Claim::NotLive { owner: 0 }), "inside what is pending");
    }
    heap.retire(5);
    assert!(matches!(heap.claim(large), Claim::NotLive { owner: 0 }), "clean");
    heap.clear();
    assert!(matches!(index.claim(large), Claim::Foreign));
}

#[test]
fn a_claim_that_comes_in_after_the_context_died_is_dropped() {
    let (mut heap, index) = heap();
    let mut next = 1 << 40;
    let addr = alloc(&mut heap, &mut next, 2 * MIB);
    let Claim::Claimed(late) = index.claim(addr) else { panic!("not live") };
    heap.clear();
    assert!(heap.add_region(addr, 2 * MIB));
    let again = heap.alloc(2 * MIB, 2 * MIB, Fit::Any, 0).unwrap();
    assert_eq!(again, addr, "the new context got the old address");
    heap.free(late, 0);
    heap.check().unwrap();
    assert_eq!(heap.usage().live_blocks, 1);
}
