//! What tests may ask and tell the simulated driver. None of these is a driver call: they cost nothing, count nothing
//! and need no context.

use crate::gate::lock;
use std::ffi::{CStr, c_char};

fn text<'a>(p: *const c_char) -> Option<&'a str> {
    if p.is_null() {
        return None;
    }
    // SAFETY: tests pass strings that outlive the call.
    unsafe { CStr::from_ptr(p) }.to_str().ok()
}

/// Calls so far of the function with this exported symbol.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_call_count(name: *const c_char) -> u64 {
    let guard = lock();
    guard.as_ref().and_then(|w| Some(w.count(text(name)?))).unwrap_or(0)
}

/// Bytes in use on a device, by the driver's own account.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_used_bytes(device: i32) -> u64 {
    lock().as_ref().and_then(|w| w.accounts.get(device as usize)).map_or(0, |a| a.used)
}

/// Highest number of bytes in use on a device so far.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_peak_used_bytes(device: i32) -> u64 {
    lock().as_ref().and_then(|w| w.accounts.get(device as usize)).map_or(0, |a| a.peak)
}

/// Lets other processes hold this many bytes of a device from now on. Returns 0, or 1 for a device that is not there.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_set_other_used_bytes(device: i32, bytes: u64) -> i32 {
    let mut guard = lock();
    match guard.as_mut().and_then(|w| w.accounts.get_mut(device as usize)) {
        Some(account) => account.others = bytes,
        None => return 1,
    }
    0
}

/// Virtual time in ns.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_now_ns() -> u64 {
    lock().as_ref().map_or(0, |w| w.engine.now)
}

/// Lets virtual time pass.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_advance_ns(ns: u64) {
    if let Some(w) = lock().as_mut() {
        w.advance_to(w.engine.now + ns);
    }
}

/// Replaces the failures to inject by those of `NAME:N[+][:CODE][,…]`; N counts from the process's first call. Returns
/// 0, or 1 when the text cannot be understood, which changes nothing. Null or empty removes all.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_fail(spec: *const c_char) -> i32 {
    let Ok(failures) = crate::config::failures(text(spec).unwrap_or("")) else { return 1 };
    if let Some(w) = lock().as_mut() {
        w.config.failures = failures;
    }
    0
}
