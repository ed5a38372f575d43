//! A trace in the event format that `chrome://tracing` and `ui.perfetto.dev` open: counters of the memory of each device,
//! instants for what happened to it, spans for the phases that the program has named.

use super::history_of;
use crate::failure::Failure;
use crate::report::Report;
use crate::report::history::{Event, History, What};
use crate::report::units::{human, printable};
use serde_json::{Value, json};

/// The thread number that phases stand under; devices come after it.
const PHASES: u32 = 1;

/// The trace of a report's history, as JSON.
pub fn trace(report: &Report) -> Result<Vec<u8>, Failure> {
    let history = history_of(report)?;
    let pid = report.process.pid;
    let named = |what: &str, tid: u32, name: String| json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "args": { "name": name } });
    let mut events = vec![
        named("process_name", 0, printable(&report.process.command)),
        named("thread_name", PHASES, "phases".to_owned()),
    ];
    for device in &report.devices {
        let name = format!("GPU {} {}", device.ordinal, printable(&device.name));
        events.push(named("thread_name", lane(device.ordinal), name));
    }
    events.extend(counters(history, pid));
    events.extend(history.events.iter().filter_map(|event| instant(event, pid)));
    events.extend(phases(history, pid));
    let whole = json!({ "displayTimeUnit": "ms", "traceEvents": events });
    Ok(whole.to_string().into_bytes())
}

fn lane(device: u32) -> u32 {
    PHASES + 1 + device
}

/// Microseconds, which a trace counts in.
fn micros(at_s: f64) -> f64 {
    (at_s * 1e6).round()
}

/// A value for each counter whenever it changes.
fn counters(history: &History, pid: u32) -> Vec<Value> {
    let mut readings: Vec<(f64, u32, [u64; 3])> = Vec::new();
    for event in &history.events {
        let values = [event.allocated_bytes, event.reserved_bytes, event.external_bytes];
        readings.push((event.at_s, event.device, values));
    }
    for sample in &history.samples {
        let values = [sample.allocated_bytes, sample.reserved_bytes, sample.external_bytes];
        readings.push((sample.at_s, sample.device, values));
    }
    readings.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut last: Vec<(u32, [Option<u64>; 3])> = Vec::new();
    let mut out = Vec::new();
    for (at, device, values) in readings {
        let known = last.iter().position(|(of, _)| *of == device).unwrap_or_else(|| {
            last.push((device, [None; 3]));
            last.len() - 1
        });
        let before = &mut last[known].1;
        for (i, name) in ["allocated", "reserved", "outside the pool"].into_iter().enumerate() {
            if before[i] != Some(values[i]) {
                before[i] = Some(values[i]);
                let name = format!("GPU {device} {name}");
                out.push(json!({ "ph": "C", "name": name, "pid": pid, "ts": micros(at), "args": { "bytes": values[i] } }));
            }
        }
    }
    out
}

/// What happened, but for allocations and frees, which the counters show, and phases.
fn instant(event: &Event, pid: u32) -> Option<Value> {
    let bytes = human(event.bytes);
    let (name, scope) = match What::named(&event.kind)? {
        What::Alloc | What::Free | What::Phase => return None,
        What::Oom => (format!("out of memory: {bytes} asked"), "p"),
        What::SegmentAlloc => (format!("segment of {bytes}"), "t"),
        What::SegmentFree => (format!("segment of {bytes} given back"), "t"),
        What::SegmentMap => (format!("{bytes} mapped"), "t"),
        What::SegmentUnmap => (format!("{bytes} unmapped"), "t"),
        What::Trim => (format!("{bytes} of idle memory given back"), "t"),
        What::Collect => (format!("{bytes} collected"), "t"),
        What::Barrier => ("barrier".to_owned(), "t"),
        What::Peak => (format!("high-water mark, {}", human(event.reserved_bytes)), "t"),
    };
    Some(json!({
        "ph": "i", "s": scope, "cat": event.kind, "name": name, "pid": pid, "tid": lane(event.device), "ts": micros(event.at_s),
        "args": {
            "bytes": event.bytes, "address": format!("{:#x}", event.address), "reserved": event.reserved_bytes,
            "allocated": event.allocated_bytes,
        },
    }))
}

/// Spans of phases: from where one begins to where another does. What began before the first event that is left begins there.
fn phases(history: &History, pid: u32) -> Vec<Value> {
    let end = history
        .events
        .iter()
        .map(|e| e.at_s)
        .chain(history.samples.iter().map(|s| s.at_s))
        .fold(0.0, f64::max);
    let mut begins: Vec<(f64, u32)> = Vec::new();
    for event in &history.events {
        let marked = event.kind == What::Phase.as_str();
        // Each device has an event of the same mark, a moment later.
        let again = begins
            .last()
            .is_some_and(|(at, phase)| *phase == event.phase && (!marked || event.at_s - at < 1e-3));
        if !again {
            begins.push((event.at_s, event.phase));
        }
    }
    let ends: Vec<f64> = begins.iter().skip(1).map(|(at, _)| *at).chain([end]).collect();
    let spans = begins.into_iter().zip(ends).filter(|((_, phase), _)| *phase > 0);
    spans
        .map(|((at, phase), end)| {
            let name = history.phases.get(phase as usize).map_or("", String::as_str);
            let length = micros(end) - micros(at);
            json!({ "ph": "X", "name": printable(name), "pid": pid, "tid": PHASES, "ts": micros(at), "dur": length })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::history::Sample;
    use crate::report::sample;

    fn event(at_s: f64, what: What, phase: u32) -> Event {
        Event {
            at_s,
            kind: what.as_str().into(),
            device: 0,
            bytes: 1 << 20,
            address: 16,
            reserved_bytes: 7,
            allocated_bytes: 5,
            external_bytes: 0,
            phase,
            pool: 0,
        }
    }

    fn of(history: History) -> Vec<Value> {
        let report = Report { history: Some(history), ..sample::training() };
        let trace: Value = serde_json::from_slice(&trace(&report).unwrap()).unwrap();
        trace["traceEvents"].as_array().unwrap().clone()
    }

    #[test]
    fn counters_change_when_the_memory_does() {
        let samples = [(0.5, 3), (1.0, 5), (1.5, 5)].map(|(at_s, allocated_bytes)| Sample {
            at_s,
            device: 0,
            reserved_bytes: 7,
            allocated_bytes,
            external_bytes: 0,
        });
        let events = of(History { samples: samples.into(), ..History::default() });
        let values = |name: &str| -> Vec<(f64, u64)> {
            let own = events.iter().filter(|event| event["ph"] == "C" && event["name"] == name);
            own.map(|event| (event["ts"].as_f64().unwrap(), event["args"]["bytes"].as_u64().unwrap()))
                .collect()
        };
        assert_eq!(values("GPU 0 allocated"), [(500_000.0, 3), (1_000_000.0, 5)]);
        assert_eq!(values("GPU 0 reserved"), [(500_000.0, 7)]);
    }

    #[test]
    fn instants_and_phases() {
        let history = History {
            phases: vec![String::new(), "warm-up".into(), "train".into()],
            events: vec![
                event(0.1, What::SegmentAlloc, 0),
                event(0.2, What::Phase, 1),
                event(0.2001, What::Phase, 1),
                event(0.3, What::Alloc, 1),
                event(0.4, What::Phase, 2),
                event(0.5, What::Phase, 2),
                event(0.9, What::Oom, 2),
            ],
            ..History::default()
        };
        let events = of(history);
        let of_kind = |ph: &str| -> Vec<String> {
            let own = events.iter().filter(|event| event["ph"] == ph);
            own.map(|event| format!("{} {} {}", event["name"].as_str().unwrap(), event["ts"], event["dur"]))
                .collect()
        };
        assert_eq!(
            of_kind("X"),
            ["warm-up 200000.0 200000.0", "train 400000.0 100000.0", "train 500000.0 400000.0"]
        );
        assert_eq!(
            of_kind("i"),
            ["segment of 1.00 MiB 100000.0 null", "out of memory: 1.00 MiB asked 900000.0 null"]
        );
    }

    #[test]
    fn without_a_history_it_is_said_how_to_have_one() {
        assert!(trace(&sample::training()).unwrap_err().to_string().contains("history:10000"));
    }
}
