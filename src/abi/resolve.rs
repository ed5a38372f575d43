//! The real driver: where its functions are, and which of our functions stands in for which of them.
//!
//! Substitution goes by the **pointer that the real resolver returned**, never by parsing the name asked for: that gets
//! versions and per-thread variants right, never invents a function that the driver lacks, and leaves alone libraries
//! that merely export names like CUDA's.

use super::dlsym::Library;
use super::table::{HOOKS, Hook, slot};
use super::wiring;
use crate::life::notes;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_ulonglong, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Real address to replacement.
static REPLACEMENTS: OnceLock<HashMap<usize, usize>> = OnceLock::new();
static READY: AtomicBool = AtomicBool::new(false);

/// Fills the table of real functions; false while the process has no driver.
pub fn ensure() -> bool {
    if READY.load(Ordering::Acquire) {
        return true;
    }
    // Never loaded from here: a process that does not use CUDA must not start to.
    let Some(driver) = Library::loaded(c"libcuda.so.1") else { return false };
    REPLACEMENTS.get_or_init(|| {
        let mut map = HashMap::with_capacity(2 * HOOKS.len());
        for hook in HOOKS {
            let address = driver.symbol(hook.symbol);
            hook.real.store(address, Ordering::Release);
            if !address.is_null() {
                map.entry(address as usize).or_insert(hook.replacement as usize);
            }
        }
        for hook in HOOKS {
            learn_by_query(hook, &mut map);
        }
        wiring::connect(driver);
        map
    });
    READY.store(true, Ordering::Release);
    true
}

/// A driver may answer `cuGetProcAddress` with an address other than its exported symbol's: both mean the same function.
fn learn_by_query(hook: &Hook, map: &mut HashMap<usize, usize>) {
    let mut found: *mut c_void = std::ptr::null_mut();
    let v2 = slot::cuGetProcAddress_v2.load(Ordering::Acquire);
    let v1 = slot::cuGetProcAddress.load(Ordering::Acquire);
    let status = if !v2.is_null() {
        // SAFETY: the driver's cuGetProcAddress_v2, whose status may be NULL.
        unsafe {
            let query: unsafe extern "C" fn(
                *const c_char,
                *mut *mut c_void,
                c_int,
                c_ulonglong,
                *mut c_int,
            ) -> c_int = std::mem::transmute(v2);
            query(hook.query.as_ptr(), &raw mut found, hook.version, hook.flags, std::ptr::null_mut())
        }
    } else if !v1.is_null() {
        // SAFETY: the driver's cuGetProcAddress.
        unsafe {
            let query: unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, c_ulonglong) -> c_int =
                std::mem::transmute(v1);
            query(hook.query.as_ptr(), &raw mut found, hook.version, hook.flags)
        }
    } else {
        return;
    };
    // A driver without the exported symbol has no such function for us either: what it answers is an older form.
    if status == 0 && !found.is_null() && !hook.real.load(Ordering::Acquire).is_null() {
        map.entry(found as usize).or_insert(hook.replacement as usize);
    }
}

/// Whether the driver of this process has the function behind our export `symbol`.
pub fn driver_has(symbol: &CStr) -> bool {
    ensure()
        && HOOKS
            .iter()
            .find(|hook| hook.symbol == symbol)
            .is_some_and(|hook| !hook.real.load(Ordering::Acquire).is_null())
}

/// What to hand out for the real address `found`, which a resolver gave for `name`: our function where there is one.
pub fn substitute(name: &CStr, found: *mut c_void) -> *mut c_void {
    if !ensure() || crate::life::process::passes_through() {
        return found;
    }
    let replacement = REPLACEMENTS.get().and_then(|map| map.get(&(found as usize)));
    if let Some(ours) = replacement {
        *ours as *mut c_void
    } else {
        if may_allocate(name) {
            notes::unhooked(name);
        }
        found
    }
}

/// Names by which a future driver may hand out device memory past us; seen resolved and unhooked, the report names them.
fn may_allocate(name: &CStr) -> bool {
    const HARMLESS: [&str; 14] = [
        "cuMemAllocHost",
        "cuMemHostAlloc",
        "cuMemPoolCreate",
        "cuMemPoolImport",
        "cuMemPoolExport",
        "cuMemGetAllocation",
        "cuMemExport",
        "cuMemHostRegister",
        "cuMemSetAccess",
        "cuMemPoolSet",
        "cuMemPoolGet",
        "cuMemRetainAllocation",
        "cuGraphMem",
        "cuMemAllocFromPoolAsync",
    ];
    let Ok(name) = name.to_str() else { return false };
    let allocates = (name.starts_with("cuMem")
        && (name.contains("Alloc") || name.starts_with("cuMemCreate")))
        || (name.contains("Array") && name.contains("Create"));
    allocates && !HARMLESS.iter().any(|harmless| name.starts_with(harmless))
}
