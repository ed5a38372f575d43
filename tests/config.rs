//! A setting that cannot be understood is an error that the user sees, never a job without its limit.

mod harness;

use harness::{MIB, Outcome, Program};

/// Runs a program that prints what its first CUDA call gave.
fn first_call(conf: &str) -> Outcome {
    Program::new("meminfo").preload().conf(conf).run()
}

#[test]
fn bad_values_of_known_keys_fail_the_first_call() {
    for (key, value) in [
        ("memory_limit", "lots"),
        ("memory_limit", "-1"),
        ("memory_limit", ""),
        ("memory_limit", "8Gibberish"),
        ("memory_limit", "9000000Gibberish"),
        ("memory_limit", "99999999999999999999999"),
        ("memory_limit", "99999999999GiB"),
        ("memory_limit", "[0:1GiB"),
        ("memory_limit", "[zero:1GiB]"),
        ("memory_fraction", "1.5"),
        ("memory_fraction", "-0.1"),
        ("memory_fraction", "half"),
        ("memory_fraction", "NaN"),
        ("garbage_collection_threshold", "1.5"),
        ("garbage_collection_threshold", "x"),
        ("max_split_size_mb", "many"),
        ("roundup_power2_divisions", "3"),
        ("free_sync", "yes"),
        ("free_sync", "true"),
    ] {
        let run = first_call(&format!("{key}:{value}"));
        assert_eq!(run.status.code(), Some(4), "{key}:{value}: {run}");
        assert!(run.stdout.starts_with("first call gives"), "{run}");
        let line = run.library_lines().into_iter().find(|line| line.contains(key) && line.contains(value));
        assert!(line.is_some(), "no line names {key} and {value}: {run}");
        // It says what would be right, beyond repeating what is wrong.
        assert!(line.unwrap().len() > key.len() + value.len() + 30, "{run}");
    }
}

#[test]
fn every_route_fails_on_a_bad_value() {
    for name in
        ["route_static", "route_shared", "route_driver", "route_dlsym", "route_procaddr", "route_static_11"]
    {
        let run = Program::new(name).preload().conf("memory_limit:lots").run();
        assert!(!run.status.success(), "{run}");
        assert!(!run.stdout.contains("ok"), "{run}");
        let said = run.stderr.lines().filter(|line| line.contains("lots")).count();
        assert_eq!(said, 1, "{run}");
    }
}

#[test]
fn wrong_separators_are_errors_here() {
    for conf in ["memory_limit=1GiB", "memory_limit:1GiB;memory_fraction:0.5", "memory_limit"] {
        let run = first_call(conf);
        assert_eq!(run.status.code(), Some(4), "{conf}: {run}");
        assert!(run.library_lines().iter().any(|line| line.contains("memory_limit")), "{run}");
    }
}

#[test]
fn every_size_has_one_meaning() {
    // Each is either exactly this cap, or an error; never no cap.
    for (value, bytes) in
        [("1e9", 1_000_000_000), ("1 GiB", 1024 * MIB), ("1GiB", 1024 * MIB), ("1G", 1024 * MIB)]
    {
        let run = first_call(&format!("memory_limit:{value}"));
        if run.status.code() == Some(4) {
            continue;
        }
        run.ok();
        assert_eq!(run.printed("total"), bytes, "{value}: {run}");
    }
    // A cap of nothing is an error or refuses everything.
    for value in ["0", "0m", "0MiB"] {
        let run = Program::new("meminfo").arg("1").preload().conf(&format!("memory_limit:{value}")).run();
        assert!(!run.status.success(), "{value}: {run}");
    }
}

#[test]
fn unknown_keys_warn_with_the_nearest() {
    for (typo, meant) in [("memory_limt:1GiB", "memory_limit"), ("free_synch:True", "free_sync")] {
        let run = first_call(typo);
        run.ok();
        let lines = run.library_lines();
        let key = typo.split(':').next().unwrap();
        let said = lines.iter().any(|line| line.contains(key) && line.contains(meant));
        assert!(said, "{run}");
    }
}

#[test]
fn white_space_does_not_matter() {
    let run = first_call(" memory_limit : 1GiB , free_sync : True ");
    run.ok();
    assert_eq!(run.printed("total"), 1024 * MIB, "{run}");
}

/// The report's entry for one setting: value and source.
fn setting(run: &Outcome, key: &str) -> (String, String) {
    let config = run.json()["config"].as_array().unwrap_or_else(|| panic!("{run}"));
    let entry =
        config.iter().find(|entry| entry["key"] == key).unwrap_or_else(|| panic!("no {key} in {run}"));
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    (text(&entry["value"]), text(&entry["source"]))
}

#[test]
fn settings_fall_back_key_by_key() {
    let run = Program::new("meminfo")
        .preload()
        .conf("garbage_collection_threshold:0.7")
        .env("PYTORCH_CUDA_ALLOC_CONF", "garbage_collection_threshold:0.8,max_split_size_mb:128")
        .env("PYTORCH_ALLOC_CONF", "max_split_size_mb:256,per_process_memory_fraction:0.5")
        .run();
    run.ok();
    let (value, source) = setting(&run, "garbage_collection_threshold");
    assert!(value.contains("0.7") && source.contains("GPUCACHE_CONF"), "{run}");
    let (value, source) = setting(&run, "max_split_size_mb");
    assert!(value.contains("128") && source.contains("PYTORCH_CUDA_ALLOC_CONF"), "{run}");
    let total = Program::new("meminfo").run().printed("total");
    assert_eq!(run.printed("total"), total / 2, "{run}");
}

#[test]
fn the_frameworks_own_settings_make_no_noise() {
    let theirs = "pinned_use_background_threads:True,pinned_num_register_threads:8,backend:native";
    let run = Program::new("meminfo").preload().env("PYTORCH_CUDA_ALLOC_CONF", theirs).run();
    run.ok();
    assert!(!run.stderr.contains("pinned") && !run.stderr.contains("backend"), "{run}");
}

#[test]
fn disabled_helps_with_a_bad_setting_too() {
    let run = Program::new("meminfo").preload().conf("memory_limit:8GB").env("GPUCACHE_DISABLE", "1").run();
    run.ok();
    assert_eq!(run.stderr, "", "{run}");
}

#[test]
fn disabled_is_out_of_the_way() {
    let program = Program::new("meminfo").preload().conf("memory_limit:1GiB").env("GPUCACHE_DISABLE", "1");
    let (with, without) = (program.run(), Program::new("meminfo").run());
    assert_eq!(with.stdout, without.stdout, "{with}");
    assert!(with.report.is_none(), "{with}");
    assert_eq!(with.stderr, "", "{with}");
}
