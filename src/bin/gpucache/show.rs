//! `gpucache report`: report files as text, JSON or a page, and their history for other tools.

use crate::args::{Folded, Show};
use crate::failure::{Failure, print};
use crate::find;
use crate::load::{Loaded, load_all};
use crate::report::model::EndedBy;
use crate::report::sites::By;
use crate::report::units::{human, printable};
use crate::report::{Report, holders, to_text_with};
use crate::stats::live::Fate;
use crate::{export, html, merge, output};
use std::process::ExitCode;

/// Sites that the text lists by each of its orders: here nobody waits for a process to end.
const SITES_SHOWN: usize = 20;

/// What was never freed, device by device.
fn leaks(report: &Report) -> String {
    let device = |device: &crate::report::model::DeviceReport| {
        let sites = device.sites.as_ref()?;
        let live = &device.live_at_exit;
        Some(format!(
            "GPU {}, {}: {} {}, {} in pooled blocks\n{}",
            device.ordinal,
            printable(&device.name),
            human(live.bytes + device.external_bytes.current),
            if report.process.ended_by == EndedBy::Running { "not freed yet" } else { "never freed" },
            human(live.bytes),
            holders::stacks(sites, By::Live)
        ))
    };
    report.devices.iter().filter_map(device).collect::<Vec<_>>().join("\n")
}

/// Why a report that was made from a live file has none of what a setting is for, although the setting was made. None where
/// that is not the reason.
fn only_in_memory(loaded: &Loaded, key: &str, off: &str, what: &str) -> Option<Failure> {
    let fate = loaded.live?;
    let config = &loaded.report.config;
    config.iter().find(|setting| setting.key == key).filter(|setting| setting.value != off)?;
    let pid = loaded.report.process.pid;
    let next = match fate {
        Fate::Running | Fate::Elsewhere => format!(
            "`gpucache ctl {pid} report` has the process write them, with its report as of now, to where its GPUCACHE_REPORT \
             says"
        ),
        // As in the words of other commands: what is gone cannot be asked.
        Fate::Gone | Fate::Replaced => format!("they are lost: {}", find::fate_words(fate)),
    };
    Some(Failure::new(format!(
        "{}: {what} are not in a live file, only in the memory of the process; {next}",
        loaded.path.display()
    )))
}

/// Shows the files in their order.
pub fn show(args: &Show) -> Result<ExitCode, Failure> {
    let outputs = [("--trace", &args.trace), ("--memory-viz", &args.memory_viz), ("--html", &args.html)];
    let outputs: Vec<_> =
        outputs.iter().filter_map(|(option, path)| Some((*option, path.as_deref()?))).collect();
    output::check(&outputs, &args.files)?;
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
        if one.report.history.is_none()
            && let Some(failure) = only_in_memory(one, "history", "off", "the events of a history")
        {
            return Err(failure);
        }
        output::write(option, path, what, &export(&one.report)?)?;
        exported = true;
    }
    if let Some(path) = &args.html {
        let page = match &reports[..] {
            [one] => html::page(one, None),
            many => merge::page(many),
        };
        output::write("--html", path, "page", page.as_bytes())?;
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
    if args.leaks || args.folded.is_some() {
        for loaded in &reports {
            if loaded.report.devices.iter().all(|device| device.sites.is_none()) {
                if let Some(failure) = only_in_memory(loaded, "sites", "False", "samples of allocations") {
                    return Err(failure);
                }
                return Err(Failure::new(format!(
                    "{}: nothing was sampled in this run; GPUCACHE_CONF=sites:True does that",
                    loaded.path.display()
                )));
            }
        }
    }
    if let Some(what) = args.folded {
        let by = match what {
            Folded::Live => By::Live,
            Folded::Peak => By::Peak,
            Folded::Total => By::Total,
        };
        let sites =
            reports.iter().flat_map(|loaded| loaded.report.devices.iter().filter_map(|d| d.sites.as_ref()));
        print(&sites.map(|sites| sites.folded(by)).collect::<String>())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.leaks {
        let texts: Vec<_> = reports.iter().map(|loaded| leaks(&loaded.report)).collect();
        print(&texts.join("\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let texts: Vec<_> = reports.iter().map(|loaded| to_text_with(&loaded.report, SITES_SHOWN)).collect();
    print(&texts.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}
