//! Where output goes: a file, or the standard output for `-`; never over what was read, nor over other output.

use crate::failure::{Failure, print_bytes, remark};
use crate::report::write_atomically;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Whether a path stands for the standard streams.
pub fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// Whether two paths are one file, which need not be there yet. What is no regular file (`/dev/null`, a pipe) loses nothing
/// by being named twice.
pub fn is_same(a: &Path, b: &Path) -> bool {
    match (fs::metadata(a), fs::metadata(b)) {
        (Ok(one), Ok(other)) => one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Err(_)) => place(a) == place(b),
        _ => false,
    }
}

/// A path whose folder is what it really is.
fn place(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path,
    }
}

/// Whether a file can be made or replaced, which its folder decides. Tried, because permissions are not all that can be in
/// the way.
pub fn can_write(path: &Path) -> io::Result<()> {
    let there = path.canonicalize().ok();
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        return Ok(());
    }
    let probe = place(there.as_deref().unwrap_or(path))
        .with_file_name(format!(".gpucache-{}.tmp", std::process::id()));
    match fs::File::create_new(&probe) {
        Ok(_) => fs::remove_file(&probe),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Refuses outputs, each with its option, that would take the place of an input or of each other.
pub fn check(outputs: &[(&str, &Path)], inputs: &[PathBuf]) -> Result<(), Failure> {
    for (i, (option, path)) in outputs.iter().enumerate() {
        let clash = |what: String| Err(Failure::new(format!("{option} {}: {what}", path.display())));
        let standard = is_standard(path);
        if !standard && inputs.iter().any(|input| !is_standard(input) && is_same(path, input)) {
            return clash("it is what is to be read, and would be lost; name another file".to_owned());
        }
        let earlier = outputs[..i].iter().find(|(_, earlier)| {
            if standard { is_standard(earlier) } else { !is_standard(earlier) && is_same(path, earlier) }
        });
        if let Some((earlier, _)) = earlier {
            return clash(format!("{earlier} writes to it too; name another file"));
        }
    }
    Ok(())
}

/// Writes what an option asks for, and says so unless it is seen.
pub fn write(option: &str, path: &Path, what: &str, bytes: &[u8]) -> Result<(), Failure> {
    if is_standard(path) {
        return print_bytes(bytes);
    }
    write_atomically(path, bytes)
        .map_err(|error| Failure::new(format!("{option} {}: {error}", path.display())))?;
    remark(&format!("{what} written to {}", path.display()));
    Ok(())
}
