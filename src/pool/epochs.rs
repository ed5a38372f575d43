//! Epochs: when freed memory may be used again.
//!
//! A block is freed *under* the current epoch. An epoch is **sealed** when something has been recorded that captures
//! all work submitted before (marks: one event a context), and **retired** once that work can no longer touch memory
//! that is handed out from now on: because it has completed, or because all later work is ordered after it.
//!
//! ```text
//!   epoch      1      2      3      4      5
//!           retired sealed sealed  open (current)
//!              |      |      |      '-- frees are tagged with this one, without any call
//!              |      '------'--------- their marks are polled oldest first, or waited on
//!              '----------------------- blocks freed under it are clean
//! ```
//!
//! The one rule that makes it safe: [`Epochs::begin_seal`] closes the current epoch **before** anything is recorded. A
//! free that still read the closed epoch had submitted its block's work before the record, so the record covers it; a
//! free that reads the next epoch is only treated later than necessary.

use super::Epoch;
use crate::sync::{Apart, AtomicBool, AtomicU64, Mutex, Ordering, fence};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Sealed epochs that may be outstanding; beyond it sealing pauses until some retire.
pub const MAX_SEALED: usize = 64;

/// The marks of an epoch: mostly one, and then without a call to `malloc`.
pub type Marks<M> = SmallVec<[M; 2]>;

/// The state of all epochs of the process; `M` is whatever marks the end of an epoch's work.
pub struct Epochs<M> {
    /// What every allocation and free reads, in cache lines of its own: the rest is written several times for each epoch.
    read: Apart<Read>,
    completed: AtomicU64,
    newest_sealed: AtomicU64,
    sealing: AtomicBool,
    sealed: Mutex<VecDeque<Sealed<M>>>,
}

struct Read {
    current: AtomicU64,
    retired: AtomicU64,
}

/// An epoch with the marks of its end.
#[derive(Debug)]
pub struct Sealed<M> {
    /// The epoch.
    pub epoch: Epoch,
    /// One mark a context; an empty list means that no work was left.
    pub marks: Marks<M>,
}

/// The right to seal, held by one thread at a time. Dropped without [`Epochs::finish_seal`] it seals nothing: the
/// epoch is then covered by the next one that is sealed.
pub struct Sealing<'a> {
    epoch: Epoch,
    flag: &'a AtomicBool,
}

impl Drop for Sealing<'_> {
    fn drop(&mut self) {
        self.flag.store(false, Ordering::Release);
    }
}

impl<M> Default for Epochs<M> {
    fn default() -> Self {
        Epochs {
            read: Apart(Read { current: AtomicU64::new(1), retired: AtomicU64::new(0) }),
            completed: AtomicU64::new(0),
            newest_sealed: AtomicU64::new(0),
            sealing: AtomicBool::new(false),
            sealed: Mutex::new(VecDeque::new()),
        }
    }
}

impl<M> Epochs<M> {
    /// The epoch under which a block freed now is pending.
    ///
    /// The caller has made the block's state change with a sequentially consistent read-modify-write first, so that
    /// its thread's submissions are visible before this read.
    #[inline]
    pub fn current(&self) -> Epoch {
        self.read.current.load(Ordering::SeqCst)
    }

    /// The newest epoch whose blocks are clean.
    #[inline]
    pub fn retired(&self) -> Epoch {
        self.read.retired.load(Ordering::Acquire)
    }

    /// The newest epoch whose work has been seen to be over: memory freed under it may be unmapped. Blocks of a retired
    /// epoch may be clean only because later work is ordered after what still uses them.
    #[inline]
    pub fn completed(&self) -> Epoch {
        self.completed.load(Ordering::Acquire)
    }

    /// The newest epoch that has been sealed.
    pub fn newest_sealed(&self) -> Epoch {
        self.newest_sealed.load(Ordering::Acquire)
    }

    /// Closes the current epoch without marks and returns it. For callers who then wait for all work themselves.
    pub fn close(&self) -> Epoch {
        let epoch = self.read.current.fetch_add(1, Ordering::SeqCst);
        // With the full fence that a free's claim is: whoever read this epoch had submitted its work before what the
        // caller records or waits for next.
        fence(Ordering::SeqCst);
        epoch
    }

    /// Closes the current epoch for sealing. `None` if another thread is sealing or too many are outstanding.
    pub fn begin_seal(&self) -> Option<Sealing<'_>> {
        if self.sealing.swap(true, Ordering::AcqRel) {
            return None;
        }
        let full = self.is_full();
        let mut sealing = Sealing { epoch: 0, flag: &self.sealing };
        if full {
            return None; // the drop gives the right back
        }
        sealing.epoch = self.close();
        Some(sealing)
    }

    /// Whether so many are outstanding that sealing pauses.
    pub fn is_full(&self) -> bool {
        self.sealed.lock().len() >= MAX_SEALED
    }

    /// The epoch of `sealing` ends with `marks`, recorded after [`Epochs::begin_seal`].
    pub fn finish_seal(&self, sealing: Sealing<'_>, marks: Marks<M>) {
        let epoch = sealing.epoch;
        self.sealed.lock().push_back(Sealed { epoch, marks });
        self.newest_sealed.fetch_max(epoch, Ordering::AcqRel);
        drop(sealing); // only now may another thread seal: the queue is in order
    }

    /// Takes the oldest sealed epoch, to poll it outside any lock. Give it back with [`Epochs::put_back`] or finish it
    /// with [`Epochs::retire`].
    pub fn take_oldest(&self) -> Option<Sealed<M>> {
        self.sealed.lock().pop_front()
    }

    /// Takes the newest sealed epoch: if its work is done, so is that of all before it.
    pub fn take_newest(&self) -> Option<Sealed<M>> {
        self.sealed.lock().pop_back()
    }

    /// Takes the oldest sealed epoch that is at least `upto`.
    pub fn take_at_least(&self, upto: Epoch) -> Option<Sealed<M>> {
        let mut sealed = self.sealed.lock();
        let at = sealed.partition_point(|one| one.epoch < upto);
        sealed.remove(at)
    }

    /// Returns what was taken and turned out not to be done.
    pub fn put_back(&self, one: Sealed<M>) {
        let mut sealed = self.sealed.lock();
        let at = sealed.partition_point(|other| other.epoch < one.epoch);
        sealed.insert(at, one);
    }

    /// All blocks freed under `epoch` and before are clean; returns the marks that are of no more use.
    pub fn retire(&self, epoch: Epoch) -> SmallVec<[Sealed<M>; 4]> {
        self.read.retired.fetch_max(epoch, Ordering::AcqRel);
        let mut sealed = self.sealed.lock();
        let done = sealed.partition_point(|one| one.epoch <= epoch);
        sealed.drain(..done).collect()
    }

    /// The host has seen that all work of `epoch` and before is over. Retires it, too.
    pub fn complete(&self, epoch: Epoch) -> SmallVec<[Sealed<M>; 4]> {
        self.completed.fetch_max(epoch, Ordering::AcqRel);
        self.retire(epoch)
    }

    /// Drops the marks that `gone` names from every sealed epoch: their work has ended with their context.
    pub fn forget(&self, mut gone: impl FnMut(&M) -> bool) {
        for one in self.sealed.lock().iter_mut() {
            one.marks.retain(|mark| !gone(mark));
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;
    use smallvec::smallvec;

    /// Work that threads submit is a counter; a mark is how much of it a record has seen.
    fn seal(epochs: &Epochs<u64>, submitted: &AtomicU64) {
        if let Some(sealing) = epochs.begin_seal() {
            let seen = submitted.load(Ordering::SeqCst);
            epochs.finish_seal(sealing, smallvec![seen]);
        }
    }

    #[test]
    fn a_sealed_epochs_mark_covers_the_work_of_every_block_freed_under_it() {
        loom::model(|| {
            let epochs = Arc::new(Epochs::<u64>::default());
            let submitted = Arc::new(AtomicU64::new(0));
            let sealer = {
                let (epochs, submitted) = (Arc::clone(&epochs), Arc::clone(&submitted));
                thread::spawn(move || seal(&epochs, &submitted))
            };
            let mine = submitted.fetch_add(1, Ordering::SeqCst) + 1;
            // What the claim of the block is in the heap: a full fence between the submission and the epoch's reading.
            loom::sync::atomic::fence(Ordering::SeqCst);
            let freed_under = epochs.current();
            sealer.join().unwrap();
            if let Some(sealed) = epochs.take_oldest()
                && freed_under <= sealed.epoch
            {
                assert!(sealed.marks[0] >= mine, "work {mine} is not covered by {sealed:?}");
            }
        });
    }

    #[test]
    fn threads_that_seal_at_once_leave_the_queue_in_order() {
        loom::model(|| {
            let epochs = Arc::new(Epochs::<u64>::default());
            let submitted = Arc::new(AtomicU64::new(0));
            let other = {
                let (epochs, submitted) = (Arc::clone(&epochs), Arc::clone(&submitted));
                thread::spawn(move || seal(&epochs, &submitted))
            };
            seal(&epochs, &submitted);
            other.join().unwrap();
            let mut last = 0;
            while let Some(one) = epochs.take_oldest() {
                assert!(one.epoch > last);
                last = one.epoch;
            }
            assert_eq!(last, epochs.newest_sealed(), "and none is lost");
        });
    }

    #[test]
    fn polls_and_waits_that_race_retire_nothing_early_and_lose_nothing() {
        loom::model(|| {
            let epochs = Arc::new(Epochs::<u64>::default());
            let submitted = AtomicU64::new(0);
            seal(&epochs, &submitted);
            seal(&epochs, &submitted);
            let poller = {
                let epochs = Arc::clone(&epochs);
                thread::spawn(move || {
                    // Found not to be done.
                    if let Some(one) = epochs.take_oldest() {
                        epochs.put_back(one);
                    }
                })
            };
            let waited = epochs.take_at_least(2);
            if let Some(one) = &waited {
                epochs.retire(one.epoch);
                assert_eq!(epochs.retired(), 2);
            } else {
                assert_eq!(epochs.retired(), 0);
            }
            poller.join().unwrap();
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use smallvec::smallvec;

    #[test]
    fn a_free_before_the_seal_is_covered_and_one_after_is_not() {
        let epochs = Epochs::<u32>::default();
        let before = epochs.current();
        let sealing = epochs.begin_seal().expect("nobody else seals");
        let after = epochs.current();
        epochs.finish_seal(sealing, smallvec![7]);
        assert!(before <= epochs.newest_sealed() && after > epochs.newest_sealed());
        epochs.retire(epochs.newest_sealed());
        assert!(before <= epochs.retired() && after > epochs.retired());
    }

    #[test]
    fn one_thread_seals_at_a_time_and_an_abandoned_seal_is_covered_by_the_next() {
        let epochs = Epochs::<u32>::default();
        let freed = epochs.current();
        let first = epochs.begin_seal().expect("free");
        assert!(epochs.begin_seal().is_none());
        drop(first);
        assert!(epochs.take_oldest().is_none(), "an abandoned seal leaves no marks");
        let second = epochs.begin_seal().expect("free again");
        epochs.finish_seal(second, smallvec![1]);
        assert!(epochs.take_at_least(freed).is_some());
    }

    #[test]
    fn retiring_a_later_epoch_retires_the_earlier_and_returns_their_marks() {
        let epochs = Epochs::<u32>::default();
        for mark in 0..4 {
            let sealing = epochs.begin_seal().expect("free");
            epochs.finish_seal(sealing, smallvec![mark]);
        }
        let newest = epochs.take_newest().expect("four sealed");
        assert_eq!((newest.epoch, newest.marks), (4, smallvec![3]));
        assert_eq!(epochs.retire(4).len(), 3);
        assert_eq!(epochs.retired(), 4);
        epochs.retire(2);
        assert_eq!(epochs.retired(), 4, "never backwards");
    }

    #[test]
    fn what_is_retired_has_not_completed_and_what_has_completed_is_retired() {
        let epochs = Epochs::<u32>::default();
        for mark in 0..3 {
            let sealing = epochs.begin_seal().expect("free");
            epochs.finish_seal(sealing, smallvec![mark]);
        }
        epochs.retire(2);
        assert_eq!((epochs.retired(), epochs.completed()), (2, 0));
        assert_eq!(epochs.complete(3).len(), 1);
        epochs.complete(1);
        assert_eq!((epochs.retired(), epochs.completed()), (3, 3), "never backwards");
    }

    #[test]
    fn what_is_put_back_keeps_its_place() {
        let epochs = Epochs::<u32>::default();
        for mark in 0..3 {
            let sealing = epochs.begin_seal().expect("free");
            epochs.finish_seal(sealing, smallvec![mark]);
        }
        let one = epochs.take_at_least(2).expect("epoch 2");
        assert_eq!(one.epoch, 2);
        epochs.put_back(one);
        let order: Vec<Epoch> = std::iter::from_fn(|| epochs.take_oldest()).map(|one| one.epoch).collect();
        assert_eq!(order, [1, 2, 3]);
    }

    #[test]
    fn sealing_pauses_when_too_many_are_outstanding() {
        let epochs = Epochs::<()>::default();
        for _ in 0..MAX_SEALED {
            let sealing = epochs.begin_seal().expect("room");
            epochs.finish_seal(sealing, Marks::new());
        }
        assert!(epochs.begin_seal().is_none());
        epochs.retire(1);
        assert!(epochs.begin_seal().is_some());
    }

    #[test]
    fn a_dead_contexts_marks_are_forgotten() {
        let epochs = Epochs::<u32>::default();
        let sealing = epochs.begin_seal().expect("free");
        epochs.finish_seal(sealing, smallvec![1, 2]);
        epochs.forget(|mark| *mark == 1);
        assert_eq!(epochs.take_oldest().expect("still there").marks.as_slice(), [2]);
    }
}
