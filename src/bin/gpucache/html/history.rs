//! Reserved and allocated memory over time, where the report has a history: a chart of the whole life, one of the time that
//! the events reach back to if that is much shorter, and under each a row of ticks for every kind of event that happened.

use super::bars::share;
use crate::report::history::{Event, History, What};
use crate::report::model::DeviceReport;
use crate::report::units::{counted, duration, grouped, human, printable};
use std::fmt::Write;

/// All that was held at a reading.
fn held(reading: &Reading) -> u64 {
    reading.reserved.max(reading.allocated) + reading.external
}

/// The history of one device.
pub struct Timeline {
    pub charts: Vec<Chart>,
    /// What is not here.
    pub missing: String,
}

/// A chart, 1000 wide and [`HEIGHT`] high.
pub struct Chart {
    pub title: &'static str,
    /// Outlines of the areas, as the attribute of an SVG polygon.
    pub reserved: String,
    pub allocated: String,
    /// The same of memory outside the pool on top of the reserved; empty where there was none.
    pub outside: String,
    pub most: String,
    /// Height of the cap, where it is near.
    pub cap: Option<f64>,
    pub from: String,
    pub to: String,
    pub rows: Vec<Row>,
}

/// Events of one kind.
pub struct Row {
    pub label: String,
    pub class: &'static str,
    pub count: String,
    /// Place, width and what to say.
    pub ticks: Vec<(f64, f64, String)>,
}

const HEIGHT: f64 = 300.0;
/// Columns of a chart: more would be narrower than what a screen shows.
const COLUMNS: usize = 1000;
/// A tick is this wide.
const TICK: f64 = 2.0;
/// Events that reach back over less than this part of the life get a chart of their own.
const SHORT: f64 = 0.6;
/// Names of phases that stand beside their row.
const NAMES_SHOWN: usize = 6;

/// Kinds that have a row, in order, with its name and style.
const ROWS: [(&str, &str, &[What]); 7] = [
    ("out of memory", "asked", &[What::Oom]),
    ("high-water marks", "used", &[What::Peak]),
    ("got from the driver", "rounding", &[What::SegmentAlloc, What::SegmentMap]),
    ("given back", "line", &[What::SegmentFree, What::SegmentUnmap]),
    ("waits on the device", "outside", &[What::Barrier]),
    ("allocations", "used", &[What::Alloc]),
    ("frees", "rounding", &[What::Free]),
];

/// A reading, from a sample or an event.
#[derive(Clone, Copy)]
struct Reading {
    at: f64,
    reserved: u64,
    allocated: u64,
    external: u64,
}

/// The timeline of one device, if it has anything to show.
pub fn timeline(device: &DeviceReport, history: &History) -> Option<Timeline> {
    let events: Vec<&Event> = history.events.iter().filter(|event| event.device == device.ordinal).collect();
    let of_event = |event: &&Event| Reading {
        at: event.at_s,
        reserved: event.reserved_bytes,
        allocated: event.allocated_bytes,
        external: event.external_bytes,
    };
    let mut all: Vec<Reading> = events.iter().map(of_event).collect();
    all.extend(history.samples.iter().filter(|sample| sample.device == device.ordinal).map(|sample| {
        Reading {
            at: sample.at_s,
            reserved: sample.reserved_bytes,
            allocated: sample.allocated_bytes,
            external: sample.external_bytes,
        }
    }));
    all.sort_by(|a, b| a.at.total_cmp(&b.at));
    // Readings are some of many: the most that was ever held may lie between two of them.
    let peak = device.peak.map_or(0, |peak| peak.reserved_bytes.saturating_add(peak.external_bytes));
    let peak = peak.max(device.reserved_bytes.peak);
    let whole = chart("the whole time", device, history, &all, &events, peak)?;
    let (first, last) = (all.first()?.at, all.last()?.at);
    let since = events.first().map_or(first, |event| event.at_s);
    let mut charts = vec![whole];
    if last - since < SHORT * (last - first) {
        let recent: Vec<Reading> = all.iter().copied().filter(|reading| reading.at >= since).collect();
        charts.extend(chart("the time of the events", device, history, &recent, &events, 0));
    }
    let mut missing = match history.lost {
        0 => String::new(),
        count => format!(
            "The first {} of {} were not kept: there is room for {}. A larger history reaches further back.",
            grouped(count),
            counted(history.recorded, "event"),
            grouped(history.capacity)
        ),
    };
    if all.iter().map(held).max()? < peak {
        let _ = write!(missing, " The peak of {} lay between two readings.", human(peak));
    }
    Some(Timeline { charts, missing: missing.trim_start().to_owned() })
}

fn chart(
    title: &'static str,
    device: &DeviceReport,
    history: &History,
    readings: &[Reading],
    events: &[&Event],
    peak: u64,
) -> Option<Chart> {
    let (first, last) = (readings.first()?.at, readings.last()?.at);
    if last <= first {
        return None;
    }
    let place = |at: f64| share(at - first, last - first);
    let most = readings.iter().map(held).max()?.max(peak).max(1);
    // A cap that is near belongs into the picture.
    let top =
        if device.limit_bytes <= most.saturating_mul(3) / 2 { most.max(device.limit_bytes) } else { most };
    let outline = |of: &dyn Fn(&Reading) -> u64| {
        let mut highest = vec![None; COLUMNS + 1];
        let mut after = vec![None; COLUMNS + 1];
        for reading in readings {
            let column = place(reading.at) as usize * COLUMNS / 1000;
            highest[column] = highest[column].max(Some(of(reading)));
            after[column] = Some(of(reading));
        }
        // Memory stays as it is until something happens: steps, not slopes.
        let mut points = format!("0,{HEIGHT}");
        let mut level = HEIGHT;
        let y = |bytes: u64| HEIGHT - share(bytes as f64, top as f64) * HEIGHT / 1000.0;
        for (column, (highest, after)) in highest.into_iter().zip(after).enumerate() {
            let (Some(highest), Some(after)) = (highest, after) else { continue };
            let x = column * 1000 / COLUMNS;
            let _ = write!(points, " {x},{level:.1} {x},{:.1} {x},{:.1}", y(highest), y(after));
            level = y(after);
        }
        let _ = write!(points, " 1000,{level:.1} 1000,{HEIGHT}");
        points
    };
    let outside = readings.iter().any(|reading| reading.external > 0);
    Some(Chart {
        title,
        reserved: outline(&|reading| reading.reserved),
        allocated: outline(&|reading| reading.allocated),
        outside: if outside { outline(&held) } else { String::new() },
        most: human(top),
        cap: (device.is_capped() && device.limit_bytes <= top)
            .then(|| HEIGHT - share(device.limit_bytes as f64, top as f64) * HEIGHT / 1000.0),
        from: moment(first, last - first),
        to: moment(last, last - first),
        rows: rows(history, events, first, last),
    })
}

/// A moment as exactly as its chart needs it.
fn moment(at: f64, within: f64) -> String {
    if within < 10.0 { format!("{at:.3} s") } else { duration(at) }
}

fn rows(history: &History, events: &[&Event], first: f64, last: f64) -> Vec<Row> {
    let place = |at: f64| share(at - first, last - first);
    let mut rows = Vec::new();
    rows.extend(phases(history, events, last, &place));
    for (label, class, kinds) in ROWS {
        let of_kind = |event: &&&Event| kinds.iter().any(|kind| kind.as_str() == event.kind);
        let own: Vec<&&Event> = events.iter().filter(of_kind).collect();
        if own.is_empty() {
            continue;
        }
        let mut ticks: Vec<(f64, f64, String)> = Vec::new();
        for event in &own {
            let x = place(event.at_s);
            // One that would hide another says nothing.
            if ticks.last().is_none_or(|(last, _, _)| x - last >= TICK) {
                ticks.push((x.min(1000.0 - TICK), TICK, in_words(event)));
            }
        }
        rows.push(Row { label: label.to_owned(), class, count: grouped(own.len() as u64), ticks });
    }
    rows
}

fn in_words(event: &Event) -> String {
    let at = format!("{:.3} s", event.at_s);
    match What::named(&event.kind) {
        Some(What::Barrier) => at,
        Some(What::Peak) => format!("{at}: {} reserved", human(event.reserved_bytes)),
        Some(What::Oom) => format!("{at}: {} asked", human(event.bytes)),
        _ => format!("{at}: {}", human(event.bytes)),
    }
}

/// The phases as spans, where any was marked.
fn phases(history: &History, events: &[&Event], last: f64, place: &dyn Fn(f64) -> f64) -> Option<Row> {
    let marks: Vec<&&Event> = events.iter().filter(|event| event.kind == What::Phase.as_str()).collect();
    let ends = marks.iter().skip(1).map(|mark| mark.at_s).chain([last]);
    let spans = marks.iter().zip(ends).map(|(mark, end)| {
        let name = history.phases.get(mark.phase as usize).map_or("", String::as_str);
        let (from, to) = (place(mark.at_s), place(end));
        // A line between two that follow each other.
        (from, (to - from - 1.0).max(1.0), format!("{}, {}", printable(name), duration(end - mark.at_s)))
    });
    let ticks: Vec<_> = spans.collect();
    let count = grouped(ticks.len() as u64);
    let mut names: Vec<String> = Vec::new();
    for (_, _, text) in &ticks {
        let name = text.rsplit_once(", ").map_or("", |(name, _)| name);
        if names.len() < NAMES_SHOWN && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    let label = format!("phases: {}", names.join(", "));
    (!ticks.is_empty()).then_some(Row { label, class: "line", count, ticks })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;
    use crate::report::model::Gauge;

    fn timelines(report: &Report) -> Vec<Timeline> {
        let Some(history) = &report.history else { return Vec::new() };
        report.devices.iter().filter_map(|device| timeline(device, history)).collect()
    }
    use crate::report::history::Sample;
    use crate::report::sample;

    fn event(at_s: f64, what: What, reserved_bytes: u64) -> Event {
        Event {
            at_s,
            kind: what.as_str().into(),
            device: 0,
            bytes: 100,
            address: 0,
            reserved_bytes,
            allocated_bytes: 0,
            external_bytes: 0,
            phase: 1,
            pool: 0,
        }
    }

    fn with(events: Vec<Event>, samples: Vec<Sample>) -> Report {
        let mut report = sample::training();
        report.devices[0].limit_bytes = report.devices[0].total_bytes;
        (report.devices[0].peak, report.devices[0].reserved_bytes) = (None, Gauge::default());
        report.history = Some(History {
            phases: vec![String::new(), "train".into()],
            events,
            samples,
            ..History::default()
        });
        report
    }

    #[test]
    fn a_history_becomes_steps() {
        let events = vec![
            event(0.0, What::SegmentAlloc, 50),
            event(1.0, What::SegmentAlloc, 100),
            event(2.0, What::Barrier, 100),
        ];
        let timelines = timelines(&with(events, vec![]));
        let chart = &timelines[0].charts[0];
        assert_eq!((timelines.len(), timelines[0].charts.len()), (1, 1));
        let steps = "0,300 0,300.0 0,150.0 0,150.0 500,150.0 500,0.0 500,0.0 1000,0.0 1000,0.0 1000,0.0 1000,0.0 1000,300";
        assert_eq!(chart.reserved, steps);
        assert_eq!((chart.most.as_str(), chart.to.as_str(), chart.cap), ("100 B", "2.000 s", None));
        let rows: Vec<_> = chart.rows.iter().map(|row| (row.label.as_str(), row.count.as_str())).collect();
        assert_eq!(rows, [("got from the driver", "2"), ("waits on the device", "1")]);
        assert!(chart.rows[0].ticks[1].2.contains("1.000 s: 100 B"));
    }

    #[test]
    fn events_that_reach_back_a_short_time_get_a_chart_of_their_own() {
        let sample =
            |at_s| Sample { at_s, device: 0, reserved_bytes: 5, allocated_bytes: 5, external_bytes: 0 };
        let events = vec![event(9.0, What::Phase, 50), event(9.5, What::Oom, 50), event(10.0, What::Oom, 50)];
        let timelines = timelines(&with(events, vec![sample(0.0), sample(5.0)]));
        let titles: Vec<_> =
            timelines[0].charts.iter().map(|chart| (chart.title, chart.from.as_str())).collect();
        assert_eq!(titles, [("the whole time", "0.0 s"), ("the time of the events", "9.000 s")]);
        let phases = &timelines[0].charts[1].rows[0];
        assert_eq!(phases.label, "phases: train");
        assert_eq!(phases.ticks, [(0.0, 999.0, "train, 1.0 s".to_owned())]);
    }

    #[test]
    fn a_hundred_thousand_events_are_a_thousand_columns() {
        let events = (0..100_000).map(|at| event(f64::from(at), What::Barrier, at as u64)).collect();
        let chart = &timelines(&with(events, vec![]))[0].charts[0];
        assert!(chart.reserved.len() < 100_000 && chart.rows[0].ticks.len() <= 1000);
        assert_eq!(chart.rows[0].count, "100,000");
    }

    #[test]
    fn no_history_is_no_chart() {
        assert!(timelines(&sample::training()).is_empty());
        assert!(timelines(&with(vec![], vec![])).is_empty());
        assert!(timelines(&with(vec![event(1.0, What::Oom, 1)], vec![])).is_empty(), "a moment is no time");
    }

    #[test]
    fn the_axis_reaches_the_peak_also_between_two_readings() {
        let sample =
            |at_s| Sample { at_s, device: 0, reserved_bytes: 5, allocated_bytes: 5, external_bytes: 0 };
        let mut report = with(vec![], vec![sample(0.0), sample(5.0)]);
        let most = timelines(&report)[0].charts[0].most.clone();
        report.devices[0].reserved_bytes.peak = 3 << 40;
        report.devices[0].limit_bytes = 8 << 40;
        let timeline = timelines(&report).remove(0);
        assert_ne!(most, "3.00 TiB");
        assert_eq!(timeline.charts[0].most, "3.00 TiB");
        assert_eq!(timeline.missing, "The peak of 3.00 TiB lay between two readings.");
    }
}
