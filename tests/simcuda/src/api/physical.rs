//! The virtual memory functions. As strict about captures as `cuMemAlloc`, which was seen; of these that was not tried.

use super::{give, want};
use crate::area::CHUNK;
use crate::codes::{INVALID_VALUE, R};

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Prop {
    kind: i32,
    handle_types: i32,
    location_kind: i32,
    location: i32,
    win32: usize,
    flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Access {
    location_kind: i32,
    location: i32,
    flags: i32,
}

const PINNED: i32 = 1;
const ON_DEVICE: i32 = 1;
const ON_HOST: std::ops::RangeInclusive<i32> = 2..=4;
const POSIX_FD: i32 = 1;

/// The device that a location means, -1 for the host.
fn device_of(prop: *const Prop) -> R<i32> {
    want(prop)?;
    // SAFETY: the caller passes properties.
    let p = unsafe { prop.read() };
    match p.location_kind {
        _ if p.kind != PINNED => Err(INVALID_VALUE),
        ON_DEVICE => Ok(p.location),
        kind if ON_HOST.contains(&kind) => Ok(-1),
        _ => Err(INVALID_VALUE),
    }
}

driver! {
    /// Reserves addresses.
    Init fn cuMemAddressReserve: (pointer: *mut u64, size: usize, align: usize, hint: u64, flags: u64) |w| {
        want(pointer)?;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        w.check_unsafe()?;
        give(pointer, w.reserve(size as u64, align as u64, hint)?);
        Ok(())
    }

    /// Returns reserved addresses.
    Init fn cuMemAddressFree: (pointer: u64, size: usize) |w| { w.unreserve(pointer, size as u64) }

    /// Makes physical memory.
    Init fn cuMemCreate: (handle: *mut u64, size: usize, prop: *const Prop, flags: u64) |w| {
        want(handle)?;
        let device = device_of(prop)?;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        w.check_unsafe()?;
        // SAFETY: `device_of` has found properties there.
        let rdma = unsafe { prop.read() }.flags[1] != 0;
        let h = w.create_physical(device, size as u64, rdma)?;
        w.spend(crate::costs::create(size as u64));
        give(handle, h);
        Ok(())
    }

    /// Gives one reference back.
    Init fn cuMemRelease: (handle: u64) |w| {
        w.check_unsafe()?;
        let size = w.handles.get(&handle).map_or(0, |h| h.size);
        w.release_physical(handle)?;
        w.spend(crate::costs::release(size));
        Ok(())
    }

    /// Puts a handle at an address.
    Init fn cuMemMap: (pointer: u64, size: usize, offset: usize, handle: u64, flags: u64) |w| {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        w.check_unsafe()?;
        w.map(pointer, size as u64, offset as u64, handle)
    }

    /// Takes mappings away, at once.
    Init fn cuMemUnmap: (pointer: u64, size: usize) |w| {
        w.check_unsafe()?;
        w.unmap(pointer, size as u64)
    }

    /// Sets access rights of mappings. The cost is per handle.
    Init fn cuMemSetAccess: (pointer: u64, size: usize, access: *const Access, count: usize) |w| {
        want(access)?;
        // SAFETY: the caller passes `count` descriptions.
        let all = unsafe { std::slice::from_raw_parts(access, count) };
        for a in all.iter().filter(|a| a.location_kind == ON_DEVICE) {
            w.device(a.location)?;
        }
        w.check_unsafe()?;
        let mut handles = 0;
        for a in all.iter().filter(|a| a.location_kind == ON_DEVICE) {
            handles += w.set_access(pointer, size as u64, a.location, a.flags != 0)?;
        }
        w.spend(handles.saturating_sub(1) * 36_000);
        Ok(())
    }

    /// Access rights of a location: 3 or 0.
    Init fn cuMemGetAccess: (flags: *mut u64, _location: *const [i32; 2], pointer: u64) |w| {
        want(flags)?;
        let (_, m) = w.mapping(pointer).ok_or(INVALID_VALUE)?;
        give(flags, if m.access.is_empty() { 0 } else { 3 });
        Ok(())
    }

    /// The unit of physical memory.
    Init fn cuMemGetAllocationGranularity: (size: *mut usize, prop: *const Prop, _option: i32) |w| {
        want(size)?;
        let device = device_of(prop)?;
        if device >= 0 {
            w.device(device)?;
        }
        give(size, CHUNK as usize);
        Ok(())
    }

    /// The properties that a handle was made with.
    Init fn cuMemGetAllocationPropertiesFromHandle: (prop: *mut Prop, handle: u64) |w| {
        want(prop)?;
        let device = w.handles.get(&handle).ok_or(INVALID_VALUE)?.device;
        let location_kind = if device >= 0 { ON_DEVICE } else { *ON_HOST.start() };
        give(prop, Prop { kind: PINNED, location_kind, location: device.max(0), ..Prop::default() });
        Ok(())
    }

    /// Another reference to the handle that is mapped at an address.
    Init fn cuMemRetainAllocationHandle: (handle: *mut u64, pointer: u64) |w| {
        want(handle)?;
        let (_, m) = w.mapping(pointer).ok_or(INVALID_VALUE)?;
        let mapped = m.handle;
        w.handles.get_mut(&mapped).ok_or(INVALID_VALUE)?.refs += 1;
        give(handle, mapped);
        Ok(())
    }

    /// A descriptor that other processes can import.
    Init fn cuMemExportToShareableHandle: (descriptor: *mut i32, handle: u64, kind: i32, flags: u64) |w| {
        want(descriptor)?;
        if kind != POSIX_FD || flags != 0 {
            return Err(INVALID_VALUE);
        }
        give(descriptor, w.export_physical(handle)?);
        Ok(())
    }

    /// Opens what another process exported; the descriptor is passed by value.
    Init fn cuMemImportFromShareableHandle: (handle: *mut u64, descriptor: usize, kind: i32) |w| {
        want(handle)?;
        if kind != POSIX_FD {
            return Err(INVALID_VALUE);
        }
        give(handle, w.import_physical(descriptor as i32)?);
        Ok(())
    }
}
