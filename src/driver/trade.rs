//! Makes the trades that the pool decides on: see `pool/trade.rs`.

use super::Gpu;
use super::backing::Grow;
use super::server::Server;
use crate::pool::Cache;

impl<G: Gpu> Server<G> {
    /// Serves a request for which an idle region would have to be cut from a region of its own, if that is to be.
    pub(super) fn trade(&self, cache: Option<&Cache>, bytes: u64, rounded: u64) -> Option<u64> {
        if self.fence.gate().capturing() || self.has_range() {
            return None;
        }
        // Who finds another thread growing the heap does not wait for it: that is for those who find no memory.
        let _turn = self.growing.try_lock()?;
        let headroom = self.books.account.headroom();
        let need = rounded.max(bytes);
        self.locked().heap.trade(need)?;
        // The driver's free waits for the device. A trade saves memory, and no job is to wait for that.
        if !self.fence.is_idle() {
            let mut inner = self.locked();
            let served = inner.heap.clock();
            inner.purse.put_off(served);
            return None;
        }
        let trade = {
            let mut inner = self.locked();
            let inner = &mut *inner;
            inner.heap.trade(need).filter(|trade| inner.heap.pay(trade, &mut inner.purse))?
        };
        if trade.take > headroom + trade.give.map_or(0, |region| region.size) {
            return None;
        }
        if let Some(region) = trade.give
            && self.return_region(&region) == 0
        {
            return None;
        }
        self.grow_and_take(cache, bytes, rounded, Grow::Least).ok()
    }
}
