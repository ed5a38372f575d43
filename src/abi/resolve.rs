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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Real address to replacement.
static REPLACEMENTS: OnceLock<HashMap<usize, usize>> = OnceLock::new();
static READY: AtomicBool = AtomicBool::new(false);
/// Where the driver library was loaded.
static DRIVER_BASE: AtomicUsize = AtomicUsize::new(0);

/// Fills the table of real functions; false while the process has no driver.
pub fn ensure() -> bool {
    if READY.load(Ordering::Acquire) {
        return true;
    }
    // Never loaded from here: a process that does not use CUDA must not start to.
    let Some(driver) = Library::loaded(c"libcuda.so.1") else { return false };
    // Two threads may both do this, and find the same. Neither holds anything meanwhile: the dynamic linker and the
    // driver may wait for a thread that is on its way here, from a library's constructor for example.
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
    let calls = wiring::look_up(driver);
    DRIVER_BASE.store(object_of(driver.symbol(c"cuInit")), Ordering::Release);
    wiring::connect(calls);
    let _ = REPLACEMENTS.set(map);
    READY.store(true, Ordering::Release);
    true
}

/// Where the object that holds `address` was loaded; 0 if none does.
fn object_of(address: *mut c_void) -> usize {
    // SAFETY: plain data, for which all zeros is a value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked about; writes to our local.
    let found = unsafe { libc::dladdr(address, &raw mut info) } != 0;
    if found { info.dli_fbase as usize } else { 0 }
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

/// What to hand out for the real address `found`, which a resolver gave for `name`: our function where there is one.
pub fn substitute(name: &CStr, found: *mut c_void) -> *mut c_void {
    if !ensure() || crate::life::process::passes_through() {
        return found;
    }
    let replacement = REPLACEMENTS.get().and_then(|map| map.get(&(found as usize)));
    if let Some(ours) = replacement {
        *ours as *mut c_void
    } else {
        // Other libraries may have functions of such names too.
        if may_allocate(name) && object_of(found) == DRIVER_BASE.load(Ordering::Acquire) {
            notes::unhooked(name);
        }
        found
    }
}

/// Names by which a future driver may hand out device memory past us; seen resolved and unhooked, the report names them.
fn may_allocate(name: &CStr) -> bool {
    const HARMLESS: [&str; 13] = [
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
    ];
    let Ok(name) = name.to_str() else { return false };
    let allocates = (name.starts_with("cuMem")
        && (name.contains("Alloc") || name.starts_with("cuMemCreate")))
        || (name.contains("Array") && name.contains("Create"));
    allocates && !HARMLESS.iter().any(|harmless| name.starts_with(harmless))
}
