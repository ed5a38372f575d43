//! The mailbox of the live file: what a running process does when it is asked from outside.

use super::Files;
use super::harness::talk::Talk;
use super::harness::{MIB, Program};
use gpucache::stats::live::{self, Answer, Command, Unanswered, Why};
use std::time::Duration;

/// Asks, while the program goes on to allocate and free.
fn ask(talk: &mut Talk, command: Command) -> Result<Answer, Unanswered> {
    let (path, ..) = talk.file();
    let asker = std::thread::spawn(move || live::ask(&path, command, Duration::from_secs(60)));
    while !asker.is_finished() {
        talk.tell("pairs 64");
    }
    asker.join().unwrap()
}

#[test]
fn a_running_process_does_what_it_is_asked() {
    let program = Program::new("talker").preload().conf("memory_limit:1GiB").report_to("now.json");
    let mut talk = Talk::new(&program, "asked");
    talk.tell("alloc 100 4").tell("free 2");
    let (path, ..) = talk.file();
    // It makes no calls meanwhile; and what was asked is done when it does.
    let soon = Duration::from_millis(50);
    assert_eq!(live::ask(&path, Command::EmptyCache, soon), Err(Unanswered::NotYet));
    talk.tell("pairs 64");
    let held = talk.report().devices[0].reserved_bytes.current;
    assert!((200 * MIB..250 * MIB).contains(&held), "{held}");

    talk.tell("alloc 100 2").tell("free 2");
    let Ok(Answer::Done(bytes)) = ask(&mut talk, Command::EmptyCache) else { panic!("no answer") };
    assert!(bytes >= 200 * MIB, "{bytes}");

    let file = talk.running.as_ref().unwrap().folder.join("now.json");
    assert!(!file.exists());
    let written = Answer::Written(file.to_str().unwrap().to_owned());
    assert_eq!(ask(&mut talk, Command::Report), Ok(written), "where it is, from wherever one asks");
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(report["process"]["ended_by"], "running");
    assert_eq!(ask(&mut talk, Command::ResetPeak), Ok(Answer::Done(0)));

    // Something that keeps memory for small blocks, which the loop of pairs lives on.
    talk.tell("alloc 1 1");
    // The cap: lower than what is held, then as high as it was configured and no higher.
    let limit = |bytes| Command::Limit { device: 0, bytes };
    assert_eq!(ask(&mut talk, limit(150 * MIB)), Ok(Answer::Done(150 * MIB)));
    talk.tell("oom 30").tell("info").tell("free 3").tell("pairs 64").tell("alloc 100 1").tell("oom 60");
    assert_eq!(talk.report().devices[0].limit_bytes, 150 * MIB);
    assert_eq!(ask(&mut talk, limit(u64::MAX)), Ok(Answer::Done(1024 * MIB)));
    assert_eq!(ask(&mut talk, Command::Limit { device: 7, bytes: 1 }), Ok(Answer::Refused(Why::Device)));
    let run = talk.finish();
    run.ok();
    assert!(run.stdout.contains("total=157286400"), "{run}");
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.contains("\"ended_by\": \"exit\""), "the last word: {written}");
}

/// What a range maps and gives back is in the file at once, too.
#[test]
fn a_range_is_followed() {
    let conf = "expandable_segments:True";
    let mut talk = Talk::new(&Program::new("talker").preload().conf(conf), "range");
    talk.tell("alloc 30 1").tell("alloc 30 3");
    let figures = |talk: &Talk| {
        let device = talk.report().devices.remove(0);
        (device.mapped.expect("the figures of a range").mapped_bytes, device)
    };
    let (mapped, device) = figures(&talk);
    assert_eq!((mapped, device.peak.unwrap().reserved_bytes), (120 * MIB, 120 * MIB), "{device:?}");
    talk.tell("free 4");
    let (path, ..) = talk.file();
    assert!(live::ask(&path, Command::EmptyCache, Duration::from_millis(50)).is_err(), "it makes no calls");
    // The 16th allocation takes the question up, and nothing else is written afterwards.
    talk.tell("alloc 1 12");
    let (mapped, device) = figures(&talk);
    assert_eq!(mapped, device.reserved_bytes.current, "{device:?}");
    assert!((12 * MIB..=14 * MIB).contains(&mapped), "{device:?}");
    talk.kill();
}

#[test]
fn who_is_not_there_is_not_asked() {
    let mut talk = Talk::default("not-asked");
    talk.tell("alloc 8 1");
    let (path, ..) = talk.file();
    let soon = Duration::from_secs(5);
    assert!(matches!(
        live::ask(&path.with_file_name("1-1.live"), Command::Report, soon),
        Err(Unanswered::File(_))
    ));
    // Two at once: one is told that the other was later.
    let other = path.clone();
    let first = std::thread::spawn(move || live::ask(&other, Command::EmptyCache, Duration::from_secs(60)));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(live::ask(&path, Command::ResetPeak, Duration::ZERO), Err(Unanswered::NotYet));
    assert_eq!(first.join().unwrap(), Err(Unanswered::Overtaken));
    let other = path.clone();
    let waiting = std::thread::spawn(move || live::ask(&other, Command::Report, Duration::from_secs(60)));
    std::thread::sleep(Duration::from_millis(100));
    talk.kill();
    assert_eq!(waiting.join().unwrap(), Err(Unanswered::Gone));
    assert_eq!(live::ask(&path, Command::Report, soon), Err(Unanswered::Gone));
}

/// Whatever lies in the mailbox, and however often: the process goes on.
#[test]
fn nonsense_in_the_mailbox_does_no_harm() {
    use std::os::unix::fs::FileExt;
    let mut talk = Talk::default("nonsense");
    talk.tell("alloc 8 4");
    let (path, ..) = talk.file();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let mut seed = 1_u64;
    for _ in 0..200 {
        let mut words = [0_u8; 64];
        for byte in &mut words {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (seed >> 33) as u8;
        }
        file.write_all_at(&words, 16 * 8).unwrap();
        talk.tell("pairs 40");
    }
    talk.finish().ok();
}
