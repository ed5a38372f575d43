//! `gpucache ctl`: asks a running process for something, through the mailbox of its live file.

use crate::args::{Ask, Ctl};
use crate::failure::{Failure, STATUS, print};
use crate::find::{self, Process};
use crate::policy::bytes;
use crate::report::units::{human, printable};
use crate::stats::live::{self, Answer, Command, Fate, Unanswered};
use std::process::ExitCode;
use std::time::Duration;

/// Status where the process has said no.
const REFUSED: u8 = 1;
/// Status where the process has not answered yet.
const NOT_YET: u8 = 3;
/// Status where the cap has been changed, but not to what was asked for.
const LESS: u8 = 4;

/// Asks, waits for the answer, and says it.
pub fn ctl(args: &Ctl) -> Result<ExitCode, Failure> {
    let process = find::process(&args.process)?;
    let pid = process.view.identity.pid;
    if matches!(process.fate, Fate::Gone | Fate::Replaced) {
        return Err(Failure::new(format!(
            "process {pid} cannot be asked: {}; `gpucache report {}` shows what it left",
            find::fate_words(process.fate),
            process.path.display()
        )));
    }
    let command = command(&args.ask, &process)?;
    match live::ask(&process.path, command, Duration::from_secs_f64(args.wait)) {
        Ok(Answer::Done(value)) => {
            print(&format!("process {pid}: {}\n", done(command, value, &process)))?;
            Ok(if is_less(command, value) { ExitCode::from(LESS) } else { ExitCode::SUCCESS })
        }
        Ok(Answer::Written(file)) => {
            print(&format!("process {pid}: report written to {}\n", printable(&file)))?;
            Ok(ExitCode::SUCCESS)
        }
        Ok(Answer::Refused(why)) => Err(Failure::new(format!("process {pid} refused: {why}")).with_status(REFUSED)),
        Err(Unanswered::NotYet) => Err(Failure::new(format!(
            "process {pid} has not answered within {} s: a thread of it looks when it has made some more CUDA \
             allocations or frees, and will do what was asked then",
            args.wait
        ))
        .with_status(NOT_YET)),
        Err(Unanswered::Gone) => {
            Err(Failure::new(format!("process {pid} has ended without an answer")).with_status(STATUS))
        }
        Err(why) => Err(Failure::new(format!("process {pid}: {why}"))),
    }
}

/// What is asked, in the mailbox's terms.
fn command(ask: &Ask, process: &Process) -> Result<Command, Failure> {
    Ok(match ask {
        Ask::EmptyCache => Command::EmptyCache,
        Ask::Report => Command::Report,
        Ask::ResetPeak => Command::ResetPeak,
        Ask::Limit { size, device } => {
            Command::Limit { device: chosen(*device, process)?, bytes: limit(size)? }
        }
    })
}

/// The cap that is asked for; `none` is as much as was configured.
fn limit(size: &str) -> Result<u64, Failure> {
    let fail = |why: &str| Failure::new(format!("limit {size}: {why}"));
    if size == "none" {
        return Ok(u64::MAX);
    }
    let limit =
        bytes::parse(size).map_err(|error| fail(&format!("{error}; or `none` for the configured cap")))?;
    // As in GPUCACHE_CONF: a number that small lacks its unit.
    if limit > 0 && limit < 2 << 20 {
        return Err(fail("that is less than 2 MiB, the least that a driver hands out; is its unit missing?"));
    }
    Ok(limit)
}

/// The device that is meant; where none is named, the only one that the process uses.
fn chosen(device: Option<u32>, process: &Process) -> Result<u32, Failure> {
    let devices: Vec<u32> =
        process.view.devices.iter().filter(|device| device.was_used()).map(|device| device.ordinal).collect();
    match (device, &devices[..]) {
        (Some(device), _) => Ok(device),
        (None, [only]) => Ok(*only),
        (None, []) => Ok(0),
        (None, _) => {
            let list: Vec<_> = devices.iter().map(u32::to_string).collect();
            Err(Failure::new(format!(
                "process {} uses the devices {}; name one with --device",
                process.view.identity.pid,
                list.join(", ")
            )))
        }
    }
}

/// Whether the cap that now holds is not the one that was asked for.
fn is_less(command: Command, value: u64) -> bool {
    matches!(command, Command::Limit { bytes, .. } if bytes != value && bytes != u64::MAX)
}

/// What was done, in words.
fn done(command: Command, value: u64, process: &Process) -> String {
    match command {
        Command::EmptyCache => format!("{} given back to the driver", human(value)),
        Command::ResetPeak => {
            "its peaks begin anew, but for those of the report, which are the whole process's".into()
        }
        Command::Report => {
            let config = &process.view.identity.config;
            let place = config.iter().find(|setting| setting.key == "GPUCACHE_REPORT");
            match place.map(|setting| setting.value.as_str()) {
                None | Some("stderr") => "report written to its stderr".to_owned(),
                // Of an earlier version, or with a name that is too long for an answer.
                Some(template) => format!("report written to where its GPUCACHE_REPORT says, {template}"),
            }
        }
        Command::Limit { device, bytes } => {
            let less = if is_less(command, value) {
                format!(", the configured one, and not {}: it cannot be raised above that", human(bytes))
            } else {
                String::new()
            };
            let held = find::at(&process.path).ok().and_then(|now| held(&now, device)).unwrap_or(0);
            let above = match held.saturating_sub(value) {
                0 => String::new(),
                _ => format!("; {} are held, and go back as they become idle", human(held)),
            };
            format!("the cap of GPU {device} is {}{less}{above}", human(value))
        }
    }
}

/// What counts against a device's cap.
fn held(process: &Process, device: u32) -> Option<u64> {
    let device = process.view.devices.iter().find(|of| of.ordinal == device)?;
    Some(device.reserved_bytes.current + device.external_bytes.current)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caps_are_read_as_in_the_configuration() {
        assert_eq!(limit("6GiB").unwrap(), 6 << 30);
        assert_eq!((limit("0").unwrap(), limit("none").unwrap()), (0, u64::MAX));
        for (bad, what) in [("6GB", "(8GiB)"), ("6", "unit missing"), ("-1", "digit"), ("", "none")] {
            let text = limit(bad).unwrap_err().to_string();
            assert!(text.contains(what), "{bad}: {text}");
        }
    }
}
