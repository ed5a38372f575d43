//! A process that does not use CUDA sees nothing of the library: every child of a job inherits the preload.

mod harness;

use harness::Program;
use std::fs;
use std::time::{Duration, Instant};

#[test]
fn no_output_and_no_file() {
    for program in [
        Program::at("/bin/true"),
        Program::at("/bin/ls").arg("/"),
        Program::at("/bin/bash")
            .arg("-c")
            .arg("for i in 1 2 3; do /bin/true; done; echo $BASH_VERSION | wc -l"),
        Program::new("hello"),
    ] {
        // Also with settings that would matter, or be wrong, in a process that uses CUDA.
        for conf in ["memory_limit:1GiB", "memory_limit:nonsense"] {
            for text in [false, true] {
                let program = if text { program.clone().text_report() } else { program.clone() };
                let without = program.run();
                let with = program.preload().conf(conf).run();
                assert_eq!(with.stdout, without.stdout, "{with}");
                assert_eq!(with.stderr, "", "{with}");
                assert_eq!(with.status, without.status, "{with}");
                assert_eq!(fs::read_dir(&with.folder).unwrap().count(), 0, "{with}");
            }
        }
    }
}

#[test]
fn no_thread() {
    let run = Program::new("threads_count").preload().run();
    run.ok();
    assert_eq!(run.printed("threads"), 1, "{run}");
}

#[test]
fn a_process_that_opens_the_driver_and_does_nothing_is_left_alone() {
    let run = Program::new("other_library").preload().run();
    run.ok();
    assert!(run.library_lines().is_empty(), "{run}");
    assert!(run.report.is_none(), "{run}");
}

/// The fastest of several runs, which is what the machine's noise hides least.
fn fastest(program: &Program) -> Duration {
    let time = |_| {
        let start = Instant::now();
        program.run();
        start.elapsed()
    };
    (0..20).map(time).min().unwrap()
}

#[test]
fn it_costs_next_to_nothing() {
    let plain = fastest(&Program::at("/bin/true"));
    let preloaded = fastest(&Program::at("/bin/true").preload());
    // An unoptimised build on a busy machine; a release build takes well under a millisecond.
    assert!(preloaded < plain + Duration::from_millis(20), "{plain:?} without, {preloaded:?} with");
}
