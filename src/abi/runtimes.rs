//! Which runtime a call of `cudaMalloc`, `cudaFree` or `cudaMemGetInfo` belongs to.
//!
//! A process may hold several runtimes, also ones that come with a plugin later, and each keeps a current device and a
//! last error of its own. The dynamic linker would bind each caller to the runtime that it was linked with (their
//! symbols carry versions); the exports of this library stand in for all of them, so they find out by the address that
//! the call returns to:
//!
//! 1. the runtime that the caller's object was linked with;
//! 2. for an object that was linked with none (it looked the symbol up, forwards for others, or relies on what others
//!    were linked with): what lies behind this library in the global scope, which a plain reference finds first;
//! 3. else, the runtime that the libraries brought which it was linked with, nearest first;
//! 4. else, the runtime that was found first.
//!
//! What is found is kept by return address, for good. Two cases stay open: a function whose last act is a jump to
//! `cudaMalloc` counts as its own caller, and so does what is loaded to the place of a plugin that was unloaded.
//!
//! Nothing here is locked: a thread may be inside a library's constructor (and hold the dynamic linker's lock) or in a
//! forked child whose other threads are gone.

use super::dlsym::Library;
use super::elf::{self, Object};
use super::guard::shield;
use super::runtime::NAMES;
use crate::life::process;
use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// From this runtime on, the current context is the one that an allocation goes to; before, `cudaSetDevice` switches late.
const FAST_SINCE: c_int = 12_000;

/// A runtime: a loaded library, or whatever else exports its functions.
pub struct Runtime {
    /// Real functions, in the order of [`NAMES`].
    pub functions: [usize; 3],
    /// Whether a call that belongs to it may be answered without it.
    pub may_serve: bool,
    /// Where its library was loaded.
    base: usize,
    next: AtomicPtr<Runtime>,
}

/// The newest runtime of the list; entries are never removed, and keep their libraries loaded.
static NEWEST: AtomicPtr<Runtime> = AtomicPtr::new(std::ptr::null_mut());

/// Callers that are remembered; more than that are looked up anew each time.
const CALLERS: usize = 1024;
/// Places in which a caller may stand, from that of its hash.
const REACH: usize = 8;

/// A return address, and the runtime that its calls belong to once that is known.
struct Caller {
    address: AtomicUsize,
    runtime: AtomicPtr<Runtime>,
}

static KNOWN: [Caller; CALLERS] =
    [const { Caller { address: AtomicUsize::new(0), runtime: AtomicPtr::new(std::ptr::null_mut()) } };
        CALLERS];

/// The places for a caller.
#[inline]
fn places(caller: usize) -> impl Iterator<Item = &'static Caller> {
    let start = (caller as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54;
    (start as usize..start as usize + REACH).map(|at| &KNOWN[at % CALLERS])
}

/// The runtime that a call returning to `caller` belongs to; `None` if the process has none.
#[inline]
pub fn of(caller: usize) -> Option<&'static Runtime> {
    for place in places(caller) {
        let address = place.address.load(Ordering::Relaxed);
        if address == caller {
            // SAFETY: null, or an entry of the list, which lives for ever.
            if let Some(runtime) = unsafe { place.runtime.load(Ordering::Acquire).as_ref() } {
                return Some(runtime);
            }
        }
        if address == 0 {
            break;
        }
    }
    shield(|| find(caller)).flatten()
}

#[cold]
fn find(caller: usize) -> Option<&'static Runtime> {
    if !process::is_owner()
        && let Some(oldest) = list().last()
    {
        // A child of a process that used a runtime: CUDA fails there whichever is called, and the dynamic linker may
        // have been busy at the fork.
        return Some(oldest);
    }
    let runtime = decide(caller)?;
    for place in places(caller) {
        let taken = place.address.compare_exchange(0, caller, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_ok() || taken == Err(caller) {
            place.runtime.store(std::ptr::from_ref(runtime).cast_mut(), Ordering::Release);
            break;
        }
    }
    Some(runtime)
}

fn decide(caller: usize) -> Option<&'static Runtime> {
    let objects = elf::loaded();
    for object in objects.iter().filter(|object| object.file_name().starts_with(b"libcudart.so")) {
        learn(object);
    }
    let owner = elf::owner(&objects, caller);
    let runtime_at = |at: usize| list().find(|runtime| runtime.base == objects[at].base);
    owner
        .and_then(|owner| elf::linked(&objects, owner).find_map(runtime_at))
        .or_else(|| behind(&objects))
        .or_else(|| elf::closure(&objects, owner?).into_iter().find_map(runtime_at))
        .or_else(|| list().last())
}

/// Adds the runtime that `object` is, unless it is there already.
fn learn(object: &Object) {
    if list().any(|runtime| runtime.base == object.base) {
        return;
    }
    let Some(library) = Library::loaded(&object.path) else { return };
    let functions = NAMES.map(|name| library.symbol(name) as usize);
    if !functions.contains(&0) {
        let may_serve = version(library) >= FAST_SINCE;
        publish(Runtime { functions, may_serve, base: object.base, next: AtomicPtr::default() });
    }
}

/// The functions that lie behind this library in the global scope. Where they are not those of a runtime of the usual
/// file name (perhaps one linked into a library that exports it) nothing is known of its version.
fn behind(objects: &[Object]) -> Option<&'static Runtime> {
    let functions = NAMES.map(|name| Library::NEXT.symbol(name) as usize);
    if functions.contains(&0) {
        return None;
    }
    let known = || list().find(|runtime| runtime.functions == functions);
    if known().is_none() {
        let base = elf::owner(objects, functions[0]).map_or(0, |owner| objects[owner].base);
        publish(Runtime { functions, may_serve: false, base, next: AtomicPtr::default() });
    }
    known()
}

/// The known runtimes, the newest first.
fn list() -> impl Iterator<Item = &'static Runtime> {
    // SAFETY: null, or an entry, which lives for ever.
    let entry = |at: &AtomicPtr<Runtime>| unsafe { at.load(Ordering::Acquire).as_ref() };
    std::iter::successors(entry(&NEWEST), move |runtime| entry(&runtime.next))
}

/// Adds a runtime, unless another thread has added the same one.
fn publish(runtime: Runtime) {
    let new = Box::into_raw(Box::new(runtime));
    let mut newest = NEWEST.load(Ordering::Acquire);
    loop {
        // SAFETY: nobody else has it yet.
        let runtime = unsafe { &*new };
        if list().any(|known| known.functions == runtime.functions) {
            // SAFETY: from the box above, and never published.
            drop(unsafe { Box::from_raw(new) });
            return;
        }
        runtime.next.store(newest, Ordering::Relaxed);
        match NEWEST.compare_exchange(newest, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(now) => newest = now,
        }
    }
}

fn version(library: Library) -> c_int {
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
