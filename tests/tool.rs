//! Programs under `gpucache run`: what they get, what stays as it is, and what is refused before they start.

mod harness;
mod tooling;

use harness::talk::Talk;
use harness::{MIB, Program, build};
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use tooling::{TOOL, report_in, run, tool};

#[test]
fn a_program_runs_on_the_library_and_is_otherwise_the_same() {
    let without = Program::new("train").arg("20").run();
    let with = run(&["--limit", "320MiB", "--report", "r-%p.json"], &["train", "20"]).run();
    assert_eq!((&with.stdout, with.status), (&without.stdout, without.status), "{with}");
    let name = fs::read_dir(&with.folder).unwrap().map(|f| f.unwrap().file_name()).find(|n| n != "stats");
    let json = report_in(&with, name.unwrap().to_str().unwrap());
    assert_eq!(json["devices"][0]["limit_bytes"], 320 * MIB, "{with}");
    assert!(json["devices"][0]["counts"]["alloc"].as_u64() > Some(0), "{with}");
}

#[test]
fn the_program_takes_the_tools_place() {
    let run = run(&[], &["/bin/sh", "-c", "echo $$ $PPID"]).run();
    let parent = run.ok().stdout.split_whitespace().nth(1).unwrap().to_owned();
    assert_eq!(parent, std::process::id().to_string(), "the tool is gone: {run}");
}

#[test]
fn the_end_is_the_programs_with_a_page_and_without() {
    for page in [&[][..], &["--html", "page.html"]] {
        let code = |script: &str| run(page, &["/bin/sh", "-c", script]).run().status;
        assert_eq!(code("exit 3").code(), Some(3));
        assert_eq!(code("kill -TERM $$").signal(), Some(15), "{page:?}");
        assert_eq!(code("kill -KILL $$").signal(), Some(9), "{page:?}");
        assert_eq!(code("kill -SEGV $$").signal(), Some(11), "{page:?}");
    }
}

#[test]
fn a_page_is_written_after_the_end() {
    let one = run(&["--html", "page.html", "--limit", "64MiB"], &["seq", "a40m a100m"]).run();
    let page = fs::read_to_string(one.ok().folder.join("page.html")).unwrap_or_else(|e| panic!("{e}: {one}"));
    assert!(page.contains("status 0") && page.contains("out of memory 1 time"), "{one}");
    let json = fs::read_dir(&one.folder).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap());
    assert_eq!(json.filter(|n| n.starts_with("page-")).count(), 1, "the JSON lies beside it: {one}");

    let bin = build::programs().join("bin");
    let script = format!("{0}/route_static; {0}/route_driver", bin.display());
    let two = run(&["--html", "page.html", "--report", "r-%e.json"], &["/bin/sh", "-c", &script]).run();
    let page = fs::read_to_string(two.ok().folder.join("page.html")).unwrap_or_else(|e| panic!("{e}: {two}"));
    assert!(page.contains("r-route_static") && page.contains("r-route_driver"), "both processes: {two}");
    assert_eq!(report_in(&two, "r-route_driver.json")["schema_version"], 1);
}

#[test]
fn a_page_that_cannot_be_made_is_said_and_changes_no_status() {
    let run = run(&["--html", "page.html"], &["/bin/sh", "-c", "exit 3"]).run();
    assert_eq!(run.status.code(), Some(3), "{run}");
    assert!(run.stderr.contains("page.html was not written, because there is no report"), "{run}");
}

#[test]
fn a_word_for_where_the_report_goes_is_no_file() {
    let run = run(&["--report", "stderr"], &["seq", "a8m"]).run();
    assert!(run.ok().stderr.contains("gpucache[") && run.stderr.contains("GPU 0"), "the text: {run}");
    assert!(!run.folder.join("stderr").exists(), "{run}");
}

#[test]
fn a_page_shows_this_run_and_no_other() {
    let seq = build::programs().join("bin/seq");
    let library = build::library();
    let tool = format!("{TOOL} run --lib '{}' --html page.html", library.display());
    // The report of the first lies there when the second runs, and one of a run beside it comes while it runs.
    let script = format!(
        "{tool} -- {} a40m; rm page.html; cp page-*.json saved; {tool} -- cp saved page-77.json",
        seq.display()
    );
    let run = Program::at("/bin/sh").text_report().arg("-c").arg(script).run();
    assert!(run.ok().stderr.contains("page.html was not written"), "{run}");
    assert!(!run.folder.join("page.html").exists(), "{run}");
    // The same where the user has said where reports go.
    let told = format!("{tool} --report r-%e.json -- ");
    let script = format!("{told}{} a40m; rm page.html; {told}true", seq.display());
    let run = Program::at("/bin/sh").text_report().arg("-c").arg(script).run();
    assert!(run.ok().stderr.contains("page.html was not written"), "{run}");
    assert!(!run.folder.join("page.html").exists(), "{run}");
}

#[test]
fn a_page_of_a_program_that_is_killed_shows_its_last_figures() {
    let library = build::library();
    let talker = build::programs().join("bin/talker");
    let start = |page: &str, conf: &str| {
        let words = ["run", "--lib", library.to_str().unwrap(), "--html", page, "--conf", conf];
        Talk::new(&tool(&[&words[..], &[talker.to_str().unwrap()]].concat()), page)
    };
    let mut talk = start("killed.html", "live_file:True");
    talk.tell("alloc 37 1").say("abort");
    let run = talk.finish();
    assert_eq!(run.status.signal(), Some(6), "{run}");
    assert!(
        run.stderr.contains("ended by signal 6 and left no report")
            && run.stderr.contains("gpucache report "),
        "{run}"
    );
    let page = fs::read_to_string(run.folder.join("killed.html")).unwrap_or_else(|e| panic!("{e}: {run}"));
    assert!(page.contains("signal 6") && page.contains("37.00 MiB"), "{run}");

    let mut talk = start("unseen.html", "live_file:False");
    talk.tell("alloc 37 1").say("abort");
    let run = talk.finish();
    assert!(run.stderr.contains("unseen.html was not written") && run.stderr.contains("signal 6"), "{run}");
}

#[test]
fn a_page_takes_no_reports_of_a_run_at_the_same_time_with_the_same_names() {
    let seq = build::programs().join("bin/seq");
    let (library, seq) = (build::library(), seq.display());
    let other =
        format!("{TOOL} run --lib '{}' --html other.html --report r-%p.json -- {seq} a8m", library.display());
    let page = |script: &str| {
        let run = run(&["--html", "page.html", "--report", "r-%p.json"], &["/bin/sh", "-c", script]).run();
        let page =
            fs::read_to_string(run.ok().folder.join("page.html")).unwrap_or_else(|e| panic!("{e}: {run}"));
        assert!(run.folder.join("other.html").exists(), "{run}");
        page
    };
    let own = page(&format!("env -u GPUCACHE_RUN {other}; {seq} a40m"));
    assert!(own.contains("gpucache report<") && own.contains("40.00 MiB"), "{own}");
    let both = page(&format!("{other}; {seq} a40m"));
    assert!(
        both.contains("merged report") && both.contains("2 reports"),
        "a run within it is part of it: {both}"
    );

    let script = format!("env -u GPUCACHE_RUN {}", other.replace("r-%p", "one"));
    let none = run(&["--html", "page.html", "--report", "one.json"], &["/bin/sh", "-c", &script]).run();
    assert!(!none.ok().folder.join("page.html").exists(), "{none}");
    assert!(none.stderr.contains("one.json was written by another run at the same time"), "{none}");
}

#[test]
fn a_page_shows_what_killed_children_held_too() {
    let talker = build::programs().join("bin/talker");
    let script = format!(
        "{0}/seq a8m; printf 'alloc 37 1\\nabort\\n' | {1}; exit 3",
        build::programs().join("bin").display(),
        talker.display()
    );
    let one = format!("printf 'alloc 37 1\\nabort\\n' | {}; exit 3", talker.display());
    for (script, what) in [(&one, "killed: no end was seen"), (&script, "2 reports")] {
        let run = run(&["--html", "page.html"], &["/bin/sh", "-c", script]).run();
        assert_eq!(run.status.code(), Some(3), "{run}");
        let page = fs::read_to_string(run.folder.join("page.html")).unwrap_or_else(|e| panic!("{e}: {run}"));
        assert!(page.contains(what) && page.contains("37.00 MiB"), "{what}: {run}\n{page}");
        assert!(
            run.stderr.contains("): it was killed or has crashed and left no report: page.html shows"),
            "{run}"
        );
    }
}

/// The tool with an environment in which its programs find the simulated driver, for what [`Program`] cannot do.
fn by_hand(args: &[&str]) -> Command {
    let mut command = Command::new(TOOL);
    command.args(args).env("LD_LIBRARY_PATH", build::programs().join("lib"));
    for name in ["LD_PRELOAD", "GPUCACHE_CONF", "GPUCACHE_REPORT", "GPUCACHE_LIB"] {
        command.env_remove(name);
    }
    command.env("GPUCACHE_LIB", build::library()).current_dir(build::programs().join("run"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn stdin_reaches_the_program() {
    fs::create_dir_all(build::programs().join("run")).unwrap();
    for page in [&["run"][..], &["run", "--html", "never.html"]] {
        let mut child = by_hand(&[page, &["cat"]].concat()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"in and out").unwrap();
        assert_eq!(child.wait_with_output().unwrap().stdout, b"in and out");
    }
}

/// Whether this process, and so its children, ignore a signal.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
}

#[test]
fn signals_reach_the_program_behind_a_waiting_tool() {
    fs::create_dir_all(build::programs().join("run")).unwrap();
    for (name, number) in [("TERM", 15), ("INT", 2), ("USR1", 10), ("HUP", 1)] {
        if is_ignored(number) {
            continue; // no shell can trap what was ignored when it began, as it is in the background of another shell
        }
        let script = format!(
            "trap 'echo got {name}; exit 7' {name}; echo ready; for i in $(seq 1000); do sleep 0.02; done"
        );
        let mut child = by_hand(&["run", "--html", "never.html", "/bin/sh", "-c", &script]).spawn().unwrap();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        // SAFETY: a signal to our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(child.id() as i32, number) }, 0);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
        assert_eq!((rest.as_str(), child.wait().unwrap().code()), (&*format!("got {name}\n"), Some(7)));
    }
}

/// The state of a process in one letter, as in `/proc`.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

#[test]
fn a_stop_of_the_program_stops_the_tool_and_both_go_on() {
    fs::create_dir_all(build::programs().join("run")).unwrap();
    let script = "kill -STOP $$; echo went on; exit 5";
    let mut child = by_hand(&["run", "--html", "never.html", "/bin/sh", "-c", script]).spawn().unwrap();
    let begun = std::time::Instant::now();
    while state(child.id()) != Some('T') {
        assert!(begun.elapsed().as_secs() < 20, "the tool does not stop: {:?}", state(child.id()));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // SAFETY: a signal to our own child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGCONT) }, 0);
    let mut out = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut out).unwrap();
    assert_eq!((out.as_str(), child.wait().unwrap().code()), ("went on\n", Some(5)));
}

#[test]
fn an_ignored_signal_stays_ignored() {
    fs::create_dir_all(build::programs().join("run")).unwrap();
    let script =
        format!("trap '' HUP; exec {TOOL} run --html never.html /bin/sh -c 'kill -HUP $$; echo alive'");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &script]).env("GPUCACHE_LIB", build::library());
    let output = command.current_dir(build::programs().join("run")).output().unwrap();
    assert_eq!(output.stdout, b"alive\n", "{output:?}");
}

/// As a script's `&` and nohup have it; the program may handle the signal later all the same.
#[test]
fn an_ignored_signal_reaches_a_program_that_handles_it_and_the_page_is_written() {
    let folder = build::programs().join("run").join(format!("ignored-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let program = build::programs().join("bin/signals");
    for (shell, found) in [("trap '' INT HUP CHLD", "ignored"), ("trap - INT HUP", "default")] {
        if found == "default" && is_ignored(libc::SIGINT) {
            continue; // no shell can undo that
        }
        let script = format!("{shell}; exec {TOOL} run --html page.html '{}'", program.display());
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script]).env("GPUCACHE_LIB", build::library()).current_dir(&folder);
        command.env("LD_LIBRARY_PATH", build::programs().join("lib"));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        assert!(lines.next().unwrap().unwrap().starts_with(&format!("INT {found}, HUP ")), "{shell}");
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        // SAFETY: a signal to our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
        assert_eq!(lines.next().unwrap().unwrap(), "got 2", "{shell}");
        assert_eq!(child.wait().unwrap().code(), Some(7), "{shell}");
        fs::remove_file(folder.join("page.html")).expect("a page");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_is_preloaded_stays_behind_the_library() {
    let library = build::library();
    let library = library.to_str().unwrap();
    let other = build::programs().join("lib/libotherpreload.so");
    let other = other.to_str().unwrap();
    let preload = |existing: &str| {
        let run = run(&[], &["/usr/bin/env"]).preload_list(existing).run();
        let line =
            run.ok().stdout.lines().find_map(|line| line.strip_prefix("LD_PRELOAD=")).unwrap().to_owned();
        (line, run.stderr.clone())
    };
    assert_eq!(preload(""), (library.to_owned(), String::new()));
    assert_eq!(preload(other).0, format!("{library}:{other}"));
    // Never twice, and that the same one was there is nothing to speak of.
    assert_eq!(preload(&format!("{other} {library}")), (format!("{library}:{other}"), String::new()));
}

#[test]
fn settings_join_those_of_the_environment_and_win() {
    let options = ["--fraction", "0.5", "--conf", "free_sync:True", "--report", "r.json", "--log", "error"];
    let program = run(&options, &["seq", "a8m"]);
    let run = program.conf("per_process_memory_fraction:0.9,max_split_size_mb:128").run();
    let config = report_in(run.ok(), "r.json")["config"].clone();
    let value = |key: &str| {
        let setting = config.as_array().unwrap().iter().find(|s| s["key"] == key).unwrap();
        setting["value"].as_str().unwrap().to_owned()
    };
    assert_eq!((value("memory_fraction"), value("max_split_size_mb")), ("0.5".into(), "128".into()));
    assert_eq!((value("free_sync"), value("GPUCACHE_LOG")), ("True".into(), "error".into()));
    assert!(
        run.stderr.contains("--fraction 0.5 takes the place of per_process_memory_fraction:0.9"),
        "{run}"
    );
}

#[test]
fn what_cannot_work_is_refused_before_the_program_starts() {
    let marker = ["/bin/sh", "-c", "echo started"];
    for (options, status, parts) in [
        (&["--limit", "8GB"][..], 125, &["--limit 8GB: ", "8GiB"][..]),
        (&["--fraction", "2"], 125, &["--fraction 2: ", "between 0 and 1"]),
        (&["--conf", "memory_limt:8GiB"], 125, &["--conf memory_limt:8GiB: ", "memory_limit"]),
        (&["--log", "loud"], 125, &["--log loud: ", "debug"]),
        (
            &["--report", "/no/such/folder/r.json"],
            125,
            &["--report /no/such/folder/r.json: ", "/no/such/folder"],
        ),
        (&["--html", "/no/such/folder/r.html"], 125, &["--html /no/such/folder/r.html: ", "/no/such/folder"]),
        (&["--limt", "8GiB"], 125, &["'--limit'"]),
        (&["--html", "n.html", "--report", "n.html"], 125, &["--html n.html: ", "the same file"]),
        (&["--html", "./n.html", "--report", "n.html"], 125, &["--html ./n.html: ", "the same file"]),
        (&["--html", "n.html", "--report", "off"], 125, &["--report off and --html n.html: ", "JSON"]),
        (&["--html", "n.html", "--report", "stderr"], 125, &["--report stderr and --html n.html: "]),
        (&["--report", "stdout"], 125, &["--report stdout: ", "./stdout"]),
        // Where nobody can make a file, not even the superuser.
        (&["--html", "/proc/p.html"], 125, &["--html /proc/p.html: it cannot be written: "]),
        (&["--report", "/proc/p-%p.json"], 125, &["--report /proc/p-%p.json: it cannot be written: "]),
        (&["--html", "-"], 125, &["--html -: ", "name a file"]),
    ] {
        let run = run(options, &marker).run();
        assert_eq!((run.status.code(), run.stdout.as_str()), (Some(status), ""), "{options:?}: {run}");
        assert!(parts.iter().all(|part| run.stderr.contains(part)), "{parts:?}: {run}");
    }
    let lacking = tool(&["run", "--lib", "/no/such/lib.so", "true"]).run();
    assert_eq!(lacking.status.code(), Some(125), "{lacking}");
    assert!(lacking.stderr.contains("--lib /no/such/lib.so: there is no such file"), "{lacking}");
    for (file, what) in [("/etc/passwd", "it is no library"), (TOOL, "it is a program")] {
        for (words, status) in
            [(&["run", "--lib", file, "/bin/echo"][..], 125), (&["path", "--lib", file], 2)]
        {
            let run = tool(words).run();
            assert_eq!((run.status.code(), run.stdout.as_str()), (Some(status), ""), "{run}");
            assert!(run.stderr.contains(&format!("{file}: {what}")), "{run}");
        }
    }
    let environment = run(&["--log", "warn"], &marker).conf("memory_limit:8GB").run();
    assert_eq!(environment.status.code(), Some(125), "{environment}");
    assert!(
        environment.stderr.contains("in the environment: GPUCACHE_CONF: memory_limit:8GB"),
        "{environment}"
    );
}

#[test]
fn a_path_that_ld_preload_cannot_hold_is_refused_and_a_link_to_it_is_not() {
    let folder = build::programs().join("run").join(format!("a b-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let inside = folder.join("libgpucache.so");
    _ = fs::copy(build::library(), &inside);
    let refused = tool(&["run", "--lib", inside.to_str().unwrap(), "true"]).run();
    assert_eq!(refused.status.code(), Some(125), "{refused}");
    assert!(refused.stderr.contains("a space") && refused.stderr.contains("symbolic link"), "{refused}");
    let link = build::programs().join("run").join(format!("link-{}.so", std::process::id()));
    _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(&inside, &link).unwrap();
    let bin = build::programs().join("bin/seq");
    let words = ["run", "--lib", link.to_str().unwrap(), "--report", "r.json", bin.to_str().unwrap(), "a8m"];
    let linked = tool(&words).run();
    assert_eq!(report_in(linked.ok(), "r.json")["schema_version"], 1);
    fs::remove_file(&link).unwrap();
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn programs_that_cannot_be_started_have_a_shells_statuses() {
    let missing = run(&[], &["nosuchprogram"]).run();
    assert_eq!(missing.status.code(), Some(127), "{missing}");
    assert!(missing.stderr.contains("nosuchprogram: there is no such program"), "{missing}");
    assert_eq!(run(&["--html", "x.html"], &["nosuchprogram"]).run().status.code(), Some(127));
    let folder = run(&[], &["/"]).run();
    assert_eq!(folder.status.code(), Some(126), "{folder}");
}

#[test]
fn a_static_program_is_warned_about() {
    let run = run(&["--limit", "1GiB"], &["hello_static"]).run();
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(7), "hello\n"), "it runs all the same: {run}");
    assert!(run.stderr.contains("warning") && run.stderr.contains("statically linked"), "{run}");
}

#[test]
fn print_shows_what_a_shell_can_set() {
    let shown = run(&["--limit", "[0:1GiB]", "--print"], &["true"]).run();
    assert!(shown.ok().stdout.contains("GPUCACHE_CONF='memory_limit:[0:1GiB]'\n"), "{shown}");
}

/// The library's exports and constructor must not be in the tool, or it would interpose itself.
#[test]
fn the_tool_is_not_the_library() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/check-exports.sh");
    let check = Command::new(&script).args(["--tool", TOOL]).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}
