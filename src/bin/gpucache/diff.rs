//! `gpucache diff`: what changed from one report to another. What is compared is plain data; the text is made from it.

use crate::args::Diff;
use crate::failure::{Failure, print};
use crate::figures::{FIGURES, Figure, Unit, relative, show_relative};
use crate::load::{Loaded, load};
use crate::report::Report;
use crate::report::model::{DeviceReport, SizeBucket};
use crate::report::units::{counted, duration, human, printable};
use crate::sites::{self, Grown, grown_sites};
use crate::table::aligned;
use serde_json::{Value, json};
use std::fmt::Write;
use std::process::ExitCode;

/// Everything that two reports differ in.
struct Changes<'a> {
    devices: Vec<DeviceChange<'a>>,
    settings: Vec<SettingChange>,
    /// Notes that one of them lacks: in the first only, in the second only.
    notes: [Vec<String>; 2],
}

struct DeviceChange<'a> {
    ordinal: u32,
    name: String,
    /// Figures that differ, or all.
    figures: Vec<(&'a Figure, f64, f64)>,
    /// Sizes of never-freed blocks of which the second report has more: largest size, then both counts and bytes.
    grown: Vec<(u64, [u64; 2], [u64; 2])>,
    /// Sites of which the second report holds more at the end.
    sites: Vec<Grown>,
}

struct SettingChange {
    key: String,
    a: String,
    b: String,
}

/// Compares, shows, and decides about the status.
pub fn diff(args: &Diff) -> Result<ExitCode, Failure> {
    if !(0.0..=1e9).contains(&args.ignore) {
        return Err(Failure::new(format!(
            "--ignore {}: a number of per cent from 0 on is wanted",
            args.ignore
        )));
    }
    let (a, b) = (load(&args.a)?, load(&args.b)?);
    let changes = compare(&a.report, &b.report, args.ignore / 100.0, args.all);
    print(&if args.json { as_json(&a, &b, &changes) } else { as_text(&a, &b, &changes) })?;
    let differ = args.exit_code && changes.decide(args.ignore / 100.0);
    Ok(ExitCode::from(u8::from(differ)))
}

fn differs(figure: &(&Figure, f64, f64), ignore: f64) -> bool {
    let (_, a, b) = *figure;
    (a - b).abs() > ignore * a.abs()
}

impl Changes<'_> {
    /// Whether the reports differ in more than times.
    fn decide(&self, ignore: f64) -> bool {
        let figures = |device: &DeviceChange| {
            let mut decisive = device.figures.iter().filter(|(figure, ..)| figure.unit != Unit::Time);
            decisive.any(|figure| differs(figure, ignore))
        };
        !self.settings.is_empty() || self.devices.iter().any(figures)
    }
}

fn compare(a: &Report, b: &Report, ignore: f64, all: bool) -> Changes<'static> {
    let mut ordinals: Vec<u32> = a.devices.iter().chain(&b.devices).map(|device| device.ordinal).collect();
    ordinals.sort_unstable();
    ordinals.dedup();
    let devices = ordinals.into_iter().map(|ordinal| device(ordinal, a, b, ignore, all));
    let missing = |from: &Report, of: &Report| {
        of.notes.iter().filter(|note| !from.notes.contains(note)).cloned().collect()
    };
    Changes { devices: devices.collect(), settings: settings(a, b), notes: [missing(b, a), missing(a, b)] }
}

fn device(ordinal: u32, a: &Report, b: &Report, ignore: f64, all: bool) -> DeviceChange<'static> {
    let of = |report: &Report| report.devices.iter().find(|device| device.ordinal == ordinal).cloned();
    let (a, b) = (of(a), of(b));
    let name = [&b, &a].into_iter().flatten().map(|device| device.name.clone()).next().unwrap_or_default();
    let missing = match (&a, &b) {
        (None, _) => ", in the second report only",
        (_, None) => ", in the first report only",
        _ => "",
    };
    let (a, b) = (a.unwrap_or_default(), b.unwrap_or_default());
    let figures = FIGURES.iter().map(|figure| (figure, (figure.of)(&a), (figure.of)(&b)));
    let figures = figures.filter(|figure| all || differs(figure, ignore)).collect();
    let name = format!("{}{missing}", printable(&name));
    DeviceChange { ordinal, name, figures, grown: grown(&a, &b), sites: grown_sites(&a, &b) }
}

fn grown(a: &DeviceReport, b: &DeviceReport) -> Vec<(u64, [u64; 2], [u64; 2])> {
    let before = |size: u64| {
        let found = a.live_at_exit.by_size.iter().find(|bucket| bucket.max_bytes == size);
        found.copied().unwrap_or_default()
    };
    let pair = |bucket: &SizeBucket| (bucket.max_bytes, before(bucket.max_bytes), *bucket);
    let mut grown: Vec<_> = b
        .live_at_exit
        .by_size
        .iter()
        .map(pair)
        .filter(|(_, a, b)| b.bytes > a.bytes)
        .map(|(size, a, b)| (size, [a.count, b.count], [a.bytes, b.bytes]))
        .collect();
    grown.sort_by_key(|(_, _, bytes)| std::cmp::Reverse(bytes[1] - bytes[0]));
    grown
}

fn settings(a: &Report, b: &Report) -> Vec<SettingChange> {
    let mut keys: Vec<&str> = Vec::new();
    for setting in a.config.iter().chain(&b.config) {
        // Where a report goes says nothing about the run.
        if !keys.contains(&&*setting.key) && setting.key != "GPUCACHE_REPORT" {
            keys.push(&setting.key);
        }
    }
    let value = |report: &Report, key: &str| {
        let setting = report.config.iter().find(|setting| setting.key == key);
        setting.map_or_else(|| "not there".to_owned(), |setting| setting.value.clone())
    };
    keys.into_iter()
        .map(|key| SettingChange { key: key.to_owned(), a: value(a, key), b: value(b, key) })
        .filter(|change| change.a != change.b)
        .collect()
}

/// `A: file, process 4242 python train.py, 2 min 5 s, ended by exit`.
fn headline(letter: char, loaded: &Loaded) -> String {
    let process = &loaded.report.process;
    format!(
        "{letter}: {}: {}, {}, {}\n",
        loaded.path.display(),
        printable(&process.command),
        duration(process.duration_s),
        process.ended_by.in_words()
    )
}

fn as_text(a: &Loaded, b: &Loaded, changes: &Changes) -> String {
    // Writing to a string cannot fail: the results of `writeln!` are dropped throughout.
    let mut out = headline('A', a) + &headline('B', b);
    let mut nothing = true;
    for device in
        changes.devices.iter().filter(|d| !d.figures.is_empty() || !d.grown.is_empty() || !d.sites.is_empty())
    {
        nothing = false;
        let _ = writeln!(out, "\nGPU {}, {}", device.ordinal, device.name);
        let mut rows = vec![["", "A", "B", "change", ""].map(str::to_owned).to_vec()];
        rows.extend(device.figures.iter().map(|&(figure, a, b)| {
            let change = b - a;
            let (change, relative) = if change == 0.0 {
                ("=".to_owned(), String::new())
            } else {
                (figure.unit.show_change(change), show_relative(relative(a, b)))
            };
            vec![figure.label.to_owned(), figure.unit.show(a), figure.unit.show(b), change, relative]
        }));
        if rows.len() > 1 {
            out.push_str(&aligned(&rows));
        }
        if !device.grown.is_empty() {
            let _ = writeln!(out, "\n  never freed, sizes that grew");
            let rows = device.grown.iter().map(|(size, count, bytes)| {
                let up_to = format!("  up to {}", human(*size));
                let blocks = format!("{} → {}", count[0], counted(count[1], "block"));
                vec![up_to, blocks, Unit::Bytes.show_change((bytes[1] - bytes[0]) as f64)]
            });
            out.push_str(&aligned(&rows.collect::<Vec<_>>()));
        }
        out.push_str(&sites::as_text(&device.sites));
    }
    if !changes.settings.is_empty() {
        nothing = false;
        let _ = writeln!(out, "\nsettings");
        let rows: Vec<_> = changes
            .settings
            .iter()
            .map(|change| {
                vec![change.key.clone(), printable(&change.a), "→".to_owned(), printable(&change.b)]
            })
            .collect();
        out.push_str(&aligned(&rows));
    }
    for (letter, notes) in ['A', 'B'].iter().zip(&changes.notes) {
        for note in notes {
            nothing = false;
            let _ = writeln!(out, "\nnote in {letter} only: {}", printable(note));
        }
    }
    if nothing {
        out.push_str("\nno figure and no setting differs\n");
    }
    out
}

fn as_json(a: &Loaded, b: &Loaded, changes: &Changes) -> String {
    let devices = changes.devices.iter().map(|device| {
        let figures = device.figures.iter().map(|&(figure, a, b)| {
            let row = json!({ "a": a, "b": b, "change": b - a, "relative": relative(a, b) });
            (figure.key.to_owned(), row)
        });
        let grown = device.grown.iter().map(|(size, count, bytes)| {
            json!({ "max_bytes": size, "count_a": count[0], "count_b": count[1], "bytes_a": bytes[0], "bytes_b": bytes[1] })
        });
        json!({
            "ordinal": device.ordinal,
            "figures": figures.collect::<serde_json::Map<_, _>>(),
            "never_freed_grew": grown.collect::<Vec<_>>(),
            "sites_grew": sites::as_json(&device.sites),
        })
    });
    let settings = changes.settings.iter().map(|c| json!({ "key": c.key, "a": c.a, "b": c.b }));
    let value: Value = json!({
        "a": a.path.to_string_lossy(),
        "b": b.path.to_string_lossy(),
        "devices": devices.collect::<Vec<_>>(),
        "settings": settings.collect::<Vec<_>>(),
        "notes": { "a_only": changes.notes[0], "b_only": changes.notes[1] },
    });
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn changed(change: impl Fn(&mut Report)) -> (Report, Report) {
        let a = sample::training();
        let mut b = a.clone();
        change(&mut b);
        (a, b)
    }

    #[test]
    fn equal_reports_have_no_changes() {
        let (a, b) = changed(|_| {});
        let changes = compare(&a, &b, 0.0, false);
        assert!(changes.devices[0].figures.is_empty() && !changes.decide(0.0));
        assert_eq!(compare(&a, &b, 0.0, true).devices[0].figures.len(), FIGURES.len());
    }

    #[test]
    fn times_are_shown_and_do_not_decide() {
        let (a, b) = changed(|r| r.devices[0].driver_time = sample::failure().devices[0].driver_time);
        let changes = compare(&a, &b, 0.0, false);
        assert_eq!(changes.devices[0].figures.len(), 1);
        assert!(!changes.decide(0.0));
    }

    #[test]
    fn what_is_ignored_does_not_count() {
        let (a, b) = changed(|r| r.devices[0].counts.alloc += 100);
        assert!(compare(&a, &b, 0.0, false).decide(0.0));
        assert!(!compare(&a, &b, 0.01, false).decide(0.01));
        assert!(compare(&a, &b, 0.001, false).decide(0.001));
    }

    #[test]
    fn settings_and_grown_sizes_are_found() {
        let (a, b) = changed(|r| {
            r.config[1].value = "4GiB".into();
            r.devices[0].live_at_exit.by_size[1].count = 5;
            r.devices[0].live_at_exit.by_size[1].bytes += 3 << 20;
            r.devices[0].live_at_exit.by_size[0].bytes -= 1;
        });
        let changes = compare(&a, &b, 0.0, false);
        assert!(changes.decide(0.0));
        let setting = &changes.settings[0];
        assert_eq!((&*setting.key, &*setting.a, &*setting.b), ("memory_limit", "8GiB", "4GiB"));
        let grown = &changes.devices[0].grown;
        assert_eq!((grown.len(), grown[0].0, grown[0].1), (1, 4 << 20, [2, 5]));
    }

    #[test]
    fn a_device_that_one_lacks_is_said() {
        let (a, b) = changed(|r| r.devices.clear());
        let changes = compare(&a, &b, 0.0, false);
        assert!(changes.devices[0].name.ends_with("in the first report only"));
        assert!(changes.decide(0.0));
    }
}
