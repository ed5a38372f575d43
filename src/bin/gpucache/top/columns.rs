//! Rows of figures, one for each device of a process, and the columns by which they are shown and sorted.

use super::watcher::{Known, State, Watcher};
use crate::report::model::DeviceReport;
use crate::report::units::{grouped, human, printable};
use clap::ValueEnum;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::path::{Path, PathBuf};

/// What a row is found by again: the file, and the device in it.
pub type Key = (PathBuf, Option<u32>);

/// One device of a process; a process that has used none yet has a row of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub key: Key,
    pub pid: u32,
    pub command: String,
    pub state: State,
    pub device: Option<u32>,
    pub allocated: u64,
    pub reserved: u64,
    /// The cap, where there is one.
    pub limit: Option<u64>,
    pub peak: u64,
    pub fragmentation: f64,
    /// Allocations a second; none after the end.
    pub rate: Option<f64>,
    /// Share of allocations served without a driver call: since the last look, or of the life.
    pub hits: Option<f64>,
    pub ooms: u64,
}

impl Row {
    fn of(path: &Path, known: &Known, device: Option<&DeviceReport>) -> Row {
        let identity = &known.view.identity;
        let ordinal = device.map(|device| device.ordinal);
        let rates = ordinal.and_then(|ordinal| known.histories.get(&ordinal)?.rates());
        let rates = rates.filter(|_| !known.state.is_over());
        let life = |device: &DeviceReport| {
            let (hits, allocs) = (device.counts.cache_hit, device.counts.alloc);
            (allocs > 0).then(|| hits.min(allocs) as f64 / allocs as f64)
        };
        Row {
            key: (path.to_owned(), ordinal),
            pid: identity.pid,
            command: printable(&identity.command),
            state: known.state,
            device: ordinal,
            allocated: device.map_or(0, |device| device.allocated_bytes.current),
            reserved: device.map_or(0, |device| device.reserved_bytes.current),
            limit: device.filter(|device| device.is_capped()).map(|device| device.limit_bytes),
            peak: device.map_or(0, |device| device.reserved_bytes.peak),
            fragmentation: device.map_or(0.0, |device| device.fragmentation.at_exit),
            rate: rates.map(|rates| rates.allocs),
            hits: rates.and_then(|rates| rates.hits).or_else(|| life(device?)),
            ooms: device.map_or(0, |device| device.counts.oom),
        }
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        json!({
            "pid": self.pid,
            "command": self.command,
            "state": self.state.as_str(),
            "device": self.device,
            "allocated_bytes": self.allocated,
            "reserved_bytes": self.reserved,
            "limit_bytes": self.limit,
            "reserved_peak_bytes": self.peak,
            "fragmentation": self.fragmentation,
            "allocs_per_second": self.rate,
            "hit_rate": self.hits,
            "oom": self.ooms,
            "file": self.key.0.to_string_lossy(),
        })
    }
}

/// All rows of what is known, in order: what has ended behind what runs.
pub fn rows(watcher: &Watcher, order: Order, ended: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for (path, known) in &watcher.known {
        if known.state.is_over() && !ended {
            continue;
        }
        let before = rows.len();
        rows.extend(known.devices().map(|device| Row::of(path, known, Some(device))));
        if rows.len() == before {
            rows.push(Row::of(path, known, None));
        }
    }
    rows.sort_by(|a, b| a.state.is_over().cmp(&b.state.is_over()).then_with(|| order.compare(a, b)));
    rows
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Column {
    Pid,
    Command,
    Device,
    Allocated,
    Reserved,
    Limit,
    Peak,
    Fragmentation,
    /// Allocations a second
    #[value(name = "allocs")]
    Rate,
    /// Share of allocations that needed no driver call
    Hits,
    /// Requests answered with out of memory
    #[value(name = "oom")]
    Ooms,
    State,
}

/// How rows are sorted: the highest first, or the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    pub by: Column,
    pub reversed: bool,
}

impl Order {
    fn compare(self, a: &Row, b: &Row) -> Ordering {
        let order = match self.by {
            Column::Pid => b.pid.cmp(&a.pid),
            // Names from the beginning of the alphabet.
            Column::Command => a.command.cmp(&b.command),
            Column::Device => b.device.cmp(&a.device),
            Column::Allocated => b.allocated.cmp(&a.allocated),
            Column::Reserved => b.reserved.cmp(&a.reserved),
            Column::Limit => b.limit.cmp(&a.limit),
            Column::Peak => b.peak.cmp(&a.peak),
            Column::Fragmentation => b.fragmentation.total_cmp(&a.fragmentation),
            Column::Rate => option(b.rate, a.rate),
            Column::Hits => option(b.hits, a.hits),
            Column::Ooms => b.ooms.cmp(&a.ooms),
            Column::State => a.state.cmp(&b.state),
        };
        let order = if self.reversed { order.reverse() } else { order };
        // Equal ones must not change places from look to look.
        order.then_with(|| a.key.cmp(&b.key))
    }
}

/// None below everything.
fn option(a: Option<f64>, b: Option<f64>) -> Ordering {
    a.unwrap_or(-1.0).total_cmp(&b.unwrap_or(-1.0))
}

impl Column {
    /// From left to right, the command last where there is room without end.
    pub const ALL: [Column; 12] = [
        Column::Pid,
        Column::Command,
        Column::Device,
        Column::Allocated,
        Column::Reserved,
        Column::Limit,
        Column::Peak,
        Column::Fragmentation,
        Column::Rate,
        Column::Hits,
        Column::Ooms,
        Column::State,
    ];

    /// Its title, as short as on a screen.
    pub fn title(self) -> &'static str {
        match self {
            Column::Pid => "PID",
            Column::Command => "COMMAND",
            Column::Device => "GPU",
            Column::Allocated => "ALLOC",
            Column::Reserved => "RESV",
            Column::Limit => "LIMIT",
            Column::Peak => "PEAK",
            Column::Fragmentation => "FRAG",
            Column::Rate => "ALLOC/S",
            Column::Hits => "HIT%",
            Column::Ooms => "OOM",
            Column::State => "STATE",
        }
    }

    /// Its name, as `--sort` takes it.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The column so many places further.
    pub fn step(self, by: usize) -> Column {
        let at = Self::ALL.iter().position(|column| *column == self).unwrap_or(0);
        Self::ALL[(at + by) % Self::ALL.len()]
    }

    /// A row's cell. `bytes` writes sizes.
    pub fn cell(self, row: &Row, bytes: fn(u64) -> String) -> String {
        let used = row.device.is_some();
        let figure = |value: u64| if used { bytes(value) } else { "-".to_owned() };
        match self {
            Column::Pid => row.pid.to_string(),
            Column::Command => row.command.clone(),
            Column::Device => row.device.map_or("-".to_owned(), |device| device.to_string()),
            Column::Allocated => figure(row.allocated),
            Column::Reserved => figure(row.reserved),
            Column::Limit => row.limit.map_or("-".to_owned(), bytes),
            Column::Peak => figure(row.peak),
            Column::Fragmentation if used => format!("{:.2}", row.fragmentation),
            Column::Fragmentation => "-".to_owned(),
            Column::Rate => row.rate.map_or("-".to_owned(), count),
            Column::Hits => row.hits.map_or("-".to_owned(), percent),
            Column::Ooms => grouped(row.ooms),
            Column::State => row.state.as_str().to_owned(),
        }
    }
}

/// A command without the folders before its first word, for where there is none.
pub fn brief(command: &str) -> &str {
    let first = command.split(' ').next().unwrap_or_default();
    &command[first.rfind('/').map_or(0, |slash| slash + 1)..]
}

/// A size with all its digits, for where there is room.
pub fn long(bytes: u64) -> String {
    human(bytes)
}

/// A size in five characters: `8.25G`, `96.0M`, `1023K`.
pub fn short(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "K", "M", "G", "T", "P", "E"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{}", UNITS[unit])
}

/// A count in at most five characters: `950`, `12.3k`, `1.20M`.
pub fn count(value: f64) -> String {
    match value {
        value if value < 9.95 && value > 0.0 => format!("{value:.1}"),
        value if value < 999.5 => format!("{value:.0}"),
        value if value < 99_950.0 => format!("{:.1}k", value / 1e3),
        value if value < 999_500.0 => format!("{:.0}k", value / 1e3),
        value => format!("{:.2}M", value / 1e6),
    }
}

/// A share in per cent; 100 only if it is.
pub fn percent(share: f64) -> String {
    if share >= 1.0 { "100".to_owned() } else { format!("{:.1}", (share * 1000.0).floor() / 10.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_fit_their_columns() {
        for bytes in (0..64).flat_map(|shift| [(1_u64 << shift) - 1, 1 << shift, (1 << shift) / 10 * 11]) {
            assert!(short(bytes).len() <= 5, "{bytes}: {}", short(bytes));
        }
        assert_eq!(short(8_858_370_048), "8.25G");
        assert_eq!((short(0), short(1023), short(1024)), ("0B".into(), "1023B".into(), "1.00K".into()));
        assert_eq!((short(1 << 30), short((1 << 30) - 1)), ("1.00G".into(), "1.00G".into()));
        for (value, text) in [(0.0, "0"), (0.25, "0.2"), (12.0, "12"), (12_345.0, "12.3k"), (4.8e6, "4.80M")]
        {
            assert_eq!(count(value), text);
        }
        assert_eq!(
            (percent(1.0), percent(0.99999), percent(0.5)),
            ("100".into(), "99.9".into(), "50.0".into())
        );
    }

    fn row(pid: u32, reserved: u64) -> Row {
        Row {
            key: (PathBuf::from(format!("{pid}")), Some(0)),
            pid,
            command: format!("program {}", 9 - pid % 10),
            state: State::Running,
            device: Some(0),
            allocated: 0,
            reserved,
            limit: None,
            peak: reserved,
            fragmentation: 0.0,
            rate: (pid == 2).then_some(5.0),
            hits: None,
            ooms: 0,
        }
    }

    #[test]
    fn rows_are_sorted_and_equal_ones_stay() {
        let sorted = |by, reversed| {
            let mut rows = [row(1, 5), row(2, 7), row(3, 5)];
            rows.sort_by(|a, b| Order { by, reversed }.compare(a, b));
            rows.map(|row| row.pid)
        };
        assert_eq!(sorted(Column::Reserved, false), [2, 1, 3]);
        assert_eq!(sorted(Column::Reserved, true), [1, 3, 2]);
        assert_eq!(sorted(Column::Rate, false), [2, 1, 3]);
        assert_eq!(sorted(Column::Command, false), [3, 2, 1]);
        assert_eq!(sorted(Column::Ooms, false), [1, 2, 3]);
        let all: Vec<Column> = (0..12).map(|by| Column::Pid.step(by)).collect();
        assert_eq!(all, Column::ALL);
    }
}
