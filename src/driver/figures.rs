//! What a pool tells a report: the heap's figures, with what the threads' caches have counted.

use super::Gpu;
use super::inner::{Inner, PeakMoment};
use super::server::Server;
use crate::pool::{BlockState, Drain, Heap, Usage};
use crate::report::model::{DriverTime, Mapped};
use crate::stats::{Counts, SizeHistogram};
use crate::sync::patiently;

/// What a pool tells a report.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The heap now.
    pub usage: Usage,
    /// What happened how often.
    pub counts: Counts,
    /// Sizes of all requests.
    pub histogram: SizeHistogram,
    /// The high-water mark.
    pub peak: PeakMoment,
    /// Requested sizes of what is live, each with how many blocks.
    pub live: SizeHistogram,
    /// Time inside the driver calls that grew and shrank the heap.
    pub driver_time: DriverTime,
    /// The range, of a pool that has one.
    pub mapped: Option<Mapped>,
    /// When the heap held memory: [`Heap::lived`].
    pub lived: Option<(u64, u64)>,
}

impl<G: Gpu> Server<G> {
    /// The pool's figures, after what has retired and with what was cached back in the heap.
    pub fn usage(&self) -> Usage {
        let mut inner = self.locked();
        self.catch_up(&mut inner);
        self.drain_locked(&mut inner.heap, Drain::All);
        self.usage_of(&inner.heap)
    }

    pub(super) fn usage_of(&self, heap: &Heap) -> Usage {
        let mut usage = heap.usage();
        self.caches.add_to(&mut usage);
        usage
    }

    /// The heap's invariants, while no thread uses the pool.
    ///
    /// # Errors
    /// A text that says what is broken.
    #[cfg(any(test, fuzzing))]
    pub fn check(&self) -> Result<(), String> {
        self.locked().heap.check_with(Some(self.caches))
    }

    /// The figures for a report, if the lock can be had in time: at exit another thread may have died with it.
    pub fn figures(&self) -> Option<Figures> {
        let mut inner = patiently(&self.inner)?;
        self.drain_locked(&mut inner.heap, Drain::All);
        Some(Figures {
            usage: self.usage_of(&inner.heap),
            counts: self.counts_of(&inner),
            histogram: self.histogram_of(&inner),
            peak: inner.peak,
            live: live_sizes(&inner.heap),
            driver_time: inner.driver_time,
            mapped: Server::<G>::mapped_figures(&inner),
            lived: inner.heap.lived(),
        })
    }

    /// The counts, with those of the threads' caches.
    pub(super) fn counts_of(&self, inner: &Inner) -> Counts {
        let mut counts = inner.counts;
        let served = self.caches.allocs();
        counts.alloc += served;
        counts.cache_hit += served;
        counts.free += self.caches.frees();
        counts
    }

    /// Sizes of all requests, with those that the threads' caches have served.
    pub(super) fn histogram_of(&self, inner: &Inner) -> SizeHistogram {
        let mut histogram = inner.histogram.clone();
        histogram.merge(&self.caches.sizes());
        histogram
    }

    /// Remembers the heap's state if its high-water mark has risen.
    pub(super) fn note_peak(&self) {
        let external = self.books.account.external().current;
        let mut inner = self.locked();
        // Only where it counts: a look for the largest free piece is not for nothing.
        if inner.heap.reserved().current >= inner.peak.usage.reserved.current {
            let usage = self.usage_of(&inner.heap);
            self.chronicle_peak(&inner, &usage, inner.peak.usage.reserved.current);
            inner.peak = PeakMoment { usage, external };
        }
    }
}

fn live_sizes(heap: &Heap) -> SizeHistogram {
    let mut sizes = SizeHistogram::default();
    let blocks = heap.snapshot().into_iter().flat_map(|region| region.blocks);
    blocks.filter(|block| block.state == BlockState::Live).for_each(|block| sizes.record(block.requested));
    sizes
}
