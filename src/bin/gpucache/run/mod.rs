//! `gpucache run`: starts a program with the library preloaded and its settings in the environment. Whatever can be found
//! wrong is found before the program starts.
//!
//! | file | what it does |
//! |---|---|
//! | `settings.rs` | options and environment to one configuration, checked by the library's own parser |
//! | `preload.rs` | the value of `LD_PRELOAD` |
//! | `written.rs` | which report files a template has led to |
//! | `parent.rs` | stays while the program runs, and ends as it did |

mod parent;
mod preload;
mod settings;
mod written;

use crate::args::Run;
use crate::failure::{Failure, RUN_STATUS, print, remark};
use crate::report::Template;
use crate::report::write_atomically;
use crate::stats::live;
use crate::{doctor, find, html, load, merge, output, place};
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use written::Before;

/// Starts the program, and returns only if that fails or a page is to be written afterwards.
pub fn run(args: &Run) -> Result<ExitCode, Failure> {
    prepare(args).map_err(|failure| failure.with_status(RUN_STATUS)).and_then(|plan| match &args.html {
        _ if args.print => plan.print(),
        Some(page) => plan.run_and_show(page),
        None => plan.exec(),
    })
}

/// A program and the environment that it gets from the tool.
struct Plan {
    program: Vec<OsString>,
    variables: Vec<(&'static str, OsString)>,
    /// Where reports will be; none if nowhere.
    reports: Option<String>,
}

fn prepare(args: &Run) -> Result<Plan, Failure> {
    let library = place::find_library(&args.place)?;
    place::fits_preload(&library)?;
    let preload = preload::compose(&library, env::var_os("LD_PRELOAD").as_deref());
    let beside = args.html.as_deref().map(settings::json_beside).transpose()?;
    let settings = settings::compose(args, beside, |name| env::var_os(name))?;
    if let Some(page) = &args.html {
        fits(page, settings.reports.as_deref())?;
    }
    for text in preload.remarks.iter().chain(&settings.remarks) {
        remark(text);
    }
    // What will not be intercepted is better said now than missed in the end.
    if let Some(obstacle) = doctor::obstacle(&args.program[0]) {
        remark(&format!("warning: {obstacle}"));
    }
    let mut variables = settings.variables;
    variables.push(("LD_PRELOAD", preload.value));
    Ok(Plan { program: args.program.clone(), variables, reports: settings.reports })
}

/// Refuses a page that has no file of its own.
fn fits(page: &Path, reports: Option<&str>) -> Result<(), Failure> {
    let fail = |what: &str| Err(Failure::new(format!("--html {}: {what}", page.display())));
    if output::is_standard(page) {
        return fail("the standard output is the program's; name a file");
    }
    let template = reports.and_then(|text| Template::parse(text).ok());
    if template
        .and_then(|template| written::literal(&template))
        .is_some_and(|file| output::is_same(page, &file))
    {
        return fail("the JSON of the report goes to the same file; name another");
    }
    Ok(())
}

impl Plan {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]).envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn print(&self) -> Result<ExitCode, Failure> {
        let lines = self.variables.iter().map(|(name, value)| format!("{name}={}\n", quoted(value)));
        print(&lines.collect::<String>())?;
        Ok(ExitCode::SUCCESS)
    }

    fn exec(self) -> Result<ExitCode, Failure> {
        let error = self.command().exec();
        Err(not_started(&self.program[0], &error))
    }

    fn run_and_show(self, page: &Path) -> Result<ExitCode, Failure> {
        let template = self.reports.as_deref().and_then(|text| Template::parse(text).ok());
        let before = template.as_ref().map(Before::of);
        let (pid, status) =
            parent::run(self.command()).map_err(|error| not_started(&self.program[0], &error))?;
        // The program has ended as it has: a page that fails must not change the status.
        if let Err(failure) = show(page, before.as_ref(), pid, status) {
            let _ = failure.end();
        }
        Ok(parent::end_like(status))
    }
}

/// Writes the page of what the run has left.
fn show(page: &Path, before: Option<&Before>, pid: u32, status: ExitStatus) -> Result<(), Failure> {
    let files = before.map(Before::since).unwrap_or_default();
    let mut reports = files.iter().map(|file| load::load(file)).collect::<Result<Vec<_>, _>>()?;
    let signal = status.signal();
    if let Some(signal) = signal
        && reports.iter().all(|loaded| loaded.report.process.pid != pid)
        && let Some(last) = last_figures(pid)
    {
        remark(&format!(
            "the program was ended by signal {signal} and left no report: {} shows its last figures (gpucache report {pid})",
            page.display()
        ));
        reports.push(last);
    }
    let text = match &reports[..] {
        [] => {
            let ended = signal.map(|n| format!(" was ended by signal {n} and left no live file: it"));
            return Err(Failure::new(format!(
                "{} was not written, because there is no report: the program{} made no CUDA call, or was not intercepted \
                 (gpucache doctor PROGRAM)",
                page.display(),
                ended.unwrap_or_default()
            )));
        }
        [one] => html::page(one, Some(&outcome(status))),
        many => merge::page(many),
    };
    write_atomically(page, text.as_bytes()).map_err(|error| Failure::new(error.to_string()))?;
    remark(&format!("page written to {}", page.display()));
    Ok(())
}

/// What the live file of a program that has been killed holds. One of that number from before the tool is another's.
fn last_figures(pid: u32) -> Option<load::Loaded> {
    let process = find::of(pid).ok()?;
    let own = live::started_at(std::process::id())?;
    let of_this_run = process.fate != live::Fate::Elsewhere
        && process.view.identity.boot == live::boot()
        && process.view.identity.start >= own;
    of_this_run.then(|| load::of_live(&process, Path::new(&pid.to_string())))
}

/// How the program ended, in words: what the library cannot know.
fn outcome(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => String::new(),
    }
}

fn not_started(program: &OsStr, error: &io::Error) -> Failure {
    let (what, status) = match error.kind() {
        io::ErrorKind::NotFound if Path::new(program).exists() => (
            "its interpreter is missing (the first line of a script, or the loader of a binary)".to_owned(),
            126,
        ),
        io::ErrorKind::NotFound => ("there is no such program".to_owned(), 127),
        io::ErrorKind::PermissionDenied if Path::new(program).is_dir() => ("it is a folder".to_owned(), 126),
        io::ErrorKind::PermissionDenied => ("it may not be executed".to_owned(), 126),
        _ => (error.to_string(), 126),
    };
    Failure::new(format!("{}: {what}", PathBuf::from(program).display())).with_status(status)
}

/// The value as a shell reads it back.
fn quoted(value: &OsStr) -> String {
    let text = value.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:,+=%@".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_for_a_shell() {
        for (value, text) in [("a:b,c", "a:b,c"), ("", "''"), ("[0:1]", "'[0:1]'"), ("it's", r"'it'\''s'")] {
            assert_eq!(quoted(OsStr::new(value)), text);
        }
    }
}
