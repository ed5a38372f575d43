//! What the interposed `dlsym` decides: which lookups are answered here, and with what.
//!
//! Every lookup of every library of the process passes [`route`], so it decides by the first bytes of the name, takes
//! no lock and allocates nothing unless the name is one of CUDA's.

use super::arch::DLSYM_VERSIONS;
use super::{resolve, runtime, scopes, table};
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The real `dlsym`. The entry jumps through it, so [`route`] fills it before it returns.
pub static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

type DlsymFn = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// What the entry does next: return `answer` when `answered` is 1, else jump to the real `dlsym`.
#[repr(C)]
pub struct Verdict {
    answer: *mut c_void,
    answered: usize,
}

impl Verdict {
    const PASS: Verdict = Verdict { answer: std::ptr::null_mut(), answered: 0 };

    fn answer(answer: *mut c_void) -> Verdict {
        Verdict { answer, answered: 1 }
    }
}

/// Decides over one lookup, which returns to `caller`; called by the processor's entry.
///
/// # Safety
/// As `dlsym(3)`.
pub unsafe extern "C" fn route(handle: *mut c_void, name: *const c_char, caller: usize) -> Verdict {
    let real = real_dlsym();
    // SAFETY: the caller passes a C string, as dlsym demands; each byte is read only if the one before is not its end.
    if name.is_null() || !unsafe { is_cuda_name(name) } {
        return Verdict::PASS;
    }
    // SAFETY: a C string, as above.
    let text = unsafe { CStr::from_ptr(name) };
    super::guard::shield(|| {
        if handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT {
            return route_by_scope(handle, text, caller);
        }
        // SAFETY: handle and name are the caller's own; for a real handle glibc does not look at the return address.
        let found = unsafe { real(handle, name) };
        if found.is_null() {
            return Verdict::PASS; // the real one fails again and leaves the caller its dlerror
        }
        if table::is_export(found) {
            // The program's own handle, whose scope is the global one.
            return if behind_export(text) { Verdict::answer(found) } else { hidden(text) };
        }
        Verdict::answer(resolve::substitute(text, found))
    })
    .unwrap_or(Verdict::PASS)
}

/// A lookup through the caller's scope. The real `dlsym` finds our exports by the ordinary rules of interposition; all
/// that is decided here is that a name does not appear to exist just because this library exports it.
fn route_by_scope(handle: *mut c_void, name: &CStr, caller: usize) -> Verdict {
    let found = !table::exports(name)
        || behind_export(name)
        || if handle == libc::RTLD_DEFAULT {
            scopes::reach(caller, name)
        } else {
            !scopes::precedes_us(caller)
        };
    if found { Verdict::PASS } else { hidden(name) }
}

/// Whether something of this name lies behind our export in the global scope.
fn behind_export(name: &CStr) -> bool {
    !Library::NEXT.symbol(name).is_null()
}

/// Answers as if this library did not export `name`: searches behind it, so that `dlerror` is set as without us.
fn hidden(name: &CStr) -> Verdict {
    Verdict::answer(Library::NEXT.symbol(name))
}

/// `cu` and an upper-case letter (driver), or one of the three runtime names: so that cublas, cudnn and curl never match.
unsafe fn is_cuda_name(name: *const c_char) -> bool {
    // SAFETY: up to the terminating NUL, one byte at a time.
    unsafe {
        if *name.cast::<u8>() != b'c' || *name.cast::<u8>().add(1) != b'u' {
            return false;
        }
        let third = *name.cast::<u8>().add(2);
        third.is_ascii_uppercase() || (third == b'd' && runtime::NAMES.contains(&CStr::from_ptr(name)))
    }
}

/// The real `dlsym`, found through `dlvsym` (public since glibc 2.1, and not interposed).
pub fn real_dlsym() -> DlsymFn {
    let mut found = REAL_DLSYM.load(Ordering::Relaxed);
    if found.is_null() {
        for version in DLSYM_VERSIONS {
            // SAFETY: constant C strings; RTLD_NEXT is what lies behind this library.
            found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
            if !found.is_null() {
                break;
            }
        }
        if found.is_null() {
            super::guard::fatal(
                "no dlsym of a known version in this process's C library; cannot be preloaded here",
            );
        }
        REAL_DLSYM.store(found, Ordering::Relaxed);
    }
    // SAFETY: the address of the C library's dlsym.
    unsafe { std::mem::transmute::<*mut c_void, DlsymFn>(found) }
}

/// A loaded library, or what lies behind this one.
#[derive(Clone, Copy)]
pub struct Library(*mut c_void);

impl Library {
    /// Whatever lies behind this library in the process's global scope.
    pub const NEXT: Library = Library(libc::RTLD_NEXT);

    /// The library of this name or path, if the process has loaded it. Never loads it. Keeps a reference, so that it
    /// stays: our tables point inside.
    pub fn loaded(name: &CStr) -> Option<Library> {
        // SAFETY: a C string; RTLD_NOLOAD only looks.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(Library(handle))
    }

    /// Gives the reference back that [`Library::loaded`] took, for a library that nothing of ours points into.
    pub fn release(self) {
        // SAFETY: a handle from dlopen; the library is loaded for others as well, so it seldom goes with it.
        unsafe { libc::dlclose(self.0) };
    }

    /// The address of a symbol, by the real `dlsym`; null if there is none.
    pub fn symbol(self, name: &CStr) -> *mut c_void {
        // SAFETY: a handle that stays open, or RTLD_NEXT, which from here means "behind this library".
        unsafe { real_dlsym()(self.0, name.as_ptr()) }
    }
}
