//! Plain rows, for pipes and files: no escape codes, the whole command at the end of the line. Or JSON, a line a look.

use super::columns::{Column, Row, long};
use super::watcher::Watcher;
use crate::report::units::printable;
use crate::table::aligned;
use serde_json::json;
use std::time::{SystemTime, UNIX_EPOCH};

/// The rows with their titles.
pub fn text(rows: &[Row]) -> String {
    let columns: Vec<Column> = Column::ALL.into_iter().filter(|column| *column != Column::Command).collect();
    let mut cells = vec![columns.iter().map(|column| column.title().to_owned()).collect::<Vec<_>>()];
    cells.extend(rows.iter().map(|row| columns.iter().map(|column| column.cell(row, long)).collect()));
    let commands = std::iter::once(Column::Command.title()).chain(rows.iter().map(|row| &*row.command));
    let table = aligned(&cells);
    let width = table.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let lines = table.lines().zip(commands).map(|(line, command)| {
        let pad = " ".repeat(width - line.chars().count());
        format!("{}{pad}   {command}", line.trim_start_matches("  "))
    });
    lines.map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// One look as one line.
pub fn json(watcher: &Watcher, rows: &[Row]) -> String {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let refused =
        watcher.refused.iter().map(|(path, why)| json!({"path": path.to_string_lossy(), "why": why}));
    let rows: Vec<_> = rows.iter().map(Row::json).collect();
    format!("{}\n", json!({"time": time, "rows": rows, "refused": refused.collect::<Vec<_>>()}))
}

/// What is refused, a line each.
pub fn refused(watcher: &Watcher) -> impl Iterator<Item = String> {
    watcher.refused.iter().map(|(path, why)| printable(&format!("{} is refused: {why}", path.display())))
}
