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
use crate::policy::conf::{RUN_VARIABLE, run_name, within};
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
use std::time::SystemTime;
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
        let run = new_run();
        let mut command = self.command();
        let outer = env::var(RUN_VARIABLE).unwrap_or_default();
        command.env(RUN_VARIABLE, within(&outer, run));
        let (pid, status) = parent::run(command).map_err(|error| not_started(&self.program[0], &error))?;
        // The program has ended as it has: a page that fails must not change the status.
        let ended = Ended { run: run_name(run), pid, status };
        if let Err(failure) = show(page, before.as_ref(), &ended) {
            let _ = failure.end();
        }
        Ok(parent::end_like(status))
    }
}

/// A number for this run that no other has.
fn new_run() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos() as u64 ^ (u64::from(std::process::id()) << 40)).max(1)
}

/// A program that has ended.
struct Ended {
    /// The name of the run.
    run: String,
    pid: u32,
    status: ExitStatus,
}

/// Writes the page of what the run has left.
fn show(page: &Path, before: Option<&Before>, ended: &Ended) -> Result<(), Failure> {
    let files = before.map(Before::since).unwrap_or_default();
    let mut reports = files.iter().map(|file| load::load(file)).collect::<Result<Vec<_>, _>>()?;
    // Of a run at the same time with the same names. What tells no run may come from an earlier library.
    let of_another = |loaded: &load::Loaded| {
        let runs = &loaded.report.process.runs;
        !runs.is_empty() && !runs.contains(&ended.run)
    };
    let others: Vec<_> = reports.extract_if(.., |loaded| of_another(loaded)).collect();
    reports.extend(last_figures(page, ended, &reports));
    let text = match &reports[..] {
        [] => {
            let signal = ended.status.signal();
            let signal = signal.map(|n| format!(" was ended by signal {n} and left no live file: it"));
            let others = others.first().map(|other| {
                let file = other.path.display();
                format!(
                    "; {file} was written by another run at the same time (%p in the name keeps them apart)"
                )
            });
            return Err(Failure::new(format!(
                "{} was not written, because there is no report: the program{} made no CUDA call, or was not intercepted \
                 (gpucache doctor PROGRAM){}",
                page.display(),
                signal.unwrap_or_default(),
                others.unwrap_or_default()
            )));
        }
        [one] => html::page(one, Some(&outcome(ended.status))),
        many => merge::page(many),
    };
    write_atomically(page, text.as_bytes()).map_err(|error| Failure::new(error.to_string()))?;
    remark(&format!("page written to {}", page.display()));
    Ok(())
}

/// What the live files of processes of the run hold that have left no report: that of the program, and those of its children.
fn last_figures(page: &Path, ended: &Ended, reports: &[load::Loaded]) -> Vec<load::Loaded> {
    let reported = |pid: u32| reports.iter().any(|loaded| loaded.report.process.pid == pid);
    let mut all = Vec::new();
    for found in live::list_all() {
        let Ok(view) = found.view else { continue };
        let pid = view.identity.pid;
        let is_over = matches!(found.fate, live::Fate::Gone | live::Fate::Replaced);
        let of_this_run = view.identity.runs.iter().any(|run| run_name(*run) == ended.run);
        if !is_over || !of_this_run || reported(pid) {
            continue;
        }
        let end = match ended.status.signal().filter(|_| pid == ended.pid) {
            Some(signal) => format!("the program was ended by signal {signal}"),
            None => format!("process {pid} ({}): {}", view.identity.command, find::fate_words(found.fate)),
        };
        remark(&format!(
            "{end} and left no report: {} shows its last figures (gpucache report {pid})",
            page.display()
        ));
        let process = find::Process { path: found.path, view, fate: found.fate };
        all.push(load::of_live(&process, Path::new(&pid.to_string())));
    }
    all
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
