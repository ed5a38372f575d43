//! Draws the table, the help, and what is above and below every page, into whatever room there is.

use super::columns::{Column, Row, brief, short};
use super::detail;
use super::view::{KEYS, Page, View};
use super::watcher::State;
use crate::report::units::{counted, printable};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row as Drawn, Table, Wrap};

/// Which columns there is room for: the first of these that fit, each with its width. The command takes what is left.
const BY_WEIGHT: [(Column, u16); 12] = [
    (Column::Pid, 7),
    (Column::Reserved, 5),
    (Column::Command, 8),
    (Column::Allocated, 5),
    (Column::Device, 3),
    (Column::State, 7),
    (Column::Limit, 5),
    (Column::Ooms, 3),
    (Column::Rate, 7),
    (Column::Hits, 4),
    (Column::Fragmentation, 4),
    (Column::Peak, 5),
];

/// Draws everything.
pub fn draw(frame: &mut Frame, view: &mut View) {
    let refused = u16::from(!view.watcher.refused.is_empty());
    let heights =
        [Constraint::Length(1), Constraint::Fill(1), Constraint::Length(refused), Constraint::Length(1)];
    let [head, page, warning, foot] = Layout::vertical(heights).areas(frame.area());
    frame.render_widget(Paragraph::new(headline(view)).reversed(), head);
    match view.page {
        Page::Table if view.rows.is_empty() => nothing(frame, view, page),
        Page::Table => table(frame, view, page),
        Page::Detail => detail::draw(frame, view, page),
        Page::Help => help(frame, view, page),
    }
    if let Some((path, why)) = view.watcher.refused.first() {
        let more = match view.watcher.refused.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let text = printable(&format!("refused{more}: {name}: {why}"));
        frame.render_widget(Paragraph::new(text).bold().fg(Color::Red), warning);
    }
    let keys = match view.page {
        Page::Table => "q quit  ? help  Enter detail  <> sort  r reverse  e ended  Space pause",
        Page::Detail | Page::Help => "Esc back  q quit  ? help  up down scroll",
    };
    frame.render_widget(Paragraph::new(keys).dim(), foot);
}

fn headline(view: &View) -> String {
    let over = view.watcher.known.values().filter(|known| known.state.is_over()).count();
    let alive = (view.watcher.known.len() - over) as u64;
    let sum = |of: fn(&Row) -> u64| short(view.rows.iter().filter(|row| !row.state.is_over()).map(of).sum());
    let mut parts = vec![match alive {
        1 => "1 process".to_owned(),
        alive => format!("{alive} processes"),
    }];
    if over > 0 {
        parts.push(format!("{over} ended"));
    }
    parts.push(format!("{} of {} in use", sum(|row| row.allocated), sum(|row| row.reserved)));
    if view.paused {
        parts.push("paused".to_owned());
    } else {
        parts.push(format!("every {} s", view.interval));
    }
    let way = if view.order.reversed { " reversed" } else { "" };
    parts.push(format!("by {}{way}", view.order.by.name()));
    format!(" {}", parts.join(" · ").replace('·', if unicode() { "·" } else { "-" }))
}

/// Whether the terminal can be expected to know more than ASCII.
pub fn unicode() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// The columns that fit into a width, from left to right, with theirs.
fn columns(width: u16) -> Vec<(Column, u16)> {
    let mut chosen: Vec<(Column, u16)> = Vec::new();
    let mut used = 0;
    for (column, wide) in BY_WEIGHT {
        let more = wide + u16::from(!chosen.is_empty());
        if used + more <= width || chosen.is_empty() {
            chosen.push((column, wide));
            used += more;
        }
    }
    for (column, wide) in &mut chosen {
        if *column == Column::Command {
            *wide += width.saturating_sub(used);
        }
    }
    let place = |of: Column| Column::ALL.iter().position(|column| *column == of);
    chosen.sort_by_key(|(column, _)| place(*column));
    chosen
}

fn table(frame: &mut Frame, view: &mut View, area: Rect) {
    let columns = columns(area.width);
    let line = |column: Column, text: String| match column {
        Column::Command | Column::State => Line::from(text),
        _ => Line::from(text).right_aligned(),
    };
    let title = |column: Column| {
        let style = Style::new().add_modifier(Modifier::BOLD);
        let sorted = if column == view.order.by { style.underlined() } else { style };
        Cell::from(line(column, column.title().to_owned()).style(sorted))
    };
    let titles = Drawn::new(columns.iter().map(|(column, _)| title(*column)));
    let rows = view.rows.iter().map(|row| {
        let cells = columns.iter().map(|(column, _)| {
            let text = match column {
                Column::Command => brief(&row.command).to_owned(),
                column => column.cell(row, short),
            };
            let cell = Cell::from(line(*column, text));
            if is_bad(*column, row) { cell.style(Style::new().fg(Color::Red).bold()) } else { cell }
        });
        let drawn = Drawn::new(cells.collect::<Vec<_>>());
        if row.state.is_over() { drawn.dim() } else { drawn }
    });
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
    let table = Table::new(rows, widths)
        .header(titles)
        .column_spacing(1)
        .row_highlight_style(Style::new().reversed());
    view.fit = usize::from(area.height.saturating_sub(1)).max(1);
    frame.render_stateful_widget(table, area, &mut view.table);
}

/// What should catch the eye.
fn is_bad(column: Column, row: &Row) -> bool {
    match column {
        Column::Ooms => row.ooms > 0,
        Column::State => row.state == State::Killed,
        Column::Limit => row.limit.is_some_and(|limit| row.reserved as f64 > 0.95 * limit as f64),
        _ => false,
    }
}

fn nothing(frame: &mut Frame, view: &View, area: Rect) {
    let mut lines = vec![
        Line::from("No process on the library.").bold(),
        Line::from("gpucache run PROGRAM starts one; it is seen from its first CUDA call on."),
        Line::from(""),
        Line::from("Looked into:"),
    ];
    let places = view.watcher.folders().iter().map(|place| Line::from(format!("  {}", place.display())));
    lines.extend(places);
    if !view.ended && !view.watcher.known.is_empty() {
        let ended = counted(view.watcher.known.len() as u64, "process");
        lines.push(Line::from(format!("{ended} ended; e shows what is over.")));
    }
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}

fn help(frame: &mut Frame, view: &mut View, area: Rect) {
    let mut lines: Vec<String> = KEYS.iter().map(|(keys, what)| format!("{keys:<14} {what}")).collect();
    lines.push(String::new());
    lines.extend(MEANINGS.map(str::to_owned));
    for (path, why) in &view.watcher.refused {
        lines.push(printable(&format!("refused: {}: {why}", path.display())));
    }
    scrolled(frame, &mut view.scroll, &lines, area);
}

const MEANINGS: [&str; 5] = [
    "ALLOC blocks in use; RESV what the pool holds, PEAK its most; LIMIT the cap, where there is one",
    "FRAG share of the pool's free memory out of one piece's reach, as of the last growth",
    "ALLOC/S allocations a second, HIT% those without a driver call, since the last look",
    "OOM requests answered with out of memory",
    "ended: well, report written; killed: see `gpucache report PID`; exec: another program now; away: in another container",
];

/// Lines that may be longer than their room is wide, and more than it is high.
pub fn scrolled(frame: &mut Frame, scroll: &mut u16, lines: &[String], area: Rect) {
    let lines: Vec<Line> =
        lines.iter().flat_map(|line| wrapped(line, usize::from(area.width))).map(Line::from).collect();
    let most = lines.len().saturating_sub(usize::from(area.height));
    *scroll = (*scroll).min(u16::try_from(most).unwrap_or(u16::MAX));
    frame.render_widget(Paragraph::new(lines).scroll((*scroll, 0)), area);
}

/// A line in pieces of a width, cut at blanks where there are any; those after the first are indented.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    let indent = (line.len() - line.trim_start().len() + 2).min(width / 4);
    let mut pieces = vec![];
    let mut rest: Vec<char> = line.trim_end().chars().collect();
    while rest.len() > width && width > 0 {
        let begins = rest.iter().take_while(|c| **c == ' ').count();
        let blank = (begins + 1..=width).rev().find(|at| rest[*at] == ' ');
        let tail = rest.split_off(blank.unwrap_or(width));
        pieces.push(rest.into_iter().collect::<String>().trim_end().to_owned());
        let tail = tail.into_iter().skip_while(|c| *c == ' ');
        rest = std::iter::repeat_n(' ', indent).chain(tail).collect();
    }
    pieces.push(rest.into_iter().collect());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_and_the_command_takes_the_rest() {
        for width in 0..300 {
            let columns = columns(width);
            let used: u16 = columns.iter().map(|(_, wide)| wide + 1).sum::<u16>() - 1;
            assert!(used <= width || columns.len() == 1, "{width}: {columns:?}");
            let has_command = columns.iter().any(|(column, _)| *column == Column::Command);
            assert!(!has_command || used == width, "{width}: {columns:?}");
        }
        assert_eq!(columns(80).len(), 12, "all of them on an ordinary terminal: {:?}", columns(80));
        let narrow: Vec<Column> = columns(40).into_iter().map(|(column, _)| column).collect();
        let expected = [
            Column::Pid,
            Column::Command,
            Column::Device,
            Column::Allocated,
            Column::Reserved,
            Column::State,
        ];
        assert_eq!(narrow, expected);
    }

    #[test]
    fn long_lines_are_cut_at_blanks() {
        assert_eq!(wrapped("  one two three", 9), ["  one two", "  three"]);
        assert_eq!(wrapped("abcdefghij", 4), ["abcd", " efg", " hij"]);
        assert_eq!(wrapped("", 4), [""]);
        for width in 0..20 {
            let pieces = wrapped("    served          4,808 allocations, 4,784 of them", width);
            assert!(
                width == 0 || pieces.iter().all(|piece| piece.chars().count() <= width),
                "{width}: {pieces:?}"
            );
        }
    }
}
