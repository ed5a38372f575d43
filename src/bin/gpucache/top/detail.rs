//! One device of one process: how its memory and its allocations went in the last minutes, and its report as of now.

use super::columns::{count, short};
use super::draw::{scrolled, unicode};
use super::history::{History, SPAN, Sample, rate};
use super::view::View;
use crate::report::to_text;
use crate::stats::live::Fate;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Stylize;
use ratatui::symbols::bar;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Sparkline};
use std::time::Duration;

/// Bars for terminals that know no more than ASCII.
const ASCII: bar::Set = bar::Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "*",
    five_eighths: "+",
    half: "=",
    three_eighths: "-",
    one_quarter: ":",
    one_eighth: ".",
    empty: " ",
};

/// A row of bars.
struct Bars {
    label: &'static str,
    of: fn(&Sample, Option<&Sample>) -> u64,
    show: fn(u64) -> String,
}

const BARS: [Bars; 3] = [
    Bars { label: "in use", of: |sample, _| sample.allocated, show: short },
    Bars { label: "held", of: |sample, _| sample.reserved + sample.external, show: short },
    Bars { label: "alloc/s", of: rate, show: |value| count(value as f64) },
];

/// Draws the selected row's page.
pub fn draw(frame: &mut Frame, view: &mut View, area: Rect) {
    let now = view.watcher.now();
    let Some((row, known)) = view.chosen() else { return };
    let (state, over) = (row.state.as_str(), row.state.is_over());
    let device = row.device.map_or("no GPU used yet".to_owned(), |device| format!("GPU {device}"));
    let title = Line::from(format!("{} {state}, {device}: {}", row.pid, row.command)).bold();
    let history = row.device.and_then(|device| known.histories.get(&device));
    // Bars leave at least half of the room to the figures.
    let height = (area.height.saturating_sub(2) / 2 / BARS.len() as u16).min(4);
    let bars = if history.is_some() { height * BARS.len() as u16 } else { 0 };
    let rows = [Constraint::Length(1), Constraint::Length(bars), Constraint::Fill(1)];
    let [head, middle, rest] = Layout::vertical(rows).areas(area);
    let mut report = known.view.report(Fate::Running);
    report.devices.retain(|device| Some(device.ordinal) == row.device);
    let most = report.devices.first().map_or(0, |device| {
        let peak = device.reserved_bytes.peak.max(device.external_bytes.peak);
        if device.is_capped() { device.limit_bytes } else { peak }
    });
    // The title says what the report's first line does.
    let lines: Vec<String> = to_text(&report).lines().skip(1).map(str::to_owned).collect();
    frame.render_widget(Paragraph::new(title), head);
    if let Some(history) = history.filter(|_| height > 0) {
        // What is over does not go on.
        sparks(frame, history, if over { history.last() } else { now }, most, middle);
    }
    scrolled(frame, &mut view.scroll, &lines, rest);
}

fn sparks(frame: &mut Frame, history: &History, now: Duration, most: u64, area: Rect) {
    let rows = Layout::vertical(BARS.map(|_| Constraint::Fill(1))).split(area);
    for (bars, row) in BARS.iter().zip(rows.iter()) {
        let parts = [Constraint::Length(14), Constraint::Fill(1)];
        let [left, right] = Layout::horizontal(parts).areas(*row);
        let data = history.bars(now, usize::from(right.width), bars.of);
        let last = data.iter().rev().find_map(|bar| *bar).unwrap_or(0);
        let highest = data.iter().filter_map(|bar| *bar).max().unwrap_or(0);
        let memory = bars.label != "alloc/s";
        let top = if memory { most.max(highest) } else { highest };
        let mut labels = vec![Line::from(format!("{:<7} {:>5}", bars.label, (bars.show)(last)))];
        if row.height > 1 {
            labels.push(Line::from(format!("{:>13}", format!("of {}", (bars.show)(top)))).dim());
        }
        if row.height > 2 {
            labels.push(Line::from(format!("{:>13}", format!("{} min", SPAN.as_secs() / 60))).dim());
        }
        frame.render_widget(Paragraph::new(labels), left);
        let symbols = if unicode() { bar::NINE_LEVELS } else { ASCII };
        let line = Sparkline::default().data(data).max(top.max(1)).absent_value_symbol(" ").bar_set(symbols);
        frame.render_widget(line, right);
    }
}
