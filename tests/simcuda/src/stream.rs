//! Streams and events. A stream is the completion time of its last operation; an event is the completion time of what
//! it was recorded behind. Everything that orders work is a maximum over such times.

use crate::codes::{CAPTURE_IMPLICIT, CAPTURE_INVALIDATED, INVALID_HANDLE, R};
use crate::engine::Effect;
use crate::world::World;

/// A stream.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Its context.
    pub ctx: u64,
    /// Creation flags; 1 is non-blocking.
    pub flags: u32,
    /// Priority given at creation.
    pub priority: i32,
    /// `cuStreamGetId`.
    pub id: u64,
    /// When its last operation completes.
    pub end: u64,
    /// The capture that it takes part in, and the nodes that the next operation depends on.
    pub capture: Option<(u64, Vec<usize>)>,
}

impl Stream {
    /// A fresh stream of context `ctx`.
    pub fn new(ctx: u64, flags: u32, id: u64) -> Stream {
        Stream { ctx, flags, priority: 0, id, end: 0, capture: None }
    }
}

/// An event.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its context.
    pub ctx: u64,
    /// Creation flags; 2 disables timing.
    pub flags: u32,
    /// Whether it has been recorded since it was made.
    pub recorded: bool,
    /// When what it was recorded behind completes.
    pub done: u64,
    /// The capture and nodes that it stands for, if it was last recorded in a capturing stream.
    pub capture: Option<(u64, Vec<usize>)>,
}

/// The legacy default stream's handle.
pub const LEGACY: u64 = 1;
/// The per-thread default stream's handle.
pub const PER_THREAD: u64 = 2;

impl World {
    /// Turns a handle that a program passed into the handle of a live stream. 0 means the legacy stream, or the
    /// per-thread one in per-thread entry points.
    pub fn stream(&mut self, handle: u64) -> R<u64> {
        let per_thread = self.per_thread;
        match handle {
            PER_THREAD => self.own_stream(),
            0 if per_thread => self.own_stream(),
            0 | LEGACY => Ok(self.ctx()?.legacy),
            h if self.streams.contains_key(&h) => Ok(h),
            _ => Err(INVALID_HANDLE),
        }
    }

    fn own_stream(&mut self) -> R<u64> {
        let (thread, cur) = (self.thread, self.cur);
        if let Some(h) = self.ctx()?.per_thread.get(&thread) {
            return Ok(*h);
        }
        let h = self.add_stream(cur, 0, 0)?;
        self.ctx()?.per_thread.insert(thread, h);
        Ok(h)
    }

    /// Makes a stream of a context.
    pub fn add_stream(&mut self, ctx: u64, flags: u32, priority: i32) -> R<u64> {
        let h = self.handle();
        let stream = Stream { priority, ..Stream::new(ctx, flags, self.ids) };
        self.ctxs.get_mut(&ctx).ok_or(crate::codes::INVALID_CONTEXT)?.streams.push(h);
        self.streams.insert(h, stream);
        Ok(h)
    }

    /// The earliest time at which an operation submitted now to a live stream may start.
    pub fn ready(&self, stream: u64) -> u64 {
        let s = &self.streams[&stream];
        let Some(c) = self.ctxs.get(&s.ctx) else { return self.engine.now };
        let mut t = self.engine.now.max(s.end).max(c.floor);
        if stream == c.legacy {
            t = t.max(c.gone_blocking);
            for other in c.streams.iter().filter_map(|h| self.streams.get(h)).filter(|o| o.flags & 1 == 0) {
                t = t.max(other.end);
            }
        } else if s.flags & 1 == 0
            && let Some(legacy) = self.streams.get(&c.legacy)
        {
            t = t.max(legacy.end);
        }
        t
    }

    /// When a live stream has nothing left to do. Asking about the legacy stream asks about all blocking ones.
    pub fn idle_at(&self, stream: u64) -> u64 {
        let s = &self.streams[&stream];
        match self.ctxs.get(&s.ctx) {
            Some(c) if c.legacy == stream => self.ready(stream),
            _ => s.end,
        }
    }

    /// Submits an operation to a live stream, or adds it to the graph that the stream captures.
    pub fn submit(&mut self, stream: u64, effect: Effect, ns: u64) -> R {
        self.check_implicit(stream)?;
        if self.streams[&stream].capture.is_some() {
            return self.add_captured(stream, effect, ns);
        }
        self.schedule(stream, effect, ns);
        Ok(())
    }

    /// Submits without regard to captures; returns the completion time.
    pub fn schedule(&mut self, stream: u64, effect: Effect, ns: u64) -> u64 {
        let end = self.ready(stream) + ns;
        let s = self.streams.get_mut(&stream).expect("live stream");
        s.end = end;
        let ctx = s.ctx;
        if !matches!(effect, Effect::Nothing) {
            self.engine.push(end, ctx, effect);
        }
        end
    }

    /// Work on the legacy stream would make it depend on a blocking stream that captures: an error that ends the
    /// capture, as CUDA documents.
    pub fn check_implicit(&mut self, stream: u64) -> R {
        let ids = self.implicit(stream);
        self.invalidate(&ids);
        if ids.is_empty() { Ok(()) } else { Err(CAPTURE_IMPLICIT) }
    }

    /// The captures of blocking streams, if the stream is the legacy one of their context.
    pub fn implicit(&self, stream: u64) -> Vec<u64> {
        let context = self.ctxs.get(&self.streams[&stream].ctx).filter(|c| c.legacy == stream);
        let streams = context.into_iter().flat_map(|c| &c.streams).filter_map(|h| self.streams.get(h));
        streams.filter(|s| s.flags & 1 == 0).filter_map(|s| s.capture.as_ref().map(|(id, _)| *id)).collect()
    }

    /// Records an event behind a live stream's work.
    pub fn record_event(&mut self, event: u64, stream: u64) -> R {
        let ctx = self.streams[&stream].ctx;
        self.events.get(&event).filter(|e| e.ctx == ctx).ok_or(INVALID_HANDLE)?;
        self.check_implicit(stream)?;
        let capture = self.streams[&stream].capture.clone();
        if let Some((id, _)) = &capture
            && self.captures.get(id).is_none_or(|c| c.invalid)
        {
            return Err(CAPTURE_INVALIDATED);
        }
        let done = if capture.is_some() { 0 } else { self.schedule(stream, Effect::Nothing, 0) };
        let e = self.events.get_mut(&event).expect("checked above");
        e.recorded |= capture.is_none();
        e.done = done;
        e.capture = capture;
        Ok(())
    }

    /// Makes later work of a live stream wait for an event; forks or joins a capture when the event belongs to one.
    pub fn wait_event(&mut self, stream: u64, event: u64) -> R {
        let e = self.events.get(&event).ok_or(INVALID_HANDLE)?.clone();
        if e.capture.is_some() || self.streams[&stream].capture.is_some() {
            return self.wait_captured(stream, &e);
        }
        self.check_implicit(stream)?;
        if e.recorded {
            let start = self.ready(stream);
            let s = self.streams.get_mut(&stream).expect("live stream");
            s.end = start.max(e.done);
        }
        Ok(())
    }
}
