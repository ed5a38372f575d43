//! What a library finds by `dlsym(RTLD_DEFAULT, …)` and `dlsym(RTLD_NEXT, …)` where this library's own exports are not
//! to count.
//!
//! The dynamic linker searches the global scope first, then the scope of every library that was opened and brought the
//! caller along: that library and all that it was linked with. The first is asked by `RTLD_NEXT` from here. The second
//! is rebuilt from the loaded objects: an object that was linked with the caller, directly or through others, and finds
//! the name by its handle, stands for such a scope. It takes a file name for its object; two loaded objects of one name
//! are not told apart, and the doubt goes in favour of the name's existence.

use super::dlsym::Library;
use super::{elf, table};
use std::ffi::CStr;

/// Whether the scopes that the object at `caller` was opened in hold something of this `name` that is not ours.
pub fn reach(caller: usize, name: &CStr) -> bool {
    let objects = elf::loaded();
    let Some(owner) = elf::owner(&objects, caller) else { return false };
    (0..objects.len())
        // The program's scope is the global one.
        .filter(|root| !objects[*root].path.is_empty() && elf::closure(&objects, *root).contains(&owner))
        .any(|root| {
            let Some(library) = Library::loaded(&objects[root].path) else { return false };
            let found = library.symbol(name);
            library.release();
            !found.is_null() && !table::is_export(found)
        })
}

/// Whether the object at `caller` comes before this library in the global scope, so that `RTLD_NEXT` finds our exports.
pub fn precedes_us(caller: usize) -> bool {
    let objects = elf::loaded();
    let ours = elf::owner(&objects, precedes_us as *const () as usize);
    elf::owner(&objects, caller).is_some_and(|at| Some(at) < ours)
}
