//! Events.

use super::{give, want};
use crate::codes::{CAPTURED_EVENT, INVALID_HANDLE, INVALID_VALUE, NOT_READY, R};
use crate::stream::Event;
use crate::thread;
use crate::world::World;
use std::time::{Duration, Instant};

/// What a thread may let pass between two questions; a longer pause is a thread that was not run.
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

impl World {
    /// An event that the host may ask about: calls that ask are forbidden while the thread captures.
    fn asked(&mut self, event: u64) -> R<Event> {
        let e = self.events.get(&event).ok_or(INVALID_HANDLE)?.clone();
        if let Some((id, _)) = e.capture {
            self.invalidate(&[id]);
            return Err(CAPTURED_EVENT);
        }
        self.check_unsafe()?;
        Ok(e)
    }

    /// A thread that asks about the same event again and again waits by asking: the device works meanwhile, as long as the
    /// thread has really waited since it asked last.
    fn let_time_pass(&mut self, event: u64, done: u64) {
        let now = Instant::now();
        let asker = (thread::number(), event);
        let (last, before) = self.last_question.replace((asker, now)).unwrap_or((asker, now));
        if last == asker {
            let waited = (now - before).min(LONGEST_PAUSE).as_nanos() as u64;
            self.advance_to(done.min(self.engine.now + waited));
        }
    }

    fn elapsed(&self, out: *mut f32, from: u64, to: u64) -> R {
        want(out)?;
        let (a, b) =
            (self.events.get(&from).ok_or(INVALID_HANDLE)?, self.events.get(&to).ok_or(INVALID_HANDLE)?);
        if !a.recorded || !b.recorded || (a.flags | b.flags) & 2 != 0 {
            return Err(INVALID_HANDLE);
        }
        if a.done.max(b.done) > self.engine.now {
            return Err(NOT_READY);
        }
        give(out, (b.done as f64 - a.done as f64) as f32 / 1e6);
        Ok(())
    }
}

driver! {
    /// Makes an event.
    Ctx fn cuEventCreate: (event: *mut u64, flags: u32) |w| {
        want(event)?;
        if flags & !7 != 0 || flags & 6 == 4 {
            return Err(INVALID_VALUE);
        }
        let h = w.handle();
        w.events.insert(h, Event { ctx: w.cur, flags, recorded: false, done: 0, capture: None });
        give(event, h);
        Ok(())
    }

    /// Ends an event.
    Init fn cuEventDestroy_v2: (event: u64) |w| { w.events.remove(&event).map(|_| ()).ok_or(INVALID_HANDLE) }

    /// Records an event behind a stream's work.
    Ctx fn cuEventRecord [cuEventRecord_ptsz]: (event: u64, stream: u64) |w| {
        let s = w.stream(stream)?;
        w.record_event(event, s)
    }

    /// The same with flags.
    Ctx fn cuEventRecordWithFlags [cuEventRecordWithFlags_ptsz]: (event: u64, stream: u64, flags: u32) |w| {
        if flags > 1 {
            return Err(INVALID_VALUE);
        }
        let s = w.stream(stream)?;
        w.record_event(event, s)
    }

    /// Whether the work that an event stands behind has completed; an event that was never recorded is done.
    Init fn cuEventQuery: (event: u64) |w| {
        let e = w.asked(event)?;
        w.usable(e.ctx)?;
        if !e.recorded || e.done <= w.engine.now {
            return Ok(());
        }
        w.let_time_pass(event, e.done);
        w.usable(e.ctx)?;
        if e.done > w.engine.now { Err(NOT_READY) } else { Ok(()) }
    }

    /// Waits for an event.
    Init fn cuEventSynchronize: (event: u64) |w| {
        let e = w.asked(event)?;
        if e.recorded {
            w.advance_to(e.done);
        }
        w.usable(e.ctx)
    }

    /// Milliseconds between two events.
    Init fn cuEventElapsedTime: (ms: *mut f32, from: u64, to: u64) |w| { w.elapsed(ms, from, to) }

    /// Milliseconds between two events.
    Init fn cuEventElapsedTime_v2: (ms: *mut f32, from: u64, to: u64) |w| { w.elapsed(ms, from, to) }
}
