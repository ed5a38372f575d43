//! A program: whether the library would be in it, and which CUDA it brings.

use super::binary::{self, Binary};
use super::linker::{self, Listing};
use super::{Check, Verdict};
use crate::failure::Failure;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Scripts that name scripts: as many as the kernel follows.
const INTERPRETERS_FOLLOWED: usize = 5;

/// All checks of a program. `library` is the library, if there is one that loads.
pub fn checks(program: &OsStr, library: Option<&Path>) -> Result<Vec<Check>, Failure> {
    let no_program = |what: &str| Err(Failure::new(format!("{}: {what}", Path::new(program).display())));
    let Some(path) = find(program) else {
        if Path::new(program).is_dir() {
            return no_program("it is a folder; name a program");
        }
        let searched = if has_folder(program) { "" } else { ", neither here nor in PATH" };
        return no_program(&format!("there is no such program{searched}"));
    };
    let (mut checks, binary) = follow(&path);
    let Some((path, binary)) = binary else {
        // A shell runs what may be executed and says nothing about itself as a script of its own.
        if checks.iter().all(|check| check.verdict != Verdict::Ok) && !may_be_run(&path) {
            return no_program("it is no program: neither a binary nor a script, and it may not be executed");
        }
        return Ok(checks);
    };
    if checks.iter().any(|check| check.verdict == Verdict::Fail) {
        return Ok(checks);
    }
    let interpreter = binary.interpreter.clone().unwrap_or_default();
    let preload = library.map(Path::as_os_str).unwrap_or_default();
    let listing = linker::list(Path::new(&interpreter), &path, preload);
    checks.push(linked(library, listing.as_ref()));
    checks.push(cuda(&path, listing.as_ref()));
    Ok(checks)
}

/// What can be said without starting the linker, for every run. Programs that are not found are somebody else's message.
pub fn quick_checks(program: &OsStr) -> Vec<Check> {
    find(program).map(|path| follow(&path).0).unwrap_or_default()
}

/// The file that a program's name stands for, as `exec` looks for it.
fn find(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if has_folder(program) {
        return path.is_file().then(|| path.to_owned());
    }
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(path)).find(|path| may_be_run(path))
}

/// Whether a name says where the program is.
fn has_folder(program: &OsStr) -> bool {
    program.as_encoded_bytes().contains(&b'/')
}

fn may_be_run(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Checks the file and, if it is a script, what interprets it. Returns the binary in the end, if there is one.
fn follow(path: &Path) -> (Vec<Check>, Option<(PathBuf, Binary)>) {
    let mut checks = Vec::new();
    let mut path = path.to_owned();
    for _ in 0..INTERPRETERS_FOLLOWED {
        if let Some(check) = privileged(&path) {
            checks.push(check);
        }
        if let Some(binary) = binary::read(&path) {
            checks.push(kind(&path, &binary));
            return (checks, Some((path, binary)));
        }
        let Some(interpreter) = interpreter(&path).and_then(|name| find(OsStr::new(&name))) else { break };
        checks.push(Check::ok("script", format!("{}, run by {}", path.display(), interpreter.display())));
        path = interpreter;
    }
    let finding = format!("{} is neither a binary nor a script whose interpreter is there", path.display());
    checks.push(Check::warning("program", finding, "name the program that is run in the end"));
    (checks, None)
}

/// The interpreter of a script by its first line; for `env`, what that starts.
fn interpreter(path: &Path) -> Option<String> {
    let mut head = [0; 256];
    let length = fs::File::open(path).ok()?.read(&mut head).ok()?;
    let line = std::str::from_utf8(&head[..length]).ok()?.lines().next()?.strip_prefix("#!")?;
    let mut words = line.split_whitespace();
    let first = words.next()?;
    if first.rsplit('/').next() == Some("env") {
        return words.find(|word| !word.starts_with('-') && !word.contains('=')).map(str::to_owned);
    }
    Some(first.to_owned())
}

/// Programs that run with more rights than their caller: the linker ignores what the caller preloads.
fn privileged(path: &Path) -> Option<Check> {
    let mode = fs::metadata(path).ok()?.permissions().mode();
    let capabilities =
        rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64]).is_ok_and(|size| size > 0);
    let what = match (mode & 0o6000, capabilities) {
        (0, false) => return None,
        (0, true) => "has file capabilities",
        _ => "is setuid or setgid",
    };
    Some(Check::fail(
        "program",
        format!("{} {what}", path.display()),
        "the dynamic linker ignores LD_PRELOAD there; run a copy without these rights",
    ))
}

/// How it is linked.
fn kind(path: &Path, binary: &Binary) -> Check {
    let shown = path.display();
    let own = env::current_exe().ok().and_then(|tool| binary::read(&tool)).unwrap_or_default();
    let Some(interpreter) = &binary.interpreter else {
        return Check::fail(
            "program",
            format!("{shown} is statically linked"),
            "there is no dynamic linker in it that could preload anything; link it dynamically (the CUDA runtime may be static)",
        );
    };
    if interpreter.contains("ld-musl") {
        return Check::fail("program", format!("{shown} runs on musl"), "the library needs glibc");
    }
    if binary.is_64_bit != own.is_64_bit {
        return Check::fail(
            "program",
            format!("{shown} is a 32-bit program"),
            "the library is for 64-bit programs",
        );
    }
    if binary.machine != own.machine {
        return Check::fail(
            "program",
            format!("{shown} is for another processor"),
            "use a library of its own kind",
        );
    }
    Check::ok("program", format!("{shown}, dynamically linked"))
}

/// What the linker would do with the library in this program.
fn linked(library: Option<&Path>, listing: Option<&Listing>) -> Check {
    let Some(listing) = listing else {
        return Check::warning("preloading", "the program's dynamic linker could not be asked", "");
    };
    let missing = listing.missing();
    if !missing.is_empty() {
        return Check::fail(
            "preloading",
            format!("the program does not start: {} not found", missing.join(", ")),
            "set LD_LIBRARY_PATH as for the program itself",
        );
    }
    match (library, listing.complaints.first()) {
        (None, _) => Check::fail("preloading", "there is no library to preload", "see above"),
        (_, Some(complaint)) => Check::fail("preloading", complaint.clone(), "see above"),
        _ => Check::ok("preloading", "the library would be in this program"),
    }
}

/// Which CUDA it brings. All of them are intercepted; what is said is how.
fn cuda(path: &Path, listing: Option<&Listing>) -> Check {
    let shared = listing.and_then(|listing| listing.find("libcudart.so"));
    let driver = listing.and_then(|listing| listing.find("libcuda.so"));
    match (shared, driver) {
        (Some((name, found)), _) => {
            let finding = format!("{} (shared runtime)", found.display());
            if name.starts_with("libcudart.so.1") && name < "libcudart.so.12"
                || name.starts_with("libcudart.so.9")
            {
                return Check::warning(
                    "CUDA",
                    finding,
                    "older than 12: served through the driver's functions, a little slower",
                );
            }
            Check::ok("CUDA", finding)
        }
        (None, Some((_, found))) => {
            Check::ok("CUDA", format!("uses the driver directly: {}", found.display()))
        }
        (None, None) if binary::names_driver(path) => Check::ok(
            "CUDA",
            "has the runtime built in, or loads the driver by itself: intercepted at the driver",
        ),
        (None, None) => Check::ok("CUDA", "none in the program itself; what it loads later is intercepted"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_followed_to_their_interpreter() {
        let folder = env::temp_dir().join(format!("gpucache-program-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let script = |text: &str| {
            let path = folder.join("script");
            fs::write(&path, text).unwrap();
            interpreter(&path)
        };
        assert_eq!(script("#!/bin/sh -e\n").as_deref(), Some("/bin/sh"));
        assert_eq!(script("#! /usr/bin/env -S A=b python3 -u\n").as_deref(), Some("python3"));
        assert_eq!(script("echo\n"), None);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn static_programs_and_musl_cannot_be_served() {
        let own = binary::read(&env::current_exe().unwrap()).unwrap();
        let verdict = |binary: &Binary| kind(Path::new("p"), binary).verdict;
        assert_eq!(verdict(&own), Verdict::Ok);
        assert_eq!(
            verdict(&Binary {
                interpreter: None,
                is_64_bit: true,
                machine: own.machine,
                ..Binary::default()
            }),
            Verdict::Fail
        );
        let musl = Some("/lib/ld-musl-x86_64.so.1".to_owned());
        assert_eq!(
            verdict(&Binary {
                interpreter: musl,
                is_64_bit: true,
                machine: own.machine,
                ..Binary::default()
            }),
            Verdict::Fail
        );
        let other = own.interpreter.clone();
        assert_eq!(
            verdict(&Binary { interpreter: other, is_64_bit: false, machine: 3, ..Binary::default() }),
            Verdict::Fail
        );
    }
}
