//! Makes the calls that a [`Plan`] asks for, and undoes them when one fails: see `backing.rs`.

use super::server::Server;
use super::{CuResult, Gpu};
use crate::policy::Reservation;
use crate::pool::{Piece, Plan};

/// A handle that has been made for a plan and is not the heap's yet.
pub(super) struct Made<'a> {
    pub piece: Piece,
    pub reservation: Reservation<'a>,
}

impl<G: Gpu> Server<G> {
    /// Makes a plan's calls. If one fails, everything is undone and the plan's pieces are back in the books.
    pub(super) fn carry_out<'a>(
        &self,
        plan: Plan,
        reservation: &mut Reservation<'a>,
    ) -> Result<Vec<Made<'a>>, CuResult> {
        let (gpu, ctx) = (self.fence.gpu(), self.ctx());
        let mut made: Vec<Made<'a>> = Vec::with_capacity(plan.makes.len());
        // First what fails most easily, while nothing else has been touched.
        for &(addr, size) in &plan.makes {
            match gpu.create(ctx, self.books.device, size) {
                Ok(handle) => {
                    let piece = Piece { addr, size, handle };
                    made.push(Made { piece, reservation: reservation.split(size) });
                }
                Err(code) => {
                    self.unmake(made);
                    self.locked().heap.abandon(plan);
                    return Err(code);
                }
            }
        }
        for (number, (piece, _)) in plan.moves.iter().enumerate() {
            let unmapped = if piece.addr == 0 { Ok(()) } else { gpu.unmap(piece.addr, piece.size) };
            if let Err(code) = unmapped {
                self.unmake(made);
                let mut inner = self.locked();
                for (at, (piece, _)) in plan.moves.iter().enumerate() {
                    if at < number {
                        inner.heap.keep_loose(Piece { addr: 0, ..*piece });
                    } else {
                        inner.heap.restore(*piece);
                    }
                }
                return Err(code);
            }
        }
        let placed: Vec<Piece> = plan
            .moves
            .iter()
            .map(|(piece, to)| Piece { addr: *to, ..*piece })
            .chain(made.iter().map(|one| one.piece))
            .collect();
        let mut devices = self.fence.peers().devices(ctx);
        devices.push(self.books.device);
        let mut mapped = 0;
        let result = placed
            .iter()
            .try_for_each(|piece| {
                gpu.map(ctx, piece.addr, piece.size, piece.handle)?;
                mapped += 1;
                Ok(())
            })
            .and_then(|()| {
                plan.spans
                    .iter()
                    .try_for_each(|&(addr, size)| gpu.set_access(ctx, addr, size, &devices, true))
            });
        let Err(code) = result else { return Ok(made) };
        let moves = plan.moves.len();
        for piece in &placed[..moves.min(mapped)] {
            self.unmap_or_stick(*piece);
        }
        for piece in &placed[moves.min(mapped)..moves] {
            self.locked().heap.keep_loose(Piece { addr: 0, ..*piece });
        }
        for (at, one) in made.into_iter().enumerate() {
            if moves + at < mapped && gpu.unmap(one.piece.addr, one.piece.size).is_err() {
                one.reservation.for_pool();
                let mut inner = self.locked();
                inner.heap.gain(one.piece.size);
                inner.heap.keep_stuck(one.piece);
            } else {
                self.unmake(vec![one]);
            }
        }
        Err(code)
    }

    /// Releases handles that are mapped nowhere; what the driver does not take back stays charged, and loose.
    fn unmake(&self, made: Vec<Made<'_>>) {
        for one in made {
            if self.fence.gpu().release(one.piece.handle).is_err() {
                one.reservation.for_pool();
                let mut inner = self.locked();
                inner.heap.gain(one.piece.size);
                inner.heap.keep_loose(Piece { addr: 0, ..one.piece });
            }
        }
    }

    /// Unmaps a counted handle that is in no block.
    pub(super) fn unmap_or_stick(&self, piece: Piece) {
        let unmapped = self.fence.gpu().unmap(piece.addr, piece.size);
        let mut inner = self.locked();
        match unmapped {
            Ok(()) => inner.heap.keep_loose(Piece { addr: 0, ..piece }),
            Err(_) => inner.heap.keep_stuck(piece),
        }
    }

    /// Tries once more to unmap what could not be.
    pub(super) fn unstick(&self) {
        let stuck = self.locked().heap.take_stuck();
        for piece in stuck {
            self.unmap_or_stick(piece);
        }
    }
}
