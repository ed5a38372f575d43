//! What threads put away, beside others that take it back or end its heap.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::super::{Cache, Caches, Drain, Epoch, Fit, Freed, Heap, Popped, Rules};
use super::cached::Run;
use super::{MIB, index};

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

/// Who needs a block takes what one other thread has put by, and leaves the others theirs.
#[test]
fn a_drain_of_one_cache_takes_what_is_clean_from_one_thread() {
    const BYTES: u64 = 100_352;
    let drained = |run: &mut Run| {
        let one = Drain::One { bytes: BYTES, retired: run.retired };
        run.caches.drain(&mut run.heap, one, || run.epoch)
    };
    let popped =
        |run: &mut Run, thread| matches!(run.cache(thread).pop(BYTES, BYTES, run.retired), Popped::Block(_));
    let run = &mut Run::new();
    for thread in 0..3 {
        run.alloc(thread, BYTES);
    }
    (run.epoch, run.retired) = (5, 4);
    for thread in 0..3 {
        run.free(thread, 0);
    }
    assert!(!drained(run), "nothing is clean");
    run.retired = 5;
    assert!(drained(run));
    assert_eq!((0..3).filter(|thread| popped(run, *thread)).count(), 2, "the others have theirs");
    assert!(!drained(run), "and nothing is left");

    // A depot of a thread is as good as its ring.
    for _ in 0..8 {
        run.alloc(0, BYTES);
    }
    run.epoch = 7;
    for _ in 0..8 {
        run.free(0, 0);
    }
    assert!(run.caches.vacate(run.cache(0), BYTES).is_none(), "there is room in the depot");
    assert!(!drained(run), "nothing is clean");
    run.retired = 7;
    assert!(drained(run) && !drained(run));
    assert!(run.caches.are_counted());
}

/// A cell that has lost its block says nothing about the ring's oldest one.
#[test]
fn a_drain_of_one_cache_looks_past_what_was_drained() {
    const BYTES: u64 = 100_352;
    let run = &mut Run::new();
    for thread in [0, 0, 1] {
        run.alloc(thread, BYTES);
    }
    run.free(0, 0);
    run.drain(Drain::Like(BYTES));
    for (thread, epoch) in [(0, 9), (1, 3)] {
        run.epoch = epoch;
        run.free(thread, 0);
    }
    (run.epoch, run.retired) = (9, 5);
    let one = Drain::One { bytes: BYTES, retired: 5 };
    assert!(run.caches.drain(&mut run.heap, one, || 9), "the second thread's is clean");
    assert_eq!(run.cache(1).pop(BYTES, BYTES, 9), Popped::Empty);
    assert!(matches!(run.cache(0).pop(BYTES, BYTES, 9), Popped::Block(_)), "and the first one's is not");
}

#[test]
fn drains_of_one_cache_take_turns() {
    const BYTES: u64 = 100_352;
    let run = &mut Run::new();
    for _ in 0..3 {
        run.alloc(0, BYTES);
    }
    (run.epoch, run.retired) = (5, 5);
    run.free(0, 0);
    run.free(1, 0);
    let one = Drain::One { bytes: BYTES, retired: 5 };
    assert!(run.caches.drain(&mut run.heap, one, || 5));
    assert_eq!(run.cache(0).pop(BYTES, BYTES, 5), Popped::Empty, "the first has lost its block");
    run.free(0, 0);
    assert!(run.caches.drain(&mut run.heap, one, || 5));
    assert_eq!(run.cache(1).pop(BYTES, BYTES, 5), Popped::Empty, "then the second");
    assert!(matches!(run.cache(0).pop(BYTES, BYTES, 5), Popped::Block(_)));
}

/// The cells of a ring whose blocks were drained make room for a batch, and are none themselves.
#[test]
fn what_comes_from_a_depot_is_never_nothing() {
    let mut run = Run::new();
    for _ in 0..410 {
        run.alloc(0, 4096);
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
        match cache.pop(4096, 4096, run.retired) {
            Popped::Block(_) => got += 1,
            _ if run.caches.refill(cache, 4096, run.retired) => {
                assert!(matches!(cache.pop(4096, 4096, run.retired), Popped::Block(_)), "nothing came");
                got += 1;
            }
            _ => break,
        }
    }
    assert!(got > 200, "{got} of the other thread's");
    assert!(run.caches.are_counted());
}

const SIZES: [u64; 4] = [512, 4096, 40_960, 65_536];

/// Threads whose blocks overflow their rings, beside drains of one kind or the other: every block has one holder, none is
/// handed out before its epoch is over, and a drain of a kind leaves nothing of it where threads rest.
#[test]
fn threads_that_put_away_beside_drains_share_nothing_and_leave_nothing_behind() {
    const ROUNDS: usize = 3_000;
    let index = index();
    let heap = Mutex::new(Heap::new(3, index, Rules::default()));
    let caches: &'static Caches = Box::leak(Box::new(Caches::new(3, index)));
    let regions = AtomicU64::new(0);
    let (epoch, retired) = (AtomicU64::new(1), AtomicU64::new(0));
    let holders: Mutex<HashMap<u64, Option<Epoch>>> = Mutex::default();
    let (refills, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let alloc = |cache: &Cache, bytes: u64| {
        let over = retired.load(Ordering::SeqCst);
        let pop = || match cache.pop(bytes, bytes, over) {
            Popped::Block(addr) => Some(addr),
            _ => None,
        };
        let addr = pop().or_else(|| {
            let refilled = caches.refill(cache, bytes, over);
            refills.fetch_add(u64::from(refilled), Ordering::Relaxed);
            pop()
        });
        let addr = addr.unwrap_or_else(|| {
            let mut heap = heap.lock();
            heap.settle(cache);
            let addr = heap.alloc(bytes, bytes, Fit::Any, over).unwrap_or_else(|| {
                let addr = (1 << 40) + regions.fetch_add(1, Ordering::Relaxed) * 64 * MIB;
                assert!(heap.add_region(addr, 64 * MIB));
                heap.alloc(bytes, bytes, Fit::Any, over).expect("the new region serves")
            });
            heap.lend(cache, addr, bytes);
            addr
        });
        let before = holders.lock().insert(addr, None);
        // The heap may know of more than this thread has read.
        let over = retired.load(Ordering::SeqCst);
        match before {
            Some(None) => panic!("{addr:#x} has two holders"),
            Some(Some(freed)) => assert!(freed <= over, "{addr:#x} is pending"),
            None => {}
        }
        addr
    };
    let free = |cache: &'static Cache, addr: u64, bytes: u64| {
        holders.lock().insert(addr, Some(epoch.load(Ordering::SeqCst)));
        if let Freed::Kept(kept) = index.keep(addr, |_| Some(cache)) {
            kept.put(epoch.load(Ordering::SeqCst));
            return;
        }
        let claimed = super::claim(&heap.lock(), index, addr).expect("the block is live");
        let batch = caches.relieve(cache, bytes);
        match cache.keep(claimed) {
            Ok(kept) => {
                kept.put(epoch.load(Ordering::SeqCst));
            }
            Err(claimed) => heap.lock().free(claimed, epoch.load(Ordering::SeqCst)),
        }
        if let Some(batch) = batch {
            heap.lock().take_batch(&batch);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|number| {
                let (alloc, free, heap) = (&alloc, &free, &heap);
                scope.spawn(move || {
                    let cache = caches.enter().expect("few");
                    for round in 0..ROUNDS {
                        let bytes = SIZES[(round + number) % SIZES.len()];
                        let mine: Vec<u64> = (0..10 + round % 70).map(|_| alloc(cache, bytes)).collect();
                        for addr in mine {
                            free(cache, addr, bytes);
                        }
                        if round % 5 == number
                            && let Some(batch) = caches.vacate(cache, bytes)
                        {
                            heap.lock().take_batch(&batch);
                        }
                    }
                    cache.leave();
                })
            })
            .collect();
        let (stop, heap, epoch, retired) = (&stop, &heap, &epoch, &retired);
        scope.spawn(move || {
            for turn in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let before = epoch.fetch_add(1, Ordering::SeqCst);
                if let Some(which) = drain_of_turn(turn, retired.load(Ordering::SeqCst)) {
                    caches.drain(&mut heap.lock(), which, || epoch.load(Ordering::SeqCst));
                }
                retired.fetch_max(before.saturating_sub(2), Ordering::SeqCst);
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        // Also where one has failed: the last thread must not go on for ever.
        let failed = workers.into_iter().filter_map(|worker| worker.join().err()).count();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(failed, 0, "what failed is said above");
    });
    assert!(refills.into_inner() > 0, "nothing came back from a depot");
    nothing_is_left_by_drains_of_each_kind(&mut heap.into_inner(), caches);
}

/// Of eight turns one takes what all threads have of a size, two what one has.
fn drain_of_turn(turn: usize, retired: Epoch) -> Option<Drain> {
    let bytes = SIZES[turn / 8 % SIZES.len()];
    match turn % 8 {
        0 => Some(Drain::Like(bytes)),
        3 | 6 => Some(Drain::One { bytes, retired }),
        _ => None,
    }
}

fn nothing_is_left_by_drains_of_each_kind(heap: &mut Heap, caches: &Caches) {
    heap.check_with(Some(caches)).unwrap();
    assert!(caches.are_counted());
    for like in SIZES {
        caches.drain(heap, Drain::Like(like), || 0);
    }
    assert!(caches.held().is_empty(), "a drain has missed what rests");
    heap.check_with(Some(caches)).unwrap();
    let mut usage = heap.usage();
    caches.add_to(&mut usage);
    assert_eq!((usage.live_blocks, usage.allocated.current), (0, 0));
}
