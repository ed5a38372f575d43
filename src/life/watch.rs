//! What is written for those who watch a running process: figures for Prometheus, and alarms.
//!
//! There is no thread for it. A thread of the library's own would not exist in forked children, would have to be kept out
//! of the program's signals, limits and sandboxes, and would be one more in processes that count theirs. So whichever thread of the
//! program comes by when it is time writes the file, once in five seconds or when much more is held: a few dozen microseconds. A
//! process that makes no calls writes nothing; the time of the last writing is among the figures.

use super::{command, contexts, exit, live, notes, process, say};
use crate::driver::books::DeviceBooks;
use crate::policy::Conf;
use crate::policy::alarms::{Alarm, Budget, MOST_COMMANDS, Reading, Watch};
use crate::report::model::{EndedBy, Process, Report, SCHEMA_VERSION};
use crate::report::{Template, to_prometheus, write_atomically};
use parking_lot::Mutex;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Between two writings, in nanoseconds.
const INTERVAL: u64 = 5_000_000_000;

/// When the file was last written, and what each device held then.
static WRITTEN: AtomicU64 = AtomicU64::new(0);
static TOLD: [AtomicU64; contexts::DEVICES] = [const { AtomicU64::new(0) }; contexts::DEVICES];
/// What must be held beyond a quarter more than was told, in bytes, to be told at once: a program may take all its memory
/// within moments and make no call after that.
const NEWS: u64 = 64 << 20;
/// Its name, once it is known, and that of the file of alarms: the same for as long as the process lives, whatever is in them.
static PATH: OnceLock<String> = OnceLock::new();
static ALARMS: OnceLock<String> = OnceLock::new();

/// Between two readings for alarms, but for those after a change of what is held.
const READING: u64 = 10_000_000;
/// When the last was taken, of any device, and what the last of each device said was held.
static READ: AtomicU64 = AtomicU64::new(0);
static HELD: [AtomicU64; contexts::DEVICES] = [const { AtomicU64::new(0) }; contexts::DEVICES];
/// A rise of this part of the cap since then is not left for the next: memory outside the pool may come all in one call, after
/// which the program makes none.
const RISE: u64 = 64;
/// What was seen of each device.
static WATCHES: Mutex<Vec<(u32, Watch)>> = Mutex::new(Vec::new());

/// When commands were run for alarms.
static COMMANDS: Mutex<Budget> = Mutex::new(Budget::new());

/// A thread comes by; `held` says that what is held has changed.
pub fn look(books: &DeviceBooks, now: u64, held: bool) {
    let Some(conf) = process::conf() else { return };
    if !conf.alert().is_empty() && (held || is_due(books, now)) {
        judge(conf, books, now, held);
    }
    if conf.prom().is_some() {
        let (last, told, holds) =
            (WRITTEN.load(Ordering::Relaxed), of(&TOLD, books.device), books.account.in_use());
        let due = last == 0 || now.wrapping_sub(last) >= INTERVAL || holds > told + told / 4 + NEWS;
        // One thread writes it.
        if due
            && WRITTEN.compare_exchange(last, now, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            && write_now(now)
        {
            for (device, told) in TOLD.iter().enumerate() {
                let holds = contexts::known_books(device as u32).map_or(0, |books| books.account.in_use());
                told.store(holds, Ordering::Relaxed);
            }
        }
    }
}

fn of(figures: &[AtomicU64], device: u32) -> u64 {
    figures.get(device as usize).map_or(0, |figure| figure.load(Ordering::Relaxed))
}

/// Whether it is time for a reading although no pool has changed.
fn is_due(books: &DeviceBooks, now: u64) -> bool {
    let risen = books.account.in_use().saturating_sub(of(&HELD, books.device));
    now.wrapping_sub(READ.load(Ordering::Relaxed)) >= READING || risen > books.account.limit_bytes() / RISE
}

/// Takes a reading, and says what is to be said. Where another thread does, this one goes on.
#[cold]
fn judge(conf: &Conf, books: &DeviceBooks, now: u64, held: bool) {
    let Some(mut watches) = WATCHES.try_lock() else { return };
    READ.store(now, Ordering::Relaxed);
    if let Some(figure) = HELD.get(books.device as usize) {
        figure.store(books.account.in_use(), Ordering::Relaxed);
    }
    let mut reading = Reading {
        reserved: books.account.reserved().current,
        external: books.account.external().current,
        limit: books.account.limit_bytes(),
        total: books.account.total_bytes(),
        ..Reading::default()
    };
    for life in contexts::all().filter(|life| life.device == books.device) {
        if held {
            // Looks for the largest free block, which the glimpse then has.
            let _ = life.server.passing_figures(true);
        }
        let glimpse = life.server.glimpse();
        reading.allocated += glimpse.allocated;
        reading.largest_free = reading.largest_free.max(glimpse.largest_free);
    }
    let at = watches.iter().position(|(device, _)| *device == books.device).unwrap_or_else(|| {
        watches.push((books.device, Watch::default()));
        watches.len() - 1
    });
    let raised = watches[at].1.read(conf.alert(), now, &reading);
    drop(watches);
    for (alarm, seen) in raised {
        let alarm = &conf.alert()[alarm];
        let words = alarm.in_words(&reading);
        say::line(&format!("alert: GPU {}: {words}: {seen}", books.device));
        notes::add(format!("alert on GPU {}: {words}", books.device));
        if let Some(template) = conf.alert_file() {
            add_line(template, books.device, alarm, &seen, &reading, now);
        }
        if let Some(text) = conf.alert_command() {
            run_command(text, books.device, alarm, &seen, &reading, now);
        }
    }
}

/// Adds an alarm to the file of alarms.
fn add_line(template: &Template, device: u32, alarm: &Alarm, seen: &str, reading: &Reading, now: u64) {
    let line = serde_json::json!({
        "time": now / 1_000_000_000,
        "pid": std::process::id(),
        "device": device,
        "alert": alarm.name(),
        "text": format!("{}: {seen}", alarm.in_words(reading)),
        "allocated_bytes": reading.allocated,
        "reserved_bytes": reading.reserved,
        "external_bytes": reading.external,
        "limit_bytes": reading.limit,
    });
    let path = ALARMS.get_or_init(|| exit::expand(template));
    let written = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    if let Err(error) = written {
        notes::add(format!("alerts are not in {path}: {error}"));
    }
}

/// Runs the command for an alarm, with the same facts in its environment.
fn run_command(text: &str, device: u32, alarm: &Alarm, seen: &str, reading: &Reading, now: u64) {
    if !COMMANDS.try_lock().is_some_and(|mut budget| budget.take(now)) {
        notes::add(format!("more than {MOST_COMMANDS} alerts a minute: no command was run for the others"));
        return;
    }
    let facts = [
        ("ALERT_NAME", alarm.name().to_owned()),
        ("ALERT_TEXT", format!("{}: {seen}", alarm.in_words(reading))),
        ("ALERT_TIME", (now / 1_000_000_000).to_string()),
        ("ALERT_PID", std::process::id().to_string()),
        ("ALERT_DEVICE", device.to_string()),
        ("ALERT_ALLOCATED_BYTES", reading.allocated.to_string()),
        ("ALERT_RESERVED_BYTES", reading.reserved.to_string()),
        ("ALERT_EXTERNAL_BYTES", reading.external.to_string()),
        ("ALERT_LIMIT_BYTES", reading.limit.to_string()),
    ];
    if let Err(why) = command::run(text, &facts) {
        notes::add(format!("no command was run for an alert: {why}"));
    }
}

fn path() -> Option<&'static str> {
    let template = process::conf().and_then(Conf::prom)?;
    Some(PATH.get_or_init(|| exit::expand(template)))
}

/// Whether they were written: where a pool's figures cannot be had at once, they are left for the next time.
#[cold]
fn write_now(now: u64) -> bool {
    let (Some(path), Some(devices)) = (path(), live::all_devices(false)) else { return false };
    let process = Process {
        pid: std::process::id(),
        command: exit::command(),
        duration_s: process::age(),
        ended_by: EndedBy::Running,
        runs: Vec::new(),
    };
    let report = Report {
        schema_version: SCHEMA_VERSION,
        process,
        config: Vec::new(),
        devices,
        notes: Vec::new(),
        history: None,
    };
    write(path, &report, now as f64 / 1e9, true);
    true
}

fn write(path: &str, report: &Report, now: f64, runs: bool) {
    let text = to_prometheus(report, &exit::host(), now, runs);
    if let Err(error) = write_atomically(path.as_ref(), text.as_bytes()) {
        notes::add(format!("no figures for Prometheus: {error}"));
    }
}

/// The last figures, at the end of the process.
pub fn end(ended_by: EndedBy) {
    if let Some(path) = path() {
        let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
        write(path, &exit::gather(ended_by), now.unwrap_or_default().as_secs_f64(), false);
    }
}
