//! The report's figures in the text format of Prometheus, for the textfile collector of its node exporter.
//!
//! Names follow its conventions: base units in the name, `_total` for what only rises. Every line has the host's name and the
//! process number as labels, because the files of several processes are read together; those of several containers, where
//! each has a process 1, too.

use super::model::{DeviceReport, Mapped, Report};
use std::fmt::Write;

/// A family of figures, one for each thing that they are read of.
struct Family<T = DeviceReport> {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    read: fn(&T) -> f64,
}

const fn gauge<T>(name: &'static str, help: &'static str, read: fn(&T) -> f64) -> Family<T> {
    Family { name, kind: "gauge", help, read }
}

const fn counter<T>(name: &'static str, help: &'static str, read: fn(&T) -> f64) -> Family<T> {
    Family { name, kind: "counter", help, read }
}

const FAMILIES: [Family; 26] = [
    gauge("gpucache_memory_requested_bytes", "Bytes that the program has asked for and not freed.", |d| {
        d.requested_bytes.current as f64
    }),
    gauge("gpucache_memory_allocated_bytes", "Bytes of the blocks in use.", |d| {
        d.allocated_bytes.current as f64
    }),
    gauge("gpucache_memory_reserved_bytes", "Bytes that the pool holds from the driver.", |d| {
        d.reserved_bytes.current as f64
    }),
    gauge("gpucache_memory_external_bytes", "Counted bytes outside the pool.", |d| {
        d.external_bytes.current as f64
    }),
    gauge("gpucache_memory_requested_peak_bytes", "Most bytes asked for at once.", |d| {
        d.requested_bytes.peak as f64
    }),
    gauge("gpucache_memory_allocated_peak_bytes", "Most bytes of blocks in use at once.", |d| {
        d.allocated_bytes.peak as f64
    }),
    gauge("gpucache_memory_reserved_peak_bytes", "Most bytes that the pool held.", |d| {
        d.reserved_bytes.peak as f64
    }),
    gauge("gpucache_memory_external_peak_bytes", "Most counted bytes outside the pool.", |d| {
        d.external_bytes.peak as f64
    }),
    gauge("gpucache_memory_limit_bytes", "The cap; the device's memory where there is none.", |d| {
        d.limit_bytes as f64
    }),
    gauge("gpucache_memory_total_bytes", "Memory of the device.", |d| d.total_bytes as f64),
    gauge(
        "gpucache_largest_free_block_bytes",
        "Largest free block of the pool when it last grew or shrank.",
        |d| d.largest_free_block_bytes as f64,
    ),
    gauge("gpucache_fragmentation_ratio", "1 - largest free block / all free bytes of the pool.", |d| {
        d.fragmentation.at_exit
    }),
    counter("gpucache_allocated_bytes_total", "Bytes of all blocks ever handed out.", |d| {
        d.allocated_bytes.total_allocated as f64
    }),
    counter("gpucache_allocations_total", "Allocations that the pool served.", |d| d.counts.alloc as f64),
    counter("gpucache_frees_total", "Frees of pooled blocks.", |d| d.counts.free as f64),
    counter("gpucache_cache_hits_total", "Allocations served without a driver call.", |d| {
        d.counts.cache_hit as f64
    }),
    counter("gpucache_driver_allocations_total", "Allocation calls that the pool made to the driver.", |d| {
        d.counts.driver_alloc as f64
    }),
    counter("gpucache_driver_frees_total", "Free calls that the pool made to the driver.", |d| {
        d.counts.driver_free as f64
    }),
    counter("gpucache_driver_allocation_seconds_total", "Time within those allocation calls.", |d| {
        d.driver_time.unwrap_or_default().alloc_ns as f64 / 1e9
    }),
    counter("gpucache_driver_free_seconds_total", "Time within those free calls.", |d| {
        d.driver_time.unwrap_or_default().free_ns as f64 / 1e9
    }),
    counter("gpucache_barriers_total", "Waits on the device inserted to reuse memory.", |d| {
        d.counts.barrier as f64
    }),
    counter("gpucache_out_of_memory_total", "Requests answered with out of memory.", |d| d.counts.oom as f64),
    counter("gpucache_retries_total", "Requests that needed cached memory to be given back first.", |d| {
        d.counts.retry as f64
    }),
    counter("gpucache_garbage_collections_total", "Garbage collections that gave memory back.", |d| {
        d.counts.gc as f64
    }),
    counter("gpucache_invalid_frees_total", "Frees of what was not allocated.", |d| {
        d.counts.invalid_free as f64
    }),
    counter("gpucache_forwarded_total", "Calls passed on because the pool could not serve them.", |d| {
        d.counts.forwarded as f64
    }),
];

/// Of the expandable ranges of a device; only there where it has any.
const RANGE_FAMILIES: [Family<Mapped>; 8] = [
    gauge("gpucache_range_mapped_bytes", "Physical memory mapped into expandable ranges.", |m| {
        m.mapped_bytes as f64
    }),
    gauge(
        "gpucache_range_unmapped_bytes",
        "Physical memory held and mapped nowhere, after a failed call.",
        |m| m.loose_bytes as f64,
    ),
    gauge("gpucache_range_span_bytes", "Addresses from the start of a range to its last mapped one.", |m| {
        m.spanned_bytes as f64
    }),
    gauge("gpucache_range_handles", "Driver handles behind the mapped memory.", |m| m.handles as f64),
    counter("gpucache_range_remaps_total", "Growths that moved free memory instead of taking new.", |m| {
        m.remaps as f64
    }),
    counter("gpucache_range_moved_handles_total", "Handles that these moved.", |m| m.moved_handles as f64),
    counter("gpucache_range_moved_bytes_total", "Bytes that these moved.", |m| m.moved_bytes as f64),
    counter("gpucache_range_growth_seconds_total", "Time within growths, new memory included.", |m| {
        m.map_ns as f64 / 1e9
    }),
];

/// A label's value: backslash, quote and line feed escaped, as the format demands.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The figures as text. `host` is the machine's or container's name, `now` the time in seconds since 1970, `runs` whether the
/// process does.
pub fn to_prometheus(report: &Report, host: &str, now: f64, runs: bool) -> String {
    let whose = format!("host=\"{}\",pid=\"{}\"", label(host), report.process.pid);
    let mut out = String::new();
    // Writing to a string cannot fail.
    let head = |out: &mut String, name: &str, kind: &str, help: &str| {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    };
    let command = label(&report.process.command);
    head(&mut out, "gpucache_process_info", "gauge", "Always 1; which program the process runs.");
    let _ = writeln!(out, "gpucache_process_info{{{whose},command=\"{command}\"}} 1");
    head(&mut out, "gpucache_process_running", "gauge", "1 while the process runs, 0 after a good end.");
    let _ = writeln!(out, "gpucache_process_running{{{whose}}} {}", u8::from(runs));
    let name = "gpucache_last_update_timestamp_seconds";
    head(&mut out, name, "gauge", "When these figures were written.");
    let _ = writeln!(out, "{name}{{{whose}}} {now:.3}");
    if report.devices.is_empty() {
        return out;
    }
    let line = |out: &mut String, name: &str, device: &DeviceReport, value: f64| {
        let (ordinal, gpu) = (device.ordinal, label(&device.name));
        let _ = writeln!(out, "{name}{{{whose},device=\"{ordinal}\",gpu=\"{gpu}\"}} {value}");
    };
    for family in &FAMILIES {
        head(&mut out, family.name, family.kind, family.help);
        for device in &report.devices {
            line(&mut out, family.name, device, (family.read)(device));
        }
    }
    let ranges: Vec<_> =
        report.devices.iter().filter_map(|device| Some((device, device.mapped.as_ref()?))).collect();
    for family in RANGE_FAMILIES.iter().filter(|_| !ranges.is_empty()) {
        head(&mut out, family.name, family.kind, family.help);
        for (device, mapped) in &ranges {
            line(&mut out, family.name, device, (family.read)(mapped));
        }
    }
    let name = "gpucache_memory_external_kind_bytes";
    head(&mut out, name, "gauge", "Counted bytes outside the pool by kind.");
    for device in &report.devices {
        for (kind, of_kind) in &device.external_by_kind {
            let (ordinal, gpu, value) = (device.ordinal, label(&device.name), of_kind.current);
            let _ =
                writeln!(out, "{name}{{{whose},device=\"{ordinal}\",gpu=\"{gpu}\",kind=\"{kind}\"}} {value}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use std::collections::BTreeSet;

    #[test]
    fn every_line_is_one_of_the_format_and_every_family_is_described_once() {
        let mut report = sample::failure();
        report.devices[2].mapped =
            Some(Mapped { moved_bytes: 4096, map_ns: 2_500_000_000, ..Mapped::default() });
        report.process.command = "a \"b\"\\c\nd".into();
        let text = to_prometheus(&report, "node \"1\"", 1.5, true);
        assert!(text.contains(r#"command="a \"b\"\\c\nd"} 1"#), "{text}");
        let (mut described, mut family) = (BTreeSet::new(), "");
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                assert!(described.insert(rest.split(' ').next().unwrap()), "{line}");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(described.contains(name) && ["gauge", "counter"].contains(&kind));
                assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
                family = name;
            } else {
                let (name, rest) = line.split_once('{').unwrap();
                let (labels, value) = rest.rsplit_once("} ").unwrap();
                assert_eq!(name, family);
                assert!(
                    labels.starts_with("host=\"node \\\"1\\\"\",pid=\"4243\"") && labels.ends_with('"'),
                    "{line}"
                );
                assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
            }
        }
        assert!(
            text.contains(
                "gpucache_memory_reserved_bytes{host=\"node \\\"1\\\"\",pid=\"4243\",device=\"0\",gpu=\"NVIDIA H200\"} 8589934592\n"
            ),
            "{text}"
        );
        assert!(text.contains(
            "gpucache_last_update_timestamp_seconds{host=\"node \\\"1\\\"\",pid=\"4243\"} 1.500\n"
        ));
        let of_range: Vec<&str> = text.lines().filter(|line| line.starts_with("gpucache_range_")).collect();
        assert_eq!(of_range.len(), 8, "of the one device that has a range: {of_range:#?}");
        let labels = "{host=\"node \\\"1\\\"\",pid=\"4243\",device=\"2\",gpu=\"NVIDIA H200\"}";
        assert!(
            of_range.contains(&&*format!("gpucache_range_moved_bytes_total{labels} 4096")),
            "{of_range:#?}"
        );
        assert!(
            of_range.contains(&&*format!("gpucache_range_growth_seconds_total{labels} 2.5")),
            "{of_range:#?}"
        );
        assert!(
            !to_prometheus(&sample::failure(), "", 1.5, true).contains("gpucache_range_"),
            "none without one"
        );
    }

    #[test]
    fn the_documentation_names_every_figure() {
        let page = include_str!("../../docs/watching.md");
        let mut report = sample::training();
        report.devices[0].mapped = Some(Mapped::default());
        let text = to_prometheus(&report, "", 1.0, true);
        for name in text.lines().filter_map(|line| line.strip_prefix("# TYPE gpucache_")?.split(' ').next()) {
            // Peaks are named by their ending.
            let name = name.replace("_peak_bytes", "_bytes");
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn the_dashboard_shows_figures_that_there_are() {
        let dashboard = include_str!("../../docs/grafana-dashboard.json");
        let json: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        assert!(json["panels"].as_array().unwrap().len() >= 6);
        let mut report = sample::training();
        report.devices[0].mapped = Some(Mapped::default());
        let text = to_prometheus(&report, "", 1.0, true);
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let named = dashboard.split(|c| !is_name(c)).filter(|word| word.starts_with("gpucache_"));
        let named: BTreeSet<&str> = named.collect();
        assert!(
            named.len() > 10 && named.iter().any(|name| name.starts_with("gpucache_range_")),
            "{named:?}"
        );
        for name in named {
            assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
        }
    }
}
