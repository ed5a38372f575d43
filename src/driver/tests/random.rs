//! Random and racing programs: no block is handed out while work submitted before its free may still touch it.

use super::super::world::play;
use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
