//! What is served without the heap's lock: from the calling thread's cache, and back into it.
//!
//! A thread whose blocks go round its cache meets the lock only when a ring runs empty or full, a batch at a time. What the
//! heap then lacks is in the caches: the ladder drains them before it gives a request up for more memory.

use super::server::Server;
use super::{CuResult, Gpu};
use crate::pool::local::Thread;
use crate::pool::{CACHED_MAX, Cache, Drain, Kept, Popped, cached_need};

impl<G: Gpu> Server<G> {
    /// The calling thread's cache of this pool.
    #[inline(always)]
    pub(super) fn cache(&self, thread: &Thread) -> Option<&'static Cache> {
        let caches = self.caches;
        thread.find(self.owner, || caches.enter())
    }

    /// Serves `bytes` from memory that is clean now, without any driver call but a poll now and then.
    #[inline(always)]
    pub fn try_hit(&self, thread: &Thread, bytes: u64) -> Option<u64> {
        if !self.fence.is_ordered() {
            return None;
        }
        let rounded = if self.rounds { self.tuning.rounding.round(bytes)? } else { bytes };
        let cache = self.cache(thread);
        if rounded > CACHED_MAX {
            return self.take_large(cache, bytes, rounded);
        }
        let need = cached_need(rounded);
        let Some(cache) = cache else {
            return self.take(None, bytes, rounded, true, false);
        };
        match cache.pop(need, bytes, self.fence.retired()) {
            Popped::Block(address) => Some(address),
            popped => self.try_further(cache, popped, bytes, need),
        }
    }

    /// What the calling thread's cache, or a depot, has for a request now: it may have become clean.
    pub(super) fn pop(&self, cache: Option<&Cache>, bytes: u64, rounded: u64) -> Popped {
        let Some(cache) = cache.filter(|_| rounded <= CACHED_MAX) else { return Popped::Empty };
        let (need, retired) = (cached_need(rounded), self.fence.retired());
        match cache.pop(need, bytes, retired) {
            Popped::Block(address) => Popped::Block(address),
            _ if self.caches.refill(cache, need, retired) => cache.pop(need, bytes, retired),
            none => none,
        }
    }

    /// The ring had nothing at once: ask for what waits in it, fill it from the depot, or go to the heap.
    #[cold]
    fn try_further(&self, cache: &Cache, mut popped: Popped, bytes: u64, need: u64) -> Option<u64> {
        let again = || match cache.pop(need, bytes, self.fence.retired()) {
            Popped::Block(address) => Ok(address),
            other => Err(other),
        };
        let refill = || self.caches.refill(cache, need, self.fence.retired());
        // Blocks that fill their ring, or wait in a depot, were freed long ago, also where nobody has sealed since. With fewer
        // of them one more from the heap costs less than a question.
        let (waiting, round) = match popped {
            Popped::Waiting(epoch) => (Some(epoch), cache.goes_round(need)),
            _ if refill() => return again().ok(),
            _ => {
                let put_away = self.caches.waiting(cache, need);
                (put_away, put_away.is_some())
            }
        };
        if let Some(epoch) = waiting
            && (round || self.fence.has_outstanding())
            && cache.may_poll()
        {
            let answered = self.fence.inquire(epoch, round);
            match again() {
                Ok(address) => return Some(address),
                Err(other) => popped = other,
            }
            if popped == Popped::Empty && refill() {
                return again().ok();
            }
            if answered {
                cache.polled_in_vain();
            }
        }
        if round
            && refill()
            && let Ok(address) = again()
        {
            return Some(address);
        }
        // One request in so many has the heap's lock: what waits makes room for some more of the kind.
        let batch = if round { self.caches.vacate(cache, need) } else { None };
        if let Some(batch) = batch {
            self.locked().heap.take_batch(&batch);
        }
        self.take(Some(cache), bytes, need, true, round || popped == Popped::Empty)
    }

    /// A free has put its block into the calling thread's cache. Calls nothing but, once in so many frees, for a seal. Answers
    /// with the error that the context has failed with, if it has: so would the driver.
    #[inline(always)]
    pub fn keep(&self, kept: Kept<'_>) -> CuResult {
        if self.tuning.free_sync {
            self.fence.host_wait(self.ctx());
        }
        self.put(kept)
    }

    #[inline(always)]
    pub(super) fn put(&self, kept: Kept<'_>) -> CuResult {
        if let Some(due) = kept.put(self.fence.current()) {
            self.turn(due);
        }
        self.standing()
    }

    /// So many frees have gone by: seals if that is due, and leaves figures for those who watch, for whom the heap would not
    /// change as long as everything goes round in caches.
    #[cold]
    pub(super) fn turn(&self, due: bool) {
        if due {
            self.fence.seal();
        }
        self.note_in_passing();
    }

    /// Takes cached blocks back into the heap; false if there were none.
    pub(super) fn drain(&self, which: Drain) -> bool {
        let mut inner = self.locked();
        // Else what is over and has not been noticed would wait behind what is younger.
        self.catch_up(&mut inner);
        self.drain_locked(&mut inner.heap, which)
    }

    pub(super) fn drain_locked(&self, heap: &mut crate::pool::Heap, which: Drain) -> bool {
        self.caches.drain(heap, which, || self.fence.current())
    }
}
