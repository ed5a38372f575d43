//! Trades: an idle region for one of the size that is asked for.
//!
//! Where only an idle region can serve a request, cutting it leaves a rest that fits little of what comes next, because the
//! sizes of a program's steps differ. What is lost so is most of what a program reserves beyond what it uses. To take a region
//! of the right size instead, and to give back an idle one where the high-water mark would rise, leaves no rest and costs two
//! driver calls, of which one would wait for the device. So trades are few:
//!
//! - only while the program is near its peak, because elsewhere the rests fit below the mark anyway;
//! - only for huge requests, which make a difference;
//! - only if one region given back suffices;
//! - only when the device is done with what it has to do, which may be waited for, with a bound and at a price;
//! - and no more than the [`Purse`] has: what the calls cost, shared among all requests, is some 40 ns each.

use super::heap::Heap;
use super::region::{Idle, PAGE};

/// Near the peak: so many per cent of it are in use.
const NEAR_PEAK: u64 = 80;
/// What a trade costs besides the bytes given back, in bytes: the driver takes as long for two calls as for a free of so much.
const CALLS: u64 = 192 << 20;
/// What it costs besides to wait for a busy device, which has nothing to do from then on until the program goes on.
const PAUSE: u64 = 128 << 20;
/// What a request earns, in bytes given back, each of which takes the driver 0.35 ps.
const EARNED: u64 = 96 << 10;

/// Requests served before a trade is thought of again.
const PUT_OFF: u64 = 64;

/// What a heap may spend on trades.
#[derive(Debug, Default)]
pub struct Purse {
    spent: u64,
    /// Not before so many requests have been served.
    put_off: u64,
}

impl Purse {
    /// No trade is thought of for a while: the device did not get done, or there was no room, or too little in the purse.
    pub fn put_off(&mut self, served: u64) {
        self.put_off = served + PUT_OFF;
    }

    /// Whether it has as much as the cheapest trade costs.
    fn has_any(&self, most: u64, served: u64) -> bool {
        served >= self.put_off && CALLS <= self.has(most, served)
    }

    /// What `served` requests have earned: a purse has never more than `most` in it, and that from the start.
    fn has(&self, most: u64, served: u64) -> u64 {
        let earned = served.saturating_mul(EARNED);
        earned.saturating_add(most).saturating_sub(self.spent.max(earned))
    }

    /// Pays `cost` if there is that and `further` in it.
    fn pay(&mut self, cost: u64, further: u64, most: u64, served: u64) -> bool {
        let pays = cost + further <= self.has(most, served);
        if pays {
            self.spent = self.spent.max(served.saturating_mul(EARNED)) + cost;
        }
        pays
    }
}

/// What to do instead of cutting an idle region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trade {
    /// The region to give back first.
    pub give: Option<Idle>,
    /// Bytes of the region to take.
    pub take: u64,
}

impl Trade {
    fn cost(&self) -> u64 {
        CALLS + self.give.map_or(0, |region| region.size)
    }
}

impl Heap {
    /// Whether a trade is to be thought of before an idle region is cut for `need` bytes. O(1).
    pub fn may_trade(&self, need: u64, purse: &Purse) -> bool {
        let (reserved, allocated) = (self.gauges.reserved, self.gauges.allocated);
        let near_peak = allocated.current.saturating_add(need) / NEAR_PEAK >= allocated.peak / 100;
        self.is_huge(need)
            && near_peak
            && self.gauges.idle >= need
            && purse.has_any(reserved.peak, self.clock)
    }

    /// The trade by which a request of `need` bytes that only an idle region serves may be answered, if any.
    pub fn trade(&self, need: u64) -> Option<Trade> {
        let reserved = self.gauges.reserved;
        let mut idle = Vec::new();
        self.idle_regions(&mut idle);
        let take = need.checked_next_multiple_of(PAGE)?;
        if !idle.iter().any(|region| self.serves(region.size, need)) {
            return None; // none of them would be cut
        }
        let excess = (reserved.current + take).saturating_sub(reserved.peak);
        let mut give = None;
        if excess > 0 {
            let enough = idle.into_iter().filter(|region| region.size >= excess);
            give = Some(enough.min_by_key(|region| (region.size, region.addr))?);
        }
        Some(Trade { give, take })
    }

    /// Whether the purse has as much as a trade costs.
    pub fn can_pay(&self, trade: &Trade, purse: &Purse) -> bool {
        trade.cost() <= purse.has(self.gauges.reserved.peak, self.clock)
    }

    /// Pays for a wait for the device, to be followed by a trade, if the purse has as much as both cost.
    pub fn pay_wait(&self, trade: &Trade, purse: &mut Purse) -> bool {
        purse.pay(PAUSE, trade.cost(), self.gauges.reserved.peak, self.clock)
    }

    /// Pays for a trade, if the purse has as much as that.
    pub fn pay(&self, trade: &Trade, purse: &mut Purse) -> bool {
        purse.pay(trade.cost(), 0, self.gauges.reserved.peak, self.clock)
    }
}
