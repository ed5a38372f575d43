//! Named parts of the process's life, each with its own peaks, and the peaks since the program last asked to start anew.
//!
//! Every gauge keeps one figure for this, the most since it was last looked at. Here it is looked at whenever a phase
//! begins or peaks are reset, and added to all that go on. The peaks of the whole process are others, and nobody resets
//! them: the report's are true whatever the program asks for, and so is what growth goes by.

use super::{contexts, history};
use crate::report::model::Phase;
use crate::stats::Counts;
use crate::sync::patiently;
use parking_lot::Mutex;
use std::time::Instant;

/// Names that are kept; what more there are goes by the last.
const NAMES: usize = 64;
/// Name of what there is no room for.
const OTHERS: &str = "(others)";
/// Bytes of a name that are kept.
const NAME_BYTES: usize = 128;

/// Peaks in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peaks {
    /// Of what the program asked for.
    pub requested: u64,
    /// Of the blocks for that.
    pub allocated: u64,
    /// Of what the pool held.
    pub reserved: u64,
}

impl Peaks {
    fn raise(&mut self, other: Peaks) {
        self.requested = self.requested.max(other.requested);
        self.allocated = self.allocated.max(other.allocated);
        self.reserved = self.reserved.max(other.reserved);
    }
}

/// What is known of one device.
#[derive(Default)]
struct Device {
    ordinal: u32,
    since_reset: Peaks,
    /// Sums when the present phase began.
    counts: Counts,
    grown: u64,
    /// One for each name.
    phases: Vec<Phase>,
}

struct State {
    names: Vec<String>,
    entered: Vec<u64>,
    seconds: Vec<f64>,
    current: usize,
    begun: Option<Instant>,
    devices: Vec<Device>,
}

static STATE: Mutex<State> = Mutex::new(State {
    names: Vec::new(),
    entered: Vec::new(),
    seconds: Vec::new(),
    current: 0,
    begun: None,
    devices: Vec::new(),
});

impl State {
    /// The device's, made if it is not there.
    fn device(&mut self, ordinal: u32) -> &mut Device {
        let at = self.devices.iter().position(|device| device.ordinal == ordinal);
        let at = at.unwrap_or_else(|| {
            self.devices.push(Device { ordinal, ..Device::default() });
            self.devices.len() - 1
        });
        &mut self.devices[at]
    }

    /// Looks at all gauges, and enters what was found under the present phase.
    fn look(&mut self) {
        let current = self.current;
        for books in contexts::opened_books() {
            let (mut peaks, mut counts) = (Peaks::default(), books.counts.snapshot());
            for life in contexts::all().filter(|life| life.device == books.device) {
                if let Some((requested, allocated, counted)) = life.server.take_recent() {
                    peaks.requested += requested;
                    peaks.allocated += allocated;
                    counts.merge(&counted);
                }
            }
            peaks.reserved = books.account.take_recent_reserved();
            // What was in use had been reserved; of contexts that followed each other the peaks must not add up to more.
            peaks.requested = peaks.requested.min(peaks.reserved);
            peaks.allocated = peaks.allocated.min(peaks.reserved);
            let grown = books.account.reserved().total_allocated;
            let device = self.device(books.device);
            device.since_reset.raise(peaks);
            device.phases.resize(device.phases.len().max(current + 1), Phase::default());
            let (before, grown_before) = (device.counts, device.grown);
            (device.counts, device.grown) = (counts, grown);
            let phase = &mut device.phases[current];
            phase.requested_peak_bytes = phase.requested_peak_bytes.max(peaks.requested);
            phase.allocated_peak_bytes = phase.allocated_peak_bytes.max(peaks.allocated);
            phase.reserved_peak_bytes = phase.reserved_peak_bytes.max(peaks.reserved);
            phase.grown_bytes += grown.saturating_sub(grown_before);
            phase.allocs += counts.alloc.saturating_sub(before.alloc);
            phase.frees += counts.free.saturating_sub(before.free);
            phase.driver_allocs += counts.driver_alloc.saturating_sub(before.driver_alloc);
        }
    }

    /// The number of a name.
    fn number(&mut self, name: &str) -> usize {
        if let Some(at) = self.names.iter().position(|known| known == name) {
            return at;
        }
        if self.names.len() > NAMES {
            return NAMES;
        }
        let name = if self.names.len() == NAMES { OTHERS } else { name };
        self.names.push(name.to_owned());
        self.entered.push(0);
        self.seconds.push(0.0);
        self.names.len() - 1
    }

    fn stop_the_clock(&mut self) {
        let now = Instant::now();
        if let Some(begun) = self.begun.replace(now)
            && let Some(seconds) = self.seconds.get_mut(self.current)
        {
            *seconds += (now - begun).as_secs_f64();
        }
    }
}

/// From now on the process is in the phase of this name.
pub fn mark(name: &str) {
    let Some(mut state) = patiently(&STATE) else { return };
    let mut end = name.len().min(NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    // What came before the first has no name.
    if state.names.is_empty() {
        state.number("");
    }
    state.look();
    state.stop_the_clock();
    let number = state.number(&name[..end]);
    state.current = number;
    state.entered[number] += 1;
    drop(state);
    history::begun(number);
}

/// The name of the present phase; empty for none.
pub fn current() -> String {
    let state = patiently(&STATE);
    state.and_then(|state| state.names.get(state.current).cloned()).unwrap_or_default()
}

/// The names of all phases so far, by their numbers.
pub fn names() -> Vec<String> {
    patiently(&STATE).map(|state| state.names.clone()).unwrap_or_default()
}

/// The peaks of a device since the last reset.
pub fn peaks(device: u32) -> Peaks {
    let Some(mut state) = patiently(&STATE) else { return Peaks::default() };
    state.look();
    state.device(device).since_reset
}

/// Starts those peaks anew, of one device or of all.
pub fn reset(device: Option<u32>) {
    let Some(mut state) = patiently(&STATE) else { return };
    state.look();
    // What is held now has just become the most since the last look; it is found by the next one.
    for of in state.devices.iter_mut().filter(|of| device.is_none_or(|device| of.ordinal == device)) {
        of.since_reset = Peaks::default();
    }
}

/// The phases of a device, for the report; none if no name was ever given.
pub fn of(device: u32) -> Vec<Phase> {
    let Some(mut state) = patiently(&STATE).filter(|state| !state.names.is_empty()) else {
        return Vec::new();
    };
    state.look();
    state.stop_the_clock();
    let phases = state.device(device).phases.clone();
    let known = phases.into_iter().zip(&state.names).zip(state.entered.iter().zip(&state.seconds));
    known
        .map(|((phase, name), (entered, seconds))| Phase {
            name: name.clone(),
            entered: *entered,
            seconds: *seconds,
            ..phase
        })
        .filter(|phase| phase.entered > 0 || phase.allocs > 0)
        .collect()
}
