//! Free and total memory: the capped truth, the same from every function that tells it.

use super::table::real;
use super::types::{CuResult, Device};
use crate::life::{contexts, process};

/// `cuMemGetInfo_v2`: total is the cap where there is one; free is what can still be had under it, idle cache included,
/// for that goes back as soon as it is needed.
///
/// # Safety
/// As the driver's; either pointer may be null.
pub unsafe fn mem_info(free: *mut usize, total: *mut usize) -> CuResult {
    let (mut driver_free, mut driver_total) = (0, 0);
    let into_free = if free.is_null() { free } else { &raw mut driver_free };
    let into_total = if total.is_null() { total } else { &raw mut driver_total };
    // SAFETY: null where the caller's pointer is null, else our locals.
    let result = unsafe { real::cuMemGetInfo_v2(into_free, into_total) };
    if result != CuResult::SUCCESS {
        return result;
    }
    let books = contexts::current_books().filter(|_| process::is_active());
    let (mut told_free, mut told_total) = (driver_free as u64, driver_total as u64);
    if let Some(books) = books {
        let idle = (books.reclaimable)(books.device);
        told_free = told_free.saturating_add(idle).min(books.account.headroom().saturating_add(idle));
        told_total = books.account.limit_bytes();
    }
    // SAFETY: each is the caller's to write unless null.
    unsafe {
        if let Some(free) = free.as_mut() {
            *free = told_free.min(books.map_or(u64::MAX, |books| books.account.limit_bytes())) as usize;
        }
        if let Some(total) = total.as_mut() {
            *total = told_total as usize;
        }
    }
    CuResult::SUCCESS
}

/// `cuDeviceTotalMem_v2`
///
/// # Safety
/// As the driver's.
pub unsafe fn total_mem(bytes: *mut usize, device: Device) -> CuResult {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::cuDeviceTotalMem_v2(bytes, device) };
    if result == CuResult::SUCCESS
        && process::is_active()
        && let Ok(device) = u32::try_from(device)
        // SAFETY: written by the successful call.
        && let Some(bytes) = unsafe { bytes.as_mut() }
    {
        *bytes = contexts::limit(device, *bytes as u64) as usize;
    }
    result
}
