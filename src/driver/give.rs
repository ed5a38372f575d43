//! Gives a range's free memory back to the driver: for another allocator, or when memory is short. Only what
//! the GPU is done with can be unmapped.

use super::Gpu;
use super::books::Change;
use super::inner::Inner;
use super::server::Server;
use crate::pool::{Drain, Piece};
use crate::report::history::What;
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
            let mut inner = self.locked();
            self.catch_up(&mut inner);
            self.drain_locked(&mut inner.heap, Drain::All);
            self.idle_in_range(&mut inner).1
        };
        idle > 0 && self.fence.complete_all()
    }

    /// Bytes of the range's free pieces: of those with which the GPU is known to be done, and of the others.
    pub(super) fn idle_in_range(&self, inner: &mut Inner) -> (u64, u64) {
        inner.heap.flush_slabs();
        let done = inner.heap.idle_pieces(self.fence.completed()).iter().map(|(_, size, _)| size).sum();
        (done, inner.heap.range_idle().saturating_sub(done))
    }

    fn give_done_back(&self, bytes: u64) -> u64 {
        let Some(_touch) = self.fence.touch().filter(|_| self.is_alive()) else { return 0 };
        let busy = self.backing.busy.lock();
        self.unstick();
        let pieces = {
            let mut inner = self.locked();
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
    pub(super) fn give_piece_back(&self, piece: Piece) -> u64 {
        let begun = Instant::now();
        if piece.addr != 0 && self.fence.gpu().unmap(piece.addr, piece.size).is_err() {
            self.locked().heap.restore(piece);
            return 0;
        }
        self.chronicle_piece(What::SegmentUnmap, &piece);
        let released = self.fence.gpu().release(piece.handle);
        let mut inner = self.locked();
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
}
