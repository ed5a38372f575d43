//! `gpucache`: runs programs on the library, and reads what it reports.
//!
//! ## Why the library is not linked
//!
//! The library defines `dlsym`, `_exit`, `cudaMalloc` and the driver's functions, and has a constructor. An executable that
//! links its rlib gets them: the linker takes the archive's `dlsym` for the one that the standard library asks for, and the
//! tool would interpose itself. The feature `exports` cannot prevent it, because cargo builds a package's library once for all
//! of its targets. So nothing here names the crate `gpucache`; an extern crate that is not named is not linked. What the
//! tool shares with the library, the layers without unsafe code, exports or constructors, it compiles as modules of its
//! own, from the same files. `scripts/check-exports.sh --tool` looks at the executable and holds it to that.
//!
//! | file | what it does |
//! |---|---|
//! | `args.rs` | the grammar of the command line |
//! | `run/` | starts a program with the library preloaded |
//! | `load.rs` | reads report files, and says what is wrong with those that are none |
//! | `find.rs` | finds processes by their live files |
//! | `top/` | what the processes that run hold, again and again |
//! | `ctl.rs` | asks a running process for something |
//! | `demangle.rs` | names of functions in reports, as their language writes them |
//! | `figures.rs` | the figures that reports are compared by, each with its unit |
//! | `show.rs`, `diff.rs`, `merge.rs` | one report, two, many |
//! | `html/` | the page |
//! | `export/` | the history in forms that other tools show |
//! | `doctor/` | whether the library would work here, and on a given program |
//! | `output.rs` | where output goes, and what it must not be written over |
//! | `sites.rs` | which sites hold more in one report than in another |
//! | `place.rs` | where the library is |
//! | `emit.rs` | completions and manual pages, made from the grammar |
//! | `table.rs` | columns of text |
#![deny(unsafe_code)]

// The library's own modules; the tool has a use for some of what is in them. (In a library clippy spares what is public.)
#[allow(dead_code, unused_imports, clippy::struct_field_names)]
#[path = "../../policy/mod.rs"]
mod policy;
#[allow(dead_code, unused_imports, clippy::struct_field_names)]
#[path = "../../report/mod.rs"]
mod report;
#[allow(dead_code, unused_imports, clippy::struct_field_names)]
#[path = "../../stats/mod.rs"]
mod stats;
#[allow(dead_code, unused_imports, clippy::struct_field_names)]
#[path = "../../sync.rs"]
mod sync;

mod args;
mod ctl;
mod demangle;
mod diff;
mod doctor;
mod emit;
mod export;
mod failure;
mod figures;
mod find;
mod html;
mod load;
mod merge;
mod output;
mod place;
mod run;
mod show;
mod sites;
mod table;
mod top;

use args::{Args, Command};
use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Printing can only fail where there is nobody to tell.
            let _ = error.print();
            let is_run = std::env::args_os().nth(1).is_some_and(|word| word == "run");
            let status = if is_run { failure::RUN_STATUS } else { failure::STATUS };
            return ExitCode::from(if error.use_stderr() { status } else { 0 });
        }
    };
    let done = match args.command {
        Command::Run(args) => run::run(&args),
        Command::Report(args) => show::show(&args),
        Command::Top(args) => top::top(&args),
        Command::Ctl(args) => ctl::ctl(&args),
        Command::Diff(args) => diff::diff(&args),
        Command::Merge(args) => merge::merge(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Path(args) => place::print(&args),
        Command::Completions { shell } => emit::completions(shell),
        Command::Man { folder } => emit::manual(folder.as_deref()),
    };
    done.unwrap_or_else(Failure::end)
}
