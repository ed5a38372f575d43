//! Builds what the tests run, once: the simulated driver, the mock runtimes, the programs, and on demand the builds of
//! driver and library that only tests have a use for.
//!
//! Test binaries run side by side, so everything happens under one file lock, and an output only ever appears whole, by
//! a rename. Outputs stay between runs and are made anew when a source is newer than they are.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::SystemTime;

/// Toolkit versions that there is a mock runtime for, with the vendor's library names.
const RUNTIMES: [(u32, &str, &str); 4] = [
    (11080, "libcudart.so.11.0", "libcudart.so.11.0"),
    (12000, "libcudart.so.12", "libcudart.so.12"),
    (13000, "libcudart.so.13", "libcudart.so.13"),
    // The same name as before, so it lies in a folder of its own.
    (13010, "13.1/libcudart.so.13", "libcudart.so.13"),
];

/// The preloadable library that `cargo test` built beside the test binary.
pub fn library() -> PathBuf {
    let deps = profile_folder().join("deps/libgpucache.so");
    if deps.exists() { deps } else { profile_folder().join("libgpucache.so") }
}

/// A build of the library that reuses memory without any barrier.
pub fn unsafe_library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            cargo(
                "unsafe-no-barrier",
                &["--lib", "--no-default-features", "--features", "exports,unsafe-no-barrier"],
            )
            .join("libgpucache.so")
        })
        .clone()
}

/// The folder of a `libcuda.so.1` that lacks newer functions.
pub fn old_driver() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| driver("simcuda-old", &["--features", "old-driver"], "lib-old")).clone()
}

/// The folder that holds `bin/` and `lib/`, with everything built.
pub fn programs() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build_programs).clone()
}

/// Where the test binary's profile builds to, such as `target/debug`.
fn profile_folder() -> PathBuf {
    let exe = std::env::current_exe().expect("the test binary's path");
    exe.ancestors().nth(2).expect("a folder two above the test binary").to_owned()
}

fn target() -> PathBuf {
    profile_folder().parent().expect("the target folder").to_owned()
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// Held while something is built; released when dropped.
struct Lock(#[allow(dead_code)] File);

impl Lock {
    fn take() -> Self {
        fs::create_dir_all(target()).expect("the target folder");
        let file = File::create(target().join("programs.lock")).expect("the build lock");
        // SAFETY: the descriptor is open for as long as `file` lives.
        let result = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
        assert_eq!(result, 0, "the build lock: {}", std::io::Error::last_os_error());
        Self(file)
    }
}

/// Runs cargo into a target folder of its own, because the one of `cargo test` may be locked. Returns the output folder.
fn cargo(folder: &str, args: &[&str]) -> PathBuf {
    let _lock = Lock::take();
    cargo_locked(folder, args)
}

fn cargo_locked(folder: &str, args: &[&str]) -> PathBuf {
    let into = target().join(folder);
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--offline", "--quiet", "--target-dir"]).arg(&into).args(args);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    // The simulated device computes on real bytes: that wants an optimiser, and no more.
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "2").env("CARGO_PROFILE_DEV_DEBUG", "1");
    command.env_remove("MAKEFLAGS").env_remove("CARGO_MAKEFLAGS").env_remove("LD_PRELOAD");
    run(&mut command);
    // Cargo puts what it builds for another processor into a folder of its own.
    into.join(std::env::var("CARGO_BUILD_TARGET").unwrap_or_default()).join("debug")
}

/// Builds a simulated driver and puts it under its real name into `into`.
fn driver(folder: &str, features: &[&str], into: &str) -> PathBuf {
    let _lock = Lock::take();
    driver_locked(folder, features, into)
}

fn driver_locked(folder: &str, features: &[&str], into: &str) -> PathBuf {
    let args: Vec<&str> = ["-p", "simcuda"].iter().chain(features).copied().collect();
    let built = cargo_locked(folder, &args).join("libsimcuda.so");
    let into = target().join("programs").join(into);
    fs::create_dir_all(&into).expect("a folder for the driver");
    let place = into.join("libcuda.so.1");
    if modified(&place) < modified(&built) {
        let part = into.join("libcuda.so.1.part");
        fs::copy(&built, &part).expect("a copy of the driver");
        fs::rename(&part, &place).expect("the driver in its place");
    }
    into
}

fn build_programs() -> PathBuf {
    let _lock = Lock::take();
    let out = target().join("programs");
    for folder in ["bin", "lib/13.1", "obj", "runtime"] {
        fs::create_dir_all(out.join(folder)).expect("a folder for the programs");
    }
    driver_locked("simcuda", &[], "lib");
    let stamp = out.join("stamp");
    let newest = ["include", "mockrt", "programs", "harness"]
        .iter()
        .flat_map(|folder| fs::read_dir(source().join(folder)).expect("the programs' sources"))
        .map(|entry| modified(&entry.expect("a source").path()))
        .max();
    if newest <= Some(modified(&stamp)) {
        return out;
    }
    _ = fs::remove_dir_all(out.join("run"));
    for (version, file, soname) in RUNTIMES {
        runtime(&out, version, file, soname);
    }
    let manifest = fs::read_to_string(source().join("programs/BUILD")).expect("tests/programs/BUILD");
    let (libraries, programs): (Vec<&str>, Vec<&str>) = manifest
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .partition(|line| line.starts_with("lib"));
    for line in libraries {
        program(&out, line);
    }
    let left = Mutex::new(programs);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some(line) = left.lock().unwrap().pop() else { break };
                    program(&out, line);
                }
            });
        }
    });
    fs::write(&stamp, "").expect("the stamp");
    out
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The program that a variable names, as for `make`: for another processor it is another.
fn tool(variable: &str, usual: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| usual.into())
}

/// The C compiler, with what every compilation has in common.
fn cc() -> Command {
    let mut cc = Command::new(tool("CC", "cc"));
    cc.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-pthread", "-I"]);
    cc.arg(source().join("include"));
    cc
}

/// One mock runtime in both forms: shared, with the vendor's name and symbol version, and static, whose symbols a linked
/// program does not export.
fn runtime(out: &Path, version: u32, file: &str, soname: &str) {
    let mut objects = Vec::new();
    for unit in ["resolve", "memory", "stream_forms"] {
        for (suffix, visibility) in [("so", "default"), ("a", "hidden")] {
            let object = out.join("obj").join(format!("{unit}.{version}.{suffix}.o"));
            let mut command = cc();
            command.args([
                &format!("-DMOCKRT_VERSION={version}"),
                &format!("-fvisibility={visibility}"),
                "-c",
                "-o",
            ]);
            run(command.arg(&object).arg(source().join("mockrt").join(format!("{unit}.c"))));
            objects.push((suffix, object));
        }
    }
    let objects_of =
        |kind| objects.iter().filter(move |(suffix, _)| *suffix == kind).map(|(_, object)| object);
    let map = out.join("obj").join(format!("exports.{version}.map"));
    let template = fs::read_to_string(source().join("mockrt/exports.map")).expect("tests/mockrt/exports.map");
    fs::write(&map, template.replace("@VERSION@", soname)).expect("a version script");
    let mut shared = cc();
    shared
        .arg("-shared")
        .args([&format!("-Wl,-soname,{soname}"), &format!("-Wl,--version-script={}", map.display())]);
    shared.arg("-o").arg(out.join("lib").join(file)).args(objects_of("so")).arg("-ldl");
    run(&mut shared);
    let archive = out.join("lib").join(format!("libcudart_static.{version}.a"));
    _ = fs::remove_file(&archive);
    run(Command::new(tool("AR", "ar")).arg("rcs").arg(archive).args(objects_of("a")));
}

/// One line of `tests/programs/BUILD`.
fn program(out: &Path, entry: &str) {
    let mut words = entry.split_whitespace();
    let mut word = || words.next().unwrap_or_else(|| panic!("tests/programs/BUILD: {entry}"));
    let (name, file, link) = (word(), word(), word());
    let lib = out.join("lib");
    let mut command = cc();
    let into = if name.starts_with("lib") { lib.join(name) } else { out.join("bin").join(name) };
    command.arg("-o").arg(into).arg(source().join("programs").join(file)).arg("-L").arg(&lib);
    let link = if let Some(rest) = link.strip_prefix("lib") {
        command.args(["-shared", &format!("-Wl,-soname,{name}")]);
        rest.trim_start_matches('-')
    } else {
        link
    };
    let (kind, version) = link.split_once('-').unwrap_or((link, ""));
    match kind {
        "static" => {
            let archive = lib.join(format!("libcudart_static.{version}.a"));
            command.arg(format!("-DCUDART_VERSION={version}")).arg(archive);
        }
        "shared" => {
            let (_, file, _) = RUNTIMES.iter().find(|r| r.0.to_string() == version).expect("a known runtime");
            command.arg(format!("-DCUDART_VERSION={version}")).arg(format!("-l:{file}"));
        }
        "driver" => _ = command.arg("-l:libcuda.so.1"),
        "fully" => _ = command.args(["-static", "-no-pie"]),
        "none" | "" => {}
        other => panic!("tests/programs/BUILD: unknown link {other}"),
    }
    run(command.args(words).arg("-ldl"));
}

/// Runs a build step.
///
/// # Panics
/// If it fails, with its whole output.
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{text}");
}
