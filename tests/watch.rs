//! What those see who watch a running process.

mod harness;

use harness::{MIB, Program};
use std::path::Path;

/// A figure of the first device in a file for Prometheus.
fn figure(file: &Path, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
    let line = line.unwrap_or_else(|| panic!("no {name} in\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn figures_for_prometheus_come_while_it_runs_and_at_the_end() {
    for conf in ["", "live_file:False"] {
        let program = Program::new("talker").preload().conf(conf).env("GPUCACHE_PROM", "x%p-%q{HOME}.prom");
        let mut running = program.env("HOME", "h").start();
        running.tell("alloc 8 1");
        let file = running.folder.join(format!("x{}-h.prom", running.child.id()));
        running.until(|| file.exists().then_some(()));
        assert!(figure(&file, "gpucache_memory_reserved_bytes") >= 8 * MIB);
        assert_eq!(figure(&file, "gpucache_process_running"), 1);
        running.tell("alloc 100 1");
        let run = running.finish();
        run.ok();
        assert_eq!(figure(&file, "gpucache_process_running"), 0);
        assert_eq!(figure(&file, "gpucache_memory_requested_bytes"), 108 * MIB);
        assert_eq!(figure(&file, "gpucache_allocations_total"), 2);
        let names = std::fs::read_dir(&run.folder).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(!names.iter().any(|name| name.contains(".tmp")), "{names:?}");
        let figures = run.json()["config"].as_array().unwrap();
        assert!(figures.iter().any(|setting| setting["key"] == "GPUCACHE_PROM"));
    }
}

/// What was mapped and moved, where memory is mapped at all.
#[test]
fn an_expandable_range_has_figures_of_its_own() {
    for (conf, mapped) in [("expandable_segments:True", Some(60 * MIB)), ("", None)] {
        let program = Program::new("talker").preload().conf(conf).env("GPUCACHE_PROM", "x.prom");
        let mut running = program.start();
        running.tell("alloc 30 2");
        let run = running.finish();
        run.ok();
        let file = run.folder.join("x.prom");
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text.contains("gpucache_range_"), mapped.is_some(), "{text}");
        let Some(mapped) = mapped else { continue };
        assert_eq!(figure(&file, "gpucache_range_mapped_bytes"), mapped, "{text}");
        assert_eq!(figure(&file, "gpucache_range_span_bytes"), mapped, "{text}");
        assert_eq!(figure(&file, "gpucache_range_moved_bytes_total"), 0, "{text}");
        assert!(figure(&file, "gpucache_range_handles") > 0, "{text}");
    }
}

/// A framework may take all its memory at the start, and make no calls while it works.
#[test]
fn figures_follow_at_once_when_much_more_is_held() {
    let mut running = Program::new("talker").preload().env("GPUCACHE_PROM", "x.prom").start();
    let steps = [
        ("alloc 8 1", "gpucache_memory_reserved_bytes", 8),
        ("async 600", "gpucache_memory_external_bytes", 600),
        ("alloc 300 1", "gpucache_memory_reserved_bytes", 308),
        ("alloc 100 1", "gpucache_memory_reserved_bytes", 308), // a tenth more can wait
    ];
    for (at, (line, name, mib)) in steps.into_iter().enumerate() {
        running.tell(line);
        let done = running.folder.join(format!("done-{}", at + 1));
        running.until(|| done.exists().then_some(()));
        assert_eq!(figure(&running.folder.join("x.prom"), name), mib * MIB, "{line}");
    }
    running.finish().ok();
}

/// Every five seconds and no more often.
#[test]
fn figures_are_not_written_again_and_again() {
    let mut running = Program::new("talker").preload().env("GPUCACHE_PROM", "x.prom").start();
    running.tell("alloc 8 1");
    let (file, done) = (running.folder.join("x.prom"), running.folder.join("done-2"));
    running.tell("pairs 20000");
    running.until(|| done.exists().then_some(()));
    assert!(figure(&file, "gpucache_allocations_total") < 2);
    let run = running.kill();
    assert!(figure(&run.folder.join("x.prom"), "gpucache_process_running") > 0, "nobody could say otherwise");
}

#[test]
fn figures_that_cannot_be_written_are_a_note() {
    let run = Program::new("train").arg("5").preload().env("GPUCACHE_PROM", "no/such/folder/x.prom").run();
    run.ok();
    let notes = run.json()["notes"].to_string();
    assert!(notes.contains("no figures for Prometheus") && notes.contains("no/such/folder"), "{run}");
}

#[test]
fn a_name_that_the_collector_would_not_read_is_refused() {
    let run = Program::new("meminfo").preload().env("GPUCACHE_PROM", "figures").run();
    assert_eq!(run.status.code(), Some(4), "{run}");
    assert!(run.stderr.contains("GPUCACHE_PROM: figures:") && run.stderr.contains(".prom"), "{run}");
}

#[test]
fn children_and_processes_without_cuda_write_no_figures() {
    for (name, way) in [("forks", "_exit"), ("hello", "")] {
        let run = Program::new(name).arg(way).preload().env("GPUCACHE_PROM", "x%p.prom").run();
        let names = std::fs::read_dir(&run.folder).unwrap();
        let written = names.filter(|f| f.as_ref().unwrap().file_name().to_string_lossy().contains(".prom"));
        assert_eq!(written.count(), usize::from(name == "forks"), "{run}");
    }
}

#[test]
fn alarms_are_said_once_each_time() {
    let conf = "memory_limit:1GiB,alert:[held:0.5,allocated:650MiB,fragmentation:0.9]";
    let program = Program::new("talker").preload().conf(conf).env("GPUCACHE_ALERT_FILE", "alerts-%p.jsonl");
    let mut running = program.start();
    let file = running.folder.join(format!("alerts-{}.jsonl", running.child.id()));
    for line in
        ["alloc 100 5", "alloc 100 1", "pairs 100", "alloc 100 1", "free 4", "pairs 100", "alloc 100 3"]
    {
        running.tell(line);
    }
    let run = running.finish();
    run.ok();
    let said: Vec<&str> = run.stderr.lines().filter(|line| line.contains("alert:")).collect();
    assert_eq!(said.len(), 2, "{run}");
    assert!(said[0].contains("alert: GPU 0: held above 0.5 of the cap: 600.00 MiB of 1.00 GiB"), "{run}");
    assert!(said[1].contains("allocated above 650.00 MiB: 700.00 MiB"), "{run}");
    let notes = run.json()["notes"].as_array().unwrap();
    assert_eq!(notes.len(), 2, "{run}");
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let alarms: Vec<_> = lines.map(|line| (line["alert"].clone(), line["limit_bytes"].as_u64())).collect();
    assert_eq!(alarms, [("held".into(), Some(1024 * MIB)), ("allocated".into(), Some(1024 * MIB))]);
}

#[test]
fn an_alarm_of_a_device_without_a_cap_and_a_file_that_cannot_be_are_told_as_they_are() {
    let program = Program::new("seq").arg("a100m*4 F").preload().conf("alert:[held:0.01]");
    let run = program.env("GPUCACHE_ALERT_FILE", "/no/such/folder/alerts-%p.jsonl").run();
    let said = "held above 0.01 of the device's memory: 100.00 MiB of 8.00 GiB";
    assert!(run.ok().stderr.contains(said) && !run.stderr.contains("of the cap"), "{run}");
    let notes = run.json()["notes"].to_string();
    assert!(
        notes.contains("alerts are not in /no/such/folder/alerts-") && notes.contains(".jsonl: "),
        "{notes}"
    );
}

/// A framework may take its memory outside the pool, all of it in one call, and make no further ones.
#[test]
fn memory_outside_the_pool_is_judged_at_once() {
    let conf = "memory_limit:1GiB,alert:[held:0.5,reserved:0.5]";
    let mut running = Program::new("talker").preload().conf(conf).start();
    running.tell("alloc 100 1\nasync 600");
    let done = running.folder.join("done-2");
    running.until(|| done.exists().then_some(()));
    let run = running.kill();
    let said: Vec<&str> = run.stderr.lines().filter(|line| line.contains("alert:")).collect();
    assert_eq!(said.len(), 1, "{run}");
    assert!(said[0].contains("held above 0.5 of the cap: 700.00 MiB of 1.00 GiB"), "{run}");
}

/// Whatever the placeholders are, as the time is.
#[test]
fn all_alarms_of_a_process_go_to_one_file() {
    let program = Program::new("talker").preload().conf("alert:[held:100MiB,held:200MiB]");
    let mut running = program.env("GPUCACHE_ALERT_FILE", "alerts-%t.jsonl").start();
    running.tell("alloc 150 1");
    let done = running.folder.join("done-1");
    running.until(|| done.exists().then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(1100));
    running.tell("alloc 150 1");
    let run = running.finish();
    run.ok();
    let names = std::fs::read_dir(&run.folder).unwrap();
    let written = names.filter(|f| f.as_ref().unwrap().file_name().to_string_lossy().contains("alerts-"));
    assert_eq!(written.count(), 1, "{run}");
}

#[test]
fn a_fragmented_pool_raises_an_alarm() {
    // Every second block goes; a growth is when it is judged.
    let frees: Vec<String> = (0..100).map(|at| format!("f{}", 2 * at)).collect();
    let script = format!("a2m*200 {} a30m", frees.join(" "));
    let run =
        Program::new("seq").arg(script).preload().conf("live_file:False,alert:[fragmentation:0.5]").run();
    run.ok();
    let said: Vec<&str> = run.stderr.lines().filter(|line| line.contains("alert:")).collect();
    assert_eq!(said.len(), 1, "{run}");
    assert!(said[0].contains("fragmentation above 0.5: 0.9"), "{run}");
}

/// What the command for an alarm gets, and that the program sees nothing of it.
#[test]
fn a_command_is_run_and_the_program_does_not_notice() {
    let command = "env > env; sh -c 'ls /proc/$$/fd' > fds; cat /proc/$$/status > status; cat > in; echo noise; touch ran";
    let program = Program::new("reaper").preload().conf("memory_limit:1GiB,alert:[held:0.25]");
    let program =
        program.env("GPUCACHE_ALERT_COMMAND", command).env("KEPT", "as it is").env("ALERT_OLD", "1");
    let run = program.run();
    assert_eq!(run.ok().stdout, "ran=1 children=0 signals=0 term=1\n", "nothing on its stdout: {run}");
    assert!(run.stderr.contains("noise"), "{run}");
    let read = |name: &str| std::fs::read_to_string(run.folder.join(name)).unwrap();
    let variables = read("env");
    for line in ["ALERT_NAME=held", "ALERT_DEVICE=0", "ALERT_LIMIT_BYTES=1073741824", "KEPT=as it is"] {
        assert!(variables.lines().any(|has| has == line), "{line}: {variables}");
    }
    let text = "ALERT_TEXT=held above 0.25 of the cap: 260.00 MiB of 1.00 GiB";
    assert!(variables.contains(text) && variables.contains("ALERT_RESERVED_BYTES=272629760"), "{variables}");
    for gone in ["LD_PRELOAD", "GPUCACHE_", "ALERT_OLD"] {
        assert!(!variables.contains(gone), "{gone}: {variables}");
    }
    let pid = variables.lines().find_map(|line| line.strip_prefix("ALERT_PID=")).unwrap();
    assert_eq!(run.json()["process"]["pid"].to_string(), pid);
    assert!(read("fds").lines().all(|fd| ["0", "1", "2"].contains(&fd)), "{}", read("fds"));
    assert_eq!(read("in"), "", "the program's input is not the command's");
    let status = read("status");
    // The program ignores SIGPIPE; the command is to die by it as in any shell.
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    assert_eq!(u64::from_str_radix(ignored.trim(), 16).unwrap() >> (libc::SIGPIPE - 1) & 1, 0, "{status}");
    assert_eq!(run.json()["notes"].as_array().unwrap().len(), 1, "the alarm: {run}");
    let settings = run.json()["config"].clone();
    let setting = settings.as_array().unwrap().iter().find(|s| s["key"] == "GPUCACHE_ALERT_COMMAND").unwrap();
    assert_eq!(setting["value"], command);
}

#[test]
fn a_command_is_not_waited_for_and_not_run_where_it_would_be_noticed() {
    // The programs may have to be built first.
    let program = Program::new("seq");
    let begun = std::time::Instant::now();
    let program = program.arg("a100m*4 F").preload().conf("alert:[held:200MiB]");
    // A program that waits for its pipes must not wait for the command's.
    let run = program.env("GPUCACHE_ALERT_COMMAND", "exec >/dev/null 2>&1; sleep 30").run();
    run.ok();
    assert!(begun.elapsed().as_secs() < 20, "{run}");
    let program = Program::new("reaper").arg("subreaper").preload().conf("alert:[held:200MiB]");
    let run = program.env("GPUCACHE_ALERT_COMMAND", "touch ran").run();
    assert_eq!(run.ok().stdout, "ran=0 children=0 signals=0 term=1\n", "{run}");
    let notes = run.json()["notes"].to_string();
    assert!(
        notes.contains("no command was run for an alert: orphans of this process are its children"),
        "{notes}"
    );
}
