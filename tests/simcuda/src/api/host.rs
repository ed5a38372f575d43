//! Host memory that the program brings itself, and hints about managed memory.

use super::{give, want};
use crate::codes::{INVALID_VALUE, R};
use crate::memory::Kind;
use crate::world::World;

/// Already registered, or allocated page-locked.
const ALREADY_REGISTERED: i32 = 712;
/// Not registered.
const NOT_REGISTERED: i32 = 713;

impl World {
    fn managed(&self, p: u64) -> R {
        self.find(p).filter(|(_, a)| a.kind == Kind::Managed).map(|_| ()).ok_or(INVALID_VALUE)
    }
}

driver! {
    /// Makes host memory of the program's page-locked.
    Ctx fn cuMemHostRegister_v2: (pointer: u64, bytes: usize, _flags: u32) |w| {
        if pointer == 0 || bytes == 0 || w.area.contains(pointer) {
            return Err(INVALID_VALUE);
        }
        w.check_unsafe()?;
        let end = pointer.checked_add(bytes as u64).ok_or(INVALID_VALUE)?;
        if w.allocs.range(..end).next_back().is_some_and(|(base, a)| base + a.size > pointer) {
            return Err(ALREADY_REGISTERED);
        }
        let (ctx, host) = (w.cur, pointer as *mut u8);
        let alloc = w.blank(bytes as u64, Kind::Registered, -1, ctx, host);
        w.record(pointer, alloc);
        Ok(())
    }

    /// Ends that, after all work of the context.
    Ctx fn cuMemHostUnregister: (pointer: u64) |w| {
        w.check_unsafe()?;
        w.allocs.get(&pointer).filter(|a| a.kind == Kind::Registered).ok_or(NOT_REGISTERED)?;
        w.advance_to(w.context_end(w.cur));
        w.release(pointer);
        Ok(())
    }

    /// The device's address of page-locked memory: the same as the host's.
    Ctx fn cuMemHostGetDevicePointer_v2: (device: *mut u64, pointer: u64, flags: u32) |w| {
        want(device)?;
        let kinds = |k: Kind| matches!(k, Kind::Host | Kind::Registered);
        w.find(pointer).filter(|(_, a)| flags == 0 && kinds(a.kind)).ok_or(INVALID_VALUE)?;
        give(device, pointer);
        Ok(())
    }

    /// Moves managed memory; it needs no moving here.
    Ctx fn cuMemPrefetchAsync [cuMemPrefetchAsync_ptsz]: (pointer: u64, _bytes: usize, _device: i32, stream: u64) |w| {
        w.stream(stream)?;
        w.managed(pointer)
    }

    /// A hint about managed memory, without effect here.
    Ctx fn cuMemAdvise: (pointer: u64, _bytes: usize, _advice: i32, _device: i32) |w| { w.managed(pointer) }

    /// The same with a location of two integers, passed by value.
    Ctx fn cuMemPrefetchAsync_v2 [cuMemPrefetchAsync_v2_ptsz]: (pointer: u64, _bytes: usize, _location: u64,
        _flags: u32, stream: u64) |w| {
        w.stream(stream)?;
        w.managed(pointer)
    }

    /// The same with a location of two integers, passed by value.
    Ctx fn cuMemAdvise_v2: (pointer: u64, _bytes: usize, _advice: i32, _location: u64) |w| { w.managed(pointer) }
}
