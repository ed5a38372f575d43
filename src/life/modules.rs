//! Which loaded objects addresses of code lie in.
//!
//! By `dl_iterate_phdr`, whose lock the dynamic linker holds only while it changes its list. `dladdr` and `dlsym` wait for
//! another one, which a thread holds while constructors run, and these may wait for a lock of the program's that the
//! calling thread holds.

use super::image::Image;
use crate::stats::sites::Module;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

/// An address, and the object that it lies in with the address as it was linked.
pub struct Place {
    /// The address.
    pub address: usize,
    /// The object; none for code that was made while the process ran.
    pub module: Option<Module>,
    /// The address in the object.
    pub offset: u64,
}

/// The places of addresses.
pub fn places(addresses: &[usize]) -> Vec<Place> {
    let place = |address: &usize| Place { address: *address, module: None, offset: *address as u64 };
    let mut places: Vec<Place> = addresses.iter().map(place).collect();
    // SAFETY: the callback gets `places`, and only writes into it.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut places).cast()) };
    places
}

/// The addresses of the object that `address` lies in: from its first to its last.
pub fn span(address: usize) -> Range<usize> {
    let mut found = (address, 0..0);
    // SAFETY: the callback gets `found`.
    unsafe { libc::dl_iterate_phdr(Some(measure), (&raw mut found).cast()) };
    found.1
}

/// How many objects have been loaded and unloaded so far. While the latter stays, an address stands for the same code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Loaded.
    pub loaded: u64,
    /// Unloaded.
    pub unloaded: u64,
}

/// What has been loaded and unloaded so far.
pub fn changes() -> Changes {
    let mut changes = Changes::default();
    // SAFETY: the callback gets `changes`.
    unsafe { libc::dl_iterate_phdr(Some(count), (&raw mut changes).cast()) };
    changes
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, places: *mut c_void) -> c_int {
    // SAFETY: an entry of the linker's, and our vector.
    let (image, places) = unsafe { (Image::of(info), &mut *places.cast::<Vec<Place>>()) };
    let mut module = None;
    for place in places.iter_mut().filter(|place| place.module.is_none() && image.holds(place.address)) {
        // SAFETY: the object stays loaded meanwhile.
        let module = module.get_or_insert_with(|| unsafe { describe(image) });
        place.module = Some(module.clone());
        place.offset = place.address.wrapping_sub(image.base) as u64;
    }
    0
}

unsafe extern "C" fn measure(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: an entry of the linker's, and our local.
    let (image, found) = unsafe { (Image::of(info), &mut *found.cast::<(usize, Range<usize>)>()) };
    if !image.holds(found.0) {
        return 0;
    }
    let start = image.segments().map(|segment| segment.start).min();
    let end = image.segments().map(|segment| segment.end).max();
    found.1 = start.unwrap_or(0)..end.unwrap_or(0);
    1
}

unsafe extern "C" fn count(info: *mut libc::dl_phdr_info, size: usize, changes: *mut c_void) -> c_int {
    // The fields are there since glibc 2.4; the size says so. SAFETY: an entry of the linker's, and our local.
    unsafe {
        if size >= std::mem::offset_of!(libc::dl_phdr_info, dlpi_subs) + 8 {
            *changes.cast() = Changes { loaded: (*info).dlpi_adds, unloaded: (*info).dlpi_subs };
        }
    }
    1
}

/// # Safety
/// The object stays loaded meanwhile.
unsafe fn describe(image: Image<'_>) -> Module {
    let name = image.path.to_bytes();
    let path = if name.is_empty() {
        // The program.
        std::fs::read_link("/proc/self/exe")
            .map(|path| String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned())
            .unwrap_or_default()
    } else {
        // Opened by a relative one: relative to where the process is now, as far as anybody knows.
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(name));
        let absolute = path.is_relative().then(|| std::path::absolute(path).ok()).flatten();
        absolute.as_deref().unwrap_or(path).to_string_lossy().into_owned()
    };
    let build_id = image
        .parts(libc::PT_NOTE)
        // SAFETY: a segment of the object.
        .find_map(|part| build_id(unsafe { std::slice::from_raw_parts(part.start as *const u8, part.len()) }))
        .unwrap_or_default();
    Module { path, build_id }
}

/// The build id among notes.
fn build_id(mut notes: &[u8]) -> Option<Vec<u8>> {
    const KIND: u32 = 3;
    while notes.len() >= 12 {
        let number = |at: usize| u32::from_le_bytes([notes[at], notes[at + 1], notes[at + 2], notes[at + 3]]);
        let (name, size, kind) = (number(0) as usize, number(4) as usize, number(8));
        let start = 12 + name.next_multiple_of(4);
        let body = notes.get(start..start.checked_add(size)?)?;
        if kind == KIND && notes.get(12..16) == Some(b"GNU\0") {
            return Some(body[..body.len().min(32)].to_vec());
        }
        notes = notes.get(start + size.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_this_program_and_of_the_c_library_is_placed() {
        let own = code_of_this_program_and_of_the_c_library_is_placed as *const () as usize;
        let of_libc = libc::getpid as *const () as usize;
        let found = places(&[own, of_libc, 16]);
        let path =
            |at: usize| found[at].module.as_ref().map(|module| module.path.clone()).unwrap_or_default();
        assert_eq!(path(0), std::env::current_exe().unwrap().to_str().unwrap());
        assert!(path(1).contains("libc.so"), "{}", path(1));
        assert!(found[2].module.is_none() && found[2].offset == 16);
        assert!(span(own).contains(&own) && !span(own).contains(&of_libc) && span(16).is_empty());
        assert!((found[0].offset as usize) < span(own).len());
    }

    #[test]
    fn a_build_id_is_found_behind_other_notes() {
        let mut notes = Vec::new();
        let note = |kind: u32, body: &[u8]| {
            let mut bytes =
                [4u32.to_le_bytes(), (body.len() as u32).to_le_bytes(), kind.to_le_bytes()].concat();
            bytes.extend(b"GNU\0");
            bytes.extend(body);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        notes.extend(note(1, &[9; 5]));
        notes.extend(note(3, &[1, 2, 3]));
        assert_eq!(build_id(&notes), Some(vec![1, 2, 3]));
        assert_eq!(build_id(&notes[..20]), None);
        assert_eq!(build_id(&[]), None);
    }
}
