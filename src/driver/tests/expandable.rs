//! The expandable range against the model: what it moves and when, each fault, and random programs.

use super::*;
use crate::driver::mapping::Mapping as _;

fn expandable() -> Tuning {
    Tuning { expandable: true, ..Tuning::default() }
}

fn bench(capacity: u64, limit: u64) -> Bench {
    Bench::with(Model::new(capacity, true), limit, expandable())
}

impl Bench {
    /// Allocates, and submits work on the block.
    fn used(&self, bytes: u64) -> u64 {
        let address = self.alloc(bytes).unwrap();
        assert!(self.model().reaches(0, address, bytes), "{address:#x} is mapped");
        self.model().touch(address, bytes);
        address
    }

    fn spanned(&self) -> u64 {
        self.server.with_heap(|heap| heap.range_usage().spanned)
    }
}

#[test]
fn halves_and_their_whole_take_the_same_memory_in_either_order() {
    for sizes in [[(8, 16), (4, 32)], [(4, 32), (8, 16)]] {
        let bench = bench(1 << 30, 1 << 30);
        for (count, size) in sizes {
            let blocks: Vec<u64> = (0..count).map(|_| bench.used(size * MIB)).collect();
            bench.model().complete();
            for block in blocks {
                bench.free(block);
            }
        }
        assert_eq!(bench.model().state.lock().peak, 128 * MIB);
        bench.check();
    }
}

#[test]
fn two_holes_serve_a_block_that_fits_in_neither() {
    let bench = bench(1 << 30, 1 << 30);
    let blocks: Vec<u64> = (0..4).map(|_| bench.used(16 * MIB)).collect();
    bench.model().complete();
    bench.free(blocks[0]);
    bench.free(blocks[2]);
    bench.used(32 * MIB);
    assert_eq!(bench.model().state.lock().peak, 64 * MIB, "no growth");
    assert_eq!((bench.model().calls("synchronize"), bench.fence.barriers()), (0, 0));
    bench.check();
}

#[test]
fn memory_that_the_gpu_may_still_use_is_not_moved_but_new_memory_taken() {
    let bench = bench(1 << 30, 1 << 30);
    let blocks: Vec<u64> = (0..4).map(|_| bench.used(64 * MIB)).collect();
    bench.free(blocks[0]);
    bench.free(blocks[2]);
    bench.fence.barrier(bench.fence.current());
    assert_eq!(bench.alloc(64 * MIB), Ok(blocks[0]), "what is ordered after its last use can be handed out");
    bench.free(blocks[0]);
    bench.used(128 * MIB);
    assert_eq!((bench.model().calls("unmap"), bench.model().calls("synchronize")), (0, 0));
    assert_eq!(bench.reserved(), 384 * MIB);
    bench.check();
}

#[test]
fn out_of_memory_is_what_the_host_waits_for() {
    let bench = bench(256 * MIB, 256 * MIB);
    let blocks: Vec<u64> = (0..4).map(|_| bench.used(64 * MIB)).collect();
    bench.free(blocks[0]);
    bench.free(blocks[2]);
    bench.used(128 * MIB);
    assert_eq!(bench.model().calls("synchronize"), 1);
    assert_eq!(bench.alloc(2 * MIB), Err(CuResult::OUT_OF_MEMORY));
    assert_eq!(bench.model().calls("synchronize"), 1, "nothing is free, so nothing is waited for");
    bench.check();
}

/// A large block, then many that are cut from it, half of which are freed: their memory serves the large one again.
#[test]
fn a_large_block_fits_again_whenever_the_free_memory_does() {
    for step in [2, 3] {
        let bench = bench(1200 * MIB, 1200 * MIB);
        let large = bench.used(800 * MIB);
        bench.free(large);
        let small: Vec<u64> = (0..50).map(|_| bench.used(16 * MIB)).collect();
        let mut free = 400 * MIB;
        for block in small.iter().step_by(step) {
            bench.free(*block);
            free += 16 * MIB;
        }
        bench.used(free / (16 * MIB) * (16 * MIB));
        assert_eq!(bench.model().state.lock().peak, 1200 * MIB);
        bench.check();
    }
}

#[test]
fn a_job_that_repeats_itself_moves_next_to_nothing_after_its_first_steps() {
    let bench = bench(4 << 30, 4 << 30);
    let mut calls = Vec::new();
    for _ in 0..32 {
        let mut blocks = Vec::new();
        for at in 0..40u64 {
            blocks.push(bench.used((1 + at * 7 % 23) * MIB));
            if at % 3 == 2 {
                bench.free(blocks.remove(0));
            }
            bench.model().complete();
        }
        for block in blocks {
            bench.free(block);
        }
        bench.model().complete();
        calls.push(bench.model().calls("map"));
    }
    // Single rounds differ, and none is without: a few pieces go back and forth.
    let (first, later) = (calls[0], calls[31] - calls[7]);
    assert!(later <= first, "{later} pieces mapped in 24 later rounds, {first} in the first");
    bench.check();
}

#[test]
fn gaps_are_filled_again_so_that_the_addresses_do_not_run_away() {
    let bench = bench(1 << 30, 256 * MIB);
    let mut rng = 7u64;
    let mut live: Vec<u64> = Vec::new();
    for _ in 0..4000 {
        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        match bench.alloc((1 + (rng >> 33) % 48) * MIB) {
            Ok(block) => live.push(block),
            Err(_) => {
                for at in (0..live.len()).rev().step_by(2) {
                    bench.free(live.swap_remove(at));
                }
            }
        }
        bench.model().complete();
    }
    assert!(bench.model().calls("unmap") > 500, "nothing was moved, so nothing is shown");
    assert!(bench.spanned() < 1024 * MIB, "{} MiB of addresses for 256 MiB", bench.spanned() / MIB);
    bench.check();
}

#[test]
fn what_is_idle_goes_back_when_another_allocator_needs_it() {
    let bench = bench(1 << 30, 1 << 30);
    let blocks: Vec<u64> = (0..4).map(|_| bench.used(32 * MIB)).collect();
    bench.free(blocks[1]);
    bench.free(blocks[3]);
    assert_eq!(bench.server.idle_bytes(), 64 * MIB);
    assert_eq!(bench.server.give_back(20 * MIB), 20 * MIB);
    assert_eq!(bench.server.give_back(u64::MAX), 44 * MIB);
    assert_eq!(bench.reserved(), 64 * MIB);
    bench.check();
    bench.used(32 * MIB);
    bench.check();
}

#[test]
fn garbage_collection_gives_back_what_has_been_free_for_longest() {
    let tuning = Tuning { gc_threshold: Some(0.5), ..expandable() };
    let bench = Bench::with(Model::new(1 << 30, true), 200 * MIB, tuning);
    let old = bench.used(60 * MIB);
    let kept = bench.used(30 * MIB);
    bench.free(old);
    bench.model().complete();
    bench.fence.inquire(bench.fence.current(), true);
    bench.used(70 * MIB);
    assert!(bench.reserved() <= 102 * MIB, "{} MiB", bench.reserved() / MIB);
    assert_eq!(bench.server.with_heap(|heap| heap.usage().allocated.current), 100 * MIB);
    bench.free(kept);
    bench.check();
}

#[test]
fn a_capture_survives_growing_and_moving() {
    let bench = bench(1 << 30, 256 * MIB);
    let blocks: Vec<u64> = (0..4).map(|_| bench.used(32 * MIB)).collect();
    bench.model().complete();
    bench.free(blocks[0]);
    bench.free(blocks[2]);
    bench.fence.seal();
    bench.fence.gate().begin().succeeded();
    bench.model().state.lock().capturing = true;
    // 64 MiB from what was free before, in one piece, and the rest of the cap.
    assert!(bench.alloc(64 * MIB).is_ok());
    assert!(bench.alloc(128 * MIB).is_ok());
    assert_eq!(bench.alloc(2 * MIB), Err(CuResult::OUT_OF_MEMORY));
    assert!(!bench.model().state.lock().killed);
    bench.model().state.lock().capturing = false;
    bench.fence.gate().ended();
    bench.check();
}

#[test]
fn the_end_of_a_context_gives_everything_back() {
    let bench = bench(1 << 30, 1 << 30);
    let blocks: Vec<u64> = (0..4).map(|_| bench.used(32 * MIB)).collect();
    bench.free(blocks[1]);
    bench.used(64 * MIB);
    bench.model().complete(); // the end of a context is the end of its work
    bench.server.end();
    assert!(matches!(bench.index.claim(blocks[0]), Claim::Foreign));
    let state = bench.model().state.lock();
    assert_eq!((state.used(), state.mapping.mapped.len(), state.mapping.reserved.len()), (0, 0, 0));
    drop(state);
    assert_eq!(bench.server.books().account.in_use(), 0);
    bench.server.revive(Ctx(1));
    bench.used(32 * MIB);
    bench.check();
}

#[test]
fn a_device_that_cannot_map_gets_segments() {
    let model = Model::new(1 << 30, true);
    model.state.lock().mapping.lacking = Some("test");
    let bench = Bench::with(model, 1 << 30, expandable());
    let block = bench.alloc(32 * MIB).unwrap();
    assert_eq!((bench.model().calls("mem_alloc"), bench.model().calls("reserve")), (1, 0));
    bench.free(block);
    bench.check();
}

#[test]
fn fewer_addresses_will_do_and_with_none_there_are_segments() {
    for (failures, segments) in [(3, 0), (4, 1)] {
        let bench = bench(1 << 30, 1 << 30);
        bench.model().state.lock().fail_nth.push(("reserve", 1, failures, CuResult::OUT_OF_MEMORY));
        bench.alloc(32 * MIB).unwrap();
        assert_eq!(bench.model().calls("mem_alloc"), segments);
        bench.check();
    }
}

#[test]
fn addresses_that_are_used_up_are_no_reason_to_fail() {
    let bench = bench(1 << 30, 1 << 30);
    bench.alloc(MIB).unwrap();
    let (base, size) = bench.server.with_heap(|heap| heap.range().unwrap());
    assert_eq!(size, 16 << 30);
    // All but the first addresses are somebody else's now.
    bench.server.inner.lock().heap.shorten_range(base + 8 * MIB);
    let blocks: Vec<u64> = (0..6).map(|_| bench.alloc(4 * MIB).unwrap()).collect();
    assert!(bench.model().calls("mem_alloc") > 0);
    for block in blocks {
        bench.free(block);
    }
    bench.check();
}

#[test]
fn peers_reach_what_is_mapped_before_and_after_they_are_let_in() {
    let bench = bench(1 << 30, 1 << 30);
    let before = bench.used(8 * MIB);
    assert!(!bench.model().reaches(5, before, 8 * MIB));
    bench.fence.peers().add(Ctx(1), Ctx(50), 5);
    bench.server.set_peer_access(5, true).unwrap();
    let after = bench.used(64 * MIB);
    assert!(bench.model().reaches(5, before, 8 * MIB) && bench.model().reaches(5, after, 64 * MIB));
    assert_eq!(bench.fence.peers().remove(Ctx(1), Ctx(50)), Some(5));
    bench.server.set_peer_access(5, false).unwrap();
    let last = bench.used(64 * MIB);
    for (address, bytes) in [(before, 8), (after, 64), (last, 64)] {
        assert!(!bench.model().reaches(5, address, bytes * MIB));
        assert!(bench.model().reaches(0, address, bytes * MIB));
    }
}

/// A program that grows, moves and gives back; what it cannot have, it goes without.
fn busy(bench: &Bench) -> u64 {
    let mut refused = 0;
    let mut live: Vec<u64> = Vec::new();
    for step in 0..60u64 {
        let bytes = (1 + step * 13 % 37) * MIB;
        match bench.alloc(bytes) {
            Ok(block) => {
                assert!(bench.model().reaches(0, block, bytes), "step {step}: {block:#x} is not mapped");
                bench.model().touch(block, bytes);
                live.push(block);
            }
            Err(_) => refused += 1,
        }
        if step % 2 == 1 && !live.is_empty() {
            bench.free(live.remove(step as usize % live.len()));
        }
        if step % 5 == 0 {
            bench.model().complete();
        }
        if step % 20 == 19 {
            bench.server.give_back(40 * MIB);
            bench.check();
        }
    }
    for block in live {
        bench.free(block);
    }
    refused
}

#[test]
fn each_call_fails_in_turn_and_nothing_is_lost() {
    let calls: Vec<(&str, u64)> = {
        let bench = bench(1 << 30, 400 * MIB);
        assert!(busy(&bench) > 0, "memory is short, too");
        ["create", "map", "set_access", "unmap", "release"]
            .map(|name| (name, bench.model().calls(name)))
            .to_vec()
    };
    assert!(calls.iter().all(|(_, count)| *count > 0), "{calls:?}");
    for (name, count) in calls {
        for nth in (1..=count).step_by(count as usize / 12 + 1) {
            for code in if name == "create" { vec![2, 999] } else { vec![999] }.into_iter().map(CuResult) {
                // Once; twice, so that undoing meets it too; and from there on for a while.
                for length in [0, 3] {
                    let bench = bench(1 << 30, 400 * MIB);
                    bench.model().state.lock().fail_nth.push((name, nth, nth + length, code));
                    busy(&bench);
                    bench.check();
                    // Once nothing fails any more, everything comes back.
                    bench.model().state.lock().fail_nth.clear();
                    bench.model().complete();
                    bench.server.give_back(u64::MAX);
                    bench.check();
                    assert_eq!(bench.reserved(), 0, "{name} {nth} {length} {code:?}");
                    bench.used(8 * MIB);
                    bench.check();
                }
            }
        }
    }
}

#[test]
fn undoing_fails_too_and_nothing_is_lost() {
    for first in ["map", "set_access"] {
        for nth in [1, 2, 3, 20, 40] {
            for (then, length) in [("unmap", 1), ("unmap", 1000), ("release", 1), ("release", 1000)] {
                let bench = bench(1 << 30, 400 * MIB);
                let failures = [(first, nth, nth, CuResult(999)), (then, 1, length, CuResult(999))];
                bench.model().state.lock().fail_nth.extend(failures);
                busy(&bench);
                bench.check();
                bench.model().state.lock().fail_nth.clear();
                bench.model().complete();
                bench.server.give_back(u64::MAX);
                bench.check();
                assert_eq!(bench.reserved(), 0, "{first} {nth}, then {then} {length}");
            }
        }
    }
}

#[test]
fn a_handle_that_is_not_taken_back_at_the_end_stays_charged() {
    let bench = bench(1 << 30, 1 << 30);
    bench.used(4 * MIB);
    bench.model().complete();
    bench.model().state.lock().fail_nth.push(("release", 1, 1, CuResult(999)));
    bench.server.end();
    assert_eq!(bench.server.books().account.in_use(), 2 * MIB);
    assert_eq!(bench.model().state.lock().used(), 2 * MIB);
}

#[test]
fn the_end_of_the_process_makes_no_call() {
    let bench = bench(1 << 30, 1 << 30);
    bench.used(4 * MIB);
    bench.model().complete();
    let before: u64 = bench.model().state.lock().calls.values().sum();
    bench.server.end_silently();
    assert_eq!(bench.model().state.lock().calls.values().sum::<u64>(), before);
    assert_eq!(bench.server.books().account.in_use(), 4 * MIB, "it is still there");
}

#[test]
fn the_driver_can_be_asked_for_nothing_after_a_context_has_ended() {
    let bench = bench(1 << 30, 1 << 30);
    bench.server.end();
    assert_eq!(bench.alloc(MIB), Err(CuResult::NOT_SUPPORTED));
    assert!(bench.model().can_map(0).is_ok());
    assert_eq!(bench.model().calls("reserve") + bench.model().calls("create"), 0);
}
