//! The calling thread's stack, as addresses of calls.
//!
//! It is walked by the unwinder that exceptions use, so what it needs of the process is what an exception needs: no lock
//! that is held while code of the program runs, and no memory of the allocator's. It is asked once when the library
//! starts, because its first use may set something up. Where code has no unwind tables the walk ends, and what has been
//! found until then stands.

use super::modules;
use crate::stats::sites::DEPTH;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::OnceLock;

/// Addresses of calls, the innermost first.
pub struct Calls {
    addresses: [usize; DEPTH],
    length: usize,
    /// Whether there are more.
    pub cut: bool,
    own: Range<usize>,
}

impl Calls {
    /// The addresses.
    pub fn all(&self) -> &[usize] {
        &self.addresses[..self.length]
    }
}

/// `_URC_NO_REASON` and `_URC_END_OF_STACK`: go on, and stop.
const ON: c_int = 0;
const STOP: c_int = 5;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIPInfo(context: *mut c_void, before: *mut c_int) -> usize;
}

/// Where this library lies: its own frames are nobody's concern.
fn own() -> &'static Range<usize> {
    static OWN: OnceLock<Range<usize>> = OnceLock::new();
    OWN.get_or_init(|| modules::span(calls as *const () as usize))
}

/// Whether an address is this library's.
pub fn is_own(address: usize) -> bool {
    own().contains(&address)
}

/// Asks the unwinder for the first time.
pub fn warm_up() {
    calls();
}

/// The calling thread's stack from the caller of this library on.
#[inline(never)]
pub fn calls() -> Calls {
    let mut calls = Calls { addresses: [0; DEPTH], length: 0, cut: false, own: own().clone() };
    // SAFETY: the callback gets `calls`.
    unsafe { _Unwind_Backtrace(each, (&raw mut calls).cast()) };
    calls
}

unsafe extern "C" fn each(context: *mut c_void, calls: *mut c_void) -> c_int {
    let mut before = 0;
    // SAFETY: the unwinder's own context, and our local.
    let (calls, address) =
        unsafe { (&mut *calls.cast::<Calls>(), _Unwind_GetIPInfo(context, &raw mut before)) };
    // The call itself, and not what it returns to, which may be another function.
    let address = if before == 0 { address.wrapping_sub(1) } else { address };
    if address == 0 || address == usize::MAX {
        return STOP;
    }
    if calls.length == 0 && calls.own.contains(&address) {
        return ON;
    }
    if calls.length == DEPTH {
        calls.cut = true;
        return STOP;
    }
    calls.addresses[calls.length] = address;
    calls.length += 1;
    ON
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_is_walked_past_this_program_itself() {
        // In a test the library is the program, so all that is left are the frames of the C library below the thread.
        let found = calls();
        assert!(!found.cut && found.all().len() < 8, "{}", found.all().len());
        assert!(found.all().iter().all(|address| !own().contains(address)));
    }
}
