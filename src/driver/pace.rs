//! How often a pool makes the device wait for memory that it could do without.
//!
//! What counts is how many reuses one wait serves: with 16 requests or more between two, waits cost a program of overlapping
//! streams nothing that can be measured, with one they cost it all overlap. For a [huge](crate::pool::Heap::is_huge) request more
//! of them are worth it: where it cuts a larger block, the peak of what is reserved rises with it. Such requests come in bursts,
//! so what is not used of their share is kept for the next burst, and what is used in advance is owed, both up to a bound.

/// Requests served between two waits: more than 16, to make up for those for huge requests (`benches/NOTES.md`).
const SERVED_PER_WAIT: u64 = 24;
/// The same on the average for the sake of huge requests, and how many of these waits may follow each other at once.
const SERVED_PER_HUGE: u64 = 4;
const AT_ONCE: u64 = 16;

/// When the waits of one pool were, counted in requests served.
#[derive(Debug, Default)]
pub struct Pace {
    last: u64,
    /// Requests that have been used up by waits: perhaps some that are not served yet.
    used: u64,
}

impl Pace {
    /// Whether a wait is due, after `served` requests.
    pub fn is_due(&self, served: u64) -> bool {
        served - self.last >= SERVED_PER_WAIT
    }

    /// The same for a huge request.
    pub fn is_due_for_huge(&self, served: u64) -> bool {
        self.used(served) + SERVED_PER_HUGE <= served
    }

    /// A wait was made.
    pub fn waited(&mut self, served: u64) {
        self.last = served;
        self.used = self.used(served) + SERVED_PER_HUGE;
    }

    fn used(&self, served: u64) -> u64 {
        const BOUND: u64 = AT_ONCE * SERVED_PER_HUGE;
        self.used.clamp(served.saturating_sub(BOUND), served + BOUND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits of a program whose every request would make one, if that is due by `is_due`.
    fn waits(pace: &mut Pace, served: std::ops::Range<u64>, is_due: fn(&Pace, u64) -> bool) -> usize {
        let due = |served: &u64| {
            let due = is_due(pace, *served);
            if due {
                pace.waited(*served);
            }
            due
        };
        served.filter(due).count()
    }

    #[test]
    fn one_wait_serves_many_requests() {
        assert_eq!(waits(&mut Pace::default(), 0..100 * SERVED_PER_WAIT, Pace::is_due), 99);
        let late = 1_000_000..1_000_000 + SERVED_PER_WAIT;
        assert_eq!(waits(&mut Pace::default(), late, Pace::is_due), 1, "nothing is kept");
    }

    #[test]
    fn huge_requests_have_a_burst_of_waits_and_then_one_in_four() {
        let pace = &mut Pace::default();
        assert!(!pace.is_due_for_huge(SERVED_PER_HUGE - 1), "nothing to begin with");
        assert_eq!(waits(pace, 10_000..10_001, Pace::is_due_for_huge), 1);
        assert_eq!(waits(pace, 10_001..10_020, Pace::is_due_for_huge), 19);
        assert_eq!(waits(pace, 10_020..10_420, Pace::is_due_for_huge), 100);
    }

    #[test]
    fn whoever_waits_uses_up_what_the_others_may() {
        let pace = &mut Pace::default();
        for served in 10_000..10_000 + 2 * AT_ONCE {
            pace.waited(served);
        }
        assert!(!pace.is_due_for_huge(10_000 + 2 * AT_ONCE));
        assert!(pace.is_due_for_huge(10_000 + 4 * AT_ONCE * SERVED_PER_HUGE));
        for served in 20_000..30_000 {
            pace.waited(served);
        }
        assert!(pace.is_due_for_huge(30_000 + 2 * AT_ONCE * SERVED_PER_HUGE), "what is owed is bounded, too");
    }
}
