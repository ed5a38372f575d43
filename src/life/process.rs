//! What the library is to the process right now.
//!
//! | mode | meaning | how it gets there |
//! |---|---|---|
//! | `New` | no CUDA call yet: no output, no thread, no file | the start |
//! | `Active` | serves | the first CUDA call, configuration good |
//! | `Off` | forwards everything, writes nothing | `GPUCACHE_DISABLE=1` |
//! | `Refusing` | every hooked call fails | the configuration in our own variable cannot be honoured |
//! | `Child` | forwards everything, takes no lock, writes nothing | `fork` after `cuInit` |
//! | `Degraded` | forwards; frees of pooled blocks are swallowed | an internal fault |
//!
//! `New` leads to one of the first three; `Child` and `Degraded` are final.

use super::{command, exit, logging, notes, say, sites, threads};
use crate::driver::real::thread;
use crate::policy::conf::LogLevel;
use crate::policy::{Conf, conf};
use crate::pool::local::Thread;
use crate::report::model::DEFAULT_SOURCE;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};
use std::time::Instant;

/// What a hook does with a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Handle it.
    Serve,
    /// Pass it to the driver unchanged.
    Forward,
    /// Fail it: the user's limit could not be understood, and running without one would be worse.
    Refuse,
}

const NEW: u8 = 0;
const ACTIVE: u8 = 1;
const OFF: u8 = 2;
const REFUSING: u8 = 3;
const CHILD: u8 = 4;
const DEGRADED: u8 = 5;

static MODE: AtomicU8 = AtomicU8::new(NEW);
static OWNER_PID: AtomicI32 = AtomicI32::new(0);
static INITIALISED: AtomicBool = AtomicBool::new(false);
static STARTING: AtomicBool = AtomicBool::new(false);
static LOADED_AT: OnceLock<Instant> = OnceLock::new();
static CONF: OnceLock<Conf> = OnceLock::new();

/// Runs when the dynamic linker loads the library, in every process that inherits `LD_PRELOAD`: reads the clock and
/// does nothing else.
#[ctor::ctor(unsafe)]
fn loaded() {
    let _ = LOADED_AT.set(Instant::now());
}

/// What to do with a hooked call. The first one starts the library.
#[inline(always)]
pub fn admit() -> Admission {
    thread::with(admit_on)
}

/// The same where the calling thread's variables are at hand.
#[inline(always)]
pub fn admit_on(thread: &Thread) -> Admission {
    if MODE.load(Ordering::Acquire) == ACTIVE {
        return if thread.inside.get() { Admission::Forward } else { Admission::Serve };
    }
    admit_otherwise()
}

#[cold]
fn admit_otherwise() -> Admission {
    ensure_started();
    match MODE.load(Ordering::Acquire) {
        ACTIVE | DEGRADED => Admission::Serve, // the hooks ask is_degraded() where it matters
        REFUSING => Admission::Refuse,
        _ => Admission::Forward,
    }
}

/// Whether the library is switched off and hands out the driver's own functions.
pub fn passes_through() -> bool {
    ensure_started();
    matches!(MODE.load(Ordering::Acquire), OFF | CHILD)
}

/// Whether the library serves: pooled allocations, counts, limits.
#[inline]
pub fn is_active() -> bool {
    MODE.load(Ordering::Acquire) == ACTIVE
}

/// Whether the process has made no CUDA call yet.
pub fn is_new() -> bool {
    MODE.load(Ordering::Acquire) == NEW
}

/// Whether an internal fault has ended the pool; what it has handed out stays valid.
pub fn is_degraded() -> bool {
    MODE.load(Ordering::Acquire) == DEGRADED
}

/// The configuration; `None` before the first CUDA call.
pub fn conf() -> Option<&'static Conf> {
    CONF.get()
}

/// Seconds since the library was loaded.
pub fn age() -> f64 {
    LOADED_AT.get().map_or(0.0, |at| at.elapsed().as_secs_f64())
}

/// The same in nanoseconds.
pub fn age_ns() -> u64 {
    LOADED_AT.get().map_or(0, |at| at.elapsed().as_nanos() as u64)
}

/// Whether the calling process is the one that made the first CUDA call, and not a `fork`, `vfork` or `clone` of it.
pub fn is_owner() -> bool {
    // SAFETY: no arguments, cannot fail.
    OWNER_PID.load(Ordering::Acquire) == unsafe { libc::getpid() }
}

/// The system's number of the calling thread, which is never 0.
pub fn thread() -> i64 {
    // SAFETY: no arguments, cannot fail. By number, because older C libraries lack the function.
    unsafe { libc::syscall(libc::SYS_gettid) as i64 }
}

/// Starts the library once. Not by a `Once`: a child that is forked meanwhile would wait for a thread that it does not have.
fn ensure_started() {
    while MODE.load(Ordering::Acquire) == NEW {
        let begun = STARTING.swap(true, Ordering::AcqRel);
        if begun {
            std::thread::sleep(std::time::Duration::from_micros(100));
            continue;
        }
        // SAFETY: a handler that stores atomics. First of all: a child forked from here on never waits for us.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if std::panic::catch_unwind(start).is_err() {
            say::line("internal fault at the start; everything goes to the driver, uncached and uncapped");
            MODE.store(OFF, Ordering::Release);
        }
    }
}

fn start() {
    let parsed = Conf::from_env(|name| std::env::var_os(name));
    let names: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|n| n.starts_with("GPUCACHE"))
        .collect();
    logging::start(parsed.conf.log());
    let disabled = parsed.conf.is_disabled();
    if !disabled {
        for warning in
            parsed.warnings.iter().chain(&conf::unknown_variables(names.iter().map(String::as_str)))
        {
            if parsed.conf.log() >= LogLevel::Warn {
                say::line(&format!("warning: {warning}"));
            }
            notes::add(warning.clone());
        }
        for error in &parsed.errors {
            say::line(&format!("error: {error}"));
        }
    }
    let mode = if disabled {
        OFF
    } else if parsed.errors.is_empty() {
        ACTIVE
    } else {
        say::line(
            "error: CUDA calls of this process fail until the setting is mended; GPUCACHE_DISABLE=1 runs it without gpucache",
        );
        REFUSING
    };
    let _ = CONF.set(parsed.conf);
    // SAFETY: no arguments, cannot fail.
    OWNER_PID.store(unsafe { libc::getpid() }, Ordering::Release);
    if mode == ACTIVE {
        exit::arm();
        threads::start();
        command::arm();
        conf().into_iter().for_each(sites::start);
        tracing::info!("gpucache {} is active; {}", env!("CARGO_PKG_VERSION"), settings_in_words());
    }
    let _ = MODE.compare_exchange(NEW, mode, Ordering::AcqRel, Ordering::Acquire);
}

/// The settings that somebody set, for the log.
fn settings_in_words() -> String {
    let settings = conf().map(Conf::settings).unwrap_or_default();
    let set: Vec<String> = settings
        .into_iter()
        .filter(|setting| setting.source != DEFAULT_SOURCE)
        .map(|setting| {
            let (name, value) = (setting.written_as.unwrap_or(setting.key), setting.value);
            if name == setting.source {
                format!("{name}={value}")
            } else {
                format!("{name}:{value} in {}", setting.source)
            }
        })
        .collect();
    if set.is_empty() { "all settings are the defaults".to_owned() } else { set.join(", ") }
}

/// In a forked child: the driver does not work there, any lock may be held by a thread that no longer exists, and the
/// numbers are the parent's.
///
/// Unless the parent has not initialised CUDA: then the child may, and is as good an owner as its parent was.
extern "C" fn in_child() {
    if INITIALISED.load(Ordering::Acquire) {
        MODE.store(CHILD, Ordering::Release);
    } else {
        // SAFETY: no arguments, cannot fail.
        OWNER_PID.store(unsafe { libc::getpid() }, Ordering::Release);
        if MODE.load(Ordering::Acquire) == NEW {
            STARTING.store(false, Ordering::Release); // whoever was starting the library is not in this process
        }
    }
}

/// The driver has been initialised.
pub fn initialised() {
    INITIALISED.store(true, Ordering::Release);
}

/// Ends the pool after an internal fault, and says so once.
pub fn degrade(cause: &str) {
    let before = MODE.compare_exchange(ACTIVE, DEGRADED, Ordering::AcqRel, Ordering::Acquire);
    if before.is_ok() {
        let text = format!(
            "{cause}; allocations go to the driver from now on, uncached and uncapped. Please report this"
        );
        say::line(&text);
        notes::add(text);
    }
}
