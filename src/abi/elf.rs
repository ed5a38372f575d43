//! Which objects the process has loaded, and which of them each was linked with: what the dynamic linker knows and has
//! no function to ask for.

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
    // SAFETY: dl_iterate_phdr passes a valid entry with `dlpi_phnum` headers, and our vector as the third argument.
    let (info, objects, headers) = unsafe {
        let info = &*info;
        (
            info,
            &mut *objects.cast::<Vec<Object>>(),
            std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize),
        )
    };
    let base = info.dlpi_addr as usize;
    let segments = headers.iter().filter(|header| header.p_type == libc::PT_LOAD).map(|header| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        start..start.wrapping_add(header.p_memsz as usize)
    });
    let path = if info.dlpi_name.is_null() {
        CString::default()
    } else {
        // SAFETY: the linker's own C string.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned()
    };
    let mut object = Object { base, path, soname: None, needed: Vec::new(), segments: segments.collect() };
    if let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) {
        let section = base.wrapping_add(dynamic.p_vaddr as usize) as *const Dynamic;
        // SAFETY: the object's dynamic section; the linker unloads nothing before this function returns.
        unsafe { read_names(section, &mut object) };
    }
    objects.push(object);
    0
}

/// `Elf64_Dyn`
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

const DT_NULL: i64 = 0;
const DT_NEEDED: i64 = 1;
const DT_STRTAB: i64 = 5;
const DT_SONAME: i64 = 14;

unsafe fn read_names(dynamic: *const Dynamic, object: &mut Object) {
    let mut needed = Vec::new();
    let mut soname = None;
    let mut strings = 0usize;
    let mut at = dynamic;
    // SAFETY: the section ends with DT_NULL; the string table is mapped and its strings end with NUL.
    unsafe {
        while (*at).tag != DT_NULL {
            match (*at).tag {
                DT_NEEDED => needed.push((*at).value as usize),
                DT_SONAME => soname = Some((*at).value as usize),
                DT_STRTAB => strings = (*at).value as usize,
                _ => {}
            }
            at = at.add(1);
        }
        if strings == 0 {
            return;
        }
        // glibc relocates the entry in place where the section is writable; elsewhere it is an offset.
        let table = if object.contains(strings) { strings } else { object.base.wrapping_add(strings) };
        if !object.contains(table) {
            return;
        }
        let string = |offset: usize| CStr::from_ptr((table + offset) as *const _).to_owned();
        object.needed = needed.into_iter().map(string).collect();
        object.soname = soname.map(string);
    }
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
