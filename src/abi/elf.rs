//! Which objects the process has loaded, and which of them each was linked with: what the dynamic linker knows and has
//! no function to ask for.

use crate::life::image::{DT_NEEDED, DT_SONAME, DT_STRTAB, Image};
use std::collections::HashSet;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ops::Range;

/// One loaded object: the program itself or a library.
pub struct Object {
    /// Where it was loaded; distinguishes objects while they are loaded.
    pub base: usize,
    /// The path by which the dynamic linker opened it; empty for the program.
    pub path: CString,
    /// Its own name for itself (`DT_SONAME`).
    soname: Option<CString>,
    /// The names of the libraries that it was linked with (`DT_NEEDED`).
    needed: Vec<CString>,
    segments: Vec<Range<usize>>,
}

impl Object {
    /// Whether its code or data lies at `address`.
    pub fn contains(&self, address: usize) -> bool {
        self.segments.iter().any(|segment| segment.contains(&address))
    }

    /// The last part of its path.
    pub fn file_name(&self) -> &[u8] {
        last_part(self.path.to_bytes())
    }

    fn is_called(&self, name: &CStr) -> bool {
        self.soname.as_deref() == Some(name) || self.file_name() == last_part(name.to_bytes())
    }
}

fn last_part(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(path, |slash| &path[slash + 1..])
}

/// The loaded objects in the dynamic linker's order: the program, what was preloaded, their libraries, later ones.
///
/// Waits for the dynamic linker, so nothing that a library's constructor may need must be held.
pub fn loaded() -> Vec<Object> {
    let mut objects: Vec<Object> = Vec::new();
    // SAFETY: the callback gets `objects` and only collects into it.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut objects).cast()) };
    objects
}

/// The object that contains `address`, by its place in `objects`.
pub fn owner(objects: &[Object], address: usize) -> Option<usize> {
    objects.iter().position(|object| object.contains(address))
}

/// What the object at `start` was linked with directly.
pub fn linked(objects: &[Object], start: usize) -> impl Iterator<Item = usize> {
    objects[start].needed.iter().filter_map(|name| objects.iter().position(|object| object.is_called(name)))
}

/// The object at `start` and all that it was linked with, directly or through others, nearest first: the order in which
/// the dynamic linker searches them.
pub fn closure(objects: &[Object], start: usize) -> Vec<usize> {
    let mut found = vec![start];
    let mut seen = HashSet::from([start]);
    let mut at = 0;
    while at < found.len() {
        found.extend(linked(objects, found[at]).filter(|library| seen.insert(*library)));
        at += 1;
    }
    found
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, objects: *mut c_void) -> c_int {
    // SAFETY: an entry of the linker's, which unloads nothing before this function returns, and our vector.
    let (image, objects) = unsafe { (Image::of(info), &mut *objects.cast::<Vec<Object>>()) };
    let mut object = Object {
        base: image.base,
        path: image.path.to_owned(),
        soname: None,
        needed: Vec::new(),
        segments: image.segments().collect(),
    };
    let strings = image.dynamic().filter(|(tag, _)| *tag == DT_STRTAB).last();
    if let Some(table) = strings.and_then(|(_, value)| image.resolve(value)) {
        // SAFETY: the table of strings, which is mapped and whose strings end with NUL.
        let string =
            |offset: u64| unsafe { CStr::from_ptr((table + offset as usize) as *const _) }.to_owned();
        for (tag, value) in image.dynamic() {
            match tag {
                DT_NEEDED => object.needed.push(string(value)),
                DT_SONAME => object.soname = Some(string(value)),
                _ => {}
            }
        }
    }
    objects.push(object);
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_and_its_c_library_are_found() {
        let objects = loaded();
        let own = owner(&objects, this_program_and_its_c_library_are_found as *const () as usize).unwrap();
        let names: Vec<_> = closure(&objects, own).iter().map(|at| objects[*at].file_name()).collect();
        assert!(names.iter().any(|name| name.starts_with(b"libc.so")), "{names:?}");
    }

    #[test]
    fn a_closure_is_searched_nearest_first_and_ends_where_libraries_need_each_other() {
        let object = |name: &str, needed: &[&str]| Object {
            base: 0,
            path: CString::new(format!("/lib/{name}")).unwrap(),
            soname: None,
            needed: needed.iter().map(|name| CString::new(*name).unwrap()).collect(),
            segments: Vec::new(),
        };
        let objects =
            [object("d", &["a"]), object("c", &[]), object("b", &["d"]), object("a", &["b", "c", "missing"])];
        assert_eq!(closure(&objects, 3), [3, 2, 1, 0]);
    }
}
