//! `gpucache doctor`: whether the library works here, would be in a given program, and missed anything in a run that is over.
//! Every check is a line: ok, warning or fail, with what to do about it.
//!
//! | file | what it looks at |
//! |---|---|
//! | `system.rs` | the library, the C library, the driver |
//! | `environment.rs` | the library's variables: what it would refuse, and folders that are not there |
//! | `program.rs` | a program: how it is linked, and what the linker would do with it |
//! | `escapes.rs` | a report: what the pool did not serve or could not see |
//! | `binary.rs` | what an ELF file says about itself |
//! | `linker.rs` | what the dynamic linker finds |

mod binary;
mod environment;
mod escapes;
mod linker;
mod program;
mod system;

use crate::args::Doctor;
use crate::failure::{Failure, print};
use crate::load;
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

/// How a check came out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Verdict {
    Ok,
    Warning,
    Fail,
}

/// One line of the answer.
#[derive(Debug)]
struct Check {
    verdict: Verdict,
    subject: &'static str,
    finding: String,
    /// What to do; empty where nothing is to be done.
    advice: String,
}

impl Check {
    fn ok(subject: &'static str, finding: impl Into<String>) -> Self {
        Self { verdict: Verdict::Ok, subject, finding: finding.into(), advice: String::new() }
    }

    fn warning(subject: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warning, subject, finding: finding.into(), advice: advice.into() }
    }

    fn fail(subject: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fail, subject, finding: finding.into(), advice: advice.into() }
    }
}

/// Checks and answers.
pub fn doctor(args: &Doctor) -> Result<ExitCode, Failure> {
    let reports = load::load_all(&args.reports)?;
    let (mut checks, library) = system::checks(&args.place);
    checks.extend(environment::checks(|name| std::env::var_os(name)));
    if let Some(program) = &args.program {
        checks.extend(program::checks(program, library.as_deref())?);
    }
    for loaded in &reports {
        checks.extend(escapes::checks(&loaded.report));
    }
    print(&as_text(&checks))?;
    let failed = checks.iter().any(|check| check.verdict == Verdict::Fail);
    Ok(ExitCode::from(u8::from(failed)))
}

/// Why preloading would have no effect on a program, if it is plain to see.
pub fn obstacle(program: &OsStr) -> Option<String> {
    let checks = program::quick_checks(program);
    let check = checks.into_iter().find(|check| check.verdict == Verdict::Fail)?;
    Some(format!("{}: {}", check.finding, check.advice))
}

/// Why a file can be no preloaded library, if it is plain to see.
pub fn no_library(path: &Path) -> Option<&'static str> {
    match binary::read(path) {
        None => Some("it is no library"),
        Some(found) if !found.is_dynamic || found.interpreter.is_some() => {
            Some("it is a program, and no library")
        }
        Some(_) => None,
    }
}

fn as_text(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.subject.len()).max().unwrap_or(0);
    let mut out = String::new();
    for check in checks {
        let word = match check.verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Fail => "fail",
        };
        out.push_str(&line(&format!("{word:<7}  {:<width$}  {}", check.subject, check.finding)));
        if !check.advice.is_empty() {
            out.push_str(&line(&format!("{:<7}  {:<width$}    {}", "", "", check.advice)));
        }
    }
    out
}

fn line(text: &str) -> String {
    format!("{}\n", crate::report::units::printable(text).trim_end())
}
