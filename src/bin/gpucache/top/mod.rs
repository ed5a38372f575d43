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
use columns::Order;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;
use watcher::Watcher;

/// Watches, on the screen if there is one.
pub fn top(args: &Top) -> Result<ExitCode, Failure> {
    let mut watcher = Watcher::new(watcher::folders(args.folder.as_deref()), &args.processes);
    if let Some(folder) = args.folder.as_deref().filter(|folder| !folder.is_dir()) {
        return Err(Failure::new(format!("--folder {}: there is no such folder", folder.display())));
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
            if rows.is_empty() && !args.json {
                let places: Vec<_> = watcher.folders().iter().map(|f| f.display().to_string()).collect();
                remark(&format!("no process on the library has a live file in {}", places.join(", ")));
            }
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(Duration::from_secs_f64(args.interval));
    }
}
