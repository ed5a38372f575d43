//! The cap: no kind of allocation passes it, no number of threads does, and what it refuses is out of memory.

mod harness;

use harness::{MIB, Outcome, Program, same_with_and_without};

/// Every kind of allocation that `hog` knows.
const KINDS: [&str; 10] =
    ["malloc", "pitch", "3d", "managed", "async", "pool", "array", "array3d", "mipmap", "vmm"];

/// Those of which there is no more than the device has.
fn on_the_device() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().filter(|kind| *kind != "managed")
}

/// What the driver uses for itself, before the program asked for anything.
fn overhead() -> u64 {
    let run = Program::new("meminfo").run();
    run.ok();
    run.stat("peak_used_bytes")
}

/// How many MiB `hog` says it got.
fn got(run: &Outcome) -> u64 {
    let words: Vec<_> = run.stdout.split_whitespace().collect();
    let at = words.iter().position(|w| *w == "got").unwrap_or_else(|| panic!("{run}"));
    words[at + 1].parse().unwrap()
}

#[test]
fn every_kind_stops_at_the_cap() {
    let overhead = overhead();
    for kind in KINDS {
        for name in ["hog", "hog_shared"] {
            let hog = Program::new(name).arg(kind).arg("16").sim("MEMORY", "2GiB");
            if kind != "managed" {
                let without = hog.run();
                without.ok();
                assert!(got(&without) > 1024, "{without}");
            }
            let run = hog.preload().conf("memory_limit:512MiB").run();
            run.ok();
            assert!((480..=512).contains(&got(&run)), "{run}");
            assert!(run.stat("peak_used_bytes") <= 512 * MIB + overhead, "{overhead} before, {run}");
            assert!(run.count("oom") > 0, "{run}");
            assert_eq!(run.device(0)["limit_bytes"].as_u64(), Some(512 * MIB), "{run}");
        }
    }
}

#[test]
fn every_kind_stops_at_the_device_without_a_cap() {
    for kind in on_the_device() {
        let hog = Program::new("hog").arg(kind).arg("16").sim("MEMORY", "1GiB");
        let (without, with) = (hog.run(), hog.clone().preload().run());
        without.ok();
        with.ok();
        assert!(got(&with) + 64 >= got(&without), "less than the device has\n{without}\n{with}");
    }
}

/// The pool grows ahead of small requests while there is plenty, and by what is needed when there is not.
#[test]
fn growth_ahead_of_need_costs_nothing_when_memory_is_short() {
    let hog = Program::new("hog").arg("malloc").arg("1").sim("MEMORY", "1GiB");
    let (without, with) = (hog.run(), hog.clone().preload().run());
    without.ok();
    with.ok();
    assert!(got(&with) + 2 >= got(&without), "less than the device has\n{without}\n{with}");
    let capped = hog.preload().conf("memory_limit:770MiB").run();
    capped.ok();
    assert_eq!(got(&capped), 770, "{capped}");
}

#[test]
fn racing_threads_stay_below_the_cap() {
    let overhead = overhead();
    for (threads, kind) in [("4", "malloc"), ("4", "managed"), ("4", "async"), ("2", "all"), ("8", "all")] {
        let program = Program::new("cap_race").arg(threads).arg(kind);
        let run = program.preload().conf("memory_limit:300MiB").run();
        run.ok();
        assert!(run.stat("peak_used_bytes") <= 300 * MIB + overhead, "{overhead} before, {run}");
        assert!(run.count("oom") > 0, "never came near the cap: {run}");
        assert_eq!(run.gauge(0, "external_bytes", "current"), 0, "{run}");
        assert_eq!(run.gauge(0, "requested_bytes", "current"), 0, "{run}");
    }
}

/// Sizes that are no whole pages cost the device whole pages, and so the cap.
#[test]
fn odd_sizes_stay_below_the_cap() {
    let overhead = overhead();
    for kind in KINDS.into_iter().filter(|kind| *kind != "vmm") {
        for bytes in ["1500000b", "3000000b", "20971521b"] {
            let hog = Program::new("hog").arg(kind).arg(bytes).sim("MEMORY", "2GiB");
            if kind != "managed" {
                hog.run().ok();
            }
            let run = hog.preload().conf("memory_limit:300MiB").run();
            run.ok();
            assert!(run.stat("peak_used_bytes") <= 300 * MIB + overhead, "{overhead} before, {run}");
            assert!(run.count("oom") > 0, "{run}");
        }
    }
    for bytes in ["99b", "1000b", "700000b", "1048577b"] {
        let hog = Program::new("hog").arg("malloc").arg(bytes).sim("MEMORY", "2GiB");
        let run = hog.preload().conf("memory_limit:6MiB").run();
        run.ok();
        assert!(run.stat("peak_used_bytes") <= 6 * MIB + overhead, "{overhead} before, {run}");
    }
    for threads in ["1", "4"] {
        let program = Program::new("cap_race").arg(threads).arg("malloc").arg("odd");
        let run = program.preload().conf("memory_limit:30MiB").run();
        run.ok();
        assert!(run.stat("peak_used_bytes") <= 30 * MIB + overhead, "{overhead} before, {run}");
        assert!(run.count("oom") > 0, "never came near the cap: {run}");
    }
}

/// What is allocated on another device than the current one counts against that other device.
#[test]
fn the_allocations_own_device_is_charged() {
    for kind in ["stream", "vmm", "pool"] {
        let program = Program::new("other_device").arg(kind).sim("DEVICES", "2").sim("MEMORY", "2GiB");
        let without = program.run();
        assert_eq!(without.printed("blocks"), 128, "{without}");
        let run = program.preload().conf("memory_limit:[0:1GiB,1:512MiB]").run();
        run.ok();
        assert_eq!(run.printed("blocks"), 32, "{run}");
        assert_eq!(run.gauge(1, "external_bytes", "peak"), 512 * MIB, "{run}");
        assert_eq!(run.gauge(1, "external_bytes", "current"), 0, "{run}");
    }
}

#[test]
fn cached_memory_gives_way_to_every_kind() {
    for kind in on_the_device() {
        let hog = Program::new("hog").arg(kind).arg("16").arg("after-cache").sim("MEMORY", "1GiB");
        let without = hog.run();
        without.ok();
        let capped = hog.clone().preload().conf("memory_limit:512MiB").run();
        capped.ok();
        let full = hog.preload().run();
        full.ok();
        // The pool keeps regions that were cut for another size; that may cost it an eighth, and nobody else anything.
        let share = |all: u64| if kind == "malloc" { all * 7 / 8 } else { all - 32 };
        assert!(got(&capped) >= share(512), "{capped}");
        assert!(got(&full) >= share(got(&without)), "{full}");
    }
}

/// Total and free, as the program sees them.
fn sees(conf: &str, device_memory: &str) -> (u64, u64) {
    let program = Program::new("meminfo").arg("64").preload().sim("MEMORY", device_memory);
    let run = if conf.is_empty() { program.run() } else { program.conf(conf).run() };
    run.ok();
    (run.printed("total"), run.printed("free"))
}

#[test]
fn the_program_sees_the_cap() {
    let plain = Program::new("meminfo").arg("64").sim("MEMORY", "4GiB").run();
    plain.ok();
    let physical = plain.printed("total");
    for (conf, total) in [
        ("memory_limit:1GiB", 1024 * MIB),
        ("memory_limit:1024MiB", 1024 * MIB),
        ("memory_limit:1073741824", 1024 * MIB),
        ("memory_limit:[0:1GiB,1:2GiB]", 1024 * MIB),
        ("memory_fraction:0.25", physical / 4),
        ("per_process_memory_fraction:0.25", physical / 4),
        ("memory_fraction:[0:0.25,1:0.5]", physical / 4),
        // Above what there is, the truth is what there is.
        ("memory_limit:64GiB", physical),
        ("memory_fraction:1.0", physical),
        ("", physical),
    ] {
        let (seen, free) = sees(conf, "4GiB");
        assert_eq!(seen, total, "{conf}");
        assert!(free <= total - 64 * MIB, "{conf}: {free} free of {total}");
        assert!(free + 600 * MIB >= total, "{conf}: {free} free of {total}");
    }
}

#[test]
fn devices_have_caps_of_their_own() {
    let program = Program::new("two_devices").preload().sim("DEVICES", "2");
    let run = program.conf("memory_limit:[0:1GiB,1:512MiB]").run();
    run.ok();
    assert_eq!(run.device(0)["limit_bytes"].as_u64(), Some(1024 * MIB), "{run}");
    assert_eq!(run.device(1)["limit_bytes"].as_u64(), Some(512 * MIB), "{run}");
}

#[test]
fn stream_ordered_memory_of_captures_counts_while_their_graphs_run() {
    let run = Program::new("graph_memory").arg("40").preload().conf("memory_limit:256MiB").run();
    run.ok();
    assert_eq!((run.printed("graphs"), run.printed("error")), (8, 2), "{run}");
    assert_eq!(run.gauge(0, "external_bytes", "current"), 0, "all graphs are destroyed at the end: {run}");
}

#[test]
fn what_outlives_its_graph_or_context_stays_under_the_cap() {
    for kind in ["graph", "async"] {
        let run = Program::new("exec_memory").arg(kind).preload().conf("memory_limit:1GiB").run();
        run.ok();
        assert_eq!((run.printed("held"), run.printed("gone")), (2, 0), "{kind}: {run}");
        assert_eq!(run.gauge(0, "external_bytes", "current"), 0, "{run}");
    }
}

/// The memory goes with the graph that the capture was making, or with the program's own.
#[test]
fn memory_of_captures_that_come_to_nothing_is_given_up() {
    for way in ["invalidated", "destroyed", "unjoined", "elsewhere", "kept"] {
        let program = Program::new("captured_memory").arg(way).conf("memory_limit:256MiB");
        let run = same_with_and_without(&program);
        run.ok();
        assert_eq!((run.printed("rounds"), run.printed("error")), (12, 0), "{way}: {run}");
        assert_eq!(run.gauge(0, "external_bytes", "current"), 0, "{way}: {run}");
        let most = if way == "unjoined" { 64 } else { 32 };
        assert_eq!(run.gauge(0, "external_bytes", "peak"), most * MIB, "{way}: {run}");
    }
}

/// A graph's memory is the graph's until that is gone, also while the program has freed it.
#[test]
fn memory_of_a_graph_that_has_run_stays_counted() {
    let run = Program::new("captured_memory").arg("freed").preload().conf("memory_limit:256MiB").run();
    run.ok();
    assert_eq!(run.printed("second"), 2, "{run}");
    assert_eq!(run.gauge(0, "external_bytes", "current"), 0, "{run}");
}

/// There may be more managed memory than the device has: it comes and goes as it is touched. Only a cap is in its way.
#[test]
fn managed_memory_may_be_oversubscribed_without_a_cap() {
    let program = Program::new("oversubscribed").arg("1500").arg("512").sim("MEMORY", "1GiB");
    let run = same_with_and_without(&program);
    run.ok();
    assert_eq!((run.printed("managed"), run.printed("plain")), (0, 0), "{run}");
    let capped = program.preload().conf("memory_limit:1000MiB").run();
    assert_eq!((capped.printed("managed"), capped.printed("plain")), (2, 0), "{capped}");
}
