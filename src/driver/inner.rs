//! What the lock of a pool's heap guards: the heap, and the counts by which the pool tells when something is due.

use super::pace::Pace;
use crate::pool::{Caches, Epoch, Heap, Purse, Rules, Usage};
use crate::report::model::{DriverTime, Mapped};
use crate::stats::{Counts, SizeHistogram};

/// Frees after which the current epoch is sealed even if nobody has missed.
pub(super) const FREES_PER_SEAL: u32 = 64;
/// Allocations between two that see to what is nobody's task: they leave figures for those who watch, and one in so many of them asks
/// about the sealed epochs.
pub(super) const ALLOCS_PER_PASS: u32 = 16;
pub(super) const PASSES_PER_POLL: u32 = 4;

/// The heap's state at its high-water mark.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeakMoment {
    /// The heap at that moment.
    pub usage: Usage,
    /// Bytes outside the pools at that moment.
    pub external: u64,
}

pub(super) struct Inner {
    pub heap: Heap,
    pub seen_retired: Epoch,
    pub allocs_to_pass: u32,
    pub passes: u32,
    pub frees_to_seal: u32,
    /// When waits were.
    pub pace: Pace,
    /// Requests served before sealed epochs were last asked about for the sake of a tighter fit.
    pub served_at_question: u64,
    /// Requests served before the caches were last drained for one large request.
    pub served_at_drain: u64,
    /// Requests served before the last miss, and how many misses have followed each other closely.
    pub served_at_miss: u64,
    pub close_misses: u32,
    /// What may be spent on trades.
    pub purse: Purse,
    pub counts: Counts,
    pub histogram: SizeHistogram,
    pub peak: PeakMoment,
    pub driver_time: DriverTime,
    /// Bytes that the driver would not take back and the heap could not; they stay in the account.
    pub stranded: u64,
    /// What has been mapped and moved so far.
    pub mapped: Mapped,
}

impl Inner {
    pub fn new(caches: &'static Caches, rules: Rules) -> Inner {
        Inner {
            heap: Heap::new(caches.owner(), caches.index(), rules),
            seen_retired: 0,
            allocs_to_pass: ALLOCS_PER_PASS,
            passes: 0,
            frees_to_seal: FREES_PER_SEAL,
            pace: Pace::default(),
            served_at_question: 0,
            served_at_drain: 0,
            served_at_miss: 0,
            close_misses: 0,
            purse: Purse::default(),
            counts: Counts::default(),
            histogram: SizeHistogram::default(),
            peak: PeakMoment::default(),
            driver_time: DriverTime::default(),
            stranded: 0,
            mapped: Mapped::default(),
        }
    }

    /// One request of `bytes` has been served.
    #[inline]
    pub fn count(&mut self, bytes: u64, hit: bool) {
        self.counts.alloc += 1;
        self.counts.cache_hit += u64::from(hit);
        self.histogram.record(bytes);
        self.allocs_to_pass = self.allocs_to_pass.saturating_sub(1);
    }

    /// No trade is thought of for a while.
    pub fn put_off_trades(&mut self) {
        let served = self.heap.clock();
        self.purse.put_off(served);
    }

    /// Whether `every` requests have been served since this was last true for the same `moment`.
    pub fn due(&mut self, every: u64, moment: impl FnOnce(&mut Inner) -> &mut u64) -> bool {
        let served = self.heap.clock();
        let last = moment(self);
        let due = served - *last >= every;
        if due {
            *last = served;
        }
        due
    }
}
