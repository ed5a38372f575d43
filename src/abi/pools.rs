//! Memory pools: which device each allocates on. They take no memory until something is allocated from them.

use super::table::real;
use super::types::{CuResult, Device, LOCATION_DEVICE, MemAllocationProp, MemLocation, MemPool};
use crate::driver::books::DeviceBooks;
use crate::life::contexts;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::c_uint;

/// The device of each pool that has been seen; `None` for pools of the host's memory.
static DEVICES: Mutex<Option<HashMap<usize, Option<u32>>>> = Mutex::new(None);

/// The books that memory of `pool` is charged to: of its device, of none for the host's memory, and of the current device
/// for a pool that came from elsewhere.
pub fn books(pool: MemPool) -> Option<&'static DeviceBooks> {
    let known = DEVICES.lock().as_ref().and_then(|pools| pools.get(&(pool as usize)).copied());
    match known {
        Some(device) => contexts::books(device?),
        None => contexts::current_books(),
    }
}

/// `pool` holds what a successful call has written.
unsafe fn learn(result: CuResult, pool: *mut MemPool, device: Option<u32>) -> CuResult {
    if result == CuResult::SUCCESS {
        // SAFETY: written by the successful call.
        DEVICES.lock().get_or_insert_default().insert(unsafe { *pool } as usize, device);
    }
    result
}

fn device_of(location: MemLocation) -> Option<u32> {
    if location.kind == LOCATION_DEVICE { u32::try_from(location.id).ok() } else { None }
}

/// `cuMemPoolCreate`
///
/// # Safety
/// As the driver's.
pub unsafe fn create(pool: *mut MemPool, props: *const MemAllocationProp) -> CuResult {
    // SAFETY: the caller's arguments; a pool's properties begin like an allocation's.
    unsafe {
        learn(
            real::cuMemPoolCreate(pool, props),
            pool,
            props.as_ref().and_then(|props| device_of(props.location)),
        )
    }
}

/// `cuDeviceGetDefaultMemPool`
///
/// # Safety
/// As the driver's.
pub unsafe fn device_default(pool: *mut MemPool, device: Device) -> CuResult {
    // SAFETY: the caller's arguments.
    unsafe { learn(real::cuDeviceGetDefaultMemPool(pool, device), pool, u32::try_from(device).ok()) }
}

/// `cuDeviceGetMemPool`
///
/// # Safety
/// As the driver's.
pub unsafe fn device_current(pool: *mut MemPool, device: Device) -> CuResult {
    // SAFETY: the caller's arguments.
    unsafe { learn(real::cuDeviceGetMemPool(pool, device), pool, u32::try_from(device).ok()) }
}

/// `cuMemGetDefaultMemPool`
///
/// # Safety
/// As the driver's.
pub unsafe fn location_default(pool: *mut MemPool, location: *mut MemLocation, kind: c_uint) -> CuResult {
    // SAFETY: the caller's arguments.
    unsafe {
        learn(
            real::cuMemGetDefaultMemPool(pool, location, kind),
            pool,
            location.as_ref().and_then(|at| device_of(*at)),
        )
    }
}

/// `cuMemGetMemPool`
///
/// # Safety
/// As the driver's.
pub unsafe fn location_current(pool: *mut MemPool, location: *mut MemLocation, kind: c_uint) -> CuResult {
    // SAFETY: the caller's arguments.
    unsafe {
        learn(
            real::cuMemGetMemPool(pool, location, kind),
            pool,
            location.as_ref().and_then(|at| device_of(*at)),
        )
    }
}

/// `cuMemPoolDestroy`: what is allocated from it stays so until it is freed; its handle may come back as another device's.
///
/// # Safety
/// As the driver's.
pub unsafe fn destroy(pool: MemPool) -> CuResult {
    let known = DEVICES.lock().as_mut().and_then(|pools| pools.remove(&(pool as usize)));
    // SAFETY: the caller's argument.
    let result = unsafe { real::cuMemPoolDestroy(pool) };
    if result != CuResult::SUCCESS
        && let Some(device) = known
    {
        DEVICES.lock().get_or_insert_default().entry(pool as usize).or_insert(device);
    }
    result
}
