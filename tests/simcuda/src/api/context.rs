//! Contexts: making, destroying, the stack of the calling thread, synchronising.

use super::{give, want};
use crate::codes::{INVALID_CONTEXT, INVALID_VALUE, PEER_ALREADY, PEER_NOT_ENABLED, R};
use crate::thread::stack;
use crate::world::World;
use std::ffi::c_void;

impl World {
    /// A live context without a fault, by handle; 0 means the current one where a function takes it so.
    pub fn usable(&self, context: u64) -> R {
        let c = self.ctxs.get(&context).ok_or(INVALID_CONTEXT)?;
        c.fault.map_or(Ok(()), Err)
    }

    fn create(&mut self, out: *mut u64, flags: u32, device: i32, api: u32) -> R {
        want(out)?;
        self.device(device)?;
        let h = self.handle();
        self.make_context(h, device, flags, api);
        stack(|s| s.push(h));
        give(out, h);
        Ok(())
    }

    /// Waits for all work of a context.
    pub fn synchronize(&mut self, context: u64) -> R {
        self.check_context(context)?;
        self.advance_to(self.context_end(context));
        self.ctxs.get(&context).and_then(|c| c.fault).map_or(Ok(()), Err)
    }
}

driver! {
    /// Makes a context and makes it current.
    Init fn cuCtxCreate_v2: (context: *mut u64, flags: u32, device: i32) |w| { w.create(context, flags, device, 3020) }

    /// The same with execution affinities, which mean nothing here.
    Init fn cuCtxCreate_v3: (context: *mut u64, _affinity: *const c_void, _count: i32, flags: u32, device: i32) |w| {
        w.create(context, flags, device, 3020)
    }

    /// The same with creation parameters, which mean nothing here.
    Init fn cuCtxCreate_v4: (context: *mut u64, _params: *const c_void, flags: u32, device: i32) |w| {
        w.create(context, flags, device, 3020)
    }

    /// Ends a created context.
    Init fn cuCtxDestroy_v2: (context: u64) |w| {
        if !w.ctxs.contains_key(&context) || w.primaries.iter().any(|p| p.handle == context) {
            return Err(INVALID_CONTEXT);
        }
        w.destroy_context(context);
        stack(|s| {
            s.pop_if(|top| *top == context);
        });
        Ok(())
    }

    /// The current context, 0 if none.
    Init fn cuCtxGetCurrent: (context: *mut u64) |w| {
        want(context)?;
        give(context, w.cur);
        Ok(())
    }

    /// Replaces the current context; 0 removes it.
    Init fn cuCtxSetCurrent: (context: u64) |w| {
        if context != 0 && !w.ctxs.contains_key(&context) {
            return Err(INVALID_CONTEXT);
        }
        stack(|s| {
            s.pop();
            if context != 0 {
                s.push(context);
            }
        });
        Ok(())
    }

    /// Pushes a context.
    Init fn cuCtxPushCurrent_v2: (context: u64) |w| {
        if !w.ctxs.contains_key(&context) {
            return Err(INVALID_CONTEXT);
        }
        stack(|s| s.push(context));
        Ok(())
    }

    /// Pops the current context.
    Init fn cuCtxPopCurrent_v2: (context: *mut u64) |_w| {
        let old = stack(Vec::pop).ok_or(INVALID_CONTEXT)?;
        give(context, old);
        Ok(())
    }

    /// Device of the current context.
    Ctx fn cuCtxGetDevice: (device: *mut i32) |w| {
        want(device)?;
        give(device, w.ctx()?.device);
        Ok(())
    }

    /// Device of a context; 0 means the current one.
    Init fn cuCtxGetDevice_v2: (device: *mut i32, context: u64) |w| {
        want(device)?;
        let h = if context == 0 { w.cur } else { context };
        give(device, w.ctxs.get(&h).ok_or(INVALID_CONTEXT)?.device);
        Ok(())
    }

    /// Waits for all work of the current context.
    Ctx fn cuCtxSynchronize: () |w| { w.synchronize(w.cur) }

    /// Waits for all work of a context; 0 means the current one.
    Init fn cuCtxSynchronize_v2: (context: u64) |w| {
        let h = if context == 0 { w.cur } else { context };
        w.usable(h)?;
        w.synchronize(h)
    }

    /// Identity of a context, which is never reused.
    Init fn cuCtxGetId: (context: u64, id: *mut u64) |w| {
        want(id)?;
        let h = if context == 0 { w.cur } else { context };
        give(id, w.ctxs.get(&h).ok_or(INVALID_CONTEXT)?.id);
        Ok(())
    }

    /// API version of a context; 0 means the current one.
    Init fn cuCtxGetApiVersion: (context: u64, version: *mut u32) |w| {
        want(version)?;
        let h = if context == 0 { w.cur } else { context };
        give(version, w.ctxs.get(&h).ok_or(INVALID_CONTEXT)?.api);
        Ok(())
    }

    /// Flags of the current context.
    Ctx fn cuCtxGetFlags: (flags: *mut u32) |w| {
        want(flags)?;
        give(flags, w.ctx()?.flags);
        Ok(())
    }

    /// Priorities that streams may have; either pointer may be null.
    Ctx fn cuCtxGetStreamPriorityRange: (least: *mut i32, greatest: *mut i32) |_w| {
        give(least, 0);
        give(greatest, -5);
        Ok(())
    }

    /// Lets the current context reach another's memory. All memory is reachable here; only the state is kept.
    Ctx fn cuCtxEnablePeerAccess: (peer: u64, flags: u32) |w| {
        let device = w.ctxs.get(&peer).ok_or(INVALID_CONTEXT)?.device;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        let own = w.ctx()?;
        if own.device == device {
            return Err(crate::codes::PEER_UNSUPPORTED);
        }
        if own.peers.insert(peer) { Ok(()) } else { Err(PEER_ALREADY) }
    }

    /// Ends what `cuCtxEnablePeerAccess` began.
    Ctx fn cuCtxDisablePeerAccess: (peer: u64) |w| {
        if w.ctx()?.peers.remove(&peer) { Ok(()) } else { Err(PEER_NOT_ENABLED) }
    }
}
