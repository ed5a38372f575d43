//! `cudaMalloc`, `cudaFree` and `cudaMemGetInfo` of a shared runtime: a fast path over the driver level.
//!
//! Only what the pool can serve at once is served here. Everything else goes to the real runtime function, which comes
//! back through the driver-level hook: so that context creation, argument checks, the last error and sticky errors stay
//! the runtime's own business, and nothing is counted twice.
//!
//! A process may hold several runtimes, and the dynamic linker binds the callers of all of them to these exports. The
//! entries (in `arch/`) therefore pass on the return address, by which `runtimes.rs` knows whose call it is.

use super::arch;
use super::guard::shield;
use super::memory::{Given, give};
use super::runtimes;
use crate::driver::real::thread;
use crate::life::contexts::{self, Life};
use crate::life::process::{Admission, admit, admit_on};
use crate::life::{history, sites};
use crate::pool::local::Thread;
use std::ffi::{CStr, c_int, c_void};

/// Names that this library exports beside the driver's.
pub const NAMES: [&CStr; 3] = [c"cudaMalloc", c"cudaFree", c"cudaMemGetInfo"];

/// An address of code, in a table that threads share.
pub struct Code(pub *const c_void);

// SAFETY: an address of code, never written through.
unsafe impl Sync for Code {}

/// The exported functions by name.
pub static EXPORTS: [(&CStr, Code); 3] = [
    (NAMES[0], Code(arch::cudaMalloc as *const c_void)),
    (NAMES[1], Code(arch::cudaFree as *const c_void)),
    (NAMES[2], Code(arch::cudaMemGetInfo as *const c_void)),
];

const SUCCESS: c_int = 0;
const INITIALIZATION_ERROR: c_int = 3;

/// `cudaMalloc`, with the address that the caller returns to.
///
/// # Safety
/// As the runtime's.
pub unsafe extern "C" fn malloc(address: *mut u64, bytes: usize, caller: usize) -> c_int {
    // SAFETY: the caller's arguments.
    thread::with(|thread| unsafe { malloc_on(thread, address, bytes, caller) })
}

#[inline(always)]
unsafe fn malloc_on(thread: &Thread, address: *mut u64, bytes: usize, caller: usize) -> c_int {
    let admission = admit_on(thread);
    let Some(runtime) = runtimes::of(caller) else { return INITIALIZATION_ERROR };
    if runtime.may_serve && !address.is_null() && bytes > 0 && admission == Admission::Serve {
        let served = if sites::is_on() {
            hit_sampled(thread, bytes as u64)
        } else {
            hit(thread, bytes as u64, |_, _| {})
        };
        if let Some(served) = served {
            // SAFETY: not null, and the caller's to write.
            unsafe { *address = served };
            if history::wants(bytes as u64) {
                return told(served, bytes as u64);
            }
            return SUCCESS;
        }
    }
    // SAFETY: the runtime's cudaMalloc, with the caller's arguments.
    unsafe {
        std::mem::transmute::<usize, unsafe extern "C" fn(*mut u64, usize) -> c_int>(runtime.functions[0])(
            address, bytes,
        )
    }
}

/// Tells the history of a block that has been handed out; at the end of the call, so that others do not pay for it.
#[cold]
#[inline(never)]
fn told(served: u64, bytes: u64) -> c_int {
    shield(|| history::allocated(served, bytes));
    SUCCESS
}

/// What the pool serves at once, handed to `then` before the program knows of it.
#[inline(always)]
fn hit(thread: &Thread, bytes: u64, then: impl FnOnce(&Life, u64)) -> Option<u64> {
    let served = shield(|| {
        let life = contexts::current(thread)?;
        if life.server.sticky_error().is_some() {
            return None;
        }
        let served = life.server.try_hit(thread, bytes)?;
        then(life, served);
        Some(served)
    });
    served.flatten()
}

/// The same with sampling: apart, so that a process without it pays for one look at a number.
#[cold]
#[inline(never)]
fn hit_sampled(thread: &Thread, bytes: u64) -> Option<u64> {
    hit(thread, bytes, |life, served| sites::allocated(life.device, life.server.ctx().0, served, bytes))
}

/// `cudaFree`, with the address that the caller returns to.
///
/// # Safety
/// As the runtime's.
pub unsafe extern "C" fn free(address: u64, caller: usize) -> c_int {
    // SAFETY: the caller's argument.
    thread::with(|thread| unsafe { free_on(thread, address, caller) })
}

#[inline(always)]
unsafe fn free_on(thread: &Thread, address: u64, caller: usize) -> c_int {
    let admission = admit_on(thread);
    let Some(runtime) = runtimes::of(caller) else { return INITIALIZATION_ERROR };
    if runtime.may_serve && address != 0 && admission == Admission::Serve {
        let freed = shield(|| {
            // Without a context, or in a failed one, the runtime has the answer.
            if contexts::current(thread).is_none_or(|life| life.server.sticky_error().is_some()) {
                return false;
            }
            // Else the runtime comes back through the driver-level hook, which answers and counts.
            matches!(give(thread, address), Given::Taken(_))
        });
        if freed == Some(true) {
            return SUCCESS;
        }
    }
    // SAFETY: the runtime's cudaFree, with the caller's argument.
    unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(u64) -> c_int>(runtime.functions[1])(address) }
}

/// `cudaMemGetInfo`, with the address that the caller returns to. The runtime asks the driver, whose hook answers.
///
/// # Safety
/// As the runtime's.
pub unsafe extern "C" fn mem_get_info(free: *mut usize, total: *mut usize, caller: usize) -> c_int {
    admit(); // the first CUDA call may be this one
    let Some(runtime) = runtimes::of(caller) else { return INITIALIZATION_ERROR };
    // SAFETY: the runtime's cudaMemGetInfo, with the caller's arguments.
    unsafe {
        std::mem::transmute::<usize, unsafe extern "C" fn(*mut usize, *mut usize) -> c_int>(
            runtime.functions[2],
        )(free, total)
    }
}
