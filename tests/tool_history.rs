//! `gpucache report --trace` and `--memory-viz`: the histories of programs in forms that other tools open.

mod harness;
mod tooling;

use harness::Outcome;
use serde_json::Value;
use std::fs;
use std::process::Command;
use tooling::{run, tool};

/// A run with a history, whose report is `report.json` in its folder.
fn with_history(conf: &str, program: &[&str]) -> Outcome {
    let run = run(&["--conf", conf, "--report", "report.json"], program).run();
    assert!(run.folder.join("report.json").exists(), "{run}");
    run
}

fn exported(run: &Outcome, option: &str, name: &str) -> Vec<u8> {
    let path = |name: &str| run.folder.join(name).to_str().unwrap().to_owned();
    let tool = tool(&["report", &path("report.json"), option, &path(name)]).run();
    tool.ok();
    assert_eq!(tool.stdout, "", "{tool}");
    assert!(tool.stderr.contains(&format!("written to {}", path(name))), "{tool}");
    fs::read(run.folder.join(name)).unwrap()
}

#[test]
fn a_trace_has_counters_instants_and_phases() {
    let run =
        with_history("memory_limit:80MiB,history:1000", &["seq", "a60m f0 a10m*6 f1 f3 f5 a30m F a70m"]);
    let trace: Value = serde_json::from_slice(&exported(&run, "--trace", "trace.json")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    for event in events {
        assert!(event["ph"].is_string() && event["name"].is_string() && event["pid"].is_u64(), "{event}");
        assert!(event["ph"] == "M" || event["ts"].as_f64().is_some_and(|ts| ts > 0.0), "{event}");
    }
    let of = |ph: &str, name: &str| -> Vec<&Value> {
        let named = |event: &&Value| event["ph"] == ph && event["name"].as_str().unwrap().starts_with(name);
        events.iter().filter(named).collect()
    };
    let most = |name| of("C", name).iter().filter_map(|event| event["args"]["bytes"].as_u64()).max();
    assert_eq!(
        (most("GPU 0 allocated"), most("GPU 0 reserved")),
        (Some(70 << 20), Some(70 << 20)),
        "{trace}"
    );
    assert_eq!(of("i", "out of memory: 30.00 MiB asked").len(), 1, "{trace}");
    assert_eq!(of("i", "segment of 60.00 MiB").len(), 2, "got and given back: {trace}");
    let shown = tool(&["report", run.folder.join("report.json").to_str().unwrap()]).run();
    assert!(
        shown.stdout.contains("  history: ") && shown.stdout.contains(" samples since the start\n"),
        "{shown}"
    );
    assert!(of("M", "process_name")[0]["args"]["name"].as_str().unwrap().contains("seq"), "{trace}");

    let run = with_history("history:1000", &["api", "use"]);
    let trace: Value = serde_json::from_slice(&exported(&run, "--trace", "trace.json")).unwrap();
    let spans = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X");
    let spans: Vec<_> =
        spans.filter(|span| span["dur"].as_f64() >= Some(0.0)).map(|span| &span["name"]).collect();
    assert_eq!(spans, ["start", "load", "train", "load"], "{trace}");
}

/// Runs the checker of snapshots; `None` where there is no Python.
fn checked(path: &str) -> Option<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tooling/memory_viz.py");
    let mut command = Command::new("python3");
    command.arg(script).arg(path).env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH");
    let Ok(output) = command.output() else {
        eprintln!("skipped: there is no python3");
        return None;
    };
    assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_snapshot_can_be_taken_back_step_by_step() {
    let cases: [(&str, &[&str], &[&str]); 7] = [
        ("history:20000,history_min:1", &["train", "40"], &["alloc", "free", "segment_alloc"]),
        ("history:20000,expandable_segments:True", &["train", "40"], &["alloc", "segment_map"]),
        ("history:300", &["train", "60"], &["alloc", "free"]),
        (
            "memory_limit:80MiB,expandable_segments:True,history:1000",
            &["seq", "a60m f0 a10m*6 f1 f3 f5 a30m a90m F a40m"],
            &["segment_map", "segment_unmap", "oom"],
        ),
        ("memory_limit:64MiB,history:1000", &["seq", "a24m*2 F a48m a32m"], &["segment_free", "oom"]),
        ("history:1000", &["seq", "a40m*2 r a10m*3"], &["segment_free", "free"]),
        ("history:2000,history_min:1", &["race"], &["alloc"]),
    ];
    for (conf, program, kinds) in cases {
        let run = with_history(conf, program);
        exported(&run, "--memory-viz", "snapshot.pickle");
        let Some(said) = checked(run.folder.join("snapshot.pickle").to_str().unwrap()) else { return };
        for kind in kinds {
            let count = said.split_whitespace().find_map(|word| word.strip_prefix(&format!("{kind}=")));
            assert!(count.is_some_and(|count| count != "0"), "{conf}: {kind}: {said}");
        }
    }
}

#[test]
fn a_report_without_a_history_says_how_to_get_one() {
    let run = run(&["--report", "report.json"], &["seq", "a1m"]).run();
    run.ok();
    let path = run.folder.join("report.json");
    for option in ["--trace", "--memory-viz"] {
        let tool = tool(&["report", path.to_str().unwrap(), option, "out"]).run();
        assert_eq!(tool.status.code(), Some(2), "{tool}");
        assert!(tool.stderr.contains("GPUCACHE_CONF=history:10000"), "{tool}");
        assert!(!tool.folder.join("out").exists(), "{tool}");
    }
    let two = tool(&["report", "a", "b", "--trace", "out"]).run();
    assert_eq!(two.status.code(), Some(2), "{two}");
}
