//! Hard cases of contexts, devices, captures and sharing: what ends in the middle of things, and what is used from afar.

mod harness;

use harness::{MIB, Outcome, Program, same_with_and_without};

fn nothing_is_live(run: &Outcome, devices: u64) {
    for device in 0..devices {
        for gauge in ["requested_bytes", "allocated_bytes", "external_bytes"] {
            assert_eq!(run.gauge(device, gauge, "current"), 0, "{gauge} of device {device}: {run}");
        }
    }
    let reserved: u64 = (0..devices).map(|device| run.gauge(device, "reserved_bytes", "current")).sum();
    assert_eq!(reserved, run.stat("leaked_bytes"), "as the driver has it: {run}");
}

#[test]
fn what_an_ending_context_leaves_is_anothers_at_once() {
    for conf in ["", "expandable_segments:True"] {
        let run = same_with_and_without(&Program::new("ends_beside").conf(conf));
        run.ok();
        assert_eq!(run.stdout, "0 bytes missing\n", "{run}");
        nothing_is_live(&run, 1);
    }
}

#[test]
fn contexts_end_while_other_threads_free() {
    for way in ["reset", "release", "create"] {
        for devices in [1, 2, 8] {
            let program = Program::new("lives").arg(way).arg("4").arg("3").arg("frees");
            let run = same_with_and_without(&program.sim("DEVICES", &devices.to_string()));
            run.ok();
            nothing_is_live(&run, devices);
            assert_eq!(run.count("forwarded"), 0, "{run}");
            assert!(run.count("cache_hit") > 0, "{run}");
        }
    }
}

/// Served from the pool and right; wrong without barriers.
fn right_only_by_barriers(program: Program) {
    let run = same_with_and_without(&program);
    run.ok();
    assert_eq!(run.count("alloc"), run.printed("allocs"), "{run}");
    assert!(run.count("cache_hit") > 0, "{run}");
    let wrong = program.preload_unsafe().run();
    assert!(wrong.stderr.contains("wrong words"), "right even without a barrier: {wrong}");
}

#[test]
fn blocks_used_by_other_devices() {
    for devices in ["2", "3", "8"] {
        let program = Program::new("peers").arg("6").sim("DEVICES", devices);
        right_only_by_barriers(program);
    }
}

/// Whatever became of a capture, memory is reused afterwards: the loop then needs a few dozen MiB of its 1600.
#[test]
fn a_capture_that_has_ended_leaves_no_trace() {
    for way in [
        "reset",
        "context",
        "primary",
        "invalidated",
        "elsewhere",
        "wrong",
        "to_graph",
        "v1",
        "ptsz",
        "several",
    ] {
        let run = same_with_and_without(&Program::new("lost_capture").arg(way));
        run.ok();
        assert_eq!(run.count("alloc"), run.printed("allocs"), "{run}");
        assert!(run.gauge(0, "reserved_bytes", "peak") <= 64 * MIB, "{way}: {run}");
    }
}

/// A thread has ended with a capture open on its default stream. Whether the driver then forgets it or refuses every barrier
/// for ever, no allocation fails; and where it forgets it, memory is reused.
#[test]
fn a_capture_that_its_thread_has_left_open_is_no_reason_to_hold_back() {
    for forgets in ["0", "1"] {
        let program = Program::new("lost_capture").arg("thread").conf("memory_limit:128MiB");
        let run = same_with_and_without(&program.sim("THREAD_CAPTURES_END", forgets));
        run.ok();
        assert_eq!(run.count("alloc"), run.printed("allocs"), "{run}");
        assert_eq!(run.count("oom"), 0, "{run}");
        assert!(run.stat("peak_used_bytes") <= 132 * MIB, "{run}");
        if forgets == "1" {
            assert!(run.gauge(0, "reserved_bytes", "peak") <= 64 * MIB, "{run}");
        }
    }
}

/// Default streams of one thread in two contexts are two streams.
#[test]
fn captures_on_the_default_streams_of_two_contexts() {
    let run = same_with_and_without(&Program::new("lost_capture").arg("contexts"));
    run.ok();
    assert_eq!(run.count("alloc"), run.printed("allocs"), "{run}");
}

/// A capture that is never ended costs memory, which the cap bounds, and no allocation.
#[test]
fn a_capture_that_never_ends_costs_no_allocation() {
    let program = Program::new("lost_capture").arg("open").conf("memory_limit:128MiB");
    let run = same_with_and_without(&program);
    run.ok();
    assert_eq!(run.count("oom"), 0, "{run}");
    assert!(run.stat("peak_used_bytes") <= 132 * MIB, "{run}");
}

#[test]
fn shared_blocks_open_together_and_close_in_any_order() {
    for name in ["shares", "shares_11"] {
        let run = same_with_and_without(&Program::new(name));
        run.ok();
        nothing_is_live(&run, 1);
    }
}

#[test]
fn thousands_of_lives_leave_nothing_behind() {
    let run = Program::new("many_lives").arg("5000").preload().run();
    run.ok();
    assert_eq!(run.count("forwarded"), 0, "{run}");
    assert_eq!(run.count("alloc"), 8 * 5000, "{run}");
    assert!(run.printed("grown_kib") < 8192, "{run}");
}

#[test]
fn allocations_that_race_with_the_end_of_their_context() {
    for way in ["reset", "release", "create"] {
        for devices in ["1", "2"] {
            let program = Program::new("lives").arg(way).arg("4").arg("4").arg("all").sim("DEVICES", devices);
            program.run().ok();
            for _ in 0..4 {
                program.clone().preload().run().ok();
            }
        }
    }
}

/// Barriers span contexts that never allocate.
#[test]
fn blocks_used_by_a_context_without_a_pool() {
    for way in ["retained", "created", "green"] {
        for devices in ["1", "2"] {
            let program =
                Program::new("poolless").arg(way).sim("DEVICES", devices).conf("memory_limit:32MiB");
            right_only_by_barriers(program);
        }
    }
}

/// The pool of the primary context serves its green contexts: their memory is its own, and outlives them.
#[test]
fn green_contexts_use_the_primary_contexts_memory() {
    for alone in [false, true] {
        let program = Program::new("green").conf("memory_limit:48MiB");
        let run = same_with_and_without(&if alone { program.arg("alone") } else { program });
        run.ok();
        assert_eq!(run.count("alloc"), run.printed("allocs"), "{run}");
        assert_eq!(run.count("forwarded"), 0, "{run}");
        assert!(run.count("cache_hit") > 0, "{run}");
        nothing_is_live(&run, 1);
    }
}
