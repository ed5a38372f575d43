//! Keeps stream captures and barriers apart.
//!
//! Recording, waiting on and synchronising a context while one of its streams captures fails **and invalidates the
//! capture** (seen on a driver 580 for every capture mode and from any thread). So no such call may start while a
//! capture is open, and no capture may begin while one is under way.

use crate::sync::{AtomicU32, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The process's gate. Readers: calls that would kill a capture. Writers: the moments at which a capture begins.
#[derive(Default)]
pub struct Gate {
    lock: RwLock<()>,
    open_captures: AtomicU32,
}

/// Leave to make calls that would kill a capture, for as long as it lives.
pub struct Pass<'a>(#[allow(dead_code, reason = "held for its lock")] RwLockReadGuard<'a, ()>);

/// The moment at which a capture begins: no [`Pass`] is out, and none is given.
pub struct Beginning<'a> {
    gate: &'a Gate,
    _lock: RwLockWriteGuard<'a, ()>,
}

impl Gate {
    /// A gate with no capture open.
    pub fn new() -> Gate {
        Gate { lock: RwLock::new(()), open_captures: AtomicU32::new(0) }
    }

    /// Whether any stream of the process captures. Stable only while a [`Pass`] or a [`Beginning`] is held.
    #[inline]
    pub fn capturing(&self) -> bool {
        self.open_captures.load(Ordering::Acquire) != 0
    }

    /// Leave to record, wait or synchronise; `None` while a capture is open or about to begin.
    pub fn pass(&self) -> Option<Pass<'_>> {
        if self.capturing() {
            return None;
        }
        let guard = self.lock.try_read()?;
        (!self.capturing()).then_some(Pass(guard))
    }

    /// Waits until no pass is out; hold the result across the driver's begin call.
    pub fn begin(&self) -> Beginning<'_> {
        Beginning { _lock: self.lock.write(), gate: self }
    }

    /// One capture has ended, whatever its result.
    pub fn ended(&self) {
        let closed =
            self.open_captures.fetch_update(Ordering::AcqRel, Ordering::Acquire, |open| open.checked_sub(1));
        debug_assert!(closed.is_ok(), "more captures ended than began");
    }
}

impl Beginning<'_> {
    /// The driver has begun the capture.
    pub fn succeeded(self) {
        self.gate.open_captures.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    /// A capture by another thread, begun and ended; in the driver it is open from a moment inside the begin call on.
    fn capture(gate: &Arc<Gate>, open: &Arc<AtomicBool>) -> thread::JoinHandle<()> {
        let (gate, open) = (Arc::clone(gate), Arc::clone(open));
        thread::spawn(move || {
            let beginning = gate.begin();
            open.store(true, Ordering::SeqCst);
            beginning.succeeded();
            open.store(false, Ordering::SeqCst);
            gate.ended();
        })
    }

    #[test]
    fn no_barrier_is_under_way_when_a_capture_begins_and_none_starts_while_it_is_open() {
        loom::model(|| {
            let gate = Arc::new(Gate::new());
            let open = Arc::new(AtomicBool::new(false));
            let capturer = capture(&gate, &open);
            if let Some(_pass) = gate.pass() {
                assert!(!open.load(Ordering::SeqCst), "a call that kills captures while one is open");
            }
            capturer.join().unwrap();
            assert!(!gate.capturing());
            assert!(gate.pass().is_some(), "and afterwards barriers are possible again");
        });
    }

    /// Captures overlap: the end of one opens nothing while another is open.
    #[test]
    fn a_barrier_is_out_of_the_question_until_the_last_capture_has_ended() {
        loom::model(|| {
            let gate = Arc::new(Gate::new());
            let open = Arc::new(AtomicBool::new(false));
            gate.begin().succeeded();
            let other = capture(&gate, &open);
            assert!(gate.pass().is_none(), "this thread's own capture is open");
            gate.ended();
            if let Some(_pass) = gate.pass() {
                assert!(!open.load(Ordering::SeqCst), "a barrier while the other's capture is open");
            }
            other.join().unwrap();
            assert!(!gate.capturing() && gate.pass().is_some());
        });
    }

    /// A begin call that the driver refuses leaves the gate as it was.
    #[test]
    fn a_capture_that_does_not_begin_closes_nothing() {
        loom::model(|| {
            let gate = Arc::new(Gate::new());
            let refused = {
                let gate = Arc::clone(&gate);
                thread::spawn(move || drop(gate.begin()))
            };
            drop(gate.pass());
            refused.join().unwrap();
            assert!(gate.pass().is_some());
        });
    }
}
