//! Physical memory by handle (`cuMemCreate` and its kin): counted, and held under the cap.
//!
//! The driver keeps the memory until its last handle is released **and** its last mapping is gone, in any order. So
//! what is charged has a count of both. Imported handles are another process's memory and are not charged here.

use super::table::real;
use super::types::{CuResult, DevicePtr, LOCATION_DEVICE, MemAllocationProp, MemHandle, Opaque};
use crate::driver::external::charged;
use crate::life::{contexts, process, sites};
use crate::stats::ExternalKind;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_uint, c_ulonglong};

/// Physical memory that is charged.
struct Physical {
    device: u32,
    bytes: u64,
    handles: u64,
    mappings: u64,
}

#[derive(Default)]
struct Books {
    physical: HashMap<MemHandle, Physical>,
    /// Start of a mapping to its size and handle.
    mapped: BTreeMap<DevicePtr, (u64, MemHandle)>,
}

static BOOKS: Mutex<Option<Books>> = Mutex::new(None);

impl Books {
    /// Takes a handle or a mapping away; returns the memory if that was the last of both.
    fn drop_one(&mut self, handle: MemHandle, one: impl Fn(&mut Physical) -> &mut u64) -> Option<Physical> {
        let physical = self.physical.get_mut(&handle)?;
        let count = one(physical);
        *count = count.saturating_sub(1);
        if physical.handles + physical.mappings > 0 {
            return None;
        }
        self.physical.remove(&handle)
    }

    /// Undoes [`Books::drop_one`] after the driver has refused.
    fn put_back(
        &mut self,
        handle: MemHandle,
        gone: Option<Physical>,
        one: impl Fn(&mut Physical) -> &mut u64,
    ) {
        if let Some(physical) = gone {
            self.physical.insert(handle, physical);
        }
        if let Some(physical) = self.physical.get_mut(&handle) {
            *one(physical) += 1;
        }
    }
}

fn with_books<T>(body: impl FnOnce(&mut Books) -> T) -> T {
    body(BOOKS.lock().get_or_insert_default())
}

fn give_up(gone: Option<Physical>) {
    if let Some(gone) = gone
        && let Some(books) = contexts::books(gone.device)
    {
        books.account.release_external(ExternalKind::Vmm, gone.bytes);
    }
}

/// Under what a handle is known among what is sampled, where addresses are, too.
fn sampled_as(handle: MemHandle) -> u64 {
    !handle
}

/// `cuMemCreate`
///
/// # Safety
/// As the driver's.
pub unsafe fn create(
    handle: *mut MemHandle,
    bytes: usize,
    prop: *const MemAllocationProp,
    flags: c_ulonglong,
) -> CuResult {
    // SAFETY: the caller's arguments.
    let call = || unsafe { real::cuMemCreate(handle, bytes, prop, flags) };
    // SAFETY: null or properties, by the driver's contract.
    let location = unsafe { prop.as_ref() }.map(|prop| prop.location);
    let device = match location {
        Some(place) if place.kind == LOCATION_DEVICE && !handle.is_null() && bytes > 0 => {
            u32::try_from(place.id).ok()
        }
        _ => None, // the host's memory, or an error that the driver will name
    };
    let books = device.and_then(contexts::books).filter(|_| process::is_active());
    let Some(books) = books else { return call() };
    match charged(books, ExternalKind::Vmm, bytes as u64, call) {
        Ok(()) => {
            let physical = Physical { device: books.device, bytes: bytes as u64, handles: 1, mappings: 0 };
            // SAFETY: written by the successful call.
            let handle = unsafe { *handle };
            with_books(|all| all.physical.insert(handle, physical));
            if sites::is_on() {
                sites::allocated(books.device, 0, sampled_as(handle), bytes as u64);
            }
            CuResult::SUCCESS
        }
        Err(code) => code,
    }
}

/// `cuMemRelease`
///
/// # Safety
/// As the driver's.
pub unsafe fn release(handle: MemHandle) -> CuResult {
    // Out of the books before the call: the driver may give the handle's value out again at once.
    let gone = with_books(|books| books.drop_one(handle, |one| &mut one.handles));
    let sample = gone.as_ref().filter(|_| sites::is_on()).and_then(|_| sites::freed(sampled_as(handle)));
    // SAFETY: the caller's argument.
    let result = unsafe { real::cuMemRelease(handle) };
    if result == CuResult::SUCCESS {
        give_up(gone);
    } else {
        with_books(|books| books.put_back(handle, gone, |one| &mut one.handles));
        sites::not_freed(sampled_as(handle), sample);
    }
    result
}

/// Whether an address is the pool's. To the program that is memory of `cuMemAlloc`, which has no handle and cannot be
/// unmapped; a handle of what the pool has mapped there would keep it, and the blocks of others in it, beyond its end.
fn is_pooled(address: DevicePtr) -> bool {
    process::is_active() && contexts::index().owner_of(address).is_some()
}

/// `cuMemRetainAllocationHandle`: one more handle of memory that is mapped.
///
/// # Safety
/// As the driver's.
pub unsafe fn retain(handle: *mut MemHandle, address: Opaque) -> CuResult {
    if is_pooled(address as u64) {
        return CuResult::INVALID_VALUE;
    }
    // SAFETY: the caller's arguments.
    let result = unsafe { real::cuMemRetainAllocationHandle(handle, address) };
    if result == CuResult::SUCCESS {
        with_books(|books| {
            // SAFETY: written by the successful call.
            let mut retained = unsafe { *handle };
            // The driver may name the same memory by another value; the mapping tells which memory it is.
            if !books.physical.contains_key(&retained)
                && let Some((start, (size, mapped))) = books.mapped.range(..=(address as u64)).next_back()
                && address as u64 - start < *size
            {
                retained = *mapped;
            }
            if let Some(physical) = books.physical.get_mut(&retained) {
                physical.handles += 1;
            }
        });
    }
    result
}

/// `cuMemImportFromShareableHandle`: not charged, for the exporter is; if it is this process, one more handle.
///
/// # Safety
/// As the driver's.
pub unsafe fn import(handle: *mut MemHandle, shared: Opaque, kind: c_uint) -> CuResult {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::cuMemImportFromShareableHandle(handle, shared, kind) };
    if result == CuResult::SUCCESS {
        with_books(|books| {
            // SAFETY: written by the successful call.
            if let Some(physical) = books.physical.get_mut(unsafe { &*handle }) {
                physical.handles += 1;
            }
        });
    }
    result
}

/// `cuMemMap`
///
/// # Safety
/// As the driver's.
pub unsafe fn map(
    address: DevicePtr,
    bytes: usize,
    offset: usize,
    handle: MemHandle,
    flags: c_ulonglong,
) -> CuResult {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::cuMemMap(address, bytes, offset, handle, flags) };
    if result == CuResult::SUCCESS {
        with_books(|books| {
            if let Some(physical) = books.physical.get_mut(&handle) {
                physical.mappings += 1;
                books.mapped.insert(address, (bytes as u64, handle));
            }
        });
    }
    result
}

/// `cuMemUnmap`: of one or several mappings that lie side by side.
///
/// # Safety
/// As the driver's.
pub unsafe fn unmap(address: DevicePtr, bytes: usize) -> CuResult {
    if is_pooled(address) {
        return CuResult::INVALID_VALUE;
    }
    let end = address.saturating_add(bytes as u64);
    // Out of the books before the call: the addresses may be mapped again at once.
    let taken: Vec<(DevicePtr, (u64, MemHandle))> = with_books(|books| {
        let starts: Vec<DevicePtr> = books.mapped.range(address..end).map(|(start, _)| *start).collect();
        starts.into_iter().filter_map(|start| Some((start, books.mapped.remove(&start)?))).collect()
    });
    // SAFETY: the caller's arguments.
    let result = unsafe { real::cuMemUnmap(address, bytes) };
    for (start, mapping) in taken {
        let gone = with_books(|books| {
            if result == CuResult::SUCCESS {
                return books.drop_one(mapping.1, |one| &mut one.mappings);
            }
            books.mapped.insert(start, mapping);
            None
        });
        if gone.is_some() && sites::is_on() {
            sites::freed(sampled_as(mapping.1));
        }
        give_up(gone);
    }
    result
}
