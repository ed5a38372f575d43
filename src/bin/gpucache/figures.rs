//! The figures that reports are compared and added up by: one list, so that `diff` and `merge` speak of the same things in the
//! same words.

use crate::report::model::{DeviceReport, Peak};
use crate::report::units::{duration, grouped, human};

/// What a figure counts, and so how it is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    Count,
    /// Between 0 and 1.
    Ratio,
    /// Nanoseconds.
    Time,
}

/// How the figures of several devices become one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Together {
    Sum,
    Most,
    Least,
}

/// One figure of a device.
pub struct Figure {
    /// Its name in JSON.
    pub key: &'static str,
    /// Its name for people.
    pub label: &'static str,
    pub unit: Unit,
    pub of: fn(&DeviceReport) -> f64,
    /// What stands for several of them.
    pub together: Together,
}

fn at_peak(device: &DeviceReport, of: fn(&Peak) -> u64) -> f64 {
    device.peak.as_ref().map_or(0, of) as f64
}

macro_rules! figure {
    ($key:literal, $label:literal, $unit:ident, $together:ident, $of:expr) => {
        Figure { key: $key, label: $label, unit: Unit::$unit, of: $of, together: Together::$together }
    };
}

/// Every figure, in the order in which they are shown.
pub const FIGURES: [Figure; 26] = [
    figure!("reserved_bytes_peak", "reserved, peak", Bytes, Sum, |d| d.reserved_bytes.peak as f64),
    figure!("allocated_bytes_peak", "allocated, peak", Bytes, Sum, |d| d.allocated_bytes.peak as f64),
    figure!("requested_bytes_peak", "requested, peak", Bytes, Sum, |d| d.requested_bytes.peak as f64),
    figure!("cached_bytes_at_peak", "cached at the peak", Bytes, Sum, |d| at_peak(d, |p| p.cached_bytes)),
    figure!("external_bytes_peak", "outside the pool, peak", Bytes, Sum, |d| d.external_bytes.peak as f64),
    figure!("fragmentation_at_peak", "fragmentation at the peak", Ratio, Most, |d| d.fragmentation.at_peak),
    figure!("headroom_bytes", "left at the closest", Bytes, Least, |d| d.headroom_bytes as f64),
    figure!("limit_bytes", "cap", Bytes, Most, |d| d.limit_bytes as f64),
    figure!("reserved_bytes_at_exit", "reserved at the end", Bytes, Sum, |d| d.reserved_bytes.current as f64),
    figure!("largest_free_block_bytes", "largest free block at the end", Bytes, Most, |d| {
        d.largest_free_block_bytes as f64
    }),
    figure!("fragmentation_at_exit", "fragmentation at the end", Ratio, Most, |d| d.fragmentation.at_exit),
    figure!("live_at_exit_bytes", "never freed", Bytes, Sum, |d| d.live_at_exit.bytes as f64),
    figure!("live_at_exit_blocks", "never freed, blocks", Count, Sum, |d| d.live_at_exit.blocks as f64),
    figure!("alloc", "allocations", Count, Sum, |d| d.counts.alloc as f64),
    figure!("free", "frees", Count, Sum, |d| d.counts.free as f64),
    figure!("cache_hit", "served without a driver call", Count, Sum, |d| d.counts.cache_hit as f64),
    figure!("driver_alloc", "driver allocations", Count, Sum, |d| d.counts.driver_alloc as f64),
    figure!("driver_free", "driver frees", Count, Sum, |d| d.counts.driver_free as f64),
    figure!("barrier", "barriers", Count, Sum, |d| d.counts.barrier as f64),
    figure!("oom", "out of memory", Count, Sum, |d| d.counts.oom as f64),
    figure!("retry", "served after giving back", Count, Sum, |d| d.counts.retry as f64),
    figure!("gc", "garbage collections", Count, Sum, |d| d.counts.gc as f64),
    figure!("invalid_free", "invalid frees", Count, Sum, |d| d.counts.invalid_free as f64),
    figure!("forwarded", "forwarded calls", Count, Sum, |d| d.counts.forwarded as f64),
    figure!("driver_alloc_ns", "time in driver allocations", Time, Sum, |d| {
        d.driver_time.map_or(0, |time| time.alloc_ns) as f64
    }),
    figure!("driver_free_ns", "time in driver frees", Time, Sum, |d| {
        d.driver_time.map_or(0, |time| time.free_ns) as f64
    }),
];

impl Figure {
    /// Its value for several devices.
    pub fn of_all(&self, devices: &[DeviceReport]) -> f64 {
        let values = devices.iter().map(self.of);
        match self.together {
            Together::Sum => values.sum(),
            Together::Most => values.fold(0.0, f64::max),
            Together::Least => values.reduce(f64::min).unwrap_or(0.0),
        }
    }

    /// Whether the figures of several processes have a sum.
    pub fn adds(&self) -> bool {
        self.together == Together::Sum
    }
}

impl Unit {
    /// The figure with its unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Bytes => human(value.max(0.0) as u64),
            Self::Count => grouped(value.max(0.0).round() as u64),
            Self::Ratio => format!("{value:.2}"),
            Self::Time => time(value),
        }
    }

    /// A difference, with its sign.
    pub fn show_change(self, change: f64) -> String {
        let sign = if change < 0.0 { '−' } else { '+' };
        format!("{sign}{}", self.show(change.abs()))
    }
}

/// Nanoseconds in the unit that suits.
fn time(nanoseconds: f64) -> String {
    let seconds = nanoseconds / 1e9;
    match seconds {
        s if s < 1e-3 => format!("{:.1} µs", nanoseconds / 1e3),
        s if s < 1.0 => format!("{:.1} ms", nanoseconds / 1e6),
        _ => duration(seconds),
    }
}

/// The change from `a` to `b` relative to `a`; none from nothing.
pub fn relative(a: f64, b: f64) -> Option<f64> {
    (a != 0.0).then(|| (b - a) / a)
}

/// A relative change in per cent, with its sign.
pub fn show_relative(change: Option<f64>) -> String {
    match change {
        None => String::new(),
        Some(change) if change < 0.0 => format!("−{:.1} %", -100.0 * change),
        Some(change) => format!("+{:.1} %", 100.0 * change),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn figures_have_names_of_their_own_and_their_units() {
        for (i, figure) in FIGURES.iter().enumerate() {
            assert!(
                FIGURES[..i].iter().all(|f| f.key != figure.key && f.label != figure.label),
                "{}",
                figure.key
            );
        }
        let device = &sample::training().devices[0];
        let shown = |key: &str| {
            let figure = FIGURES.iter().find(|figure| figure.key == key).unwrap();
            figure.unit.show((figure.of)(device))
        };
        assert_eq!(shown("reserved_bytes_peak"), "7.61 GiB");
        assert_eq!(shown("alloc"), "29,850");
        assert_eq!(shown("fragmentation_at_exit"), "0.25");
        assert_eq!(shown("driver_alloc_ns"), "0.0 µs");
    }

    #[test]
    fn changes_have_signs() {
        assert_eq!(Unit::Bytes.show_change(-1024.0), "−1.00 KiB");
        assert_eq!(Unit::Ratio.show_change(0.5), "+0.50");
        assert_eq!(show_relative(relative(4.0, 5.0)), "+25.0 %");
        assert_eq!(show_relative(relative(4.0, 3.0)), "−25.0 %");
        assert_eq!(show_relative(relative(0.0, 3.0)), "");
        assert_eq!((time(1.5e3), time(2.5e6), time(3e9)), ("1.5 µs".into(), "2.5 ms".into(), "3.0 s".into()));
    }
}
