//! `expandable_segments:True`: one range whose free memory is moved where it is needed. What holds for segments holds for
//! it, and free memory in many places serves one request.

mod harness;

use harness::{MIB, Outcome, Program, same_with_and_without};

const SETTING: &str = "expandable_segments:True";

fn expandable(name: &str) -> Program {
    Program::new(name).conf(SETTING)
}

/// Right without the library and with it, and the range was really used.
fn same(program: &Program) -> Outcome {
    let run = same_with_and_without(program);
    run.ok();
    is_mapped(&run);
    run
}

/// What the pool holds is mapped, and the driver has handed out no less.
fn is_mapped(run: &Outcome) {
    // One call may be the program's own, which tries what must fail.
    assert!(run.stat("cuMemCreate") > 0 && run.stat("cuMemAlloc_v2") <= 1, "no range: {run}");
    let devices = run.json()["devices"].as_array().unwrap();
    let sum = |part: &str| devices.iter().filter_map(|d| d["mapped"][part].as_u64()).sum::<u64>();
    let reserved: u64 = devices.iter().filter_map(|d| d["reserved_bytes"]["current"].as_u64()).sum();
    assert_eq!(sum("mapped_bytes") + sum("loose_bytes"), reserved, "{run}");
}

fn mapped(run: &Outcome, part: &str) -> u64 {
    run.device(0)["mapped"][part].as_u64().unwrap_or_else(|| panic!("no mapped.{part} in {run}"))
}

fn seq(script: &str) -> Outcome {
    same(&expandable("seq").arg(script))
}

fn reserved_peak(run: &Outcome) -> u64 {
    run.gauge(0, "reserved_bytes", "peak").div_ceil(MIB)
}

#[test]
fn small_blocks_become_large_ones_and_back() {
    assert_eq!(reserved_peak(&seq("a16m*8 F s a32m*4 w")), 128);
    assert_eq!(reserved_peak(&seq("a32m*4 F s a16m*8 w")), 128);
}

#[test]
fn free_memory_in_two_places_serves_one_request() {
    let run = seq("a16m*4 w f0 f2 s a32m w");
    assert_eq!(reserved_peak(&run), 64);
    assert_eq!((mapped(&run, "remaps"), mapped(&run, "moved_bytes")), (1, 32 * MIB), "{run}");
}

#[test]
fn a_smaller_block_takes_no_second_piece() {
    assert_eq!(reserved_peak(&seq("a2m f0 s a0.5m w")), 2);
}

/// Where the device has no more, half of the blocks that a large one was cut into make the large one again.
#[test]
fn a_large_block_fits_again_whenever_the_free_memory_does() {
    let frees: Vec<String> = (1..=60).step_by(2).map(|slot| format!("f{slot}")).collect();
    // 960 MiB cut into 60 blocks of 16; 30 of them and the 576 MiB that the device has left are 1056.
    let script = format!("a960m w f0 a16m*60 w {} a960m w", frees.join(" "));
    let program = expandable("seq").arg(&script).sim("MEMORY", "1536MiB").preload();
    let run = program.run();
    run.ok();
    assert!(!run.stdout.contains("error"), "{run}");
    is_mapped(&run);
    assert!(mapped(&run, "moved_bytes") >= 384 * MIB, "{run}");
    // Blocks of 16 MB, which end in the middle of pages.
    let script = format!("a960m w f0 a16000000*60 w {} a800m w", frees.join(" "));
    let run = expandable("seq").arg(&script).sim("MEMORY", "1400MiB").preload().run();
    run.ok();
    assert!(!run.stdout.contains("error"), "{run}");
}

#[test]
fn work_that_is_late_finds_its_memory_where_it_was() {
    let run = same(&expandable("late_moves"));
    assert!(run.count("barrier") > 0 && run.count("cache_hit") > 0, "{run}");
}

#[test]
fn races_are_won_and_only_by_the_barrier() {
    for program in [
        expandable("pending_only").sim("MEMORY", "1GiB"),
        expandable("per_thread_streams"),
        expandable("race").arg("4").arg("500"),
        expandable("train"),
    ] {
        let run = same(&program);
        assert!(run.count("cache_hit") > 0, "{run}");
        let wrong = program.clone().preload_unsafe().run();
        assert!(!wrong.status.success(), "right even without a barrier: {wrong}");
    }
}

#[test]
fn many_threads_under_a_tight_cap() {
    let conf = format!("{SETTING},memory_limit:24MiB");
    let run = Program::new("race").arg("4").arg("300").preload().conf(&conf).run();
    run.ok();
    assert!(run.gauge(0, "reserved_bytes", "peak") <= 24 << 20, "{run}");
}

#[test]
fn everything_at_once() {
    for seed in 1..=2 {
        let mixture = |threads| Program::new("mixture").arg(seed.to_string()).arg(threads).arg("2000");
        let run = same_with_and_without(&mixture("1").conf(SETTING));
        run.ok();
        assert_eq!(run.count("alloc"), run.printed("allocs"), "{run}");
        for more in [
            "memory_limit:8GiB",
            "memory_limit:32MiB",
            "free_sync:True",
            "garbage_collection_threshold:0.001",
        ] {
            let run = mixture("4").preload().conf(&format!("{SETTING},{more}")).run();
            run.ok();
            assert_eq!(run.count("invalid_free"), 0, "{run}");
            assert_eq!(run.gauge(0, "external_bytes", "current"), 0, "{run}");
        }
    }
}

#[test]
fn captures_survive_growing_and_moving() {
    for name in ["capture", "capture_shared"] {
        let (without, with) = (Program::new(name).run(), expandable(name).preload().run());
        without.ok();
        with.ok();
        is_mapped(&with);
        let lines: Vec<&str> = without.stdout.lines().filter(|line| line.ends_with("survived 1")).collect();
        assert!(!lines.is_empty(), "{without}");
        for line in lines {
            assert!(with.stdout.contains(line), "{line}, without the library\n{with}");
        }
    }
    same_with_and_without(&expandable("capture_beside").arg("300")).ok();
    same_with_and_without(&expandable("lost_capture")).ok();
}

#[test]
fn a_capture_survives_what_would_break_it_without_the_library() {
    let program = expandable("capture_moves");
    let without = program.run();
    without.ok();
    assert!(without.stdout.contains("broken"), "{without}");
    let run = program.preload().run();
    run.ok();
    assert!(run.stdout.contains("survived"), "{run}");
    assert_eq!(mapped(&run, "moved_bytes"), 32 * MIB, "{run}");
}

#[test]
fn contexts_come_and_go() {
    for program in ["device_reset", "device_reset_shared", "contexts"] {
        let run = same(&expandable(program));
        assert_eq!(run.gauge(0, "requested_bytes", "current"), 0, "{run}");
        // A word of host memory is the program's.
        assert_eq!(
            run.gauge(0, "reserved_bytes", "current"),
            run.stat("leaked_bytes") & !8,
            "as the driver has it: {run}"
        );
    }
    same_with_and_without(&expandable("many_lives")).ok();
    let reset = same(&expandable("seq").arg("a40m*4 w f1 f3 s a80m w r a10m*10 w F"));
    assert_eq!(reset.gauge(0, "reserved_bytes", "current"), reset.stat("leaked_bytes"), "{reset}");
}

#[test]
fn no_call_is_made_at_the_end() {
    for way in ["exit", "return", "_exit", "quick_exit"] {
        let program = expandable("ends").arg(way).sim("TRAP_AT_EXIT", "1");
        same_with_and_without(&program);
    }
}

#[test]
fn wrong_frees_and_answers_about_pointers() {
    for name in ["wrong_frees", "ranges", "freed", "range_handles"] {
        same(&expandable(name));
    }
}

#[test]
fn peers_reach_each_others_memory() {
    for devices in ["2", "4"] {
        let run = same(&expandable("peers").arg("6").sim("DEVICES", devices));
        assert_eq!(run.count("alloc"), run.printed("allocs"), "{run}");
    }
}

#[test]
fn copies_between_devices_need_no_peer_access() {
    let run = same(&expandable("between_devices").sim("DEVICES", "2"));
    assert_eq!(run.count("alloc"), run.printed("allocs"), "{run}");
    same_with_and_without(&expandable("two_devices").sim("DEVICES", "2")).ok();
}

#[test]
fn export_to_other_processes_is_refused_and_the_setting_named_once() {
    let run = expandable("unshared").preload().run();
    run.ok();
    let lines: Vec<&str> = run.library_lines().into_iter().filter(|line| line.contains(SETTING)).collect();
    assert_eq!(lines.len(), 1, "{run}");
    assert!(lines[0].contains("cuIpcGetMemHandle") && lines[0].contains("GPUCACHE_CONF"), "{run}");
}

#[test]
fn a_device_that_cannot_map_gets_segments_and_one_line_says_so() {
    let program = expandable("seq").arg("a64m*3 F s a100m w F").sim("NO_MAPPING", "1");
    let run = same_with_and_without(&program);
    run.ok();
    assert!(run.stat("cuMemCreate") == 0 && run.stat("cuMemAlloc_v2") > 0, "{run}");
    let lines: Vec<&str> =
        run.library_lines().into_iter().filter(|line| line.contains("segments are used")).collect();
    assert_eq!(lines.len(), 1, "{run}");
}

#[test]
fn a_driver_without_context_events_will_do() {
    for program in [expandable("pending_only_11").sim("MEMORY", "1GiB"), expandable("train_11").arg("50")] {
        let run = same(&program.old_driver().sim("DRIVER_VERSION", "11080"));
        assert!(run.count("cache_hit") > 0, "{run}");
    }
}

#[test]
fn the_cap_holds_and_cached_memory_gives_way() {
    for kind in ["malloc", "managed", "async", "array", "vmm", "pitch"] {
        let hog = Program::new("hog").arg(kind).arg("16").arg("after-cache").sim("MEMORY", "1GiB").preload();
        let run = hog.conf(&format!("{SETTING},memory_limit:512MiB")).run();
        run.ok();
        assert!(run.stat("peak_used_bytes") <= 516 * MIB, "{run}");
        assert!(run.stdout.contains("got 512 MiB") || run.stdout.contains("got 496 MiB"), "{run}");
    }
    for kind in ["malloc", "all"] {
        let conf = format!("{SETTING},memory_limit:300MiB");
        let run = Program::new("cap_race").arg("4").arg(kind).preload().conf(&conf).run();
        run.ok();
        assert!(run.stat("peak_used_bytes") <= 304 * MIB, "{run}");
        assert!(run.count("oom") > 0, "never came near the cap: {run}");
        assert_eq!(run.gauge(0, "requested_bytes", "current"), 0, "{run}");
    }
}

#[test]
fn reclaimable_memory_is_reported_as_free() {
    let run = same(&expandable("seq").arg("i a1g a3m f0 f1 s i"));
    let lines: Vec<_> = run.stdout.lines().collect();
    assert_eq!(lines[0], lines[1], "{run}");
}

/// Each call fails in turn: no refusal but for want of memory, no byte lost, and the program goes on.
#[test]
fn each_call_fails_in_turn() {
    for name in
        ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuMemAddressReserve"]
    {
        for nth in [1, 2, 9, 33, 40, 90] {
            for code in [2, 999] {
                // At the end everything that is free is used once more: it is where the books have it.
                let script = "a64m*3 w F a1m*40 F a100m*2 w f40 f43 a3m*20 a150m w F a16m*20 w F";
                let program = Program::new("seq").arg(script).preload();
                let fail = format!("{name}:{nth}:{code}");
                let run = program.conf(&format!("{SETTING},memory_limit:400MiB")).sim("FAIL", &fail).run();
                run.ok();
                let reserved = run.gauge(0, "reserved_bytes", "current");
                assert_eq!(reserved, run.stat("leaked_bytes") & !8, "as the driver has it, {fail}: {run}");
                assert_eq!(run.gauge(0, "requested_bytes", "current"), 0, "{fail}: {run}");
                assert!(
                    !run.stdout.contains("error 1 ") && !run.stdout.contains("error 999"),
                    "{fail}: {run}"
                );
                let refused = run.stdout.lines().filter(|line| line.contains("error")).count();
                assert!(refused <= 1, "one failure, so one refusal at most, {fail}: {run}");
            }
        }
    }
}

/// The same in a program that uses two contexts, several kinds of memory and captures.
#[test]
fn each_call_fails_in_a_program_of_many_kinds() {
    for name in
        ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuMemAddressFree"]
    {
        for nth in [1, 2, 7, 30] {
            let program = Program::new("faulted").arg("999").arg("1").preload();
            let conf = format!("{SETTING},memory_limit:180MiB");
            let run = program.conf(&conf).sim("FAIL", &format!("{name}:{nth}:304")).run();
            assert!(run.status.success() || run.stderr.contains("gave "), "{name}:{nth}: {run}");
            assert_eq!(run.count("invalid_free"), 0, "{name}:{nth}: {run}");
        }
    }
}

#[test]
fn the_text_report_has_a_line_for_it() {
    let run = expandable("seq").arg("a16m*4 w f0 f2 s a32m w").preload().text_report().run();
    run.ok();
    let line =
        run.stderr.lines().find(|line| line.contains("expandable  ")).unwrap_or_else(|| panic!("{run}"));
    assert!(line.contains("64.00 MiB mapped by") && line.contains("1 remap moved 32.00 MiB"), "{line}");
}
