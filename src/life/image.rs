//! A loaded object as the dynamic linker describes it to `dl_iterate_phdr`: where it lies, and what its dynamic section says.

use std::ffi::CStr;
use std::ops::Range;

/// Tags of the dynamic section.
pub const DT_NEEDED: i64 = 1;
/// The table of strings.
pub const DT_STRTAB: i64 = 5;
/// The table of symbols.
pub const DT_SYMTAB: i64 = 6;
/// The object's own name for itself.
pub const DT_SONAME: i64 = 14;
/// The hashes of the symbols.
pub const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_NULL: i64 = 0;

/// `Elf64_Dyn`
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

/// A loaded object, for as long as the callback runs that it was passed to.
#[derive(Clone, Copy)]
pub struct Image<'a> {
    /// Where it was loaded.
    pub base: usize,
    /// The path by which it was opened; empty for the program.
    pub path: &'a CStr,
    headers: &'a [libc::Elf64_Phdr],
}

impl<'a> Image<'a> {
    /// The object of an entry.
    ///
    /// # Safety
    /// `info` is what `dl_iterate_phdr` passes; the image is used only while its callback runs.
    pub unsafe fn of(info: *const libc::dl_phdr_info) -> Image<'a> {
        // SAFETY: as the caller promises: a valid entry with `dlpi_phnum` headers, and a C string of the linker's or null.
        unsafe {
            let info = &*info;
            let path = if info.dlpi_name.is_null() { c"" } else { CStr::from_ptr(info.dlpi_name) };
            let headers = if info.dlpi_phdr.is_null() {
                &[]
            } else {
                std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize)
            };
            Image { base: info.dlpi_addr as usize, path, headers }
        }
    }

    /// The addresses of its parts of one type: `PT_LOAD` is what is mapped, `PT_NOTE` notes.
    pub fn parts(self, kind: u32) -> impl Iterator<Item = Range<usize>> + use<'a> {
        self.headers.iter().filter(move |header| header.p_type == kind).map(move |header| {
            let start = self.base.wrapping_add(header.p_vaddr as usize);
            start..start.wrapping_add(header.p_memsz as usize)
        })
    }

    /// What of it is mapped.
    pub fn segments(self) -> impl Iterator<Item = Range<usize>> + use<'a> {
        self.parts(libc::PT_LOAD)
    }

    /// Whether its code or data lies at `address`.
    pub fn holds(self, address: usize) -> bool {
        self.segments().any(|segment| segment.contains(&address))
    }

    /// The entries of its dynamic section, by tag.
    pub fn dynamic(self) -> impl Iterator<Item = (i64, u64)> + use<'a> {
        let section = self.parts(libc::PT_DYNAMIC).next().map(|part| part.start as *const Dynamic);
        section.into_iter().flat_map(|section| {
            (0..).map_while(move |at| {
                // SAFETY: the object's dynamic section, which ends with DT_NULL; it stays loaded meanwhile.
                let Dynamic { tag, value } = unsafe { &*section.add(at) };
                (*tag != DT_NULL).then_some((*tag, *value))
            })
        })
    }

    /// The address that an entry's value names, if it lies in the object. glibc relocates entries in place where the section is
    /// writable; elsewhere they are offsets.
    pub fn resolve(self, value: u64) -> Option<usize> {
        let value = value as usize;
        let address = if self.holds(value) { value } else { self.base.wrapping_add(value) };
        self.holds(address).then_some(address)
    }
}
