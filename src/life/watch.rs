//! What is written for those who watch a running process: figures for Prometheus.
//!
//! There is no thread for it. A thread of the library's own would not exist in forked children, would have to be kept out
//! of the program's signals, limits and sandboxes, and would be one more in processes that count theirs. So whichever thread of the
//! program comes by when it is time writes the file, once in [`INTERVAL`]: a few dozen microseconds every five seconds. A
//! process that makes no calls writes nothing; the time of the last writing is among the figures.

use super::{exit, live, notes, process};
use crate::driver::books::DeviceBooks;
use crate::policy::Conf;
use crate::report::model::{EndedBy, Process, Report, SCHEMA_VERSION};
use crate::report::{to_prometheus, write_atomically};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Between two writings, in nanoseconds.
const INTERVAL: u64 = 5_000_000_000;

/// When the file was last written.
static WRITTEN: AtomicU64 = AtomicU64::new(0);
/// Its name, once it is known.
static PATH: OnceLock<String> = OnceLock::new();

/// A thread comes by.
pub fn look(_: &DeviceBooks, now: u64) {
    if process::conf().is_some_and(|conf| conf.prom().is_some()) {
        let last = WRITTEN.load(Ordering::Relaxed);
        let due = last == 0 || now.wrapping_sub(last) >= INTERVAL;
        // One thread writes it.
        if due && WRITTEN.compare_exchange(last, now, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            write_now(now);
        }
    }
}

fn path() -> Option<&'static str> {
    let template = process::conf().and_then(Conf::prom)?;
    Some(PATH.get_or_init(|| exit::expand(template)))
}

#[cold]
fn write_now(now: u64) {
    // Where a pool's figures cannot be had at once, they are left for the next time.
    let (Some(path), Some(devices)) = (path(), live::all_devices(false)) else { return };
    let process = Process {
        pid: std::process::id(),
        command: exit::command(),
        duration_s: process::age(),
        ended_by: EndedBy::Running,
    };
    let report =
        Report { schema_version: SCHEMA_VERSION, process, config: Vec::new(), devices, notes: Vec::new() };
    write(path, &report, now as f64 / 1e9, true);
}

fn write(path: &str, report: &Report, now: f64, runs: bool) {
    let text = to_prometheus(report, now, runs);
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
