//! Who holds the memory: sampled allocations with the stacks that made them, of unmodified programs.

mod harness;

use harness::{MIB, Outcome, Program};
use serde_json::Value;

/// Every allocation, so that figures are exact.
const ALL: &str = "sites:1";

fn run(program: &str, parts: &[&str], conf: &str) -> Outcome {
    let program = Program::new(program).preload().conf(conf);
    let run = parts.iter().fold(program, |program, part| program.arg(*part)).run();
    run.ok();
    run
}

fn sites(run: &Outcome) -> &Value {
    let sites = &run.device(0)["sites"];
    assert!(sites.is_object(), "no sites in {run}");
    sites
}

/// The functions of a site, the innermost first; of what has no name the file and offset.
fn stack(sites: &Value, site: &Value) -> Vec<String> {
    let frame = |at: &Value| {
        let frame = &sites["frames"][at.as_u64().unwrap() as usize];
        let module = || {
            let path = sites["modules"][frame["module"].as_u64()? as usize]["path"].as_str()?;
            path.rsplit('/').next().map(str::to_owned)
        };
        match frame["function"].as_str() {
            Some(name) => name.to_owned(),
            None => format!("{}+{:#x}", module().unwrap_or_default(), frame["offset"].as_u64().unwrap()),
        }
    };
    site["stack"].as_array().unwrap().iter().map(frame).collect()
}

/// The sites whose innermost function is of this name.
fn at<'a>(sites: &'a Value, function: &str) -> Vec<&'a Value> {
    let all = sites["sites"].as_array().unwrap().iter();
    all.filter(|site| stack(sites, site).first().is_some_and(|first| first == function)).collect()
}

fn sum(sites: &[&Value], figure: &str) -> u64 {
    sites.iter().map(|site| site[figure].as_u64().unwrap()).sum()
}

#[test]
fn a_leak_is_found_where_it_was_allocated() {
    for program in ["sites", "sites_shared"] {
        let run = run(program, &["leak", "churn"], ALL);
        let sites = sites(&run);
        let (leak, churn) = (at(sites, "leaks_here"), at(sites, "gives_back_here"));
        assert_eq!((leak.len(), churn.len()), (1, 1), "{run}");
        assert_eq!((sum(&leak, "live_bytes"), sum(&leak, "live_blocks")), (12 * MIB, 3), "{run}");
        assert_eq!((sum(&churn, "live_bytes"), sum(&churn, "live_blocks")), (0, 0), "{run}");
        assert_eq!((sum(&churn, "total_bytes"), sum(&churn, "total_blocks")), (800 * MIB, 50), "{run}");
        assert_eq!(&stack(sites, leak[0])[..3], ["leaks_here", "part", "main"], "{program}");
        assert_eq!(sites["all"]["live_bytes"], run.device(0)["requested_bytes"]["current"], "{run}");
        assert_eq!(sites["all"]["total_bytes"], run.device(0)["requested_bytes"]["total_allocated"], "{run}");
    }
}

#[test]
fn what_was_held_at_the_peak_is_told_by_site() {
    let run = run("sites", &["leak", "peak", "leak"], ALL);
    let sites = sites(&run);
    assert_eq!(sum(&at(sites, "gives_back_here"), "peak_bytes"), 128 * MIB);
    let leaks = at(sites, "leaks_here");
    assert_eq!((sum(&leaks, "peak_bytes"), sum(&leaks, "live_bytes")), (12 * MIB, 24 * MIB), "{run}");
}

#[test]
fn off_there_is_nothing() {
    for conf in ["", "sites:False"] {
        let run = run("sites", &["leak"], conf);
        assert!(run.device(0).get("sites").is_none(), "{run}");
    }
}

#[test]
fn a_recursion_keeps_its_innermost_frames() {
    let run = run("sites", &["recursion"], ALL);
    let sites = sites(&run);
    let leaks = at(sites, "leaks_here");
    assert_eq!(leaks.len(), 2, "{run}");
    let deep =
        leaks.iter().find(|site| site["cut"] == true).unwrap_or_else(|| panic!("none is cut in {run}"));
    let deep = stack(sites, deep);
    assert!(deep.len() > 40 && deep.iter().skip(1).all(|name| name == "descends"), "{deep:?}");
    let flat = leaks.iter().find(|site| site["cut"] != true).unwrap();
    assert_eq!(&stack(sites, flat)[..5], ["leaks_here", "descends", "descends", "part", "main"]);
}

#[test]
fn a_thread_has_a_stack_of_its_own() {
    let run = run("sites", &["thread", "leak"], ALL);
    let sites = sites(&run);
    let leaks = at(sites, "leaks_here");
    let thread = leaks.iter().find(|site| stack(sites, site)[1] == "of_a_thread");
    assert_eq!(thread.unwrap_or_else(|| panic!("{run}"))["live_bytes"], 8 * MIB);
}

#[test]
fn a_stripped_program_is_told_by_file_and_offset() {
    let run = run("sites_stripped", &["leak"], ALL);
    let sites = sites(&run);
    let site = &sites["sites"][0];
    assert_eq!(site["live_bytes"], 12 * MIB);
    let stack = stack(sites, site);
    assert!(stack[0].starts_with("sites_stripped+0x"), "{stack:?}");
}

#[test]
fn a_library_that_was_loaded_later_is_told_by_its_function_also_when_it_is_gone() {
    for part in ["library", "library-gone"] {
        let run = run("sites", &[part], ALL);
        let sites = sites(&run);
        assert_eq!(sum(&at(sites, "plugin_allocates"), "live_bytes"), 2 * MIB, "{run}");
        let modules = sites["modules"].as_array().unwrap();
        assert!(modules.iter().any(|m| m["path"].as_str().unwrap().ends_with("libsitesplugin.so")), "{run}");
    }
}

#[test]
fn memory_outside_the_pool_counts_too() {
    let run = run("sites", &["outside"], ALL);
    let sites = sites(&run);
    let ordered = at(sites, "in_stream_order");
    assert_eq!((sum(&ordered, "live_bytes"), sum(&ordered, "total_bytes")), (5 * MIB, 10 * MIB), "{run}");
    assert_eq!(sum(&at(sites, "managed"), "live_bytes"), 3 * MIB, "{run}");
}

#[test]
fn a_free_that_fails_takes_nothing_away_and_a_reset_everything() {
    let run = run("sites", &["failing-free", "reset"], ALL);
    let sites = sites(&run);
    assert_eq!(sites["all"]["live_bytes"], 0, "{run}");
    assert_eq!(sites["all"]["peak_bytes"], 65 * MIB, "{run}");
    let before = self::run("sites", &["failing-free"], ALL);
    assert_eq!(self::sites(&before)["all"]["live_bytes"], MIB, "{before}");
}

#[test]
fn a_free_that_the_driver_refuses_takes_nothing_away() {
    let program = Program::new("sites").arg("refused").preload().conf(ALL);
    let run = program.sim("FAIL", "cuMemFreeAsync:1:1").run();
    run.ok();
    assert_eq!(sum(&at(sites(&run), "in_stream_order"), "live_bytes"), 7 * MIB, "{run}");
}

/// Whatever a program does with memory of whatever kind, through contexts that come and go.
#[test]
fn all_sites_together_hold_what_the_report_counts() {
    for words in [
        "sites leak small outside",
        "sites_shared leak small outside",
        "handles",
        "mixture",
        "graph_memory",
        "captured_memory",
        "exec_memory",
        "pitch",
        "contexts",
        "device_reset",
        "peers",
        "green",
        "failed_context",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let run = run(words[0], &words[1..], ALL);
        for device in run.json()["devices"].as_array().unwrap() {
            let all = &device["sites"]["all"];
            let both = |figure: &str| {
                device["requested_bytes"][figure].as_u64().unwrap()
                    + device["external_bytes"][figure].as_u64().unwrap()
            };
            assert_eq!(all["live_bytes"], both("current"), "{run}");
            assert_eq!(all["total_bytes"], both("total_allocated"), "{run}");
            assert!(all["samples"].as_u64() > Some(0), "{run}");
        }
    }
}

#[test]
fn a_sample_estimates_what_all_would_tell() {
    // 12.8 MB in 20,000 allocations, one of 16 KiB looked at on average: about 1,500 samples, off by some 3 per cent.
    let run = run("sites", &["small"], "sites:16KiB");
    let sites = sites(&run);
    let leaks = at(sites, "leaks_here");
    let samples = sum(&leaks, "samples");
    assert!((1000..2500).contains(&samples), "{samples} samples, {run}");
    for (estimate, truth, samples) in
        [("total_bytes", "total_allocated", samples), ("live_bytes", "current", sum(&leaks, "live_samples"))]
    {
        let ratio =
            sum(&leaks, estimate) as f64 / run.device(0)["requested_bytes"][truth].as_u64().unwrap() as f64;
        assert!(
            (ratio - 1.0).abs() < 6.0 / (samples as f64).sqrt(),
            "{estimate} is {ratio} of the truth, {run}"
        );
    }
}

#[test]
fn a_thread_in_a_constructor_that_waits_for_an_allocation_is_not_waited_for() {
    let run = run("sites", &["loading"], ALL);
    assert_eq!(sum(&at(sites(&run), "leaks_here"), "live_bytes"), MIB, "{run}");
}

/// The report is made while another thread holds the loader's lock, and names functions all the same.
#[test]
fn the_report_waits_for_no_lock_of_the_loaders() {
    let run = Program::new("sites").arg("leak").arg("exit-while-loading").preload().conf(ALL).run();
    assert_eq!(run.status.code(), Some(3), "{run}");
    assert_eq!(sum(&at(sites(&run), "leaks_here"), "live_bytes"), 12 * MIB, "{run}");
}

#[test]
fn small_stacks_and_many_threads_do_no_harm() {
    let run = Program::new("small_stacks").arg("64").arg("300").preload().conf(ALL).run();
    run.ok();
    assert_eq!(sites(&run)["all"]["live_bytes"], 0, "{run}");
}

/// Interpreters to try: those in `PATH`, and those that `TEST_PYTHONS` names (separated by colons). With the minor version.
fn pythons() -> Vec<(String, u32)> {
    let named = std::env::var("TEST_PYTHONS").unwrap_or_default();
    let in_path = (9..16).map(|minor| format!("python3.{minor}")).chain(["python3".to_owned()]);
    let all = named.split(':').filter(|name| !name.is_empty()).map(str::to_owned).chain(in_path);
    let mut found: Vec<(String, u32)> = Vec::new();
    for name in all {
        let code = "import sys, ctypes; print(sys.version_info[1])";
        let answer = std::process::Command::new(&name).args(["-c", code]).output();
        let minor =
            answer.ok().and_then(|answer| String::from_utf8_lossy(&answer.stdout).trim().parse().ok());
        if let Some(minor) =
            minor.filter(|minor| *minor >= 9 && found.iter().all(|(_, known)| known != minor))
        {
            found.push((name, minor));
        }
    }
    if found.is_empty() {
        eprintln!("skipped: there is no python3");
    }
    found
}

#[test]
fn a_program_may_ask_for_its_sites_while_it_runs() {
    let lines = "
import ctypes, gpucache
runtime = ctypes.PyDLL('libcudart.so.13')
def keep(size):
    p = ctypes.c_void_p()
    assert runtime.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(size)) == 0
keep(3 << 20)
before = gpucache.report()['devices'][0]['sites']
keep(5 << 20)
after = gpucache.report()['devices'][0]['sites']
assert before['all']['live_bytes'] == 3 << 20 and after['all']['live_bytes'] == 8 << 20, (before, after)
assert len(after['sites']) == 2 and any(f.get('function') for f in after['frames'])
print('ok')
";
    let Some((python, _)) = pythons().into_iter().next() else { return };
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/python");
    let program = Program::at(python).arg("-c").arg(lines).env("PYTHONPATH", folder);
    let run = program.env("PYTHONDONTWRITEBYTECODE", "1").preload().conf(ALL).run();
    run.ok();
    assert_eq!(run.stdout, "ok\n", "{run}");
}

#[test]
fn lines_of_python_are_told_with_the_interpreters_lock_and_where_possible_without() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/sites.py");
    for (python, minor) in pythons() {
        for lock in ["held", "given-back"] {
            let program = Program::at(&python).arg(script).arg("libcudart.so.13").arg(lock);
            let run = program.preload().conf(ALL).run();
            run.ok();
            let sites = sites(&run);
            assert_eq!(sites["all"]["live_bytes"], 28 * MIB, "{run}");
            if lock == "given-back" && minor < 13 {
                // The report says so, and tells the native frames.
                assert_eq!(sites["without_python"], sites["all"]["samples"], "{run}");
                assert!(sites["python"].as_str().unwrap().contains("from 3.13 on"), "{run}");
                assert!(sites["frames"].as_array().unwrap().iter().all(|frame| frame["file"].is_null()));
                continue;
            }
            assert_eq!(sites["without_python"], 0, "{python}: {run}");
            // Frames of Python, the innermost first, as function and line; the script is one of nothing but single lines.
            let text = std::fs::read_to_string(script).unwrap();
            let line_of =
                |words: &str| text.lines().position(|line| line.contains(words)).unwrap() as u64 + 1;
            let of = |site: &Value| -> Vec<(String, u64)> {
                let frames = site["stack"].as_array().unwrap().iter();
                let frames = frames.map(|at| &sites["frames"][at.as_u64().unwrap() as usize]);
                frames
                    .filter(|frame| frame["file"].is_string())
                    .map(|frame| {
                        (frame["function"].as_str().unwrap().to_owned(), frame["line"].as_u64().unwrap())
                    })
                    .collect()
            };
            let all = sites["sites"].as_array().unwrap();
            let with = |function: &str, line: u64| -> &Value {
                let here = |site: &&Value| {
                    let stack = of(site);
                    stack[0] == ("remember".to_owned(), line_of("library.cudaMalloc"))
                        && stack[1] == (function.to_owned(), line)
                };
                let found: Vec<&Value> = all.iter().filter(here).collect();
                assert_eq!(found.len(), 1, "{python}, {function}:{line}: {run}");
                found[0]
            };
            let qualified = |name: &str| {
                if minor >= 11 { name.to_owned() } else { name.rsplit('.').next().unwrap().to_owned() }
            };
            let looped = with("main", line_of("remember(4 * MIB)"));
            assert_eq!(
                (&looped["live_bytes"], &looped["live_blocks"]),
                (&(12 * MIB).into(), &3.into()),
                "{run}"
            );
            let method = with(&qualified("Modèle.forward"), line_of("pointer = remember(size)"));
            assert_eq!(
                (&method["live_bytes"], &method["total_bytes"]),
                (&0.into(), &(16 * MIB).into()),
                "{run}"
            );
            assert_eq!(with("generator", line_of("yield remember"))["live_bytes"], 3 * MIB, "{run}");
            assert_eq!(
                with(&qualified("main.<locals>.<lambda>"), line_of("lambda"))["live_bytes"],
                3 * MIB,
                "{run}"
            );
            let deep = with("deep", line_of("def deep") + 1);
            assert!(deep["cut"] == true && of(deep).len() > 40, "{run}");
        }
    }
}

#[test]
fn a_failure_names_who_holds_the_memory() {
    let run =
        Program::new("sites").arg("leak").arg("peak").preload().conf("sites:1,memory_limit:100MiB").run();
    assert!(!run.status.success(), "128 MiB at once under a cap of 100: {run}");
    let told = &run.device(0)["fragmentation"]["at_oom"][0]["circumstances"];
    let first = &told["live_sites"][0];
    // 3 blocks of 32 MiB by then, or what of them fitted.
    assert!(first["place"].as_str().is_some_and(|place| place.contains("gives_back_here")), "{run}");
    assert!(first["bytes"].as_u64().is_some_and(|bytes| bytes >= 64 * MIB), "{run}");
    assert!(run.stderr.contains("held by") && run.stderr.contains("gives_back_here"), "{run}");
}
