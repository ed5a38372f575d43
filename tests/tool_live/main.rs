//! The tool on processes that run, were killed, or end meanwhile: `top` without a terminal and with one, `ctl`, and reports
//! from live files.

mod asked;
#[path = "../harness/mod.rs"]
mod harness;
mod screen;
#[path = "../tooling/mod.rs"]
mod tooling;

use harness::talk::Talk;
use harness::{MIB, Outcome, Program};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use tooling::{report, tool};

/// The tool, looking where a program has its live file.
fn tool_beside(talk: &Talk, args: &[&str]) -> Program {
    tool(args).env("XDG_RUNTIME_DIR", talk.runtime.to_str().unwrap())
}

/// `gpucache top --once` of a program's folder alone.
fn top_once(talk: &Talk, args: &[&str]) -> Outcome {
    let folder = talk.folder();
    tool(&[&["top", "--once", "--folder", folder.to_str().unwrap()], args].concat()).run()
}

fn rows(run: &Outcome) -> Vec<Value> {
    let json: Value = serde_json::from_str(&run.ok().stdout).unwrap_or_else(|e| panic!("{e}: {run}"));
    json["rows"].as_array().unwrap().clone()
}

#[test]
fn top_shows_figures_as_rows_and_as_json() {
    let program = Program::new("talker").preload().conf("memory_limit:512MiB");
    let mut talk = Talk::new(&program, "rows");
    talk.tell("alloc 40 5").tell("free 2").tell("oom 400").tell("pairs 640");
    let text = top_once(&talk, &[]);
    assert!(!text.ok().stdout.contains('\u{1b}'), "no escape codes: {text}");
    let lines: Vec<&str> = text.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with("PID") && lines[0].ends_with("COMMAND"), "{text}");
    for part in ["120.00 MiB", "512.00 MiB", "running", "/talker"] {
        assert!(lines[1].contains(part), "{part}: {text}");
    }
    assert!(lines[1].starts_with(&talk.pid().to_string()), "{text}");

    let row = rows(&top_once(&talk, &["--json"])).remove(0);
    let allocated = row["allocated_bytes"].as_u64().unwrap();
    assert!((120 * MIB..=120 * MIB + 4096).contains(&allocated), "{row:#}");
    assert!(row["reserved_bytes"].as_u64() >= Some(120 * MIB), "{row:#}");
    assert_eq!((&row["limit_bytes"], &row["oom"]), (&(512 * MIB).into(), &1.into()), "{row:#}");
    assert_eq!((&row["device"], &row["state"]), (&0.into(), &"running".into()), "{row:#}");
    assert!(row["hit_rate"].as_f64() > Some(0.9) && row["allocs_per_second"].as_f64() > Some(0.0), "{row:#}");

    let pid = talk.pid().to_string();
    assert_eq!(rows(&top_once(&talk, &["--json", &pid])).len(), 1);
    // Only those that are named, and what is not known by its number.
    for (options, shown) in
        [(&["4194305"][..], 0), (&["--json", "4194305", &pid][..], 1), (&["--json", "4194305"], 0)]
    {
        let unknown = top_once(&talk, options);
        assert_eq!(unknown.status.code(), Some(2), "{unknown}");
        assert!(unknown.stderr.contains("process 4194305 has no live file in "), "{unknown}");
        assert!(!unknown.stderr.contains("no process on the library"), "{unknown}");
        assert_eq!(unknown.stdout.matches(&format!("\"pid\":{pid}")).count(), shown, "{unknown}");
    }
    let anywhere = tool_beside(&talk, &["top", "--once", "4194305"]).run();
    assert_eq!(anywhere.status.code(), Some(2), "{anywhere}");
    assert!(anywhere.stderr.contains("process 4194305: there is no such process"), "{anywhere}");
}

#[test]
fn rows_come_again_and_again_until_nobody_reads_them() {
    use std::io::{BufRead, BufReader};
    let mut talk = Talk::default("again");
    talk.tell("alloc 1 1").say("churn");
    let folder = talk.folder();
    let args = ["top", "--json", "--interval", "0.2", "--folder", folder.to_str().unwrap()];
    let mut top = std::process::Command::new(tooling::TOOL)
        .args(args)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    let second: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert!(second["rows"][0]["allocs_per_second"].as_f64() > Some(100.0), "since the last look: {second:#}");
    drop(lines);
    assert_eq!(top.wait().unwrap().code(), Some(0));
}

#[test]
fn what_has_ended_is_shown_with_how() {
    let mut talk = Talk::default("fates");
    talk.tell("alloc 8 3");
    assert_eq!(rows(&top_once(&talk, &["--json"]))[0]["state"], "running");
    talk.kill();
    let row = rows(&top_once(&talk, &["--json"])).remove(0);
    assert_eq!((&row["state"], &row["allocs_per_second"]), (&"killed".into(), &Value::Null), "{row:#}");
    assert_eq!(rows(&top_once(&talk, &["--json", "--running"])).len(), 0);
    let none = top_once(&talk, &["--running"]);
    let said = "no process on the library runs; --running leaves out what has ended, 1 in all";
    assert!(none.ok().stderr.contains(said), "{none}");

    let mut talk = Talk::default("fates-exec");
    talk.tell("alloc 8 1").say("exec /bin/cat");
    let maps = format!("/proc/{}/maps", talk.pid());
    let running = talk.running.as_mut().unwrap();
    running.until(|| fs::read_to_string(&maps).unwrap().contains("/cat").then_some(()));
    assert_eq!(rows(&top_once(&talk, &["--json"]))[0]["state"], "exec");
    // It is that for good: also when the other program has ended, whatever that has ended by.
    let pid = talk.pid().to_string();
    talk.kill();
    assert_eq!(rows(&top_once(&talk, &["--json"]))[0]["state"], "exec");
    let report = tool_beside(&talk, &["report", &pid]).run();
    assert!(report.ok().stdout.contains("ended by exec"), "{report}");
}

/// A copy is read like any file, whatever it is called and has become of its process.
#[test]
fn a_copy_of_a_live_file_is_told_from_its_process_and_never_written() {
    let mut talk = Talk::default("copy");
    talk.tell("alloc 8 1");
    let live = fs::read_dir(talk.folder()).unwrap().next().unwrap().unwrap().path();
    let other = talk.running.as_ref().unwrap().folder.clone();
    let copies = [other.join("saved.live"), other.join(live.file_name().unwrap())];
    for copy in &copies {
        fs::copy(&live, copy).unwrap();
        fs::set_permissions(copy, fs::Permissions::from_mode(0o600)).unwrap();
        let report = tool_beside(&talk, &["report", copy.to_str().unwrap()]).run();
        assert!(report.ok().stdout.contains("still running"), "{}: {report}", copy.display());
    }
    let before = copies.each_ref().map(|copy| fs::read(copy).unwrap());
    talk.say("exec /bin/cat");
    let maps = format!("/proc/{}/maps", talk.pid());
    let running = talk.running.as_mut().unwrap();
    running.until(|| fs::read_to_string(&maps).unwrap().contains("/cat").then_some(()));
    for (copy, before) in copies.iter().zip(before) {
        let report = tool_beside(&talk, &["report", copy.to_str().unwrap()]).run();
        assert!(report.ok().stdout.contains("ended by exec"), "{}: {report}", copy.display());
        assert!(fs::read(copy).unwrap() == before, "{} was written", copy.display());
    }
    talk.kill();
}

#[test]
fn what_is_not_believed_is_named_and_refused() {
    let mut talk = Talk::default("refused");
    talk.tell("alloc 8 1");
    let folder = talk.folder();
    let (mode, damaged) = (folder.join("1-1.live"), folder.join("2-2.live"));
    fs::write(&mode, "x").unwrap();
    fs::set_permissions(&mode, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&damaged, "gpucache but not a live file").unwrap();
    fs::set_permissions(&damaged, fs::Permissions::from_mode(0o600)).unwrap();
    let text = top_once(&talk, &[]);
    assert_eq!(text.ok().stdout.lines().count(), 2, "the others are shown: {text}");
    assert!(text.stderr.contains("1-1.live is refused: it is not to be trusted: others may read"), "{text}");
    assert!(text.stderr.contains("2-2.live is refused: "), "{text}");
    // Only root can give files away.
    if std::os::unix::fs::chown(&damaged, Some(65534), None).is_ok() {
        let text = top_once(&talk, &[]);
        assert!(
            text.stderr.contains("2-2.live is refused: it is not to be trusted: it belongs to another"),
            "{text}"
        );
    }
    let json = top_once(&talk, &["--json"]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["refused"].as_array().map(Vec::len), Some(2), "{json:#}");

    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    for option in [&[][..], &["--json"]] {
        let open = top_once(&talk, option);
        assert_eq!((open.status.code(), &*open.stdout), (Some(2), ""), "{open}");
        let cure = format!("chmod 700 {}", folder.display());
        assert!(open.stderr.contains("others may enter it") && open.stderr.contains(&cure), "{open}");
        assert!(!open.stderr.contains("no process") && open.stderr.lines().count() == 1, "{open}");
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    for file in fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()) {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let copies = top_once(&talk, &[]);
    assert_eq!(copies.status.code(), Some(2), "{copies}");
    assert!(copies.stderr.contains("has a live file that can be read in"), "{copies}");
    let missing = tool(&["top", "--once", "--folder", "/no/such/folder"]).run();
    assert_eq!(missing.status.code(), Some(2), "{missing}");
}

#[test]
fn a_process_that_runs_or_was_killed_has_a_report() {
    let mut talk = Talk::default("report");
    talk.tell("alloc 40 3");
    let pid = talk.pid().to_string();
    let running = tool_beside(&talk, &["report", &pid]).run();
    assert!(["still running", "now   "].iter().all(|part| running.ok().stdout.contains(part)), "{running}");
    let page = tool_beside(&talk, &["report", "--html", "page.html", &pid]).run();
    let page = fs::read_to_string(page.ok().folder.join("page.html")).unwrap();
    assert!(
        page.contains("still running") && page.contains(">now<") && !page.contains(">at the end<"),
        "{page}"
    );
    let file = fs::read_dir(talk.folder()).unwrap().next().unwrap().unwrap().path();
    let file = file.to_str().unwrap();
    talk.kill();
    for named in [&*pid, file] {
        let text = tool_beside(&talk, &["report", named]).run();
        assert!(text.ok().stdout.contains("killed: no end was seen"), "{text}");
        assert!(text.stdout.contains("reserved 120.00 MiB"), "{text}");
        let json = tool_beside(&talk, &["report", "--json", named]).run();
        let json: Value = serde_json::from_str(&json.ok().stdout).unwrap();
        assert_eq!((&json["process"]["ended_by"], &json["schema_version"]), (&"killed".into(), &1.into()));
        assert_eq!(json["devices"][0]["requested_bytes"]["current"], 120 * MIB, "{json:#}");
        let page = tool_beside(&talk, &["report", "--html", "page.html", named]).run();
        let page = fs::read_to_string(page.ok().folder.join("page.html")).unwrap();
        assert!(page.contains("killed: no end was seen") && page.contains("120.00"), "{page}");
        let diff = tool_beside(&talk, &["diff", &report("a.json"), named]).run();
        assert!(diff.ok().stdout.contains("reserved, peak"), "{diff}");
        let merged = tool_beside(&talk, &["merge", &report("a.json"), named]).run();
        assert!(merged.ok().stdout.contains("2 reports"), "{merged}");
    }
}

#[test]
fn what_a_live_file_does_not_hold_is_had_by_asking() {
    let told = |name: &str, conf: &str| {
        let program = Program::new("talker").preload().conf(conf).report_to("now.json");
        let mut talk = Talk::new(&program, name);
        talk.tell("alloc 40 3");
        talk
    };
    let said = |talk: &Talk, option: &str, named: &str| {
        let run = tool_beside(talk, &["report", option, named]).run();
        assert_eq!(run.status.code(), Some(2), "{run}");
        run.stderr.clone()
    };
    let mut talk = told("in-memory", "sites:1,history:1000");
    let pid = talk.pid().to_string();
    for option in ["--leaks", "--folded", "--trace=t.json", "--memory-viz=v.pickle"] {
        let text = said(&talk, option, &pid);
        let (what, cure) = ("are not in a live file", format!("`gpucache ctl {pid} report`"));
        assert!(text.contains(what) && text.contains(&cure) && !text.contains("GPUCACHE_CONF"), "{text}");
    }
    // The cure works.
    talk.tell("pairs 64").say("churn");
    tool_beside(&talk, &["ctl", "--wait", "30", &pid, "report"]).run().ok();
    let file = talk.running.as_ref().unwrap().folder.join("now.json");
    let leaks = tool_beside(&talk, &["report", "--leaks", file.to_str().unwrap()]).run();
    assert!(leaks.ok().stdout.contains("not freed yet"), "it runs: {leaks}");
    tool_beside(&talk, &["report", "--trace=t.json", file.to_str().unwrap()]).run().ok();
    talk.kill();
    let text = said(&talk, "--leaks", &pid);
    assert!(text.contains("they are lost: it was killed") && !text.contains("ctl"), "{text}");

    let talk = told("not-in-memory", "memory_limit:1GiB");
    let pid = talk.pid().to_string();
    assert!(said(&talk, "--leaks", &pid).contains("GPUCACHE_CONF=sites:True"));
    assert!(said(&talk, "--trace=t.json", &pid).contains("GPUCACHE_CONF=history:10000"));
}

#[test]
fn who_cannot_be_found_is_told_by_the_cause() {
    let talk = Talk::default("not-found");
    let said = |args: &[&str]| {
        let run = tool_beside(&talk, args).run();
        assert_eq!(run.status.code(), Some(2), "{run}");
        run.stderr.clone()
    };
    assert!(said(&["report", "4194305"]).contains("no such process"));
    let pid = talk.pid().to_string();
    assert!(said(&["report", &pid]).contains("no CUDA call yet"), "it has the library");
    let own = std::process::id().to_string();
    for command in [&["report", &own][..], &["ctl", &own, "report"]] {
        assert!(said(command).contains("runs without the library"), "{command:?}");
    }
    assert!(said(&["ctl", "nobody", "report"]).contains("neither the number of a process nor a file"));
}
