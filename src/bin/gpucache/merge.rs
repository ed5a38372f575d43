//! `gpucache merge`: the reports of one job's processes as one: sums, the slowest, the most fragmented, and how uneven the
//! ranks are. The merged figures are plain data; text, JSON and page are made from them.

use crate::args::Merge;
use crate::failure::{Failure, print};
use crate::figures::{FIGURES, Figure, Unit};
use crate::load::{Loaded, load_all};
use crate::report::units::{counted, duration, printable};
use crate::table::aligned;
use crate::{html, output};
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;

/// One process of the job, its devices together.
pub struct Rank {
    /// Name of its file.
    pub name: String,
    pub pid: u32,
    pub command: String,
    pub duration_s: f64,
    pub ended_by: &'static str,
    /// One for each of [`FIGURES`].
    pub values: Vec<f64>,
}

/// A figure over all ranks.
pub struct Row {
    pub figure: &'static Figure,
    pub sum: f64,
    pub mean: f64,
    /// Value and the rank that has it.
    pub least: (f64, usize),
    pub most: (f64, usize),
    /// How far the most is above the mean: 0 if all are the same.
    pub imbalance: f64,
}

/// The job.
pub struct Merged {
    pub ranks: Vec<Rank>,
    /// Figures that any rank has.
    pub rows: Vec<Row>,
    /// The rank that ran longest, and how much longer than the mean.
    pub slowest: (usize, f64),
    /// The rank with the most fragmentation at its peak, if any has some.
    pub most_fragmented: Option<usize>,
    /// Ranks that ran out of memory.
    pub out_of_memory: Vec<usize>,
    pub notes: Vec<String>,
}

/// Merges and shows.
pub fn merge(args: &Merge) -> Result<ExitCode, Failure> {
    if let Some(path) = &args.html {
        output::check(&[("--html", path)], &args.files)?;
    }
    let reports = load_all(&args.files)?;
    if let Some(path) = &args.html {
        output::write("--html", path, "page", page(&reports).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let merged = merged(&reports);
    print(&if args.json { as_json(&merged) } else { as_text(&merged) })?;
    Ok(ExitCode::SUCCESS)
}

/// The page of several reports.
pub fn page(reports: &[Loaded]) -> String {
    html::merged_page(&merged(reports), reports)
}

/// The reports as one.
pub fn merged(reports: &[Loaded]) -> Merged {
    let ranks: Vec<Rank> = reports.iter().map(rank).collect();
    let rows = FIGURES.iter().enumerate().map(|(i, figure)| row(figure, i, &ranks));
    let rows: Vec<Row> = rows.filter(|row| row.most.0 > 0.0).collect();
    let index = |key: &str| FIGURES.iter().position(|figure| figure.key == key).unwrap_or(0);
    let longest = most(ranks.iter().map(|rank| rank.duration_s));
    let mean = ranks.iter().map(|rank| rank.duration_s).sum::<f64>() / ranks.len().max(1) as f64;
    let fragmentation = index("fragmentation_at_peak");
    let fragmented = most(ranks.iter().map(|rank| rank.values[fragmentation]));
    let oom = index("oom");
    let mut notes: Vec<String> = Vec::new();
    for note in reports.iter().flat_map(|loaded| &loaded.report.notes) {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    Merged {
        slowest: (longest.1, if mean > 0.0 { longest.0 / mean - 1.0 } else { 0.0 }),
        most_fragmented: (fragmented.0 > 0.0).then_some(fragmented.1),
        out_of_memory: (0..ranks.len()).filter(|&rank| ranks[rank].values[oom] > 0.0).collect(),
        ranks,
        rows,
        notes,
    }
}

fn rank(loaded: &Loaded) -> Rank {
    let report = &loaded.report;
    Rank {
        name: loaded.path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        pid: report.process.pid,
        command: report.process.command.clone(),
        duration_s: report.process.duration_s,
        ended_by: report.process.ended_by.as_str(),
        values: FIGURES.iter().map(|figure| figure.of_all(&report.devices)).collect(),
    }
}

/// The highest value and where it is, the first of equals.
fn most(values: impl Iterator<Item = f64>) -> (f64, usize) {
    let higher = |best: (f64, usize), (i, value)| if value > best.0 { (value, i) } else { best };
    values.enumerate().fold((f64::NEG_INFINITY, 0), higher)
}

fn row(figure: &'static Figure, index: usize, ranks: &[Rank]) -> Row {
    let values = || ranks.iter().map(|rank| rank.values[index]);
    let sum: f64 = values().sum();
    let mean = sum / ranks.len().max(1) as f64;
    let highest = most(values());
    let lowest = most(values().map(|value| -value));
    Row {
        figure,
        sum,
        mean,
        least: (-lowest.0, lowest.1),
        most: highest,
        imbalance: if mean > 0.0 { highest.0 / mean - 1.0 } else { 0.0 },
    }
}

/// Per cent above the mean.
pub fn above(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

impl Row {
    /// The sum, where there is one.
    pub fn shown_sum(&self) -> String {
        if self.figure.adds() { self.figure.unit.show(self.sum) } else { String::new() }
    }

    /// The mean. A count need not be whole.
    pub fn shown_mean(&self) -> String {
        if self.figure.unit == Unit::Count && self.mean < 10.0 {
            return format!("{:.1}", self.mean);
        }
        self.figure.unit.show(self.mean)
    }
}

fn as_text(merged: &Merged) -> String {
    // Writing to a string cannot fail: the results of `writeln!` are dropped throughout.
    let mut out = counted(merged.ranks.len() as u64, "report");
    let name = |rank: usize| printable(&merged.ranks[rank].name);
    if let Some(first) = merged.ranks.first() {
        let _ = writeln!(out, ", the first: {}", printable(&first.command));
    }
    let head = ["", "sum", "mean", "least", "", "most", "", "above the mean"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for row in &merged.rows {
        let show = |value: f64| row.figure.unit.show(value);
        rows.push(vec![
            row.figure.label.to_owned(),
            row.shown_sum(),
            row.shown_mean(),
            show(row.least.0),
            name(row.least.1),
            show(row.most.0),
            name(row.most.1),
            above(row.imbalance),
        ]);
    }
    out.push_str(&aligned(&rows));
    let (slowest, share) = merged.slowest;
    let _ = writeln!(
        out,
        "slowest: {}, {}, {} above the mean",
        name(slowest),
        duration(merged.ranks[slowest].duration_s),
        above(share)
    );
    if let Some(rank) = merged.most_fragmented {
        let _ = writeln!(out, "most fragmented: {}", name(rank));
    }
    if !merged.out_of_memory.is_empty() {
        let names: Vec<_> = merged.out_of_memory.iter().map(|&rank| name(rank)).collect();
        let _ = writeln!(out, "out of memory: {}", names.join(", "));
    }
    for note in &merged.notes {
        let _ = writeln!(out, "note: {}", printable(note));
    }
    out
}

fn as_json(merged: &Merged) -> String {
    let figures = merged.rows.iter().map(|row| {
        let name = |rank: usize| merged.ranks[rank].name.clone();
        let value = json!({
            "sum": row.figure.adds().then_some(row.sum),
            "mean": row.mean,
            "least": row.least.0,
            "least_in": name(row.least.1),
            "most": row.most.0,
            "most_in": name(row.most.1),
            "above_mean": row.imbalance,
        });
        (row.figure.key.to_owned(), value)
    });
    let ranks = merged.ranks.iter().map(|rank| {
        let values =
            FIGURES.iter().zip(&rank.values).map(|(figure, value)| (figure.key.to_owned(), json!(value)));
        json!({
            "name": rank.name,
            "pid": rank.pid,
            "command": rank.command,
            "duration_s": rank.duration_s,
            "ended_by": rank.ended_by,
            "figures": values.collect::<serde_json::Map<_, _>>(),
        })
    });
    let value = json!({
        "merged_reports": merged.ranks.len(),
        "figures": figures.collect::<serde_json::Map<_, _>>(),
        "slowest": { "name": merged.ranks[merged.slowest.0].name, "above_mean": merged.slowest.1 },
        "most_fragmented": merged.most_fragmented.map(|rank| merged.ranks[rank].name.clone()),
        "out_of_memory": merged.out_of_memory.iter().map(|&rank| merged.ranks[rank].name.clone()).collect::<Vec<_>>(),
        "ranks": ranks.collect::<Vec<_>>(),
        "notes": merged.notes,
    });
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Report, sample};

    fn loaded(name: &str, report: Report) -> Loaded {
        let text = crate::report::to_json(&report);
        Loaded { path: name.into(), report, text, live: None }
    }

    fn figure<'a>(merged: &'a Merged, key: &str) -> &'a Row {
        merged.rows.iter().find(|row| row.figure.key == key).unwrap()
    }

    #[test]
    fn sums_extremes_and_imbalance() {
        let merged = merged(&[loaded("a.json", sample::training()), loaded("b.json", sample::failure())]);
        let alloc = figure(&merged, "alloc");
        assert_eq!((alloc.sum, alloc.least, alloc.most), (29_950.0, (100.0, 1), (29_850.0, 0)));
        assert!((alloc.imbalance - (29_850.0 / 14_975.0 - 1.0)).abs() < 1e-9);
        assert_eq!(figure(&merged, "fragmentation_at_peak").shown_sum(), "", "no sum of fragmentations");
        assert_eq!(
            (merged.slowest.0, merged.most_fragmented, &*merged.out_of_memory),
            (0, Some(1), &[1][..])
        );
        assert_eq!(merged.notes.len(), 1);
        assert!(merged.rows.iter().all(|row| row.figure.key != "gc"), "what no rank has is left out");
    }

    #[test]
    #[allow(clippy::float_cmp)] // Whole numbers.
    fn devices_of_one_process_add_up() {
        let merged = merged(&[loaded("b.json", sample::failure())]);
        assert_eq!(figure(&merged, "external_bytes_peak").sum, f64::from(1 << 30));
        assert_eq!(merged.ranks[0].values[6], 0.0, "the closest approach is the least of its devices'");
    }
}
