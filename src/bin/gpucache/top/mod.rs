//! `gpucache top`: what the user's processes on the library hold, again and again, from their live files.
//!
//! | file | what it does |
//! |---|---|
//! | `watcher.rs` | looks at the live files, and remembers what was seen |
//! | `history.rs` | how figures went: rates, bars |
//! | `columns.rs` | rows and columns, and their order |
//! | `rows.rs` | plain text and JSON, where there is no terminal |
//! | `screen.rs` | the terminal: keys, and that it is as before afterwards |
//! | `view.rs` | what is on the screen: which row is selected, which page is shown |
//! | `draw.rs`, `detail.rs` | the pages |

pub mod columns;
mod detail;
mod draw;
mod history;
mod rows;
mod screen;
mod view;
mod watcher;

use crate::args::Top;
use crate::failure::{Failure, remark};
use crate::find;
use crate::stats::live::{self, Refusal};
use columns::Order;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use watcher::Watcher;

/// Watches, on the screen if there is one.
pub fn top(args: &Top) -> Result<ExitCode, Failure> {
    let mut watcher = Watcher::new(watcher::folders(args.folder.as_deref()), &args.processes);
    if let Some(folder) = args.folder.as_deref().filter(|folder| !folder.is_dir()) {
        return Err(Failure::new(format!("--folder {}: there is no such folder", folder.display())));
    }
    if let Some(folder) = &args.folder {
        may_be_believed(folder)?;
    }
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if !args.once && !args.json && !dumb && io::stdout().is_terminal() {
        return screen::run(watcher, args);
    }
    let order = Order { by: args.sort, reversed: args.reverse };
    let mut said = BTreeSet::new();
    loop {
        watcher.look();
        let rows = columns::rows(&watcher, order, !args.running);
        let text = if args.json { rows::json(&watcher, &rows) } else { rows::text(&rows) };
        if !args.json {
            // Each once, however often it is seen.
            rows::refused(&watcher).filter(|line| said.insert(line.clone())).for_each(|line| remark(&line));
        }
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            Err(error) => return Err(Failure::new(format!("cannot write to the standard output: {error}"))),
            Ok(()) => {}
        }
        drop(out);
        if args.once {
            unknown(args, &watcher)?;
            let nothing = rows.is_empty().then(|| nothing(&watcher, args.running));
            match nothing {
                Some(nothing) if args.folder.is_some() && !watcher.refused.is_empty() => {
                    return Err(Failure::new(nothing));
                }
                Some(nothing) if !args.json => remark(&nothing),
                _ => {}
            }
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(Duration::from_secs_f64(args.interval));
    }
}

/// Says no if nothing in a folder that was named will be believed: where others can make files, any could be forged.
fn may_be_believed(folder: &Path) -> Result<(), Failure> {
    let Err(why) = live::paths(folder) else { return Ok(()) };
    let shown = folder.display();
    let cure = match why {
        Refusal::Foreign(_) => format!(
            "; nothing is read from it until it is a folder of your own, and no link, that nobody else may enter: \
             chmod 700 {shown}"
        ),
        _ => String::new(),
    };
    Err(Failure::new(format!("--folder {shown}: {why}{cure}")))
}

/// Says no if a process that was named is not among those that are known.
fn unknown(args: &Top, watcher: &Watcher) -> Result<(), Failure> {
    let known: BTreeSet<u32> = watcher.known.values().map(|known| known.view.identity.pid).collect();
    let missing = args.processes.iter().filter(|pid| !known.contains(pid));
    let lines: Vec<String> = missing
        .map(|pid| match (&args.folder, find::of(*pid)) {
            (Some(folder), _) => {
                format!("process {pid} has no live file in {} that can be read", folder.display())
            }
            (None, Err(failure)) => failure.to_string(),
            // It has made its file since.
            (None, Ok(_)) => format!("process {pid} had no live file yet"),
        })
        .collect();
    if lines.is_empty() { Ok(()) } else { Err(Failure::new(lines.join("\n"))) }
}

/// Why there are no rows.
fn nothing(watcher: &Watcher, only_running: bool) -> String {
    let places: Vec<_> = watcher.folders().iter().map(|folder| folder.display().to_string()).collect();
    let places = places.join(", ");
    let over = watcher.known.values().filter(|known| known.state.is_over()).count();
    match (watcher.known.len(), over, watcher.refused.is_empty()) {
        (0, _, true) => format!("no process on the library has a live file in {places}"),
        (0, _, false) => format!("no process on the library has a live file that can be read in {places}"),
        (known, over, _) if known == over && only_running => {
            format!("no process on the library runs; --running leaves out what has ended, {over} in all")
        }
        _ => "no process that could be shown has used a device yet".to_owned(),
    }
}
