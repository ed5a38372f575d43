//! The report as JSON, and back: what `GPUCACHE_REPORT=FILE` writes and what tools read.

use super::model::Report;

/// The report as indented JSON with a final newline.
///
/// Figures that are not finite numbers, which only a fault in a producer could make, are written as `null` by serde;
/// nothing here can fail, because every map has string keys.
pub fn to_json(report: &Report) -> String {
    let mut text = serde_json::to_string_pretty(report).unwrap_or_default();
    text.push('\n');
    text
}

/// Reads a report written by this version or by one that only added fields.
///
/// # Errors
/// The text is not JSON, or lacks a field that every version writes; the message gives line and column.
pub fn from_json(text: &str) -> Result<Report, serde_json::Error> {
    serde_json::from_str(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use serde_json::Value;

    fn keys(value: &Value) -> Vec<&str> {
        let mut keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn what_is_written_reads_back_the_same() {
        for report in [sample::training(), sample::failure()] {
            assert_eq!(from_json(&to_json(&report)).unwrap(), report);
        }
    }

    #[test]
    fn the_documented_names_are_there() {
        let json: Value = serde_json::from_str(&to_json(&sample::failure())).unwrap();
        assert_eq!(keys(&json), ["config", "devices", "notes", "process", "schema_version"]);
        assert_eq!(keys(&json["process"]), ["command", "duration_s", "ended_by", "pid"]);
        assert_eq!(json["process"]["ended_by"], "_exit");
        assert_eq!(keys(&json["config"][0]), ["key", "source", "value", "written_as"]);
        assert_eq!(keys(&json["config"][1]), ["key", "source", "value"], "only where it differs");
        let device = &json["devices"][0];
        for key in [
            "ordinal",
            "name",
            "limit_bytes",
            "total_bytes",
            "headroom_bytes",
            "largest_free_block_bytes",
            "size_histogram",
            "live_at_exit",
            "peak",
        ] {
            assert!(!device[key].is_null(), "{key}");
        }
        for gauge in ["requested_bytes", "allocated_bytes", "reserved_bytes", "external_bytes"] {
            assert_eq!(
                keys(&device[gauge]),
                ["current", "peak", "total_allocated", "total_freed"],
                "{gauge}"
            );
        }
        assert_eq!(keys(&device["fragmentation"]), ["at_exit", "at_oom", "at_peak"]);
        assert_eq!(
            keys(&device["fragmentation"]["at_oom"][0]),
            [
                "allocated_bytes",
                "driver_free_bytes",
                "external_bytes",
                "fragmentation",
                "free_bytes",
                "kind",
                "largest_free_block_bytes",
                "limit_bytes",
                "requested_bytes",
                "reserved_bytes",
                "sufficient_limit_bytes"
            ]
        );
        let histogram = &serde_json::to_value(sample::training()).unwrap()["devices"][0]["size_histogram"][0];
        assert_eq!(keys(histogram), ["bytes", "count", "max_bytes", "min_bytes"]);
    }

    #[test]
    fn a_later_version_that_only_added_fields_is_read() {
        let mut json = serde_json::to_value(sample::training()).unwrap();
        json["devices"][0]["invented_later"] = 1.into();
        json["devices"][0]["counts"]["invented_later"] = 1.into();
        json["process"]["ended_by"] = "invented_later".into();
        let report = from_json(&json.to_string()).unwrap();
        assert_eq!(report.process.ended_by, crate::report::model::EndedBy::Other);
        assert_eq!(report.devices, sample::training().devices);
    }

    #[test]
    fn a_text_that_is_no_report_is_an_error() {
        assert!(from_json("{}").is_err());
        assert!(from_json("gpucache[1]: text").is_err());
    }
}
