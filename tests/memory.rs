//! What the memory calls mean: sizes, errors, outputs and accounts are the driver's, and free memory is used before more
//! is taken.

mod harness;

use harness::{MIB, Outcome, Program, same_with_and_without};

/// Runs a script of `seq` under the library; it must end well.
fn seq(script: &str) -> Outcome {
    let run = Program::new("seq").arg(script).preload().run();
    run.ok();
    run
}

/// The most that the pool held at once, in MiB.
fn reserved_peak(run: &Outcome) -> u64 {
    run.gauge(0, "reserved_bytes", "peak").div_ceil(MIB)
}

/// Nothing in use any more, in the pool or beside it.
fn accounts_are_zero(run: &Outcome) {
    assert_eq!(run.gauge(0, "requested_bytes", "current"), 0, "{run}");
    assert_eq!(run.gauge(0, "allocated_bytes", "current"), 0, "{run}");
    assert_eq!(run.gauge(0, "external_bytes", "current"), 0, "{run}");
    for gauge in ["requested_bytes", "allocated_bytes", "external_bytes"] {
        let (taken, given) = (run.gauge(0, gauge, "total_allocated"), run.gauge(0, gauge, "total_freed"));
        assert_eq!(taken, given, "{gauge} of {run}");
    }
}

#[test]
fn info_takes_null_pointers() {
    same_with_and_without(&Program::new("null_info")).ok();
}

#[test]
fn info_takes_null_pointers_under_a_cap() {
    Program::new("null_info").preload().conf("memory_limit:1GiB").run().ok();
}

#[test]
fn memory_of_other_origin_is_freed_and_accounted() {
    let run = same_with_and_without(&Program::new("foreign_free"));
    run.ok();
    accounts_are_zero(&run);
}

#[test]
fn memory_from_before_is_freed_and_nothing_is_counted() {
    let run = same_with_and_without(&Program::new("early_memory"));
    run.ok();
    accounts_are_zero(&run);
    assert_eq!((run.count("alloc"), run.count("free")), (1, 1), "{run}");
}

#[test]
fn out_of_memory_is_that_and_nothing_else() {
    for name in ["out_of_memory", "out_of_memory_shared"] {
        same_with_and_without(&Program::new(name)).ok();
        let capped = Program::new(name).preload().conf("memory_limit:1GiB").run();
        capped.ok();
        assert!(capped.count("oom") > 0, "{capped}");
        accounts_are_zero(&capped);
    }
}

#[test]
fn many_asynchronous_allocations_add_up() {
    let run = same_with_and_without(&Program::new("many_async"));
    run.ok();
    accounts_are_zero(&run);
    assert!(run.gauge(0, "external_bytes", "total_allocated") >= 512 * run.printed("asyncs"), "{run}");
}

#[test]
fn host_and_odd_sized_handles_are_not_charged() {
    let run = same_with_and_without(&Program::new("odd_handles"));
    run.ok();
    let devices = run.json()["devices"].as_array().unwrap();
    assert!(devices.iter().all(|device| device["external_bytes"]["peak"] == 0), "{run}");
}

#[test]
fn handles_are_charged_once() {
    let run = same_with_and_without(&Program::new("handles"));
    run.ok();
    accounts_are_zero(&run);
    let bytes = run.printed("bytes");
    assert_eq!(run.gauge(0, "external_bytes", "peak"), bytes, "{run}");
    assert_eq!(run.gauge(0, "external_bytes", "total_allocated"), bytes * run.printed("orders"), "{run}");
    // Under a cap the program sees by itself what it is charged for, and when no more.
    Program::new("handles").preload().conf("memory_limit:64MiB").run().ok();
}

#[test]
fn pitched_memory_counts_pitch_times_height() {
    let run = same_with_and_without(&Program::new("pitch"));
    run.ok();
    accounts_are_zero(&run);
    let counted = run.gauge(0, "requested_bytes", "peak") + run.gauge(0, "external_bytes", "peak");
    assert_eq!(counted, run.printed("pitched"), "{run}");
}

#[test]
fn a_retry_that_succeeds_leaves_no_trace() {
    // Half of the free memory goes back so that the pool grows no larger than it was; the driver refuses all the same,
    // and has enough once the other half is back too.
    let program = Program::new("seq").arg("a64m*4 F s a100m w").preload();
    let run = program.sim("FAIL", "cuMemAlloc_v2:5").run();
    run.ok();
    assert!(!run.stdout.contains("error"), "{run}");
    assert!(run.count("retry") > 0, "{run}");
    assert_eq!(run.count("oom"), 0, "{run}");
    // And so when the device really is full.
    let run = Program::new("seq").arg("a200m*4 F s a900m w").preload().sim("MEMORY", "1GiB").run();
    run.ok();
    assert!(!run.stdout.contains("error"), "{run}");
}

#[test]
fn oversize_blocks_are_not_cut_when_so_set() {
    let script = Program::new("seq").arg("a400m f0 s a24m w").preload().sim("MEMORY", "1GiB");
    let set = script.clone().conf("max_split_size_mb:200").run();
    set.ok();
    assert_eq!(set.count("driver_alloc"), 2, "{set}");
    let unset = script.run();
    unset.ok();
    assert_eq!(unset.count("driver_alloc"), 1, "{unset}");
    // Under a cap that holds either block and not both, the smaller one is served all the same.
    for conf in ["memory_limit:410MiB", "memory_limit:410MiB,max_split_size_mb:200"] {
        let run = script.clone().conf(conf).run();
        run.ok();
        assert!(!run.stdout.contains("error"), "{conf}: {run}");
        assert!(reserved_peak(&run) <= 410, "{conf}: {run}");
    }
}

#[test]
fn garbage_is_collected_above_the_threshold() {
    let script = Program::new("seq").arg("a200m*2 f0 f1 s a300m w").preload();
    for conf in [
        "garbage_collection_threshold:0.3,memory_limit:1GiB",
        "garbage_collection_threshold:0.3,memory_fraction:0.125",
        "garbage_collection_threshold:0.04",
    ] {
        let run = script.clone().conf(conf).run();
        run.ok();
        assert!(run.count("gc") > 0, "{conf}: {run}");
    }
    for conf in ["memory_limit:1GiB", "memory_fraction:0.125", "garbage_collection_threshold:0.3"] {
        let run = script.clone().conf(conf).run();
        run.ok();
        assert_eq!(run.count("gc"), 0, "{conf}: {run}");
    }
}

#[test]
fn small_blocks_become_large_ones_and_back() {
    assert_eq!(reserved_peak(&seq("a16m*8 F s a32m*4 w")), 128);
    assert_eq!(reserved_peak(&seq("a32m*4 F s a16m*8 w")), 128);
}

#[test]
fn free_memory_in_two_places_serves_one_request() {
    assert_eq!(reserved_peak(&seq("a16m*4 f0 f2 s a32m w")), 64);
}

#[test]
fn a_smaller_block_takes_no_second_region() {
    let one = reserved_peak(&seq("a2m f0 s"));
    let both = seq("a2m f0 s a0.5m w");
    assert_eq!(reserved_peak(&both), one);
    // And not by giving the first back to the driver.
    assert_eq!(both.count("driver_alloc"), 1, "{both}");
}

#[test]
fn most_of_the_device_freed_then_more_asked_for() {
    let run = Program::new("seq").arg("a6g f0 a7g w").preload().sim("MEMORY", "8GiB").run();
    run.ok();
    assert!(!run.stdout.contains("error"), "{run}");
}

#[test]
fn size_classes_waste_at_most_an_eighth() {
    let run = Program::new("size_classes").preload().run();
    run.ok();
    let (requested, allocated) = (run.printed("requested"), run.gauge(0, "allocated_bytes", "peak"));
    assert_eq!(run.gauge(0, "requested_bytes", "peak"), requested, "{run}");
    assert!(
        allocated >= requested && allocated * 8 <= requested * 9,
        "{requested} requested, {allocated} allocated"
    );
}

#[test]
fn reclaimable_memory_is_reported_as_free() {
    let run = same_with_and_without(&Program::new("seq").arg("i a1g a3m f0 f1 s i"));
    run.ok();
    let lines: Vec<_> = run.stdout.lines().collect();
    assert_eq!(lines[0], lines[1], "{run}");
}

#[test]
fn scripts_give_the_same_with_and_without() {
    let scripts = [
        "a0 a1 a511 a512 a513 w F",
        "a1m*100 w F a1.5m*60 w F a2m*50 w",
        "a300m*8 F a100m*24 w F a700m*3 w",
        "a5g a5g f0 a5g w F i",
        "a10m*10 r a10m*10 w F",
        "a100k*500 f3 f100 f77 a99k*3 w F a40m w",
    ];
    for script in scripts {
        for name in ["seq", "seq_shared"] {
            same_with_and_without(&Program::new(name).arg(script)).ok();
        }
    }
}

/// What the library has no opinion on is the driver's to answer: unknown flags, kinds and attributes, null outputs.
#[test]
fn odd_calls_are_the_drivers_to_answer() {
    same_with_and_without(&Program::new("odd_calls")).ok();
}
