//! Caches of real threads, beside a thread that drains them all the time.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::super::{Cache, Caches, Claim, Drain, Epoch, Fit, Freed, Heap, Index, Popped, Rules};
use super::{MIB, index};

/// Threads that allocate, hand over and free, while another drains all the time and counts epochs on: every block has one
/// holder, and none is handed out before its epoch is over.
#[test]
fn real_threads_beside_a_drain_never_share_a_block() {
    const ROUNDS: u64 = 3_000;
    let index = index();
    let heap = Mutex::new(Heap::new(3, index, Rules::default()));
    let caches: &'static Caches = Box::leak(Box::new(Caches::new(3, index)));
    assert!(heap.lock().add_region(1 << 40, 64 * MIB));
    let (epoch, retired) = (AtomicU64::new(1), AtomicU64::new(0));
    let holders: Mutex<HashMap<u64, Option<Epoch>>> = Mutex::default();
    let shelf: Mutex<Vec<u64>> = Mutex::default();
    let stop = AtomicBool::new(false);
    let alloc = |cache: &Cache, bytes: u64| {
        let over = retired.load(Ordering::SeqCst);
        if let Popped::Block(addr) = cache.pop(bytes, bytes, over) {
            return Some(addr);
        }
        if caches.refill(cache, bytes, over)
            && let Popped::Block(addr) = cache.pop(bytes, bytes, over)
        {
            return Some(addr);
        }
        let mut heap = heap.lock();
        heap.settle(cache);
        let addr = heap.alloc(bytes, bytes, Fit::Any, over)?;
        heap.lend(cache, addr, bytes);
        Some(addr)
    };
    let free = |cache: &'static Cache, addr: u64, bytes: u64| match index.keep(addr, |_| Some(cache)) {
        Freed::Kept(kept) => {
            kept.put(epoch.load(Ordering::SeqCst));
        }
        Freed::Claimed(claimed) => heap.lock().free(claimed, epoch.load(Ordering::SeqCst)),
        Freed::No => {
            let batch = caches.relieve(cache, bytes);
            let mut heap = heap.lock();
            let claim = match index.claim(addr) {
                Claim::Ask { .. } => heap.claim(addr),
                decided => decided,
            };
            let Claim::Claimed(claimed) = claim else { panic!("{addr:#x} gave {claim:?}") };
            heap.free(claimed, epoch.load(Ordering::SeqCst));
            if let Some(batch) = batch {
                heap.take_batch(&batch);
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3u64)
            .map(|number| {
                let (alloc, free, holders, shelf, epoch, retired) =
                    (&alloc, &free, &holders, &shelf, &epoch, &retired);
                scope.spawn(move || {
                    let cache = caches.enter().expect("few");
                    for round in 0..ROUNDS {
                        let bytes = [512, 4096, 40_960][(round + number) as usize % 3];
                        if let Some(addr) = alloc(cache, bytes) {
                            let before = holders.lock().insert(addr, None);
                            let over = retired.load(Ordering::SeqCst);
                            match before {
                                Some(None) => panic!("{addr:#x} has two holders"),
                                Some(Some(freed)) => assert!(freed <= over, "{addr:#x} is pending"),
                                None => {}
                            }
                            shelf.lock().push(addr);
                        }
                        // Mostly another thread's.
                        let taken = {
                            let mut shelf = shelf.lock();
                            (shelf.len() > 40).then(|| shelf.swap_remove(round as usize % 40))
                        };
                        if let Some(addr) = taken {
                            // Not later than the free will be.
                            holders.lock().insert(addr, Some(epoch.load(Ordering::SeqCst)));
                            let bytes = heap_size(addr, index);
                            free(cache, addr, bytes);
                        }
                    }
                    cache.leave();
                })
            })
            .collect();
        let (stop, heap, epoch, retired) = (&stop, &heap, &epoch, &retired);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let before = epoch.fetch_add(1, Ordering::SeqCst);
                caches.drain(&mut heap.lock(), Drain::All, || epoch.load(Ordering::SeqCst));
                retired.fetch_max(before.saturating_sub(2), Ordering::SeqCst);
                std::thread::yield_now();
            }
        });
        // Also where one has failed: the last thread must not go on for ever.
        let failed = workers.into_iter().filter_map(|worker| worker.join().err()).count();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(failed, 0, "what failed is said above");
    });
    let mut heap = heap.into_inner();
    heap.check_with(Some(caches)).unwrap();
    caches.drain(&mut heap, Drain::All, || 0);
    let mut usage = heap.usage();
    caches.add_to(&mut usage);
    assert_eq!(usage.live_blocks, shelf.into_inner().len() as u64);
    heap.check_with(Some(caches)).unwrap();
}

fn heap_size(addr: u64, index: &Index) -> u64 {
    index.candidate(addr).1.size()
}
