//! Reading reports: from files, and of processes that run or were killed from their live files. A file that is no report is
//! told by what it seems to be, because the wrong file is an everyday mistake.

use crate::demangle::demangle;
use crate::failure::Failure;
use crate::find;
use crate::report::model::SCHEMA_VERSION;
use crate::report::{Report, from_json, to_json};
use crate::stats::live::Fate;
use serde_json::Value;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A report and the file that it came from.
pub struct Loaded {
    pub path: PathBuf,
    pub report: Report,
    /// The file as it is, also with what this version of the model has no field for.
    pub text: String,
    /// Of a report that was made from a live file: what had become of the process.
    pub live: Option<Fate>,
}

/// Reads one report; `-` is the standard input, and a number, where no file has that name, is a process.
pub fn load(path: &Path) -> Result<Loaded, Failure> {
    if find::is_live_file(path) || find::number(path).is_some() && !path.exists() {
        return Ok(of_live(&find::process(path)?, path));
    }
    let bytes = read(path).map_err(|what| fault(path, &what))?;
    let mut report = parse(&bytes).map_err(|what| fault(path, &what))?;
    demangle(&mut report);
    let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
    Ok(Loaded { path: path.to_owned(), report, text, live: None })
}

/// The report that a live file holds.
pub fn of_live(process: &find::Process, named: &Path) -> Loaded {
    let mut report = process.view.report(process.fate);
    if process.fate == Fate::Elsewhere {
        report.notes.push(
            "the process is in another container: whether it still runs cannot be seen from here".into(),
        );
    }
    let text = to_json(&report);
    Loaded { path: named.to_owned(), report, text, live: Some(process.fate) }
}

/// Reads several reports, each once.
pub fn load_all(paths: &[PathBuf]) -> Result<Vec<Loaded>, Failure> {
    for (i, path) in paths.iter().enumerate() {
        if paths[..i].contains(path) {
            return Err(fault(path, "it is named twice"));
        }
    }
    paths.iter().map(|path| load(path)).collect()
}

fn fault(path: &Path, what: &str) -> Failure {
    Failure::new(format!("{}: {what}", path.display()))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        io::stdin().read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        return Ok(bytes);
    }
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(
                "there is no such file; `gpucache run --report FILE` or GPUCACHE_REPORT=FILE writes one"
                    .into(),
            );
        }
        Err(error) => return Err(error.to_string()),
        Ok(meta) if meta.is_dir() => return Err("it is a folder; name the report files in it".into()),
        Ok(_) => {}
    }
    fs::read(path).map_err(|error| error.to_string())
}

/// The report, or what is wrong.
fn parse(bytes: &[u8]) -> Result<Report, String> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err("it is no report: not text".into());
    };
    if text.trim().is_empty() {
        return Err("it is empty; a report is written whole, so this is none".into());
    }
    if text.starts_with("gpucache[") {
        return Err(
            "it is the text of a report; the tool reads the JSON, which `gpucache run --report FILE` or \
                    GPUCACHE_REPORT=FILE writes"
                .into(),
        );
    }
    let raw: Value = serde_json::from_str(text).map_err(|error| {
        if error.is_eof() {
            format!("it is cut short: {error}; a report is written whole, so it was cut when it was copied")
        } else {
            format!("it is no report: not JSON ({error})")
        }
    })?;
    if raw.get("merged_reports").is_some() {
        return Err("it is a merged report; give the reports that it was made of".into());
    }
    match raw.get("schema_version").map(Value::as_u64) {
        None => return Err("it is JSON, but no report of gpucache: it has no schema_version".into()),
        Some(Some(version)) if version > u64::from(SCHEMA_VERSION) => {
            return Err(format!(
                "it has schema_version {version}, this tool reads {SCHEMA_VERSION}: it was written by a newer version of \
                 the library, read it with the tool of that version"
            ));
        }
        Some(Some(1..)) => {}
        Some(_) => return Err("it is no report of gpucache: its schema_version is not a version".into()),
    }
    from_json(text).map_err(|error| format!("it is a damaged report: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{sample, to_json};

    fn what(text: &str) -> String {
        parse(text.as_bytes()).err().unwrap()
    }

    #[test]
    fn a_report_is_read_with_what_was_invented_later() {
        let mut json = serde_json::to_value(sample::training()).unwrap();
        json["invented_later"] = 1.into();
        assert_eq!(parse(json.to_string().as_bytes()).unwrap(), sample::training());
    }

    #[test]
    fn whatever_is_no_report_is_told_by_what_it_is() {
        let whole = to_json(&sample::training());
        for cut in [1, 100, whole.len() / 2, whole.len() - 3] {
            assert!(what(&whole[..cut]).contains("cut short"), "{cut}: {}", what(&whole[..cut]));
        }
        assert!(what("").contains("empty"));
        assert!(what("gpucache[1]: train").contains("text of a report"));
        assert!(what("hello").contains("not JSON"));
        assert!(what("{}").contains("no schema_version"));
        assert!(what("[1]").contains("no schema_version"));
        assert!(what("{\"schema_version\": \"one\"}").contains("not a version"));
        assert!(what("{\"schema_version\": 0}").contains("not a version"));
        assert!(what("{\"schema_version\": 2}").contains("newer version"));
        let damaged = what("{\"schema_version\": 1}");
        assert!(damaged.contains("damaged") && damaged.contains("process"), "{damaged}");
        assert!(parse(&[0xff, 0xfe]).err().unwrap().contains("not text"));
    }
}
