//! Who holds the memory (`sites` in the configuration): a sample of all allocations, each with the stack that made it.
//!
//! Switched off, a call pays for one look at a number that never changes. Switched on, an allocation counts its bytes
//! down, and a free asks a filter; only what is sampled, and its free, go further. The stack is walked before anything is
//! locked, because what it takes to read Python's frames may run code of the program (in 3.9 to 3.12), which may come
//! back here: then nothing more is sampled. The table's lock comes before those of what is live, and no call is made under
//! either.

use super::{contexts, modules, python, say, stack};
use crate::policy::Conf;
use crate::report::failure::SiteBytes;
use crate::report::sites::Sites;
use crate::report::{holders, symbols};
use crate::stats::sites::{Frame, Live, Noted, Sample, Sampler, Stack, Table, scale};
use crate::sync::patiently;
use parking_lot::Mutex;
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes between two samples on average; 0 while nothing is sampled.
static INTERVAL: AtomicU64 = AtomicU64::new(0);
/// What the next thread's random numbers start from.
static SEED: AtomicU64 = AtomicU64::new(0);
static LIVE: Live = Live::new();
static TABLE: Mutex<Option<Table>> = Mutex::new(None);
/// Sites that a report lists by each of its orders.
const LISTED: usize = 100;
/// Sites that the record of a failure names.
const HOLDERS: usize = 3;

thread_local! {
    /// Where the thread is between two samples, and whether it is taking one.
    static MINE: (Cell<Sampler>, Cell<bool>) = const { (Cell::new(Sampler::new()), Cell::new(false)) };
}

/// Whether allocations are sampled.
#[inline(always)]
pub fn is_on() -> bool {
    INTERVAL.load(Ordering::Relaxed) != 0
}

/// Begins, if the configuration says so. At the first CUDA call, before anything is served.
pub fn start(conf: &Conf) {
    let Some(interval) = conf.sites() else { return };
    stack::warm_up();
    let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    SEED.store(
        now.map_or(1, |now| now.as_nanos() as u64) ^ u64::from(std::process::id()) << 32,
        Ordering::Relaxed,
    );
    *TABLE.lock() = Some(Table::default());
    INTERVAL.store(interval, Ordering::Release);
}

/// The program has `bytes` at `key`, which end with the context `ctx`.
#[cold]
#[inline(never)]
pub fn allocated(device: u32, ctx: usize, key: u64, bytes: u64) {
    let mean = INTERVAL.load(Ordering::Relaxed);
    let due = MINE.with(|(sampler, taking)| {
        let mut at = sampler.get();
        if !at.is_seeded() {
            at.seed(SEED.fetch_add(1, Ordering::Relaxed), mean);
        }
        let due = at.meets(bytes, mean);
        sampler.set(at);
        due && !taking.replace(true)
    });
    if due {
        take(device, ctx, key, bytes, mean);
        MINE.with(|(_, taking)| taking.set(false));
    }
}

#[inline(never)]
fn take(device: u32, ctx: usize, key: u64, bytes: u64, mean: u64) {
    let (calls, changes) = (stack::calls(), modules::changes());
    let python = python::present(changes).map(python::Python::frames).unwrap_or_default();
    let hash = hash(calls.all(), &python, changes.unloaded);
    let known = TABLE.lock().as_ref().is_some_and(|table| table.find(device, hash).is_some());
    let stack = if known { Stack::default() } else { resolve(&calls, &python) };
    let scaled = scale(bytes, mean);
    let mut table = TABLE.lock();
    let Some(table) = table.as_mut() else { return };
    let site = table.enter(device, hash, &stack);
    if python.unreadable {
        table.lacks_python(device);
    }
    let (entered, unseen) = LIVE.insert(key, Sample { site, scaled, ctx });
    if let Some(unseen) = unseen {
        table.end(unseen.site, unseen.scaled);
    }
    if entered {
        table.begin(site, scaled);
    } else {
        table.begin_untracked(site, scaled);
    }
}

/// FNV-1a, over words and not bytes, of everything that makes a stack.
fn hash(calls: &[usize], python: &python::Frames, unloaded: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut mix = |word: u64| hash = (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    mix(unloaded);
    for address in calls {
        mix(*address as u64);
    }
    for (file, function, line) in &python.frames {
        mix(u64::from(*line) << 1 | 1);
        for text in [file, function] {
            mix(text.len() as u64);
            for bytes in text.as_bytes().chunks(8) {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                mix(u64::from_ne_bytes(word));
            }
        }
    }
    hash
}

/// A stack that has not been met before: native frames down to the interpreter and then Python's, where there are any.
fn resolve(calls: &stack::Calls, python: &python::Frames) -> Stack {
    let mut addresses = calls.all().to_vec();
    let interpreter = python::found().filter(|_| !python.frames.is_empty()).map(python::Python::code);
    addresses.extend(interpreter);
    let mut places = modules::places(&addresses);
    let interpreter = interpreter.and_then(|_| places.pop()?.module);
    // A runtime calls the driver by this library again, so its frames lie between this library's own.
    let is_runtime = |place: &modules::Place| {
        if stack::is_own(place.address) {
            return true;
        }
        let name = place.module.as_ref().and_then(|module| module.path.rsplit('/').next());
        name.is_some_and(|name| name.starts_with("libcudart.so") || name.starts_with("libcuda.so"))
    };
    let start = places.iter().position(|place| !is_runtime(place)).unwrap_or(0);
    let native =
        places.drain(start..).take_while(|place| interpreter.is_none() || place.module != interpreter);
    let mut frames: Vec<Frame> = native.map(|place| Frame::Native(place.module, place.offset)).collect();
    let cut = if python.frames.is_empty() { calls.cut } else { python.cut };
    let lines = python.frames.iter().cloned();
    frames.extend(lines.map(|(file, function, line)| Frame::Python(file, function, line)));
    Stack { frames, cut }
}

/// The program is about to give back what is at `key`, if that is sampled. Handed to [`not_freed`] if it does not.
#[cold]
#[inline(never)]
pub fn freed(key: u64) -> Option<Sample> {
    let sample = LIVE.remove(key)?;
    if let Some(table) = TABLE.lock().as_mut() {
        table.end(sample.site, sample.scaled);
    }
    Some(sample)
}

/// The same for a pooled block, whose free does not fail; leaves what is not the pool's to those who know better.
#[cold]
#[inline(never)]
pub fn freed_pooled(address: u64) {
    if LIVE.may_hold(address) && contexts::index().owner_of(address).is_some() {
        freed(address);
    }
}

/// A free has failed.
pub fn not_freed(key: u64, sample: Option<Sample>) {
    let Some(sample) = sample else { return };
    let mut table = TABLE.lock();
    let Some(table) = table.as_mut() else { return };
    if LIVE.insert(key, sample).0 {
        table.end_undone(sample.site, sample.scaled);
    }
}

/// A context has ended, and its memory with it.
pub fn context_ended(ctx: usize) {
    if !is_on() {
        return;
    }
    LIVE.remove_context(ctx, |sample| {
        if let Some(table) = TABLE.lock().as_mut() {
            table.end(sample.site, sample.scaled);
        }
    });
}

/// The sites of a device that hold most now, as many as there is room for; returns how many. For the moment at which
/// memory has run out: waits for a lock that is held for moments only, and allocates nothing. [`listed`] tells later
/// what they are.
pub fn top_live(device: u32, into: &mut [Noted]) -> usize {
    if !is_on() {
        return 0;
    }
    patiently(&TABLE).and_then(|table| Some(table.as_ref()?.top_live(device, into))).unwrap_or(0)
}

/// A site that was noted, as a report lists it: its frames and their names, and no figures but those noted. `None` if the
/// table cannot be had.
pub fn listed(noted: &Noted) -> Option<Sites> {
    let mut report = patiently(&TABLE)?.as_ref()?.listed(noted)?;
    name(&mut report);
    trim(&mut report);
    Some(report)
}

/// The places that hold the most memory of a device now; empty where nothing is sampled.
pub fn holding(device: u32) -> Vec<SiteBytes> {
    let mut noted = [Noted::default(); HOLDERS];
    let count = top_live(device, &mut noted);
    let place = |noted: &Noted| {
        let sites = listed(noted)?;
        let place = holders::place(&sites, sites.sites.first()?);
        Some(SiteBytes { bytes: noted.live_bytes, place })
    };
    noted[..count].iter().filter_map(place).collect()
}

/// What the report says of a device; `None` where nothing was sampled.
pub fn of(device: u32) -> Option<Sites> {
    let interval = INTERVAL.load(Ordering::Relaxed);
    if interval == 0 {
        return None;
    }
    let mut report = {
        let Some(table) = patiently(&TABLE) else {
            say::line("the table of sites is locked for good: the report goes without");
            return None;
        };
        table.as_ref()?.report(device, interval, LISTED)?
    };
    report.python = python::found().map(python::Python::in_words).unwrap_or_default();
    name(&mut report);
    trim(&mut report);
    Some(report)
}

/// Gives native frames the names that the objects' files have for them.
fn name(report: &mut Sites) {
    for (number, module) in report.modules.iter().enumerate() {
        let of_module = |at: &usize| report.frames[*at].module == Some(number as u32);
        let frames: Vec<usize> = (0..report.frames.len()).filter(of_module).collect();
        let offsets: Vec<u64> = frames.iter().filter_map(|at| report.frames[*at].offset).collect();
        for (at, name) in frames.into_iter().zip(symbols::names(Path::new(&module.path), &offsets)) {
            report.frames[at].function = name;
        }
    }
}

/// Frames looked at from the innermost, in search of those of a runtime that is linked into the program.
const RUNTIME_FRAMES: usize = 12;

/// Takes frames of a runtime that is linked into the program off the innermost end of stacks: known by the function by
/// which the program called it.
fn trim(report: &mut Sites) {
    let is_entry = |at: &u32| {
        let name = report.frames.get(*at as usize).and_then(|frame| frame.function.as_deref());
        name.is_some_and(|name| name.starts_with("cudaMalloc"))
    };
    let ends: Vec<usize> = report
        .sites
        .iter()
        .map(|site| site.stack.iter().take(RUNTIME_FRAMES).rposition(is_entry).map_or(0, |at| at + 1))
        .collect();
    for (site, end) in report.sites.iter_mut().zip(ends) {
        if end < site.stack.len() {
            site.stack.drain(..end);
        }
    }
}
