//! Runs small CUDA programs with and without the library, on the simulated driver.
//!
//! A test states a program, its settings and what must come out:
//!
//! ```ignore
//! let run = Program::new("seq").arg("a16m*8 F a32m*4").preload().conf("memory_limit:1GiB").run();
//! run.ok();
//! assert_eq!(run.gauge(0, "reserved_bytes", "peak"), 128 << 20);
//! ```
//!
//! Nothing here uses the crate under test: the library is only ever seen the way its users see it, through `LD_PRELOAD`.

// Every test binary compiles this module and uses a part of it.
#![allow(dead_code)]

pub mod build;
mod outcome;
pub mod talk;

pub use outcome::Outcome;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// One mebibyte, in bytes.
pub const MIB: u64 = 1 << 20;

/// How long a program may take. All of them need well under a second; the rest is for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Where a program's report goes.
#[derive(Clone, PartialEq)]
enum Report {
    /// `GPUCACHE_REPORT` names a file in the run's own folder.
    File,
    /// `GPUCACHE_REPORT` is not set.
    Unset,
    /// `GPUCACHE_REPORT` has this value; the run's folder is the working directory.
    Value(String),
}

/// A program to run, and how.
#[derive(Clone)]
pub struct Program {
    path: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    preload: Option<OsString>,
    old_driver: bool,
    report: Report,
}

impl Program {
    /// One of the programs in `tests/programs/BUILD`, without the library.
    pub fn new(name: &str) -> Self {
        Self::at(build::programs().join("bin").join(name))
    }

    /// Any program of the machine, without the library.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            args: Vec::new(),
            env: Vec::new(),
            preload: None,
            old_driver: false,
            report: Report::File,
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Preloads the library.
    #[must_use]
    pub fn preload(self) -> Self {
        let library = build::library();
        self.preload_list(library)
    }

    /// Preloads a build of the library that reuses memory without any barrier, to show that a test can fail.
    #[must_use]
    pub fn preload_unsafe(self) -> Self {
        let library = build::unsafe_library();
        self.preload_list(library)
    }

    /// Sets `LD_PRELOAD` to exactly this.
    #[must_use]
    pub fn preload_list(mut self, list: impl Into<OsString>) -> Self {
        self.preload = Some(list.into());
        self
    }

    /// Sets `GPUCACHE_CONF`.
    #[must_use]
    pub fn conf(self, conf: &str) -> Self {
        self.env("GPUCACHE_CONF", conf)
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Sets one of the simulated driver's settings; the prefix `SIMCUDA_` is added.
    #[must_use]
    pub fn sim(self, key: &str, value: &str) -> Self {
        self.env(&format!("SIMCUDA_{key}"), value)
    }

    /// Runs on a driver that lacks what came with 12.0 and 12.5.
    #[must_use]
    pub fn old_driver(mut self) -> Self {
        self.old_driver = true;
        self
    }

    /// Leaves `GPUCACHE_REPORT` unset, so that the summary goes to stderr.
    #[must_use]
    pub fn text_report(mut self) -> Self {
        self.report = Report::Unset;
        self
    }

    /// Sets `GPUCACHE_REPORT`; a relative path is relative to [`Outcome::folder`].
    #[must_use]
    pub fn report_to(mut self, value: &str) -> Self {
        self.report = Report::Value(value.into());
        self
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// If it cannot be started, or does not end in time (it is killed then).
    pub fn run(&self) -> Outcome {
        self.start().finish()
    }

    /// Starts it; its standard input is a pipe that ends with [`Running::finish`].
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(&self) -> Running {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = format!("{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
        let folder = build::programs().join("run").join(run);
        std::fs::create_dir_all(&folder).expect("a folder for the run");
        let mut child =
            self.command(&folder).spawn().unwrap_or_else(|e| panic!("{}: {e}", self.path.display()));
        let stdout = drain(child.stdout.take());
        let stderr = drain(child.stderr.take());
        let what = format!("{} {}", self.path.display(), self.args.join(" "));
        Running { what, child, stdout, stderr, folder }
    }

    fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.current_dir(folder).process_group(0);
        for (key, _) in std::env::vars() {
            if ["GPUCACHE_", "PYTORCH_", "SIMCUDA_", "LD_"].iter().any(|p| key.starts_with(p)) {
                command.env_remove(key);
            }
        }
        let mut path = OsString::new();
        if self.old_driver {
            path.push(build::old_driver());
            path.push(":");
        }
        path.push(build::programs().join("lib"));
        command.env("LD_LIBRARY_PATH", path);
        command.env("SIMCUDA_STATS", folder.join("stats"));
        // Live files of programs that are killed stay out of the machine's folders.
        command.env("XDG_RUNTIME_DIR", build::programs().join("runtime"));
        match &self.report {
            Report::File => _ = command.env("GPUCACHE_REPORT", folder.join("report.json")),
            Report::Value(value) => _ = command.env("GPUCACHE_REPORT", value),
            Report::Unset => {}
        }
        if let Some(preload) = &self.preload {
            command.env("LD_PRELOAD", preload);
        }
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        command
    }
}

/// A program that runs.
pub struct Running {
    what: String,
    /// The process.
    pub child: Child,
    stdout: thread::JoinHandle<String>,
    stderr: thread::JoinHandle<String>,
    /// Its working directory.
    pub folder: PathBuf,
}

impl Running {
    /// Waits until `happened` returns something.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn until<T>(&mut self, mut happened: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + TIMEOUT;
        loop {
            if let Some(value) = happened() {
                return value;
            }
            if let Some(status) = self.child.try_wait().expect("the program's status") {
                // Once more: it may have happened just before the end.
                return happened().unwrap_or_else(|| {
                    let stderr = std::mem::replace(&mut self.stderr, thread::spawn(String::new));
                    panic!("{}: has ended before: {status}\n{}", self.what, stderr.join().unwrap())
                });
            }
            assert!(Instant::now() < end, "{}: did not happen within {TIMEOUT:?}", self.what);
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Writes a line to its standard input.
    ///
    /// # Panics
    /// If it does not read any more.
    pub fn tell(&mut self, line: &str) {
        let pipe = self.child.stdin.as_mut().expect("a pipe");
        writeln!(pipe, "{line}").and_then(|()| pipe.flush()).expect("a program that reads");
    }

    /// Kills it by SIGKILL, and returns what there is.
    ///
    /// # Panics
    /// If it has ended already.
    pub fn kill(mut self) -> Outcome {
        self.child.kill().expect("a process to kill");
        self.finish()
    }

    /// Closes its standard input, and waits for its end.
    ///
    /// # Panics
    /// If it does not end in time (it is killed then).
    pub fn finish(mut self) -> Outcome {
        drop(self.child.stdin.take());
        let status = wait(&mut self.child);
        let (stdout, stderr) = (self.stdout.join().unwrap(), self.stderr.join().unwrap());
        let what = self.what;
        let status = status.unwrap_or_else(|| {
            panic!("{what}: still running after {TIMEOUT:?}\n{stdout}\n{stderr}");
        });
        Outcome::new(what, status, stdout, stderr, self.folder)
    }
}

/// Runs a program without and with the library, holds the two against each other, and returns the one with.
///
/// # Panics
/// If status or stdout differ: the library changed what the program does.
pub fn same_with_and_without(program: &Program) -> Outcome {
    let without = program.run();
    let with = program.clone().preload().run();
    assert_eq!(with.stdout, without.stdout, "stdout with and without\n{with}\n{without}");
    assert_eq!(with.status, without.status, "status with and without\n{with}\n{without}");
    with
}

/// Reads a pipe to its end on a thread of its own, so that a program can never block on a full one.
fn drain(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    let mut pipe = pipe.expect("a pipe");
    thread::spawn(move || {
        let mut bytes = Vec::new();
        _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for the end, or kills the program after [`TIMEOUT`], and its children with it: one that hangs would keep the pipes
/// open for ever.
fn wait(child: &mut Child) -> Option<std::process::ExitStatus> {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(status) = child.try_wait().expect("the program's status") {
            return Some(status);
        }
        if Instant::now() > end {
            // SAFETY: sends a signal to the group that the program was started as the leader of and that nobody has waited for.
            unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
            _ = child.wait();
            return None;
        }
        thread::sleep(Duration::from_millis(2));
    }
}
