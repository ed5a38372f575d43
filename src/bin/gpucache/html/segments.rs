//! The map of the pool, where the report has one: `segments` of a device, each with `bytes` and `blocks`, and of each block
//! `offset`, `bytes` and `state` (`allocated`, `pending` or `free`).

use super::bars::share;
use crate::report::units::human;
use serde_json::Value;

/// The segments of one device.
pub struct Map {
    pub device: u64,
    pub segments: Vec<Segment>,
    /// Segments that are not drawn.
    pub more: usize,
}

/// A driver allocation and how it is filled.
pub struct Segment {
    pub bytes: String,
    /// Style, place and width in thousandths, and what to say about it.
    pub blocks: Vec<(&'static str, f64, f64, String)>,
}

/// As many are drawn: a page must stay one that a browser opens.
const SEGMENTS_DRAWN: usize = 200;
const BLOCKS_DRAWN: usize = 2000;

/// A map for each device that has segments.
pub fn maps(report: &Value) -> Vec<Map> {
    let devices = report["devices"].as_array().map(Vec::as_slice).unwrap_or_default();
    devices.iter().filter_map(map).collect()
}

fn map(device: &Value) -> Option<Map> {
    let all = device["segments"].as_array().filter(|segments| !segments.is_empty())?;
    Some(Map {
        device: device["ordinal"].as_u64()?,
        segments: all.iter().take(SEGMENTS_DRAWN).filter_map(segment).collect(),
        more: all.len().saturating_sub(SEGMENTS_DRAWN),
    })
}

fn segment(segment: &Value) -> Option<Segment> {
    let whole = segment["bytes"].as_u64()?;
    let block = |block: &Value| {
        let (offset, bytes) = (block["offset"].as_u64()?, block["bytes"].as_u64()?);
        let (class, state) = match block["state"].as_str()? {
            "allocated" => ("used", "allocated"),
            "pending" => ("rounding", "pending"),
            _ => ("cached", "free"),
        };
        let place = share(offset as f64, whole as f64);
        Some((class, place, share(bytes as f64, whole as f64), format!("{state}, {}", human(bytes))))
    };
    let blocks = segment["blocks"].as_array()?.iter().take(BLOCKS_DRAWN).filter_map(block).collect();
    Some(Segment { bytes: human(whole), blocks })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn blocks_lie_where_they_lie() {
        let blocks = json!([
            { "offset": 0, "bytes": 512, "state": "allocated" },
            { "offset": 512, "bytes": 512, "state": "free" },
        ]);
        let report =
            json!({ "devices": [{ "ordinal": 1, "segments": [{ "bytes": 1024, "blocks": blocks }] }] });
        let maps = maps(&report);
        assert_eq!((maps.len(), maps[0].device, maps[0].more), (1, 1, 0));
        let blocks = &maps[0].segments[0].blocks;
        assert_eq!(blocks[1], ("cached", 500.0, 500.0, "free, 512 B".to_owned()));
    }

    #[test]
    fn no_segments_are_no_map() {
        assert!(maps(&json!({})).is_empty());
        assert!(maps(&json!({ "devices": [{ "ordinal": 0, "segments": [] }] })).is_empty());
    }
}
