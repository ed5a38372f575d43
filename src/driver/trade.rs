//! Makes the trades that the pool decides on: see `pool/trade.rs`.

use super::backing::Grow;
use super::server::Server;
use super::{Gpu, real};
use crate::pool::{Cache, Fit, Trade};
use std::time::Instant;

impl<G: Gpu> Server<G> {
    /// Serves a request for which an idle region would have to be cut from a region of its own, if that is to be.
    pub(super) fn trade(&self, cache: Option<&Cache>, bytes: u64, rounded: u64) -> Option<u64> {
        if self.fence.gate().capturing() || self.has_range() {
            return None;
        }
        let begun = Instant::now();
        // Who finds another thread growing the heap does not wait for it: that is for those who find no memory.
        let _turn = self.growing.try_lock()?;
        let need = rounded.max(bytes);
        let under_cap = |trade: &Trade| trade.take <= self.books.account.headroom();
        let trade = {
            let mut inner = self.locked();
            let trade = inner.heap.trade(need)?;
            if !under_cap(&trade) || !inner.heap.can_pay(&trade, &inner.purse) {
                inner.put_off_trades();
                return None;
            }
            trade
        };
        // The driver's free waits for the device, so that is done first, with a bound. It works meanwhile, but then it has nothing to
        // do for a moment, and perhaps no trade is made after all: so the wait is paid for by itself.
        let done = self.fence.is_idle() || (self.pays_wait(&trade) && self.await_idle(begun));
        if !done {
            self.locked().put_off_trades();
            return None;
        }
        // There must be room beside what is given: who gives first, and then finds that others have taken the room, has made memory
        // in hand into none. Asked once and without the lock, for it is a call.
        let free = real::driver_free(self.books.device).unwrap_or(u64::MAX);
        let trade = {
            let mut inner = self.locked();
            self.catch_up(&mut inner);
            // What was pending is clean now: perhaps no idle region has to be cut any more.
            let fits = inner.heap.fits(need, Fit::Any);
            if fits.begun().or(fits.tight(need)).is_some() {
                return None;
            }
            let inner = &mut *inner;
            let trade = inner.heap.trade(need).filter(|trade| under_cap(trade) && trade.take <= free)?;
            inner.heap.pay(&trade, &mut inner.purse).then_some(trade)?
        };
        if let Some(region) = trade.give
            && self.return_region(&region) == 0
        {
            return None;
        }
        self.grow_and_take(cache, bytes, rounded, Grow::Least).ok()
    }

    /// Pays for a wait if there may be one. A driver without context-wide events could only be waited for without a bound.
    fn pays_wait(&self, trade: &Trade) -> bool {
        let may_wait = self.patience.next().is_some() && self.fence.gpu().has_context_events();
        let mut inner = self.locked();
        let inner = &mut *inner;
        may_wait && inner.heap.pay_wait(trade, &mut inner.purse)
    }
}
