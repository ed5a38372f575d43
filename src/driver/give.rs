//! Gives a range's free memory back to the driver: for another allocator, above the garbage-collection threshold, or when
//! memory is short. Only what the GPU is done with can be unmapped.

use super::Gpu;
use super::books::Change;
use super::server::Server;
use crate::policy::gc::{self, FreeRegion};
use crate::pool::{Drain, PAGE, Piece};
use std::time::Instant;

impl<G: Gpu> Server<G> {
    /// Gives at least `bytes` of free pieces back to the driver, if there are as many. With `wait` the host waits for the
    /// device if what it is done with does not suffice. Returns the bytes given back.
    pub(super) fn give_pieces_back(&self, bytes: u64, wait: bool) -> u64 {
        let mut returned = 0;
        for may_wait in [wait, false] {
            if returned < bytes {
                returned += self.give_done_back(bytes - returned);
            }
            if returned >= bytes || !may_wait || !self.complete_range() {
                break;
            }
        }
        returned
    }

    /// Waits until the GPU is done with everything that is free in the range; true if there was anything to wait for.
    pub(super) fn complete_range(&self) -> bool {
        let idle = {
            let mut inner = self.inner.lock();
            self.catch_up(&mut inner);
            self.drain_locked(&mut inner.heap, Drain::All);
            inner.heap.flush_slabs();
            let completed = self.fence.completed();
            let done: u64 = inner.heap.idle_pieces(completed).iter().map(|(_, size, _)| size).sum();
            inner.heap.range_idle().saturating_sub(done)
        };
        idle > 0 && self.fence.complete_all()
    }

    fn give_done_back(&self, bytes: u64) -> u64 {
        let Some(_touch) = self.fence.touch().filter(|_| self.is_alive()) else { return 0 };
        let busy = self.backing.busy.lock();
        self.unstick();
        let pieces = {
            let mut inner = self.inner.lock();
            self.catch_up(&mut inner);
            self.drain_locked(&mut inner.heap, Drain::All);
            inner.heap.flush_slabs();
            inner.heap.take_pieces(bytes, self.fence.completed())
        };
        let returned = pieces.into_iter().map(|piece| self.give_piece_back(piece)).sum();
        drop(busy);
        if returned > 0 {
            (self.books.changed)(self.books.device, Change::Held);
        }
        returned
    }

    /// Gives a piece back that has been taken out of the heap; returns its bytes, or 0 if the driver did not take it.
    fn give_piece_back(&self, piece: Piece) -> u64 {
        let begun = Instant::now();
        if piece.addr != 0 && self.fence.gpu().unmap(piece.addr, piece.size).is_err() {
            self.inner.lock().heap.restore(piece);
            return 0;
        }
        let released = self.fence.gpu().release(piece.handle);
        let mut inner = self.inner.lock();
        if released.is_err() {
            inner.heap.keep_loose(Piece { addr: 0, ..piece });
            return 0;
        }
        inner.heap.lose(piece.size);
        inner.counts.driver_free += 1;
        inner.driver_time.frees += 1;
        inner.driver_time.free_ns += begun.elapsed().as_nanos() as u64;
        drop(inner);
        self.books.account.release_pool(piece.size);
        piece.size
    }

    /// `garbage_collection_threshold` for a range: the pieces that have been free for longest go back.
    pub(super) fn collect_pieces(&self, rounded: u64, threshold: f64) {
        let Some(_touch) = self.fence.touch().filter(|_| self.is_alive()) else { return };
        let busy = self.backing.busy.lock();
        let account = &self.books.account;
        let free: Vec<FreeRegion> = {
            let mut inner = self.inner.lock();
            self.catch_up(&mut inner);
            self.drain_locked(&mut inner.heap, Drain::All);
            let (completed, now) = (self.fence.completed(), self.fence.current());
            let idle = inner.heap.idle_pieces(completed).into_iter();
            idle.map(|(id, bytes, epoch)| FreeRegion { id, bytes, age: now.saturating_sub(epoch) }).collect()
        };
        let reserved = account.reserved().current.saturating_add(rounded.next_multiple_of(PAGE));
        let chosen = gc::collect(&free, reserved, threshold, account.limit_bytes());
        let taken = |addr: u64| self.inner.lock().heap.take_piece(addr);
        let returned: u64 =
            chosen.into_iter().filter_map(taken).map(|piece| self.give_piece_back(piece)).sum();
        drop(busy);
        if returned > 0 {
            self.inner.lock().counts.gc += 1;
            (self.books.changed)(self.books.device, Change::Held);
        }
    }
}
