//! `gpucache report`: report files as text, JSON or a page, and their history for other tools.

use crate::args::Show;
use crate::failure::{Failure, print, remark};
use crate::load::load_all;
use crate::report::{Report, to_text, write_atomically};
use crate::{export, html, merge};
use std::process::ExitCode;

/// Shows the files in their order.
pub fn show(args: &Show) -> Result<ExitCode, Failure> {
    let reports = load_all(&args.files)?;
    let exports = [
        ("--trace", &args.trace, export::trace as fn(&Report) -> Result<Vec<u8>, Failure>, "trace"),
        ("--memory-viz", &args.memory_viz, export::snapshot, "snapshot"),
    ];
    let mut exported = false;
    for (option, path, export, what) in exports {
        let Some(path) = path else { continue };
        let [one] = &reports[..] else {
            return Err(Failure::new(format!("{option}: one report at a time; {} are named", reports.len())));
        };
        let bytes = export(&one.report)?;
        write_atomically(path, &bytes)
            .map_err(|error| Failure::new(format!("{option} {}: {error}", path.display())))?;
        remark(&format!("{what} written to {}", path.display()));
        exported = true;
    }
    if let Some(path) = &args.html {
        let page = match &reports[..] {
            [one] => html::page(one, None),
            many => merge::page(many),
        };
        write_atomically(path, page.as_bytes())
            .map_err(|error| Failure::new(format!("--html {}: {error}", path.display())))?;
        remark(&format!("page written to {}", path.display()));
        exported = true;
    }
    if exported {
        return Ok(ExitCode::SUCCESS);
    }
    if args.json {
        // What the file holds, not what this version's model keeps of it.
        let texts: Vec<_> = reports.iter().map(|loaded| loaded.text.as_str()).collect();
        print(&match &texts[..] {
            [one] => format!("{one}\n"),
            many => format!("[\n{}\n]\n", many.join(",\n")),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let texts: Vec<_> = reports.iter().map(|loaded| to_text(&loaded.report)).collect();
    print(&texts.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}
