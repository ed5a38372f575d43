//! The report as a page: one file, without scripts and without anything from elsewhere, so that it can be mailed, archived
//! and opened in ten years. What it says is gathered here as plain data; how it looks is in the templates and `style.css`.
//!
//! | file | what it does |
//! |---|---|
//! | `device.rs` | one device's figures as the page shows them |
//! | `bars.rs` | lengths of bars, against the cap |
//! | `history.rs`, `segments.rs`, `sites.rs` | sections that are there when the report has their data |
//! | `page.html`, `device.html`, `sites.html`, `merged.html`, `base.html`, `style.css` | how it looks |

mod bars;
mod device;
mod history;
mod segments;
mod sites;

use crate::load::Loaded;
use crate::merge::{Merged, above};
use crate::report::advice::advise;
use crate::report::model::{DEFAULT_SOURCE, DeviceReport, Report, Setting};
use crate::report::units::{counted, duration, printable};
use askama::Template;
use device::Device;

/// The look, which every page carries with it.
const STYLE: &str = include_str!("style.css");

/// A report's page.
#[derive(Template)]
#[template(path = "page.html")]
struct Page {
    style: &'static str,
    version: &'static str,
    command: String,
    facts: Vec<String>,
    verdict: Verdict,
    advice: Vec<(u32, String)>,
    devices: Vec<Device>,
    timelines: Vec<history::Timeline>,
    maps: Vec<segments::Map>,
    set: Vec<Setting>,
    defaults: Vec<Setting>,
    notes: Vec<String>,
}

/// How it went, in a word and a colour.
struct Verdict {
    class: &'static str,
    text: String,
}

/// The page of one report. `outcome` is how the program ended, where that is known.
pub fn page(loaded: &Loaded, outcome: Option<&str>) -> String {
    let report = &loaded.report;
    let process = &report.process;
    let mut facts =
        vec![format!("process {}", process.pid), duration(process.duration_s), process.ended_by.in_words()];
    facts.extend(outcome.map(str::to_owned));
    let (defaults, set) = report.config.iter().cloned().partition(|setting| setting.source == DEFAULT_SOURCE);
    let page = Page {
        style: STYLE,
        version: env!("CARGO_PKG_VERSION"),
        command: printable(&process.command),
        facts,
        verdict: verdict(report),
        advice: advise(report).into_iter().map(|advice| (advice.device, advice.text)).collect(),
        devices: report.devices.iter().filter(|d| d.was_used()).map(|d| Device::of(d, report)).collect(),
        timelines: history::timelines(report),
        maps: segments::maps(report),
        set,
        defaults,
        notes: report.notes.iter().map(|note| printable(note)).collect(),
    };
    rendered(&page)
}

fn verdict(report: &Report) -> Verdict {
    let count = |of: fn(&DeviceReport) -> u64| report.devices.iter().map(of).sum::<u64>();
    let (oom, invalid) = (count(|d| d.counts.oom), count(|d| d.counts.invalid_free));
    if oom > 0 {
        return Verdict { class: "bad", text: format!("out of memory {}", counted(oom, "time")) };
    }
    if invalid > 0 {
        return Verdict { class: "warn", text: counted(invalid, "invalid free") };
    }
    if !report.devices.iter().any(DeviceReport::was_used) {
        return Verdict { class: "warn", text: "no device memory was allocated".to_owned() };
    }
    Verdict { class: "good", text: "no request failed".to_owned() }
}

/// The page of a job.
#[derive(Template)]
#[template(path = "merged.html")]
struct MergedPage<'a> {
    style: &'static str,
    version: &'static str,
    command: String,
    facts: Vec<String>,
    verdict: Verdict,
    points: Vec<(&'static str, String)>,
    charts: Vec<RankChart>,
    rows: Vec<MergedRow>,
    ranks: Vec<RankRow<'a>>,
    notes: Vec<String>,
}

/// One figure of every rank as bars.
struct RankChart {
    title: &'static str,
    /// Name, length in thousandths, value.
    bars: Vec<(String, f64, String)>,
}

struct MergedRow {
    label: &'static str,
    sum: String,
    mean: String,
    least: String,
    least_in: String,
    most: String,
    most_in: String,
    above: String,
}

struct RankRow<'a> {
    name: &'a str,
    pid: u32,
    duration: String,
    ended_by: &'a str,
    devices: String,
}

/// Figures of which the page of a job shows every rank.
const CHARTED: [&str; 4] =
    ["reserved_bytes_peak", "allocated_bytes_peak", "fragmentation_at_peak", "driver_alloc_ns"];

/// The page of the reports of one job.
pub fn merged_page(merged: &Merged, reports: &[Loaded]) -> String {
    let name = |rank: usize| printable(&merged.ranks[rank].name);
    let mut points = Vec::new();
    let (slowest, share) = merged.slowest;
    let longest = duration(merged.ranks[slowest].duration_s);
    points.push(("slowest", format!("{}, {longest}, {} above the mean", name(slowest), above(share))));
    points.extend(merged.most_fragmented.map(|rank| ("most fragmented", name(rank))));
    let out_of_memory: Vec<_> = merged.out_of_memory.iter().map(|&rank| name(rank)).collect();
    let verdict = if out_of_memory.is_empty() {
        Verdict { class: "good", text: "no request failed".to_owned() }
    } else {
        points.push(("out of memory", out_of_memory.join(", ")));
        Verdict {
            class: "bad",
            text: format!("out of memory in {} of {}", out_of_memory.len(), merged.ranks.len()),
        }
    };
    let page = MergedPage {
        style: STYLE,
        version: env!("CARGO_PKG_VERSION"),
        command: printable(merged.ranks.first().map_or("", |rank| &rank.command)),
        facts: vec![counted(merged.ranks.len() as u64, "report")],
        verdict,
        points,
        charts: rank_charts(merged),
        rows: merged.rows.iter().map(|row| merged_row(row, &name)).collect(),
        ranks: merged
            .ranks
            .iter()
            .zip(reports)
            .map(|(rank, loaded)| RankRow {
                name: &rank.name,
                pid: rank.pid,
                duration: duration(rank.duration_s),
                ended_by: rank.ended_by,
                devices: device_names(&loaded.report),
            })
            .collect(),
        notes: merged.notes.iter().map(|note| printable(note)).collect(),
    };
    rendered(&page)
}

fn merged_row(row: &crate::merge::Row, name: &dyn Fn(usize) -> String) -> MergedRow {
    let show = |value| row.figure.unit.show(value);
    MergedRow {
        label: row.figure.label,
        sum: row.shown_sum(),
        mean: row.shown_mean(),
        least: show(row.least.0),
        least_in: name(row.least.1),
        most: show(row.most.0),
        most_in: name(row.most.1),
        above: above(row.imbalance),
    }
}

fn rank_charts(merged: &Merged) -> Vec<RankChart> {
    let charted = merged.rows.iter().filter(|row| CHARTED.contains(&row.figure.key));
    let chart = |row: &crate::merge::Row| {
        let index = crate::figures::FIGURES.iter().position(|figure| figure.key == row.figure.key);
        let bars = merged.ranks.iter().map(|rank| {
            let value = index.map_or(0.0, |index| rank.values[index]);
            (printable(&rank.name), bars::share(value, row.most.0), row.figure.unit.show(value))
        });
        RankChart { title: row.figure.label, bars: bars.collect() }
    };
    charted.map(chart).collect()
}

fn device_names(report: &Report) -> String {
    let names =
        report.devices.iter().map(|device| format!("GPU {} {}", device.ordinal, printable(&device.name)));
    names.collect::<Vec<_>>().join(", ")
}

/// Rendering to memory cannot fail: every value is text already.
fn rendered(page: &impl Template) -> String {
    page.render().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn loaded(report: Report) -> Loaded {
        let text = crate::report::to_json(&report);
        Loaded { path: "r.json".into(), report, text, live: None }
    }

    #[test]
    fn a_page_needs_nothing_from_elsewhere() {
        let reports = [loaded(sample::training()), loaded(sample::failure())];
        let job = merged_page(&crate::merge::merged(&reports), &reports);
        for text in [page(&reports[0], None), page(&reports[1], Some("status 1")), job] {
            assert!(text.starts_with("<!doctype html>") && text.trim_end().ends_with("</html>"));
            assert!(text.contains("default-src 'none'"));
            for outside in ["http:", "https:", "src=", "<script", "@import", "url("] {
                assert!(!text.contains(outside), "{outside}");
            }
        }
    }

    #[test]
    fn what_a_program_is_called_is_text_and_no_markup() {
        let mut report = sample::failure();
        report.process.command = "<script>alert(1)</script> & \u{1b}[31m".into();
        report.notes = vec!["<u>".into()];
        report.devices[0].name = "\"><img>".into();
        report.config[0].value = "<i>".into();
        let text = page(&loaded(report), None);
        assert!(!["<script", "<u>", "<img", "<i>", "\u{1b}"].iter().any(|markup| text.contains(markup)));
    }

    #[test]
    fn the_outcome_is_seen_at_once() {
        assert_eq!(verdict(&sample::training()).class, "good");
        assert_eq!(verdict(&sample::failure()).text, "out of memory 2 times");
        let mut report = sample::training();
        report.devices.clear();
        assert_eq!(verdict(&report).class, "warn");
    }
}
