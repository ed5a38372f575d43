//! Requests too large for the threads' caches: one pass under the heap's lock.
//!
//! A larger clean block is not cut before pending memory has been looked at, because cutting costs the next large request
//! its block; and an idle region not before a trade has been thought of (`trade.rs`). How much looking is worth its time
//! depends on how long ago the last look was, and on whether the request is huge.

use super::Gpu;
use super::inner::Inner;
use super::server::Server;
use crate::pool::{Best, Cache, Drain, Epoch, Fit, Fits, GRANULE};
use parking_lot::MutexGuard;

/// Requests served between two drains of the caches for the sake of a tighter fit.
const SERVED_PER_DRAIN: u64 = 16;
/// Requests served between two seals for the sake of a tighter fit; what that costs in memory is in `benches/NOTES.md`.
const SERVED_PER_QUESTION: u64 = 16;

/// What has come of a request.
enum Found {
    /// A clean block to serve it with, if there is one.
    Clean(Option<Best>),
    /// It has been served: the address.
    Served(u64),
}

impl<G: Gpu> Server<G> {
    /// Serves a large request from memory that is clean, or can be known to be without holding anybody up.
    pub(super) fn take_large(&self, cache: Option<&Cache>, bytes: u64, rounded: u64) -> Option<u64> {
        let need = rounded.checked_next_multiple_of(GRANULE)?;
        let mut inner = self.locked();
        self.catch_up(&mut inner);
        if let Some(cache) = cache {
            inner.heap.settle(cache);
        }
        let fits = inner.heap.fits(need, Fit::Any);
        let mut found = Found::Clean(fits.tight(need));
        if let Found::Clean(None) = found {
            (inner, found) = self.look_further(inner, cache, fits, (bytes, need));
        }
        let address = match found {
            Found::Clean(best) => best.map(|best| {
                inner.count(bytes, true);
                inner.heap.take_best(best, need, bytes)
            }),
            Found::Served(address) => Some(address),
        };
        self.pass_by(inner);
        address
    }

    /// What serves the request once everything has been tried that may bring a tighter fit than what there is, which is `fits`.
    #[inline(never)]
    fn look_further<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        cache: Option<&Cache>,
        fits: Fits,
        (bytes, need): (u64, u64),
    ) -> (MutexGuard<'a, Inner>, Found) {
        let mut known = Some(fits);
        if let Some(newest) = inner.heap.newest_pending() {
            // A range is there to waste nothing, and what is cut in it must be moved together again. Where nothing serves the
            // request, the ladder would ask as its first step. And few are huge.
            let seal = self.range_in_use()
                || fits.is_none()
                || inner.heap.is_huge(need)
                || inner.due(SERVED_PER_QUESTION, |inner| &mut inner.served_at_question);
            if seal || self.fence.has_outstanding() {
                let before = inner.seen_retired;
                drop(inner);
                // What is freed is sealed every few frees anyway: mostly a question is all that it takes, and mostly there is none to ask.
                self.fence.inquire(newest, seal);
                inner = self.locked();
                known = None;
                if self.fence.retired() > before {
                    self.catch_up(&mut inner);
                    let fits = inner.heap.fits(need, Fit::Any);
                    if let Some(best) = fits.tight(need) {
                        return (inner, Found::Clean(Some(best)));
                    }
                    known = Some(fits);
                }
            }
        }
        // What other threads have cached and what may join to serve the request.
        if inner.due(SERVED_PER_DRAIN, |inner| &mut inner.served_at_drain)
            && self.drain_locked(&mut inner.heap, Drain::Like(need))
        {
            known = None;
        }
        if let Some(epoch) = self.wait_due(&mut inner, need) {
            drop(inner);
            self.wait_until(epoch);
            inner = self.locked();
            known = None;
        }
        if known.is_none() {
            self.catch_up(&mut inner);
        }
        let mut fits = known.unwrap_or_else(|| inner.heap.fits(need, Fit::Any));
        if fits.begun().is_none() && inner.heap.may_trade(need, &inner.purse) {
            drop(inner);
            let traded = self.trade(cache, bytes, need);
            inner = self.locked();
            if let Some(address) = traded {
                return (inner, Found::Served(address));
            }
            self.catch_up(&mut inner);
            fits = inner.heap.fits(need, Fit::Any);
        }
        let found = inner.heap.choose(need, fits);
        (inner, Found::Clean(found))
    }

    /// What to wait for before a larger clean block is cut, if that is due. Where the GPU lags behind, cutting costs the next
    /// large request its block, and a program up to three times its memory; what waits cost is the business of [`Pace`](super::pace::Pace).
    fn wait_due(&self, inner: &mut Inner, need: u64) -> Option<Epoch> {
        let newest = inner.heap.newest_pending()?;
        // A driver without context-wide events seals nothing; waiting for all is what it can do.
        let epoch = match self.fence.newest_sealed() {
            0 => newest,
            sealed => sealed,
        };
        // That driver's wait is the host's: no more of these than others.
        let huge = inner.heap.is_huge(need) && self.fence.gpu().has_context_events();
        let paced = |served| inner.pace.is_due(served) || huge && inner.pace.is_due_for_huge(served);
        let due = epoch > self.fence.retired() && paced(self.served(inner)) && !self.fence.gate().capturing();
        (due && inner.heap.epoch_needed(need).is_some()).then_some(epoch)
    }
}
