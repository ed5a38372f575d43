//! `cudaMalloc`, `cudaFree` and `cudaMemGetInfo` of a shared runtime: a fast path over the driver level.
//!
//! Only what the pool can serve at once is served here. Everything else goes to the real runtime function, which comes
//! back through the driver-level hook: so that context creation, argument checks, the last error and sticky errors stay
//! the runtime's own business, and nothing is counted twice.
//!
//! A process may hold several runtimes, and the dynamic linker binds the callers of all of them to these exports. The
//! entries (in `arch/`) therefore pass on the return address: the real function is that of the runtime which the
//! caller's library was linked with.

use super::arch;
use super::dlsym::Library;
use super::guard::shield;
use super::memory::{Found, find};
use crate::driver::real;
use crate::life::contexts;
use crate::life::process::{Admission, admit};
use parking_lot::RwLock;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::atomic::{AtomicU8, Ordering};

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
/// From this runtime on, the current context is the one that an allocation goes to; before, `cudaSetDevice` switches late.
const FAST_SINCE: c_int = 12_000;

/// A loaded runtime library.
#[derive(Clone)]
struct Runtime {
    /// File name, for example `libcudart.so.13`.
    name: CString,
    /// Real functions, in the order of [`NAMES`].
    functions: [usize; 3],
    version: c_int,
}

static RUNTIMES: RwLock<Vec<Runtime>> = RwLock::new(Vec::new());

const UNKNOWN: u8 = 0;
const FAST: u8 = 1;
const SLOW: u8 = 2;
static PATH: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether a shared runtime is loaded.
pub fn is_loaded() -> bool {
    !RUNTIMES.read().is_empty() || rescan()
}

/// Looks for runtimes that have been loaded since the last look.
fn rescan() -> bool {
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: the callback gets `names` and only collects into it.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut names).cast()) };
    let mut known = RUNTIMES.write();
    for path in names {
        let Some(library) = Library::loaded(&path) else { continue };
        let functions = NAMES.map(|name| library.symbol(name) as usize);
        let version = runtime_version(library);
        if functions.contains(&0) || known.iter().any(|runtime| runtime.functions == functions) {
            continue;
        }
        known.push(Runtime { name: file_name(&path), functions, version });
    }
    let fast = !known.is_empty() && known.iter().all(|runtime| runtime.version >= FAST_SINCE);
    PATH.store(
        if known.is_empty() {
            UNKNOWN
        } else if fast {
            FAST
        } else {
            SLOW
        },
        Ordering::Release,
    );
    !known.is_empty()
}

fn file_name(path: &CStr) -> CString {
    let bytes = path.to_bytes();
    let start = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    CString::new(&bytes[start..]).unwrap_or_default()
}

fn runtime_version(library: Library) -> c_int {
    let address = library.symbol(c"cudaRuntimeGetVersion");
    let mut version = 0;
    if !address.is_null() {
        // SAFETY: cudaRuntimeGetVersion; writes one integer to our local and needs no context.
        unsafe {
            let get: unsafe extern "C" fn(*mut c_int) -> c_int = std::mem::transmute(address);
            get(&raw mut version);
        }
    }
    version
}

unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _: usize, names: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid entry, and our vector as the third argument.
    unsafe {
        let name = (*info).dlpi_name;
        if !name.is_null() {
            let path = CStr::from_ptr(name);
            if file_name(path).to_bytes().starts_with(b"libcudart.so") {
                (*names.cast::<Vec<CString>>()).push(path.to_owned());
            }
        }
    }
    0
}

/// The real function number `at` of [`NAMES`] for the caller that returns to `caller`.
fn real_function(at: usize, caller: usize) -> Option<usize> {
    if !is_loaded() {
        // Not by a file name of its own: perhaps linked into a library that exports it.
        let next = Library::NEXT.symbol(NAMES[at]) as usize;
        return (next != 0).then_some(next);
    }
    let known = RUNTIMES.read();
    if let [only] = known.as_slice() {
        return Some(only.functions[at]);
    }
    let linked = super::elf::needed_by(caller);
    let own = known.iter().find(|runtime| linked.contains(&runtime.name));
    own.or(known.first()).map(|runtime| runtime.functions[at])
}

/// Whether the fast path may be taken.
#[inline]
fn may_serve() -> bool {
    match PATH.load(Ordering::Acquire) {
        FAST => true,
        SLOW => false,
        _ => rescan() && PATH.load(Ordering::Acquire) == FAST,
    }
}

/// `cudaMalloc`, with the address that the caller returns to.
///
/// # Safety
/// As the runtime's.
pub unsafe extern "C" fn malloc(address: *mut u64, bytes: usize, caller: usize) -> c_int {
    if !address.is_null() && bytes > 0 && admit() == Admission::Serve {
        let served = shield(|| {
            let life = if may_serve() { contexts::current() } else { None };
            life.filter(|life| life.server.sticky_error().is_none())?.server.try_hit(bytes as u64)
        });
        if let Some(Some(served)) = served {
            // SAFETY: not null, and the caller's to write.
            unsafe { *address = served };
            return SUCCESS;
        }
    }
    let Some(Some(function)) = shield(|| real_function(0, caller)) else { return INITIALIZATION_ERROR };
    // SAFETY: the runtime's cudaMalloc, with the caller's arguments.
    unsafe {
        std::mem::transmute::<usize, unsafe extern "C" fn(*mut u64, usize) -> c_int>(function)(address, bytes)
    }
}

/// `cudaFree`, with the address that the caller returns to.
///
/// # Safety
/// As the runtime's.
pub unsafe extern "C" fn free(address: u64, caller: usize) -> c_int {
    if address != 0 && admit() == Admission::Serve && may_serve() && real::current_ctx().is_some() {
        let freed = shield(|| {
            if let Found::Block(life, claimed) = find(address) {
                return life.server.free(claimed).is_ok();
            }
            false // the runtime comes back through the driver-level hook, which answers and counts
        });
        if freed == Some(true) {
            return SUCCESS;
        }
    }
    let Some(Some(function)) = shield(|| real_function(1, caller)) else { return INITIALIZATION_ERROR };
    // SAFETY: the runtime's cudaFree, with the caller's argument.
    unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(u64) -> c_int>(function)(address) }
}

/// `cudaMemGetInfo`, with the address that the caller returns to. The runtime asks the driver, whose hook answers.
///
/// # Safety
/// As the runtime's.
pub unsafe extern "C" fn mem_get_info(free: *mut usize, total: *mut usize, caller: usize) -> c_int {
    let Some(Some(function)) = shield(|| real_function(2, caller)) else { return INITIALIZATION_ERROR };
    // SAFETY: the runtime's cudaMemGetInfo, with the caller's arguments.
    unsafe {
        std::mem::transmute::<usize, unsafe extern "C" fn(*mut usize, *mut usize) -> c_int>(function)(
            free, total,
        )
    }
}
