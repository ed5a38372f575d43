//! Virtual memory management: physical handles, reserved addresses, mappings and access rights.
//!
//! Unmapping and changing access do not wait for running work, as read off an H200 (driver 580): work that reaches an
//! unmapped address faults when it gets there.

use crate::area::CHUNK;
use crate::codes::{INVALID_DEVICE, INVALID_VALUE, R};
use crate::world::World;

/// Physical memory.
#[derive(Clone, Debug)]
pub struct Handle {
    /// Bytes.
    pub size: u64,
    /// Device that is charged; -1 when another process pays, or the memory is the host's.
    pub device: i32,
    /// Offset in the memory file, when it is ours.
    pub off: u64,
    /// The simulator's pointer to it.
    pub host: *mut u8,
    /// Creations, retains and imports that have not been released.
    pub refs: u32,
    /// Mappings of it.
    pub maps: u32,
    /// Handed out to other processes.
    pub exported: bool,
    /// Made so that other devices of the bus may reach it.
    pub rdma: bool,
}

/// A mapped range.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Bytes.
    pub size: u64,
    /// Physical handle behind it.
    pub handle: u64,
    /// The devices that may reach it.
    pub access: Vec<i32>,
}

impl World {
    /// Makes physical memory on a device, or on the host for a device of -1.
    pub fn create_physical(&mut self, device: i32, size: u64, rdma: bool) -> R<u64> {
        if size == 0 || !size.is_multiple_of(CHUNK) {
            return Err(INVALID_VALUE);
        }
        let (off, host) = if device >= 0 {
            self.device(device).map_err(|_| INVALID_DEVICE)?;
            let off = self.take_extent(device, size)?.0;
            (off, self.area.at(off))
        } else {
            let off = self.area.take(size).ok_or(crate::codes::OUT_OF_MEMORY)?;
            (off, self.area.at(off))
        };
        let h = self.handle();
        self.handles.insert(h, Handle { size, device, off, host, refs: 1, maps: 0, exported: false, rdma });
        Ok(h)
    }

    /// Gives one reference of a handle back; the memory goes with the last reference and the last mapping.
    pub fn release_physical(&mut self, handle: u64) -> R {
        let h = self.handles.get_mut(&handle).filter(|h| h.refs > 0).ok_or(INVALID_VALUE)?;
        h.refs -= 1;
        self.collect_physical(handle);
        Ok(())
    }

    fn collect_physical(&mut self, handle: u64) {
        let Some(h) = self.handles.get(&handle) else { return };
        if h.refs > 0 || h.maps > 0 {
            return;
        }
        let h = self.handles.remove(&handle).expect("found above");
        if h.off == u64::MAX {
            // SAFETY: an import's mapping, made with this length.
            unsafe { libc::munmap(h.host.cast(), h.size as usize) };
            return;
        }
        if h.device >= 0 {
            self.uncharge(h.device, h.size);
        }
        self.area.give(h.off, h.size, h.exported);
    }

    /// Whether `[addr, addr + size)` lies inside one reservation.
    fn reserved(&self, addr: u64, size: u64) -> bool {
        let found = self.reservations.range(..=addr).next_back();
        found.is_some_and(|(base, len)| addr.checked_add(size).is_some_and(|end| end <= base + len))
    }

    /// Bases of the mappings that lie inside `[addr, addr + size)`, if they fill it exactly.
    fn covering(&self, addr: u64, size: u64) -> R<Vec<u64>> {
        let end = addr.checked_add(size).ok_or(INVALID_VALUE)?;
        let (mut at, mut found) = (addr, Vec::new());
        while at < end {
            let m = self.mappings.get(&at).ok_or(INVALID_VALUE)?;
            found.push(at);
            at += m.size;
        }
        if at == end && size > 0 { Ok(found) } else { Err(INVALID_VALUE) }
    }

    /// Puts a whole handle at a reserved address.
    pub fn map(&mut self, addr: u64, size: u64, offset: u64, handle: u64) -> R {
        let h = self.handles.get(&handle).ok_or(INVALID_VALUE)?;
        let aligned = addr.is_multiple_of(CHUNK) && size.is_multiple_of(CHUNK) && size > 0;
        if offset != 0 || !aligned || size != h.size || !self.reserved(addr, size) {
            return Err(INVALID_VALUE);
        }
        let before = self.mappings.range(..addr + size).next_back();
        if before.is_some_and(|(base, m)| base + m.size > addr) {
            return Err(INVALID_VALUE);
        }
        self.handles.get_mut(&handle).expect("found above").maps += 1;
        self.mappings.insert(addr, Mapping { size, handle, access: Vec::new() });
        Ok(())
    }

    /// Takes whole mappings away, at once.
    pub fn unmap(&mut self, addr: u64, size: u64) -> R {
        let found = self.covering(addr, size)?;
        // Read off an H200 (driver 580): 23 µs for one handle, 3,115 for 128 side by side.
        self.spend((found.len() as u64 - 1) * 24_000);
        for base in found {
            let m = self.mappings.remove(&base).expect("listed");
            self.handles.get_mut(&m.handle).expect("mapped").maps -= 1;
            self.collect_physical(m.handle);
        }
        Ok(())
    }

    /// Sets whether a device may reach whole mappings; returns how many handles that touched.
    pub fn set_access(&mut self, addr: u64, size: u64, device: i32, access: bool) -> R<u64> {
        let found = self.covering(addr, size)?;
        for base in &found {
            let devices = &mut self.mappings.get_mut(base).expect("listed").access;
            devices.retain(|one| *one != device);
            if access {
                devices.push(device);
            }
        }
        Ok(found.len() as u64)
    }

    /// The mapping that contains `addr`, with its base.
    pub fn mapping(&self, addr: u64) -> Option<(u64, &Mapping)> {
        let (&base, m) = self.mappings.range(..=addr).next_back()?;
        (addr < base + m.size).then_some((base, m))
    }

    /// The simulator's pointer to an address that is mapped and accessible, and the bytes left in its mapping. To a kernel
    /// it must be accessible by the device that it runs on.
    pub fn locate_mapped(&self, addr: u64) -> Option<(*mut u8, u64)> {
        let reach =
            |m: &Mapping| self.running.map_or(!m.access.is_empty(), |device| m.access.contains(&device));
        let (base, m) = self.mapping(addr).filter(|(_, m)| reach(m))?;
        let h = self.handles.get(&m.handle)?;
        // SAFETY: the offset lies inside the handle's memory.
        Some((unsafe { h.host.add((addr - base) as usize) }, base + m.size - addr))
    }

    /// Reserves addresses.
    pub fn reserve(&mut self, size: u64, align: u64, hint: u64) -> R<u64> {
        let good = align == 0 || align.is_power_of_two();
        if size == 0 || !size.is_multiple_of(CHUNK) || !good {
            return Err(INVALID_VALUE);
        }
        let base = self.area.reserve(size, align.max(CHUNK), hint).ok_or(crate::codes::OUT_OF_MEMORY)?;
        self.reservations.insert(base, size);
        Ok(base)
    }

    /// Returns reserved addresses; nothing may be mapped there.
    pub fn unreserve(&mut self, base: u64, size: u64) -> R {
        let busy = self.mappings.range(base..base.saturating_add(size)).next().is_some();
        if self.reservations.get(&base) != Some(&size) || busy {
            return Err(INVALID_VALUE);
        }
        self.reservations.remove(&base);
        self.area.unreserve(base, size);
        Ok(())
    }
}
