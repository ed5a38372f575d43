//! Children of every kind, and unusual surroundings of the process: the library is never in the way.

mod harness;

use harness::{MIB, Outcome, Program, build, same_with_and_without};
use std::ffi::OsString;

/// The process's own report and nothing else on stderr.
fn one_report(run: &Outcome) {
    assert_eq!(run.library_lines().len(), 1, "{run}");
    assert_eq!(run.stderr.matches("report.json").count(), 1, "{run}");
}

#[test]
fn children_of_every_kind_while_other_threads_allocate() {
    for name in ["processes", "processes_shared"] {
        for way in [
            "vfork_exec",
            "vfork_exit",
            "spawn",
            "clone",
            "clone_vm",
            "syscall",
            "fork_exit",
            "fork_quick_exit",
            "fork_thread_exit",
            "fork_abort",
            "fork_signal",
            "fork_fork",
            "handlers",
            "daemon",
        ] {
            let run = same_with_and_without(&Program::new(name).arg(way));
            run.ok();
            one_report(&run);
            for gauge in ["requested_bytes", "external_bytes"] {
                assert_eq!(run.gauge(0, gauge, "current"), 0, "{way}: {run}");
            }
        }
    }
}

#[test]
fn children_write_no_reports_of_their_own() {
    for way in ["vfork_exec", "vfork_exit", "spawn", "clone", "clone_vm", "syscall", "fork_thread_exit"] {
        let run = Program::new("processes").arg(way).preload().report_to("report-%p.json").run();
        run.ok();
        let names = std::fs::read_dir(&run.folder).unwrap().map(|entry| entry.unwrap().file_name());
        let reports = names.filter(|name| name.to_string_lossy().starts_with("report-"));
        assert_eq!(reports.count(), 1, "{way}: {run}");
    }
}

#[test]
fn a_child_of_a_process_that_never_used_cuda_is_capped() {
    for way in ["nothing", "looks_up", "version"] {
        let program = Program::new("fork_first").arg(way).arg("30");
        let without = program.run();
        assert_eq!(without.printed("blocks"), 30, "{way}: {without}");
        let run = program.preload().conf("memory_limit:256MiB").run();
        run.ok();
        assert_eq!(run.printed("blocks"), 16, "{way}: {run}");
        assert_eq!(run.gauge(0, "requested_bytes", "current"), 256 * MIB, "{way}: {run}");
    }
}

#[test]
fn unusual_ends() {
    for (way, status) in [("chdir", 3), ("signals", 3), ("atexit", 3), ("nested", 4)] {
        let run = same_with_and_without(&Program::new("odd_ends").arg(way));
        assert_eq!(run.status.code(), Some(status), "{way}: {run}");
        one_report(&run);
    }
    let run = same_with_and_without(&Program::new("odd_ends").arg("kill"));
    assert_eq!(run.status.code(), None, "{run}");
    assert!(run.library_lines().is_empty(), "{run}");
}

/// The driver stays loaded for as long as its functions are known.
#[test]
fn the_driver_is_closed_and_opened_again() {
    let run = Program::new("odd_ends").arg("reopen").preload().run();
    assert_eq!(run.status.code(), Some(3), "{run}");
    assert_eq!(run.count("alloc"), 10, "{run}");
}

#[test]
fn threads_with_small_stacks_and_thousands_of_them() {
    for (kib, threads) in [("64", "20"), ("256", "3000")] {
        let program = Program::new("small_stacks").arg(kib).arg(threads);
        program.run().ok();
        let run = program.preload().conf("memory_limit:64MiB").run();
        run.ok();
        assert_eq!(run.count("alloc"), run.printed("allocs"), "{run}");
        assert!(run.gauge(0, "reserved_bytes", "peak") <= 48 * MIB, "nothing stranded: {run}");
    }
}

#[test]
fn preloaded_twice() {
    let library = build::library();
    let copy = library.with_file_name("libgpucache-again.so");
    std::fs::copy(&library, &copy).unwrap();
    for second in [&library, &copy] {
        let mut list = OsString::from(&library);
        list.push(":");
        list.push(second);
        for name in ["seq", "seq_shared"] {
            let seq = Program::new(name).arg("a1m*3 w F a3m*4 w F");
            let run = seq.preload_list(&list).run();
            run.ok();
            assert_eq!(run.count("alloc"), run.printed("allocs"), "{run}");
            one_report(&run);
        }
    }
}

#[test]
fn a_thousand_variables() {
    let mut seq = Program::new("seq").arg("a1m*3 w F").preload();
    for number in 0..1000 {
        seq = seq.env(&format!("VARIABLE_{number}"), &"x".repeat(number % 100));
    }
    let run = seq.run();
    run.ok();
    one_report(&run);
}

/// Runs a shell command with the library preloaded into the program that `$0` names.
fn shell(script: &str, report: &str) -> Outcome {
    let program = build::programs().join("bin/seq");
    let shell = Program::at("/bin/sh").arg("-c").arg(script).arg(program.to_str().unwrap());
    shell.preload().report_to(report).run()
}

#[test]
fn closed_descriptors() {
    for closed in ["2>&-", ">&- 2>&-", "<&- >&- 2>&-", "2>/dev/full"] {
        let run = shell(&format!("\"$0\" 'a1m*3 w F' {closed}"), "report.json");
        run.ok();
        assert_eq!(run.count("alloc"), 3, "{closed}: {run}");
    }
    let run = shell("ulimit -n 40; \"$0\" 'a1m*3 w F'", "report.json");
    run.ok();
    assert_eq!(run.count("alloc"), 3, "{run}");
}

#[test]
fn places_that_no_report_can_be_written_to() {
    for place in [".", "/proc/report.json", "none/report.json", "/dev/full"] {
        let run = Program::new("seq").arg("a1m*3 w F").preload().report_to(place).run();
        run.ok();
        assert!(run.stderr.contains("could not write the report"), "{place}: {run}");
        assert!(run.stderr.contains("served"), "its text comes instead: {run}");
    }
}
