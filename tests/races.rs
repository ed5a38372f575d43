//! Freed memory is never used for something else while queued work still uses it, and waiting memory is still memory.
//!
//! Each race is also run against a build of the library without its barrier and must go wrong there: a test that
//! cannot fail shows nothing.

mod harness;

use harness::{Outcome, Program, same_with_and_without};

/// Right without the library and with it; wrong with the barrier left out.
fn needs_the_barrier(program: &Program) -> Outcome {
    let run = same_with_and_without(program);
    run.ok();
    assert!(run.count("cache_hit") > 0, "no reuse, so no test: {run}");
    let wrong = program.clone().preload_unsafe().run();
    assert!(!wrong.status.success(), "right even without a barrier: {wrong}");
    assert!(wrong.stderr.contains("wrong words"), "{wrong}");
    run
}

#[test]
fn pending_memory_is_the_only_memory() {
    let program = Program::new("pending_only").sim("MEMORY", "1GiB");
    let run = needs_the_barrier(&program);
    assert_eq!(run.count("oom"), 0, "{run}");
    // The wait is on the device and not on the host: nothing else would have fitted.
    assert!(run.count("barrier") > 0, "{run}");
}

#[test]
fn pending_memory_is_the_only_memory_under_a_cap() {
    let run = Program::new("pending_only").preload().conf("memory_limit:700MiB").run();
    run.ok();
    assert_eq!(run.count("oom"), 0, "{run}");
}

#[test]
fn done_blocks_go_before_a_waiting_one() {
    let run = same_with_and_without(&Program::new("pending_behind"));
    run.ok();
    assert_eq!(run.count("barrier"), 0, "{run}");
    assert!(run.stderr.contains("left alone"), "{run}");
    assert!(run.count("cache_hit") >= 6, "{run}");
    needs_the_barrier(&Program::new("pending_behind").arg("more"));
}

#[test]
fn per_thread_streams() {
    needs_the_barrier(&Program::new("per_thread_streams"));
}

#[test]
fn many_threads_and_streams() {
    needs_the_barrier(&Program::new("race").arg("4").arg("500"));
    let run = same_with_and_without(&Program::new("race_shared").arg("8").arg("200"));
    run.ok();
    assert_eq!(run.count("alloc"), run.printed("allocs"), "{run}");
}

#[test]
fn many_threads_under_a_tight_cap() {
    let run = Program::new("race").arg("4").arg("300").preload().conf("memory_limit:16MiB").run();
    run.ok();
    assert!(run.gauge(0, "reserved_bytes", "peak") <= 16 << 20, "{run}");
}

#[test]
fn training_steps() {
    needs_the_barrier(&Program::new("train"));
}

#[test]
fn driver_without_context_events() {
    // The older runtime, too: newer ones do not start on such a driver.
    let programs =
        [Program::new("pending_only_11").sim("MEMORY", "1GiB"), Program::new("train_11").arg("50")];
    for program in programs {
        let run = same_with_and_without(&program.old_driver().sim("DRIVER_VERSION", "11080"));
        run.ok();
        assert!(run.count("cache_hit") > 0, "{run}");
    }
}

#[test]
fn free_as_a_barrier_when_asked_for() {
    let program = Program::new("free_barrier");
    program.run().ok();
    let run = program.preload().conf("free_sync:True").run();
    run.ok();
    assert!(run.count("cache_hit") > 0, "{run}");
}

#[test]
fn everything_at_once() {
    for seed in 1..=6 {
        let mixture = |threads| Program::new("mixture").arg(seed.to_string()).arg(threads).arg("2000");
        // With more threads than one, a run is never the same twice.
        let run = same_with_and_without(&mixture("1"));
        run.ok();
        assert_eq!(run.count("alloc"), run.printed("allocs"), "{run}");
        for conf in ["memory_limit:8GiB", "memory_limit:32MiB", "free_sync:True", "max_split_size_mb:20"] {
            let run = mixture("4").preload().conf(conf).run();
            run.ok();
            assert_eq!(run.count("invalid_free"), 0, "{run}");
            assert_eq!(run.gauge(0, "external_bytes", "current"), 0, "{run}");
        }
    }
    let wrong = Program::new("mixture").arg("1").arg("4").arg("2000").preload_unsafe().run();
    assert!(wrong.stderr.contains("wrong words"), "right even without a barrier: {wrong}");
}

#[test]
fn allocation_in_a_library_that_is_being_loaded() {
    same_with_and_without(&Program::new("loader_lock")).ok();
}
