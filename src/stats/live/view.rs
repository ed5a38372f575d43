//! What a reader makes of a live file's words. Nothing in them is believed: the file may be torn, damaged, of another
//! version, or not a live file at all.

use super::{
    BYTES, COMMAND_WORDS, CONFIG_WORDS, DEVICE_WORDS, DEVICES, Fate, Identity, MAGIC, NOTES_WORDS,
    QUICK_WORDS, Quick, RUNS, SLOT_WORDS, VERSION, WORDS, at, fields,
};
use crate::report::model::{DeviceReport, EndedBy, Process, Report, SCHEMA_VERSION};
use std::fmt;
use std::sync::atomic::{Ordering, fence};

/// How often a file is read that changes meanwhile.
const TRIES: usize = 100;

/// Why a file is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The operating system would not let it be read; with its words.
    Unreadable(String),
    /// It is not the calling user's own, not private, or not a plain file.
    Foreign(&'static str),
    /// It is none of ours.
    NotLive,
    /// It has another version of the layout.
    Version(u64),
    /// It has not the size that it says, or that it must have.
    Size(u64),
    /// A figure in it cannot be.
    Damaged(&'static str),
    /// It changed while it was read, each time.
    Busy,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => write!(f, "it cannot be read: {why}"),
            Self::Foreign(why) => write!(f, "it is not to be trusted: {why}"),
            Self::NotLive => write!(f, "it is not a live file"),
            Self::Version(version) => {
                write!(f, "its layout has version {version}, this program knows version {VERSION}")
            }
            Self::Size(bytes) => write!(f, "its size is {bytes} bytes and not {BYTES}"),
            Self::Damaged(what) => write!(f, "it is damaged: {what}"),
            Self::Busy => write!(f, "it changed each time it was read"),
        }
    }
}

impl std::error::Error for Refusal {}

/// What a live file says.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// Whose file it is.
    pub identity: Identity,
    /// When its figures were last written, in nanoseconds since 1970.
    pub updated: u64,
    /// Whether somebody has seen that the process had become another program.
    pub replaced: bool,
    /// Figures by device.
    pub devices: Vec<DeviceReport>,
    /// Remarks.
    pub notes: Vec<String>,
}

/// Which copy of the whole figures is the newer complete one, with its sequence number; `None` if none was ever written.
fn newest(mut word: impl FnMut(usize) -> u64) -> Option<(usize, u64)> {
    let copies = [0, 1].map(|copy| at::SLOTS + copy * SLOT_WORDS).map(|start| (start, word(start)));
    let complete = copies.into_iter().filter(|(_, sequence)| *sequence > 0 && sequence % 2 == 0);
    complete.max_by_key(|(_, sequence)| *sequence)
}

fn text(words: &[u64], at: usize, room: usize) -> Result<String, Refusal> {
    let length = usize::try_from(words[at]).ok().filter(|length| *length <= room * 8);
    let length = length.ok_or(Refusal::Damaged("a text is too long"))?;
    let bytes: Vec<u8> = words[at + 1..=at + room].iter().flat_map(|word| word.to_ne_bytes()).collect();
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// Whether a file that begins like this is a live file, whatever its version. The text of a report begins with the same
/// letters, and no version is ever as large as text.
pub fn is_start(bytes: &[u8; 16]) -> bool {
    let [magic, version] = [0, 8].map(|at| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_ne_bytes(word)
    });
    magic == MAGIC && version < 1 << 16
}

/// The words of a file's bytes, if it can be one of ours.
pub(super) fn words_of(bytes: &[u8]) -> Result<Vec<u64>, Refusal> {
    let word = |chunk: &[u8]| chunk.try_into().map(u64::from_ne_bytes).unwrap_or_default();
    let words: Vec<u64> = bytes.chunks_exact(8).map(word).collect();
    if words.get(at::MAGIC) != Some(&MAGIC) {
        return Err(Refusal::NotLive);
    }
    match words.get(at::VERSION) {
        Some(&VERSION) => {}
        Some(version) => return Err(Refusal::Version(*version)),
        None => return Err(Refusal::NotLive),
    }
    if bytes.len() != BYTES || words[at::WORDS] != WORDS as u64 {
        return Err(Refusal::Size(bytes.len() as u64));
    }
    Ok(words)
}

impl View {
    /// Makes a view of a file: `all` reads its bytes, `word` one word. Figures are believed only if their sequence number
    /// was the same before and is the same afterwards; that is looked at before anything else is done with the bytes, because
    /// a process may write as often as it allocates.
    ///
    /// # Errors
    /// The file is none of ours, of another version, damaged, or busy.
    pub fn of(
        mut all: impl FnMut() -> Result<Vec<u8>, Refusal>,
        mut word: impl FnMut(usize) -> Result<u64, Refusal>,
    ) -> Result<View, Refusal> {
        for _ in 0..TRIES {
            // By a reading of its own, for within one the processor may fetch figures before their number. A file that is too
            // short has none.
            let before = newest(|at| word(at).unwrap_or(0));
            fence(Ordering::Acquire);
            let bytes = all()?;
            fence(Ordering::Acquire);
            let seen = |at: usize| {
                bytes
                    .get(at * 8..at * 8 + 8)
                    .and_then(|word| word.try_into().ok())
                    .map_or(0, u64::from_ne_bytes)
            };
            let still = match newest(seen) {
                Some((at, sequence)) if bytes.len() == BYTES => {
                    before == Some((at, sequence)) && word(at)? == sequence
                }
                _ => true,
            };
            if still {
                return View::from_words(&words_of(&bytes)?);
            }
        }
        Err(Refusal::Busy)
    }

    fn from_words(words: &[u64]) -> Result<View, Refusal> {
        let small = |at: usize, what| u32::try_from(words[at]).map_err(|_| Refusal::Damaged(what));
        let config = text(words, at::CONFIG, CONFIG_WORDS)?;
        let identity = Identity {
            pid: small(at::PID, "its process number is none")?,
            start: words[at::START],
            boot: words[at::BOOT],
            namespace: words[at::NAMESPACE],
            uid: small(at::UID, "its user's number is none")?,
            started: words[at::STARTED],
            runs: words[at::RUNS..at::RUNS + RUNS].iter().copied().filter(|run| *run != 0).collect(),
            command: text(words, at::COMMAND, COMMAND_WORDS)?,
            config: serde_json::from_str(&config).map_err(|_| Refusal::Damaged("its settings are none"))?,
        };
        let mut devices = Vec::new();
        if let Some((start, _)) = newest(|at| words[at]) {
            let count = usize::try_from(words[start + 1]).ok().filter(|count| *count <= DEVICES);
            let count = count.ok_or(Refusal::Damaged("too many devices"))?;
            for place in 0..count {
                let from = start + 2 + place * DEVICE_WORDS;
                let mut device = DeviceReport::default();
                fields::device(&mut fields::Reader(words[from..from + DEVICE_WORDS].iter()), &mut device)?;
                devices.push(device);
            }
        }
        let notes = match words[at::NOTES_SEQUENCE] {
            0 => String::new(),
            // Being written: better none than half of one.
            odd if odd % 2 == 1 => String::new(),
            _ => text(words, at::NOTES, NOTES_WORDS)?,
        };
        for device in &mut devices {
            let from = at::QUICK + device.ordinal as usize * QUICK_WORDS;
            let quick = Quick::from_words(&words[from..from + QUICK_WORDS]);
            if quick.used > 1 {
                return Err(Refusal::Damaged("a mark is neither 0 nor 1"));
            }
            if quick.used == 1 {
                quick.apply(device);
            }
        }
        let notes = notes.lines().map(str::to_owned).collect();
        Ok(View { identity, updated: words[at::UPDATED], replaced: words[at::REPLACED] == 1, devices, notes })
    }

    /// The report that can be made of it, for a process of this fate.
    pub fn report(&self, fate: Fate) -> Report {
        let duration_s = self.updated.saturating_sub(self.identity.started) as f64 / 1e9;
        let (pid, command) = (self.identity.pid, self.identity.command.clone());
        let ended_by = match fate {
            Fate::Running | Fate::Elsewhere => EndedBy::Running,
            Fate::Replaced => EndedBy::Exec,
            Fate::Gone => EndedBy::Killed,
        };
        Report {
            schema_version: SCHEMA_VERSION,
            process: Process {
                pid,
                command,
                duration_s,
                ended_by,
                runs: self.identity.runs.iter().map(|run| format!("{run:x}")).collect(),
            },
            config: self.identity.config.clone(),
            devices: self.devices.iter().filter(|device| device.was_used()).cloned().collect(),
            notes: self.notes.clone(),
            history: None,
        }
    }
}
