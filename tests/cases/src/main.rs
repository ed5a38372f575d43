//! Puts faults that users reported of other systems into this one, and demands that a test finds each.
//!
//! `tests/cases/ID.toml` has a row of the table each: the input, the right value, the tests that hold it, and the fault
//! as a change of our own source. `scripts/cases.sh` runs this.

mod case;
mod check;
mod run;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: scripts/cases.sh [--list | --check | CASE...]

  CASE       puts the faults of these cases in, each in turn, and demands that their tests fail; all, if none is named
  --check    looks at the cases without building anything
  --list     names the cases, and the tests that hold them";

/// The root of the tree that this was built from.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let root = root();
    if args.iter().any(|arg| arg.starts_with('-') && arg != "--list" && arg != "--check") {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    let wrong = check::faults(&root);
    if !wrong.is_empty() {
        eprintln!("{}", wrong.join("\n"));
        return ExitCode::FAILURE;
    }
    let cases = case::load(&root).unwrap_or_default();
    if args.iter().any(|arg| arg == "--check") {
        println!(
            "{} cases are whole, and {} faults apply",
            cases.len(),
            cases.iter().map(|c| c.fault.len()).sum::<usize>()
        );
        return ExitCode::SUCCESS;
    }
    if args.iter().any(|arg| arg == "--list") {
        list(&cases);
        return ExitCode::SUCCESS;
    }
    if let Some(unknown) = args.iter().find(|arg| !cases.iter().any(|case| case.id == **arg)) {
        eprintln!("no case is called {unknown}; --list names them");
        return ExitCode::from(2);
    }
    let wanted: Vec<_> =
        cases.into_iter().filter(|case| args.is_empty() || args.contains(&case.id)).collect();
    match run::all(&root, &wanted) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn list(cases: &[case::Case]) {
    for case in cases {
        println!("{:<4} {}", case.id, case.input);
        println!("       -> {}", case.right);
        for test in &case.held_by {
            println!("       test {test}");
        }
        for step in &case.gpu {
            println!("       GPU step {step}");
        }
        if let Some(why) = &case.pending {
            println!("       pending: {why}");
        }
    }
}
