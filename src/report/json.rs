//! The report as JSON, and back: what `GPUCACHE_REPORT=FILE` writes and what tools read.

use super::model::Report;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use std::io::{self, Write};

/// The report as indented JSON with a final newline. A list within a list is a row and stands in one line.
///
/// Figures that are not finite numbers, which only a fault in a producer could make, are written as `null` by serde;
/// nothing here can fail, because every map has string keys.
pub fn to_json(report: &Report) -> String {
    let mut text = Vec::new();
    let _ = report.serialize(&mut Serializer::with_formatter(&mut text, Rows::default()));
    text.push(b'\n');
    String::from_utf8(text).unwrap_or_default()
}

/// Indents everything but rows.
#[derive(Default)]
struct Rows {
    pretty: PrettyFormatter<'static>,
    /// Of what is open, whether it is a list.
    open: Vec<bool>,
    /// Lists open in the present row, with its own; 0 outside of rows.
    row: usize,
}

impl Rows {
    fn begin(&mut self, list: bool) {
        let within = self.row > 0 || (list && self.open.last() == Some(&true));
        self.open.push(list);
        self.row += usize::from(within);
    }

    fn end(&mut self) {
        self.open.pop();
        self.row = self.row.saturating_sub(1);
    }
}

type Written = io::Result<()>;

impl Formatter for Rows {
    fn begin_array<W: ?Sized + Write>(&mut self, to: &mut W) -> Written {
        self.begin(true);
        if self.row > 0 { to.write_all(b"[") } else { self.pretty.begin_array(to) }
    }

    fn end_array<W: ?Sized + Write>(&mut self, to: &mut W) -> Written {
        let row = self.row > 0;
        self.end();
        if row { to.write_all(b"]") } else { self.pretty.end_array(to) }
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> Written {
        match (self.row > 0, first) {
            (true, true) => Ok(()),
            (true, false) => to.write_all(b","),
            (false, _) => self.pretty.begin_array_value(to, first),
        }
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, to: &mut W) -> Written {
        if self.row > 0 { Ok(()) } else { self.pretty.end_array_value(to) }
    }

    fn begin_object<W: ?Sized + Write>(&mut self, to: &mut W) -> Written {
        self.begin(false);
        if self.row > 0 { to.write_all(b"{") } else { self.pretty.begin_object(to) }
    }

    fn end_object<W: ?Sized + Write>(&mut self, to: &mut W) -> Written {
        let row = self.row > 0;
        self.end();
        if row { to.write_all(b"}") } else { self.pretty.end_object(to) }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> Written {
        match (self.row > 0, first) {
            (true, true) => Ok(()),
            (true, false) => to.write_all(b","),
            (false, _) => self.pretty.begin_object_key(to, first),
        }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, to: &mut W) -> Written {
        if self.row > 0 { to.write_all(b":") } else { self.pretty.begin_object_value(to) }
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, to: &mut W) -> Written {
        if self.row > 0 { Ok(()) } else { self.pretty.end_object_value(to) }
    }
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
    fn it_is_indented_but_for_rows() {
        let training = sample::training();
        let pretty = format!("{}\n", serde_json::to_string_pretty(&training).unwrap());
        assert_eq!(to_json(&training), pretty, "there are no rows in it");
        let value = serde_json::json!({ "a": [1, [2, [3], { "b": [] }], []], "c": [{ "d": [[1, 2], [3]] }] });
        let mut text = Vec::new();
        value.serialize(&mut Serializer::with_formatter(&mut text, Rows::default())).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        assert!(text.contains("\n    [2,[3],{\"b\":[]}],\n    []\n"), "{text}");
        assert!(text.contains("\n        [1,2],\n        [3]\n"), "{text}");
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
                "in_use_bytes",
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
