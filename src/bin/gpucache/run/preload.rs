//! The value of `LD_PRELOAD`: the library first, whatever was there behind it, the library never twice.

use crate::place;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// A value, and what the user should know about how it came to be.
pub struct Preload {
    pub value: OsString,
    pub remarks: Vec<String>,
}

/// `library` before what `LD_PRELOAD` holds. First, because the linker gives calls to whoever comes first, and what another
/// preloaded library allocates is to be counted too. Two builds of the library would serve each other's calls, so another
/// one that is named there is left out.
pub fn compose(library: &Path, existing: Option<&OsStr>) -> Preload {
    let mut value = library.as_os_str().as_bytes().to_owned();
    let mut remarks = Vec::new();
    let existing = existing.map_or(&[][..], OsStr::as_bytes);
    for entry in existing.split(|byte| b" :".contains(byte)).filter(|entry| !entry.is_empty()) {
        let entry = OsStr::from_bytes(entry);
        if is_same(library, Path::new(entry)) {
            continue;
        }
        if place::is_library(entry) {
            remarks.push(format!(
                "{} takes the place of {} in LD_PRELOAD",
                library.display(),
                Path::new(entry).display()
            ));
            continue;
        }
        value.push(b':');
        value.extend_from_slice(entry.as_bytes());
    }
    Preload { value: OsString::from_vec(value), remarks }
}

fn is_same(library: &Path, entry: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    library == entry || real(library).is_some_and(|path| real(entry) == Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(existing: &str) -> (String, usize) {
        let preload = compose(Path::new("/x/libgpucache.so"), Some(OsStr::new(existing)));
        (preload.value.into_string().unwrap(), preload.remarks.len())
    }

    #[test]
    fn the_library_comes_first_and_the_rest_stays_in_order() {
        assert_eq!(value(""), ("/x/libgpucache.so".into(), 0));
        assert_eq!(value("a.so b.so:c.so"), ("/x/libgpucache.so:a.so:b.so:c.so".into(), 0));
        assert_eq!(value(" : a.so"), ("/x/libgpucache.so:a.so".into(), 0));
    }

    #[test]
    fn the_library_never_comes_twice() {
        assert_eq!(value("a.so:/x/libgpucache.so"), ("/x/libgpucache.so:a.so".into(), 0));
        assert_eq!(value("/y/libgpucache.so:a.so"), ("/x/libgpucache.so:a.so".into(), 1));
        assert_eq!(value("/y/libgpucache.so.bak"), ("/x/libgpucache.so:/y/libgpucache.so.bak".into(), 0));
    }
}
