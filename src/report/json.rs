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
