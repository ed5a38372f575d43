//! Looks at the live files again and again, and remembers: what has become of a process whose file is gone, how fast it
//! allocates, and how its figures went. Only reads; the processes do not notice.

use super::history::{History, Sample};
use crate::report::model::DeviceReport;
use crate::stats::live::{self, Fate, Refusal, View};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What has become of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It runs.
    Running,
    /// It is in another container and has written nothing since the last look.
    Away,
    /// Its file is gone, as when the report has been written, and it still lives.
    Ending,
    /// It has ended, with its report written.
    Ended,
    /// It has become another program.
    Replaced,
    /// It has left its file behind: killed, or crashed.
    Killed,
}

impl State {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Away => "away",
            State::Ending => "ending",
            State::Ended => "ended",
            State::Replaced => "exec",
            State::Killed => "killed",
        }
    }

    /// Whether it is over with the process.
    pub fn is_over(self) -> bool {
        matches!(self, State::Ended | State::Replaced | State::Killed)
    }
}

/// A process that was seen.
pub struct Known {
    pub view: View,
    pub state: State,
    /// By device.
    pub histories: BTreeMap<u32, History>,
}

impl Known {
    /// The devices that it uses.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceReport> {
        self.view.devices.iter().filter(|device| device.was_used())
    }
}

/// What is remembered from look to look.
pub struct Watcher {
    folders: Vec<PathBuf>,
    /// Only these; all if there is none.
    only: Vec<u32>,
    /// By their files.
    pub known: BTreeMap<PathBuf, Known>,
    /// What is not believed, or not entered, and why: as of the last look.
    pub refused: Vec<(PathBuf, String)>,
    began: Instant,
}

impl Watcher {
    /// Nothing seen yet.
    pub fn new(folders: Vec<PathBuf>, only: &[u32]) -> Watcher {
        Watcher {
            folders,
            only: only.to_owned(),
            known: BTreeMap::new(),
            refused: Vec::new(),
            began: Instant::now(),
        }
    }

    /// Where it looks.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// The time since the first look.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Looks at everything once more.
    pub fn look(&mut self) {
        let now = self.now();
        self.refused.clear();
        let mut there = Vec::new();
        for folder in &self.folders {
            match live::paths(folder) {
                Ok(paths) => there.extend(paths),
                Err(why) => self.refused.push((folder.clone(), why.to_string())),
            }
        }
        self.missing(&there);
        for path in there {
            match live::read(&path) {
                Ok(view) if self.only.is_empty() || self.only.contains(&view.identity.pid) => {
                    self.seen(path, view, now);
                }
                Ok(_) => {}
                // Its process has removed it since the folder was read.
                Err(_) if !path.exists() => self.missing(&[]),
                Err(why) => {
                    if why != Refusal::Busy {
                        self.known.remove(&path);
                    }
                    self.refused.push((path, why.to_string()));
                }
            }
        }
    }

    fn seen(&mut self, path: PathBuf, view: View, now: Duration) {
        // The same name with another beginning: an `exec` of one program on the library by another.
        let before = self.known.remove(&path).filter(|known| known.view.identity == view.identity);
        let goes_on = before.as_ref().is_some_and(|known| known.view.updated != view.updated);
        let state = if goes_on { State::Running } else { state(live::fate_and_word(&path, &view)) };
        let mut histories = before.map(|known| known.histories).unwrap_or_default();
        for device in view.devices.iter().filter(|device| device.was_used()) {
            let life = Duration::from_nanos(view.updated.saturating_sub(view.identity.started));
            let history = histories.entry(device.ordinal).or_insert_with(|| History::of_life(life));
            if !state.is_over() || history.is_empty() {
                history.push(Sample::of(device, now));
            }
        }
        self.known.insert(path, Known { view, state, histories });
    }

    /// What has become of those whose files are not there any more.
    fn missing(&mut self, there: &[PathBuf]) {
        self.known.retain(|path, known| {
            if there.contains(path) || path.exists() {
                return true;
            }
            let identity = &known.view.identity;
            known.state = match known.state {
                // Its remains were swept away.
                State::Killed | State::Replaced => return false,
                State::Ended => State::Ended,
                _ if live::started_at(identity.pid) == Some(identity.start) => State::Ending,
                _ => State::Ended,
            };
            true
        });
    }
}

fn state(fate: Fate) -> State {
    match fate {
        Fate::Running => State::Running,
        Fate::Gone => State::Killed,
        Fate::Replaced => State::Replaced,
        Fate::Elsewhere => State::Away,
    }
}

/// The folders to look into.
pub fn folders(only: Option<&Path>) -> Vec<PathBuf> {
    only.map_or_else(live::places, |folder| vec![folder.to_owned()])
}
