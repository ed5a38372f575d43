//! The report at exit: its form, its figures, and who writes one.

mod harness;

use harness::{MIB, Program, build, same_with_and_without};
use serde_json::Value;
use std::fs;

#[test]
fn the_json_has_every_field() {
    let run = Program::new("train").arg("40").preload().conf("memory_limit:2GiB").run();
    run.ok();
    let report = run.json();
    assert!(report["schema_version"].is_u64() || report["schema_version"].is_string(), "{run}");
    let process = &report["process"];
    assert!(process["pid"].as_u64().is_some_and(|pid| pid > 1), "{run}");
    assert!(process["command"].to_string().contains("train"), "{run}");
    assert!(process["duration_s"].as_f64().is_some_and(|s| (0.0..60.0).contains(&s)), "{run}");
    assert!(process["ended_by"].as_str().is_some_and(|end| !end.is_empty()), "{run}");
    let config = report["config"].as_array().unwrap();
    assert!(
        config.iter().all(|entry| ["key", "value", "source"].iter().all(|f| !entry[f].is_null())),
        "{run}"
    );
    assert!(config.iter().any(|entry| entry["key"] == "memory_limit"), "{run}");
    let device = run.device(0);
    assert_eq!(device["limit_bytes"].as_u64(), Some(2048 * MIB), "{run}");
    assert!(device["total_bytes"].as_u64().is_some_and(|total| total > 2048 * MIB), "{run}");
    for gauge in ["requested_bytes", "allocated_bytes", "reserved_bytes", "external_bytes"] {
        let part = |name| run.gauge(0, gauge, name);
        assert_eq!(part("total_allocated") - part("total_freed"), part("current"), "{gauge} of {run}");
        assert!(
            part("current") <= part("peak") && part("peak") <= part("total_allocated"),
            "{gauge} of {run}"
        );
    }
    let peak = |gauge| run.gauge(0, gauge, "peak");
    assert!(peak("requested_bytes") > 0, "{run}");
    assert!(peak("requested_bytes") <= peak("allocated_bytes"), "{run}");
    assert!(peak("allocated_bytes") <= peak("reserved_bytes"), "{run}");
    assert!(peak("reserved_bytes") <= 2048 * MIB, "{run}");
    for moment in ["at_peak", "at_exit"] {
        let value = device["fragmentation"][moment].as_f64();
        assert!(value.is_some_and(|f| (0.0..=1.0).contains(&f)), "{moment} of {run}");
    }
    assert!(device["fragmentation"]["at_oom"].is_array(), "{run}");
    assert!(device["largest_free_block_bytes"].is_u64(), "{run}");
    assert!(device["size_histogram"].as_array().is_some_and(|h| !h.is_empty()), "{run}");
    for count in [
        "alloc",
        "free",
        "cache_hit",
        "driver_alloc",
        "driver_free",
        "barrier",
        "oom",
        "retry",
        "gc",
        "invalid_free",
        "forwarded",
    ] {
        assert!(device["counts"][count].is_u64(), "counts.{count} of {run}");
    }
    assert_eq!(run.count("alloc"), run.count("free"), "{run}");
}

#[test]
fn figures_agree_with_the_driver() {
    let run = Program::new("seq").arg("a16m*8 F s a32m*4 w F").preload().run();
    run.ok();
    assert_eq!(run.count("alloc"), run.printed("allocs"), "{run}");
    assert_eq!(run.count("driver_alloc"), run.stat("cuMemAlloc_v2"), "{run}");
    assert_eq!(run.count("driver_free"), run.stat("cuMemFree_v2"), "{run}");
    assert_eq!(run.gauge(0, "requested_bytes", "peak"), 128 * MIB, "{run}");
    assert_eq!(run.gauge(0, "requested_bytes", "total_allocated"), 256 * MIB, "{run}");
    assert_eq!(run.gauge(0, "reserved_bytes", "current"), run.stat("leaked_bytes"), "{run}");
}

#[test]
fn the_histogram_has_every_allocation() {
    let run = Program::new("seq").arg("a512*10 a1m*20 a64m*3 F").preload().run();
    run.ok();
    let histogram = run.device(0)["size_histogram"].as_array().unwrap();
    let of =
        |bucket: &Value| ["count", "allocs", "alloc"].iter().find_map(|f| bucket[f].as_u64()).unwrap_or(0);
    let total: u64 = histogram.iter().map(of).sum();
    assert_eq!(total, 33, "{run}");
}

#[test]
fn peaks_of_contexts_that_followed_each_other_do_not_add_up() {
    let run = Program::new("seq").arg("a64m r a48m r a64m r a1m F").preload().run();
    run.ok();
    for gauge in ["requested_bytes", "allocated_bytes", "reserved_bytes"] {
        assert_eq!(run.gauge(0, gauge, "peak"), 64 * MIB, "{gauge} of {run}");
        assert!(run.gauge(0, gauge, "total_allocated") >= 177 * MIB, "{gauge} of {run}");
    }
}

#[test]
fn peaks_of_contexts_that_lived_together_add_up() {
    let run = Program::new("contexts").preload().run();
    run.ok();
    let peak = |gauge| run.gauge(0, gauge, "peak");
    // Two at a time with 8 MiB each, four times over.
    assert_eq!((peak("requested_bytes"), peak("allocated_bytes")), (16 * MIB, 16 * MIB), "{run}");
    assert!(peak("allocated_bytes") <= peak("reserved_bytes"), "{run}");
}

#[test]
fn memory_freed_at_the_end_is_one_piece_however_it_waits() {
    let at_exit = |script: &str| {
        let run = Program::new("seq").arg(script).preload().run();
        run.ok();
        let device = run.device(0);
        let largest = device["largest_free_block_bytes"].as_u64().unwrap();
        (device["fragmentation"]["at_exit"].as_f64().unwrap(), largest)
    };
    assert_eq!(at_exit("a64m F"), (0.0, 64 * MIB));
    assert_eq!(at_exit("a64m*2 F"), (0.5, 64 * MIB), "in two regions");
    assert_eq!(at_exit("a512*40 a100k*3 F"), (0.0, 2 * MIB), "slabs too");
    assert_eq!(at_exit("a64m"), (0.0, 0), "nothing is free");
}

#[test]
fn out_of_memory_is_explained() {
    let run = Program::new("seq").arg("a200m*3 f1 a400m").preload().conf("memory_limit:700MiB").run();
    run.ok();
    assert!(run.stdout.contains("error 2"), "{run}");
    assert_eq!(run.count("oom"), 1, "{run}");
    assert_eq!(run.device(0)["fragmentation"]["at_oom"].as_array().map(Vec::len), Some(1), "{run}");
}

#[test]
fn the_cap_that_would_have_sufficed_suffices_and_no_lower_one() {
    let run = |limit: u64| {
        let program = Program::new("seq").arg("a5m a6m a7339008").preload();
        let run = program.conf(&format!("memory_limit:{limit}")).run();
        run.ok();
        run
    };
    let failed = run(16 * MIB);
    let enough = failed.device(0)["fragmentation"]["at_oom"][0]["sufficient_limit_bytes"].as_u64().unwrap();
    assert_eq!(run(enough).count("oom"), 0, "{enough} after {failed}");
    assert_eq!(run(enough - 1).count("oom"), 1, "{enough} after {failed}");
}

#[test]
fn what_lies_idle_in_the_pool_does_not_count_against_memory_outside_it() {
    let run = |limit: u64| {
        let program = Program::new("capture_full").arg("48").arg("60").preload();
        program.conf(&format!("memory_limit:{limit}")).run()
    };
    let failed = run(50 * MIB);
    let moment = &failed.device(0)["fragmentation"]["at_oom"][0];
    assert_eq!(moment["sufficient_limit_bytes"].as_u64(), Some(60 * MIB), "{failed}");
    assert_eq!(moment["circumstances"]["capturing"], true, "{failed}");
    assert!(failed.stderr.contains("a stream was capturing"), "{failed}");
    run(60 * MIB).ok();
    assert_eq!(run(60 * MIB - 1).count("oom"), 1);
}

#[test]
fn one_line_names_the_file() {
    let run = Program::new("route_static").preload().run();
    run.ok();
    let lines = run.library_lines();
    assert_eq!(lines.len(), 1, "{run}");
    assert!(lines[0].contains("report.json"), "{run}");
    assert!(!run.stdout.contains("gpucache"), "{run}");
}

#[test]
fn a_summary_on_stderr_by_default() {
    let run = Program::new("ends").arg("return").preload().text_report().run();
    let lines = run.stderr.lines().count();
    assert!((4..=20).contains(&lines), "{lines} lines: {run}");
    assert!(run.stderr.contains("gpucache"), "{run}");
    // What was never freed: 8 MiB in two blocks.
    assert!(run.stderr.contains('8') && run.stderr.contains("MiB"), "{run}");
    assert_eq!(run.stdout, "ok allocs=3\n", "{run}");
    assert!(fs::read_dir(&run.folder).unwrap().all(|f| f.unwrap().file_name() == "stats"), "{run}");
}

#[test]
fn off_is_silent() {
    let run = Program::new("route_static").preload().report_to("off").run();
    run.ok();
    assert_eq!(run.stderr, "", "{run}");
    assert!(fs::read_dir(&run.folder).unwrap().all(|f| f.unwrap().file_name() == "stats"), "{run}");
}

#[test]
fn the_file_name_is_a_template() {
    let program = Program::new("route_static").preload().env("RANK_OF_TEST", "7");
    let run = program.report_to("r-%p-%e-%q{RANK_OF_TEST}-100%%.json").run();
    run.ok();
    let names: Vec<_> = fs::read_dir(&run.folder)
        .unwrap()
        .map(|f| f.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    let name = names.iter().find(|name| name.starts_with("r-")).unwrap_or_else(|| panic!("{names:?}: {run}"));
    assert!(name.ends_with("-route_static-7-100%.json"), "{name}");
    let report: Value = serde_json::from_str(&fs::read_to_string(run.folder.join(name)).unwrap()).unwrap();
    let pid = report["process"]["pid"].as_u64().unwrap();
    assert_eq!(name, &format!("r-{pid}-route_static-7-100%.json"));
}

#[test]
fn a_variable_that_is_not_set_is_seen_in_the_file_name_and_said_once() {
    let program = Program::new("route_static").preload().env("EMPTY_IN_TEST", "");
    let run = program.report_to("rank%q{NOT_SET_IN_TEST}%q{EMPTY_IN_TEST}-%q{NOR_THIS}.json").run();
    run.ok();
    assert!(run.folder.join("rankunset-NOT_SET_IN_TEST-unset-NOR_THIS.json").exists(), "{run}");
    let said = "%q{NOT_SET_IN_TEST} in a file's name: NOT_SET_IN_TEST is not set";
    assert_eq!(run.stderr.matches("is not set").count(), 1, "{run}");
    assert!(run.stderr.contains(said), "{run}");
    let quiet = Program::new("route_static").preload().env("GPUCACHE_LOG", "error");
    let run = quiet.report_to("rank%q{NOT_SET_IN_TEST}.json").run();
    assert!(!run.ok().stderr.contains("is not set"), "{run}");
}

#[test]
fn a_file_that_cannot_be_written_is_said_and_changes_nothing() {
    let run = Program::new("route_static").preload().report_to("/no/such/folder/report.json").run();
    run.ok();
    assert!(run.library_lines().iter().any(|line| line.contains("/no/such/folder")), "{run}");
}

#[test]
fn the_end_is_named() {
    let ended = |way: &str| {
        let run = Program::new("ends").arg(way).preload().run();
        run.json()["process"]["ended_by"].as_str().unwrap_or_default().to_owned()
    };
    let (exit, hard) = (ended("exit"), ended("_exit"));
    assert_ne!(exit, hard, "exit and _exit are told apart");
    assert!(hard.contains("_exit"), "{hard}");
}

#[test]
fn each_process_of_a_job_reports_for_itself() {
    let bin = build::programs().join("bin");
    let script = format!("{0}/route_static; {0}/route_driver; {0}/hello; true", bin.display());
    let run = Program::at("/bin/sh").arg("-c").arg(script).preload().report_to("r-%e-%p.json").run();
    run.ok();
    let mut names: Vec<_> = fs::read_dir(&run.folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("r-"))
        .map(|name| name.split('-').nth(1).unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["route_driver", "route_static"], "{run}");
}

#[test]
fn logging_goes_to_stderr_only() {
    let plain = Program::new("route_static").run();
    let run = Program::new("route_static").preload().env("GPUCACHE_LOG", "trace").run();
    run.ok();
    assert_eq!(run.stdout, plain.stdout, "{run}");
    assert!(run.library_lines().len() > 1, "{run}");
}

/// A pipe without a reader raises a signal whose default is death.
#[test]
fn nobody_reads_stderr() {
    let run = same_with_and_without(&Program::new("stderr_gone").arg("pipe").text_report());
    assert_eq!(run.status.code(), Some(3), "{run}");
}

#[test]
fn a_file_that_took_the_place_of_stderr_stays_clean() {
    for way in ["file", "closed"] {
        let run = same_with_and_without(&Program::new("stderr_gone").arg(way).text_report());
        assert_eq!(run.status.code(), Some(3), "{run}");
        assert_eq!(std::fs::read_to_string(run.folder.join("data")).unwrap(), "DATA", "{way}: {run}");
    }
}
