//! Where the library is: named by an option or the environment, or near the tool.

use crate::args::Place;
use crate::doctor;
use crate::failure::{self, Failure};
use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf, absolute};
use std::process::ExitCode;

/// The library's file name.
pub const NAME: &str = "libgpucache.so";

/// The variable that names the library.
pub const VARIABLE: &str = "GPUCACHE_LIB";

/// Where it may lie, relative to the folder of the tool: installed or unpacked beside it, in a prefix, or as cargo leaves
/// it (the tool of a debug build beside the library of a release build, too).
const NEAR: [&str; 7] =
    [".", "../lib", "../lib64", "../lib/gpucache", "../release", "../debug", "../../target/release"];

/// Prints where the library is.
pub fn print(place: &Place) -> Result<ExitCode, Failure> {
    failure::print(&format!("{}\n", find_library(place)?.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The library's absolute path, if what is there can be it: the dynamic linker goes on without what it cannot preload.
pub fn find_library(place: &Place) -> Result<PathBuf, Failure> {
    let path = find(place)?;
    match doctor::no_library(&path) {
        Some(what) => Err(Failure::new(format!("{}: {what}; {NAME} is wanted", path.display()))),
        None => Ok(path),
    }
}

/// The library's absolute path. Symbolic links stay as they are: a link may be there because the file's own path holds
/// what `LD_PRELOAD` cannot.
pub fn find(place: &Place) -> Result<PathBuf, Failure> {
    if let Some(path) = &place.lib {
        return named("--lib", path);
    }
    if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return named(VARIABLE, Path::new(&path));
    }
    let tool = env::current_exe().map_err(|error| Failure::new(format!("the tool's own path: {error}")))?;
    let folder = tool.parent().unwrap_or(Path::new("/"));
    near(folder).ok_or_else(|| {
        Failure::new(format!(
            "{NAME} is neither in {} nor in {} from there; name it with --lib PATH or {VARIABLE}",
            folder.display(),
            NEAR[1..].join(", "),
        ))
    })
}

fn near(folder: &Path) -> Option<PathBuf> {
    NEAR.iter().map(|near| tidy(&folder.join(near).join(NAME))).find(|path| path.is_file())
}

/// The path without `.` and `..`: of the tool's own folder, which is known to be no link.
fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => _ = tidy.pop(),
            std::path::Component::CurDir => {}
            part => tidy.push(part),
        }
    }
    tidy
}

fn named(by: &str, path: &Path) -> Result<PathBuf, Failure> {
    let fail = |what: &str| Err(Failure::new(format!("{by} {}: {what}", path.display())));
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            fail(&format!("there is no such file; {NAME} is wanted"))
        }
        Err(error) => fail(&error.to_string()),
        Ok(found) if found.is_dir() => {
            let inside = path.join(NAME);
            if inside.is_file() {
                Ok(absolute(&inside).unwrap_or(inside))
            } else {
                fail(&format!("the folder holds no {NAME}"))
            }
        }
        Ok(_) => Ok(absolute(path).unwrap_or_else(|_| path.to_owned())),
    }
}

/// Whether a path can stand in `LD_PRELOAD`, where spaces and colons part the entries and a dollar sign may begin a
/// placeholder, and none can be escaped.
pub fn fits_preload(path: &Path) -> Result<(), Failure> {
    let culprit = path.as_os_str().as_bytes().iter().find(|byte| b" :$".contains(byte));
    let Some(culprit) = culprit else { return Ok(()) };
    let what = match culprit {
        b' ' => "a space",
        b':' => "a colon",
        _ => "a dollar sign",
    };
    Err(Failure::new(format!(
        "{}: LD_PRELOAD cannot hold a path with {what} in it; copy the library, or make a symbolic link to it, where the \
         path has none, and name that with --lib",
        path.display()
    )))
}

/// Whether an entry of `LD_PRELOAD` is a build of the library.
pub fn is_library(entry: &OsStr) -> bool {
    Path::new(entry).file_name() == Some(OsStr::new(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_ld_preload_cannot_hold_are_refused() {
        for bad in ["/a b/l.so", "/a:b/l.so", "/a/$LIB/l.so"] {
            assert!(fits_preload(Path::new(bad)).is_err(), "{bad}");
        }
        assert!(fits_preload(Path::new("/a-b/é/l.so")).is_ok());
    }

    #[test]
    fn the_tools_own_surroundings_are_searched() {
        let root = env::temp_dir().join(format!("gpucache-place-{}", std::process::id()));
        let (bin, lib) = (root.join("bin"), root.join("lib"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&lib).unwrap();
        assert_eq!(near(&bin), None);
        std::fs::write(lib.join(NAME), "").unwrap();
        assert_eq!(near(&bin), Some(lib.join(NAME)));
        std::fs::write(bin.join(NAME), "").unwrap();
        assert_eq!(near(&bin), Some(bin.join(NAME)), "beside the tool before all others");
        std::fs::remove_dir_all(&root).unwrap();
    }
}
