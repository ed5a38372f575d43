//! What is on the screen, apart from how it is drawn: which rows, which of them is selected, which page is shown, and what
//! each key does to that.

use super::columns::{Column, Key, Order, Row, rows};
use super::watcher::{Known, Watcher};
use crate::args::Top;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::widgets::TableState;
use std::time::Duration;

/// Seconds that `+` and `-` go through.
const INTERVALS: [f64; 10] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0];

/// What fills the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    Table,
    Detail,
    Help,
}

/// What is to be done after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    GoOn,
    Quit,
    /// Ctrl-Z.
    Suspend,
}

/// The keys, for the help.
pub const KEYS: [(&str, &str); 11] = [
    ("up down PgUp PgDn Home End", "select (also k and j)"),
    ("Enter", "the selected one's figures, and back"),
    ("< >", "sort by the column before, after"),
    ("r", "the lowest first"),
    ("e", "hide what has ended, and show it again"),
    ("Space", "pause"),
    ("+ -", "look more rarely, more often"),
    ("Ctrl-L", "draw anew"),
    ("?", "this help"),
    ("Esc", "back, or quit"),
    ("q Ctrl-C", "quit"),
];

/// The whole of it.
pub struct View {
    pub watcher: Watcher,
    pub rows: Vec<Row>,
    pub order: Order,
    pub ended: bool,
    pub paused: bool,
    pub interval: f64,
    pub page: Page,
    /// The page that the help is in front of.
    behind: Page,
    /// Lines of a page that are above the screen.
    pub scroll: u16,
    /// Draw everything, whatever the terminal shows.
    pub anew: bool,
    /// Which row is selected; by what it is, because rows change places.
    selected: Option<Key>,
    /// The same by its place, and the first that is seen.
    pub table: TableState,
    /// Rows that fit, when it was last drawn.
    pub fit: usize,
}

impl View {
    /// As the command line says.
    pub fn new(watcher: Watcher, args: &Top) -> View {
        View {
            watcher,
            rows: Vec::new(),
            order: Order { by: args.sort, reversed: args.reverse },
            ended: !args.running,
            paused: false,
            interval: args.interval,
            page: Page::Table,
            behind: Page::Table,
            scroll: 0,
            anew: false,
            selected: None,
            table: TableState::default(),
            fit: 1,
        }
    }

    /// Looks at the processes.
    pub fn look(&mut self) {
        self.watcher.look();
        self.sort();
    }

    /// The time until the next look.
    pub fn pause(&self) -> Duration {
        Duration::from_secs_f64(self.interval)
    }

    /// The selected row and its process.
    pub fn chosen(&self) -> Option<(&Row, &Known)> {
        let row = self.rows.get(self.table.selected()?)?;
        Some((row, self.watcher.known.get(&row.key.0)?))
    }

    fn sort(&mut self) {
        self.rows = rows(&self.watcher, self.order, self.ended);
        let before = self.table.selected().unwrap_or(0);
        let key = self.selected.as_ref();
        let at = self.rows.iter().position(|row| Some(&row.key) == key).or_else(|| {
            // It was of a process before it used a device.
            self.rows.iter().position(|row| Some(&row.key.0) == key.map(|key| &key.0))
        });
        if at.is_none() {
            self.behind = Page::Table;
            if self.page == Page::Detail {
                self.page = Page::Table;
            }
        }
        self.select(at.unwrap_or(before));
    }

    fn select(&mut self, at: usize) {
        let at = (!self.rows.is_empty()).then(|| at.min(self.rows.len() - 1));
        self.table.select(at);
        self.selected = at.map(|at| self.rows[at].key.clone());
    }

    /// What a key does.
    pub fn key(&mut self, key: KeyEvent) -> Then {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Then::Quit,
                KeyCode::Char('z') => Then::Suspend,
                KeyCode::Char('l') => {
                    self.anew = true;
                    Then::GoOn
                }
                _ => Then::GoOn,
            };
        }
        match key.code {
            KeyCode::Char('q') => return Then::Quit,
            KeyCode::Esc if self.page == Page::Table => return Then::Quit,
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace | KeyCode::Char('?' | 'h') | KeyCode::Enter
                if self.page == Page::Help =>
            {
                self.turn(self.behind);
            }
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => self.turn(Page::Table),
            KeyCode::Char('?' | 'h') => {
                self.behind = self.page;
                self.turn(Page::Help);
            }
            KeyCode::Enter if self.page != Page::Table => self.turn(Page::Table),
            KeyCode::Enter | KeyCode::Right if !self.rows.is_empty() => self.turn(Page::Detail),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-(self.fit as isize)),
            KeyCode::PageDown => self.step(self.fit as isize),
            KeyCode::Home => self.step(isize::MIN),
            KeyCode::End => self.step(isize::MAX),
            KeyCode::Char('<' | ',') => self.sort_by(self.order.by.step(Column::ALL.len() - 1)),
            KeyCode::Char('>' | '.') => self.sort_by(self.order.by.step(1)),
            KeyCode::Char('r') => {
                self.order.reversed = !self.order.reversed;
                self.sort();
            }
            KeyCode::Char('e') => {
                self.ended = !self.ended;
                self.sort();
            }
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('+' | '=') => {
                let longer = INTERVALS.into_iter().find(|seconds| *seconds > self.interval);
                self.interval = longer.unwrap_or(self.interval);
            }
            KeyCode::Char('-') => {
                let shorter = INTERVALS.into_iter().rev().find(|seconds| *seconds < self.interval);
                self.interval = shorter.unwrap_or(self.interval);
            }
            _ => {}
        }
        Then::GoOn
    }

    fn turn(&mut self, page: Page) {
        (self.page, self.scroll) = (page, 0);
    }

    fn sort_by(&mut self, column: Column) {
        self.order = Order { by: column, reversed: false };
        self.sort();
    }

    /// So many rows or lines down.
    fn step(&mut self, by: isize) {
        if self.page == Page::Table {
            let at = self.table.selected().unwrap_or(0).saturating_add_signed(by);
            self.select(at);
        } else {
            // Drawing keeps it within the page.
            let by = by.clamp(-i16::MAX as isize, i16::MAX as isize) as i16;
            self.scroll = self.scroll.saturating_add_signed(by);
        }
    }
}
