//! How long growth may wait for the device before it raises the high-water mark, and a trade that keeps it from rising.
//!
//! Idle regions can only go back once the device is idle, because the driver's free waits for all of its work. In a
//! program whose host runs ahead of the device it never is by itself, and regions would pile up: a training job with
//! batches of varying length took 2.03 times its live memory that way, and 1.11 times with waits. Such a wait costs the
//! device nothing (it works meanwhile) and the host a pause.
//!
//! But `cudaMalloc` never waits, and a program may have launched work that ends only after this very call. So every wait
//! has an end; and what waits have cost in vain may be so much of the process's life and no more.

use super::Gpu;
use super::fence::Fence;
use super::server::Server;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time that may be spent in vain before any is earned, in waits.
const VAIN_WAITS: u32 = 2;
/// First and longest pause between two questions of [`Fence::await_idle`].
const PAUSE: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// Part of the time since the start that may be spent in vain besides.
const VAIN_SHARE: u32 = 100;

/// The device is waited for where idle memory makes up at least this part of the growth beyond the high-water mark.
const WORTH_WAITING: u64 = 8;

/// The waits of one pool.
pub struct Patience {
    /// Longest wait; zero for none.
    bound: Duration,
    since: Instant,
    vain_ns: AtomicU64,
}

impl Patience {
    /// Waits of at most `bound` each.
    pub fn new(bound: Duration) -> Patience {
        Patience { bound, since: Instant::now(), vain_ns: AtomicU64::new(0) }
    }

    /// How long the next wait may take; `None` if there should be none.
    pub fn next(&self) -> Option<Duration> {
        let vain = Duration::from_nanos(self.vain_ns.load(Ordering::Relaxed));
        let allowed = self.bound * VAIN_WAITS + self.since.elapsed() / VAIN_SHARE;
        (!self.bound.is_zero() && vain + self.bound <= allowed).then_some(self.bound)
    }

    /// A wait took so long, and was for nothing. What it took beyond its bound was not its own.
    pub fn in_vain(&self, took: Duration) {
        self.vain_ns.fetch_add(took.min(self.bound).as_nanos() as u64, Ordering::Relaxed);
    }
}

impl<G: Gpu> Server<G> {
    /// Before a growth that would raise the high-water mark, idle regions go back, smallest first. The driver's free waits
    /// for all work of the device, so it is not called before that is done; [`Patience`] says
    /// for how long that is waited for. Short of "out of memory" the growth then goes ahead without.
    ///
    /// A range moves its free pieces instead, as part of the growth, and those alone that the device is done with: so that is
    /// waited for in the same way.
    ///
    /// What the request has waited since `begun` for other threads that grow the heap, it does not wait again.
    pub(super) fn make_room(&self, rounded: u64, begun: Instant) {
        if self.fence.gate().capturing() {
            return;
        }
        let range = self.has_range();
        let (excess, idle) = {
            let mut inner = self.locked();
            let (reserved, growth) = (inner.heap.reserved(), inner.heap.growth(rounded));
            let growth = if range { growth.minimum } else { growth.preferred };
            let excess = (reserved.current + growth).saturating_sub(reserved.peak);
            if excess == 0 {
                return;
            }
            if range {
                // What is done already costs no wait, and is moved in any case.
                let (done, busy) = self.idle_in_range(&mut inner);
                (excess.saturating_sub(done), busy)
            } else {
                (excess, inner.heap.idle())
            }
        };
        if excess == 0 || idle == 0 {
            return;
        }
        // A driver without context-wide events can only be waited for without a bound. Its free does that anyway, a move need not.
        let may_wait = !range || self.fence.gpu().has_context_events();
        let worth_waiting = may_wait && idle >= excess / WORTH_WAITING;
        if (self.fence.is_idle() || (worth_waiting && self.await_idle(begun))) && !range {
            self.give_back(excess);
        }
    }

    /// Waits for the device, for so long at most as a request of the time `asked` may wait.
    pub(super) fn await_idle(&self, asked: Instant) -> bool {
        let bound = self.patience.next().map(|bound| bound.saturating_sub(asked.elapsed()));
        let Some(bound) = bound.filter(|bound| !bound.is_zero()) else { return false };
        let begun = Instant::now();
        let idle = self.fence.await_idle(bound);
        if !idle {
            self.patience.in_vain(begun.elapsed());
        }
        idle
    }
}

impl<G: Gpu> Fence<G> {
    /// Whether all work submitted so far is done, found out without waiting for it.
    pub fn is_idle(&self) -> bool {
        let _turn = self.turn.lock();
        if !self.seal_in_turn() {
            return false; // nothing was asked, so nothing is known
        }
        self.poll_in_turn();
        self.epochs.retired() + 1 >= self.epochs.current()
    }

    /// Whether all work submitted so far gets done within `bound`. Asks again and again, so that no driver call waits
    /// for work that might never end. A driver without context-wide events can only be waited for without an end.
    pub fn await_idle(&self, bound: Duration) -> bool {
        if !self.gpu().has_context_events() {
            return self.synchronize();
        }
        let (begun, unanswered) = (Instant::now(), self.unanswered.load(Ordering::Relaxed));
        let (mut wanted, mut pause) = (0, PAUSE);
        loop {
            self.poll();
            if wanted != 0 && self.epochs.completed() >= wanted {
                return true;
            }
            let answered = self.unanswered.load(Ordering::Relaxed) == unanswered;
            if begun.elapsed() >= bound || self.gate().capturing() || !answered {
                return false;
            }
            // Nothing is sealed for this wait yet; or another thread's barrier has taken the marks, and what that has ordered is
            // not done.
            if wanted <= self.epochs.retired() {
                let _turn = self.turn.lock();
                if self.seal_in_turn() {
                    wanted = self.epochs.newest_sealed();
                    continue;
                }
                if !self.epochs.is_full() {
                    return false;
                }
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_in_vain_become_rare_and_others_do_not() {
        let patience = Patience::new(Duration::from_secs(3600));
        for _ in 0..10 {
            assert!(patience.next().is_some(), "nothing was in vain");
        }
        for _ in 0..VAIN_WAITS {
            let bound = patience.next().expect("some may be in vain");
            patience.in_vain(bound);
        }
        assert_eq!(patience.next(), None);
        assert_eq!(Patience::new(Duration::ZERO).next(), None);
    }

    #[test]
    fn time_earns_new_waits() {
        let patience = Patience::new(Duration::from_micros(100));
        patience.in_vain(Duration::from_micros(100));
        patience.in_vain(Duration::from_micros(300));
        assert_eq!(patience.next(), None);
        std::thread::sleep(Duration::from_millis(15));
        assert!(patience.next().is_some());
    }
}
