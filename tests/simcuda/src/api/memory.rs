//! Synchronous allocation of device and host memory, and what the device has left.

use super::{give, want};
use crate::codes::{INVALID_VALUE, R};
use crate::memory::Kind;
use crate::world::World;

impl World {
    fn free_host(&mut self, pointer: u64) -> R {
        self.allocs.get(&pointer).filter(|a| a.kind == Kind::Host).ok_or(INVALID_VALUE)?;
        self.advance_to(self.device_end(self.ctxs[&self.cur].device));
        self.release(pointer);
        Ok(())
    }

    fn alloc_host(&mut self, out: *mut u64, bytes: usize) -> R {
        want(out)?;
        self.check_unsafe()?;
        let p = self.allocate_host(self.cur, -1, bytes as u64, Kind::Host)?;
        give(out, p);
        Ok(())
    }
}

driver! {
    /// Allocates device memory; does not wait for anything.
    Ctx fn cuMemAlloc_v2: (pointer: *mut u64, bytes: usize) |w| {
        want(pointer)?;
        w.check_unsafe()?;
        let device = w.ctx()?.device;
        let p = w.allocate(w.cur, device, bytes as u64, Kind::Plain)?;
        give(pointer, p);
        Ok(())
    }

    /// Allocates rows of device memory, each starting on 512 bytes.
    Ctx fn cuMemAllocPitch_v2: (pointer: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32) |w| {
        want(pointer)?;
        want(pitch)?;
        if width == 0 || height == 0 || ![4, 8, 16].contains(&element) {
            return Err(INVALID_VALUE);
        }
        w.check_unsafe()?;
        let device = w.ctx()?.device;
        let row = width.checked_next_multiple_of(512).ok_or(crate::codes::OUT_OF_MEMORY)?;
        let bytes = row.checked_mul(height).ok_or(crate::codes::OUT_OF_MEMORY)?;
        let p = w.allocate(w.cur, device, bytes as u64, Kind::Plain)?;
        give(pointer, p);
        give(pitch, row);
        Ok(())
    }

    /// Frees device memory of any kind; waits for all work on its device, on every stream. Freeing 0 does nothing.
    Ctx fn cuMemFree_v2: (pointer: u64) |w| {
        w.check_unsafe()?;
        if pointer == 0 {
            return Ok(());
        }
        let a = w.allocs.get(&pointer).ok_or(INVALID_VALUE)?;
        let kinds = matches!(a.kind, Kind::Plain | Kind::Pool(_) | Kind::Managed);
        if a.freeing || !kinds {
            return if a.kind == Kind::Graph { Ok(()) } else { Err(INVALID_VALUE) };
        }
        let (device, size, kind) = (a.device, a.size, a.kind);
        let used = w.accounts[device as usize].used;
        w.advance_to(w.device_end(device));
        w.release(pointer);
        if kind == Kind::Plain {
            let gave_back = w.accounts[device as usize].used < used;
            w.spend(if gave_back { crate::costs::free(size) } else { crate::costs::FREE_SHARED });
        }
        w.ctx()?.fault.map_or(Ok(()), Err)
    }

    /// Free and total memory of the current context's device; either pointer may be null.
    Ctx fn cuMemGetInfo_v2: (free: *mut usize, total: *mut usize) |w| {
        let device = w.ctx()?.device;
        let all = w.config.memory;
        let a = w.accounts[device as usize];
        give(free, all.saturating_sub(a.used + a.others) as usize);
        give(total, all as usize);
        Ok(())
    }

    /// Allocates memory that host and device share.
    Ctx fn cuMemAllocManaged: (pointer: *mut u64, bytes: usize, flags: u32) |w| {
        want(pointer)?;
        if !(1..=2).contains(&flags) {
            return Err(INVALID_VALUE);
        }
        w.check_unsafe()?;
        let device = w.ctx()?.device;
        let p = w.allocate_host(w.cur, device, bytes as u64, Kind::Managed)?;
        give(pointer, p);
        Ok(())
    }

    /// Allocates page-locked host memory.
    Ctx fn cuMemAllocHost_v2: (pointer: *mut u64, bytes: usize) |w| { w.alloc_host(pointer, bytes) }

    /// Allocates page-locked host memory.
    Ctx fn cuMemHostAlloc: (pointer: *mut u64, bytes: usize, _flags: u32) |w| { w.alloc_host(pointer, bytes) }

    /// Frees page-locked host memory.
    Ctx fn cuMemFreeHost: (pointer: u64) |w| {
        w.check_unsafe()?;
        w.free_host(pointer)
    }

    /// Base and size of the allocation or mapping that contains a pointer; either result may be null.
    Ctx fn cuMemGetAddressRange_v2: (base: *mut u64, size: *mut usize, pointer: u64) |w| {
        let allocation = w.find(pointer).map(|(b, a)| (b, a.size));
        let (b, s) = allocation.or_else(|| w.mapping(pointer).map(|(b, m)| (b, m.size))).ok_or(crate::codes::NOT_FOUND)?;
        give(base, b);
        give(size, s as usize);
        Ok(())
    }
}
