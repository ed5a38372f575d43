//! What a miss tries, in order, until only "out of memory" is left. After every step that may have freed something the
//! heap is searched again.
//!
//! 1. seal what is freed, ask which sealed epochs are done, and take back what other threads have cached and not used
//!    (what large requests try before that, in any case, is in `large.rs`);
//! 2. wait, on the device, for memory that is only pending, unless the heap may still grow within the slack that
//!    rotation may use: blocks then go round first in, first out, and are done when their turn comes again;
//! 3. grow within the cap, where the high-water mark would rise having first given idle regions back, or waited for what a
//!    range may move (`patience.rs`);
//! 4. wait for whatever is pending, give all idle regions back, grow by no more than needed, also at the cost of the
//!    device's other contexts;
//! 5. out of memory.
//!
//! While a stream captures, steps that wait are left out: they would kill the capture.

use super::backing::Grow;
use super::books::Change;
use super::server::Server;
use super::{CuResult, Gpu};
use crate::pool::local::Thread;
use crate::pool::{Cache, Drain, Epoch, Popped};
use crate::report::history::What;
use crate::report::units::human;
use std::time::Instant;

/// How to serve a request that no clean memory serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plan {
    /// Pending memory would do, but the heap may still grow within the slack.
    Rotate,
    /// Pending memory will do once all later work is ordered after this epoch.
    Wait(Epoch),
    /// Nothing pending would do, or nothing may be waited for.
    Grow,
}

/// What can still free memory once growing has failed.
enum Step {
    /// Order all later work after what is pending.
    Wait,
    /// Give this context's idle regions back.
    GiveBack,
    /// Give back those of the device's other contexts.
    Reclaim,
    /// Other processes and threads may have freed memory meanwhile.
    AskAgain,
}

impl Plan {
    fn in_words(self) -> String {
        match self {
            Plan::Rotate => "growing, so that more blocks go round".to_owned(),
            Plan::Wait(epoch) => format!("waiting on the device for epoch {epoch}"),
            Plan::Grow => "growing".to_owned(),
        }
    }
}

impl Step {
    fn in_words(&self) -> &'static str {
        match self {
            Step::Wait => "all pending memory waited for",
            Step::GiveBack => "all idle memory given back",
            Step::Reclaim => "the idle memory of other contexts given back",
            Step::AskAgain => "in case others have freed memory meanwhile",
        }
    }
}

impl<G: Gpu> Server<G> {
    /// Serves `bytes`.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY` when neither the cache nor the cap nor the driver has the memory; the driver's own
    /// code when it failed for another reason; `CUDA_ERROR_INVALID_VALUE` for 0 bytes; `CUDA_ERROR_NOT_SUPPORTED` for
    /// what only the driver can serve.
    #[inline(always)]
    pub fn alloc(&self, thread: &Thread, bytes: u64) -> Result<u64, CuResult> {
        if bytes == 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        if let Some(address) = self.try_hit(thread, bytes) {
            return Ok(address);
        }
        self.miss(thread.get(self.owner), bytes)
    }

    #[inline(never)]
    fn miss(&self, cache: Option<&Cache>, bytes: u64) -> Result<u64, CuResult> {
        if !self.fence.is_ordered() {
            // Clean memory would not be clean for every context.
            return Err(CuResult::NOT_SUPPORTED);
        }
        let (calm, endings) = (self.fence.touch().is_some(), self.fence.endings());
        let mut result = self.climb(cache, bytes);
        let failed = matches!(result, Err(CuResult::OUT_OF_MEMORY | CuResult::NOT_SUPPORTED));
        if failed && self.is_alive() && (!calm || self.fence.was_disturbed(endings)) {
            // While another thread ended a context, nothing could be given back or waited for.
            self.fence.await_calm();
            result = self.climb(cache, bytes);
        }
        match result {
            Err(CuResult::OUT_OF_MEMORY) => {
                self.note_oom(bytes);
                Err(CuResult::OUT_OF_MEMORY)
            }
            other => other,
        }
    }

    fn climb(&self, cache: Option<&Cache>, bytes: u64) -> Result<u64, CuResult> {
        let account = &self.books.account;
        // No larger than the cap, and a size that cannot be rounded is larger than any device.
        let rounded = self.tuning.rounding.round(bytes).filter(|size| *size <= account.limit_bytes());
        let Some(rounded) = rounded else { return Err(CuResult::OUT_OF_MEMORY) };
        let search = || match self.pop(cache, bytes, rounded) {
            Popped::Block(address) => Some(address),
            _ => self.take(cache, bytes, rounded, true, false),
        };
        tracing::trace!("no clean block at hand for {bytes} B");

        if self.should_rotate(rounded) {
            let _turn = self.growing.lock();
            if let Some(address) = search() {
                return Ok(address);
            }
            if let Ok(address) = self.grow_and_take(cache, bytes, rounded, Grow::Rotation) {
                return Ok(address);
            }
        }

        let waiting = match self.pop(cache, bytes, rounded) {
            Popped::Block(address) => return Ok(address),
            Popped::Waiting(epoch) => Some(epoch),
            Popped::Empty => None,
        };
        let newest = self.locked().heap.newest_pending().max(waiting).unwrap_or(0);
        // What caches and depots hold may be older than all that, sealed, and done with.
        self.fence.inquire(newest.max(self.fence.newest_sealed()), true);
        if let Some(address) = search() {
            return Ok(address);
        }
        if let Some(epoch) = waiting
            && self.wait_for_own(rounded, epoch)
            && let Some(address) = search()
        {
            return Ok(address);
        }
        // What one thread has put by, before everything that all of them have: they would have to get it back from the heap, one
        // block at a time.
        for which in [Drain::One { bytes: rounded, retired: self.fence.retired() }, Drain::Like(rounded)] {
            if self.drain(which)
                && let Some(address) = search()
            {
                return Ok(address);
            }
        }
        let mut plan = self.plan(rounded);
        if plan == Plan::Grow {
            // Before any growth that rotation does not want: nothing that would do is left in a cache.
            self.drain(Drain::All);
            if let Some(address) = search() {
                return Ok(address);
            }
            plan = self.plan(rounded);
        }
        tracing::trace!("nothing that is done serves {bytes} B: {}", plan.in_words());
        if let Plan::Wait(epoch) = plan
            && self.wait_until(epoch)
            && let Some(address) = search()
        {
            return Ok(address);
        }

        let begun = Instant::now();
        let _turn = self.growing.lock();
        // Another thread may have grown the heap while this one waited for its turn.
        if let Some(address) = search() {
            return Ok(address);
        }
        self.collect_garbage(rounded);
        let mut grow = Grow::Rotation;
        if plan != Plan::Rotate {
            grow = Grow::Usual;
            self.make_room(rounded, begun);
        }
        let mut failure = match self.grow_and_take(cache, bytes, rounded, grow) {
            Ok(address) => return Ok(address),
            Err(code) => code,
        };
        for step in [Step::Wait, Step::GiveBack, Step::Reclaim, Step::AskAgain] {
            if failure != CuResult::OUT_OF_MEMORY {
                return Err(failure);
            }
            let changed = match step {
                Step::Wait => {
                    self.drain(Drain::All);
                    self.wait_for_all()
                }
                // What a range has free is moved by the growth itself, once the GPU is done with it.
                Step::GiveBack if self.has_range() => self.complete_range() || self.idle_bytes() > 0,
                Step::GiveBack => self.give_back(u64::MAX) > 0,
                Step::Reclaim => (self.books.reclaim)(self.books.device, u64::MAX) > 0,
                Step::AskAgain => true,
            };
            if !changed {
                continue;
            }
            if let Some(address) = search() {
                return Ok(address);
            }
            self.locked().counts.retry += 1;
            tracing::debug!("trying again to grow for {}, {}", human(bytes), step.in_words());
            match self.grow_and_take(cache, bytes, rounded, Grow::Least) {
                Ok(address) => return Ok(address),
                Err(code) => failure = code,
            }
        }
        // Frees of other threads may have come in while this one climbed.
        self.drain(Drain::All);
        self.wait_for_all();
        search().ok_or(failure)
    }

    /// Waits for what the thread's own cache has freed, unless rotation may still grow. To take back what the other threads
    /// cache would send all of them to the heap, one block at a time.
    fn wait_for_own(&self, rounded: u64, epoch: Epoch) -> bool {
        let due = {
            let inner = self.locked();
            inner.pace.is_due(self.served(&inner)) && !self.is_within_slack(&inner, rounded)
        };
        due && !self.fence.gate().capturing() && self.wait_until(epoch.max(self.fence.newest_sealed()))
    }

    /// What to do about a request that no clean memory serves.
    fn plan(&self, rounded: u64) -> Plan {
        if self.fence.gate().capturing() {
            return Plan::Grow;
        }
        let inner = self.locked();
        let Some(epoch) = inner.heap.epoch_needed(rounded) else { return Plan::Grow };
        if self.is_within_slack(&inner, rounded) {
            return Plan::Rotate;
        }
        // The newest that is sealed, not the oldest that would do: how many reuses a wait serves is what counts, and
        // the age of the event is not.
        Plan::Wait(epoch.max(self.fence.newest_sealed()))
    }

    /// Orders all later work after everything that is pending; true if there was anything.
    fn wait_for_all(&self) -> bool {
        let newest = self.locked().heap.newest_pending();
        newest.is_some_and(|epoch| self.wait_until(epoch))
    }

    pub(super) fn wait_until(&self, epoch: Epoch) -> bool {
        let done = self.fence.retired() >= epoch;
        if !self.fence.barrier(epoch) {
            return false;
        }
        let mut inner = self.locked();
        if !done {
            let served = self.served(&inner);
            inner.pace.waited(served);
            inner.counts.barrier += 1;
        }
        self.catch_up(&mut inner);
        drop(inner);
        if !done {
            self.chronicle(What::Barrier, 0, 0);
        }
        true
    }

    /// Grows the heap, by as little as will do if memory is short, and takes the block from it.
    pub(super) fn grow_and_take(
        &self,
        cache: Option<&Cache>,
        bytes: u64,
        rounded: u64,
        grow: Grow,
    ) -> Result<u64, CuResult> {
        if self.has_range()
            && let Some(result) = self.expand(cache, bytes, rounded, grow)
        {
            return result;
        }
        let least = grow == Grow::Least;
        let growth = self.locked().heap.growth(rounded);
        let preferred = (!least && growth.preferred > growth.minimum).then_some(growth.preferred);
        let mut failure = CuResult::OUT_OF_MEMORY;
        for size in preferred.into_iter().chain([growth.minimum]) {
            let reservation = match self.books.account.reserve(size) {
                Ok(reservation) => reservation,
                Err(over) => {
                    tracing::debug!(
                        "the cap of {} has no room to grow by {}: {} are in use",
                        human(over.limit),
                        human(over.asked),
                        human(over.in_use)
                    );
                    continue;
                }
            };
            // A context that is being ended, or has been, gets no region: the driver answers for it.
            let Some(_touch) = self.fence.touch().filter(|_| self.is_alive()) else {
                return Err(CuResult::NOT_SUPPORTED);
            };
            let begun = Instant::now();
            match self.fence.gpu().mem_alloc(self.ctx(), size) {
                Ok(address) => {
                    let took = begun.elapsed();
                    let mut inner = self.locked();
                    inner.counts.driver_alloc += 1;
                    inner.driver_time.allocs += 1;
                    inner.driver_time.alloc_ns += took.as_nanos() as u64;
                    if !inner.heap.add_region(address, size) {
                        // An address that the index cannot hold: nothing to build a pool on.
                        drop(inner);
                        let _ = self.fence.gpu().mem_free(self.ctx(), address);
                        tracing::error!("the driver's address {address:#x} is beyond what the pool can hold");
                        return Err(CuResult::NOT_SUPPORTED);
                    }
                    reservation.for_pool();
                    // Under the same lock: the heap has grown for this request and not for another thread's.
                    let served = self.take_locked(&mut inner, cache, bytes, rounded, false);
                    let reserved = inner.heap.reserved().current;
                    drop(inner);
                    self.chronicle(What::SegmentAlloc, address, size);
                    self.note_peak();
                    (self.books.changed)(self.books.device, Change::Held);
                    tracing::debug!(
                        "grew by {} to {} for a request of {bytes} B, in {:.1} µs",
                        human(size),
                        human(reserved),
                        took.as_secs_f64() * 1e6
                    );
                    if let Some(address) = served {
                        return Ok(address);
                    }
                }
                Err(code) => {
                    drop(reservation);
                    self.note_error(code);
                    tracing::debug!("the driver refused {} to the pool: error {}", human(size), code.0);
                    failure = code;
                    if code != CuResult::OUT_OF_MEMORY {
                        break;
                    }
                }
            }
        }
        Err(failure)
    }
}
