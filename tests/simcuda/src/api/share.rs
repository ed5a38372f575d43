//! Memory shared with other processes.

use super::{give, want};
use crate::codes::{INVALID_VALUE, NOT_SUPPORTED};
use crate::memory::Kind;

driver! {
    /// The 64 bytes that name an allocation; of an interior pointer, those of its base.
    Ctx fn cuIpcGetMemHandle: (handle: *mut [u8; 64], pointer: u64) |w| {
        want(handle)?;
        give(handle, w.export(pointer)?);
        Ok(())
    }

    /// Opens an allocation of another process. The bytes are passed by value.
    Ctx fn cuIpcOpenMemHandle_v2: (pointer: *mut u64, handle: Bytes, flags: u32) |w| {
        want(pointer)?;
        if flags & !1 != 0 {
            return Err(INVALID_VALUE);
        }
        give(pointer, w.import(&handle.0)?);
        Ok(())
    }

    /// The older form of the same.
    Ctx fn cuIpcOpenMemHandle: (pointer: *mut u64, handle: Bytes, flags: u32) |w| {
        want(pointer)?;
        if flags & !1 != 0 {
            return Err(INVALID_VALUE);
        }
        give(pointer, w.import(&handle.0)?);
        Ok(())
    }

    /// Closes an opened allocation.
    Ctx fn cuIpcCloseMemHandle: (pointer: u64) |w| {
        w.allocs.get(&pointer).filter(|a| a.kind == Kind::Imported).ok_or(INVALID_VALUE)?;
        w.advance_to(w.context_end(w.cur));
        w.release(pointer);
        Ok(())
    }

    /// A descriptor for a range inside one allocation, or mapped throughout inside one reservation by memory made for it.
    Ctx fn cuMemGetHandleForAddressRange: (handle: *mut i32, pointer: u64, size: usize, kind: i32, flags: u64) |w| {
        want(handle)?;
        if kind != 1 || flags & !1 != 0 || size == 0 || !pointer.is_multiple_of(4096) || !size.is_multiple_of(4096) {
            return Err(INVALID_VALUE);
        }
        let end = pointer.checked_add(size as u64).ok_or(INVALID_VALUE)?;
        if let Some((base, a)) = w.find(pointer) {
            if end > base + a.size.next_multiple_of(4096) {
                return Err(INVALID_VALUE);
            }
            if a.kind != Kind::Plain {
                return Err(NOT_SUPPORTED);
            }
            let bytes = w.export(pointer)?;
            give(handle, crate::ipc::descriptor(&bytes)?);
            return Ok(());
        }
        let (mut at, mut first) = (pointer, 0);
        while at < end {
            let (base, m) = w.mapping(at).ok_or(INVALID_VALUE)?;
            if !w.handles.get(&m.handle).is_some_and(|h| h.rdma) {
                return Err(NOT_SUPPORTED);
            }
            first = if first == 0 { m.handle } else { first };
            at = base + m.size;
        }
        give(handle, w.export_physical(first)?);
        Ok(())
    }
}

/// `CUipcMemHandle`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub [u8; 64]);
