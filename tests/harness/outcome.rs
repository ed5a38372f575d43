//! What a program did: its status, its output, the library's report and the simulated driver's own count of things.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitStatus;

/// The end of one run.
pub struct Outcome {
    what: String,
    /// How it ended.
    pub status: ExitStatus,
    /// All of its stdout.
    pub stdout: String,
    /// All of its stderr.
    pub stderr: String,
    /// The JSON report, if there is one.
    pub report: Option<Value>,
    /// The simulated driver's figures, if the program used it: calls by name, and `peak_used_bytes` and the like.
    pub stats: BTreeMap<String, u64>,
    /// The program's working directory, of this run only.
    pub folder: PathBuf,
}

impl Outcome {
    pub(super) fn new(
        what: String,
        status: ExitStatus,
        stdout: String,
        stderr: String,
        folder: PathBuf,
    ) -> Self {
        let report = std::fs::read_to_string(folder.join("report.json")).ok().map(|text| {
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{what}: report: {e}\n{text}"))
        });
        let figures = std::fs::read_to_string(folder.join("stats")).unwrap_or_default();
        let counted = figures
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?)))
            .collect();
        Self { what, status, stdout, stderr, report, stats: counted, folder }
    }

    /// The same, having checked that it ended with status 0.
    pub fn ok(&self) -> &Self {
        assert!(self.status.success(), "{self}");
        self
    }

    /// The number after `name=` in stdout.
    pub fn printed(&self, name: &str) -> u64 {
        let number = self.stdout.split(&format!("{name}=")).nth(1).map(|rest| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        });
        number.flatten().unwrap_or_else(|| panic!("no {name}= in stdout of {self}"))
    }

    /// The report, which must be there.
    pub fn json(&self) -> &Value {
        self.report.as_ref().unwrap_or_else(|| panic!("no report of {self}"))
    }

    /// The report's section for one device.
    pub fn device(&self, ordinal: u64) -> &Value {
        self.json()["devices"]
            .as_array()
            .and_then(|devices| devices.iter().find(|d| d["ordinal"].as_u64() == Some(ordinal)))
            .unwrap_or_else(|| panic!("no device {ordinal} in the report of {self}"))
    }

    /// One of the report's gauges, such as `reserved_bytes` `peak`.
    pub fn gauge(&self, device: u64, name: &str, part: &str) -> u64 {
        let value = &self.device(device)[name][part];
        value.as_u64().unwrap_or_else(|| panic!("no {name}.{part} in the report of {self}"))
    }

    /// One of the report's counts, over all devices.
    pub fn count(&self, name: &str) -> u64 {
        let devices =
            self.json()["devices"].as_array().unwrap_or_else(|| panic!("no devices in the report of {self}"));
        devices
            .iter()
            .map(|d| {
                d["counts"][name]
                    .as_u64()
                    .unwrap_or_else(|| panic!("no counts.{name} in the report of {self}"))
            })
            .sum()
    }

    /// One of the simulated driver's figures; 0 if it counted no such thing.
    ///
    /// # Panics
    /// If the simulated driver wrote none at all.
    pub fn stat(&self, name: &str) -> u64 {
        assert!(!self.stats.is_empty(), "no figures of the simulated driver for {self}");
        self.stats.get(name).copied().unwrap_or(0)
    }

    /// The lines on stderr that the library wrote.
    pub fn library_lines(&self) -> Vec<&str> {
        self.stderr.lines().filter(|line| line.contains("gpucache")).collect()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.what, self.status)?;
        writeln!(f, "--- stdout\n{}", self.stdout)?;
        writeln!(f, "--- stderr\n{}", self.stderr)?;
        match &self.report {
            Some(report) => writeln!(f, "--- report\n{report:#}"),
            None => writeln!(f, "--- no report"),
        }
    }
}

impl Drop for Outcome {
    /// Keeps the folder of a failed run for looking into.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}
