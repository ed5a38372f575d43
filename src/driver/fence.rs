//! Makes freed memory reusable without knowing the program's streams.
//!
//! The rule is *seal often, poll first, wait rarely*: recording an event over a whole context and asking whether it is
//! done cost next to nothing in every program; ordering all later work after it takes the overlap away from programs
//! with several busy streams, so that is the last resort, and one wait serves many reuses.
//!
//! A block of one context may be used by work of another (peer access, copies between devices), so an epoch ends with
//! one mark in **every** live context, and a wait is made by every live context.

use super::gate::{Gate, Pass};
use super::members::Member;
use super::peers::Peers;
use super::{Ctx, Event, Gpu};
use crate::pool::Epoch;
use crate::pool::epochs::{Epochs, Marks, Sealed};
use crate::sync::Apart;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Sealed epochs asked about in one [`Fence::poll`].
const POLLS: usize = 3;

/// The end of an epoch in one context.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    pub(super) member: u64,
    pub(super) event: Event,
}

/// Epochs, captures and contexts of the process, and the GPU operations that connect them.
pub struct Fence<G: Gpu> {
    gpu: G,
    gate: Gate,
    pub(super) epochs: Epochs<Mark>,
    /// Held by the one thread that seals or asks (`turns.rs`). In cache lines of its own: threads that find it
    /// taken only read it.
    pub(super) turn: Apart<Mutex<()>>,
    /// Questions that have failed so far.
    pub(super) unanswered: AtomicU64,
    pub(super) members: Mutex<Vec<Member>>,
    pub(super) next_member: AtomicU64,
    /// The newest member whose work is not ordered after what waits have made clean; 0 for none. Read by every allocation, so
    /// not beside what every seal writes.
    pub(super) unordered: Apart<AtomicU64>,
    /// The marks that the newest wait was for.
    pub(super) waited: Mutex<Marks<Mark>>,
    barriers: AtomicU64,
    peers: Peers,
    /// Read by whoever makes a call on a context that is not known to be its thread's own, written while one is ended.
    ending: RwLock<()>,
    endings: AtomicU64,
}

/// Leave to make calls on any context that takes part: none of them is being ended.
pub struct Touch<'a>(#[allow(dead_code, reason = "held for its lock")] RwLockReadGuard<'a, ()>);

/// Leave to end a context: no call of ours on any context is under way, and none begins.
pub struct Ending<'a>(#[allow(dead_code, reason = "held for its lock")] RwLockWriteGuard<'a, ()>);

impl<G: Gpu> Fence<G> {
    /// A fence with no context yet.
    pub fn new(gpu: G) -> Fence<G> {
        Fence {
            gpu,
            gate: Gate::new(),
            epochs: Epochs::default(),
            turn: Apart::default(),
            unanswered: AtomicU64::new(0),
            members: Mutex::new(Vec::new()),
            next_member: AtomicU64::new(1),
            unordered: Apart(AtomicU64::new(0)),
            waited: Mutex::new(Marks::new()),
            barriers: AtomicU64::new(0),
            peers: Peers::default(),
            ending: RwLock::new(()),
            endings: AtomicU64::new(0),
        }
    }

    /// The GPU operations.
    pub fn gpu(&self) -> &G {
        &self.gpu
    }

    /// Which devices may reach whose memory.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// The gate between captures and barriers.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The epoch under which a block freed now is pending.
    #[inline]
    pub fn current(&self) -> Epoch {
        if cfg!(feature = "unsafe-no-barrier") { 0 } else { self.epochs.current() }
    }

    /// The newest epoch whose blocks are clean.
    #[inline]
    pub fn retired(&self) -> Epoch {
        self.epochs.retired()
    }

    /// The newest epoch whose work the host has seen to be over, in every context: see [`Epochs::completed`].
    pub fn completed(&self) -> Epoch {
        self.epochs.completed()
    }

    /// The newest epoch that has been sealed.
    pub fn newest_sealed(&self) -> Epoch {
        self.epochs.newest_sealed()
    }

    /// Whether an epoch is sealed whose blocks are not clean yet.
    pub fn has_outstanding(&self) -> bool {
        self.epochs.newest_sealed() > self.epochs.retired()
    }

    /// Device-side waits and host synchronisations made so far.
    pub fn barriers(&self) -> u64 {
        self.barriers.load(Ordering::Relaxed)
    }

    /// Waits until no call of ours on any context is under way, and keeps new ones from beginning: to be held across a
    /// call that may end a context. Nothing retires meanwhile.
    pub fn end(&self) -> Ending<'_> {
        self.endings.fetch_add(1, Ordering::AcqRel);
        Ending(self.ending.write())
    }

    /// Whether a context has been ending since `since` was read, or still is: what failed meanwhile for want of a
    /// [`Fence::touch`] is worth another try.
    pub fn was_disturbed(&self, since: u64) -> bool {
        self.endings() != since || self.touch().is_none()
    }

    /// How often a context has begun to end.
    pub fn endings(&self) -> u64 {
        self.endings.load(Ordering::Acquire)
    }

    /// Waits until no context is being ended; not for ever, for the asker may be a callback of the very call that ends one.
    pub fn await_calm(&self) {
        drop(self.ending.try_read_for(Duration::from_secs(2)));
    }

    /// Leave to make calls on any context; `None` while one may be ending.
    pub fn touch(&self) -> Option<Touch<'_>> {
        self.ending.try_read().map(Touch)
    }

    /// Leave to make calls on any context, also those that would kill a capture.
    fn pass(&self) -> Option<(Touch<'_>, Pass<'_>)> {
        Some((self.touch()?, self.gate.pass()?))
    }

    pub(super) fn seal_in_turn(&self) -> bool {
        if !self.gpu.has_context_events() {
            return false;
        }
        let Some(_pass) = self.pass() else { return false };
        let Some(sealing) = self.epochs.begin_seal() else { return false };
        let mut mustered = self.muster().into_iter();
        let (mut marks, mut failure) = (Marks::new(), None);
        for (member, ctx, spare) in mustered.by_ref() {
            let recorded = spare.map_or_else(|| self.gpu.event_create(ctx), Ok).and_then(|event| {
                let mark = Mark { member, event };
                self.gpu.record(ctx, event).map(|()| mark).inspect_err(|_| self.recycle(&[mark]))
            });
            match recorded {
                Ok(mark) => marks.push(mark),
                Err(code) if self.is_lost(member, code) => {}
                Err(code) => {
                    failure = Some((ctx, code));
                    break;
                }
            }
        }
        if let Some((ctx, code)) = failure {
            tracing::debug!("context {:#x}: no event recorded, error {}", ctx.0, code.0);
            marks.extend(mustered.filter_map(|(member, _, spare)| Some(Mark { member, event: spare? })));
            self.recycle(&marks);
            return false;
        }
        self.epochs.finish_seal(sealing, marks);
        tracing::trace!("epoch {} is sealed", self.epochs.newest_sealed());
        true
    }

    pub(super) fn poll_in_turn(&self) -> bool {
        let mut any = false;
        let Some(_touch) = self.touch() else { return false };
        for turn in 0..POLLS {
            // Once the oldest is done, the newest may be too, and then all between.
            let taken = if turn == 1 { self.epochs.take_newest() } else { self.epochs.take_oldest() };
            let Some(one) = taken else { break };
            let Some(one) = self.ask(one) else {
                any = true;
                continue;
            };
            self.epochs.put_back(one);
            if turn != 1 {
                break;
            }
        }
        any
    }

    /// Asks one sealed epoch; returns it if its work is not done, else retires it.
    fn ask(&self, mut one: Sealed<Mark>) -> Option<Sealed<Mark>> {
        let pass = self.gate.pass();
        while let Some(mark) = one.marks.last().copied() {
            match self.gpu.query(mark.event, pass.is_none()) {
                Ok(true) => {}
                Err(code) if self.is_lost(mark.member, code) => {}
                Ok(false) => return Some(one),
                Err(code) => {
                    self.unanswered.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!("an event could not be asked about: error {}", code.0);
                    return Some(one);
                }
            }
            self.recycle(&[mark]);
            one.marks.pop();
        }
        self.complete(one.epoch);
        None
    }

    /// Makes all memory freed under `upto` and before reusable now, by ordering all later work of every context after
    /// it. False if that cannot be done: a capture is open, or a call failed.
    pub fn barrier(&self, upto: Epoch) -> bool {
        if self.epochs.retired() >= upto {
            return true;
        }
        if !self.gpu.has_context_events() {
            return self.synchronize();
        }
        // Before anything is taken: what is put back later must not name a context that has ended meanwhile.
        let Some(_pass) = self.pass() else { return false };
        let turn = self.turn.lock();
        let sealed = self.epochs.take_at_least(upto).or_else(|| {
            self.seal_in_turn();
            self.epochs.take_at_least(upto)
        });
        if self.epochs.retired() >= upto {
            // While this thread waited for its turn. What it took is not lost: it goes with the next that retires.
            if let Some(one) = sealed {
                self.epochs.put_back(one);
            }
            return true;
        }
        let Some(one) = sealed else {
            // Others must not wait for the device with this thread.
            drop(turn);
            return self.synchronize();
        };
        for (waiter, ctx) in self.contexts() {
            for mark in &one.marks {
                if let Err(code) = self.gpu.wait(ctx, mark.event)
                    && !self.is_lost(waiter, code)
                    && self.is_member(mark.member)
                {
                    tracing::debug!("context {:#x}: no wait for an event, error {}", ctx.0, code.0);
                    self.epochs.put_back(one);
                    return false;
                }
            }
        }
        self.barriers.fetch_add(1, Ordering::Relaxed);
        let epoch = one.epoch;
        let before = std::mem::replace(&mut *self.waited.lock(), one.marks);
        self.recycle(&before);
        self.retire(epoch);
        tracing::debug!("all later work waits on the device for epoch {epoch}");
        true
    }

    /// Blocks until all work of every context is done; false if that cannot be, because a capture is open or a call failed.
    pub fn complete_all(&self) -> bool {
        self.synchronize()
    }

    /// The fallback: blocks until all work of every context is done.
    pub(super) fn synchronize(&self) -> bool {
        let Some(_pass) = self.pass() else { return false };
        let epoch = self.epochs.close();
        for (member, ctx) in self.contexts() {
            if let Err(code) = self.gpu.synchronize(ctx)
                && !self.is_lost(member, code)
            {
                tracing::debug!("context {:#x} could not be synchronised: error {}", ctx.0, code.0);
                return false;
            }
        }
        self.barriers.fetch_add(1, Ordering::Relaxed);
        self.complete(epoch);
        tracing::debug!("waited on the host for all work, up to epoch {epoch}");
        true
    }

    /// Blocks until all work of `ctx` is done, as `cudaFree` does; not while a capture is open, which it would kill.
    pub fn host_wait(&self, ctx: Ctx) {
        if let Some(_pass) = self.pass() {
            let epoch = self.before_sync();
            if self.gpu.synchronize(ctx).is_ok() {
                self.synced(ctx, epoch);
            }
        }
    }

    /// To be called before the program synchronises a whole context itself; give the result to [`Fence::synced`].
    pub fn before_sync(&self) -> Epoch {
        self.epochs.close()
    }

    /// The program's own synchronisation of `ctx`, begun at `epoch`, has succeeded: what it proved costs us nothing.
    /// It proves enough if there is no other context.
    pub fn synced(&self, ctx: Ctx, epoch: Epoch) {
        let alone = matches!(self.members.lock().as_slice(), [only] if only.ctx == ctx);
        if alone {
            self.complete(epoch);
        }
    }

    /// Whether any mark of a member waits to be asked about.
    #[cfg(test)]
    pub fn knows(&self, member: u64) -> bool {
        std::iter::from_fn(|| self.epochs.take_oldest())
            .any(|one| one.marks.iter().any(|mark| mark.member == member))
    }

    fn complete(&self, epoch: Epoch) {
        for one in self.epochs.complete(epoch) {
            self.recycle(&one.marks);
        }
        tracing::trace!("epoch {epoch} is over");
    }

    fn retire(&self, epoch: Epoch) {
        for one in self.epochs.retire(epoch) {
            self.recycle(&one.marks);
        }
        tracing::trace!("epoch {epoch} is over");
    }

    pub(super) fn current_epoch(&self) -> Epoch {
        self.epochs.current()
    }
}
