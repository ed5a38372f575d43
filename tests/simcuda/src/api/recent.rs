//! Functions that drivers of the 11.8 generation do not export. The feature `old-driver` leaves them out, so that tests
//! can show that nothing refers to them while loading.

#[cfg(feature = "old-driver")]
/// Nothing.
pub fn table() -> Vec<(&'static str, usize)> {
    Vec::new()
}

#[cfg(not(feature = "old-driver"))]
pub use present::*;

#[cfg(not(feature = "old-driver"))]
mod present {
    use crate::api::{give, want};
    use crate::codes::{INVALID_HANDLE, INVALID_VALUE};
    use std::ffi::{CStr, c_char, c_void};

    driver! {
        /// Finds a function, and says why it found none.
        Nothing fn cuGetProcAddress_v2 [cuGetProcAddress_v2_ptsz]: (symbol: *const c_char, found: *mut *const c_void, version: i32, flags: u64,
            status: *mut i32) |w| {
            want(symbol)?;
            want(found)?;
            // SAFETY: the caller passes a string.
            let name = unsafe { CStr::from_ptr(symbol) }.to_str().unwrap_or("");
            // The per-thread form finds per-thread functions unless asked for the others.
            let flags = if w.per_thread && flags == 0 { 2 } else { flags };
            let (address, why) = crate::procaddress::address(name, version, flags, w.config.version);
            give(found, address.unwrap_or(0) as *const c_void);
            give(status, why);
            address.map(|_| ())
        }

        /// Records an event behind all work of a context, on every stream.
        Init fn cuCtxRecordEvent: (context: u64, event: u64) |w| {
            w.usable(context)?;
            w.events.get(&event).filter(|e| e.ctx == context).ok_or(INVALID_HANDLE)?;
            w.check_context(context)?;
            let done = w.context_end(context).max(w.engine.now);
            let e = w.events.get_mut(&event).expect("checked above");
            (e.recorded, e.done, e.capture) = (true, done, None);
            Ok(())
        }

        /// Makes all later work of a context, on every stream, wait for an event.
        Init fn cuCtxWaitEvent: (context: u64, event: u64) |w| {
            w.usable(context)?;
            let e = w.events.get(&event).ok_or(INVALID_HANDLE)?.clone();
            w.check_context(context)?;
            if e.recorded {
                for one in w.with_green(context) {
                    let c = w.ctxs.get_mut(&one).expect("it lives");
                    c.floor = c.floor.max(e.done);
                }
            }
            Ok(())
        }

        /// Begins a capture that adds to a graph of the program's.
        Ctx fn cuStreamBeginCaptureToGraph [cuStreamBeginCaptureToGraph_ptsz]: (stream: u64, graph: u64,
            nodes: *const u64, _edges: *const c_void, count: usize, mode: i32) |w| {
            let s = w.stream(stream)?;
            if count > 0 && nodes.is_null() {
                return Err(INVALID_VALUE);
            }
            // SAFETY: the caller passes `count` handles.
            let deps = (0..count).map(|i| unsafe { *nodes.add(i) }).collect();
            w.begin_capture(s, mode, Some((graph, deps)))
        }
    }
}
