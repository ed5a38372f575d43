//! Writing a report file so that a reader never sees half of one, however many processes write to the same name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes `bytes` to `path`: into a temporary file in the same directory, renamed over `path` when complete. A symbolic
/// link is followed, and what exists there but is not a regular file (`/dev/stderr`, a pipe) is written to directly,
/// because a rename would replace it.
///
/// # Errors
/// Any failure of the file system; the message names `path`.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(path, bytes)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display())))
}

/// Where a chain of symbolic links ends: what is replaced is the file, not the link. (`canonicalize` would do as well, but
/// allocates with the C library's `malloc`, which may be what the end of the process has interrupted.)
fn followed(path: &Path) -> PathBuf {
    let mut at = path.to_owned();
    for _ in 0..40 {
        let Ok(target) = fs::read_link(&at) else { break };
        at = at.parent().map_or_else(|| target.clone(), |folder| folder.join(&target));
    }
    at
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let target = match fs::metadata(path) {
        Ok(existing) if existing.is_dir() => return Err(io::Error::other("it is a directory")),
        Ok(existing) if !existing.is_file() => {
            // Not a pipe without a reader: opening that would wait for one.
            return OpenOptions::new()
                .write(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(path)?
                .write_all(bytes);
        }
        Ok(_) => followed(path),
        Err(_) => path.to_owned(),
    };
    let (temporary, mut file) = create_beside(&target)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&temporary, &target));
    if written.is_err() {
        // The write's own failure is what the caller must hear about, not that of tidying up after it.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn create_beside(target: &Path) -> io::Result<(PathBuf, File)> {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let Some(name) = target.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it does not name a file"));
    };
    loop {
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.{}.tmp", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed)));
        let temporary = target.with_file_name(hidden);
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            // Left behind by a process of the same number in another container: the next serial is free.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("gpucache-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn replaces_the_file_and_leaves_nothing_beside_it() {
        let scratch = Scratch::new("replace");
        let path = scratch.0.join("report.json");
        write_atomically(&path, b"a long first version").unwrap();
        write_atomically(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(scratch.names(), ["report.json"]);
    }

    #[test]
    fn follows_a_link_instead_of_replacing_it() {
        let scratch = Scratch::new("link");
        let (real, link) = (scratch.0.join("real"), scratch.0.join("link"));
        fs::write(&real, b"old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        write_atomically(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&real).unwrap(), b"new");
    }

    /// A pipe of the test's own stands for every special file: a fault here must not be able to replace a real device.
    #[test]
    fn a_special_file_is_written_to_and_not_replaced() {
        use std::io::Read;
        use std::os::unix::fs::FileTypeExt;

        let scratch = Scratch::new("pipe");
        let path = scratch.0.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        // Open for both directions: neither this open nor the writer's waits for the other.
        let mut reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        write_atomically(&path, b"report").unwrap();
        assert!(fs::metadata(&path).unwrap().file_type().is_fifo());
        let mut received = [0; 6];
        reader.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"report");
    }

    #[test]
    fn faults_name_the_path() {
        let scratch = Scratch::new("faults");
        for path in [scratch.0.join("missing/report.json"), scratch.0.clone()] {
            let message = write_atomically(&path, b"x").unwrap_err().to_string();
            assert!(message.contains(&path.display().to_string()), "{message}");
        }
        assert!(scratch.names().is_empty());
    }
}
