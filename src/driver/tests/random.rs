//! Random and racing programs: no block is handed out while work submitted before its free may still touch it.

use super::super::world::play;
use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Grain at which use is followed: blocks are multiples of it.
const GRAIN: u64 = 512;

/// Work that last touched each granule of memory handed out and freed.
type Touched = HashMap<u64, u64>;

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn no_program_gets_memory_in_use_or_more_than_its_cap(bytes in prop::collection::vec(any::<u8>(), 0..800)) {
        play(&bytes);
    }
}

fn assert_safe(model: &Model, touched: &Touched, address: u64, bytes: u64) {
    for granule in address / GRAIN..(address + bytes).div_ceil(GRAIN) {
        if let Some(work) = touched.get(&granule) {
            assert!(model.is_safe(*work), "{address:#x} is still in use by work {work}");
        }
    }
}

#[test]
fn nor_do_they_from_a_range_whose_memory_moves() {
    let mut moved = 0;
    for seed in 0..6 {
        let tuning = Tuning { expandable: true, ..Tuning::default() };
        let bench = Bench::with(Model::new(128 * MIB, true), 96 * MIB, tuning);
        churn(seed, 12 * MIB, &bench);
        moved += bench.model().calls("unmap");
    }
    assert!(moved > 30, "{moved} pieces were moved or given back");
}

/// Allocates, uses and frees at random.
fn churn(seed: u64, largest: u64, bench: &Bench) {
    let mut rng = seed;
    let mut live: Vec<(u64, u64)> = Vec::new();
    let mut touched = Touched::new();
    for _ in 0..600 {
        match random(&mut rng) % 10 {
            0..5 => {
                let bytes = match random(&mut rng) % 3 {
                    0 => 1 + random(&mut rng) % 2000,
                    1 => 1 + random(&mut rng) % (256 << 10),
                    _ => 1 + random(&mut rng) % largest,
                };
                if let Ok(address) = bench.alloc(bytes) {
                    assert_safe(bench.model(), &touched, address, bytes);
                    live.push((address, bytes));
                }
            }
            5..9 if !live.is_empty() => {
                let at = random(&mut rng) as usize % live.len();
                let (address, bytes) = live.swap_remove(at);
                bench.model().touch(address, bytes);
                let work = bench.model().submit();
                for granule in address / GRAIN..(address + bytes).div_ceil(GRAIN) {
                    touched.insert(granule, work);
                }
                bench.free(address);
            }
            _ => {
                let mut state = bench.model().state.lock();
                state.completed = state.completed.max(state.submitted.saturating_sub(random(&mut rng) % 20));
            }
        }
    }
    bench.check();
    for (address, _) in live {
        bench.free(address);
    }
    bench.check();
    assert_eq!(bench.server.usage().allocated.current, 0);
}

#[test]
fn racing_threads_never_share_a_block_nor_get_one_in_use() {
    let bench = Arc::new(Bench::new(256 * MIB, 64 * MIB));
    let stop = Arc::new(AtomicBool::new(false));
    let touched = Arc::new(Mutex::new(HashMap::<u64, u64>::new()));
    let gpu = {
        let (bench, stop) = (Arc::clone(&bench), Arc::clone(&stop));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                bench.model().complete();
                std::thread::sleep(std::time::Duration::from_micros(300));
            }
        })
    };
    let threads: Vec<_> = (0..4u64)
        .map(|thread| {
            let (bench, touched) = (Arc::clone(&bench), Arc::clone(&touched));
            std::thread::spawn(move || {
                let mut rng = thread + 1;
                for _ in 0..3000 {
                    let bytes = [4096, 65536, MIB][random(&mut rng) as usize % 3];
                    let Ok(address) = bench.alloc(bytes) else { continue };
                    // Only the start is followed: sizes are few, so a shared block shows there.
                    if let Some(work) = touched.lock().remove(&address) {
                        assert!(bench.model().is_safe(work), "in use by work {work}, or live in two threads");
                    }
                    let work = bench.model().submit();
                    assert!(touched.lock().insert(address, work).is_none(), "handed out twice");
                    bench.free(address);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no assertion failed");
    }
    stop.store(true, Ordering::Relaxed);
    gpu.join().expect("no assertion failed");
    bench.check();
    assert_eq!(bench.server.usage().allocated.current, 0);
    assert!(bench.model().state.lock().peak <= 64 * MIB);
}
