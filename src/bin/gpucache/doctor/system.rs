//! The library, the C library and the driver of this machine.

use super::Check;
use super::binary::{self, highest_glibc};
use super::linker;
use crate::args::Place;
use crate::place;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Drivers from this on have events that span a context (CUDA 12.5).
const DRIVER_WITH_CONTEXT_EVENTS: u32 = 555;

/// All checks, and the library if there is one that loads.
pub fn checks(place: &Place) -> (Vec<Check>, Option<PathBuf>) {
    let mut checks = Vec::new();
    let library = match place::find(place) {
        Ok(library) => library,
        Err(failure) => {
            checks.push(Check::fail("library", failure.to_string(), "build it with cargo build --release"));
            checks.extend(driver());
            return (checks, None);
        }
    };
    let before = checks.len();
    checks.push(binary(&library));
    if let Err(failure) = place::fits_preload(&library) {
        checks.push(Check::fail("LD_PRELOAD", failure.to_string(), ""));
    } else {
        checks.push(loads(&library));
    }
    let usable = checks[before..].iter().all(|check| check.verdict != super::Verdict::Fail);
    checks.extend(preloaded(&library));
    checks.extend(driver());
    (checks, usable.then_some(library))
}

/// What the file is, and which C library it needs.
fn binary(library: &Path) -> Check {
    let shown = library.display();
    let Some(found) = binary::read(library) else {
        return Check::fail("library", format!("{shown} is no library"), "name the library with --lib PATH");
    };
    let own = std::env::current_exe().ok().and_then(|tool| binary::read(&tool));
    if own.as_ref().is_some_and(|own| (own.machine, own.is_64_bit) != (found.machine, found.is_64_bit)) {
        return Check::fail(
            "library",
            format!("{shown} is for another processor"),
            "build it for this machine",
        );
    }
    let needs = highest_glibc(&found.needs_versions).unwrap_or((2, 0));
    let listing = linker::with_tool(OsStr::new("")).unwrap_or_default();
    let libc = listing.find("libc.so.6").and_then(|(_, path)| binary::read(path));
    let Some(has) = libc.and_then(|libc| highest_glibc(&libc.defines_versions)) else {
        let finding =
            format!("{shown} needs glibc {}.{}; which this machine has is not known", needs.0, needs.1);
        return Check::warning("library", finding, "the library works with glibc only");
    };
    let finding =
        format!("{shown}, needs glibc {}.{}, this machine has {}.{}", needs.0, needs.1, has.0, has.1);
    if needs > has {
        return Check::fail(
            "library",
            finding,
            "use the released build (scripts/package.sh), which needs 2.17",
        );
    }
    Check::ok("library", finding)
}

/// Whether the dynamic linker takes it.
fn loads(library: &Path) -> Check {
    let Some(listing) = linker::with_tool(library.as_os_str()) else {
        return Check::warning("LD_PRELOAD", "the dynamic linker could not be asked", "");
    };
    match listing.complaints.first() {
        Some(complaint) => Check::fail(
            "LD_PRELOAD",
            complaint.clone(),
            "a file system mounted noexec, or a library that it needs, is the usual cause",
        ),
        None if listing.find(&library.to_string_lossy()).is_some() || listing.find(place::NAME).is_some() => {
            Check::ok("LD_PRELOAD", "the dynamic linker loads it")
        }
        None => Check::ok("LD_PRELOAD", "the dynamic linker has no complaint"),
    }
}

/// What is preloaded in this very shell.
fn preloaded(library: &Path) -> Option<Check> {
    let value = std::env::var("LD_PRELOAD").ok().filter(|value| !value.is_empty())?;
    let entries: Vec<&str> = value.split([' ', ':']).filter(|entry| !entry.is_empty()).collect();
    let ours: Vec<_> = entries.iter().filter(|entry| place::is_library(OsStr::new(entry))).collect();
    Some(match &ours[..] {
        [] => Check::ok("environment", format!("LD_PRELOAD={value}: the library goes before it")),
        [one] if Path::new(one) == library => {
            Check::ok("environment", "LD_PRELOAD has the library already; it will not be there twice")
        }
        _ => Check::warning(
            "environment",
            format!("LD_PRELOAD={value} names a gpucache other than {}", library.display()),
            "unset LD_PRELOAD, or name one library",
        ),
    })
}

/// The driver: its kernel part, its library, and the way to the devices.
fn driver() -> Vec<Check> {
    let kernel = fs::read_to_string("/proc/driver/nvidia/version").ok().and_then(|text| version(&text));
    let listing = linker::with_tool(OsStr::new("libcuda.so.1")).unwrap_or_default();
    let found = listing.find("libcuda.so.1").map(|(_, path)| path.to_owned());
    let library = found.as_deref().and_then(|path| fs::canonicalize(path).ok());
    let library_version = library
        .as_deref()
        .and_then(|path| path.file_name()?.to_str()?.strip_prefix("libcuda.so.").and_then(version));
    let mut checks = vec![match (&found, &library_version) {
        (None, _) => Check::fail(
            "libcuda",
            "the dynamic linker finds no libcuda.so.1",
            "install the NVIDIA driver; in a container, start it with the NVIDIA runtime (--gpus all)",
        ),
        (Some(path), Some(version)) => Check::ok("libcuda", format!("{}, version {version}", path.display())),
        (Some(path), None) => Check::ok("libcuda", path.display().to_string()),
    }];
    checks.push(match (&kernel, &library_version) {
        (None, _) => Check::warning(
            "driver",
            "no NVIDIA kernel module is loaded",
            "without one there is no real GPU; a simulated driver needs none",
        ),
        (Some(kernel), Some(library)) if kernel != library && *library != "1" => Check::warning(
            "driver",
            format!("kernel module {kernel}, but libcuda {library}"),
            "after an update of the driver, reboot; in a container, compare it with the host (forward compatibility \
             packages differ on purpose)",
        ),
        (Some(kernel), _) if major(kernel) < DRIVER_WITH_CONTEXT_EVENTS => Check::warning(
            "driver",
            format!("version {kernel}, older than CUDA 12.5"),
            "reuse of freed memory costs a synchronisation now and then; a driver from 555 on avoids it",
        ),
        (Some(kernel), _) => Check::ok("driver", format!("version {kernel}")),
    });
    if kernel.is_some() && fs::File::open("/dev/nvidiactl").is_err() {
        checks.push(Check::fail(
            "devices",
            "/dev/nvidiactl cannot be opened",
            "ask for access to the devices (group, container runtime, job scheduler)",
        ));
    }
    let cudart = linker::with_tool(OsStr::new("libcudart.so")).unwrap_or_default();
    if let Some((_, path)) = cudart.find("libcudart.so") {
        checks.push(Check::ok("libcudart", format!("{} (programs may bring their own)", path.display())));
    }
    checks
}

/// The first thing in a text that looks like a version of the driver: `580.159.04`.
fn version(text: &str) -> Option<String> {
    let looks_so = |word: &&str| {
        let mut parts = word.split('.');
        parts.clone().count() >= 2
            && parts.all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    text.split_whitespace().find(looks_so).map(str::to_owned)
}

fn major(version: &str) -> u32 {
    version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_both_kernel_modules_are_found() {
        for line in [
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.104.05  Release Build  (dvs-builder)",
        ] {
            assert_eq!(version(line).as_deref(), Some("535.104.05"));
        }
        assert_eq!(version("GCC version"), None);
        assert_eq!((major("535.104.05"), major("x")), (535, 0));
    }

    #[test]
    fn a_file_that_is_no_library_fails() {
        assert_eq!(binary(Path::new("/proc/self/status")).verdict, super::super::Verdict::Fail);
    }
}
