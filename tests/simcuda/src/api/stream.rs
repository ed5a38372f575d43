//! Streams.

use super::{give, want};
use crate::codes::{INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NOT_READY, R};
use crate::engine::Effect;
use crate::world::World;

impl World {
    fn fault_of(&self, stream: u64) -> R {
        let fault = self.streams.get(&stream).and_then(|s| self.ctxs.get(&s.ctx)).and_then(|c| c.fault);
        fault.map_or(Ok(()), Err)
    }

    fn destroy_stream(&mut self, stream: u64) -> R {
        let s = self.streams.get(&stream).ok_or(INVALID_HANDLE)?.clone();
        let c = self.ctxs.get_mut(&s.ctx).ok_or(INVALID_CONTEXT)?;
        if c.legacy == stream || c.per_thread.values().any(|h| *h == stream) {
            return Err(INVALID_HANDLE);
        }
        c.streams.retain(|h| *h != stream);
        // Its work goes on; what waits for the whole context or device still has to wait for it.
        c.gone = c.gone.max(s.end);
        if s.flags & 1 == 0 {
            c.gone_blocking = c.gone_blocking.max(s.end);
        }
        if let Some((id, _)) = s.capture {
            self.invalidate(&[id]);
            if self.captures.get(&id).is_some_and(|c| c.origin == stream) {
                self.abandon_capture(id);
            }
        }
        self.streams.remove(&stream);
        Ok(())
    }
}

driver! {
    /// Makes a stream; flag 1 makes it independent of the legacy stream.
    Ctx fn cuStreamCreate: (stream: *mut u64, flags: u32) |w| {
        want(stream)?;
        if flags > 1 {
            return Err(INVALID_VALUE);
        }
        let h = w.add_stream(w.cur, flags, 0)?;
        give(stream, h);
        Ok(())
    }

    /// Makes a stream with a priority, which only can be asked for again.
    Ctx fn cuStreamCreateWithPriority: (stream: *mut u64, flags: u32, priority: i32) |w| {
        want(stream)?;
        if flags > 1 {
            return Err(INVALID_VALUE);
        }
        let h = w.add_stream(w.cur, flags, priority.clamp(-5, 0))?;
        give(stream, h);
        Ok(())
    }

    /// Ends a stream; its work goes on.
    Ctx fn cuStreamDestroy_v2: (stream: u64) |w| { w.destroy_stream(stream) }

    /// Waits for a stream.
    Ctx fn cuStreamSynchronize [cuStreamSynchronize_ptsz]: (stream: u64) |w| {
        let s = w.stream(stream)?;
        w.check_stream(s)?;
        let end = w.idle_at(s);
        w.advance_to(end);
        w.fault_of(s)
    }

    /// Whether a stream has nothing left to do.
    Ctx fn cuStreamQuery [cuStreamQuery_ptsz]: (stream: u64) |w| {
        let s = w.stream(stream)?;
        w.check_stream(s)?;
        w.fault_of(s)?;
        if w.idle_at(s) > w.engine.now { Err(NOT_READY) } else { Ok(()) }
    }

    /// Makes a stream wait for an event.
    Ctx fn cuStreamWaitEvent [cuStreamWaitEvent_ptsz]: (stream: u64, event: u64, flags: u32) |w| {
        if flags & !1 != 0 {
            return Err(INVALID_VALUE);
        }
        let s = w.stream(stream)?;
        w.wait_event(s, event)
    }

    /// The context of a stream.
    Ctx fn cuStreamGetCtx [cuStreamGetCtx_ptsz]: (stream: u64, context: *mut u64) |w| {
        want(context)?;
        let s = w.stream(stream)?;
        give(context, w.streams[&s].ctx);
        Ok(())
    }

    /// Identity of a stream, never reused.
    Ctx fn cuStreamGetId [cuStreamGetId_ptsz]: (stream: u64, id: *mut u64) |w| {
        want(id)?;
        let s = w.stream(stream)?;
        give(id, w.streams[&s].id);
        Ok(())
    }

    /// Priority of a stream.
    Ctx fn cuStreamGetPriority [cuStreamGetPriority_ptsz]: (stream: u64, priority: *mut i32) |w| {
        want(priority)?;
        let s = w.stream(stream)?;
        give(priority, w.streams[&s].priority);
        Ok(())
    }

    /// Flags of a stream.
    Ctx fn cuStreamGetFlags [cuStreamGetFlags_ptsz]: (stream: u64, flags: *mut u32) |w| {
        want(flags)?;
        let s = w.stream(stream)?;
        give(flags, w.streams[&s].flags);
        Ok(())
    }

    /// Runs a host function when the stream gets there. The function must not call the driver.
    Ctx fn cuLaunchHostFunc [cuLaunchHostFunc_ptsz]: (stream: u64, f: usize, data: usize) |w| {
        if f == 0 {
            return Err(INVALID_VALUE);
        }
        let s = w.stream(stream)?;
        w.submit(s, Effect::Host { f, data }, 0)
    }

    /// The older form, whose function also gets the stream and a result.
    Ctx fn cuStreamAddCallback [cuStreamAddCallback_ptsz]: (stream: u64, f: usize, data: usize, flags: u32) |w| {
        if f == 0 || flags != 0 {
            return Err(INVALID_VALUE);
        }
        let s = w.stream(stream)?;
        w.check_stream(s)?;
        w.submit(s, Effect::StreamCallback { f, stream, data }, 0)
    }
}
