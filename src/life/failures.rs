//! Out of memory: finds out what there is to know of the moment, and says on stderr what failed, why, and what would have
//! been enough. Said in full once; a program that goes on asking is told of by a line a minute.

use super::{contexts, control, exit, history, phases, process, say, sites};
use crate::driver::books::{DeviceBooks, OOMS_KEPT, Oom};
use crate::driver::survey::Survey;
use crate::policy::Conf;
use crate::policy::conf::LogLevel;
use crate::report::failure::{Circumstances, message};
use crate::report::history::Map;
use crate::report::model::DeviceReport;
use crate::report::units::{counted, human};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Failures whose memory is drawn, and the blocks that each drawing may have.
const DRAWN: usize = 4;
const BLOCKS_DRAWN: usize = 4096;
/// Between two lines about failures, in nanoseconds.
const QUIET: u64 = 60_000_000_000;

/// Failures that nothing was said about since the last line, and when that was; 0 for never.
static UNSAID: AtomicU64 = AtomicU64::new(0);
static SAID: AtomicU64 = AtomicU64::new(0);

/// A request has failed: [`DeviceBooks::failed`].
pub fn failed(books: &DeviceBooks, oom: &mut Oom) {
    if !process::is_active() {
        return;
    }
    history::failed(books, oom.requested);
    let before = books.ooms.lock().len();
    if before < OOMS_KEPT {
        look_around(books, oom, before < DRAWN);
    }
    say_so(books, oom);
}

fn look_around(books: &DeviceBooks, oom: &mut Oom, draw: bool) {
    let mut told = Circumstances {
        at_s: history::now(),
        thread: process::thread() as u64,
        thread_name: thread_name(),
        phase: phases::current(),
        capturing: contexts::fence().is_some_and(|fence| fence.gate().capturing()),
        others_bytes: oom.driver_free.map(|free| {
            let total = books.account.total_bytes();
            total.saturating_sub(free).saturating_sub(oom.in_use)
        }),
        cap_set_by: control::setter(books.device),
        live_sites: if draw { sites::holding(books.device) } else { Vec::new() },
        ..Circumstances::default()
    };
    let mut survey = Survey::default();
    let mut map = Map { at_s: told.at_s, ..Map::default() };
    for life in contexts::alive_on(books.device) {
        life.server.survey(&mut survey, draw.then_some((BLOCKS_DRAWN, &mut map)));
    }
    survey.tell(&mut told);
    oom.circumstances = Some(told);
    oom.map = draw.then_some(map);
}

fn thread_name() -> String {
    let mut name = [0_u8; 16];
    // SAFETY: writes at most 16 bytes with the final zero.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn say_so(books: &DeviceBooks, oom: &Oom) {
    let Some(conf) = process::conf().filter(|conf| conf.log() >= LogLevel::Warn) else { return };
    let now = process::age_ns().max(1);
    let last = SAID.load(Ordering::Relaxed);
    let due = last == 0 || now.saturating_sub(last) >= QUIET;
    if !due || SAID.compare_exchange(last, now, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        UNSAID.fetch_add(1, Ordering::Relaxed);
        return;
    }
    if last == 0 {
        say::lines(&message(&device(books), &exit::moment(oom, false), &Conf::settings(conf)));
        return;
    }
    let unsaid = UNSAID.swap(0, Ordering::Relaxed);
    say::line(&format!(
        "out of memory on GPU {} again, {} since the last such line: {} asked ({})",
        books.device,
        counted(unsaid + 1, "time"),
        human(oom.requested),
        oom.kind
    ));
}

/// What the advice on a failure needs to know of its device.
fn device(books: &DeviceBooks) -> DeviceReport {
    let ranges = contexts::alive_on(books.device).any(|life| life.server.expands());
    DeviceReport {
        ordinal: books.device,
        total_bytes: books.account.total_bytes(),
        limit_bytes: books.account.limit_bytes(),
        cap_from: control::cap_from(books),
        mapped: ranges.then(Default::default),
        ..DeviceReport::default()
    }
}
