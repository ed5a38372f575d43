//! Peaks of several owners of memory: what they can have held at once. Owners that lived one after the other, as the
//! contexts of a process that resets its device, must not add up.

/// An owner of memory: from when to when it lived, the end excluded, and the most that it held, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First moment.
    pub begin: u64,
    /// First moment after the end; `u64::MAX` for an owner that still lives.
    pub end: u64,
    /// Its peak in bytes.
    pub peak: u64,
}

/// The most that all owners can have held at one moment, in bytes: the largest sum of the peaks of owners that lived at
/// the same time. Exact where no two did, else an upper bound, because they need not have been highest together.
///
/// ```
/// use gpucache::stats::{Span, peak_together};
/// let one = Span { begin: 0, end: 5, peak: 100 };
/// let next = Span { begin: 5, end: u64::MAX, peak: 80 };
/// assert_eq!(peak_together(&[one, next]), 100);
/// assert_eq!(peak_together(&[one, Span { begin: 4, ..next }]), 180);
/// ```
pub fn peak_together(spans: &[Span]) -> u64 {
    // Ends sort before beginnings of the same moment.
    let ends = spans.iter().map(|span| (span.end, false, span.peak));
    let mut changes: Vec<_> = ends
        .chain(spans.iter().map(|span| (span.begin, true, span.peak)))
        .filter(|(.., peak)| *peak > 0)
        .collect();
    changes.sort_unstable();
    let (mut now, mut most) = (0_u64, 0);
    for (_, begins, peak) in changes {
        now = if begins { now.saturating_add(peak) } else { now.saturating_sub(peak) };
        most = now.max(most);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span((begin, length, peak): (u64, u64, u64)) -> Span {
        Span { begin, end: begin + length, peak }
    }

    #[test]
    fn nobody_held_nothing() {
        assert_eq!(peak_together(&[]), 0);
    }

    #[test]
    fn five_in_a_row_do_not_add_up() {
        let row: Vec<Span> = (0..5).map(|at| span((at, 1, 64))).collect();
        assert_eq!(peak_together(&row), 64);
    }

    proptest! {
        #[test]
        fn it_is_the_largest_sum_over_all_moments(
            spans in prop::collection::vec((0..20_u64, 1..10_u64, 0..100_u64).prop_map(span), 0..12)
        ) {
            let at = |moment: u64| -> u64 {
                spans.iter().filter(|span| span.begin <= moment && moment < span.end).map(|span| span.peak).sum()
            };
            prop_assert_eq!(peak_together(&spans), (0..32).map(at).max().unwrap_or(0));
        }
    }
}
