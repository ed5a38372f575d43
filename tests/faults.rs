//! The driver fails where it never does: no crash, no wrong data, no byte lost or counted twice, and the next call works.

mod harness;

use harness::{Outcome, Program, same_with_and_without};

/// What every account says it holds is what has gone in and not come out.
fn sums_are_right(run: &Outcome) {
    for gauge in ["requested_bytes", "allocated_bytes", "reserved_bytes", "external_bytes"] {
        let part = |name| run.gauge(0, gauge, name);
        assert_eq!(part("total_allocated") - part("total_freed"), part("current"), "{gauge} of {run}");
    }
}

/// What goes in comes out again, in every account.
fn books_balance(run: &Outcome) {
    sums_are_right(run);
    assert_eq!(run.gauge(0, "requested_bytes", "current"), 0, "{run}");
    assert_eq!(run.gauge(0, "external_bytes", "current"), 0, "{run}");
    // A word of host memory is the program's, for the result of its checks.
    let leaked = run.stat("leaked_bytes") & !8;
    assert_eq!(run.gauge(0, "reserved_bytes", "current"), leaked, "as the driver has it: {run}");
}

#[test]
fn an_allocation_fails_at_each_point_in_turn() {
    for nth in 1..=12 {
        for code in [2, 1, 999] {
            let seq =
                Program::new("seq").arg("a64m*3 w F a1m*40 F a100m*2 w f40 f41 a3m*20 a200m w F").preload();
            let run = seq.sim("FAIL", &format!("cuMemAlloc_v2:{nth}:{code}")).run();
            run.ok();
            books_balance(&run);
            let failed = run.stdout.lines().filter(|line| line.contains("error")).count();
            assert!(failed <= 1, "one failure, so one refusal at most: {run}");
        }
    }
}

#[test]
fn all_allocations_fail_from_some_point_on() {
    for nth in [1, 2, 4] {
        let seq = Program::new("seq").arg("a64m*3 F s a64m*3 w F s a300m").preload();
        let run = seq.sim("FAIL", &format!("cuMemAlloc_v2:{nth}+")).run();
        run.ok();
        assert!(run.stdout.contains("error 2"), "{run}");
        if nth > 1 {
            books_balance(&run);
        }
    }
}

/// What a failed growth had reserved under the cap can be had afterwards, to the last byte.
#[test]
fn a_failed_growth_costs_nothing_of_the_cap() {
    for code in [1, 2, 999] {
        let seq = Program::new("seq").arg("a200m a256m w").preload().conf("memory_limit:256MiB");
        // Out of memory is tried again; only when it stays so is it the program's to see.
        let calls = if code == 2 { 2 } else { 1 };
        let fails = (1..=calls).map(|nth| format!("cuMemAlloc_v2:{nth}:{code}")).collect::<Vec<_>>();
        let run = seq.sim("FAIL", &fails.join(",")).run();
        run.ok();
        let failed: Vec<_> = run.stdout.lines().filter(|line| line.contains("error")).collect();
        assert!(matches!(failed[..], [line] if line.starts_with("slot 0:")), "{run}");
    }
}

#[test]
fn a_free_fails() {
    for nth in 1..=4 {
        let seq = Program::new("seq").arg("a64m*4 F s a300m w F s a500m w F").preload();
        let run = seq.sim("FAIL", &format!("cuMemFree_v2:{nth}:999")).run();
        run.ok();
        assert_eq!(run.gauge(0, "requested_bytes", "current"), 0, "{run}");
        assert_eq!(run.gauge(0, "reserved_bytes", "current"), run.stat("leaked_bytes"), "{run}");
    }
}

/// Whatever the fence cannot do, memory is not handed on too early.
#[test]
fn the_fence_fails() {
    for name in ["cuCtxRecordEvent", "cuCtxWaitEvent", "cuEventQuery", "cuEventCreate", "cuCtxSynchronize"] {
        for nth in ["2", "7", "2+", "20+"] {
            for code in [1, 2, 999] {
                // The program makes an event itself, first.
                let fail = format!("{name}:{nth}:{code}");
                let train = Program::new("train").arg("15").preload().conf("memory_limit:300MiB");
                let run = train.sim("FAIL", &fail).run();
                let synchronises = name == "cuCtxSynchronize";
                if synchronises && !run.status.success() {
                    // The program's own call: its failure is the program's to see.
                    assert!(run.stderr.contains("cudaDeviceSynchronize"), "{fail}: {run}");
                    continue;
                }
                assert!(run.status.success(), "{fail}: {run}");
            }
        }
    }
}

#[test]
fn other_kinds_fail_and_are_not_counted() {
    for (kind, name) in [
        ("managed", "cuMemAllocManaged"),
        ("async", "cuMemAllocAsync"),
        ("pool", "cuMemAllocFromPoolAsync"),
        ("array", "cuArrayCreate_v2"),
        ("vmm", "cuMemCreate"),
        ("mipmap", "cuMipmappedArrayCreate"),
    ] {
        // The first block fails: the program then has none, twice.
        let hog = Program::new("hog").arg(kind).arg("16").preload().sim("MEMORY", "1GiB");
        let run = hog.sim("FAIL", &format!("{name}:1+:2")).run();
        run.ok();
        assert!(run.stdout.contains("got 0 MiB"), "{run}");
        let devices = run.json()["devices"].as_array().unwrap();
        assert!(devices.iter().all(|device| device["external_bytes"]["current"] == 0), "{run}");
    }
}

/// Every function that the library calls fails once, at each of its first calls in turn, in a program that uses two
/// contexts, several kinds of memory and captures: what the program does not ask for itself does not fail for it.
#[test]
fn each_call_of_the_library_fails_in_turn() {
    for (names, codes) in [
        (["cuMemAlloc_v2", "cuMemFree_v2"].as_slice(), [1, 2, 304, 700, 999].as_slice()),
        (&["cuEventCreate", "cuCtxRecordEvent", "cuCtxWaitEvent", "cuEventQuery"], &[1, 304, 700, 999]),
        (
            &["cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuCtxGetCurrent", "cuCtxGetDevice"],
            &[201, 304, 999],
        ),
        (&["cuThreadExchangeStreamCaptureMode", "cuStreamIsCapturing", "cuMemGetInfo_v2"], &[1, 304, 999]),
        (&["cuDeviceTotalMem_v2", "cuDeviceGetName", "cuCtxSynchronize"], &[1, 304, 999]),
    ] {
        for (name, code) in names.iter().flat_map(|name| codes.iter().map(move |code| (name, code))) {
            for nth in 1..=20 {
                faulted(&format!("{name}:{nth}:{code}"), *code, "13000");
            }
        }
    }
}

/// The same for good: the memory that cannot be made clean is not reused, and the cap still holds.
#[test]
fn the_fence_fails_for_good() {
    for name in ["cuCtxRecordEvent", "cuCtxWaitEvent", "cuEventQuery", "cuEventCreate"] {
        for from in [1, 5, 40] {
            faulted(&format!("{name}:{from}+:999"), 999, "13000");
        }
    }
    for from in [1, 5] {
        faulted(&format!("cuCtxSynchronize:{from}+:999"), 999, "12040");
    }
}

fn faulted(fail: &str, code: i32, driver: &str) {
    let program = Program::new("faulted").arg(code.to_string()).arg("1").sim("DRIVER_VERSION", driver);
    let run = program.preload().conf("memory_limit:220MiB").sim("FAIL", fail).run();
    sums_are_right(&run);
    if matches!(code, 700 | 999) && run.status.code() == Some(1) {
        // A context does not recover from these: the program has seen more than one error, and stopped by itself.
        assert!(run.stderr.contains("gave "), "{fail}: {run}");
        return;
    }
    assert_eq!(run.count("invalid_free"), 0, "{fail}: {run}");
    assert!(run.status.success(), "{fail}: {run}");
    books_balance(&run);
}

/// Also of frees that the pool refuses: the context's error is the answer, not the address's.
#[test]
fn a_failed_context_answers_every_call_with_its_error() {
    let run = same_with_and_without(&Program::new("failed_context"));
    run.ok();
    assert!(run.stdout.starts_with("0 700 700 700 700 700 700 700"), "{run}");
}
