//! [`Mapping`] over the model: as strict as the driver, and where the driver would let work fault, a panic.

use super::mapping::Mapping;
use super::model::Model;
use super::{Ctx, CuResult};
use std::collections::{BTreeMap, HashMap};

const PAGE: u64 = 2 << 20;

/// Physical memory and where it is mapped.
#[derive(Default)]
pub struct Maps {
    /// Bytes by handle.
    pub handles: HashMap<u64, u64>,
    /// By address: bytes, handle, and the devices that have access.
    pub mapped: BTreeMap<u64, (u64, u64, Vec<u32>)>,
    /// Reserved addresses by start.
    pub reserved: BTreeMap<u64, u64>,
    /// Work that may still use memory, by its page: what must have completed before that is unmapped.
    pub in_use: HashMap<u64, u64>,
    /// What the device cannot do.
    pub lacking: Option<&'static str>,
    next: u64,
}

impl Maps {
    /// Bytes of physical memory.
    pub fn bytes(&self) -> u64 {
        self.handles.values().sum()
    }

    fn is_reserved(&self, address: u64, bytes: u64) -> bool {
        let found = self.reserved.range(..=address).next_back();
        found.is_some_and(|(start, size)| address + bytes <= start + size)
    }
}

impl Model {
    /// Work submitted now uses memory: its number.
    pub fn touch(&self, address: u64, bytes: u64) -> u64 {
        let mut state = self.state.lock();
        state.submitted += 1;
        let work = state.submitted;
        for page in address / PAGE..(address + bytes).div_ceil(PAGE) {
            state.mapping.in_use.insert(page, work);
        }
        work
    }

    /// Whether all of a range is mapped with access by `device`, or is an allocation.
    pub fn reaches(&self, device: u32, address: u64, bytes: u64) -> bool {
        let state = self.state.lock();
        if state
            .memory
            .range(..=address)
            .next_back()
            .is_some_and(|(start, size)| address + bytes <= start + size)
        {
            return true;
        }
        let mut at = address;
        while at < address + bytes {
            let Some((start, (size, _, devices))) = state.mapping.mapped.range(..=at).next_back() else {
                return false;
            };
            if at >= start + size || !devices.contains(&device) {
                return false;
            }
            at = start + size;
        }
        true
    }
}

impl Mapping for Model {
    fn can_map(&self, _: u32) -> Result<(), &'static str> {
        self.state.lock().mapping.lacking.map_or(Ok(()), Err)
    }

    fn reserve_addresses(&self, _: Ctx, bytes: u64) -> Result<u64, CuResult> {
        let mut state = self.state.lock();
        state.call("reserve")?;
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE));
        let base = (1 << 44) + state.mapping.next;
        state.mapping.next += bytes + PAGE;
        state.mapping.reserved.insert(base, bytes);
        Ok(base)
    }

    fn free_addresses(&self, address: u64, bytes: u64) -> Result<(), CuResult> {
        let mut state = self.state.lock();
        state.call("free_addresses")?;
        let maps = &mut state.mapping;
        if maps.mapped.range(address..address + bytes).next().is_some() {
            return Err(CuResult::INVALID_VALUE);
        }
        assert_eq!(maps.reserved.remove(&address), Some(bytes));
        Ok(())
    }

    fn create(&self, _: Ctx, _: u32, bytes: u64) -> Result<u64, CuResult> {
        let mut state = self.state.lock();
        state.call("create")?;
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE));
        if state.used() + bytes > state.capacity {
            return Err(CuResult::OUT_OF_MEMORY);
        }
        state.mapping.next += 1 << 30;
        let handle = state.mapping.next;
        state.mapping.handles.insert(handle, bytes);
        state.peak = state.peak.max(state.used());
        Ok(handle)
    }

    fn release(&self, handle: u64) -> Result<(), CuResult> {
        let mut state = self.state.lock();
        state.call("release")?;
        assert!(state.mapping.mapped.values().all(|(_, of, _)| *of != handle), "released while it is mapped");
        state.mapping.handles.remove(&handle).map(|_| ()).ok_or(CuResult::INVALID_VALUE)
    }

    fn map(&self, _: Ctx, address: u64, bytes: u64, handle: u64) -> Result<(), CuResult> {
        let mut state = self.state.lock();
        state.call("map")?;
        let maps = &mut state.mapping;
        assert_eq!(maps.handles.get(&handle), Some(&bytes), "a whole handle");
        assert!(maps.is_reserved(address, bytes) && address.is_multiple_of(PAGE));
        assert!(maps.mapped.values().all(|(_, of, _)| *of != handle), "mapped twice");
        let before = maps.mapped.range(..address + bytes).next_back();
        assert!(before.is_none_or(|(start, (size, ..))| start + size <= address), "mapped over another");
        maps.mapped.insert(address, (bytes, handle, Vec::new()));
        Ok(())
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), CuResult> {
        let mut state = self.state.lock();
        state.call("unmap")?;
        let completed = state.completed;
        for page in address / PAGE..(address + bytes) / PAGE {
            let work = state.mapping.in_use.remove(&page).unwrap_or(0);
            assert!(work <= completed, "work {work} still uses {address:#x}, which is unmapped");
        }
        let (size, ..) = state.mapping.mapped.remove(&address).ok_or(CuResult::INVALID_VALUE)?;
        assert_eq!(size, bytes, "a whole mapping");
        Ok(())
    }

    fn set_access(
        &self,
        _: Ctx,
        address: u64,
        bytes: u64,
        devices: &[u32],
        access: bool,
    ) -> Result<(), CuResult> {
        let mut state = self.state.lock();
        state.call("set_access")?;
        let mut at = address;
        while at < address + bytes {
            let (size, _, all) = state.mapping.mapped.get_mut(&at).expect("whole mappings, side by side");
            all.retain(|device| !devices.contains(device));
            if access {
                all.extend(devices);
            }
            at += *size;
        }
        assert_eq!(at, address + bytes, "whole mappings");
        Ok(())
    }
}
