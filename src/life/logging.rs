//! Diagnostics behind `GPUCACHE_LOG`: lines on stderr, never on stdout, never on the path of a cache hit.
//!
//! | level | what is said there |
//! |---|---|
//! | `error` | something that the pool cannot work with; allocations go to the driver for it |
//! | `warn` | what the user should look at: settings without effect, a context that has failed, memory that the driver would not take back |
//! | `info` | what happens a few times in a process: the settings at the start, contexts that begin and end, each out of memory |
//! | `debug` | every change of what the pool holds and every wait: growth, giving back, barriers, captures, retries |
//! | `trace` | every request that the cache could not serve at once, every epoch, all memory outside the pool |
//!
//! Figures are for people: sizes in binary units, GPUs by their number. What cannot go on without the user (a setting
//! that is not understood, an internal fault) is said by [`say`] whatever the level.

use super::say;
use crate::policy::conf::LogLevel;
use std::io::{self, Write};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Collects one event and writes it in one go.
struct Line(Vec<u8>);

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        say::line(String::from_utf8_lossy(&self.0).trim());
    }
}

struct ToStderr;

impl MakeWriter<'_> for ToStderr {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line(Vec::new())
    }
}

/// Turns diagnostics on. The subscriber is this library's own copy: a host program that uses `tracing` is not affected.
pub fn start(level: LogLevel) {
    let level = match level {
        LogLevel::Off => return,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .without_time()
        .with_ansi(false)
        .with_target(false)
        .with_writer(ToStderr)
        .try_init();
}
