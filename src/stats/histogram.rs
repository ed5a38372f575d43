//! Request sizes in power-of-two buckets: which sizes a program lives on, in one kilobyte and one instruction a request.

use std::sync::atomic::{AtomicU64, Ordering};

use super::SizeBucket;

/// Bucket `k` holds sizes above 2^(k-1) and up to 2^k; bucket 0 holds 0 and 1, the last everything above 2^63.
const BUCKETS: usize = 65;

fn bucket_of(size: u64) -> usize {
    // Upper bounds are inclusive, because programs ask for powers of two: 512 belongs to "up to 512".
    (u64::BITS - size.saturating_sub(1).leading_zeros()) as usize
}

fn bounds(bucket: usize) -> (u64, u64) {
    match bucket {
        0 => (0, 1),
        64 => ((1 << 63) + 1, u64::MAX),
        _ => ((1 << (bucket - 1)) + 1, 1 << bucket),
    }
}

fn describe(bucket: usize, count: u64, bytes: u64) -> SizeBucket {
    let (min_bytes, max_bytes) = bounds(bucket);
    SizeBucket { min_bytes, max_bytes, count, bytes }
}

/// Sizes of requests, counted by one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeHistogram {
    slots: [(u64, u64); BUCKETS],
}

impl Default for SizeHistogram {
    fn default() -> Self {
        Self { slots: [(0, 0); BUCKETS] }
    }
}

impl SizeHistogram {
    /// Counts one request of `size` bytes.
    pub fn record(&mut self, size: u64) {
        let (count, bytes) = &mut self.slots[bucket_of(size)];
        *count = count.saturating_add(1);
        *bytes = bytes.saturating_add(size);
    }

    /// Adds the figures of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.slots.iter_mut().zip(&other.slots) {
            mine.0 = mine.0.saturating_add(theirs.0);
            mine.1 = mine.1.saturating_add(theirs.1);
        }
    }

    /// The buckets in which anything was counted, smallest sizes first.
    pub fn buckets(&self) -> Vec<SizeBucket> {
        let counted = self.slots.iter().enumerate().filter(|(_, (count, _))| *count > 0);
        counted.map(|(bucket, &(count, bytes))| describe(bucket, count, bytes)).collect()
    }
}

/// [`SizeHistogram`] that one thread at a time counts in and any thread reads: plain stores, so that counting costs no more
/// than in the other.
#[derive(Debug)]
pub struct OwnedHistogram {
    slots: [(AtomicU64, AtomicU64); BUCKETS],
}

impl Default for OwnedHistogram {
    fn default() -> Self {
        Self { slots: [const { (AtomicU64::new(0), AtomicU64::new(0)) }; BUCKETS] }
    }
}

impl OwnedHistogram {
    /// Counts one request of `size` bytes; by one thread at a time.
    #[inline]
    pub fn record(&self, size: u64) {
        let (count, bytes) = &self.slots[bucket_of(size)];
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        bytes.store(bytes.load(Ordering::Relaxed).wrapping_add(size), Ordering::Relaxed);
    }

    /// Back to nothing.
    #[cfg(any(test, fuzzing))]
    pub fn clear(&self) {
        for (count, bytes) in &self.slots {
            count.store(0, Ordering::Relaxed);
            bytes.store(0, Ordering::Relaxed);
        }
    }

    /// The figures now. A request that is being counted meanwhile may be in one of its two figures only.
    pub fn snapshot(&self) -> SizeHistogram {
        let mut now = SizeHistogram::default();
        for (to, (count, bytes)) in now.slots.iter_mut().zip(&self.slots) {
            *to = (count.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_power_of_two_is_the_last_of_its_bucket() {
        let mut histogram = SizeHistogram::default();
        for size in [257, 512, 513] {
            histogram.record(size);
        }
        assert_eq!(
            histogram.buckets(),
            [
                SizeBucket { min_bytes: 257, max_bytes: 512, count: 2, bytes: 769 },
                SizeBucket { min_bytes: 513, max_bytes: 1024, count: 1, bytes: 513 },
            ]
        );
    }

    #[test]
    fn merging_counts_as_if_one_had_seen_it_all() {
        let mut all = SizeHistogram::default();
        let (mut left, mut right) = (SizeHistogram::default(), SizeHistogram::default());
        for size in [1, 1000, 1 << 20] {
            left.record(size);
            all.record(size);
        }
        right.record(999);
        all.record(999);
        left.merge(&right);
        assert_eq!(all, left);
    }

    #[test]
    fn both_kinds_count_alike() {
        let (owned, mut plain) = (OwnedHistogram::default(), SizeHistogram::default());
        for size in [0, 1, 512, 513, 1 << 40, u64::MAX] {
            owned.record(size);
            plain.record(size);
        }
        assert_eq!(owned.snapshot(), plain);
    }

    #[test]
    fn the_buckets_cover_every_size_once() {
        assert_eq!(bounds(0).0, 0);
        assert_eq!(bounds(BUCKETS - 1).1, u64::MAX);
        for bucket in 1..BUCKETS {
            assert_eq!(bounds(bucket).0, bounds(bucket - 1).1 + 1);
        }
    }

    proptest! {
        #[test]
        fn a_size_lies_within_its_bucket(bits in 0_u32..64, size in any::<u64>()) {
            let size = size >> bits;
            let (min, max) = bounds(bucket_of(size));
            prop_assert!(min <= size && size <= max);
        }
    }
}
