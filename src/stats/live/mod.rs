//! The live file: the figures of a running process in a small shared file, so that they outlive it. A process that is
//! killed, or crashes, leaves behind what a report needs; one that runs can be looked at.
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | the layout, and the words |
//! | `fields.rs` | one list of a device's fields, for writing and reading alike |
//! | `view.rs` | what a reader makes of the words, every number checked |
//! | `files.rs` | where live files lie, whose they are, and whether their processes live |
//! | `mailbox.rs` | what another process may ask of the one that the file is about |
//!
//! The file is a row of 64-bit words in the machine's byte order. The whole figures exist twice and are written in turns,
//! each between an odd and an even sequence number: whenever the process dies, one of the two is complete. The *quick*
//! words beside them are single figures that change more often.

mod fields;
mod files;
mod mailbox;
#[cfg(test)]
mod tests;
mod view;

pub use files::{
    Fate, Found, MOST_STALE, STALE_KEPT, boot, fate, fate_and_word, folders, list, list_all, name_of,
    namespace, paths, places, read, started_at, sweep,
};
pub use mailbox::{Answer, Command, Mailbox, Unanswered, Why, ask};
pub use view::{Refusal, View, is_start};

use crate::report::cap::SetBy;
use crate::report::model::{DeviceReport, Setting};
use crate::stats::Gauge;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The first word: these letters.
const MAGIC: u64 = u64::from_ne_bytes(*b"gpucache");
/// Version of the layout. A reader refuses every other one.
const VERSION: u64 = 1;

/// Devices that there is room for.
pub const DEVICES: usize = 16;
/// Moments of out of memory that there is room for, by device.
const OOMS: usize = 4;

/// Positions of single words.
mod at {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    pub const WORDS: usize = 2;
    pub const PID: usize = 3;
    pub const START: usize = 4;
    pub const BOOT: usize = 5;
    pub const NAMESPACE: usize = 6;
    pub const UID: usize = 7;
    pub const STARTED: usize = 8;
    pub const UPDATED: usize = 9;
    /// 1 once a reader has seen that the process had become another program.
    pub const REPLACED: usize = 10;
    pub const RUNS: usize = 11;
    pub const MAILBOX: usize = RUNS + super::RUNS;
    pub const COMMAND: usize = 32;
    pub const CONFIG: usize = COMMAND + 1 + super::COMMAND_WORDS;
    pub const NOTES_SEQUENCE: usize = CONFIG + 1 + super::CONFIG_WORDS;
    pub const NOTES: usize = NOTES_SEQUENCE + 1;
    pub const QUICK: usize = NOTES + 1 + super::NOTES_WORDS;
    pub const SLOTS: usize = QUICK + super::DEVICES * super::QUICK_WORDS;
    /// What an answer has to say in words. Behind all else, where earlier versions have nothing.
    pub const SAID: usize = SLOTS + 2 * super::SLOT_WORDS;
}

/// Runs of the tool that there is room for.
const RUNS: usize = 5;
/// Room for texts, in words.
const COMMAND_WORDS: usize = 64;
const CONFIG_WORDS: usize = 511;
const NOTES_WORDS: usize = 255;
const SAID_WORDS: usize = 384;
/// Words of a device's quick figures.
const QUICK_WORDS: usize = 12;
/// Words of a device's whole figures.
const DEVICE_WORDS: usize = 448;
/// Words of one of the two copies: its sequence number, the number of devices, and those.
const SLOT_WORDS: usize = 2 + DEVICES * DEVICE_WORDS;
/// Words of the file.
pub const WORDS: usize = (at::SAID + 1 + SAID_WORDS).next_multiple_of(512);
/// Bytes of the file.
pub const BYTES: usize = WORDS * 8;

/// Whose file it is; does not change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Identity {
    /// Process id, as the process itself sees it.
    pub pid: u32,
    /// When the process started, in the kernel's ticks: tells a reused number apart.
    pub start: u64,
    /// Which boot of the machine.
    pub boot: u64,
    /// Which namespace of process ids: numbers of containers mean nothing outside.
    pub namespace: u64,
    /// The user.
    pub uid: u32,
    /// When the library was loaded, in nanoseconds since 1970.
    pub started: u64,
    /// Runs of the tool that it belongs to, the innermost last; the last five.
    pub runs: Vec<u64>,
    /// Command line.
    pub command: String,
    /// Settings in effect.
    pub config: Vec<Setting>,
}

/// The single figures of one device that are written most often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quick {
    /// Whether the device is in use at all.
    pub used: u64,
    /// Bytes that the program has asked for.
    pub requested: u64,
    /// Bytes of the blocks for that.
    pub allocated: u64,
    /// Bytes that the pool holds, and the most it held.
    pub reserved: u64,
    /// The most that the pool held.
    pub reserved_peak: u64,
    /// Bytes outside the pool.
    pub external: u64,
    /// The most that was held outside the pool.
    pub external_peak: u64,
    /// The cap.
    pub limit: u64,
    /// Allocations served.
    pub allocs: u64,
    /// Frees.
    pub frees: u64,
    /// Allocations without a driver call.
    pub hits: u64,
    /// Who has changed the cap, as a number ([`SetBy::code`]).
    pub cap_set_by: u64,
}

impl Quick {
    fn words(&self) -> [u64; QUICK_WORDS] {
        [
            self.used,
            self.requested,
            self.allocated,
            self.reserved,
            self.reserved_peak,
            self.external,
            self.external_peak,
            self.limit,
            self.allocs,
            self.frees,
            self.hits,
            self.cap_set_by,
        ]
    }

    fn from_words(words: &[u64]) -> Quick {
        let word = |at: usize| words.get(at).copied().unwrap_or(0);
        Quick {
            used: word(0),
            requested: word(1),
            allocated: word(2),
            reserved: word(3),
            reserved_peak: word(4),
            external: word(5),
            external_peak: word(6),
            limit: word(7),
            allocs: word(8),
            frees: word(9),
            hits: word(10),
            cap_set_by: word(11),
        }
    }

    /// Brings a device's whole figures up to these, which are newer.
    fn apply(&self, device: &mut DeviceReport) {
        let set = |gauge: &mut Gauge, current: u64, peak: u64| {
            gauge.current = current;
            gauge.peak = gauge.peak.max(peak).max(current);
            gauge.total_allocated = gauge.total_allocated.max(gauge.peak);
            gauge.total_freed = gauge.total_freed.max(gauge.total_allocated - current);
        };
        set(&mut device.requested_bytes, self.requested, 0);
        set(&mut device.allocated_bytes, self.allocated, 0);
        set(&mut device.reserved_bytes, self.reserved, self.reserved_peak);
        set(&mut device.external_bytes, self.external, self.external_peak);
        device.limit_bytes = self.limit;
        if let Some(from) = &mut device.cap_from {
            from.set_by = SetBy::from_code(self.cap_set_by);
        }
        device.counts.alloc = device.counts.alloc.max(self.allocs);
        device.counts.free = device.counts.free.max(self.frees);
        device.counts.cache_hit = device.counts.cache_hit.max(self.hits);
        device.live_at_exit.blocks = device.counts.alloc.saturating_sub(device.counts.free);
        device.live_at_exit.bytes = self.requested;
    }
}

/// The words of a live file, for the one process that writes them. One thread at a time writes whole figures; quick ones
/// any thread may.
#[derive(Clone, Copy)]
pub struct Words(&'static [AtomicU64]);

impl Words {
    /// Writes what does not change into an empty file of [`WORDS`] words. `None` if there are fewer.
    pub fn begin(words: &'static [AtomicU64], identity: &Identity) -> Option<Words> {
        let words = Words(words.get(..WORDS)?);
        words.set(at::VERSION, VERSION);
        words.set(at::WORDS, WORDS as u64);
        words.set(at::PID, identity.pid.into());
        words.set(at::START, identity.start);
        words.set(at::BOOT, identity.boot);
        words.set(at::NAMESPACE, identity.namespace);
        words.set(at::UID, identity.uid.into());
        words.set(at::STARTED, identity.started);
        words.set(at::UPDATED, identity.started);
        for (at, run) in identity.runs.iter().rev().take(RUNS).rev().enumerate() {
            words.set(at::RUNS + at, *run);
        }
        words.text(at::COMMAND, COMMAND_WORDS, &identity.command);
        // Whole or not at all: half of it would be no JSON.
        let config = serde_json::to_string(&identity.config).unwrap_or_default();
        words.text(at::CONFIG, CONFIG_WORDS, if config.len() <= CONFIG_WORDS * 8 { &config } else { "[]" });
        // Last: from now on a reader takes the rest for good.
        words.0[at::MAGIC].store(MAGIC, Ordering::Release);
        Some(words)
    }

    fn set(self, at: usize, value: u64) {
        self.0[at].store(value, Ordering::Relaxed);
    }

    /// A text of at most `room` words behind a word with its length in bytes; cut where it is longer.
    fn text(self, at: usize, room: usize, text: &str) {
        let mut end = text.len().min(room * 8);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        for (at, bytes) in (at + 1..).zip(text.as_bytes()[..end].chunks(8)) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.set(at, u64::from_ne_bytes(word));
        }
        self.set(at, end as u64);
    }

    /// When figures were last written, in nanoseconds since 1970.
    pub fn updated(self) -> u64 {
        self.0[at::UPDATED].load(Ordering::Relaxed)
    }

    /// Writes the quick figures of a device; a few dozen stores and nothing else.
    pub fn quick(self, device: u32, quick: &Quick, now: u64) {
        let device = device as usize;
        if device < DEVICES {
            for (at, word) in (at::QUICK + device * QUICK_WORDS..).zip(quick.words()) {
                self.set(at, word);
            }
            self.set(at::UPDATED, now);
        }
    }

    /// Writes the whole figures of all devices over the older copy.
    pub fn whole(self, devices: &mut [DeviceReport]) {
        let sequence = |copy: usize| self.0[at::SLOTS + copy * SLOT_WORDS].load(Ordering::Relaxed);
        let (first, second) = (sequence(0), sequence(1));
        let older = usize::from(second < first);
        // Even, and above both.
        let next = (first.max(second) | 1) + 1;
        let start = at::SLOTS + older * SLOT_WORDS;
        self.0[start].store(next - 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let devices = devices.iter_mut().filter(|device| (device.ordinal as usize) < DEVICES);
        let mut count = 0;
        for (place, device) in devices.take(DEVICES).enumerate() {
            let from = start + 2 + place * DEVICE_WORDS;
            // Cannot fail for want of room: the tests hold the fullest device against DEVICE_WORDS.
            let _ = fields::device(&mut fields::Writer::new(&self.0[from..from + DEVICE_WORDS]), device);
            count += 1;
        }
        self.set(start + 1, count);
        self.0[start].store(next, Ordering::Release);
    }

    /// Writes the report's remarks.
    pub fn notes(self, notes: &[String]) {
        let sequence = self.0[at::NOTES_SEQUENCE].load(Ordering::Relaxed) | 1;
        self.set(at::NOTES_SEQUENCE, sequence);
        fence(Ordering::Release);
        self.text(at::NOTES, NOTES_WORDS, &notes.join("\n"));
        self.0[at::NOTES_SEQUENCE].store(sequence + 1, Ordering::Release);
    }

    /// What other processes ask.
    pub fn mailbox(self) -> Mailbox {
        Mailbox::new(self.0)
    }
}
