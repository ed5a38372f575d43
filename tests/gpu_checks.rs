//! What judges a run on a real GPU (`tests/gpu/*.py`) passes a good run on the simulated driver, and finds each thing that is
//! wrong in a bad one: nobody would notice there that a check has ceased to check.

mod harness;

use harness::{Outcome, Program};
use std::fs;
use std::path::{Path, PathBuf};

const LOUD: [&str; 4] = ["held:0.25", "allocated:1GiB", "reserved:1536MiB", "fragmentation:0.5"];
const QUIET: [&str; 4] = ["held:0.9", "growth:64MiB", "leak:3", "reserved:6GiB"];

fn script(name: &str) -> Option<Program> {
    let python = std::process::Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there is no python3");
        return None;
    }
    let path = format!("{}/tests/gpu/{name}", env!("CARGO_MANIFEST_DIR"));
    Some(Program::at("python3").arg("-B").arg(path))
}

fn with_args<'a>(program: Program, args: impl IntoIterator<Item = &'a str>) -> Program {
    args.into_iter().fold(program, Program::arg)
}

fn is_good(folder: &Path, loud: &[&str], quiet: &[&str]) -> Outcome {
    let check = script("fleet.py").unwrap().arg("check").arg(folder.to_str().unwrap()).arg("x");
    with_args(check, loud.iter().copied().chain(["--"]).chain(quiet.iter().copied())).run()
}

/// A copy of what a good run has left, to be spoilt.
fn copy(folder: &Path, at: usize) -> PathBuf {
    let to = folder.join(format!("spoilt-{at}"));
    fs::create_dir_all(to.join("x.commands")).unwrap();
    for part in ["", "x.commands"] {
        for entry in fs::read_dir(folder.join(part)).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), to.join(part).join(entry.file_name())).unwrap();
            }
        }
    }
    to
}

/// What is wrong: in which file (`@ALARM`: that of its command) what stands in place of what, and what is said of it.
type Edit = (&'static str, &'static str, &'static str, &'static str, &'static str);
const FIGURE: &str = "gpu=\"Simulated CUDA device\"} ";
const RUNNING: &str = "} 1\n# HELP gpucache_last_update";
const ENDED: &str = "} 0\n# HELP gpucache_last_update";
const EDITS: [Edit; 12] = [
    ("a line is not on stderr", "x.err", "alert: GPU 0: held", "alert: held", "stderr ["),
    (
        "another value",
        "x.jsonl",
        "\"allocated\",\"allocated_bytes\":",
        "\"allocated\",\"allocated_bytes\":1",
        "but 1",
    ),
    ("a note is missing", "x.json", "alert on GPU 0: held", "held", "no note of held"),
    ("a command for another process", "@held", "ALERT_PID=", "ALERT_PID=1", "ALERT_PID=1"),
    ("a command with the library", "@held", "FLEET=", "LD_PRELOAD=x\nFLEET=", "was given ['LD_PRELOAD']"),
    ("a command without its variables", "@held", "FLEET=kept", "A=b", "environment is lost"),
    ("a wrong figure", "x.prom", FIGURE, "gpu=\"Simulated CUDA device\"} 9", "the report says"),
    ("no figure", "x.prom", FIGURE, "gpu=\"Simulated CUDA device\"} x", "could not convert"),
    ("another device", "x.prom", "device=\"0\"", "device=\"1\"", "0 figures of memory_requested_bytes"),
    ("it still runs at the end", "x.prom", ENDED, RUNNING, "does it run?"),
    ("it does not run meanwhile", "x.prom.while", RUNNING, ENDED, "does it run?"),
    (
        "no description",
        "x.prom",
        "# HELP gpucache_frees_total Frees",
        "# HELP gpucache_free_total Frees",
        "frees_total",
    ),
];
/// What is wrong: which file is another one's, and what is said of it.
const SWAPS: [(&str, &str, &str, &str); 3] = [
    ("a command was not run", "@held", "gone", "commands for"),
    ("no last figures", "x.prom", "gone", "No such file"),
    ("no figures meanwhile", "x.prom.while", "gone", "No such file"),
];

fn place(folder: &Path, name: &str) -> PathBuf {
    let Some(alarm) = name.strip_prefix('@') else { return folder.join(name) };
    let commands = fs::read_dir(folder.join("x.commands")).unwrap().map(|entry| entry.unwrap().path());
    commands.into_iter().find(|path| path.to_str().unwrap().contains(alarm)).expect("a command's file")
}

fn edit(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{}: no {from} in {text}", file.display());
    fs::write(file, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn what_a_monitored_job_leaves_is_looked_at_closely() {
    let Some(job) = script("fleet.py") else { return };
    let command = "mkdir -p x.commands; { env; echo DONE=1; } >x.commands/$ALERT_NAME-$$";
    let conf = format!("memory_limit:7GiB,alert:[{},{}]", LOUD.join(","), QUIET.join(","));
    let job = job.arg("job").arg("driver").preload().conf(&conf).report_to("x.json").env("FLEET", "kept");
    let job = job.env("GPUCACHE_PROM", "x.prom").env("GPUCACHE_ALERT_FILE", "x.jsonl");
    let run = job.env("GPUCACHE_ALERT_COMMAND", command).run();
    run.ok();
    fs::write(run.folder.join("x.err"), &run.stderr).unwrap();
    let good = is_good(&run.folder, &LOUD, &QUIET);
    assert!(good.ok().stdout.starts_with("summary 4 alarms, 26 figures agree"), "{good}");

    let missing = is_good(&run.folder, &["held:0.9"], &[]);
    assert!(missing.stderr.contains("held:0.9 was raised 0 times"), "{missing}");
    let false_alarm = is_good(&run.folder, &[], &["allocated:1GiB"]);
    assert!(false_alarm.stderr.contains("allocated:1GiB was raised"), "{false_alarm}");

    for (at, (what, file, from, to, expected)) in EDITS.into_iter().enumerate() {
        let folder = copy(&run.folder, at);
        edit(&place(&folder, file), from, to);
        let found = is_good(&folder, &LOUD, &QUIET);
        assert!(found.status.code() == Some(1) && found.stderr.contains(expected), "{what}: {found}");
    }
    for (at, (what, from, file, expected)) in SWAPS.into_iter().enumerate() {
        let folder = copy(&run.folder, EDITS.len() + at);
        fs::rename(place(&folder, from), place(&folder, file)).unwrap();
        let found = is_good(&folder, &LOUD, &QUIET);
        assert!(found.status.code() == Some(1) && found.stderr.contains(expected), "{what}: {found}");
    }
    // Files of several processes are read as one.
    let twice = copy(&run.folder, 99);
    let files = ["x.prom", "x.prom.while"].map(|name| twice.join(name).to_str().unwrap().to_owned());
    let together = with_args(script("prom_file.py").unwrap(), files.iter().map(String::as_str)).run();
    assert!(together.stderr.contains("the same series in two files"), "{together}");
}

/// Jobs that take as long as they are told to.
#[test]
fn times_that_differ_are_told_from_noise() {
    let job = "import os, random, sys; sys.path.insert(0, sys.argv[1]); import turn
own = float(os.environ['TIME']) * random.uniform(0.998, 1.002)
turn.take_turns(lambda: own * random.uniform(0.99, 1.01))
print('SAID', os.environ['TIME'])";
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gpu");
    for (time, verdict) in [("50", "below"), ("49", "below"), ("53", "above"), ("nothing", "")] {
        let Some(turns) = script("turns.py") else { return };
        let slower = format!("TIME={time}");
        let settings = ["--at-most", "on/off:1.02", "off", "TIME=50", "on", &slower, "--"];
        let run = with_args(turns, settings.into_iter().chain(["python3", "-B", "-c", job, folder])).run();
        if verdict.is_empty() {
            assert_eq!(run.status.code(), Some(1), "a job that fails is no result: {run}");
            continue;
        }
        let ratio = run.ok().stdout.lines().find(|line| line.starts_with("ratio on/off ")).unwrap();
        assert!(ratio.ends_with(verdict), "{time}: {run}");
        assert!(
            run.stdout.contains("round 3 ") && run.stdout.contains(&format!("said on SAID {time}")),
            "{run}"
        );
        assert!(run.stdout.contains("noise on "), "{run}");
    }
}

#[test]
fn what_noise_hides_is_said_to_be_unclear() {
    let lines = "import sys; sys.path.insert(0, sys.argv[1]); import turns
def verdict(*ratios):
    rounds = [{'on': [50 * ratio] * 4, 'off': [50] * 4} for ratio in ratios]
    return turns.judge(1.02, *turns.compare(rounds, 'on', 'off'))
print(verdict(1.0, 1.001, 0.999), verdict(1.01, 1.005, 1.015), verdict(1.0, 1.1, 0.9), verdict(1.05, 1.051, 1.049), verdict(1.5))
wild = [{'on': [40, 60, 45, 55], 'off': [50] * 4}] * 3
print(turns.judge(1.02, *turns.compare(wild, 'on', 'off')))
def of_pieces(ratio, hidden):
    # Two pieces, of 50 and 100 ms, each once undisturbed; whoever looks at medians sees the machine.
    on = [50 * ratio, 100 * ratio + hidden, 50 * ratio + hidden, 100 * ratio, 50 * ratio + hidden, 100 * ratio + hidden]
    rounds = [{'on': on, 'off': [50, 100] * 3}] * 3
    return turns.judge(1.02, *turns.compare(rounds, 'on', 'off', 2))
print(of_pieces(1.0, 30), of_pieces(1.01, 0), of_pieces(1.05, 30))";
    if script("turns.py").is_none() {
        return;
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gpu");
    let run = with_args(Program::at("python3"), ["-B", "-c", lines, folder]).run();
    assert_eq!(run.ok().stdout, "below within unclear above unclear\nunclear\nbelow below above\n");
}
