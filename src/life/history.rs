//! The history of this process: `GPUCACHE_CONF=history:N`. A ring of events and samples over its life, filled by whoever
//! has something to tell, read when a report is written.
//!
//! | who | tells |
//! |---|---|
//! | a pool that grows, shrinks, waits or reaches a mark (`driver/chronicle.rs`) | that |
//! | the hooks | allocations and frees of `history_min` bytes and more |
//! | whoever comes by (`live.rs`) | samples |
//! | a request that fails, a phase that begins | that |
//!
//! By default an allocation is an event from 1 MiB on: a program's memory lies in its large blocks, the small ones are many
//! and would push everything else out of the ring within moments, and below that most requests are served by their thread's
//! cache, in less time than an event takes. With no history the hooks make one comparison, which nothing passes.

use super::{contexts, phases, process, scratch};
use crate::driver::books::DeviceBooks;
use crate::driver::chronicle::{Chronicle, Note};
use crate::driver::real::thread;
use crate::policy::Conf;
use crate::report::history::{Event, History, Map, Sample, What, event_columns, sample_columns};
use crate::report::model::DeviceReport;
use crate::stats::history::{Happening, Reading, Ring, Samples};
use crate::sync::patiently;
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// Samples that are kept, and nanoseconds between the first two.
const SAMPLES: usize = 2048;
const INTERVAL: u64 = 10_000_000;
/// Blocks that are drawn of the end.
const DRAWN_AT_EXIT: usize = 1 << 16;
/// Bytes of a report that an event and a block may take, with what is needed to make them.
const REPORT_BYTES: usize = 1 << 10;

struct Keeper {
    ring: Ring,
    samples: Samples,
}

static KEEPER: OnceLock<Keeper> = OnceLock::new();
/// Bytes from which on allocations and frees are events; nothing is, without a history.
static FROM: AtomicU64 = AtomicU64::new(u64::MAX);
static PHASE: AtomicU16 = AtomicU16::new(0);

/// Begins the history, if there is to be one. Before the first device's books are opened.
pub fn open() {
    let Some(conf) = process::conf().filter(|conf| conf.history() > 0) else { return };
    KEEPER.get_or_init(|| {
        scratch::enlarge((conf.history() + DRAWN_AT_EXIT) * REPORT_BYTES);
        FROM.store(conf.history_min(), Ordering::Relaxed);
        Keeper { ring: Ring::new(conf.history()), samples: Samples::new(SAMPLES, INTERVAL) }
    });
}

/// What the books of a device need for it.
pub fn chronicle() -> Option<Chronicle> {
    KEEPER.get().map(|_| Chronicle { tell, peak: Mutex::default() })
}

/// Whether an allocation or a free of so many bytes is an event.
#[inline(always)]
pub fn wants(bytes: u64) -> bool {
    bytes >= FROM.load(Ordering::Relaxed)
}

fn tell(books: &DeviceBooks, note: Note) {
    let Some(keeper) = KEEPER.get() else { return };
    // The other pools of the device, if it has any, as they were last left.
    let others =
        contexts::all().filter(|life| life.device == books.device && life.server.owner() != note.pool);
    let others: u64 = others.map(|life| life.server.glimpse().allocated).sum();
    keeper.ring.push(&Happening {
        at: process::age_ns(),
        what: note.what,
        device: books.device as u8,
        pool: note.pool as u16,
        phase: PHASE.load(Ordering::Relaxed),
        bytes: note.bytes,
        address: note.address,
        reserved: books.account.reserved().current,
        allocated: note.allocated + others,
        external: books.account.external().current,
    });
}

/// The program has got a block.
#[cold]
#[inline(never)]
pub fn allocated(address: u64, bytes: u64) {
    let Some(life) = thread::with(contexts::current) else { return };
    let (pool, allocated) = (life.server.owner(), life.server.passing_use());
    tell(life.server.books(), Note { what: What::Alloc, pool, address, bytes, allocated });
}

/// The program gives a block of `size` bytes back. Told before the pool has it: its address may come back at once.
#[cold]
#[inline(never)]
pub fn freed(pool: u32, address: u64, bytes: u64, size: u64) {
    let Some(life) = contexts::by_owner(pool) else { return };
    let allocated = life.server.passing_use().saturating_sub(size);
    tell(life.server.books(), Note { what: What::Free, pool, address, bytes, allocated });
}

/// A request has failed.
pub fn failed(books: &DeviceBooks, requested: u64) {
    tell_of_all(books, What::Oom, requested);
}

/// The program has begun a phase.
pub fn begun(phase: usize) {
    PHASE.store(phase as u16, Ordering::Relaxed);
    for books in contexts::opened_books() {
        tell_of_all(books, What::Phase, 0);
    }
}

/// Something that concerns no pool in particular.
fn tell_of_all(books: &DeviceBooks, what: What, bytes: u64) {
    // No pool has this number, so all of them are added up.
    tell(books, Note { what, pool: u32::from(u16::MAX), address: 0, bytes, allocated: 0 });
}

/// Somebody comes by: takes a sample if it is time.
pub fn look() {
    let Some(keeper) = KEEPER.get() else { return };
    let now = process::age_ns();
    if keeper.samples.is_due(now) {
        keeper.samples.add(now, contexts::opened_books().map(|books| reading(books, now)));
    }
}

fn reading(books: &DeviceBooks, at: u64) -> Reading {
    let lives = contexts::all().filter(|life| life.device == books.device);
    Reading {
        at,
        device: books.device,
        reserved: books.account.reserved().current,
        allocated: lives.map(|life| life.server.glimpse().allocated).sum(),
        external: books.account.external().current,
    }
}

fn seconds(ns: u64) -> f64 {
    // To the microsecond: more digits would be noise, and half of the file.
    (ns / 1000) as f64 / 1e6
}

/// The history for a report.
pub fn gather() -> Option<History> {
    let keeper = KEEPER.get()?;
    let recorded = keeper.ring.read();
    let mut events: Vec<Event> = recorded.events.iter().map(event).collect();
    events.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    let now = process::age_ns();
    let last = contexts::opened_books().map(|books| reading(books, now));
    Some(History {
        capacity: keeper.ring.capacity() as u64,
        recorded: recorded.recorded,
        lost: recorded.lost,
        min_bytes: FROM.load(Ordering::Relaxed),
        phases: phases::names(),
        event_columns: event_columns(),
        events,
        sample_columns: sample_columns(),
        samples: keeper.samples.all().into_iter().chain(last).map(sample).collect(),
    })
}

fn event(of: &Happening) -> Event {
    Event {
        at_s: seconds(of.at),
        kind: of.what.as_str().into(),
        device: u32::from(of.device),
        bytes: of.bytes,
        address: of.address,
        reserved_bytes: of.reserved,
        allocated_bytes: of.allocated,
        external_bytes: of.external,
        phase: u32::from(of.phase),
        pool: u32::from(of.pool),
    }
}

fn sample(of: Reading) -> Sample {
    Sample {
        at_s: seconds(of.at),
        device: of.device,
        reserved_bytes: of.reserved,
        allocated_bytes: of.allocated,
        external_bytes: of.external,
    }
}

/// Adds how a device's memory lies now, and lay at its high-water mark; returns how many segments there was no room for.
pub fn add_maps(books: &DeviceBooks, report: &mut DeviceReport) -> u64 {
    let Some(chronicle) = &books.chronicle else { return 0 };
    let mut now = Map::default();
    for life in contexts::all().filter(|life| life.device == books.device && life.server.is_alive()) {
        life.server.draw(DRAWN_AT_EXIT, &mut now);
    }
    report.segments = now.segments;
    let peak = patiently(&chronicle.peak).map(|peak| peak.1.clone()).filter(|map| !map.segments.is_empty());
    report.map_at_peak = peak;
    now.left_out
}

/// Seconds since the library was loaded, as in events.
pub fn now() -> f64 {
    seconds(process::age_ns())
}

/// Whether a history is kept.
pub fn is_kept() -> bool {
    process::conf().is_some_and(|conf: &Conf| conf.history() > 0)
}
