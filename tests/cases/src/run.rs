//! Puts the faults in, one after the other, in a copy of the tree.
//!
//! The test binaries know the library only as a file that they preload, so they are built once; a fault costs an
//! incremental build of the library and the run of one test.

use crate::case::{Case, Fault};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

/// A copy of the tree, and what was built from it.
struct Copy {
    tree: PathBuf,
    target: PathBuf,
    /// What the tests printed, a file for each fault and test.
    logs: PathBuf,
    /// The library without a fault.
    good: Vec<u8>,
    /// Test binaries by name; `lib` is the library's own tests.
    binaries: BTreeMap<String, PathBuf>,
}

/// Runs all faults of `cases`; false if one was not found.
///
/// # Errors
/// What kept the run from beginning: no copy, no build.
pub fn all(root: &Path, cases: &[Case]) -> Result<bool, String> {
    let begun = Instant::now();
    let mut copy = Copy::make(root)?;
    let tests: BTreeSet<&str> =
        cases.iter().flat_map(|case| &case.fault).flat_map(|fault| &fault.red).map(String::as_str).collect();
    copy.build_tests(&tests)?;
    println!("built in {} s; without a fault:", begun.elapsed().as_secs());
    let mut good = true;
    for test in &tests {
        if let Err(why) = copy.passes(test) {
            println!("  {test}: {why}");
            good = false;
        }
    }
    if !good {
        return Ok(false);
    }
    println!("  {} tests pass, after {} s; now with each fault in:", tests.len(), begun.elapsed().as_secs());
    let mut table = Vec::new();
    for case in cases {
        let mut row = |verdict: &str, text: &str| table.push(format!("{:<4} {verdict:<10} {text}", case.id));
        if let Some(why) = &case.pending {
            row("pending", why);
        }
        if !case.gpu.is_empty() {
            row("on a GPU", &format!("scripts/gpu.sh {}", case.gpu.join(" ")));
        }
        for (at, fault) in case.fault.iter().enumerate() {
            let (name, started) = (format!("{}.{}", case.id, at + 1), Instant::now());
            let found = copy.with(fault, &name);
            let verdict = if found.is_ok() { "found" } else { "NOT FOUND" };
            let why = found.err().map_or_else(String::new, |why| format!(": {why}"));
            println!("  {name} {verdict}, {} s{why}", started.elapsed().as_secs());
            row(verdict, &format!("{}\n{:16}by {}", fault.what, "", fault.red.join(", ")));
            good &= verdict == "found";
        }
    }
    println!(
        "\n== cases, after {} s; what each test printed is in {}",
        begun.elapsed().as_secs(),
        copy.logs.display()
    );
    println!("{}", table.join("\n"));
    Ok(good)
}

impl Copy {
    /// Copies what git knows or would add; what is the same already is left, so that builds stay incremental.
    fn make(root: &Path) -> Result<Copy, String> {
        let base = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), |at| root.join(at))
            .join("cases");
        let copy = Copy {
            tree: base.join("tree"),
            target: base.join("target"),
            logs: base.join("logs"),
            good: Vec::new(),
            binaries: BTreeMap::new(),
        };
        let list = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output();
        let list = list.map_err(|e| format!("git: {e}"))?;
        if !list.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&list.stderr)));
        }
        let names: BTreeSet<String> = String::from_utf8_lossy(&list.stdout)
            .split('\0')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        for name in &names {
            copy.take_over(root, name).map_err(|e| format!("{name}: {e}"))?;
        }
        copy.remove_others(&copy.tree, &names).map_err(|e| format!("{}: {e}", copy.tree.display()))?;
        Ok(copy)
    }

    fn take_over(&self, root: &Path, name: &str) -> std::io::Result<()> {
        let (from, to) = (root.join(name), self.tree.join(name));
        let Ok(bytes) = fs::read(&from) else { return Ok(()) }; // deleted and not yet committed
        if fs::read(&to).is_ok_and(|old| old == bytes) {
            return Ok(());
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&to, bytes)?;
        fs::set_permissions(&to, fs::metadata(&from)?.permissions())
    }

    /// Files of an earlier copy that the tree no longer has could be built or found by mistake.
    fn remove_others(&self, folder: &Path, names: &BTreeSet<String>) -> std::io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                self.remove_others(&path, names)?;
            } else if let Ok(name) = path.strip_prefix(&self.tree)
                && !names.contains(&*name.to_string_lossy())
            {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    fn cargo(&self, args: &[&str]) -> Result<Output, String> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(args).current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        // Nobody debugs these, and a line of warnings is to be expected where a fault leaves code without a use.
        cargo
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_INCREMENTAL", "1")
            .env("RUSTFLAGS", "-Awarnings");
        let output = cargo.output().map_err(|e| format!("cargo: {e}"))?;
        if output.status.success() {
            return Ok(output);
        }
        Err(format!("does not build:\n{}", String::from_utf8_lossy(&output.stderr)))
    }

    fn build_library(&self) -> Result<(), String> {
        self.cargo(&["build", "--quiet", "--lib"]).map(drop)
    }

    /// The library that the tests preload.
    fn library(&self) -> Result<Vec<u8>, String> {
        fs::read(self.target.join("debug/deps/libgpucache.so")).map_err(|e| format!("the library: {e}"))
    }

    /// Builds the library and the binaries of `tests`.
    fn build_tests(&mut self, tests: &BTreeSet<&str>) -> Result<(), String> {
        let files: BTreeSet<&str> = tests.iter().filter_map(|test| test.split("::").next()).collect();
        let mut args = vec!["test", "--no-run", "--message-format=json"];
        for file in files {
            if file == "lib" { args.push("--lib") } else { args.extend(["--test", file]) }
        }
        if args.len() > 3 {
            let output = self.cargo(&args)?;
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
                if let (Some(binary), Some(name)) =
                    (message["executable"].as_str(), message["target"]["name"].as_str())
                {
                    let name = if name == "gpucache" { "lib" } else { name };
                    self.binaries.insert(name.to_owned(), binary.into());
                }
            }
        }
        self.build_library()?;
        self.good = self.library()?;
        Ok(())
    }

    /// Runs one test by its whole name; whether it passed. What it printed goes to a file of the log folder.
    fn run(&self, test: &str, fault: &str) -> Result<bool, String> {
        let (file, name) = test.split_once("::").ok_or("not a test's name")?;
        let binary = self.binaries.get(file).ok_or_else(|| format!("no binary of {file}"))?;
        let mut command = Command::new(binary);
        command.args(["--exact", name]).current_dir(&self.tree).env("CARGO_PROFILE_DEV_DEBUG", "0");
        let output = command.output().map_err(|e| format!("{}: {e}", binary.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        fs::create_dir_all(&self.logs).map_err(|e| format!("{}: {e}", self.logs.display()))?;
        let place = self.logs.join(format!("{fault} {test}"));
        fs::write(&place, [&output.stdout[..], &output.stderr[..]].concat())
            .map_err(|e| format!("{}: {e}", place.display()))?;
        // A name that matches nothing passes, and a binary that cannot start fails: neither is an answer.
        match (output.status.success(), said.contains("1 passed"), said.contains("1 failed")) {
            (true, true, false) => Ok(true),
            (false, false, true) => Ok(false),
            _ => Err(format!(
                "neither passed nor failed: {}\n{said}\n{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            )),
        }
    }

    fn passes(&self, test: &str) -> Result<(), String> {
        if self.run(test, "good")? { Ok(()) } else { Err("fails without any fault".to_owned()) }
    }

    /// Puts a fault in, demands that its tests fail, and takes it out again.
    fn with(&self, fault: &Fault, log: &str) -> Result<(), String> {
        let changed = fault.apply(&self.tree)?;
        let mut before = Vec::new();
        for name in changed.keys() {
            before.push((name, fs::read(self.tree.join(name)).map_err(|e| format!("{name}: {e}"))?));
        }
        let result = self.spoilt(fault, &changed, log);
        for (name, bytes) in before {
            fs::write(self.tree.join(name), bytes).map_err(|e| format!("{name}: {e}"))?;
        }
        result
    }

    fn spoilt(&self, fault: &Fault, changed: &BTreeMap<String, String>, log: &str) -> Result<(), String> {
        for (name, text) in changed {
            fs::write(self.tree.join(name), text).map_err(|e| format!("{name}: {e}"))?;
        }
        self.build_library()?;
        if self.library()? == self.good {
            return Err("the library is the same with it in".to_owned());
        }
        if fault.red.iter().any(|test| test.starts_with("lib::")) {
            self.cargo(&["test", "--quiet", "--no-run", "--lib"])?;
        }
        for test in &fault.red {
            if self.run(test, log)? {
                return Err(format!("{test} passes with the fault in"));
            }
        }
        Ok(())
    }
}
