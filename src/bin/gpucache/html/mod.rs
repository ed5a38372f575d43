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
    let shown = |setting: &Setting| Setting {
        key: printable(&setting.key),
        value: printable(&setting.value),
        source: printable(&setting.source),
        written_as: None,
    };
    let (defaults, set) =
        report.config.iter().map(shown).partition(|setting| setting.source == DEFAULT_SOURCE);
    let page = Page {
        style: STYLE,
        version: env!("CARGO_PKG_VERSION"),
        command: printable(&process.command),
        facts,
        verdict: verdict(report),
        advice: advise(report).into_iter().map(|advice| (advice.device, printable(&advice.text))).collect(),
        devices: report.devices.iter().filter(|d| d.was_used()).map(|d| Device::of(d, report)).collect(),
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
    /// How to make the page of one of them.
    alone: String,
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
    name: String,
    command: String,
    /// What else its own page shows.
    more: String,
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
        alone: alone(reports),
        points,
        charts: rank_charts(merged),
        rows: merged.rows.iter().map(|row| merged_row(row, &name)).collect(),
        ranks: merged
            .ranks
            .iter()
            .zip(reports)
            .map(|(rank, loaded)| RankRow {
                name: printable(&rank.name),
                command: printable(&rank.command),
                more: only_alone(&loaded.report),
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

/// What a page of one report shows and that of many does not.
fn only_alone(report: &Report) -> String {
    let any = |of: fn(&DeviceReport) -> bool| report.devices.iter().any(of);
    let has = [
        ("charts over time", report.history.is_some()),
        ("maps", any(|d| d.map_at_peak.is_some() || !d.segments.is_empty())),
        ("call sites", any(|d| d.sites.is_some())),
        ("out of memory", any(|d| d.counts.oom > 0)),
    ];
    let has: Vec<_> = has.into_iter().filter(|(_, has)| *has).map(|(what, _)| what).collect();
    has.join(", ")
}

/// How to make the page of one of these: of the first that has most to show there.
fn alone(reports: &[Loaded]) -> String {
    let most = reports.iter().enumerate().max_by_key(|(at, loaded)| {
        let what = only_alone(&loaded.report);
        (what.split(", ").filter(|what| !what.is_empty()).count(), std::cmp::Reverse(*at))
    });
    let file = most.map_or_else(|| "FILE".to_owned(), |(_, loaded)| loaded.path.display().to_string());
    printable(&format!("gpucache report {file} --html page.html"))
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

    /// A report with everything that a page can show.
    fn everything() -> Report {
        use crate::report::history::{ALLOCATED, Block, History, Sample, Segment};
        let mut report = sample::failure();
        let reading =
            |at_s| Sample { at_s, device: 0, reserved_bytes: 8 << 30, allocated_bytes: 1, external_bytes: 0 };
        report.history = Some(History { samples: vec![reading(0.0), reading(1.0)], ..History::default() });
        let block = Block { offset: 0, bytes: 512, state: ALLOCATED.into(), requested: 1, count: 1 };
        let device = &mut report.devices[0];
        device.segments = vec![Segment { bytes: 512, blocks: vec![block], ..Segment::default() }];
        device.sites = Some(sample::sites());
        device.size_histogram = sample::training().devices[0].size_histogram.clone();
        device.live_at_exit = sample::training().devices[0].live_at_exit.clone();
        report
    }

    #[test]
    fn what_is_looked_at_first_stands_first() {
        let text = page(&loaded(everything()), None);
        let places: Vec<_> = [
            "Where the memory was",
            "Out of memory</h3>",
            "Over time",
            "How the memory lay",
            "Who holds the memory",
            "Requests by size",
            "Calls</h3>",
            "Never freed",
            "Settings</h2>",
        ]
        .into_iter()
        .map(|part| text.find(part).unwrap_or_else(|| panic!("{part}: {text}")))
        .collect();
        assert!(places.is_sorted(), "{places:?}");
        assert_eq!(text.matches("Over time").count(), 1, "of the other device there is nothing");
    }

    #[test]
    fn of_a_process_that_runs_no_end_is_spoken_of() {
        let mut report = everything();
        report.process.ended_by = crate::report::model::EndedBy::Running;
        let text = page(&loaded(report), None);
        assert!(!text.contains("at the end") && !text.contains("ever freed"), "{text}");
        assert!(text.contains("Not freed yet") && text.contains("<h4>now "), "{text}");
    }

    #[test]
    fn a_page_of_many_says_what_each_ran_and_where_the_rest_is() {
        let named = |path: &str, report| Loaded { path: path.into(), ..loaded(report) };
        let reports = [named("a/plain.json", sample::training()), named("b/full.json", everything())];
        let text = merged_page(&crate::merge::merged(&reports), &reports);
        for part in [
            "<code>python train.py --batch 64</code>",
            "<code>./solver</code>",
            "<td>charts over time, maps, call sites, out of memory</td>",
            "<code>gpucache report b/full.json --html page.html</code>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn no_name_turns_the_text_of_a_page_round() {
        let turns = "\u{202e}nosj\u{2066}\u{200f}";
        let mut report = everything();
        report.process.command = turns.into();
        report.notes = vec![turns.into()];
        report.config[0].value = turns.into();
        report.config[0].written_as = Some(turns.into());
        let device = &mut report.devices[0];
        device.name = turns.into();
        device
            .external_by_kind
            .insert(turns.into(), crate::report::model::Gauge { peak: 1, ..Default::default() });
        device.fragmentation.at_oom[0].kind = turns.into();
        let told = device.fragmentation.at_oom[0].circumstances.get_or_insert_default();
        (told.thread_name, told.phase) = (turns.into(), turns.into());
        told.live_sites.push(crate::report::failure::SiteBytes { bytes: 1, place: turns.into() });
        let sites = device.sites.as_mut().unwrap();
        sites.python = turns.into();
        for frame in &mut sites.frames {
            frame.function = Some(turns.into());
        }
        sites.modules[0].path = turns.into();
        let reports = [Loaded { path: turns.into(), ..loaded(report) }, loaded(sample::training())];
        let job = merged_page(&crate::merge::merged(&reports), &reports);
        for text in [page(&reports[0], Some("status 1")), job] {
            let turned = text.find(['\u{202e}', '\u{2066}', '\u{200f}']);
            assert_eq!(turned.map(|at| &text[at.saturating_sub(80)..at]), None);
        }
    }
}
