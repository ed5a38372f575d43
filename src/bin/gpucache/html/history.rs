//! Live and reserved memory over time, where the report has a history: `history` with `events`, each with `at_s` (seconds since
//! the start), `device`, `reserved_bytes` and `allocated_bytes`. Others of their fields are not this chart's.

use super::bars::share;
use crate::report::units::{duration, human};
use serde_json::Value;
use std::fmt::Write;

/// The chart of one device, 1000 wide and 300 high.
pub struct Chart {
    pub device: u64,
    /// Outlines of the areas, as the attribute of an SVG polygon.
    pub reserved: String,
    pub allocated: String,
    pub most: String,
    pub from: String,
    pub to: String,
}

const HEIGHT: f64 = 300.0;

struct Sample {
    at: f64,
    reserved: u64,
    allocated: u64,
}

/// A chart for each device that has at least two events.
pub fn charts(report: &Value) -> Vec<Chart> {
    let Some(events) = report["history"]["events"].as_array() else { return Vec::new() };
    let mut devices: Vec<u64> = events.iter().filter_map(|event| event["device"].as_u64()).collect();
    devices.sort_unstable();
    devices.dedup();
    devices.into_iter().filter_map(|device| chart(device, events)).collect()
}

fn chart(device: u64, events: &[Value]) -> Option<Chart> {
    let sample = |event: &Value| {
        Some(Sample {
            at: event["at_s"].as_f64()?,
            reserved: event["reserved_bytes"].as_u64()?,
            allocated: event["allocated_bytes"].as_u64()?,
        })
    };
    let own = events.iter().filter(|event| event["device"].as_u64() == Some(device));
    let mut samples: Vec<Sample> = own.filter_map(sample).collect();
    samples.sort_by(|a, b| a.at.total_cmp(&b.at));
    let (first, last) = (samples.first()?.at, samples.last()?.at);
    if last <= first {
        return None;
    }
    let most = samples.iter().map(|sample| sample.reserved.max(sample.allocated)).max()?.max(1);
    // Memory stays as it is until something happens: steps, not slopes.
    let outline = |of: fn(&Sample) -> u64| {
        let mut points = format!("0,{HEIGHT}");
        let mut height = HEIGHT;
        for sample in &samples {
            let x = share(sample.at - first, last - first);
            let y = HEIGHT - share(of(sample) as f64, most as f64) * HEIGHT / 1000.0;
            let _ = write!(points, " {x:.1},{height:.1} {x:.1},{y:.1}");
            height = y;
        }
        let _ = write!(points, " 1000,{height:.1} 1000,{HEIGHT}");
        points
    };
    Some(Chart {
        device,
        reserved: outline(|sample| sample.reserved),
        allocated: outline(|sample| sample.allocated),
        most: human(most),
        from: duration(first),
        to: duration(last),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_history_becomes_steps() {
        let event = |at, reserved| json!({ "at_s": at, "device": 0, "reserved_bytes": reserved, "allocated_bytes": 0 });
        let report = json!({ "history": { "events": [event(0.0, 50), event(1.0, 100), event(2.0, 100)] } });
        let charts = charts(&report);
        assert_eq!(charts.len(), 1);
        let steps = "0,300 0.0,300.0 0.0,150.0 500.0,150.0 500.0,0.0 1000.0,0.0 1000.0,0.0 1000,0.0 1000,300";
        assert_eq!(charts[0].reserved, steps);
        assert_eq!((charts[0].most.as_str(), charts[0].to.as_str()), ("100 B", "2.0 s"));
    }

    #[test]
    fn no_history_is_no_chart() {
        for report in [json!({}), json!({ "history": { "events": [] } }), json!({ "history": 1 })] {
            assert!(charts(&report).is_empty());
        }
    }
}
