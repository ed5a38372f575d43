//! How a device's figures went while they were watched: rates, and rows of bars for the last minutes.

use crate::report::model::DeviceReport;
use std::collections::VecDeque;
use std::time::Duration;

/// How far back bars go.
pub const SPAN: Duration = Duration::from_secs(300);

/// Samples kept at most: those of [`SPAN`] at the shortest interval.
const KEPT: usize = 3001;

/// The figures of one look.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    /// When, after the first look.
    pub at: Duration,
    pub allocated: u64,
    pub reserved: u64,
    pub external: u64,
    pub allocs: u64,
    pub hits: u64,
}

impl Sample {
    /// A device's figures at a time.
    pub fn of(device: &DeviceReport, at: Duration) -> Sample {
        Sample {
            at,
            allocated: device.allocated_bytes.current,
            reserved: device.reserved_bytes.current,
            external: device.external_bytes.current,
            allocs: device.counts.alloc,
            hits: device.counts.cache_hit,
        }
    }
}

/// The samples of one device of one process.
#[derive(Debug, Default)]
pub struct History {
    /// How long the process had lived at the first look.
    life: Duration,
    samples: VecDeque<Sample>,
}

/// What passed between two looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Allocations a second.
    pub allocs: f64,
    /// Share of the allocations that needed no driver call, if there were any.
    pub hits: Option<f64>,
    /// Seconds that this is over.
    pub seconds: f64,
}

impl History {
    /// Of a process that has lived for so long.
    pub fn of_life(life: Duration) -> History {
        History { life, samples: VecDeque::new() }
    }

    /// Adds what was seen last.
    pub fn push(&mut self, sample: Sample) {
        self.samples.push_back(sample);
        let old = |first: &Sample| sample.at.saturating_sub(first.at) > SPAN + SPAN / 10;
        while self.samples.len() > KEPT || self.samples.len() > 2 && self.samples.front().is_some_and(old) {
            self.samples.pop_front();
        }
    }

    /// Whether nothing was seen.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Rates since the look before, or of the whole life where there was none.
    pub fn rates(&self) -> Option<Rates> {
        let last = self.samples.back()?;
        match self.samples.len().checked_sub(2).and_then(|at| self.samples.get(at)) {
            Some(before) => between(before, last, last.at.saturating_sub(before.at)),
            None => between(&Sample::default(), last, self.life),
        }
    }

    /// When it was last looked at.
    pub fn last(&self) -> Duration {
        self.samples.back().map_or(Duration::ZERO, |sample| sample.at)
    }

    /// The figure in so many equal parts of [`SPAN`], the last of which ends now: the highest of each, and where nobody
    /// looked what was seen last before. Nothing before the first look.
    pub fn bars(
        &self,
        now: Duration,
        width: usize,
        of: fn(&Sample, Option<&Sample>) -> u64,
    ) -> Vec<Option<u64>> {
        let part = SPAN.as_secs_f64() / width.max(1) as f64;
        // The highest and the last of each part.
        let mut seen: Vec<Option<(u64, u64)>> = vec![None; width];
        let mut before = None;
        for sample in &self.samples {
            let back = (now.saturating_sub(sample.at).as_secs_f64() / part) as usize;
            let value = of(sample, before);
            before = Some(sample);
            if let Some(at) = width.checked_sub(1 + back) {
                let highest = seen[at].map_or(value, |(highest, _)| highest.max(value));
                seen[at] = Some((highest, value));
            }
        }
        let mut last = None;
        let bar = |seen: Option<(u64, u64)>| {
            last = seen.map(|(_, value)| value).or(last);
            seen.map(|(highest, _)| highest).or(last)
        };
        seen.into_iter().map(bar).collect()
    }
}

/// Allocations a second between two samples.
pub fn rate(sample: &Sample, before: Option<&Sample>) -> u64 {
    let rates = before.and_then(|before| between(before, sample, sample.at.saturating_sub(before.at)));
    rates.map_or(0, |rates| rates.allocs.round() as u64)
}

/// What passed between two samples in that time.
fn between(before: &Sample, last: &Sample, time: Duration) -> Option<Rates> {
    let seconds = time.as_secs_f64();
    let allocs = last.allocs.saturating_sub(before.allocs);
    let hits = last.hits.saturating_sub(before.hits).min(allocs);
    (seconds > 0.0).then(|| Rates {
        allocs: allocs as f64 / seconds,
        hits: (allocs > 0).then(|| hits as f64 / allocs as f64),
        seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64, allocs: u64, hits: u64) -> Sample {
        Sample { at: Duration::from_secs(at), allocs, hits, reserved: allocs, ..Sample::default() }
    }

    #[test]
    fn rates_are_of_the_life_first_and_then_of_what_passed_since() {
        let mut history = History::of_life(Duration::from_secs(10));
        assert_eq!(history.rates(), None);
        history.push(sample(0, 100, 50));
        assert_eq!(history.rates(), Some(Rates { allocs: 10.0, hits: Some(0.5), seconds: 10.0 }));
        history.push(sample(2, 500, 450));
        assert_eq!(history.rates(), Some(Rates { allocs: 200.0, hits: Some(1.0), seconds: 2.0 }));
        history.push(sample(4, 500, 450));
        assert_eq!(history.rates(), Some(Rates { allocs: 0.0, hits: None, seconds: 2.0 }));
        assert_eq!(rate(&sample(4, 500, 0), Some(&sample(2, 100, 0))), 200);
    }

    #[test]
    fn bars_end_now_and_begin_where_it_was_first_looked_at() {
        let mut history = History::default();
        let bars =
            |history: &History, now| history.bars(Duration::from_secs(now), 3, |sample, _| sample.reserved);
        for (at, figure) in [(0, 9), (150, 1), (151, 7), (152, 2)] {
            history.push(sample(at, figure, 0));
        }
        assert_eq!(bars(&history, 290), [Some(9), Some(7), Some(2)], "highest of a part, then last before");
        history.push(sample(250, 3, 0));
        assert_eq!(bars(&history, 290), [Some(9), Some(7), Some(3)]);
        assert_eq!(bars(&history, 340), [None, Some(7), Some(3)]);
        assert_eq!(history.bars(Duration::from_secs(290), 0, |sample, _| sample.reserved), []);
    }

    #[test]
    fn what_is_older_than_the_bars_is_forgotten() {
        let mut history = History::default();
        for at in 0..10_000 {
            history.push(sample(at, 0, 0));
        }
        assert!((300..400).contains(&history.samples.len()), "{}", history.samples.len());
        let mut rare = History::default();
        for at in 0..10 {
            rare.push(sample(at * 1000, at, 0));
        }
        assert_eq!(rare.samples.len(), 2, "rates need two");
    }
}
