//! Functions that a loaded object exports, found without the dynamic linker's `dlsym`: that one waits for a lock which a
//! thread holds while constructors run, and these may wait for the caller.
//!
//! Read from the object's own tables in memory (`DT_GNU_HASH`), which are what the linker itself reads.

use super::image::{DT_GNU_HASH, DT_STRTAB, DT_SYMTAB, Image};
use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::ptr::null_mut;

/// `Elf64_Sym`
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// `STT_OBJECT` and `STT_FUNC`: for others the value is not an address, or not yet.
const PLAIN: Range<u8> = 1..3;

struct Search<'a> {
    wanted: &'a CStr,
    /// Whether an object of this path (empty: the program) is to be looked into.
    of: &'a dyn Fn(&[u8]) -> bool,
    found: usize,
}

/// The address of `name` in the first loaded object that exports it, among those that `of` says yes to by their path
/// (empty: the program); null if there is none.
pub fn address(name: &CStr, of: &dyn Fn(&[u8]) -> bool) -> *mut c_void {
    let mut search = Search { wanted: name, of, found: 0 };
    // SAFETY: the callback gets `search`.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    if search.found == 0 { null_mut() } else { search.found as *mut c_void }
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: an entry of the linker's, whose object stays loaded meanwhile, and our search.
    unsafe {
        let (image, search) = (Image::of(info), &mut *search.cast::<Search<'_>>());
        if (search.of)(image.path.to_bytes()) {
            search.found = look_up(image, search.wanted).unwrap_or(0);
        }
        c_int::from(search.found != 0)
    }
}

/// # Safety
/// An object that stays loaded.
unsafe fn look_up(image: Image<'_>, name: &CStr) -> Option<usize> {
    let (mut strings, mut symbols, mut table) = (None, None, None);
    for (tag, value) in image.dynamic() {
        match tag {
            DT_STRTAB => strings = image.resolve(value),
            DT_SYMTAB => symbols = image.resolve(value),
            DT_GNU_HASH => table = image.resolve(value),
            _ => {}
        }
    }
    // SAFETY: the tables that the section names are mapped and belong together.
    unsafe {
        let (strings, symbols, table) = (strings?, symbols? as *const Symbol, table? as *const u32);
        let [buckets, first, bloom] = [*table, *table.add(1), *table.add(2)];
        if buckets == 0 {
            return None;
        }
        let hash = hash(name.to_bytes());
        // Past the header, and the filter of so many words of 64 bits.
        let bucket = table.add(4 + 2 * bloom as usize);
        let chain = bucket.add(buckets as usize);
        let mut at = *bucket.add((hash % buckets) as usize);
        if at < first {
            return None;
        }
        loop {
            let link = *chain.add((at - first) as usize);
            let symbol = &*symbols.add(at as usize);
            let text = (strings + symbol.name as usize) as *const std::ffi::c_char;
            if link | 1 == hash | 1 && CStr::from_ptr(text) == name {
                let defined = symbol.section != 0 && PLAIN.contains(&(symbol.info & 15));
                return defined.then(|| image.base.wrapping_add(symbol.value as usize));
            }
            if link & 1 == 1 {
                return None;
            }
            at += 1;
        }
    }
}

fn hash(name: &[u8]) -> u32 {
    name.iter().fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_what_the_linker_finds() {
        let of_libc = |path: &[u8]| path.windows(7).any(|part| part == b"libc.so");
        for name in [c"getpid", c"qsort", c"environ", c"pthread_create", c"stdout"] {
            // SAFETY: a constant C string.
            let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            let found = address(name, &of_libc);
            if name == c"environ" || name == c"stdout" {
                // A program may have a copy of a variable, which then stands for all.
                assert!(!found.is_null());
            } else {
                assert_eq!(found, expected, "{}", name.to_string_lossy());
            }
        }
        assert!(address(c"gpucache_no_such_function", &of_libc).is_null());
        assert!(address(c"getpid", &|_| false).is_null());
        assert!(address(c"getpid", &|path| path.is_empty()).is_null(), "the program exports no such thing");
    }
}
