//! What the dynamic linker finds: asked of itself, because its search (variables, cache, folders, run paths) is its own. It
//! is asked to list, which runs nothing of what it lists.

use super::binary;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a program would be started with.
#[derive(Debug, Default)]
pub struct Listing {
    /// Library names and where they are found; none where they are not.
    pub libraries: Vec<(String, Option<PathBuf>)>,
    /// What the linker has to say.
    pub complaints: Vec<String>,
}

impl Listing {
    /// Where a library whose name begins so is found.
    pub fn find(&self, prefix: &str) -> Option<(&str, &Path)> {
        let mut found = self.libraries.iter().filter_map(|(name, path)| Some((&**name, path.as_deref()?)));
        found.find(|(name, _)| name.rsplit('/').next().unwrap_or(name).starts_with(prefix))
    }

    /// Names of libraries that are not found.
    pub fn missing(&self) -> Vec<&str> {
        self.libraries.iter().filter(|(_, path)| path.is_none()).map(|(name, _)| &**name).collect()
    }
}

/// What the linker would load for the tool itself with this in `LD_PRELOAD`.
pub fn with_tool(preload: &OsStr) -> Option<Listing> {
    let tool = std::env::current_exe().ok()?;
    let interpreter = binary::read(&tool)?.interpreter?;
    list(Path::new(&interpreter), &tool, preload)
}

/// What the linker would load for a program. The interpreter is started directly, never the program: a program with an odd
/// one would be run by it.
pub fn list(interpreter: &Path, program: &Path, preload: &OsStr) -> Option<Listing> {
    let name = interpreter.file_name()?.to_str()?;
    if !name.starts_with("ld-linux") && !name.starts_with("ld64") {
        return None;
    }
    let mut command = Command::new(interpreter);
    command.arg(program).env("LD_TRACE_LOADED_OBJECTS", "1").env("LD_PRELOAD", preload);
    let output = command.output().ok()?;
    Some(Listing {
        libraries: String::from_utf8_lossy(&output.stdout).lines().filter_map(library).collect(),
        complaints: String::from_utf8_lossy(&output.stderr).lines().map(str::to_owned).collect(),
    })
}

/// `libc.so.6 => /lib/libc.so.6 (0x…)`, `libx.so => not found`, `/path/libgpucache.so (0x…)`.
fn library(line: &str) -> Option<(String, Option<PathBuf>)> {
    let line = line.trim();
    let (name, place) = match line.split_once(" => ") {
        Some((name, place)) => (name, place),
        None => (line.rsplit_once(" (").map_or(line, |(name, _)| name), line),
    };
    if !name.contains(".so") {
        return None;
    }
    let path = place.rsplit_once(" (").map_or(place, |(path, _)| path);
    Some((name.to_owned(), (path != "not found").then(|| path.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_linker_are_read() {
        let at = |path: &str| Some(PathBuf::from(path));
        assert_eq!(
            library("\tlibc.so.6 => /a b/libc.so.6 (0x0001)"),
            Some(("libc.so.6".into(), at("/a b/libc.so.6")))
        );
        assert_eq!(library("\t/x/l.so (0x0001)"), Some(("/x/l.so".into(), at("/x/l.so"))));
        assert_eq!(library("\tlibq.so => not found"), Some(("libq.so".into(), None)));
        assert_eq!(library("\tstatically linked"), None);
    }

    #[test]
    fn the_tools_own_libraries_are_found_and_others_are_complained_about() {
        let listing = with_tool(OsStr::new("libnosuchlibrary.so")).unwrap();
        assert!(listing.find("libc.so.6").is_some(), "{listing:?}");
        assert!(listing.complaints.iter().any(|line| line.contains("libnosuchlibrary.so")), "{listing:?}");
    }
}
