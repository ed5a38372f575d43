//! The live file: what a process leaves behind that had no time for a report, and who may see it.

mod asked;
#[path = "../harness/mod.rs"]
mod harness;

use gpucache::report::model::{EndedBy, Report};
use gpucache::stats::live::{self, Fate, View};
use harness::talk::Talk;
use harness::{MIB, Program, build};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is read of its live files.
trait Files {
    /// All of them.
    fn files(&self) -> Vec<live::Found>;

    /// The only one.
    fn file(&self) -> (PathBuf, View, Fate) {
        let mut files = self.files();
        assert_eq!(files.len(), 1, "{files:?}");
        let found = files.remove(0);
        (found.path, found.view.unwrap(), found.fate)
    }

    /// The report in it.
    fn report(&self) -> Report {
        let (_, view, fate) = self.file();
        view.report(fate)
    }
}

impl Files for Talk {
    fn files(&self) -> Vec<live::Found> {
        live::list(&self.folder())
    }
}

#[test]
fn a_killed_process_leaves_its_figures() {
    for name in ["talker", "talker_shared"] {
        let program = Program::new(name).preload().conf("memory_limit:512MiB");
        let mut talk = Talk::new(&program, name);
        talk.tell("alloc 40 5").tell("free 2").tell("async 3").tell("oom 400").tell("pairs 640");
        let (path, view, fate) = talk.file();
        assert_eq!((fate, view.identity.pid), (Fate::Running, talk.pid()));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(std::fs::metadata(talk.folder()).unwrap().mode() & 0o7777, 0o700);
        let run = talk.kill();
        assert!(run.report.is_none(), "{run}");
        let report = talk.report();
        assert_eq!(report.process.ended_by, EndedBy::Killed);
        assert!(report.process.command.ends_with(name), "{}", report.process.command);
        let limit = report.config.iter().find(|setting| setting.key == "memory_limit").unwrap();
        assert_eq!(limit.value, "512MiB");
        let device = &report.devices[0];
        assert_eq!((device.ordinal, device.limit_bytes), (0, 512 * MIB));
        assert!(!device.name.is_empty());
        assert!((120 * MIB..=120 * MIB + 4096).contains(&device.requested_bytes.current));
        assert!((645 - 384..=645).contains(&device.counts.alloc), "{:?}", device.counts);
        assert_eq!(device.counts.oom, 1);
        assert!((643 - 256..=643).contains(&device.counts.free), "{:?}", device.counts);
        assert!(device.reserved_bytes.current >= 120 * MIB, "{:?}", device.reserved_bytes);
        assert_eq!(device.reserved_bytes.peak, device.peak.unwrap().reserved_bytes);
        assert_eq!(device.external_bytes.current, 3 * MIB);
        assert_eq!(device.external_by_kind["async"].current, 3 * MIB);
        let oom = &device.fragmentation.at_oom[0];
        assert_eq!((oom.requested_bytes, oom.limit_bytes), (400 * MIB, 512 * MIB));
        let text = gpucache::report::to_text(&report);
        assert!(
            text.contains("killed: no end was seen") && text.contains("out of memory   1 time"),
            "{text}"
        );
    }
}

#[test]
fn a_crash_leaves_its_figures() {
    for way in ["segv", "abort"] {
        let mut talk = Talk::default(way);
        talk.tell("alloc 8 3").say(way);
        let run = talk.finish();
        assert!(!run.status.success() && run.report.is_none(), "{run}");
        let report = talk.report();
        assert_eq!(report.process.ended_by, EndedBy::Killed);
        assert_eq!(report.devices[0].reserved_bytes.current, 24 * MIB, "exact at any moment");
    }
}

/// However few calls are made after the last writing, what the pool holds is exact, and the rest is not far behind.
#[test]
fn how_far_figures_may_be_behind() {
    let mut talk = Talk::default("behind");
    for (line, allocs, frees) in
        [("alloc 1 1", 1, 0), ("alloc 1 11", 12, 0), ("pairs 100", 112, 100), ("pairs 1000", 1112, 1100)]
    {
        talk.tell(line);
        let device = talk.report().devices.remove(0);
        assert!(
            (allocs - 384..=allocs).contains(&(device.counts.alloc as i64)),
            "{line}: {:?}",
            device.counts
        );
        assert!((frees - 256..=frees).contains(&(device.counts.free as i64)), "{line}: {:?}", device.counts);
        assert!(device.reserved_bytes.current >= 12 * MIB || allocs == 1);
    }
    talk.kill();
}

#[test]
fn a_good_end_leaves_no_file() {
    for conf in ["", "live_file:False"] {
        let mut talk =
            Talk::new(&Program::new("talker").preload().conf(conf), &format!("good{}", conf.len()));
        talk.tell("alloc 1 1");
        assert_eq!(talk.files().len(), usize::from(conf.is_empty()));
        let run = talk.finish();
        run.ok();
        assert_eq!(run.json()["notes"].as_array().unwrap().len(), 0, "{run}");
        assert_eq!(run.count("alloc"), 1, "{run}");
        assert_eq!(std::fs::read_dir(talk.folder()).map_or(0, Iterator::count), 0);
    }
}

#[test]
fn without_cuda_there_is_no_file() {
    let runtime = build::programs().join("run").join(format!("live-none-{}", std::process::id()));
    std::fs::create_dir_all(&runtime).unwrap();
    let run = Program::new("hello").preload().env("XDG_RUNTIME_DIR", runtime.to_str().unwrap()).run();
    assert_eq!(run.stdout, "hello\n", "{run}");
    assert_eq!(std::fs::read_dir(&runtime).unwrap().count(), 0);
    std::fs::remove_dir(runtime).unwrap();
}

/// A forked child has the mapping, but its parent's file is not its own.
#[test]
fn a_forked_child_keeps_its_hands_off() {
    let mut talk = Talk::default("fork");
    talk.tell("alloc 8 1").tell("fork").tell("alloc 8 1");
    assert_eq!(talk.file().1.identity.pid, talk.pid());
    talk.kill();
    let (_, view, fate) = talk.file();
    assert_eq!(fate, Fate::Gone, "the child lives on, its parent does not");
    assert_eq!(view.devices[0].counts.alloc, 2);
}

#[test]
fn after_exec_the_old_file_is_known_for_what_it_is() {
    let mut talk = Talk::default("exec-other");
    talk.tell("alloc 8 1").say("exec /bin/cat");
    let pid = talk.pid();
    let maps = format!("/proc/{pid}/maps");
    talk.running
        .as_mut()
        .unwrap()
        .until(|| std::fs::read_to_string(&maps).unwrap().contains("/cat").then_some(()));
    let (_, view, fate) = talk.file();
    assert_eq!((view.identity.pid, fate), (pid, Fate::Replaced));
    assert_eq!(view.report(fate).process.ended_by, EndedBy::Exec);

    // A program that uses CUDA itself takes the name over.
    let mut talk = Talk::default("exec-same");
    let program = build::programs().join("bin/talker");
    talk.tell("alloc 8 3").say(&format!("exec {}", program.display()));
    talk.lines = 0;
    std::fs::remove_file(talk.running.as_ref().unwrap().folder.join("done-1")).unwrap();
    talk.tell("alloc 8 1");
    let (_, view, fate) = talk.file();
    assert_eq!((fate, view.devices[0].counts.alloc), (Fate::Running, 1));
    talk.finish().ok();
    assert_eq!(talk.files().len(), 0);
}

/// Runs to the end, with memory used, and says what the report notes. `look` is called while it has its live file.
fn notes_with(prepare: impl FnOnce(&Path), look: impl FnOnce(&Path)) -> Vec<String> {
    static RUNS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let run = RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let runtime = build::programs().join("run").join(format!("live-bad-{run}-{}", std::process::id()));
    std::fs::create_dir_all(&runtime).unwrap();
    prepare(&runtime);
    let program = Program::new("talker").preload().env("XDG_RUNTIME_DIR", runtime.to_str().unwrap());
    let mut running = program.start();
    running.tell("alloc 8 1");
    let done = running.folder.join("done-1");
    running.until(|| done.exists().then_some(()));
    look(&runtime);
    let run = running.finish();
    run.ok();
    std::fs::remove_dir_all(runtime).unwrap();
    let notes = run.json()["notes"].as_array().unwrap().iter();
    notes.map(|note| note.as_str().unwrap().to_owned()).collect()
}

/// Where a folder is not to be trusted, the next one serves, and nothing is done to what is there.
#[test]
fn folders_that_others_prepared_are_not_used() {
    let entries = |folder: PathBuf| std::fs::read_dir(folder).unwrap().count();
    let link = |runtime: &Path| {
        std::fs::create_dir(runtime.join("elsewhere")).unwrap();
        std::fs::set_permissions(runtime.join("elsewhere"), PermissionsExt::from_mode(0o700)).unwrap();
        symlink("elsewhere", runtime.join("gpucache")).unwrap();
    };
    let notes = notes_with(link, |runtime| assert_eq!(entries(runtime.join("elsewhere")), 0));
    assert_eq!(notes, [] as [&str; 0]);
    let open = |runtime: &Path| {
        std::fs::create_dir(runtime.join("gpucache")).unwrap();
        std::fs::set_permissions(runtime.join("gpucache"), PermissionsExt::from_mode(0o750)).unwrap();
    };
    notes_with(open, |runtime| assert_eq!(entries(runtime.join("gpucache")), 0));
    let file = |runtime: &Path| std::fs::write(runtime.join("gpucache"), "mine").unwrap();
    let same =
        |runtime: &Path| assert_eq!(std::fs::read_to_string(runtime.join("gpucache")).unwrap(), "mine");
    notes_with(file, same);
    // The same, where nothing is wrong.
    notes_with(|_| (), |runtime| assert_eq!(entries(runtime.join("gpucache")), 1));
}

/// A folder of another user's.
#[test]
fn another_users_folder_is_not_used() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("skipped: only root can make a folder of another user's");
        return;
    }
    let theirs = |runtime: &Path| {
        let folder = runtime.join("gpucache");
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&folder, Some(65534), None).unwrap();
        assert_eq!(live::list(&folder).len(), 0);
    };
    notes_with(theirs, |runtime| {
        assert_eq!(std::fs::read_dir(runtime.join("gpucache")).unwrap().count(), 0);
    });
}

/// Past that limit the kernel sends a signal.
#[test]
fn a_limit_on_the_size_of_files_is_no_reason_to_fail() {
    let program = Program::new("talker").preload().env("XDG_RUNTIME_DIR", "").report_to("stderr");
    let mut running = program.start();
    running.tell("small-files 16\nalloc 8 1");
    let run = running.finish();
    run.ok();
    assert!(run.stderr.contains("no live file: /dev/shm/gpucache-"), "{run}");
}

/// All of the file's memory is taken at once: a full file system shows then, and not as a signal later.
#[test]
fn full_and_read_only_file_systems_are_no_reason_to_fail() {
    let can =
        std::process::Command::new("unshare").args(["-rm", "mount", "-t", "tmpfs", "t", "/dev/shm"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no file systems can be mounted here");
        return;
    }
    if build::programs().starts_with("/tmp") || build::programs().starts_with("/dev/shm") {
        eprintln!("skipped: the programs lie where a file system would be mounted over them");
        return;
    }
    for options in ["size=64k", "ro"] {
        let mounts =
            format!("mount -t tmpfs -o {options} t /tmp && mount -t tmpfs -o {options} t /dev/shm &&");
        let program = build::programs().join("bin/talker");
        let mut running = Program::at("/usr/bin/unshare")
            .arg("-rm")
            .arg("/bin/sh")
            .arg("-c")
            .arg(format!("{mounts} exec {}", program.display()))
            .preload()
            .env("XDG_RUNTIME_DIR", "")
            .report_to("stderr")
            .start();
        running.tell("alloc 8 1");
        let run = running.finish();
        run.ok();
        assert!(run.stderr.contains("no live file: /dev/shm/gpucache-"), "{run}");
    }
}

#[test]
fn an_unset_home_and_odd_folders_are_no_reason_to_fail() {
    for runtime in ["", "relative", "/proc/1/nothing", "/dev/null"] {
        let mut running =
            Program::new("talker").preload().env("XDG_RUNTIME_DIR", runtime).env("HOME", "").start();
        running.tell("alloc 8 1");
        running.finish().ok();
    }
}

#[test]
fn a_sweep_at_the_start_removes_what_is_old() {
    let mut talk = Talk::default("sweep");
    talk.tell("alloc 8 1");
    let (path, ..) = talk.file();
    talk.kill();
    let bytes = std::fs::read(&path).unwrap();
    // As if it were of 1970; words 8 and 9 are the times.
    let mut old = bytes.clone();
    old[64..80].fill(0);
    let aged = path.with_file_name("1-1.live");
    std::fs::write(&aged, old).unwrap();
    std::fs::set_permissions(&aged, PermissionsExt::from_mode(0o600)).unwrap();
    let runtime = talk.runtime.to_str().unwrap();
    let mut running = Program::new("talker").preload().env("XDG_RUNTIME_DIR", runtime).start();
    running.tell("alloc 8 1");
    running.finish().ok();
    assert!(path.exists() && !aged.exists(), "a fresh one is kept");
    assert_eq!(live::sweep(&talk.folder(), Duration::ZERO, 0), [path]);
}
