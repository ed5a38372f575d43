//! What is made from the grammar: completion scripts and manual pages.

use crate::args::Args;
use crate::failure::{Failure, print};
use crate::report::write_atomically;
use clap::CommandFactory;
use clap_complete::Shell;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

/// Prints a completion script.
pub fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "gpucache", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the manual page of the whole, or writes that and one for each command into a folder.
pub fn manual(folder: Option<&Path>) -> Result<ExitCode, Failure> {
    let mut command = Args::command();
    // Fills in what subcommands inherit, their full names among it.
    command.build();
    let Some(folder) = folder else {
        print(&String::from_utf8_lossy(&page(command)))?;
        return Ok(ExitCode::SUCCESS);
    };
    if !folder.is_dir() {
        return Err(Failure::new(format!("--into {}: there is no such folder", folder.display())));
    }
    let mut pages = Vec::new();
    collect("gpucache".to_owned(), command, &mut pages);
    for (name, command) in pages {
        let path = folder.join(format!("{name}.1"));
        write_atomically(&path, &page(command)).map_err(|error| Failure::new(error.to_string()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A command and those within it, with the names of their pages.
fn collect(name: String, command: clap::Command, pages: &mut Vec<(String, clap::Command)>) {
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        let line = format!("{} {}", line_of(&command), sub.get_name());
        collect(format!("{name}-{}", sub.get_name()), sub.clone().bin_name(line), pages);
    }
    pages.push((name, command));
}

/// What stands before the name of a subcommand on a command line: the arguments, too, that come first.
fn line_of(command: &clap::Command) -> String {
    let mut line = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned();
    for name in command.get_positionals().filter_map(|argument| argument.get_value_names()) {
        let _ = write!(line, " <{}>", name.join("> <"));
    }
    line
}

fn page(command: clap::Command) -> Vec<u8> {
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _ = clap_mangen::Man::new(command).render(&mut text);
    text
}
