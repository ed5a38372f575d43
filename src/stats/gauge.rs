//! Gauges: how many bytes now, how many at most, how many ever. [`Gauge`] belongs to one owner; [`SharedGauge`] is
//! updated by many threads and can also admit or refuse an addition in one atomic step, which is what holds a cap.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Gauge;

impl Gauge {
    /// Adds `n` bytes.
    pub fn add(&mut self, n: u64) {
        self.current = self.current.saturating_add(n);
        self.peak = self.peak.max(self.current);
        self.total_allocated = self.total_allocated.saturating_add(n);
    }

    /// Takes `n` bytes away; never below zero.
    pub fn sub(&mut self, n: u64) {
        self.current = self.current.saturating_sub(n);
        self.total_freed = self.total_freed.saturating_add(n);
    }

    /// Adds the figures of a gauge that counted other memory.
    ///
    /// The merged peak is an upper bound, the sum of both: the two need not have been highest at the same time.
    pub fn merge(&mut self, other: &Self) {
        self.current = self.current.saturating_add(other.current);
        self.peak = self.peak.saturating_add(other.peak);
        self.total_allocated = self.total_allocated.saturating_add(other.total_allocated);
        self.total_freed = self.total_freed.saturating_add(other.total_freed);
    }
}

/// A [`Gauge`] that any number of threads update without a lock.
///
/// `current` alone decides admissions; the other figures are for the report and only ever grow. Relaxed order suffices:
/// each is one atomic variable, whose changes all threads see in one order, and no other memory is published by it.
#[derive(Debug, Default)]
pub struct SharedGauge {
    current: AtomicU64,
    peak: AtomicU64,
    recent: AtomicU64,
    total_allocated: AtomicU64,
    total_freed: AtomicU64,
}

impl SharedGauge {
    /// A gauge at zero.
    pub const fn new() -> Self {
        Self {
            current: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            recent: AtomicU64::new(0),
            total_allocated: AtomicU64::new(0),
            total_freed: AtomicU64::new(0),
        }
    }

    /// Adds `n` bytes.
    pub fn add(&self, n: u64) {
        // A limit that no sum exceeds: the addition saturates there instead of wrapping.
        let _ = self.admit(|current| Some(current.saturating_add(n)), n);
    }

    /// Adds `n` bytes if the sum stays at or below `limit`, in one atomic step: however many threads add at once, the
    /// sum of what was admitted and not taken away never exceeds the limit.
    ///
    /// # Errors
    /// The bytes that were there when the addition was refused. Nothing has changed then.
    pub fn try_add_below(&self, n: u64, limit: u64) -> Result<(), u64> {
        self.admit(|current| current.checked_add(n).filter(|&sum| sum <= limit), n)
    }

    fn admit(&self, sum: impl Fn(u64) -> Option<u64>, n: u64) -> Result<(), u64> {
        let before = self.current.fetch_update(Ordering::Relaxed, Ordering::Relaxed, &sum)?;
        // The sum as this thread left it, not a second load: every high point is some thread's sum, so none is missed.
        let after = sum(before).unwrap_or(before);
        self.peak.fetch_max(after, Ordering::Relaxed);
        self.recent.fetch_max(after, Ordering::Relaxed);
        self.total_allocated.fetch_add(n, Ordering::Relaxed);
        Ok(())
    }

    /// Takes `n` bytes away; never below zero.
    pub fn sub(&self, n: u64) {
        let lower = |current: u64| Some(current.saturating_sub(n));
        let _ = self.current.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
        self.total_freed.fetch_add(n, Ordering::Relaxed);
    }

    /// Bytes now.
    pub fn current(&self) -> u64 {
        self.current.load(Ordering::Relaxed)
    }

    /// Most bytes at any moment.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Most bytes since the last call; from now on, most bytes from now on. Exact where no other thread adds meanwhile.
    pub fn take_recent(&self) -> u64 {
        let recent = self.recent.swap(self.current(), Ordering::Relaxed);
        // A thread that added in between may have been overwritten.
        self.recent.fetch_max(self.current(), Ordering::Relaxed);
        recent
    }

    /// All readings. While other threads add and take away, they need not be of the same instant, but `peak` is never
    /// shown below `current`.
    pub fn snapshot(&self) -> Gauge {
        let current = self.current();
        Gauge {
            current,
            peak: self.peak().max(current),
            total_allocated: self.total_allocated.load(Ordering::Relaxed),
            total_freed: self.total_freed.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_keeps_its_high_point_and_its_sums() {
        let mut plain = Gauge::default();
        let shared = SharedGauge::new();
        for n in [100, 50] {
            plain.add(n);
            shared.add(n);
        }
        plain.sub(120);
        shared.sub(120);
        plain.add(10);
        shared.add(10);
        let expected = Gauge { current: 40, peak: 150, total_allocated: 160, total_freed: 120 };
        assert_eq!(plain, expected);
        assert_eq!(shared.snapshot(), expected);
    }

    #[test]
    fn a_recent_high_point_is_told_once() {
        let gauge = SharedGauge::new();
        gauge.add(100);
        gauge.sub(70);
        assert_eq!(gauge.take_recent(), 100);
        assert_eq!(gauge.take_recent(), 30);
        gauge.add(5);
        gauge.sub(35);
        assert_eq!((gauge.take_recent(), gauge.take_recent(), gauge.peak()), (35, 0, 100));
    }

    #[test]
    fn nothing_wraps() {
        let mut plain = Gauge::default();
        let shared = SharedGauge::new();
        plain.sub(1);
        shared.sub(1);
        assert_eq!((plain.current, shared.current()), (0, 0));
        for _ in 0..2 {
            plain.add(u64::MAX);
            shared.add(u64::MAX);
        }
        assert_eq!((plain.current, shared.current()), (u64::MAX, u64::MAX));
        assert_eq!(shared.try_add_below(1, u64::MAX), Err(u64::MAX));
    }

    #[test]
    fn merging_adds_up() {
        let mut sum = Gauge { current: 1, peak: 5, total_allocated: 10, total_freed: 9 };
        sum.merge(&Gauge { current: 2, peak: 3, total_allocated: 4, total_freed: 2 });
        assert_eq!(sum, Gauge { current: 3, peak: 8, total_allocated: 14, total_freed: 11 });
    }

    #[test]
    fn an_addition_is_admitted_up_to_the_limit_and_refused_above_without_a_trace() {
        let gauge = SharedGauge::new();
        assert_eq!(gauge.try_add_below(60, 100), Ok(()));
        let before = gauge.snapshot();
        assert_eq!(gauge.try_add_below(41, 100), Err(60));
        assert_eq!(gauge.snapshot(), before);
        assert_eq!(gauge.try_add_below(40, 100), Ok(()));
        assert_eq!(gauge.try_add_below(0, 100), Ok(()));
        assert_eq!(gauge.try_add_below(1, 0), Err(100));
    }

    #[test]
    fn racing_threads_are_never_over_admitted() {
        const LIMIT: u64 = 1000;
        let gauge = SharedGauge::new();
        // What was admitted, counted apart: a check-then-add gauge overshoots here although its own figure may look fine.
        let held = AtomicU64::new(0);
        let highest = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8_u64 {
                let (gauge, held, highest) = (&gauge, &held, &highest);
                scope.spawn(move || {
                    for round in 0..20_000_u64 {
                        let n = 1 + (thread * 131 + round * 17) % 400;
                        if gauge.try_add_below(n, LIMIT).is_ok() {
                            highest.fetch_max(held.fetch_add(n, Ordering::SeqCst) + n, Ordering::SeqCst);
                            held.fetch_sub(n, Ordering::SeqCst);
                            gauge.sub(n);
                        }
                    }
                });
            }
        });
        let highest = highest.into_inner();
        assert!(highest <= LIMIT, "{highest}");
        let end = gauge.snapshot();
        assert_eq!(end.current, 0);
        assert!(end.peak <= LIMIT && end.peak >= highest, "{end:?}, {highest}");
        assert_eq!(end.total_allocated, end.total_freed);
    }
}
