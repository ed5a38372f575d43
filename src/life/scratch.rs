//! Memory for the report that no allocator is asked for.
//!
//! `_exit` may be called in a signal handler, and the thread that the handler interrupted may be inside `malloc`, whose
//! lock it will never give back. So while a thread makes the report, whatever this library allocates on that thread
//! comes from a mapping of its own that only grows, and whatever it frees stays where it is: the process ends anyway.
//! Everything else is the system allocator's, at the cost of one load.
//!
//! This holds for Rust's allocations. The C library's own must be avoided by not calling what makes them.

use super::process;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// Address space for one report; only what is touched becomes memory.
const BYTES: usize = 64 << 20;
/// What a history adds to that.
static MORE: AtomicUsize = AtomicUsize::new(0);

/// The thread that is served from the mapping; 0 for none.
static THREAD: AtomicI64 = AtomicI64::new(0);
/// The mapping: its start, how much there is of it, how much is used.
static START: AtomicUsize = AtomicUsize::new(0);
static SIZE: AtomicUsize = AtomicUsize::new(0);
static USED: AtomicUsize = AtomicUsize::new(0);

/// The system allocator, but for the thread that makes the report.
pub struct Allocator;

// Only where the exports are: a program that links this crate keeps the choice of its allocator.
#[cfg(all(not(test), feature = "exports"))]
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// While it lives, the calling thread's allocations need no lock.
pub struct Scratch(());

impl Scratch {
    /// Starts it on this thread. Only one thread at a time makes a report.
    pub fn begin() -> Scratch {
        if START.load(Ordering::Relaxed) == 0 {
            map();
        }
        THREAD.store(process::thread(), Ordering::Release);
        Scratch(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        THREAD.store(0, Ordering::Release);
    }
}

/// Lets reports take so much more, before the first is made.
pub fn enlarge(bytes: usize) {
    MORE.store(bytes, Ordering::Relaxed);
}

/// Takes the mapping. Without one, the system allocator has to do.
fn map() {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    let bytes = BYTES + MORE.load(Ordering::Relaxed);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe { libc::mmap(null_mut(), bytes, access, kind, -1, 0) };
    if start != libc::MAP_FAILED {
        START.store(start as usize, Ordering::Relaxed);
        SIZE.store(bytes, Ordering::Relaxed);
    }
}

/// Whether the calling thread is the one that makes the report.
#[inline]
fn is_reporting() -> bool {
    let thread = THREAD.load(Ordering::Relaxed);
    thread != 0 && thread == process::thread()
}

/// Whether `address` lies in the mapping.
#[inline]
fn holds(address: *mut u8) -> bool {
    (address as usize).wrapping_sub(START.load(Ordering::Relaxed)) < SIZE.load(Ordering::Relaxed)
}

/// Takes the next bytes of the mapping, which are zero; null if it does not reach. Only the reporting thread comes here.
fn take(layout: Layout) -> *mut u8 {
    let start = START.load(Ordering::Relaxed);
    let from = (start + USED.load(Ordering::Relaxed)).next_multiple_of(layout.align());
    let Some(used) = (from - start).checked_add(layout.size()) else { return null_mut() };
    if used > SIZE.load(Ordering::Relaxed) {
        return null_mut();
    }
    USED.store(used, Ordering::Relaxed);
    from as *mut u8
}

// SAFETY: memory comes from the system allocator or from a part of the mapping that was handed out to nobody, and is
// given back only to the system allocator, and only if it came from there.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_reporting() {
            let taken = take(layout);
            if !taken.is_null() {
                return taken;
            }
        }
        // SAFETY: the caller's layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_reporting() {
            let taken = take(layout);
            if !taken.is_null() {
                return taken;
            }
        }
        // SAFETY: the caller's layout.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        if !holds(address) && !is_reporting() {
            // SAFETY: from the system allocator, with the caller's layout.
            unsafe { System.dealloc(address, layout) };
        }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !holds(address) && !is_reporting() {
            // SAFETY: from the system allocator, with the caller's layout and size.
            return unsafe { System.realloc(address, layout, size) };
        }
        // SAFETY: the caller vouches for the size; the old block holds `layout.size()` bytes, the new one `size`.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                new.copy_from_nonoverlapping(address, layout.size().min(size));
                self.dealloc(address, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_reporting_thread_is_served_from_the_mapping_and_nothing_returns_to_it() {
        let layout = Layout::from_size_align(1000, 64).unwrap();
        // SAFETY: each address is used within its layout, and given back once.
        unsafe {
            let before = Allocator.alloc(layout);
            assert!(!before.is_null() && !holds(before));
            let scratch = Scratch::begin();
            let first = Allocator.alloc(layout);
            assert!(holds(first) && (first as usize).is_multiple_of(64));
            first.write_bytes(7, 1000);
            let elsewhere = std::thread::spawn(move || {
                let theirs = Allocator.alloc(layout);
                let held = holds(theirs);
                Allocator.dealloc(theirs, layout);
                held
            });
            assert!(!elsewhere.join().unwrap());
            let second = Allocator.realloc(first, layout, 3000);
            assert!(holds(second) && second >= first.add(1000));
            assert!((0..1000).all(|at| *second.add(at) == 7));
            assert!((1000..3000).all(|at| *second.add(at) == 0));
            let huge = Layout::from_size_align(BYTES, 1).unwrap();
            let too_much = Allocator.alloc(huge);
            assert!(!too_much.is_null() && !holds(too_much));
            drop(scratch);
            let after = Allocator.realloc(second, Layout::from_size_align(3000, 64).unwrap(), 10);
            assert!(!holds(after) && *after == 7);
            Allocator.dealloc(after, Layout::from_size_align(10, 64).unwrap());
            Allocator.dealloc(first, layout);
            Allocator.dealloc(before, layout);
            Allocator.dealloc(too_much, huge);
        }
    }
}
