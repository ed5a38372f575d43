//! The report: gathered from host-side state and written once, however the process ends.
//!
//! No CUDA call is made here: the driver may already be gone. No lock is waited for without a limit: the thread that
//! holds it may have been stopped for good by `exit`, or be this one, interrupted by the signal whose handler calls
//! `_exit`. For the same reason no memory is asked of the C library.

use super::contexts::Life;
use super::say::NoBrokenPipe;
use super::scratch::Scratch;
use super::{contexts, control, history, live, notes, phases, process, say, sites, watch};
use crate::driver::books::{DeviceBooks, Oom};
use crate::driver::figures::Figures;
use crate::policy::conf::{LogLevel, ReportTarget, run_name};
use crate::policy::footprint;
use crate::pool::PAGE;
use crate::report::model::{
    DeviceReport, DriverTime, EndedBy, Fragmentation, Live, OomMoment, Peak, Process, Report, SCHEMA_VERSION,
};
use crate::report::template::{Facts, stand_in};
use crate::report::units::{counted, printable};
use crate::report::{Template, to_json, to_text, write_atomically};
use crate::stats::{ExternalKind, Gauge, SizeHistogram, Span, fragmentation, peak_together};
use crate::sync::patiently;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

static WRITTEN: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// What `at_quick_exit` is made of; glibc keeps that one out of its shared library.
    fn __cxa_at_quick_exit(handler: extern "C" fn(*mut c_void), library: *mut c_void) -> c_int;
}

extern "C" fn on_quick_exit(_: *mut c_void) {
    finish(EndedBy::QuickExit);
}

/// Called at the first CUDA call. `exit` needs nothing: the library's finaliser runs there.
pub fn arm() {
    say::remember();
    // SAFETY: registers a function that lives as long as the process.
    unsafe { __cxa_at_quick_exit(on_quick_exit, std::ptr::null_mut()) };
}

/// Whether the report has been written: the process is ending, and no call is made any more that the program does not make.
pub fn is_over() -> bool {
    WRITTEN.load(Ordering::Acquire)
}

/// Writes the report, if the process is one that owes a report and has not written it.
pub fn finish(ended_by: EndedBy) {
    let owes = process::is_owner() && (process::is_active() || process::is_degraded());
    if !owes || contexts::opened_books().next().is_none() || WRITTEN.swap(true, Ordering::AcqRel) {
        return;
    }
    let _scratch = Scratch::begin();
    // The report may go to a pipe, too.
    let _quiet = NoBrokenPipe::hold_back();
    if !has_stack() {
        say::line("no report: the process ends on a signal handler's stack that is too small for one");
        return;
    }
    // A panic must not end a process that is ending well.
    let _ = std::panic::catch_unwind(|| write(ended_by));
    let _ = std::panic::catch_unwind(|| watch::end(ended_by));
    live::close();
}

/// Whether there is stack for a report: an alternate signal stack may have a few KiB only, of which it would need all.
fn has_stack() -> bool {
    const ENOUGH: usize = 64 << 10;
    // SAFETY: plain data, for which all zeros is a value.
    let mut stack: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: only asks; writes to our local.
    let asked = unsafe { libc::sigaltstack(std::ptr::null(), &raw mut stack) } == 0;
    !(asked && stack.ss_flags & libc::SS_ONSTACK != 0 && stack.ss_size < ENOUGH)
}

/// What became of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// It is in this file, where the configuration wants it.
    File(String),
    /// It is on stderr, where the configuration wants it.
    Stderr,
    /// The configuration says that there is to be none.
    Off,
    /// The file could not be written; the text went to stderr instead.
    Elsewhere,
}

/// Writes the report to where the configuration says.
pub fn write(ended_by: EndedBy) -> Written {
    let Some(conf) = process::conf() else { return Written::Off };
    match conf.report() {
        ReportTarget::Off => Written::Off,
        ReportTarget::Stderr => {
            if history::is_kept() {
                notes::add("the history is in a report as JSON only: GPUCACHE_REPORT=FILE".to_owned());
            }
            say::raw(&to_text(&gather(ended_by)));
            Written::Stderr
        }
        ReportTarget::File(template) => {
            let path = expand(template);
            let report = gather_all(ended_by);
            match write_atomically(path.as_ref(), to_json(&report).as_bytes()) {
                Ok(()) => {
                    say::line(&format!("report written to {path}"));
                    Written::File(path)
                }
                Err(error) => {
                    say::line(&format!(
                        "error: could not write the report: {error}; here is its text instead"
                    ));
                    say::raw(&to_text(&report));
                    Written::Elsewhere
                }
            }
        }
    }
}

/// The file name that a template stands for in this process. Of variables that are not set, the first is told of.
pub(super) fn expand(template: &Template) -> String {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let executable = std::env::current_exe().unwrap_or_default();
    let facts = Facts {
        pid: std::process::id(),
        host: &host(),
        executable: &executable
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        unix_time: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        variable: &|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()),
    };
    let warns = process::conf().is_some_and(|conf| conf.log() >= LogLevel::Warn);
    if let Some(name) = template.unset(&facts).next().filter(|_| warns && !TOLD.swap(true, Ordering::AcqRel))
    {
        let (name, stands) = (printable(name), printable(&stand_in(name)));
        say::line(&format!(
            "warning: %q{{{name}}} in a file's name: {name} is not set; {stands} stands there"
        ));
    }
    template.expand(&facts)
}

/// The machine's name, or that of the container.
pub(super) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// All figures as they are now, with the history and maps of the memory, if one is kept.
pub fn gather_all(ended_by: EndedBy) -> Report {
    let mut report = gather(ended_by);
    for device in &mut report.devices {
        let Some(books) = contexts::known_books(device.ordinal) else { continue };
        let left_out = history::add_maps(books, device);
        if left_out > 0 {
            let (ordinal, segments) = (device.ordinal, counted(left_out, "segment"));
            report
                .notes
                .push(format!("{segments} of GPU {ordinal} are not drawn: they hold too many blocks"));
        }
        device.fragmentation.at_oom =
            patiently(&books.ooms).map_or_else(Vec::new, |ooms| moments(&ooms, true));
    }
    report.history = history::gather();
    report
}

/// All figures as they are now.
pub fn gather(ended_by: EndedBy) -> Report {
    let process = Process {
        pid: std::process::id(),
        command: command(),
        duration_s: process::age(),
        ended_by,
        runs: process::conf()
            .map(|conf| conf.runs().iter().map(|run| run_name(*run)).collect())
            .unwrap_or_default(),
    };
    let config = process::conf().map(super::super::policy::conf::Conf::settings).unwrap_or_default();
    let devices = contexts::opened_books()
        .map(|books| {
            let read = |life: &contexts::Life| {
                let figures = life.server.figures();
                if figures.is_none() {
                    notes::add(
                        "a thread held the pool's lock when the process ended: some figures are missing"
                            .to_owned(),
                    );
                }
                figures
            };
            let mut report = device(books, read);
            report.phases = phases::of(books.device);
            report.sites = sites::of(books.device);
            report.fragmentation.at_oom =
                patiently(&books.ooms).map_or_else(Vec::new, |ooms| moments(&ooms, false));
            report
        })
        .filter(super::super::report::model::DeviceReport::was_used)
        .collect();
    Report { schema_version: SCHEMA_VERSION, process, config, devices, notes: notes::all(), history: None }
}

pub(super) fn command() -> String {
    let raw = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words: Vec<_> =
        raw.split(|byte| *byte == 0).filter(|word| !word.is_empty()).map(String::from_utf8_lossy).collect();
    words.join(" ")
}

/// The figures of a device, but for its moments of failure. `read` gets those of a pool, or fails to.
pub(super) fn device(
    books: &'static DeviceBooks,
    mut read: impl FnMut(&'static Life) -> Option<Figures>,
) -> DeviceReport {
    let account = &books.account;
    let mut report = DeviceReport {
        ordinal: books.device,
        name: books.name.clone(),
        total_bytes: account.total_bytes(),
        limit_bytes: account.limit_bytes(),
        cap_from: control::cap_from(books),
        reserved_bytes: account.reserved(),
        external_bytes: account.external(),
        headroom_bytes: account.closest_headroom(),
        counts: books.counts.snapshot(),
        ..DeviceReport::default()
    };
    for kind in ExternalKind::ALL {
        let gauge = account.external_of(kind);
        if gauge != Gauge::default() {
            report.external_by_kind.insert(kind.as_str().to_owned(), gauge);
        }
    }
    let mut sizes = SizeHistogram::default();
    let mut live = SizeHistogram::default();
    let (mut free, mut largest) = (0, 0);
    let mut time = DriverTime::default();
    let (mut requested, mut allocated) = (Vec::new(), Vec::new());
    for life in contexts::all().filter(|life| life.device == books.device) {
        let Some(figures) = read(life) else { continue };
        add(&mut report, &figures);
        if let Some((begin, end)) = figures.lived {
            requested.push(Span { begin, end, peak: figures.usage.requested.peak });
            allocated.push(Span { begin, end, peak: figures.usage.allocated.peak });
        }
        sizes.merge(&figures.histogram);
        live.merge(&figures.live);
        free += figures.usage.free();
        largest = largest.max(figures.usage.largest_free);
        time.alloc_ns += figures.driver_time.alloc_ns;
        time.allocs += figures.driver_time.allocs;
        time.free_ns += figures.driver_time.free_ns;
        time.frees += figures.driver_time.frees;
        if let Some(range) = figures.mapped {
            report.mapped.get_or_insert_default().merge(&range);
        }
    }
    // What was in use had been reserved, and that peak is exact.
    report.requested_bytes.peak = peak_together(&requested).min(report.reserved_bytes.peak);
    report.allocated_bytes.peak = peak_together(&allocated).min(report.reserved_bytes.peak);
    report.size_histogram = sizes.buckets();
    report.largest_free_block_bytes = largest;
    report.live_at_exit = Live {
        blocks: live.buckets().iter().map(|bucket| bucket.count).sum(),
        bytes: live.buckets().iter().map(|bucket| bucket.bytes).sum(),
        by_size: live.buckets(),
    };
    report.fragmentation = Fragmentation {
        at_peak: report
            .peak
            .map_or(0.0, |peak| fragmentation(peak.cached_bytes, peak.largest_free_block_bytes)),
        at_exit: fragmentation(free, largest),
        at_oom: Vec::new(),
    };
    report.driver_time = (time.allocs > 0).then_some(time);
    report
}

/// Adds the pool of one context, but for the peaks, which do not add up. The moment of the high-water mark is that of the
/// pool that had the highest.
fn add(report: &mut DeviceReport, figures: &Figures) {
    report.requested_bytes.merge(&gauge(figures.usage.requested));
    report.allocated_bytes.merge(&gauge(figures.usage.allocated));
    report.counts.merge(&figures.counts);
    let usage = figures.peak.usage;
    if usage.reserved.current > report.peak.map_or(0, |peak| peak.reserved_bytes) {
        report.peak = Some(Peak {
            requested_bytes: usage.requested.current,
            allocated_bytes: usage.allocated.current,
            reserved_bytes: usage.reserved.current,
            cached_bytes: usage.free(),
            external_bytes: figures.peak.external,
            largest_free_block_bytes: usage.largest_free,
        });
    }
}

/// The moments of failure, for the report; with the maps or without.
pub(super) fn moments(ooms: &[Oom], maps: bool) -> Vec<OomMoment> {
    ooms.iter().map(|oom| moment(oom, maps)).collect()
}

/// One of them.
pub(super) fn moment(oom: &Oom, map: bool) -> OomMoment {
    let free = oom.usage.free();
    // What the driver would have had to give: the pool grows by pages.
    let outside = ExternalKind::ALL.into_iter().find(|kind| kind.as_str() == oom.kind);
    let growth = match outside {
        Some(kind) => footprint(kind, oom.requested),
        None => oom.requested.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX),
    };
    // For memory outside the pool, idle memory is only given back where that could be enough.
    let idle = if outside.is_some() { oom.usage.idle } else { 0 };
    OomMoment {
        kind: oom.kind.to_owned(),
        requested_bytes: oom.requested,
        free_bytes: free,
        largest_free_block_bytes: oom.usage.largest_free,
        fragmentation: fragmentation(free, oom.usage.largest_free),
        reserved_bytes: oom.usage.reserved.current,
        allocated_bytes: oom.usage.allocated.current,
        external_bytes: oom.external,
        limit_bytes: oom.limit,
        driver_free_bytes: oom.driver_free,
        sufficient_limit_bytes: oom.in_use.saturating_sub(idle).saturating_add(growth),
        in_use_bytes: oom.in_use,
        circumstances: oom.circumstances.clone(),
        map: if map { oom.map.clone() } else { None },
    }
}

fn gauge(of: crate::pool::Gauge) -> Gauge {
    Gauge {
        current: of.current,
        peak: of.peak,
        total_allocated: of.total_allocated,
        total_freed: of.total_freed(),
    }
}
