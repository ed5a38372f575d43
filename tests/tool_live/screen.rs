//! `gpucache top` on a pseudo-terminal: what is seen on it, what keys do, and that it is as before afterwards.

use super::harness::Program;
use super::harness::talk::Talk;
use super::tooling::TOOL;
use pty_process::Size;
use pty_process::blocking::{Command, Pty, open};
use rustix::termios::{LocalModes, tcgetattr};
use std::ffi::CStr;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

type Emulator = Arc<Mutex<vt100::Parser>>;

/// A program on a terminal of its own.
struct Terminal {
    pty: Arc<Pty>,
    emulator: Emulator,
    child: Child,
}

fn positive(size: u16) -> NonZeroU16 {
    NonZeroU16::new(size).unwrap()
}

impl Terminal {
    fn start(command: Command, columns: u16, rows: u16) -> Terminal {
        let (pty, pts) = open().unwrap();
        pty.resize(Size::new(rows, columns)).unwrap();
        let child = command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8").spawn(pts).unwrap();
        let pty = Arc::new(pty);
        let emulator = Arc::new(Mutex::new(vt100::Parser::new(positive(rows), positive(columns), 0)));
        let (source, sink) = (Arc::clone(&pty), Arc::clone(&emulator));
        // Ends when the last program on the terminal has closed it.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = (&*source).read(&mut bytes) {
                sink.lock().unwrap_or_else(PoisonError::into_inner).process(&bytes[..read]);
            }
        });
        Terminal { pty, emulator, child }
    }

    /// `gpucache top` on the folder of a program.
    fn top(talk: &Talk, columns: u16, rows: u16, args: &[&str]) -> Terminal {
        let folder = talk.folder();
        let words = ["top", "--interval", "0.1", "--folder", folder.to_str().unwrap()];
        Terminal::start(Command::new(TOOL).args(words).args(args), columns, rows)
    }

    fn with<T>(&self, look: impl FnOnce(&vt100::Screen) -> T) -> T {
        look(self.emulator.lock().unwrap_or_else(PoisonError::into_inner).screen())
    }

    fn contents(&self) -> String {
        self.with(vt100::Screen::contents)
    }

    /// Waits until something is seen.
    #[track_caller]
    fn until(&self, what: &str, seen: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let contents = self.contents();
            if seen(&contents) {
                return contents;
            }
            assert!(Instant::now() < end, "{what} is not seen:\n{contents}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[track_caller]
    fn shows(&self, part: &str) -> String {
        self.until(part, |contents| contents.contains(part))
    }

    /// Waits for all of it: what is drawn at once may arrive in pieces.
    #[track_caller]
    fn shows_all(&self, parts: &[&str]) -> String {
        self.until(&format!("{parts:?}"), |contents| parts.iter().all(|part| contents.contains(part)))
    }

    /// Waits for the whole table, with one process above the other; the last line is drawn last.
    #[track_caller]
    fn shows_both(&self, upper: &Talk, lower: &Talk) -> String {
        self.until("both", |contents| is_above(contents, upper, lower) && contents.contains("q quit"))
    }

    fn keys(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    fn resize(&self, columns: u16, rows: u16) {
        self.emulator
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .screen_mut()
            .set_size(positive(rows), positive(columns));
        self.pty.resize(Size::new(rows, columns)).unwrap();
    }

    /// Whether the terminal is as a shell leaves it: line by line, with echo, on its ordinary screen, with a cursor.
    fn is_ordinary(&self) -> bool {
        let modes = tcgetattr(self.pty.as_fd()).unwrap().local_modes;
        let lines = modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        lines && self.with(|screen| !screen.alternate_screen() && !screen.hide_cursor())
    }

    /// Waits for the end, and for what was written last.
    #[track_caller]
    fn end(mut self) -> std::process::ExitStatus {
        let end = Instant::now() + Duration::from_secs(30);
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < end, "it does not end:\n{}", self.contents());
            std::thread::sleep(Duration::from_millis(5));
        };
        while !self.is_ordinary() {
            assert!(Instant::now() < end, "the terminal is not as before:\n{}", self.contents());
            std::thread::sleep(Duration::from_millis(5));
        }
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two programs whose live files are in one folder: one under a cap, one that ran out of memory.
fn two(name: &str) -> (Talk, Talk) {
    let mut first = Talk::new(&Program::new("talker").preload().conf("memory_limit:512MiB"), name);
    first.tell("alloc 40 5").tell("free 2").say("churn");
    let program = Program::new("talker_shared").preload().conf("memory_limit:100MiB");
    let running = program.env("XDG_RUNTIME_DIR", first.runtime.to_str().unwrap()).start();
    let mut second = Talk { running: Some(running), runtime: first.runtime.clone(), lines: 0 };
    second.tell("alloc 20 2").tell("oom 400");
    (first, second)
}

/// The line of a process, and whether it stands before that of another.
fn line<'a>(contents: &'a str, talk: &Talk) -> Option<&'a str> {
    let pid = talk.pid().to_string();
    contents.lines().find(|line| line.split_whitespace().next() == Some(&pid))
}

fn is_above(contents: &str, upper: &Talk, lower: &Talk) -> bool {
    let at = |talk| line(contents, talk).map(|line| line.as_ptr() as usize);
    at(upper).zip(at(lower)).is_some_and(|(upper, lower)| upper < lower)
}

#[test]
fn all_columns_fit_on_an_ordinary_terminal() {
    let (first, second) = two("screen-80");
    let top = Terminal::top(&first, 80, 24, &[]);
    let contents = top.shows_both(&first, &second);
    for title in
        ["PID", "COMMAND", "GPU", "ALLOC", "RESV", "LIMIT", "PEAK", "FRAG", "ALLOC/S", "HIT%", "OOM", "STATE"]
    {
        assert!(contents.contains(title), "{title}:\n{contents}");
    }
    assert!(contents.contains("2 processes") && contents.contains("by reserved"), "{contents}");
    let row: Vec<&str> = line(&contents, &second).unwrap().split_whitespace().collect();
    // The command is cut to what room there is.
    assert_eq!(row[2..7], ["0", "40.0M", "40.0M", "100M", "40.0M"], "{contents}");
    assert_eq!((row[1], row[10], row[11]), ("talker_shared", "1", "running"), "{contents}");
    assert!(top.with(|screen| screen.alternate_screen() && screen.hide_cursor()));
    top.keys("q");
    assert_eq!(top.end().code(), Some(0));
}

#[test]
fn keys_sort_select_show_and_quit() {
    let (first, second) = two("screen-keys");
    let top = Terminal::top(&first, 100, 30, &[]);
    top.shows_both(&first, &second);
    // The one with the most reserved is above; with the lowest first, below. Then by allocated, by device, and so on.
    top.keys("r");
    top.until("reversed", |contents| is_above(contents, &second, &first) && contents.contains("reversed"));
    top.keys(">");
    top.until("by limit", |c| c.contains("by limit") && is_above(c, &first, &second));
    top.keys("<<<");
    top.shows("by device");
    top.keys("<<");
    top.until("by number", |c| c.contains("by pid") && is_above(c, &second, &first));
    // The selected one stays the selected one, wherever it goes: here the lower, the first program.
    top.keys("\u{1b}[B");
    top.keys(">>>>");
    top.until("by reserved", |c| c.contains("by reserved") && is_above(c, &first, &second));
    top.keys("\r");
    let pid = first.pid();
    let title = format!("{pid} running, GPU 0");
    let figures = ["in use", "held", "alloc/s", "5 min", "at the peak", "memory_limit:512MiB", "Esc back"];
    let detail = top.shows_all(&[&[&*title], &figures[..]].concat());
    assert!(detail.chars().any(|c| ('▁'..='█').contains(&c)), "bars:\n{detail}");
    top.keys("?");
    top.shows("this help");
    top.keys("\u{1b}");
    top.shows(&title);
    top.keys("\u{1b}");
    top.shows("COMMAND");
    top.keys(" ");
    top.shows("paused");
    top.keys(" +++");
    top.shows("every 1 s");
    top.keys("\u{3}");
    assert_eq!(top.end().code(), Some(0));
}

#[test]
fn a_small_terminal_shows_what_matters_most() {
    let (first, second) = two("screen-40");
    let top = Terminal::top(&first, 40, 10, &[]);
    let contents = top.shows_both(&first, &second);
    let titles: Vec<&str> = contents.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(titles, ["PID", "COMMAND", "GPU", "ALLOC", "RESV", "STATE"], "{contents}");
    top.keys("\r");
    let before = top.shows_all(&["in use", "Esc back"]);
    top.keys("\u{1b}[F");
    top.until("further down", |contents| contents != before && contents.contains("driver calls"));
    for (columns, rows) in [(20, 4), (5, 2), (1, 1), (300, 100)] {
        top.resize(columns, rows);
        std::thread::sleep(Duration::from_millis(250));
    }
    top.shows("memory_limit:512MiB");
    top.keys("\u{1b}");
    top.shows("ALLOC/S");
    top.keys("q");
    assert_eq!(top.end().code(), Some(0));
}

#[test]
fn what_ends_is_seen_to_end() {
    let (mut first, mut second) = two("screen-ends");
    let top = Terminal::top(&first, 80, 24, &[]);
    top.shows_both(&first, &second);
    let pid = second.pid();
    second.finish().ok();
    let ended = |c: &str, state: &str| {
        c.lines().any(|line| line.starts_with(&format!("{pid:>7} ")) && line.trim_end().ends_with(state))
    };
    top.until("a good end", |c| ended(c, "ended") && c.contains("1 process ") && c.contains("1 ended"));
    let killed = first.pid();
    first.kill();
    top.until("killed", |c| {
        c.lines().any(|l| l.starts_with(&format!("{killed:>7} ")) && l.contains("killed"))
    });
    top.keys("e");
    top.shows("e shows what is over");
    top.keys("e");
    top.until("both again", |c| ended(c, "ended"));
    top.keys("q");
    assert_eq!(top.end().code(), Some(0));
}

#[test]
fn signals_and_suspension_leave_an_ordinary_terminal() {
    let mut talk = Talk::default("screen-signal");
    talk.tell("alloc 8 1");
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let top = Terminal::top(&talk, 80, 24, &[]);
        top.shows("COMMAND");
        assert!(!top.is_ordinary());
        // SAFETY: a signal to our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(top.child.id() as i32, signal) }, 0);
        assert_eq!(top.end().signal(), Some(signal));
    }
    // A shell with job control sees it stop, and continues it.
    let folder = talk.folder();
    let script = format!("{TOOL} top --folder '{}'; echo stopped; read line; fg", folder.display());
    let shell = Terminal::start(Command::new("bash").args(["--norc", "-mc", &script]), 80, 24);
    shell.shows("COMMAND");
    shell.keys("\u{1a}");
    shell.shows("stopped");
    assert!(shell.is_ordinary(), "{}", shell.contents());
    shell.keys("go on\n");
    shell.until("the table again", |c| c.contains("COMMAND") && !c.contains("stopped"));
    shell.keys("q");
    shell.end();
}

#[test]
fn an_empty_machine_and_refused_files_are_told() {
    let talk = Talk::default("screen-empty");
    let folder = talk.folder();
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    let top = Terminal::top(&talk, 80, 24, &[]);
    top.shows("No process on the library.");
    std::fs::write(folder.join("1-1.live"), "x").unwrap();
    top.shows("refused: 1-1.live: it is ");
    top.keys("?\u{1b}[F");
    top.shows("q Ctrl-C");
    top.keys("\u{1b}");
    top.shows("No process on the library.");
    top.keys("q");
    assert_eq!(top.end().code(), Some(0));
}

/// The help is in front of a page, and leaving it shows that page again.
#[test]
fn help_is_left_to_where_it_was_asked_for() {
    let mut talk = Talk::default("screen-help");
    talk.tell("alloc 8 1");
    let top = Terminal::top(&talk, 100, 40, &[]);
    top.shows("COMMAND");
    for leave in ["\u{1b}", "?", "\r"] {
        top.keys("\r");
        top.shows_all(&["driver calls", "Esc back"]);
        top.keys("?");
        top.until("the help", |c| c.contains("this help") && !c.contains("driver calls"));
        top.keys(leave);
        top.shows("driver calls");
        top.keys("\u{1b}");
        top.until("the table", |c| c.contains("COMMAND") && !c.contains("driver calls"));
    }
    top.keys("q");
    assert_eq!(top.end().code(), Some(0));
}

/// A terminal that is not the controlling one goes without a signal: what is left of it can be read from without an end.
#[test]
fn a_terminal_that_goes_without_a_signal_ends_it() {
    let mut talk = Talk::default("screen-gone");
    talk.tell("alloc 8 1");
    let (pty, pts) = open().unwrap();
    pty.resize(Size::new(24, 80)).unwrap();
    let mut name = [0; 64];
    // SAFETY: a descriptor of ours; writes a C string into our array, no more than its length.
    assert_eq!(unsafe { libc::ptsname_r(pty.as_fd().as_raw_fd(), name.as_mut_ptr(), name.len()) }, 0);
    let name =
        CStr::from_bytes_until_nul(name.map(|c| c as u8).as_slice()).unwrap().to_str().unwrap().to_owned();
    let terminal = || {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NOCTTY).open(&name).unwrap()
    };
    let folder = talk.folder();
    let mut top = std::process::Command::new(TOOL)
        .args(["top", "--interval", "0.1", "--folder", folder.to_str().unwrap()])
        .env("TERM", "xterm-256color")
        .stdin(terminal())
        .stdout(terminal())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(pts);
    let mut seen = Vec::new();
    let mut bytes = [0; 4096];
    let mut shows = |part: &str| {
        while !String::from_utf8_lossy(&seen).contains(part) {
            let read = (&pty).read(&mut bytes).unwrap();
            seen.extend(&bytes[..read]);
        }
    };
    shows("COMMAND");
    // Then it draws nothing, and would not find out by that.
    (&pty).write_all(b" ").unwrap();
    shows("paused");
    drop(pty);
    let end = Instant::now() + Duration::from_secs(30);
    let status = loop {
        if let Some(status) = top.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > end {
            let _ = top.kill();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut said = String::new();
    top.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((status.code(), status.signal()), (Some(2), None), "{said}");
    assert!(said.contains("the terminal: "), "{said}");
}
