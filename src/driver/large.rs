//! Requests too large for the threads' caches: one pass under the heap's lock.
//!
//! A larger clean block is not cut before pending memory has been looked at, because cutting costs the next large request
//! its block; and an idle region not before a trade has been thought of (`trade.rs`). How much looking is worth its time
//! depends on how long ago the last look was: everything here is bounded by the requests served since.

use super::Gpu;
use super::server::{Inner, Server};
use crate::pool::{Drain, Epoch, Fit, SMALL_MAX};
use parking_lot::MutexGuard;

/// Requests served between two waits that are not forced: with 16 a wait costs a program of overlapping streams nothing
/// measurable, with one it costs it all overlap.
pub(super) const SERVED_PER_BARRIER: u64 = 16;
/// Requests served between two drains of the caches for the sake of a tighter fit.
const SERVED_PER_DRAIN: u64 = 4;
/// Requests served between two seals for the sake of a tighter fit; what that costs in memory is in `benches/NOTES.md`.
const SERVED_PER_QUESTION: u64 = 16;

impl<G: Gpu> Server<G> {
    /// Serves a large request from memory that is clean, or can be known to be without holding anybody up.
    pub(super) fn take_large(&self, bytes: u64, rounded: u64) -> Option<u64> {
        let mut inner = self.locked();
        let mut address = self.take_locked(&mut inner, bytes, rounded, Fit::Tight, true);
        if address.is_none() {
            (inner, address) = self.look_further(inner, bytes, rounded);
        }
        self.pass_by(inner);
        address
    }

    #[inline(never)]
    fn look_further<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        bytes: u64,
        rounded: u64,
    ) -> (MutexGuard<'a, Inner>, Option<u64>) {
        let take = |inner: &mut Inner, fit| self.take_locked(inner, bytes, rounded, fit, true);
        if let Some(newest) = inner.heap.newest_pending() {
            // A range is there to waste nothing, and what is cut in it must be moved together again.
            let seal =
                self.has_range() || inner.due(SERVED_PER_QUESTION, |inner| &mut inner.served_at_question);
            if seal || self.fence.newest_sealed() > self.fence.retired() {
                drop(inner);
                // What is freed is sealed every few frees anyway: mostly a question is all that it takes, and mostly there is none to ask.
                let more = if seal { self.fence.refresh(newest) } else { self.fence.poll() };
                inner = self.locked();
                if more && let Some(address) = take(&mut inner, Fit::Tight) {
                    return (inner, Some(address));
                }
            }
        }
        // What other threads have cached and what may join to serve the request.
        if inner.due(SERVED_PER_DRAIN, |inner| &mut inner.served_at_drain) {
            self.drain_locked(&mut inner.heap, Drain::Like(rounded));
        }
        if let Some(epoch) = self.wait_due(&mut inner, rounded) {
            drop(inner);
            self.wait_until(epoch);
            inner = self.locked();
        }
        if inner.heap.may_trade(rounded, &inner.purse) {
            if let Some(address) = take(&mut inner, Fit::Begun) {
                return (inner, Some(address));
            }
            drop(inner);
            let traded = self.trade(bytes, rounded);
            inner = self.locked();
            if traded.is_some() {
                return (inner, traded);
            }
        }
        let address = take(&mut inner, Fit::Any);
        (inner, address)
    }

    /// What to wait for before a larger clean block is cut, if that is due. Where the GPU lags behind, cutting costs the next
    /// large request its block, and a program up to three times its memory; a wait this rare costs it nothing.
    fn wait_due(&self, inner: &mut Inner, rounded: u64) -> Option<Epoch> {
        let newest = inner.heap.newest_pending()?;
        // A driver without context-wide events seals nothing; waiting for all is what it can do.
        let epoch = match self.fence.newest_sealed() {
            0 => newest,
            sealed => sealed,
        };
        let due = epoch > self.fence.retired()
            && self.served(inner) - inner.served_at_barrier >= SERVED_PER_BARRIER
            && rounded > SMALL_MAX
            && !self.fence.gate().capturing();
        (due && inner.heap.epoch_needed(rounded).is_some()).then_some(epoch)
    }
}

impl Inner {
    /// Whether `every` requests have been served since this was last true for the same `moment`.
    fn due(&mut self, every: u64, moment: impl FnOnce(&mut Inner) -> &mut u64) -> bool {
        let served = self.heap.clock();
        let last = moment(self);
        let due = served - *last >= every;
        if due {
            *last = served;
        }
        due
    }
}
