//! Contexts: primary and created ones, and what dies with them.

use crate::codes::{INVALID_CONTEXT, INVALID_DEVICE, R};
use crate::memory::Kind;
use crate::stream::Stream;
use crate::world::World;
use std::collections::{HashMap, HashSet};

/// A live context.
#[derive(Default)]
pub struct Context {
    /// Ordinal of its device.
    pub device: i32,
    /// `cuCtxGetId`; differs between two contexts that had the same handle value.
    pub id: u64,
    /// API version given at creation.
    pub api: u32,
    /// Creation flags.
    pub flags: u32,
    /// Error that every later call returns.
    pub fault: Option<i32>,
    /// All work submitted from now on starts no earlier than this.
    pub floor: u64,
    /// When the work of its destroyed streams completes.
    pub gone: u64,
    /// The same, of the blocking ones.
    pub gone_blocking: u64,
    /// Handle of its legacy default stream.
    pub legacy: u64,
    /// Per-thread default streams by thread number.
    pub per_thread: HashMap<u64, u64>,
    /// All its streams.
    pub streams: Vec<u64>,
    /// The primary context whose memory it uses, if it is a green one.
    pub green_of: Option<u64>,
    /// Contexts whose memory it may reach.
    pub peers: HashSet<u64>,
}

/// The primary context of a device.
#[derive(Default)]
pub struct Primary {
    /// Handle value; the same after every reset, as read off an H200 (driver 580).
    pub handle: u64,
    /// Retains that have not been released.
    pub refs: u32,
    /// Flags for the next creation.
    pub flags: u32,
}

impl World {
    /// Checks a device ordinal.
    pub fn device(&self, device: i32) -> R<usize> {
        if (0..self.config.devices).contains(&device) { Ok(device as usize) } else { Err(INVALID_DEVICE) }
    }

    /// Makes a context under `handle`.
    pub fn make_context(&mut self, handle: u64, device: i32, flags: u32, api: u32) {
        self.ids += 1;
        let legacy = self.handle();
        self.streams.insert(legacy, Stream::new(handle, 0, self.ids));
        let context =
            Context { device, id: self.ids, api, flags, legacy, streams: vec![legacy], ..Context::default() };
        self.ctxs.insert(handle, context);
    }

    /// Retains the primary context of a device and returns its handle.
    pub fn retain_primary(&mut self, device: i32) -> R<u64> {
        let d = self.device(device)?;
        if self.primaries[d].handle == 0 {
            self.primaries[d].handle = self.handle();
        }
        let (handle, flags) = (self.primaries[d].handle, self.primaries[d].flags);
        if !self.ctxs.contains_key(&handle) {
            self.make_context(handle, device, flags, 13_000);
            self.spend(475_000_000);
        }
        self.primaries[d].refs += 1;
        Ok(handle)
    }

    /// Gives one retain back; the last one destroys the context.
    pub fn release_primary(&mut self, device: i32) -> R {
        let d = self.device(device)?;
        if self.primaries[d].refs == 0 {
            return Err(INVALID_CONTEXT);
        }
        self.primaries[d].refs -= 1;
        if self.primaries[d].refs == 0 {
            self.destroy_context(self.primaries[d].handle);
        }
        Ok(())
    }

    /// Destroys the primary context whoever holds it.
    pub fn reset_primary(&mut self, device: i32) -> R {
        let d = self.device(device)?;
        self.primaries[d].refs = 0;
        self.destroy_context(self.primaries[d].handle);
        Ok(())
    }

    /// The context that memory belongs to which is allocated while `ctx` is current.
    pub fn home(&self, ctx: u64) -> u64 {
        self.ctxs.get(&ctx).and_then(|c| c.green_of).unwrap_or(ctx)
    }

    /// A context, and its green contexts.
    pub fn with_green(&self, ctx: u64) -> Vec<u64> {
        let green = self.ctxs.iter().filter(|(_, c)| c.green_of == Some(ctx)).map(|(h, _)| *h);
        std::iter::once(ctx).chain(green).collect()
    }

    /// When all work of a context submitted so far has completed.
    pub fn context_end(&self, ctx: u64) -> u64 {
        self.with_green(ctx).into_iter().map(|one| self.own_end(one)).max().unwrap_or(0)
    }

    fn own_end(&self, ctx: u64) -> u64 {
        let Some(c) = self.ctxs.get(&ctx) else { return 0 };
        c.streams
            .iter()
            .filter_map(|s| self.streams.get(s))
            .map(|s| s.end)
            .fold(c.floor.max(c.gone), u64::max)
    }

    /// When all work on a device submitted so far has completed.
    pub fn device_end(&self, device: i32) -> u64 {
        let on_device = self.ctxs.iter().filter(|(_, c)| c.device == device);
        on_device.map(|(h, _)| self.context_end(*h)).max().unwrap_or(0)
    }

    /// Ends a context: its work completes, then its memory, streams, events and captures are gone.
    pub fn destroy_context(&mut self, ctx: u64) {
        self.advance_to(self.context_end(ctx));
        if self.ctxs.remove(&ctx).is_none() {
            return;
        }
        self.engine.forget(ctx);
        self.captures.retain(|_, c| c.ctx != ctx);
        self.streams.retain(|_, s| s.ctx != ctx);
        self.events.retain(|_, e| e.ctx != ctx);
        self.graphs.retain(|_, g| g.ctx != ctx);
        self.execs.retain(|_, e| e.graph.ctx != ctx);
        // Pools belong to the device, so their memory outlives a created context; a reset of the device's own context
        // takes all memory, as read off an H200 (driver 580).
        let primary = self.primaries.iter().any(|p| p.handle == ctx);
        let owned = |k: Kind| primary || !matches!(k, Kind::Pool(_));
        let dead: Vec<u64> =
            self.allocs.iter().filter(|(_, a)| a.ctx == ctx && owned(a.kind)).map(|(b, _)| *b).collect();
        for base in dead {
            self.release(base);
        }
    }
}
