//! Which libraries a caller was linked with, read from the loaded ELF objects.

use std::ffi::{CStr, CString, c_int, c_void};

struct Search {
    caller: usize,
    needed: Vec<CString>,
}

/// The `DT_NEEDED` names of the object whose code contains `address`; empty if there is none.
pub fn needed_by(address: usize) -> Vec<CString> {
    let mut search = Search { caller: address, needed: Vec::new() };
    // SAFETY: the callback gets `search` and only fills it.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.needed
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid entry with `dlpi_phnum` headers, and our `Search` as the third argument.
    let (info, search, headers) = unsafe {
        let info = &*info;
        (
            info,
            &mut *search.cast::<Search>(),
            std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize),
        )
    };
    let base = info.dlpi_addr as usize;
    let contains = headers.iter().any(|header| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        header.p_type == libc::PT_LOAD && search.caller.wrapping_sub(start) < header.p_memsz as usize
    });
    if !contains {
        return 0;
    }
    if let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) {
        // SAFETY: the object's dynamic section, mapped as long as the object is.
        unsafe {
            read_needed(
                base,
                base.wrapping_add(dynamic.p_vaddr as usize) as *const Dynamic,
                &mut search.needed,
            );
        }
    }
    1
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

unsafe fn read_needed(base: usize, dynamic: *const Dynamic, needed: &mut Vec<CString>) {
    let mut offsets = Vec::new();
    let mut strings = 0usize;
    let mut at = dynamic;
    // SAFETY: the section ends with DT_NULL; the string table is mapped and its strings end with NUL.
    unsafe {
        while (*at).tag != DT_NULL {
            match (*at).tag {
                DT_NEEDED => offsets.push((*at).value as usize),
                DT_STRTAB => strings = (*at).value as usize,
                _ => {}
            }
            at = at.add(1);
        }
        if strings == 0 {
            return;
        }
        // glibc relocates the entry in place where the section is writable; elsewhere it is an offset.
        let table = if strings < base { base + strings } else { strings };
        needed.extend(offsets.iter().map(|offset| CStr::from_ptr((table + offset) as *const _).to_owned()));
    }
}
