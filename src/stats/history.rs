//! What happened when, kept while the process runs: a ring of events, and samples over the whole of its life.
//!
//! An event is eight words in a ring of fixed size, so that a slot is a cache line. Whoever has something to say takes the
//! next number and with it a slot; nobody waits, nothing is allocated, and the oldest events make room. A slot's first word
//! says which event it holds, and is odd while somebody writes:
//!
//! | first word | the slot |
//! |---|---|
//! | 0 | was never used |
//! | `2n + 1` | is being written by event `n` |
//! | `2n + 2` | holds event `n` |
//!
//! A writer that finds another in its slot, a whole turn of the ring behind or ahead, gives its event up: it counts as lost.
//!
//! Samples are taken by whoever comes by when it is time. They are not to fall off the end as events do: once there are
//! too many, every other one is dropped and half as many are taken from then on, so they always reach back to the start.

use crate::report::history::What;
use crate::sync::{AtomicU64, Ordering, fence};
use parking_lot::Mutex;

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Happening {
    /// When, in nanoseconds of the keeper's clock.
    pub at: u64,
    /// What.
    pub what: What,
    /// The device's ordinal.
    pub device: u8,
    /// Number of the pool.
    pub pool: u16,
    /// Number of the phase that the process was in.
    pub phase: u16,
    /// How much it was about.
    pub bytes: u64,
    /// Where.
    pub address: u64,
    /// What the pools of the device held afterwards.
    pub reserved: u64,
    /// What was in use of that.
    pub allocated: u64,
    /// What was held outside them.
    pub external: u64,
}

impl Happening {
    fn words(&self) -> [u64; WORDS] {
        let kind = u64::from(self.what as u8)
            | u64::from(self.device) << 8
            | u64::from(self.pool) << 16
            | u64::from(self.phase) << 32;
        [self.at, kind, self.bytes, self.address, self.reserved, self.allocated, self.external]
    }

    fn from_words(words: [u64; WORDS]) -> Option<Happening> {
        let [at, kind, bytes, address, reserved, allocated, external] = words;
        let what = What::ALL.into_iter().find(|what| *what as u64 == kind & 0xff)?;
        let (device, pool, phase) = ((kind >> 8) as u8, (kind >> 16) as u16, (kind >> 32) as u16);
        Some(Happening { at, what, device, pool, phase, bytes, address, reserved, allocated, external })
    }
}

/// Words of an event.
const WORDS: usize = 7;

#[repr(align(64))]
struct Slot<const N: usize> {
    state: AtomicU64,
    words: [AtomicU64; N],
}

impl<const N: usize> Slot<N> {
    fn new() -> Slot<N> {
        Slot { state: AtomicU64::new(0), words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Writes event `number`, unless a later one is there or another thread is writing: whether it did.
    fn write(&self, number: u64, words: [u64; N]) -> bool {
        let before = self.state.load(Ordering::Relaxed);
        let writing = 2 * number + 1;
        let mine = before.is_multiple_of(2)
            && before < writing
            && self.state.compare_exchange(before, writing, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if mine {
            // A reader that sees any of the words sees that the slot is being written.
            fence(Ordering::Release);
            for (to, word) in self.words.iter().zip(words) {
                to.store(word, Ordering::Relaxed);
            }
            self.state.store(writing + 1, Ordering::Release);
        }
        mine
    }

    /// The words of event `number`, if it is here and stays until they are read.
    fn read(&self, number: u64) -> Option<[u64; N]> {
        let holds = |order| self.state.load(order) == 2 * number + 2;
        if !holds(Ordering::Acquire) {
            return None;
        }
        let words = std::array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        holds(Ordering::Relaxed).then_some(words)
    }
}

/// The ring.
pub struct Ring {
    slots: Box<[Slot<WORDS>]>,
    next: AtomicU64,
    /// Events that gave way to another in their slot.
    given_up: AtomicU64,
}

/// What a ring holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// By number, which is nearly by time.
    pub events: Vec<Happening>,
    /// Events so far.
    pub recorded: u64,
    /// Those of them that are not here.
    pub lost: u64,
}

impl Ring {
    /// An empty ring for so many events. This is all the memory that it ever takes.
    pub fn new(capacity: usize) -> Ring {
        let slots = (0..capacity.max(1)).map(|_| Slot::new()).collect();
        Ring { slots, next: AtomicU64::new(0), given_up: AtomicU64::new(0) }
    }

    /// Events that there is room for.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Adds an event. Waits for nobody.
    pub fn push(&self, event: &Happening) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if !self.slot(number).write(number, event.words()) {
            self.given_up.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What is there now. Others may go on adding; what they overwrite meanwhile counts as lost.
    pub fn read(&self) -> Recorded {
        let recorded = self.next.load(Ordering::Acquire);
        let first = recorded.saturating_sub(self.slots.len() as u64);
        let events: Vec<Happening> = (first..recorded).filter_map(|number| self.event(number)).collect();
        let lost = recorded - events.len() as u64;
        Recorded { events, recorded, lost }
    }

    fn event(&self, number: u64) -> Option<Happening> {
        self.slot(number).read(number).and_then(Happening::from_words)
    }

    fn slot(&self, number: u64) -> &Slot<WORDS> {
        &self.slots[(number % self.slots.len() as u64) as usize]
    }
}

/// A reading of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// When, in nanoseconds of the keeper's clock.
    pub at: u64,
    /// The device's ordinal.
    pub device: u32,
    /// What its pools held.
    pub reserved: u64,
    /// What was in use of that.
    pub allocated: u64,
    /// What was held outside them.
    pub external: u64,
}

/// Readings over a whole life.
pub struct Samples {
    /// When the next is due.
    due: AtomicU64,
    kept: Mutex<Kept>,
}

struct Kept {
    interval: u64,
    most: usize,
    readings: Vec<Reading>,
}

impl Samples {
    /// None yet. The first two are taken `interval` apart, and there are never more than `most`.
    pub fn new(most: usize, interval: u64) -> Samples {
        let most = most.max(2);
        let kept = Kept { interval: interval.max(1), most, readings: Vec::with_capacity(most) };
        Samples { due: AtomicU64::new(0), kept: Mutex::new(kept) }
    }

    /// Whether it is time for one.
    #[inline]
    pub fn is_due(&self, now: u64) -> bool {
        now >= self.due.load(Ordering::Relaxed)
    }

    /// Adds readings of one moment, one for each device. Where another thread does so, this does nothing.
    pub fn add(&self, now: u64, readings: impl Iterator<Item = Reading>) {
        let Some(mut kept) = self.kept.try_lock() else { return };
        if !self.is_due(now) {
            return;
        }
        for reading in readings {
            if kept.readings.len() == kept.most {
                kept.thin_out();
            }
            kept.readings.push(reading);
        }
        self.due.store(now + kept.interval, Ordering::Relaxed);
    }

    /// All of them by time; none if their lock cannot be had in time.
    pub fn all(&self) -> Vec<Reading> {
        crate::sync::patiently(&self.kept).map(|kept| kept.readings.clone()).unwrap_or_default()
    }
}

impl Kept {
    /// Drops every other moment; what is left are those twice as far apart.
    fn thin_out(&mut self) {
        let (mut moment, mut last) = (0_u32, None);
        let before = self.readings.len();
        self.readings.retain(|reading| {
            if last != Some(reading.at) {
                moment += u32::from(last.is_some());
                last = Some(reading.at);
            }
            moment.is_multiple_of(2)
        });
        if self.readings.len() == before {
            self.readings.truncate(before / 2); // one moment fills it all
        }
        self.interval = self.interval.saturating_mul(2);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn words(number: u64) -> [u64; 2] {
        [number + 10, number + 20]
    }

    #[test]
    fn who_reads_while_another_writes_sees_one_event_or_none() {
        loom::model(|| {
            let slot = Arc::new(Slot::<2>::new());
            assert!(slot.write(0, words(0)));
            let writer = {
                let slot = Arc::clone(&slot);
                thread::spawn(move || slot.write(1, words(1)))
            };
            let reader = {
                let slot = Arc::clone(&slot);
                thread::spawn(move || [slot.read(0), slot.read(1)])
            };
            assert!(writer.join().unwrap());
            let [first, second] = reader.join().unwrap();
            assert!(first.is_none_or(|seen| seen == words(0)));
            assert!(second.is_none_or(|seen| seen == words(1)));
            assert_eq!((slot.read(0), slot.read(1)), (None, Some(words(1))));
        });
    }

    #[test]
    fn of_two_who_write_the_later_stays() {
        loom::model(|| {
            let slot = Arc::new(Slot::<2>::new());
            let write = |number| {
                let slot = Arc::clone(&slot);
                thread::spawn(move || slot.write(number, words(number)))
            };
            let (earlier, later) = (write(0), write(1));
            let (earlier, later) = (earlier.join().unwrap(), later.join().unwrap());
            assert!(earlier || later);
            assert_eq!(slot.read(1), later.then_some(words(1)));
            assert_eq!(slot.read(0), (earlier && !later).then_some(words(0)));
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    fn event(number: u64) -> Happening {
        let what = What::ALL[number as usize % What::ALL.len()];
        Happening {
            at: number,
            what,
            device: number as u8,
            pool: 7,
            phase: number as u16,
            bytes: number * 3,
            address: number << 20,
            reserved: !number,
            allocated: number ^ 0x55,
            external: number + 1,
        }
    }

    #[test]
    fn the_last_events_stay_and_the_others_are_counted() {
        let ring = Ring::new(4);
        assert_eq!(ring.read(), Recorded { events: vec![], recorded: 0, lost: 0 });
        for number in 0..3 {
            ring.push(&event(number));
        }
        assert_eq!(ring.read(), Recorded { events: (0..3).map(event).collect(), recorded: 3, lost: 0 });
        for number in 3..11 {
            ring.push(&event(number));
        }
        assert_eq!(ring.read(), Recorded { events: (7..11).map(event).collect(), recorded: 11, lost: 7 });
    }

    #[test]
    fn no_event_is_ever_mixed_of_two() {
        let ring = Arc::new(Ring::new(8));
        let write = |writer: u64| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                for number in 0..20_000 {
                    ring.push(&event(writer * 1_000_000 + number));
                }
            })
        };
        let writers: Vec<_> = (0..4).map(write).collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            for seen in ring.read().events {
                assert_eq!(seen, event(seen.at));
            }
        }
        for writer in writers {
            writer.join().unwrap();
        }
        let last = ring.read();
        assert_eq!(last.recorded, 80_000);
        assert_eq!(last.lost + last.events.len() as u64, 80_000);
        assert!(!last.events.is_empty());
    }

    #[test]
    fn a_writer_a_turn_behind_leaves_the_later_event_alone() {
        let ring = Ring::new(2);
        for number in 0..5 {
            ring.push(&event(number));
        }
        // As if a thread had been stopped after it took its number: event 4 lies where it would write.
        ring.next.store(2, Ordering::Relaxed);
        ring.push(&event(99));
        ring.next.store(5, Ordering::Relaxed);
        assert_eq!(ring.read().events, [event(3), event(4)]);
    }

    #[test]
    fn samples_reach_back_to_the_start_however_long_it_takes() {
        let samples = Samples::new(8, 10);
        for at in 0..10_000 {
            if samples.is_due(at) {
                let reading = |device| Reading { at, device, reserved: at, allocated: 0, external: 0 };
                samples.add(at, [reading(0), reading(1)].into_iter());
            }
        }
        let all = samples.all();
        assert!((4..=8).contains(&all.len()), "{all:?}");
        assert_eq!(all[0].at, 0, "{all:?}");
        assert!(all.last().unwrap().at > 5_000, "{all:?}");
        let times: Vec<u64> = all.iter().step_by(2).map(|reading| reading.at).collect();
        let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| *gap == gaps[0]), "as far from each other everywhere: {gaps:?}");
        assert!(all.chunks(2).all(|pair| pair[0].at == pair[1].at && pair[0].device != pair[1].device));
    }

    #[test]
    fn samples_are_not_taken_before_it_is_time() {
        let samples = Samples::new(8, 10);
        let reading = |at| std::iter::once(Reading { at, device: 0, reserved: 0, allocated: 0, external: 0 });
        samples.add(5, reading(5));
        samples.add(14, reading(14));
        samples.add(15, reading(15));
        assert_eq!(samples.all().iter().map(|reading| reading.at).collect::<Vec<_>>(), [5, 15]);
    }
}
