//! `garbage_collection_threshold`: what has been idle for longest goes back to the driver once the pool holds more than its
//! share, whole regions or pieces of a range.

use super::Gpu;
use super::books::Change;
use super::server::Server;
use crate::policy::gc::{self, FreeRegion};
use crate::pool::{Drain, PAGE};
use crate::report::history::What;
use crate::report::units::human;

impl<G: Gpu> Server<G> {
    /// `garbage_collection_threshold`: idle regions that have not been used for longest go back once the pool holds
    /// more than its share.
    pub(super) fn collect_garbage(&self, rounded: u64) {
        let Some(threshold) = self.tuning.gc_threshold else { return };
        if self.has_range() {
            return self.collect_pieces(rounded, threshold);
        }
        let account = &self.books.account;
        let mut idle = Vec::new();
        self.idle_regions(&mut idle);
        let growth = self.locked().heap.growth(rounded).minimum;
        let free: Vec<FreeRegion> = idle
            .iter()
            .map(|region| FreeRegion { id: region.addr, bytes: region.size, age: region.age })
            .collect();
        let reserved = account.reserved().current + growth;
        let chosen = gc::collect(&free, reserved, threshold, account.limit_bytes());
        let returned: u64 = idle
            .iter()
            .filter(|region| chosen.contains(&region.addr))
            .map(|region| self.return_region(region))
            .sum();
        if returned > 0 {
            self.locked().counts.gc += 1;
            self.chronicle(What::Collect, 0, returned);
            tracing::debug!("garbage collection gave {} back to the driver", human(returned));
        }
    }

    /// `garbage_collection_threshold` for a range: the pieces that have been free for longest go back.
    fn collect_pieces(&self, rounded: u64, threshold: f64) {
        let Some(_touch) = self.fence.touch().filter(|_| self.is_alive()) else { return };
        let busy = self.backing.busy.lock();
        let account = &self.books.account;
        let free: Vec<FreeRegion> = {
            let mut inner = self.locked();
            self.catch_up(&mut inner);
            self.drain_locked(&mut inner.heap, Drain::All);
            let (completed, now) = (self.fence.completed(), self.fence.current());
            let idle = inner.heap.idle_pieces(completed).into_iter();
            idle.map(|(id, bytes, epoch)| FreeRegion { id, bytes, age: now.saturating_sub(epoch) }).collect()
        };
        let reserved = account.reserved().current.saturating_add(rounded.next_multiple_of(PAGE));
        let chosen = gc::collect(&free, reserved, threshold, account.limit_bytes());
        let taken = |addr: u64| self.locked().heap.take_piece(addr);
        let returned: u64 =
            chosen.into_iter().filter_map(taken).map(|piece| self.give_piece_back(piece)).sum();
        drop(busy);
        if returned > 0 {
            self.locked().counts.gc += 1;
            self.chronicle(What::Collect, 0, returned);
            (self.books.changed)(self.books.device, Change::Held);
        }
    }
}
