//! Who seals epochs and asks about them: one thread at a time. The others go on without, or wait a moment for what that one finds
//! out.

use super::Gpu;
use super::fence::Fence;
use crate::pool::Epoch;

/// Looks at what another thread is finding out, and how many such threads are waited for.
const WATCHED: u32 = 32;
const TURNS: u32 = 8;

impl<G: Gpu> Fence<G> {
    /// Seals the current epoch. False if nothing was sealed: a capture is open, another thread is at it, too many are
    /// outstanding, the driver cannot, or a call failed.
    pub fn seal(&self) -> bool {
        self.turn.try_lock().is_some_and(|_turn| self.seal_in_turn())
    }

    /// Asks the oldest sealed epochs whether their work is done, a few at most; true if any was retired.
    pub fn poll(&self) -> bool {
        // First of all without writing anything that other threads read.
        self.has_outstanding() && self.turn.try_lock().is_some_and(|_turn| self.poll_in_turn())
    }

    /// Finds out whether `wanted` is over, as far as can be known without waiting for the GPU; with `seal` it is sealed for that if
    /// it has to be. While other threads are in the way, waits a moment for what they find out, which mostly takes each less than a
    /// microsecond: who went on without would meet them at the heap's lock, for longer. False if they were in the way for too long
    /// for anything to be known.
    pub fn inquire(&self, wanted: Epoch, seal: bool) -> bool {
        for _ in 0..TURNS {
            if self.retired() >= wanted || !(seal || self.has_outstanding()) {
                return true;
            }
            if let Some(_turn) = self.turn.try_lock() {
                // A few at a time, as long as any is done.
                while self.has_outstanding() && self.retired() < wanted && self.poll_in_turn() {}
                let sealed = self.epochs.newest_sealed().max(self.retired());
                if seal && sealed < wanted && self.seal_in_turn() {
                    self.poll_in_turn(); // of an idle device it is done at once
                }
                return true;
            }
            self.watch();
        }
        false
    }

    /// Waits until another thread has retired anything, or has done with asking; not for long.
    fn watch(&self) {
        let before = self.retired();
        for _ in 0..WATCHED {
            if self.retired() != before || !self.turn.is_locked() {
                break;
            }
            std::hint::spin_loop();
        }
    }
}
