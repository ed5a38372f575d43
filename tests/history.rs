//! `history`: what happened when, how the memory lay, and out of memory explained, of unmodified programs.

mod harness;

use harness::{MIB, Outcome, Program, same_with_and_without};
use serde_json::Value;

/// A row of the history by its columns.
struct Event {
    at: f64,
    kind: String,
    bytes: u64,
    address: u64,
    reserved: u64,
    allocated: u64,
}

fn events(run: &Outcome) -> Vec<Event> {
    let history = &run.json()["history"];
    let columns = history["event_columns"].as_array().unwrap_or_else(|| panic!("a history of {run}"));
    let place = |name: &str| columns.iter().position(|column| column == name).unwrap();
    let [at, kind, bytes, address] = ["at_s", "kind", "bytes", "address"].map(place);
    let [reserved, allocated] = ["reserved_bytes", "allocated_bytes"].map(place);
    let rows = history["events"].as_array().unwrap().iter();
    rows.map(|row| Event {
        at: row[at].as_f64().unwrap(),
        kind: row[kind].as_str().unwrap().to_owned(),
        bytes: row[bytes].as_u64().unwrap(),
        address: row[address].as_u64().unwrap(),
        reserved: row[reserved].as_u64().unwrap(),
        allocated: row[allocated].as_u64().unwrap(),
    })
    .collect()
}

fn of_kind<'a>(events: &'a [Event], kind: &str) -> Vec<&'a Event> {
    events.iter().filter(|event| event.kind == kind).collect()
}

/// Bytes of the segments of a map, and of the blocks in use in them. Every segment must be tiled by its blocks.
fn held(segments: &Value) -> (u64, u64) {
    let (mut reserved, mut allocated) = (0, 0);
    for segment in segments.as_array().unwrap() {
        let mut at = 0;
        for block in segment["blocks"].as_array().unwrap() {
            let [offset, bytes, requested, count] = [0, 1, 3, 4].map(|place| block[place].as_u64().unwrap());
            assert_eq!(offset, at, "{segment}");
            assert!(bytes > 0 && count > 0 && requested <= bytes, "{block}");
            at += bytes;
            if block[2] == "allocated" {
                allocated += bytes;
            } else {
                assert!(block[2] == "free" || block[2] == "pending", "{block}");
            }
        }
        assert_eq!(Some(at), segment["bytes"].as_u64(), "{segment}");
        reserved += at;
    }
    (reserved, allocated)
}

#[test]
fn what_happened_is_there_with_what_was_held_after_it() {
    let script = "a24m*2 w F a48m a512*3 f2 a10m a5m*3 s a200m";
    let run = Program::new("seq").arg(script).preload().conf("memory_limit:64MiB,history:1000").run();
    run.ok();
    let events = events(&run);
    assert_eq!(run.json()["history"]["lost"], 0, "{run}");
    assert_eq!(of_kind(&events, "segment_alloc").len() as u64, run.count("driver_alloc"), "{run}");
    assert_eq!(of_kind(&events, "segment_free").len() as u64, run.count("driver_free"), "{run}");
    assert_eq!(of_kind(&events, "barrier").len() as u64, run.count("barrier"), "{run}");
    let sizes = |kind| of_kind(&events, kind).iter().map(|event| event.bytes / MIB).collect::<Vec<_>>();
    assert_eq!(sizes("alloc"), [24, 24, 48, 10, 5, 5, 5], "not the small ones: {run}");
    assert_eq!(sizes("free"), [24, 24, 48], "{run}");
    assert_eq!(sizes("oom"), [200], "{run}");
    assert!(events.windows(2).all(|pair| pair[0].at <= pair[1].at), "{run}");
    let allocs = of_kind(&events, "alloc");
    assert_eq!((allocs[1].allocated, allocs[1].reserved), (48 * MIB, 48 * MIB), "{run}");
    let frees = of_kind(&events, "free");
    assert_eq!((frees[1].allocated, frees[1].address), (0, allocs[1].address), "{run}");
    let held: i64 = of_kind(&events, "segment_alloc").iter().map(|e| e.bytes as i64).sum::<i64>()
        - of_kind(&events, "segment_free").iter().map(|e| e.bytes as i64).sum::<i64>();
    assert_eq!(held as u64, run.gauge(0, "reserved_bytes", "current"), "{run}");
    let samples = run.json()["history"]["samples"].as_array().unwrap();
    let last = samples.last().unwrap();
    assert_eq!(last[2].as_u64(), Some(run.gauge(0, "reserved_bytes", "current")), "{run}");
}

#[test]
fn a_marked_phase_is_an_event_and_names_what_follows() {
    let run = Program::new("api").arg("use").preload().conf("history:1000,history_min:512").run();
    let history = &run.json()["history"];
    let names = history["phases"].as_array().unwrap_or_else(|| panic!("phases of {run}"));
    assert!(names.iter().any(|name| name == "train") && names[0] == "", "{run}");
    let columns = history["event_columns"].as_array().unwrap();
    let place = columns.iter().position(|column| column == "phase").unwrap();
    let rows = history["events"].as_array().unwrap();
    assert!(rows.iter().any(|row| row[1] == "phase" && row[place] == 2), "{run}");
    assert!(rows.iter().any(|row| row[1] == "alloc" && row[place].as_u64() > Some(0)), "{run}");
    assert!(run.stderr.contains("(pool) by thread") && run.stderr.contains("in phase \"load\""), "{run}");
}

#[test]
fn the_last_events_stay_when_the_ring_is_full() {
    let program = Program::new("seq").arg("a2m*300 F a3m*100 F").preload();
    let all = program.clone().conf("history:2000").run();
    let few = program.conf("history:64").run();
    let (all, history) = (events(&all), &few.json()["history"]);
    let last = events(&few);
    assert_eq!(last.len(), 64, "{few}");
    assert_eq!(history["recorded"].as_u64(), Some(all.len() as u64), "the program does the same: {few}");
    assert_eq!(history["lost"].as_u64(), Some(all.len() as u64 - 64), "{few}");
    let tail = all[all.len() - 64..].iter().map(|event| (event.kind.as_str(), event.bytes));
    assert!(tail.eq(last.iter().map(|event| (event.kind.as_str(), event.bytes))), "{few}");
    // Whatever is lost of the events, samples reach back to the start.
    assert!(
        history["samples"].as_array().is_some_and(|samples| samples[0][0].as_f64() < Some(last[0].at)),
        "{few}"
    );
}

#[test]
fn small_allocations_are_events_when_asked_for() {
    let run = Program::new("short_threads").preload().conf("history:8000,history_min:1").run();
    run.ok();
    let events = events(&run);
    assert_eq!(of_kind(&events, "alloc").len() as u64, run.count("alloc"), "{run}");
    assert_eq!(of_kind(&events, "free").len() as u64, run.count("free"), "{run}");
}

#[test]
fn many_threads_lose_nothing_but_what_they_say() {
    let run = Program::new("race").preload().conf("history:256,history_min:1").run();
    run.ok();
    let history = &run.json()["history"];
    let kept = history["events"].as_array().unwrap().len() as u64;
    assert!(kept > 200 && kept <= 256, "{kept}: {run}");
    assert_eq!(history["recorded"].as_u64().unwrap(), kept + history["lost"].as_u64().unwrap(), "{run}");
    assert!(history["recorded"].as_u64().unwrap() >= run.count("alloc") + run.count("free"), "{run}");
}

#[test]
fn maps_show_the_mark_and_the_end() {
    for conf in ["history:5000", "history:5000,expandable_segments:True"] {
        let run = Program::new("train").arg("60").preload().conf(conf).run();
        run.ok();
        let device = run.device(0);
        let (reserved, allocated) = held(&device["segments"]);
        assert_eq!(reserved, run.gauge(0, "reserved_bytes", "current"), "{conf}: {run}");
        assert_eq!(allocated, run.gauge(0, "allocated_bytes", "current"), "{conf}: {run}");
        let (reserved, allocated) = held(&device["map_at_peak"]["segments"]);
        assert_eq!(Some(reserved), device["peak"]["reserved_bytes"].as_u64(), "{conf}: {run}");
        assert_eq!(Some(allocated), device["peak"]["allocated_bytes"].as_u64(), "{conf}: {run}");
    }
}

#[test]
fn pieces_of_a_range_add_up() {
    let script = "a60m f0 a10m*6 f1 f3 f5 a30m F a40m";
    let conf = "memory_limit:80MiB,expandable_segments:True,history:1000";
    let run = Program::new("seq").arg(script).preload().conf(conf).run();
    run.ok();
    let events = events(&run);
    let bytes = |kind| of_kind(&events, kind).iter().map(|event| event.bytes).sum::<u64>();
    assert!(bytes("segment_unmap") > 0, "pieces were moved: {run}");
    assert_eq!(
        bytes("segment_map") - bytes("segment_unmap"),
        run.gauge(0, "reserved_bytes", "current"),
        "{run}"
    );
}

#[test]
fn memory_that_ends_with_its_context_is_given_back_in_the_history() {
    let run = Program::new("seq").arg("a40m*2 r a10m").preload().conf("history:100").run();
    run.ok();
    let events = events(&run);
    let bytes = |kind| of_kind(&events, kind).iter().map(|event| event.bytes).sum::<u64>();
    assert_eq!(bytes("segment_free"), 80 * MIB, "{run}");
    assert_eq!(
        bytes("segment_alloc") - bytes("segment_free"),
        run.gauge(0, "reserved_bytes", "current"),
        "{run}"
    );
    assert_eq!(held(&run.device(0)["segments"]).1, 10 * MIB, "{run}");
}

#[test]
fn nothing_changes_for_a_program_whose_history_is_kept() {
    let program = |name: &str| Program::new(name).env("GPUCACHE_CONF", "history:128,history_min:1");
    for run in [
        same_with_and_without(&program("mixture").arg("3").arg("1")),
        program("capture").preload().run(),
        same_with_and_without(&program("train").arg("20")),
        same_with_and_without(&program("contexts")),
    ] {
        run.ok();
    }
}

#[test]
fn without_the_setting_there_is_no_history() {
    let run = Program::new("seq").arg("a24m*2 a64m").preload().conf("memory_limit:64MiB").run();
    run.ok();
    assert!(run.json()["history"].is_null() && run.device(0)["segments"].is_null(), "{run}");
    assert!(run.device(0)["map_at_peak"].is_null(), "{run}");
}

#[test]
fn a_report_as_text_says_where_the_history_would_be() {
    let run = Program::new("seq").arg("a24m*2").preload().conf("history:100").text_report().run();
    run.ok();
    assert!(
        run.stderr.contains("note: the history is in a report as JSON only: GPUCACHE_REPORT=FILE"),
        "{run}"
    );
}

#[test]
fn a_length_that_makes_no_sense_is_refused() {
    for (conf, part) in [
        ("history:5", "history:5: `5` is not from 64 to 262144"),
        ("history:lots", "history:lots: `lots` is not a whole number"),
        ("history:100,history_min:1MB", "history_min:1MB: `1MB` has a unit that is not known"),
    ] {
        let run = Program::new("seq").arg("a1m").preload().conf(conf).run();
        assert!(run.stderr.contains(part), "{part}: {run}");
    }
}

/// The lines about out of memory on stderr, without the process's name.
fn said(run: &Outcome) -> Vec<String> {
    let lines = run.stderr.lines().filter_map(|line| line.split_once("]: "));
    let lines = lines.map(|(_, text)| text.to_owned()).skip_while(|text| !text.starts_with("out of memory"));
    lines.take_while(|text| text.starts_with("out of") || text.starts_with("  ")).collect()
}

/// Three pieces of 10 MiB free of 60, and 20 MiB to add: enough for 30 MiB only where the pieces can be put together.
const IN_PIECES: &str = "a60m f0 a10m*6 f1 f3 f5 a30m";

#[test]
fn out_of_memory_is_said_once_with_what_would_have_been_enough() {
    let script = format!("{IN_PIECES} a31m a32m");
    let program = Program::new("seq").arg(script).preload().conf("memory_limit:80MiB");
    let run = program.run();
    run.ok();
    let said = said(&run);
    assert!(said[0].starts_with("out of memory on GPU 0: 30.00 MiB asked (pool) by thread "), "{run}");
    assert!(said[0].contains(" (seq), after 0."), "{run}");
    for part in [
        "of the cap's 80.00 MiB, 30.00 MiB are in use by blocks, 30.00 MiB are free in the pool; 20.00 MiB could be added",
        "in use: 3 blocks: 3 × 10.00 MiB",
        "free in the pool: 30.00 MiB in 3 pieces, the largest 10.00 MiB (fragmentation 0.67)",
        "try memory_limit:90MiB at least",
        "try expandable_segments:True, which would have served the 30.00 MiB that failed: 30.00 MiB of the 30.00 MiB \
         free are whole pages, and 20.00 MiB could be added",
    ] {
        assert_eq!(said.iter().filter(|line| line.contains(part)).count(), 1, "{part}: {run}");
    }
    assert_eq!(run.count("oom"), 3, "{run}");
    assert_eq!(run.stderr.matches("out of memory on GPU").count(), 1, "the others are not said: {run}");
    for quiet in ["error", "off"] {
        let run = program.clone().env("GPUCACHE_LOG", quiet).run();
        assert!(!run.stderr.contains("out of memory"), "{run}");
    }
}

#[test]
fn the_advised_setting_serves_what_failed_and_is_not_advised_where_it_would_not() {
    let run = |script: &str, conf: &str| Program::new("seq").arg(script).preload().conf(conf).run();
    let advised = |run: &Outcome| run.stderr.contains("try expandable_segments:True");
    assert!(advised(&run(IN_PIECES, "memory_limit:80MiB")));
    assert_eq!(run(IN_PIECES, "memory_limit:80MiB,expandable_segments:True").count("oom"), 0);
    // 51 MiB are more than the 30 and the 20 that could be added.
    let too_much = IN_PIECES.replace("a30m", "a51m");
    assert!(!advised(&run(&too_much, "memory_limit:80MiB")));
    assert_eq!(run(&too_much, "memory_limit:80MiB,expandable_segments:True").count("oom"), 1);
}

#[test]
fn a_failure_keeps_who_asked_and_how_the_memory_lay() {
    let script = format!("{IN_PIECES} a31m*20");
    let run = Program::new("seq").arg(script).preload().conf("memory_limit:80MiB").run();
    run.ok();
    let moments = run.device(0)["fragmentation"]["at_oom"].as_array().unwrap();
    assert_eq!(moments.len(), 16, "{run}");
    let told = &moments[0]["circumstances"];
    assert_eq!(told["thread_name"], "seq", "{run}");
    assert!(told["thread"].as_u64().is_some_and(|thread| thread > 1), "{run}");
    assert_eq!(told["live_blocks"], 3, "{run}");
    assert_eq!(told["live_sizes"][0]["bytes"].as_u64(), Some(10 * MIB), "{run}");
    assert_eq!((&told["free_pieces"], &told["capturing"]), (&3.into(), &false.into()), "{run}");
    assert_eq!(told["free_page_bytes"].as_u64(), Some(30 * MIB), "{run}");
    assert_eq!(held(&moments[0]["map"]["segments"]), (60 * MIB, 30 * MIB), "{run}");
    let maps = moments.iter().filter(|moment| !moment["map"].is_null()).count();
    assert_eq!(maps, 4, "of the first few: {run}");
}

#[test]
fn memory_that_others_hold_is_named() {
    // The device has 8 GiB; without a cap the driver is what refuses.
    let run = Program::new("seq").arg("a7g a2g").preload().text_report().run();
    run.ok();
    let said = said(&run).join("\n");
    assert!(said.contains("of the device's 8.00 GiB, 7.00 GiB are in use by blocks"), "{run}");
    assert!(said.contains("held by others: the driver itself and other processes"), "{run}");
    assert!(said.contains("the device is too small by 1.00 GiB"), "{run}");
    assert!(
        run.stderr.contains("asked by thread") && run.stderr.contains("in use were 1 block: 1 × 7.00 GiB"),
        "{run}"
    );
}
