//! The lives of processes, contexts and captures: resets, forks, every kind of end, several devices, graph capture.

mod harness;

use harness::{MIB, Program, same_with_and_without};
use std::collections::BTreeMap;

#[test]
fn device_reset() {
    for name in ["device_reset", "device_reset_shared"] {
        let run = same_with_and_without(&Program::new(name));
        run.ok();
        assert_eq!(run.count("alloc"), run.printed("allocs"), "{run}");
        assert_eq!(run.gauge(0, "reserved_bytes", "current"), 0, "{run}");
    }
}

#[test]
fn fork_while_other_threads_allocate() {
    for way in ["exit", "_exit", "exec", "system"] {
        let run = same_with_and_without(&Program::new("forks").arg(way));
        run.ok();
        let pid = run.json()["process"]["pid"].as_u64();
        assert!(pid.is_some(), "{run}");
        // One report, and one line that names it.
        assert_eq!(run.stderr.matches("report.json").count(), 1, "{run}");
    }
}

#[test]
fn forked_children_write_no_report() {
    for way in ["exit", "_exit", "exec", "system"] {
        let run = Program::new("forks").arg(way).preload().report_to("report-%p.json").run();
        run.ok();
        let files = std::fs::read_dir(&run.folder).unwrap();
        let reports =
            files.filter(|f| f.as_ref().unwrap().file_name().to_string_lossy().starts_with("report-"));
        assert_eq!(reports.count(), 1, "{run}");
    }
}

#[test]
fn allocation_in_a_forked_child_comes_back() {
    same_with_and_without(&Program::new("forks").arg("allocate")).ok();
}

#[test]
fn a_forked_child_frees_nothing_of_its_parents() {
    same_with_and_without(&Program::new("forks").arg("free")).ok();
}

#[test]
fn wrong_frees() {
    for name in ["wrong_frees", "wrong_frees_shared"] {
        let run = same_with_and_without(&Program::new(name));
        run.ok();
        assert_eq!(run.count("alloc"), run.printed("allocs"), "{run}");
        assert_eq!(run.count("free"), run.printed("allocs"), "{run}");
        assert!(run.count("invalid_free") >= run.printed("invalid"), "{run}");
    }
}

/// Ends in a way that leaves time for a report.
#[test]
fn ends_with_a_report() {
    for name in ["ends", "ends_shared"] {
        for way in ["return", "exit", "_exit", "_Exit", "quick_exit", "thread", "destructor", "at_exit_exit"]
        {
            let run = same_with_and_without(&Program::new(name).arg(way).sim("TRAP_AT_EXIT", "1"));
            assert_eq!(run.status.code(), Some(3), "{run}");
            assert_eq!(run.count("alloc"), 3, "{way}: {run}");
            assert_eq!(run.gauge(0, "requested_bytes", "current"), 8 * MIB, "{way}: {run}");
            assert_eq!(run.stderr.matches("report.json").count(), 1, "{way}: {run}");
        }
    }
}

/// Ends that the library must not get in the way of.
#[test]
fn ends_as_without_the_library() {
    for name in ["ends", "ends_shared"] {
        for way in ["abort", "signal", "segv", "exec"] {
            same_with_and_without(&Program::new(name).arg(way).sim("TRAP_AT_EXIT", "1"));
        }
    }
}

/// Destructors that run after the report may still call CUDA.
#[test]
fn calls_from_destructors() {
    for name in ["ends", "ends_shared"] {
        let run = same_with_and_without(&Program::new(name).arg("destructor_free"));
        assert_eq!(run.status.code(), Some(3), "{run}");
    }
}

#[test]
fn frees_with_another_device_current() {
    for name in ["two_devices", "two_devices_shared"] {
        let run = same_with_and_without(&Program::new(name).sim("DEVICES", "2"));
        run.ok();
        for device in [0, 1] {
            let count = |what: &str| run.device(device)["counts"][what].as_u64().unwrap();
            assert_eq!(count("alloc"), run.printed(&format!("device{device}")), "{run}");
            assert_eq!(count("free"), count("alloc"), "{run}");
            assert_eq!(run.gauge(device, "requested_bytes", "current"), 0, "{run}");
        }
    }
}

/// A capture survives whenever it does without the library. (More may survive: an allocation that the pool serves by
/// itself breaks none.)
#[test]
fn captures_survive() {
    for name in ["capture", "capture_shared"] {
        let program = Program::new(name);
        let (without, with) = (program.run(), program.clone().preload().run());
        without.ok();
        with.ok();
        let survivors = |text: &str| -> BTreeMap<String, bool> {
            let lines = text.lines().filter_map(|line| line.split_once(": survived "));
            lines.map(|(place, survived)| (place.to_owned(), survived == "1")).collect()
        };
        let (without_it, with_it) = (survivors(&without.stdout), survivors(&with.stdout));
        assert_eq!(without_it.len(), 12, "{without}");
        assert!(without_it.values().any(|s| *s), "{without}");
        for (place, survived) in &without_it {
            assert!(!survived || with_it[place], "{place}: broken by the library\n{without}\n{with}");
        }
    }
}

#[test]
fn exported_blocks_arrive_as_themselves() {
    for name in ["ipc", "ipc_shared"] {
        let run = same_with_and_without(&Program::new(name).arg("with"));
        run.ok();
        assert_eq!(run.printed("imported"), 6, "{run}");
    }
}

#[test]
fn importers_without_the_library_get_an_error_or_the_block() {
    let run = Program::new("ipc").arg("without").preload().run();
    run.ok();
    assert!(run.printed("refused") > 0, "no block was inside a region, so no test: {run}");
}

#[test]
fn pointers_are_described_as_the_program_knows_them() {
    same_with_and_without(&Program::new("ranges")).ok();
    same_with_and_without(&Program::new("freed")).ok();
}

#[test]
fn descriptors_of_ranges_lead_to_what_the_program_holds() {
    same_with_and_without(&Program::new("range_handles")).ok();
}

#[test]
fn the_older_function_opens_handles_too() {
    let run = Program::new("ipc").arg("older").preload().run();
    run.ok();
    assert_eq!((run.printed("imported"), run.printed("refused")), (6, 0), "{run}");
}

#[test]
fn what_ended_threads_freed_is_used_again() {
    let run = same_with_and_without(&Program::new("short_threads"));
    run.ok();
    assert_eq!(run.count("alloc"), run.printed("allocs"), "{run}");
    // One thread's worth is 2.5 MiB; of sixty-four the caches alone could keep 32 MiB.
    assert!(run.gauge(0, "reserved_bytes", "peak") <= 16 * MIB, "{run}");
}

#[test]
fn several_contexts_of_one_device() {
    let run = same_with_and_without(&Program::new("contexts"));
    run.ok();
    assert_eq!(run.count("alloc"), run.printed("allocs"), "{run}");
    assert!(run.count("cache_hit") > 0, "{run}");
    assert_eq!(run.gauge(0, "reserved_bytes", "current"), 0, "{run}");
    let wrong = Program::new("contexts").preload_unsafe().run();
    assert!(wrong.stderr.contains("wrong words"), "right even without a barrier: {wrong}");
}

#[test]
fn ends_while_other_threads_are_at_work() {
    for name in ["ends", "ends_shared"] {
        for _ in 0..5 {
            let run = same_with_and_without(&Program::new(name).arg("busy"));
            assert_eq!(run.status.code(), Some(3), "{run}");
            assert!(run.count("alloc") > 3, "{run}");
        }
    }
}

#[test]
fn captures_survive_beside_threads_that_allocate() {
    let program = Program::new("capture_beside").arg("1000");
    program.run().ok();
    for conf in
        ["", "memory_limit:12MiB", "free_sync:True", "garbage_collection_threshold:0.3,memory_limit:16MiB"]
    {
        program.clone().preload().conf(conf).run().ok();
    }
}

#[test]
fn captures_survive_what_the_pool_has_to_do_meanwhile() {
    let program = Program::new("capture_within");
    let run = same_with_and_without(&program);
    run.ok();
    assert_eq!(run.count("alloc"), run.printed("allocs"), "{run}");
    for conf in
        ["memory_limit:24MiB", "garbage_collection_threshold:0.2,memory_limit:32MiB", "free_sync:True"]
    {
        program.clone().preload().conf(conf).run().ok();
    }
}

#[test]
fn captures_survive_when_their_memory_has_to_be_made_free() {
    let program = Program::new("capture_full").arg("48").arg("32");
    same_with_and_without(&program).ok();
    let run = program.preload().conf("memory_limit:64MiB").run();
    run.ok();
    assert!(run.count("retry") > 0 && run.count("driver_free") > 0, "{run}");
}

/// A thread that is stopped in the middle of malloc holds the allocator's lock: the report must need neither.
#[test]
fn ends_in_a_signal_handler_inside_malloc() {
    for way in ["_exit", "_Exit", "quick_exit"] {
        let program = Program::new("exit_in_handler").arg(way);
        let run = same_with_and_without(&program);
        assert_eq!(run.status.code(), Some(3), "{run}");
        assert_eq!(run.count("alloc"), 1, "{run}");
        // Once more as text.
        let text = program.clone().preload().text_report().run();
        assert_eq!(text.status.code(), Some(3), "{text}");
        assert!(!text.library_lines().is_empty(), "{text}");
    }
}

/// The loader's lock may be held by another thread, for as long as a constructor of its takes.
#[test]
fn immediate_exit_waits_for_no_loader() {
    let program = Program::new("loader_lock").arg("_exit");
    let start = std::time::Instant::now();
    let run = same_with_and_without(&program);
    assert_eq!(run.status.code(), Some(3), "{run}");
    assert!(start.elapsed().as_secs() < 10, "the constructor takes twenty seconds: {:?}", start.elapsed());
}
