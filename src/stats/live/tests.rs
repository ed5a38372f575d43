//! Live files written and read back, damaged, foreign, and old.

use super::files::folders_for;
use super::*;
use crate::report::model::{
    CapFrom, Counts, DriverTime, EndedBy, Fragmentation, Live, Mapped, OomMoment, Peak, Setting, SizeBucket,
};
use crate::stats::ExternalKind;
use proptest::prelude::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn words() -> &'static [AtomicU64] {
    Box::leak((0..WORDS).map(|_| AtomicU64::new(0)).collect())
}

fn identity() -> Identity {
    Identity {
        pid: std::process::id(),
        start: started_at(std::process::id()).unwrap(),
        boot: boot(),
        namespace: namespace(),
        uid: 1000,
        started: 1_000_000_000,
        runs: vec![0x1f, 7],
        command: "python train.py".into(),
        config: vec![Setting {
            key: "memory_limit".into(),
            value: "8GiB".into(),
            source: "GPUCACHE_CONF".into(),
            written_as: None,
        }],
    }
}

fn gauge(current: u64) -> Gauge {
    Gauge { current, peak: current + 5, total_allocated: current + 9, total_freed: 9 }
}

/// A device with everything that there is room for.
fn full(ordinal: u32) -> DeviceReport {
    let bucket = |at: u64| SizeBucket { min_bytes: at, max_bytes: at + 1, count: at + 2, bytes: at + 3 };
    let oom = |at: u64| OomMoment {
        kind: if at == 0 { "pool".into() } else { ExternalKind::ALL[at as usize - 1].as_str().into() },
        requested_bytes: at,
        free_bytes: 2,
        largest_free_block_bytes: 3,
        fragmentation: 0.25,
        reserved_bytes: 4,
        allocated_bytes: 5,
        external_bytes: 6,
        limit_bytes: 7,
        driver_free_bytes: Some(8),
        sufficient_limit_bytes: 9,
        // What the live file has no room for.
        ..OomMoment::default()
    };
    DeviceReport {
        ordinal,
        name: "NVIDIA Ärger 9000".into(),
        total_bytes: 100,
        limit_bytes: 90,
        cap_from: Some(CapFrom {
            memory_fraction_bytes: Some(95),
            memory_limit_bytes: Some(92),
            set_by: Some(SetBy::Ctl),
        }),
        requested_bytes: gauge(10),
        allocated_bytes: gauge(20),
        reserved_bytes: gauge(30),
        external_bytes: gauge(40),
        external_by_kind: ExternalKind::ALL.map(|kind| (kind.as_str().to_owned(), gauge(1))).into(),
        peak: Some(Peak { requested_bytes: 1, allocated_bytes: 2, reserved_bytes: 3, ..Peak::default() }),
        headroom_bytes: 12,
        fragmentation: Fragmentation { at_peak: 0.5, at_exit: 1.0, at_oom: (0..4).map(oom).collect() },
        largest_free_block_bytes: 13,
        size_histogram: (0..65).map(bucket).collect(),
        counts: Counts { alloc: 7, free: 3, oom: 2, ..Counts::default() },
        live_at_exit: Live { blocks: 4, bytes: 10, by_size: vec![] },
        driver_time: Some(DriverTime { alloc_ns: 1, allocs: 2, free_ns: 3, frees: 4 }),
        mapped: Some(Mapped {
            mapped_bytes: 1,
            loose_bytes: 2,
            spanned_bytes: 3,
            handles: 4,
            remaps: 5,
            moved_handles: 6,
            moved_bytes: 7,
            map_ns: 8,
        }),
        ..DeviceReport::default()
    }
}

fn bytes(words: &[AtomicU64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
}

fn view(words: &[AtomicU64]) -> Result<View, Refusal> {
    View::of(|| Ok(bytes(words)), |at| Ok(words[at].load(Ordering::Relaxed)))
}

/// What is read of bytes that do not change.
fn view_of(bytes: &[u8]) -> Result<View, Refusal> {
    let word = |at: usize| {
        let word = bytes.get(at * 8..at * 8 + 8).ok_or(Refusal::Size(bytes.len() as u64))?;
        Ok(word.try_into().map_or(0, u64::from_ne_bytes))
    };
    View::of(|| Ok(bytes.to_vec()), word)
}

#[test]
fn what_is_written_reads_back_the_same() {
    let raw = words();
    let words = Words::begin(raw, &identity()).unwrap();
    let mut devices: Vec<DeviceReport> = (0..DEVICES as u32).map(full).collect();
    for _ in 0..3 {
        words.whole(&mut devices);
        words.notes(&["one".into(), "two".into()]);
        let seen = view(raw).unwrap();
        assert_eq!(seen.identity, identity());
        assert_eq!(seen.devices, devices);
        assert_eq!(seen.notes, ["one", "two"]);
    }
}

#[test]
fn what_there_is_no_room_for_is_left_out_and_the_rest_stays() {
    let raw = words();
    let long = Identity { command: "é".repeat(1000), ..identity() };
    let words = Words::begin(raw, &long).unwrap();
    let mut device = full(15);
    device.fragmentation.at_oom.extend(full(0).fragmentation.at_oom);
    let mut beyond = full(16);
    beyond.name = "beyond".into();
    words.whole(&mut [device, beyond]);
    words.notes(&["n".repeat(5000)]);
    let seen = view(raw).unwrap();
    assert_eq!(seen.devices, [full(15)]);
    assert_eq!(seen.identity.command, "é".repeat(256));
    assert_eq!(seen.notes[0].len(), NOTES_WORDS * 8);
}

#[test]
fn quick_figures_are_newer_than_whole_ones() {
    let raw = words();
    let words = Words::begin(raw, &identity()).unwrap();
    words.whole(&mut [full(3)]);
    let quick = Quick {
        used: 1,
        requested: 100,
        allocated: 200,
        reserved: 300,
        reserved_peak: 400,
        limit: 50,
        allocs: 20,
        frees: 5,
        cap_set_by: 2,
        ..Quick::default()
    };
    words.quick(3, &quick, 5_000_000_000);
    words.quick(DEVICES as u32, &quick, 6);
    let seen = view(raw).unwrap();
    let device = &seen.devices[0];
    assert_eq!((device.requested_bytes.current, device.requested_bytes.peak), (100, 100));
    assert_eq!((device.reserved_bytes.current, device.reserved_bytes.peak), (300, 400));
    assert_eq!((device.external_bytes.current, device.external_bytes.peak), (0, 45));
    assert_eq!((device.counts.alloc, device.limit_bytes, device.live_at_exit.blocks), (20, 50, 15));
    assert_eq!(device.cap_from.unwrap().set_by, Some(SetBy::Program));
    let report = seen.report(Fate::Gone);
    assert_eq!((report.process.ended_by, report.process.duration_s), (EndedBy::Killed, 4.0));
    assert_eq!(seen.report(Fate::Replaced).process.ended_by, EndedBy::Exec);
    assert_eq!(seen.report(Fate::Running).process.ended_by, EndedBy::Running);
}

/// Whenever the process dies, one copy is complete.
#[test]
fn half_written_figures_are_not_read() {
    let raw = words();
    let words = Words::begin(raw, &identity()).unwrap();
    assert_eq!(view(raw).unwrap().devices, []);
    let newest = |raw: &[AtomicU64]| {
        let sequence = |copy: usize| raw[at::SLOTS + copy * SLOT_WORDS].load(Ordering::Relaxed);
        usize::from(sequence(1) > sequence(0))
    };
    for limit in [1, 2, 3] {
        let mut device = full(0);
        device.total_bytes = limit;
        words.whole(&mut [device]);
        assert_eq!(view(raw).unwrap().devices[0].total_bytes, limit);
    }
    // As if it had died while it wrote the last.
    let torn = at::SLOTS + newest(raw) * SLOT_WORDS;
    raw[torn].fetch_sub(1, Ordering::Relaxed);
    raw[torn + 40].store(u64::MAX, Ordering::Relaxed);
    assert_eq!(view(raw).unwrap().devices[0].total_bytes, 2);
    let mut device = full(0);
    device.total_bytes = 4;
    words.whole(&mut [device]);
    assert_eq!(view(raw).unwrap().devices[0].total_bytes, 4, "goes on after it");
}

#[test]
fn figures_that_change_while_they_are_read_are_read_again() {
    let raw = words();
    let words = Words::begin(raw, &identity()).unwrap();
    let write = |total_bytes| words.whole(&mut [DeviceReport { total_bytes, ..full(0) }]);
    write(1);
    let mut first = Some(bytes(raw));
    write(2);
    write(3); // over the copy that was being read
    let word = |at: usize| Ok(raw[at].load(Ordering::Relaxed));
    let all = || Ok(first.take().unwrap_or_else(|| bytes(raw)));
    assert_eq!(View::of(all, word).unwrap().devices[0].total_bytes, 3);
    // As some processors may read: the figures first, and their number when the next are there.
    let mut early = true;
    let all = || {
        let mut seen = bytes(raw);
        if std::mem::take(&mut early) {
            write(4);
            write(5);
            for sequence in [0, 1].map(|copy| at::SLOTS + copy * SLOT_WORDS) {
                let now = raw[sequence].load(Ordering::Relaxed).to_ne_bytes();
                seen[sequence * 8..sequence * 8 + 8].copy_from_slice(&now);
            }
        }
        Ok(seen)
    };
    assert_eq!(View::of(all, word).unwrap().devices[0].total_bytes, 5);
    let never_still = |at: usize| {
        write(4);
        write(5);
        word(at)
    };
    assert_eq!(View::of(|| Ok(bytes(raw)), never_still), Err(Refusal::Busy));
}

#[test]
fn what_is_not_ours_is_refused_with_a_reason() {
    let raw = words();
    let words = Words::begin(raw, &identity()).unwrap();
    words.whole(&mut [full(0)]);
    let good = bytes(raw);
    let with = |at: usize, value: u64| {
        let mut bytes = good.clone();
        bytes[at * 8..at * 8 + 8].copy_from_slice(&value.to_ne_bytes());
        view_of(&bytes).unwrap_err()
    };
    assert_eq!(with(at::MAGIC, 1), Refusal::NotLive);
    assert_eq!(with(at::VERSION, 2), Refusal::Version(2));
    assert_eq!(with(at::WORDS, 2), Refusal::Size(BYTES as u64));
    for (at, value) in [
        (at::PID, 1 << 32),
        (at::COMMAND, 100_000),
        (at::CONFIG, 3),
        (at::CONFIG, u64::MAX),
        (at::QUICK, 2),
        (at::SLOTS + SLOT_WORDS + 1, 17),
        (at::SLOTS + SLOT_WORDS + 2, 16),
        (at::SLOTS + SLOT_WORDS + 3, 129),
    ] {
        // The first copy of the figures is the one that is written first.
        let at = if at > at::SLOTS { at - SLOT_WORDS } else { at };
        let refusal = with(at, value);
        assert!(matches!(refusal, Refusal::Damaged(_)), "{at}: {refusal}");
    }
    for length in [0, 7, 8, 16, good.len() - 8, good.len() - 1] {
        let no_word = |_| Err(Refusal::Size(length as u64));
        assert!(View::of(|| Ok(good[..length].to_vec()), no_word).is_err(), "{length}");
    }
}

proptest! {
    /// Nothing in a file makes the reader do more than refuse it.
    #[test]
    fn no_damage_is_believed_blindly(
        hits in prop::collection::vec((0..WORDS, any::<u64>(), 0_u32..64), 1..60),
        length in 0..=BYTES,
        cut in any::<bool>(),
    ) {
        let raw = words();
        let words = Words::begin(raw, &identity()).unwrap();
        words.whole(&mut [full(0), full(1)]);
        words.quick(0, &Quick { used: 1, ..Quick::default() }, 7);
        for (at, value, shift) in hits {
            raw[at].store(value >> shift, Ordering::Relaxed);
        }
        let all = bytes(raw);
        let bytes = if cut { &all[..length] } else { &all[..] };
        if let Ok(view) = view_of(bytes) {
            let text = crate::report::to_text(&view.report(Fate::Gone));
            prop_assert!(text.starts_with("gpucache["));
        }
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("gpucache-live-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        Folder(path)
    }

    fn file(&self, identity: &Identity, updated: u64) -> PathBuf {
        let raw = words();
        let words = Words::begin(raw, identity).unwrap();
        words.whole(&mut [full(0)]);
        words.quick(0, &Quick { used: 1, ..Quick::default() }, updated);
        let path = self.0.join(name_of(identity.pid, identity.start));
        std::fs::write(&path, bytes(raw)).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    now.unwrap().as_nanos() as u64
}

#[test]
fn fates_are_told_apart() {
    let folder = Folder::new("fates");
    let fate_of = |identity: &Identity| {
        let path = folder.file(identity, 1);
        fate(&read(&path).unwrap())
    };
    // This process has not mapped it: so it is the file of a program that it was before.
    assert_eq!(fate_of(&identity()), Fate::Replaced);
    assert_eq!(fate_of(&Identity { start: identity().start + 1, ..identity() }), Fate::Gone);
    assert_eq!(fate_of(&Identity { boot: 1, ..identity() }), Fate::Gone);
    assert_eq!(fate_of(&Identity { namespace: 1, ..identity() }), Fate::Elsewhere);
}

#[test]
fn files_and_folders_of_others_are_refused() {
    let folder = Folder::new("others");
    let good = folder.file(&identity(), 1);
    assert_eq!(list(&folder.0).len(), 1);
    std::fs::write(folder.0.join("notes.txt"), "x").unwrap();
    std::fs::write(folder.0.join("1-x.live"), "x").unwrap();
    assert_eq!(list(&folder.0).len(), 1, "other names are nobody's business");
    let link = folder.0.join("1-1.live");
    symlink(&good, &link).unwrap();
    assert!(matches!(read(&link), Err(Refusal::Unreadable(_))), "a link is not followed");
    std::fs::set_permissions(&good, PermissionsExt::from_mode(0o640)).unwrap();
    assert!(matches!(read(&good), Err(Refusal::Foreign(_))));
    let pipe = folder.0.join("2-2.live");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(matches!(read(&pipe), Err(Refusal::Foreign(_))), "a pipe is not waited for");
    assert_eq!(list(&folder.0).len(), 3);
    std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(list(&folder.0).len(), 0);
    assert!(matches!(paths(&folder.0), Err(Refusal::Foreign(why)) if why.contains("enter")));
    let elsewhere = folder.0.with_extension("link");
    symlink(&folder.0, &elsewhere).unwrap();
    std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(list(&elsewhere).len(), 0);
    assert!(matches!(paths(&elsewhere), Err(Refusal::Foreign(why)) if why.contains("folder")), "a link");
    assert_eq!(paths(&folder.0).map(|paths| paths.len()), Ok(3));
    assert_eq!(paths(&folder.0.join("none")), Ok(vec![]));
    std::fs::remove_file(elsewhere).unwrap();
}

#[test]
fn old_files_of_dead_processes_go_and_others_stay() {
    let folder = Folder::new("sweep");
    let dead =
        |start: u64, age: u64| folder.file(&Identity { start, ..identity() }, now() - age * 1_000_000_000);
    let (fresh, older, oldest) = (dead(1, 10), dead(2, 1000), dead(3, 5000));
    let elsewhere = folder.file(&Identity { namespace: 1, start: 4, ..identity() }, 1);
    let hour = Duration::from_secs(3600);
    assert_eq!(sweep(&folder.0, hour, 64), [oldest]);
    assert_eq!(sweep(&folder.0, hour, 1), [older]);
    assert_eq!(sweep(&folder.0, hour, 64), [] as [PathBuf; 0]);
    assert!(fresh.exists() && elsewhere.exists());
    let broken = folder.0.join("5-5.live");
    std::fs::write(&broken, "x").unwrap();
    assert_eq!(sweep(&folder.0, hour, 64), [] as [PathBuf; 0], "it may be being made");
    assert_eq!(sweep(&folder.0, Duration::ZERO, 64).len(), 2);
    assert!(!broken.exists() && elsewhere.exists());
}

#[test]
fn folders_are_those_of_the_user() {
    let shared = [PathBuf::from("/dev/shm/gpucache-7"), "/tmp/gpucache-7".into()];
    assert_eq!(folders_for(None, 7), shared);
    assert_eq!(folders_for(Some("relative".into()), 7), shared);
    assert_eq!(folders_for(Some("/run/user/7".into()), 7)[0], Path::new("/run/user/7/gpucache"));
}

#[test]
fn a_question_is_taken_whole_or_not_at_all() {
    let raw = words();
    let words = Words::begin(raw, &identity()).unwrap();
    let mailbox = words.mailbox();
    assert!(!mailbox.is_waiting() && mailbox.take().is_none());
    let ask = |ticket: u64, command: [u64; 3]| {
        let question = mailbox::question(ticket, command);
        for (at, word) in question.into_iter().enumerate() {
            raw[at::MAILBOX + at].store(word, Ordering::Relaxed);
        }
    };
    ask(77, [4, 1, 4096]);
    assert!(mailbox.is_waiting());
    assert_eq!(mailbox.take(), Some((77, Some(Command::Limit { device: 1, bytes: 4096 }))));
    mailbox.answer(77, &Answer::Refused(Why::Device));
    assert!(!mailbox.is_waiting() && mailbox.take().is_none());
    ask(78, [9, 0, 0]);
    assert_eq!(mailbox.take(), Some((78, None)));
    raw[at::MAILBOX + 3].store(1, Ordering::Relaxed);
    assert_eq!(mailbox.take(), None, "half of it");
}
