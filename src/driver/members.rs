//! Which contexts take part in the fence. Each takes part from its first moment, whether or not it ever gets a pool: its
//! work may use memory of another context's pool.

use super::fence::{Fence, Mark};
use super::{Ctx, CuResult, Event, Gpu, is_sticky};
use crate::sync::Apart;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// How long a context that has just come is waited for, at most, until its work is ordered after that of the others.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(50);

/// A context that takes part.
pub(super) struct Member {
    pub id: u64,
    pub ctx: Ctx,
    pub spare_events: Vec<Event>,
    /// The code of an error that the context will not recover from, 0 for none; kept by its pool, if it has one.
    sticky: Option<Arc<Apart<AtomicI32>>>,
}

impl<G: Gpu> Fence<G> {
    /// Lets a context with a pool take part; returns the number to [`Fence::leave`] with. `sticky` is set when a call finds
    /// the context in an error that it will not recover from.
    ///
    /// Its work is ordered after all work of the others: memory that a wait has already made clean is clean for it too.
    /// While that cannot be done the fence is not [ordered](Fence::is_ordered).
    pub fn join(&self, ctx: Ctx, sticky: Arc<Apart<AtomicI32>>) -> u64 {
        self.admit(ctx, Some(sticky))
    }

    /// The same for a context that has no pool, or none yet. To be called under a [`Fence::touch`].
    pub fn enter(&self, ctx: Ctx) {
        self.admit(ctx, None);
    }

    fn admit(&self, ctx: Ctx, sticky: Option<Arc<Apart<AtomicI32>>>) -> u64 {
        let (id, others) = {
            let mut members = self.members.lock();
            let known = |one: &&mut Member| one.ctx == ctx && (one.sticky.is_none() || sticky.is_none());
            if let Some(member) = members.iter_mut().find(known) {
                if sticky.is_some() {
                    member.sticky = sticky;
                }
                return member.id;
            }
            let id = self.next_member.fetch_add(1, Ordering::Relaxed);
            let others = !members.is_empty();
            members.push(Member { id, ctx, spare_events: Vec::new(), sticky });
            (id, others)
        };
        // Without context-wide events nothing is clean before its work is done.
        if others && self.gpu().has_context_events() && !self.barrier(self.current_epoch()) {
            // What is sealed lacks a mark of this context, which may have worked before it was known.
            self.unseal();
            if !self.waits_are_over() {
                self.unordered.fetch_max(id, Ordering::AcqRel);
            }
        }
        id
    }

    /// Whether `ctx` takes part.
    pub fn has(&self, ctx: Ctx) -> bool {
        self.members.lock().iter().any(|one| one.ctx == ctx)
    }

    /// Whether the work of every context is ordered after what waits have made clean. As long as it is not, clean memory is
    /// not clean for all. Tries to make it so, which only an open capture and the end of a context are in the way of.
    #[inline]
    pub fn is_ordered(&self) -> bool {
        self.unordered.load(Ordering::Acquire) == 0 || self.order_late()
    }

    #[cold]
    fn order_late(&self) -> bool {
        let newest = self.unordered.load(Ordering::Acquire);
        (self.barrier(self.current_epoch()) || self.waits_are_over())
            && self.unordered.compare_exchange(newest, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Waits until the fence is ordered; not for ever, for what is in the way may be waiting for the caller. Nothing may be held.
    pub fn settle(&self) {
        let begun = Instant::now();
        while !self.is_ordered() && begun.elapsed() < PATIENCE {
            self.await_calm();
            std::thread::sleep(PAUSE);
        }
    }

    /// Whether all work that waits have ordered other work after is done; then no order is needed. Known while a capture is
    /// open only: no wait is under way then.
    fn waits_are_over(&self) -> bool {
        let Some(_touch) = self.touch().filter(|_| self.gate().capturing()) else { return false };
        let marks = self.waited.lock().clone();
        marks.iter().all(|mark| match self.gpu().query(mark.event, true) {
            Ok(done) => done,
            Err(code) => self.is_lost(mark.member, code),
        })
    }

    /// The context has died, and all its work with it. No call is made on it any more.
    pub fn leave(&self, member: u64) {
        self.members.lock().retain(|one| one.id != member);
        self.forget(&[member]);
    }

    /// The same, by its handle.
    pub fn leave_context(&self, ctx: Ctx) {
        let gone: Vec<u64> =
            self.members.lock().extract_if(.., |one| one.ctx == ctx).map(|one| one.id).collect();
        self.forget(&gone);
    }

    /// Whether a failed call on a context may be passed over: the context is gone, or in an error that has ended all its
    /// work and that every further call on it will tell.
    pub(super) fn is_lost(&self, member: u64, code: CuResult) -> bool {
        let mut members = self.members.lock();
        let Some(at) = members.iter().position(|one| one.id == member) else { return true };
        match &members[at].sticky {
            Some(sticky) if is_sticky(code) => sticky.store(code.0, Ordering::Release),
            // It has ended by a way that is not seen, and nothing of ours with it.
            None if matches!(code, CuResult::INVALID_CONTEXT | CuResult::CONTEXT_IS_DESTROYED) => {
                members.remove(at);
                return true;
            }
            _ => {}
        }
        is_sticky(code)
    }

    pub(super) fn contexts(&self) -> Vec<(u64, Ctx)> {
        self.members.lock().iter().map(|member| (member.id, member.ctx)).collect()
    }

    pub(super) fn is_member(&self, id: u64) -> bool {
        self.members.lock().iter().any(|member| member.id == id)
    }

    /// Takes every seal back; the next one covers their epochs.
    pub(super) fn unseal(&self) {
        let _turn = self.turn.lock();
        while let Some(one) = self.epochs.take_oldest() {
            self.recycle(&one.marks);
        }
    }

    /// Drops the marks of members that are gone.
    pub(super) fn forget(&self, gone: &[u64]) {
        self.waited.lock().retain(|mark| !gone.contains(&mark.member));
        self.epochs.forget(|mark| gone.contains(&mark.member));
    }

    /// The contexts that take part, with an event of each that is not in use, if there is one.
    pub(super) fn muster(&self) -> SmallVec<[(u64, Ctx, Option<Event>); 2]> {
        let mut members = self.members.lock();
        members.iter_mut().map(|member| (member.id, member.ctx, member.spare_events.pop())).collect()
    }

    /// Keeps events for later records; those of dead contexts died with them.
    pub(super) fn recycle(&self, marks: &[Mark]) {
        let mut members = self.members.lock();
        for mark in marks {
            if let Some(member) = members.iter_mut().find(|member| member.id == mark.member) {
                member.spare_events.push(mark.event);
            }
        }
    }
}
