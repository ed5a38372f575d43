//! What the tests of the tool have in common: the tool with arguments, programs under `gpucache run`, reports to read.

// Every test binary compiles this module and uses a part of it.
#![allow(dead_code)]

use crate::harness::{Outcome, Program, build};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// The tool's executable.
pub const TOOL: &str = env!("CARGO_BIN_EXE_gpucache");

/// The tool with these arguments; no variable of the library's is set.
pub fn tool(args: &[&str]) -> Program {
    args.iter().fold(Program::at(TOOL).text_report(), |program, arg| program.arg(*arg))
}

/// `gpucache run` with the library of this build, options, and a program of the tests.
pub fn run(options: &[&str], program: &[&str]) -> Program {
    let library = build::library();
    let bin = build::programs().join("bin");
    let words = [&["run", "--lib", library.to_str().unwrap()], options, &["--"]].concat();
    let known = bin.join(program[0]);
    let path = if known.exists() { known } else { program[0].into() };
    let with_options = tool(&words).arg(path.to_str().unwrap());
    program[1..].iter().fold(with_options, |tool, arg| tool.arg(*arg))
}

/// A report that a run has left in its folder.
pub fn report_in(run: &Outcome, name: &str) -> Value {
    let path = run.folder.join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}: {run}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// A folder of reports: `a.json` and `b.json` of one program under two caps, `oom.json` of one that ran out of memory.
pub fn reports() -> PathBuf {
    use std::sync::OnceLock;
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = build::programs().join("run").join(format!("reports-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            for (name, cap, script) in [
                ("a.json", "700MiB", "a8m*4 F a16m"),
                ("b.json", "600MiB", "a8m*8 F a16m*2"),
                ("oom.json", "64MiB", "a40m f0 a100m"),
            ] {
                let path = folder.join(name);
                run(&["--limit", cap, "--report", path.to_str().unwrap()], &["seq", script]).run().ok();
            }
            folder
        })
        .clone()
}

/// The path of one of them.
pub fn report(name: &str) -> String {
    reports().join(name).to_str().unwrap().to_owned()
}
