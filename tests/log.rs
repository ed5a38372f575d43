//! `GPUCACHE_LOG`: each level says what the README says that it does, and the lower ones stay quiet.

mod harness;

use harness::{Outcome, Program};

/// Fills most of a cap of 64 MiB, asks for it again in another shape, and then for more than there is.
fn run(level: &str) -> Outcome {
    let run = Program::new("seq")
        .arg("a24m*2 w F a48m a32m")
        .preload()
        .conf("memory_limit:64MiB")
        .env("GPUCACHE_LOG", level)
        .run();
    run.ok();
    run
}

/// What the library says, by level: `INFO`, `DEBUG`, …
fn said(run: &Outcome, level: &str) -> Vec<String> {
    let own = run.stderr.lines().filter(|line| line.starts_with("gpucache["));
    own.filter_map(|line| line.split_once("]: ")?.1.strip_prefix(level).map(str::to_owned)).collect()
}

#[test]
fn nothing_is_said_but_out_of_memory_unless_asked() {
    for (level, failures) in [("off", 0), ("error", 0), ("warn", 1), ("", 1)] {
        let run = run(level);
        let lines: Vec<_> =
            run.library_lines().into_iter().filter(|line| !line.contains("report written")).collect();
        // Its further lines are indented.
        let heads: Vec<_> = lines.iter().filter(|line| !line.contains("]:   ")).collect();
        assert_eq!(heads.len(), failures, "{level}: {run}");
        assert!(
            heads.iter().all(|line| line.contains("out of memory on GPU 0: 32.00 MiB")),
            "{level}: {run}"
        );
        assert_eq!(lines.is_empty(), failures == 0, "{level}: {run}");
    }
}

#[test]
fn info_tells_settings_contexts_and_out_of_memory_in_words() {
    let run = run("info");
    let lines = said(&run, "INFO ");
    let one =
        |part: &str| assert_eq!(lines.iter().filter(|line| line.contains(part)).count(), 1, "{part}: {run}");
    one("is active; memory_limit:64MiB in GPUCACHE_CONF");
    one("on GPU 0, Simulated CUDA device, 8.00 GiB, under a cap of 64.00 MiB");
    one(
        "out of memory on GPU 0: 32.00 MiB asked (pool); the pool holds 48.00 MiB, 48.00 MiB of that in use, 0 B the",
    );
    assert!(!run.stderr.contains("Gauge") && !run.stderr.contains("Some("), "no structures: {run}");
    assert_eq!(said(&run, "DEBUG ").len() + said(&run, "TRACE ").len(), 0, "{run}");
}

#[test]
fn debug_tells_how_the_pool_grows_shrinks_and_waits() {
    let run = run("debug");
    let lines = said(&run, "DEBUG ");
    for part in [
        "grew by 24.00 MiB to 48.00 MiB for a request of",
        "gave ",
        "the cap of 64.00 MiB has no room to grow by 32.00 MiB",
    ] {
        assert!(lines.iter().any(|line| line.contains(part)), "{part}: {run}");
    }
    assert!(!said(&run, "INFO ").is_empty() && said(&run, "TRACE ").is_empty(), "{run}");
}

#[test]
fn trace_tells_every_miss_and_every_epoch() {
    let run = run("trace");
    let lines = said(&run, "TRACE ");
    for part in ["no clean block at hand for", "nothing that is done serves", "is sealed", "is over"] {
        assert!(lines.iter().any(|line| line.contains(part)), "{part}: {run}");
    }
    let misses = lines.iter().filter(|line| line.contains("no clean block at hand")).count() as u64;
    assert_eq!(misses, run.count("driver_alloc") + run.count("oom"), "each of these was missed: {run}");
}

#[test]
fn warnings_about_settings_obey_the_level_and_errors_do_not() {
    let with = |level: &str, conf: &str| {
        Program::new("meminfo").preload().conf(conf).env("GPUCACHE_LOG", level).run()
    };
    assert!(with("warn", "memory_limt:1GiB").stderr.contains("did you mean memory_limit?"));
    assert!(!with("error", "memory_limt:1GiB").stderr.contains("memory_limit"));
    assert!(with("off", "memory_limit:8").stderr.contains("`8` means 8 B"));
}
