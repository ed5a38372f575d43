//! The driver's side of an expandable range: when it grows, how the calls that a [`Plan`] asks for go together, and how it
//! ends. The calls are made and undone in `carry.rs`; memory goes back in `give.rs`.
//!
//! ```text
//!  plan (heap's lock)         create new handles       unmap moved pieces    map, set access      attach (heap's lock)
//!  pieces leave the heap  →   fails: release them  →   fails: put back   →   fails: unmap     →   clean memory
//! ```
//!
//! Whatever fails, a handle ends where the books have a place for it: attached where it was, loose (used by the next plan,
//! or given back), stuck in a gap if the driver would not unmap it (tried again by the next plan), or released. Bytes are
//! reserved under the cap before a handle is made and stay charged until it is released.
//!
//! One thread at a time makes these calls for a range. Hits and frees go on beside it, so a block that a plan counted on may
//! be gone when the memory is there: then another plan is made, the last of them without counting on any.
//!
//! **When the host waits.** The calls here never do: what the GPU is not done with is left where it is, and new memory taken.
//! Before a growth that would raise the high-water mark the host waits for the device within the bounds of `patience.rs`; and
//! where the answer would be "out of memory" as long as it takes, as the driver's free does. Then what was pending is moved or
//! returned. While a capture is open it waits for nothing.

use super::books::Change;
use super::inner::Inner;
use super::server::Server;
use super::{CuResult, Gpu};
use crate::pool::{Cache, Drain, GRANULE, PAGE, Piece, Plan};
use crate::report::model::Mapped;
use parking_lot::Mutex;
use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

/// Addresses that a range reserves, as a multiple of the device's memory. What is moved leaves gaps, which are filled again
/// only where a request fits; reserving costs nothing by the byte, and of 2^47 addresses a context on the largest device
/// takes a sixtieth.
const ADDRESSES: u64 = 16;
/// What a range can do with, before segments are used.
const ADDRESSES_LEAST: u64 = 2;
/// Plans for one request.
const PLANS: usize = 4;

/// How much a growth may take, and from where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Grow {
    /// Within the slack that rotation has: moves nothing.
    Rotation,
    /// Moves free pieces before the high-water mark rises.
    Usual,
    /// Memory is short: moves whatever is free, and takes no more than the request needs.
    Least,
}

const UNTRIED: u8 = 0;
const RANGE: u8 = 1;
const SEGMENTS: u8 = 2;

/// What a server knows of its range.
pub(super) struct Backing {
    state: AtomicU8,
    /// Held across calls that map and unmap; none of them waits.
    pub busy: Mutex<()>,
}

impl Backing {
    pub fn new(wanted: bool) -> Backing {
        Backing { state: AtomicU8::new(if wanted { UNTRIED } else { SEGMENTS }), busy: Mutex::new(()) }
    }
}

impl<G: Gpu> Server<G> {
    /// Whether memory comes from a range. Reserves its addresses when first asked.
    pub(super) fn has_range(&self) -> bool {
        match self.backing.state.load(Ordering::Acquire) {
            UNTRIED => self.reserve_range(),
            state => state == RANGE,
        }
    }

    /// The same without reserving any: one that was never needed holds nothing.
    pub(super) fn range_in_use(&self) -> bool {
        self.backing.state.load(Ordering::Acquire) == RANGE
    }

    #[cold]
    fn reserve_range(&self) -> bool {
        let _busy = self.backing.busy.lock();
        let state = self.backing.state.load(Ordering::Acquire);
        let Some(_touch) = self.fence.touch().filter(|_| self.is_alive() && state == UNTRIED) else {
            return state == RANGE;
        };
        let total = self.books.account.total_bytes().next_multiple_of(PAGE);
        let reserved = self.fence.gpu().can_map(self.books.device).and_then(|()| {
            let sizes = std::iter::successors(Some(ADDRESSES), |times| Some(times / 2));
            let mut sizes = sizes.take_while(|times| *times >= ADDRESSES_LEAST).map(|times| total * times);
            let attempt = |bytes| Some((self.fence.gpu().reserve_addresses(self.ctx(), bytes).ok()?, bytes));
            sizes.find_map(attempt).ok_or("the driver has no addresses for it")
        });
        match reserved {
            Ok((base, bytes)) => {
                self.locked().heap.set_range(base, bytes);
                self.backing.state.store(RANGE, Ordering::Release);
                true
            }
            Err(reason) => {
                static SAID: Once = Once::new();
                SAID.call_once(|| {
                    tracing::warn!(
                        "expandable_segments:True is not possible here ({reason}); segments are used"
                    );
                });
                self.backing.state.store(SEGMENTS, Ordering::Release);
                false
            }
        }
    }

    /// Maps memory for a request and takes the block. `None`: that is for segments to do, because the addresses are used up
    /// or a call has failed for another reason than want of memory.
    pub(super) fn expand(
        &self,
        cache: Option<&Cache>,
        bytes: u64,
        rounded: u64,
        grow: Grow,
    ) -> Option<Result<u64, CuResult>> {
        let need = rounded.max(bytes).checked_next_multiple_of(GRANULE)?;
        for turn in 1..=PLANS {
            let Some(_touch) = self.fence.touch().filter(|_| self.is_alive()) else {
                return Some(Err(CuResult::NOT_SUPPORTED));
            };
            let busy = self.backing.busy.lock();
            self.unstick();
            let begun = Instant::now();
            let (plan, mut reservation) = {
                let mut inner = self.locked();
                let plan = self.plan_range(&mut inner, need, grow, turn == PLANS)?;
                let Ok(reservation) = self.books.account.reserve(plan.fresh()) else {
                    inner.heap.abandon(plan);
                    return Some(Err(CuResult::OUT_OF_MEMORY));
                };
                (plan, reservation)
            };
            let moved = plan.moves.clone();
            let made = match self.carry_out(plan, &mut reservation) {
                Ok(made) => made,
                Err(code) => {
                    self.note_error(code);
                    tracing::debug!(?code, "could not map memory");
                    let own = code == CuResult::OUT_OF_MEMORY || self.sticky_error().is_some();
                    return own.then_some(Err(code));
                }
            };
            let mut inner = self.locked();
            let figures = &mut inner.mapped;
            figures.remaps += u64::from(moved.iter().any(|(piece, _)| piece.addr != 0));
            figures.moved_handles += moved.iter().filter(|(piece, _)| piece.addr != 0).count() as u64;
            figures.moved_bytes +=
                moved.iter().filter(|(piece, _)| piece.addr != 0).map(|(p, _)| p.size).sum::<u64>();
            figures.map_ns += begun.elapsed().as_nanos() as u64;
            inner.counts.driver_alloc += made.len() as u64;
            inner.driver_time.allocs += made.len() as u64;
            if !made.is_empty() {
                inner.driver_time.alloc_ns += begun.elapsed().as_nanos() as u64;
            }
            let told = self.books.chronicle.is_some();
            let told = told.then(|| (moved.clone(), made.iter().map(|one| one.piece).collect::<Vec<_>>()));
            let mut refused = Vec::new();
            let mut attach = |inner: &mut Inner, piece: Piece| {
                if !inner.heap.attach(piece) {
                    refused.push(piece);
                }
            };
            for (piece, to) in moved {
                attach(&mut inner, Piece { addr: to, ..piece });
            }
            for one in made {
                one.reservation.for_pool();
                inner.heap.gain(one.piece.size);
                attach(&mut inner, one.piece);
            }
            // Under the same lock: the memory is there for this request and not for another thread's.
            let served = self.take_locked(&mut inner, cache, bytes, rounded, false);
            drop(inner);
            if let Some((moved, made)) = told {
                self.chronicle_growth(&moved, &made);
            }
            for piece in refused {
                // Out of records: nothing that the heap could do with it.
                self.unmap_or_stick(piece);
            }
            self.note_peak();
            drop(busy);
            (self.books.changed)(self.books.device, Change::Held);
            if let Some(address) = served {
                return Some(Ok(address));
            }
        }
        None
    }

    fn plan_range(&self, inner: &mut Inner, need: u64, grow: Grow, apart: bool) -> Option<Plan> {
        self.catch_up(inner);
        if grow != Grow::Rotation {
            self.drain_locked(&mut inner.heap, Drain::All);
        }
        if grow == Grow::Least {
            inner.heap.flush_slabs();
        }
        let (reserved, headroom) = (inner.heap.reserved(), self.books.account.headroom());
        let fresh = match grow {
            Grow::Rotation => headroom,
            Grow::Usual => headroom.min(reserved.peak - reserved.current),
            Grow::Least => 0,
        };
        let completed = self.fence.completed();
        if apart {
            inner.heap.plan_apart(need, fresh, completed)
        } else {
            inner.heap.plan(need, fresh, completed)
        }
    }

    /// Sets or takes away a device's access to all that is mapped.
    ///
    /// # Errors
    /// The driver's own code.
    pub fn set_peer_access(&self, device: u32, access: bool) -> Result<(), CuResult> {
        let touch = self.fence.touch().or_else(|| {
            self.fence.await_calm();
            self.fence.touch()
        });
        let Some(_touch) = touch else { return Err(CuResult::NOT_SUPPORTED) };
        if !self.is_alive() {
            return Ok(());
        }
        let _busy = self.backing.busy.lock();
        let pieces = self.locked().heap.attached();
        pieces.iter().try_for_each(|piece| {
            self.fence.gpu().set_access(self.ctx(), piece.addr, piece.size, &[device], access)
        })
    }

    /// The context has ended, and all its work with it. Physical memory and addresses are not a context's, so they are given
    /// back here, unless no call is to be made. Returns the bytes that the driver did not take: they are still there, and
    /// stay charged.
    pub(super) fn end_range(&self, give_back: bool) -> u64 {
        let _busy = self.backing.busy.lock();
        let taken = self.locked().heap.take_range();
        let Some((base, size, mapped, loose)) = taken else { return 0 };
        self.backing.state.store(UNTRIED, Ordering::Release);
        if !give_back {
            return mapped.iter().chain(&loose).map(|piece| piece.size).sum();
        }
        let gpu = self.fence.gpu();
        // A reset may have taken them along: then the driver does not know them any more.
        let gone = |result: Result<(), CuResult>| matches!(result, Ok(()) | Err(CuResult::INVALID_VALUE));
        let mut kept = 0;
        for piece in mapped.iter().chain(&loose) {
            let unmapped = piece.addr == 0 || gone(gpu.unmap(piece.addr, piece.size));
            let released = gone(gpu.release(piece.handle));
            kept += if unmapped && released { 0 } else { piece.size };
        }
        if let Err(code) = gpu.free_addresses(base, size) {
            tracing::debug!(?code, "the driver keeps the addresses of a range");
        }
        kept
    }

    /// Whether `address` lies in memory that is mapped piece by piece.
    pub fn is_mapped(&self, address: u64) -> bool {
        let range = self.locked().heap.range();
        range.is_some_and(|(base, size)| (base..base + size).contains(&address))
    }

    /// The figures of the range for a report.
    pub(super) fn mapped_figures(inner: &Inner) -> Option<Mapped> {
        let usage = inner.heap.range_usage();
        (inner.heap.range().is_some() || inner.mapped != Mapped::default()).then_some(Mapped {
            mapped_bytes: usage.mapped,
            loose_bytes: usage.loose,
            spanned_bytes: usage.spanned,
            handles: usage.pieces,
            ..inner.mapped
        })
    }
}
