//! Alarms: what should be said while the process runs, and when. Pure rules over readings; who calls them knows the clock.
//!
//! | alarm | raised when |
//! |---|---|
//! | `allocated`, `reserved`, `held` | blocks in use, the pool, or the pool and what is outside it exceed a size, or a share of the cap |
//! | `fragmentation` | the free memory of the pool is in such pieces, and a tenth of the pool and [`LEAST_FREE`] are free |
//! | `growth` | pool and what is outside it have grown by that much within the last minute; not in the first |
//! | `leak` | the lows of blocks in use have risen from minute to minute so many times in a row |
//!
//! Each is said once, and again only after it has ceased and [`QUIET`] is over.

use crate::report::units::human;
use std::collections::VecDeque;
use std::fmt;

/// Nanoseconds of a second and a minute.
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
/// Between two sayings of one alarm, in nanoseconds.
pub const QUIET: u64 = 10 * SECOND;
/// Free bytes below which nobody minds how they lie.
pub const LEAST_FREE: u64 = 32 << 20;
/// What lows must have risen by in all for a leak to be spoken of, in bytes.
const LEAST_LEAK: u64 = 1 << 20;

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Blocks in use.
    Allocated,
    /// What the pool holds.
    Reserved,
    /// What counts against the cap.
    Held,
}

impl Subject {
    fn as_str(self) -> &'static str {
        match self {
            Subject::Allocated => "allocated",
            Subject::Reserved => "reserved",
            Subject::Held => "held",
        }
    }
}

/// When an alarm is raised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Alarm {
    /// Above so many bytes.
    Bytes(Subject, u64),
    /// Above this share of the cap.
    Share(Subject, f64),
    /// Above this fragmentation.
    Fragmentation(f64),
    /// More than so many bytes within a minute.
    Growth(u64),
    /// So many rising lows in a row.
    Leak(usize),
}

impl Alarm {
    /// The word by which it is set.
    pub fn name(&self) -> &'static str {
        match self {
            Alarm::Bytes(subject, _) | Alarm::Share(subject, _) => subject.as_str(),
            Alarm::Fragmentation(_) => "fragmentation",
            Alarm::Growth(_) => "growth",
            Alarm::Leak(_) => "leak",
        }
    }
}

impl Alarm {
    /// The same of a device, which may have no cap: then its memory is meant.
    pub fn in_words(&self, reading: &Reading) -> String {
        match self {
            Alarm::Share(subject, share) if reading.limit >= reading.total => {
                format!("{} above {share} of the device's memory", subject.as_str())
            }
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Alarm::Bytes(subject, bytes) => write!(f, "{} above {}", subject.as_str(), human(*bytes)),
            Alarm::Share(subject, share) => write!(f, "{} above {share} of the cap", subject.as_str()),
            Alarm::Fragmentation(share) => write!(f, "fragmentation above {share}"),
            Alarm::Growth(bytes) => write!(f, "growth above {} a minute", human(*bytes)),
            Alarm::Leak(times) => {
                write!(f, "a leak: the lows of allocated have risen for {times} minutes in a row")
            }
        }
    }
}

/// A device at one moment; bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// Blocks in use.
    pub allocated: u64,
    /// The pool.
    pub reserved: u64,
    /// Outside the pool.
    pub external: u64,
    /// The cap; the device's memory where there is none.
    pub limit: u64,
    /// The device's memory.
    pub total: u64,
    /// Largest free block.
    pub largest_free: u64,
}

impl Reading {
    fn of(&self, subject: Subject) -> u64 {
        match subject {
            Subject::Allocated => self.allocated,
            Subject::Reserved => self.reserved,
            Subject::Held => self.reserved.saturating_add(self.external),
        }
    }
}

/// The state of one alarm.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    raised: bool,
    said: Option<u64>,
}

/// What has been seen of one device.
#[derive(Debug, Default)]
pub struct Watch {
    states: Vec<State>,
    /// What was held, by second, for a minute.
    held: VecDeque<(u64, u64)>,
    /// When the present minute began, and the lowest within it.
    minute: Option<(u64, u64)>,
    /// The lows of minutes past, as long as they rise.
    lows: VecDeque<u64>,
}

/// Commands at most that are run for alarms within a minute, whatever they are about.
pub const MOST_COMMANDS: usize = 10;

/// When commands were run.
#[derive(Debug, Default)]
pub struct Budget {
    run: VecDeque<u64>,
}

impl Budget {
    /// Nothing was run.
    pub const fn new() -> Budget {
        Budget { run: VecDeque::new() }
    }

    /// Whether one may be run at `now`, in nanoseconds; counts it if so.
    pub fn take(&mut self, now: u64) -> bool {
        while self.run.front().is_some_and(|at| now.saturating_sub(*at) >= MINUTE) {
            self.run.pop_front();
        }
        let may = self.run.len() < MOST_COMMANDS;
        if may {
            self.run.push_back(now);
        }
        may
    }
}

/// Minutes whose lows are kept; no alarm asks for more.
pub const MOST_MINUTES: usize = 1440;

impl Watch {
    /// Takes a reading at `now`, in nanoseconds. Returns the alarms that are to be said, by their places in `alarms`, and
    /// what was seen.
    pub fn read(&mut self, alarms: &[Alarm], now: u64, reading: &Reading) -> Vec<(usize, String)> {
        self.states.resize(alarms.len(), State::default());
        let growth = self.growth(now, reading.of(Subject::Held));
        self.note_low(now, reading.allocated);
        let mut said = Vec::new();
        for (at, alarm) in alarms.iter().enumerate() {
            let seen = self.seen(alarm, reading, growth);
            let state = &mut self.states[at];
            let quiet = state.said.is_some_and(|said| now.saturating_sub(said) < QUIET);
            match seen {
                None => state.raised = false,
                Some(seen) if !state.raised && !quiet => {
                    (state.raised, state.said) = (true, Some(now));
                    said.push((at, seen));
                }
                Some(_) => {}
            }
        }
        said
    }

    /// What an alarm says if it is to be raised.
    fn seen(&self, alarm: &Alarm, reading: &Reading, growth: u64) -> Option<String> {
        match *alarm {
            Alarm::Bytes(subject, most) => {
                let bytes = reading.of(subject);
                (bytes > most).then(|| human(bytes))
            }
            Alarm::Share(subject, most) => {
                let (bytes, limit) = (reading.of(subject), reading.limit);
                let above = bytes as f64 > limit as f64 * most;
                above.then(|| format!("{} of {}", human(bytes), human(limit)))
            }
            Alarm::Fragmentation(most) => {
                let free = reading.reserved.saturating_sub(reading.allocated);
                let fragmentation = crate::stats::fragmentation(free, reading.largest_free);
                let matters = free >= LEAST_FREE && free >= reading.reserved / 10;
                let text = || {
                    format!(
                        "{fragmentation:.2}: {} free, the largest piece {}",
                        human(free),
                        human(reading.largest_free)
                    )
                };
                // With memory free there is a largest piece: none means that nobody has looked yet.
                (matters && reading.largest_free > 0 && fragmentation > most).then(text)
            }
            Alarm::Growth(most) => (growth > most).then(|| human(growth)),
            Alarm::Leak(times) => {
                let (last, first) = (self.lows.back()?, self.lows.iter().rev().nth(times)?);
                let risen = last.saturating_sub(*first);
                let text = || format!("from {} to {}", human(*first), human(*last));
                (risen >= LEAST_LEAK).then(text)
            }
        }
    }

    /// What is held more than a minute ago; 0 before there is a minute to speak of.
    fn growth(&mut self, now: u64, held: u64) -> u64 {
        if self.held.back().is_none_or(|(at, _)| now.saturating_sub(*at) >= SECOND) {
            self.held.push_back((now, held));
        }
        // The last that is a minute old, or older, stays.
        while self.held.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) >= MINUTE) {
            self.held.pop_front();
        }
        match self.held.front() {
            Some((at, before)) if now.saturating_sub(*at) >= MINUTE => held.saturating_sub(*before),
            _ => 0,
        }
    }

    fn note_low(&mut self, now: u64, allocated: u64) {
        let (began, low) = self.minute.unwrap_or((now, allocated));
        if now.saturating_sub(began) < MINUTE {
            self.minute = Some((began, low.min(allocated)));
            return;
        }
        if self.lows.back().is_some_and(|last| low <= *last) {
            self.lows.clear();
        }
        self.lows.push_back(low);
        if self.lows.len() > MOST_MINUTES + 1 {
            self.lows.pop_front();
        }
        self.minute = Some((now, allocated));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_few_in_any_minute() {
        let mut budget = Budget::new();
        let taken = |budget: &mut Budget, from: u64, to: u64| {
            (from..to).filter(|second| budget.take(second * SECOND)).count()
        };
        assert_eq!(taken(&mut budget, 100, 130), MOST_COMMANDS);
        assert_eq!(taken(&mut budget, 130, 160), 0);
        assert_eq!(taken(&mut budget, 160, 165), 5, "as many as are a minute old");
    }

    const MIB: u64 = 1 << 20;

    fn reading(allocated: u64, reserved: u64) -> Reading {
        let (limit, largest_free) = (1000 * MIB, 10 * MIB);
        Reading {
            allocated: allocated * MIB,
            reserved: reserved * MIB,
            external: 0,
            limit,
            total: 8000 * MIB,
            largest_free,
        }
    }

    /// The places of the alarms that are said for each of the readings, a second apart.
    fn said(alarms: &[Alarm], step: u64, readings: impl IntoIterator<Item = Reading>) -> Vec<Vec<usize>> {
        let mut watch = Watch::default();
        let read = |(at, reading)| {
            let raised = watch.read(alarms, 7 + at as u64 * step, &reading);
            raised.into_iter().map(|(at, _)| at).collect()
        };
        readings.into_iter().enumerate().map(read).collect()
    }

    #[test]
    fn a_threshold_is_said_once_until_it_has_been_left() {
        let alarms = [Alarm::Bytes(Subject::Allocated, 100 * MIB), Alarm::Share(Subject::Reserved, 0.5)];
        let steps = [(100, 500), (101, 501), (300, 900), (50, 900), (300, 900), (50, 200), (101, 501)];
        let all = said(&alarms, QUIET, steps.map(|(allocated, reserved)| reading(allocated, reserved)));
        assert_eq!(all, [vec![], vec![0, 1], vec![], vec![], vec![0], vec![], vec![0, 1]]);
    }

    #[test]
    fn one_that_comes_and_goes_is_not_said_all_the_time_and_not_forgotten() {
        let alarms = [Alarm::Bytes(Subject::Held, 100 * MIB)];
        let readings = (0..25).map(|at| reading(0, if at % 2 == 0 { 200 } else { 50 }));
        let all = said(&alarms, SECOND, readings);
        let when: Vec<usize> = (0..all.len()).filter(|at| !all[*at].is_empty()).collect();
        assert_eq!(when, [0, 10, 20]);
        // It is raised within the quiet time, and stays.
        let all = said(&alarms, SECOND, [200, 50, 200].into_iter().chain([200; 20]).map(|at| reading(0, at)));
        let when: Vec<usize> = (0..all.len()).filter(|at| !all[*at].is_empty()).collect();
        assert_eq!(when, [0, 10]);
    }

    #[test]
    fn what_is_outside_the_pool_counts_against_the_cap() {
        let mut outside = reading(0, 300);
        outside.external = 300 * MIB;
        let alarms = [Alarm::Share(Subject::Held, 0.5), Alarm::Share(Subject::Reserved, 0.5)];
        assert_eq!(said(&alarms, SECOND, [outside]), [[0]]);
    }

    #[test]
    fn fragmentation_counts_where_much_is_free() {
        let alarms = [Alarm::Fragmentation(0.5)];
        let steps = [(0, 20), (960, 1000), (900, 1000), (0, 40)].map(|(a, r)| reading(a, r));
        assert_eq!(said(&alarms, MINUTE, steps), [vec![], vec![], vec![0], vec![]]);
    }

    #[test]
    fn growth_is_that_of_the_last_minute_and_not_of_the_start() {
        let alarms = [Alarm::Growth(50 * MIB)];
        let at = |second: u64| reading(0, if second < 70 { 800 } else { 800 + (second - 70) });
        let all = said(&alarms, SECOND, (0..200).map(at));
        let when: Vec<usize> = (0..all.len()).filter(|at| !all[*at].is_empty()).collect();
        assert_eq!(when, [121], "51 MiB more than a minute before");
    }

    #[test]
    fn a_leak_shows_in_the_lows_and_not_in_the_peaks() {
        let alarms = [Alarm::Leak(3)];
        // Every minute goes from its low to 500 MiB and back.
        let minutes = |lows: &[u64]| -> Vec<Reading> {
            lows.iter().flat_map(|low| [*low, 500, 400 + low, 500]).map(|a| reading(a, 1000)).collect()
        };
        let when = |lows: &[u64]| {
            let all = said(&alarms, MINUTE / 4, minutes(lows));
            all.iter().position(|said| !said.is_empty()).map(|at| at / 4)
        };
        assert_eq!(
            when(&[10, 11, 12, 13, 14, 15]),
            Some(4),
            "three rises, once the minute of the last is over"
        );
        assert_eq!(when(&[10, 11, 12, 12, 13, 14, 14, 15, 9, 10]), None);
        assert_eq!(when(&[10; 20]), None);
    }

    #[test]
    fn where_there_is_no_cap_a_share_is_one_of_the_device() {
        let alarm = Alarm::Share(Subject::Held, 0.5);
        let capped = reading(1, 1);
        assert_eq!(alarm.in_words(&capped), "held above 0.5 of the cap");
        let free = Reading { limit: capped.total, ..capped };
        assert_eq!(alarm.in_words(&free), "held above 0.5 of the device's memory");
        assert_eq!(Alarm::Leak(3).in_words(&free), Alarm::Leak(3).to_string());
    }
}
