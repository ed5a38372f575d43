//! `gpucache ctl`: what running processes do when they are asked, and what is said where they do not.

use super::harness::talk::Talk;
use super::harness::{MIB, Outcome, Program};
use super::{rows, tool_beside, top_once};
use std::fs;

/// A program that allocates and frees without end.
fn busy(name: &str, conf: &str) -> Talk {
    let program = Program::new("talker").preload().conf(conf).report_to("now-%p.json");
    let mut talk = Talk::new(&program, name);
    // The last keeps memory for small blocks, which the churn lives on under any cap.
    talk.tell("alloc 100 4").tell("free 2").tell("alloc 1 1").say("churn");
    talk
}

fn ctl(talk: &Talk, words: &[&str]) -> Outcome {
    let pid = talk.pid().to_string();
    tool_beside(talk, &[&["ctl", "--wait", "30", &pid], words].concat()).run()
}

#[test]
fn a_busy_process_does_what_it_is_asked() {
    let mut talk = busy("ctl", "memory_limit:1GiB");
    let emptied = ctl(&talk, &["empty-cache"]);
    let given: f64 = emptied.ok().stdout.split_whitespace().nth(2).unwrap().parse().unwrap();
    assert!(
        (200.0..250.0).contains(&given) && emptied.stdout.contains("MiB given back to the driver"),
        "{emptied}"
    );
    let held = rows(&top_once(&talk, &["--json"]))[0]["reserved_bytes"].as_u64().unwrap();
    assert!((200 * MIB..250 * MIB).contains(&held), "{held}");

    let file = talk.running.as_ref().unwrap().folder.join(format!("now-{}.json", talk.pid()));
    assert!(!file.exists());
    let written = ctl(&talk, &["report"]);
    let said = format!("report written to {}\n", file.display());
    assert!(
        written.ok().stdout.ends_with(&said),
        "the file itself, from wherever one stands: {said}: {written}"
    );
    assert!(fs::read_to_string(&file).unwrap().contains("\"running\""));
    ctl(&talk, &["reset-peak"]).ok();

    let limited = ctl(&talk, &["limit", "150MiB"]);
    assert!(limited.ok().stdout.contains("the cap of GPU 0 is 150.00 MiB; 2"), "it holds more: {limited}");
    assert_eq!(rows(&top_once(&talk, &["--json"]))[0]["limit_bytes"], 150 * MIB);
    let higher = ctl(&talk, &["limit", "2GiB"]);
    assert_eq!(higher.status.code(), Some(4), "{higher}");
    let answer =
        "the cap of GPU 0 is 1.00 GiB, the configured one, and not 2.00 GiB: it cannot be raised above that";
    assert!(higher.stdout.contains(answer) && higher.stderr.is_empty(), "{higher}");
    assert_eq!(rows(&top_once(&talk, &["--json"]))[0]["limit_bytes"], 1024 * MIB);
    let equal = ctl(&talk, &["limit", "1GiB"]);
    assert!(equal.ok().stdout.contains("1.00 GiB") && !equal.stdout.contains("configured"), "{equal}");
    let restored = ctl(&talk, &["limit", "none"]);
    assert!(restored.ok().stdout.contains("1.00 GiB") && restored.stderr.is_empty(), "{restored}");

    let refused = ctl(&talk, &["limit", "1GiB", "--device", "7"]);
    assert_eq!(refused.status.code(), Some(1), "{refused}");
    assert!(refused.stderr.contains("refused: it has not used that device"), "{refused}");
    for (wrong, what) in [("1GB", "limit 1GB: "), ("6", "is its unit missing?"), ("--1", "unexpected")] {
        let run = ctl(&talk, &["limit", wrong]);
        assert!(run.status.code() == Some(2) && run.stderr.contains(what), "{run}");
    }
    fs::write(talk.running.as_ref().unwrap().folder.join("stop"), "").unwrap();
    talk.finish().ok();
}

#[test]
fn a_report_that_is_not_to_be_is_refused() {
    for (report, what) in
        [("off", "switch the report off"), ("/no/such/folder/r.json", "could not be written")]
    {
        let mut talk = Talk::new(&Program::new("talker").preload().report_to(report), "ctl-no-report");
        talk.tell("alloc 1 1").say("churn");
        let run = ctl(&talk, &["report"]);
        assert_eq!(run.status.code(), Some(1), "{run}");
        assert!(run.stderr.contains(what), "{run}");
    }
}

/// Whether a process has a live file open for writing, as one that asks has until it is answered.
fn has_live_file_to_write(pid: u32) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let numbers = files.filter_map(|file| Some(file.ok()?.path()));
    let mut live = numbers.filter(|path| {
        fs::read_link(path).is_ok_and(|file| file.extension().is_some_and(|extension| extension == "live"))
    });
    live.any(|path| {
        let number = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
        flags.is_some_and(|flags| flags & libc::O_ACCMODE == libc::O_RDWR)
    })
}

#[test]
fn an_idle_process_answers_later_and_a_dead_one_never() {
    let mut talk = Talk::default("ctl-idle");
    talk.tell("alloc 8 4").tell("free 2");
    let pid = talk.pid().to_string();
    let idle = tool_beside(&talk, &["ctl", &pid, "empty-cache", "--wait", "0.1"]).run();
    assert_eq!(idle.status.code(), Some(3), "{idle}");
    assert!(idle.stderr.contains("has not answered within 0.1 s"), "{idle}");
    talk.tell("pairs 64");
    assert!(rows(&top_once(&talk, &["--json"]))[0]["reserved_bytes"].as_u64() < Some(32 * MIB), "done since");

    // It ends while it is asked.
    let mut waiting = tool_beside(&talk, &["ctl", "--wait", "60", &pid, "report"]).start();
    // Not before it asks, which may take long on a busy machine: then it would find nobody.
    let asker = waiting.child.id();
    waiting.until(|| has_live_file_to_write(asker).then_some(()));
    talk.finish().ok();
    let answer = waiting.finish();
    assert_eq!(answer.status.code(), Some(2), "{answer}");
    assert!(answer.stderr.contains("has ended without an answer"), "{answer}");

    let mut talk = Talk::default("ctl-killed");
    talk.tell("alloc 8 1");
    let pid = talk.pid().to_string();
    talk.kill();
    let dead = tool_beside(&talk, &["ctl", &pid, "report"]).run();
    assert_eq!(dead.status.code(), Some(2), "{dead}");
    assert!(dead.stderr.contains("was killed or has crashed; `gpucache report"), "{dead}");
}

#[test]
fn of_several_devices_one_must_be_named() {
    let program = Program::new("talker").preload().sim("DEVICES", "2");
    let mut talk = Talk::new(&program, "ctl-devices");
    talk.tell("alloc 8 1").tell("device 1").tell("alloc 16 1").say("churn");
    let unnamed = ctl(&talk, &["limit", "100MiB"]);
    assert_eq!(unnamed.status.code(), Some(2), "{unnamed}");
    assert!(unnamed.stderr.contains("uses the devices 0, 1; name one with --device"), "{unnamed}");
    let named = ctl(&talk, &["limit", "100MiB", "--device", "1"]);
    assert!(named.ok().stdout.contains("the cap of GPU 1 is 100.00 MiB"), "{named}");
    let limits = rows(&top_once(&talk, &["--json", "--sort", "device"]));
    let limits: Vec<_> =
        limits.iter().map(|row| (row["device"].as_u64(), row["limit_bytes"].as_u64())).collect();
    assert_eq!(limits, [(Some(1), Some(100 * MIB)), (Some(0), None)], "a row for each");
}

#[test]
fn a_cap_is_told_by_who_has_set_it_and_what_would_raise_it() {
    let lines = |run: &Outcome| {
        let line = |label: &str| {
            let found = run
                .stdout
                .lines()
                .chain(run.stderr.lines())
                .find(|line| line.trim_start().starts_with(label));
            found.unwrap_or_else(|| panic!("{label}: {run}")).split_whitespace().collect::<Vec<_>>().join(" ")
        };
        (line("cap "), line("try "))
    };
    let talk = |name: &str| {
        let program = Program::new("talker").preload().conf("memory_limit:1GiB").text_report();
        let mut talk = Talk::new(&program, name);
        talk.tell("alloc 1 1");
        talk
    };
    let mut by_ctl = talk("cap-by-ctl");
    by_ctl.say("churn");
    ctl(&by_ctl, &["limit", "64MiB"]).ok();
    fs::write(by_ctl.running.as_ref().unwrap().folder.join("stop"), "").unwrap();
    by_ctl.tell("oom 100");
    let pid = by_ctl.pid().to_string();
    let live = tool_beside(&by_ctl, &["report", &pid]).run();
    let run = by_ctl.finish();
    for run in [&run, &live] {
        let (cap, advice) = lines(run.ok());
        let from =
            "cap 64.00 MiB (set by `gpucache ctl`; memory_limit:1GiB in GPUCACHE_CONF allows 1.00 GiB)";
        assert!(cap.starts_with(from), "{cap}\n{run}");
        let cure = "try `gpucache ctl PID limit 102MiB` at least, for 1 request refused under the cap of 64.00 MiB, set by \
                    `gpucache ctl`";
        assert_eq!(advice, cure, "{run}");
    }
    assert!(
        run.stderr.lines().any(|line| line.contains("  try `gpucache ctl PID limit 102MiB`")),
        "at once: {run}"
    );

    let mut by_program = talk("cap-by-program");
    by_program.tell("limit 64").tell("oom 2000");
    let run = by_program.finish();
    let (cap, advice) = lines(run.ok());
    assert!(
        cap.starts_with("cap 64.00 MiB (set by the program (gpucache_set_limit); memory_limit:1GiB in "),
        "{run}"
    );
    assert!(
        advice.starts_with(
            "try memory_limit:2002MiB and gpucache_set_limit of 2002 MiB in the program at least"
        ),
        "{run}"
    );

    // The setting that decides is the one to raise, by the name that it was written as.
    let program = Program::new("seq").preload().arg("a40m f0 a1500m").text_report();
    let run = program.conf("per_process_memory_fraction:0.125,memory_limit:4GiB").run();
    let (cap, advice) = lines(&run);
    let from = "cap 1.00 GiB (per_process_memory_fraction:0.125 in GPUCACHE_CONF; memory_limit:4GiB in GPUCACHE_CONF allows \
                4.00 GiB)";
    assert!(cap.starts_with(from), "{run}");
    assert!(
        advice.starts_with("try per_process_memory_fraction:0.1") && !advice.contains("memory_limit"),
        "{run}"
    );
}
