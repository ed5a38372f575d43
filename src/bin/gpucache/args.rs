//! The grammar of the command line. Help, completions and manual pages are made from it.

// These comments are what a terminal shows, where backticks are none.
#![allow(clippy::doc_markdown)]

use crate::top::columns::Column;
use clap::{Args as Arguments, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use std::ffi::OsString;
use std::path::PathBuf;

/// Runs CUDA programs on a caching memory pool under a cap, and reads its reports.
#[derive(Parser)]
#[command(name = "gpucache", version, max_term_width = 100, propagate_version = true)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a program with the library preloaded
    #[command(after_help = RUN_NOTES)]
    Run(Run),
    /// Show report files, or what a process that runs or was killed would report
    #[command(after_help = REPORT_NOTES)]
    Report(Show),
    /// Watch the processes of this user that run on the library
    #[command(after_help = TOP_NOTES)]
    Top(Top),
    /// Ask a running process for something
    #[command(after_help = CTL_NOTES)]
    Ctl(Ctl),
    /// Show what changed between two reports
    #[command(after_help = DIFF_NOTES)]
    Diff(Diff),
    /// Show the reports of one job's processes together
    Merge(Merge),
    /// Check whether the library works here, and on a program
    #[command(
        after_help = "The status is 0 if nothing fails, 1 if anything does, 2 if the question makes no sense."
    )]
    Doctor(Doctor),
    /// Print where the library is
    Path(Place),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write one for each command
    Man {
        /// Write the pages into this folder instead
        #[arg(long = "into", value_name = "FOLDER", value_hint = ValueHint::DirPath)]
        folder: Option<PathBuf>,
    },
}

const RUN_NOTES: &str = "\
The program takes the tool's place (exec): status, signals, terminal and standard streams are its own. \
With --html the tool stays as its parent to write the page, passes signals on, and ends as the program did.

The status is the program's, or 125 if the tool fails, 126 if the program cannot be run, 127 if it is not found.

What is in LD_PRELOAD and GPUCACHE_CONF already stays in force; an option wins over the same key there.";

const DIFF_NOTES: &str = "\
The status is 0, or with --exit-code 1 if memory figures, counts or settings differ; 2 on trouble. \
Times differ from run to run and never decide.";

const REPORT_NOTES: &str = "\
A number that no file has as its name is a process: one that runs, or that has left its live file because it was killed or \
crashed. Live files may also be named, here and for diff and merge.";

const TOP_NOTES: &str = "\
On a terminal: up and down select, Enter shows one process, < and > change the order, r reverses it, e hides what has \
ended, Space pauses, + and - change the interval, ? helps, q quits. Elsewhere: rows of text, or with --json a line of JSON \
for each look.

Figures are read from the live files, which costs the processes nothing. Requested, allocated and counts are a little behind, \
fragmentation is that of the last growth. Allocations a second and hit rate are those since the last look; in the first look, \
of the process's life.

States: running; ending (the report is written); ended (well, with its report written); killed (by a signal, or crashed: its \
live file is there for `gpucache report`); exec (it has become another program, which was seen while that ran); away (in another container).

With --once the status is 2 if a process that is named is not found. --folder must be the caller's own, and closed to others \
(chmod 700), as must be the files (chmod 600): others could have forged what they hold.";

const CTL_NOTES: &str = "\
A process looks when one of its threads has made some CUDA allocations or frees; one that makes none does what was asked as \
soon as it does, also after the tool has given up waiting.

The status is 0 if it was done, 1 if the process refused, 3 if it has not answered yet, 4 if the cap that was asked for is above \
the configured one, which holds then; 2 if it cannot be asked.";

/// Where the library is.
#[derive(Arguments, Clone, Default)]
pub struct Place {
    /// The library; default: GPUCACHE_LIB, else beside the tool, in ../lib, or in cargo's target folders
    #[arg(long = "lib", value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub lib: Option<PathBuf>,
}

#[derive(Arguments)]
pub struct Run {
    /// Cap in bytes: 8GiB, 8192MiB, or one for each device: [0:8GiB,1:0.25]
    #[arg(long, value_name = "SIZE")]
    pub limit: Option<String>,
    /// Cap as a share of each device's memory, from 0 to 1
    #[arg(long, value_name = "SHARE")]
    pub fraction: Option<String>,
    /// Write the report as JSON to this file; %p stands for the process id, %h %e %t %q{VAR} as in GPUCACHE_REPORT
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<OsString>,
    /// Write the report as a page to this file when the program has ended (and the JSON beside it, without --report)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Any setting of GPUCACHE_CONF; may be given several times
    #[arg(long, value_name = "KEY:VALUE")]
    pub conf: Vec<String>,
    /// What the library says about its own working: off, error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<String>,
    #[command(flatten)]
    pub place: Place,
    /// Print the environment that the program would get from the tool, and do not run it
    #[arg(long)]
    pub print: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

#[derive(Arguments)]
pub struct Show {
    /// Report files (JSON), live files, or process ids; - reads the standard input
    #[arg(required = true, value_name = "FILE|PID", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// As JSON; of several files, an array
    #[arg(long, conflicts_with = "html")]
    pub json: bool,
    /// As a page, written to this file; - is the standard output, here and below
    #[arg(long, value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// The history as a trace, written to this file, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "OUT", value_hint = ValueHint::FilePath, conflicts_with = "json")]
    pub trace: Option<PathBuf>,
    /// The history as a memory snapshot of PyTorch, written to this file (a pickle), for pytorch.org/memory_viz
    #[arg(long, value_name = "OUT", value_hint = ValueHint::FilePath, conflicts_with = "json")]
    pub memory_viz: Option<PathBuf>,
    /// What was never freed by the places that allocated it, with their stacks (of a run with sites:True)
    #[arg(long, conflicts_with_all = ["html", "json"])]
    pub leaks: bool,
    /// Stacks for a flame graph, one a line with its bytes: live at the end, at the peak, or allocated in total
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "live",
        conflicts_with_all = ["html", "json", "leaks"])]
    pub folded: Option<Folded>,
}

/// What the figures of folded stacks are.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Folded {
    Live,
    Peak,
    Total,
}

// Each is an option of its own.
#[allow(clippy::struct_excessive_bools)]
#[derive(Arguments)]
pub struct Top {
    /// Only these processes
    #[arg(value_name = "PID")]
    pub processes: Vec<u32>,
    /// Look once, and end
    #[arg(long)]
    pub once: bool,
    /// Seconds between looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: f64,
    /// Rows as JSON, a line for each look
    #[arg(long)]
    pub json: bool,
    /// What to sort by, the highest first
    #[arg(long, value_name = "COLUMN", default_value = "reserved")]
    pub sort: Column,
    /// The lowest first
    #[arg(long)]
    pub reverse: bool,
    /// Leave out what has ended
    #[arg(long)]
    pub running: bool,
    /// Look into this folder only, for instance one that live files were copied to
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub folder: Option<PathBuf>,
}

/// Seconds between looks that make sense.
fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "a number of seconds from 0.1 to 3600 is needed".to_owned())
}

#[derive(Arguments)]
pub struct Ctl {
    /// The process, or its live file
    #[arg(value_name = "PID|FILE", value_hint = ValueHint::Other)]
    pub process: PathBuf,
    /// Seconds to wait for the answer
    #[arg(long, global = true, value_name = "SECONDS", default_value = "5", value_parser = patience)]
    pub wait: f64,
    #[command(subcommand)]
    pub ask: Ask,
}

/// Seconds to wait.
fn patience(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=86400.0).contains(seconds));
    seconds.ok_or_else(|| "a number of seconds from 0 to 86400 is needed".to_owned())
}

#[derive(Subcommand)]
pub enum Ask {
    /// Give idle memory back to the driver, which waits for the device
    EmptyCache,
    /// Write the report as of now, to where its GPUCACHE_REPORT says
    Report,
    /// Start the peaks anew that the program itself can ask for
    ResetPeak,
    /// Change the cap of a device, to no more than was configured
    Limit {
        /// The cap: 6GiB, 6144MiB, bytes; none is the configured one
        size: String,
        /// The device, by its number within the process; not needed where it uses only one
        #[arg(long, value_name = "N")]
        device: Option<u32>,
    },
}

#[derive(Arguments)]
pub struct Diff {
    /// The earlier report
    #[arg(value_hint = ValueHint::FilePath)]
    pub a: PathBuf,
    /// The later report
    #[arg(value_hint = ValueHint::FilePath)]
    pub b: PathBuf,
    /// Show equal figures too
    #[arg(long)]
    pub all: bool,
    /// Changes up to this many per cent are none
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    pub ignore: f64,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// End with status 1 if the reports differ
    #[arg(long)]
    pub exit_code: bool,
}

#[derive(Arguments)]
pub struct Merge {
    /// Report files, one for each process
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// As JSON
    #[arg(long, conflicts_with = "html")]
    pub json: bool,
    /// As a page, written to this file; - is the standard output
    #[arg(long, value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
}

#[derive(Arguments)]
pub struct Doctor {
    /// Whether this program would be intercepted
    #[arg(value_hint = ValueHint::CommandName)]
    pub program: Option<OsString>,
    /// Whether anything escaped in this report; may be given several times
    #[arg(long = "report", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub reports: Vec<PathBuf>,
    #[command(flatten)]
    pub place: Place,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn what_follows_the_program_is_the_programs() {
        for line in [
            &["gpucache", "run", "--limit", "8GiB", "python", "--limit", "x"][..],
            &["gpucache", "run", "--limit", "8GiB", "--", "python", "--limit", "x"],
        ] {
            let Command::Run(run) = Args::try_parse_from(line).ok().unwrap().command else { panic!() };
            assert_eq!(run.limit.as_deref(), Some("8GiB"));
            assert_eq!(run.program, ["python", "--limit", "x"]);
        }
    }

    #[test]
    fn a_mistyped_option_is_answered_with_the_nearest() {
        let error = Args::try_parse_from(["gpucache", "run", "--limt", "8GiB", "python"]).err().unwrap();
        assert!(error.to_string().contains("'--limit'"), "{error}");
        let error = Args::try_parse_from(["gpucache", "reprot", "x"]).err().unwrap();
        assert!(error.to_string().contains("'report'"), "{error}");
    }
}
