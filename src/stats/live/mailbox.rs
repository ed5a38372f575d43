//! What another process may ask of the one that a live file is about: one command at a time, written into the file, taken
//! up by the process when it next comes by, and answered in the file.

use super::{Refusal, SAID_WORDS, View, at, files};
use std::fmt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant, SystemTime};

/// Words of the mailbox: those of the question, those of the answer.
const TICKET: usize = 0;
const CODE: usize = 1;
const DEVICE: usize = 2;
const BYTES: usize = 3;
const CHECK: usize = 4;
const ANSWERED: usize = 5;
const RESULT: usize = 6;
const VALUE: usize = 7;
const ALL: usize = 8;

/// What can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Give idle memory back to the driver.
    EmptyCache,
    /// Write the report as configured, as of now.
    Report,
    /// Start the peaks anew from what is held now.
    ResetPeak,
    /// Change the cap of a device.
    Limit {
        /// The device's number.
        device: u32,
        /// The new cap.
        bytes: u64,
    },
}

impl Command {
    fn words(self) -> [u64; 3] {
        match self {
            Command::EmptyCache => [1, 0, 0],
            Command::Report => [2, 0, 0],
            Command::ResetPeak => [3, 0, 0],
            Command::Limit { device, bytes } => [4, device.into(), bytes],
        }
    }

    fn from_words(words: [u64; 3]) -> Option<Command> {
        match words {
            [1, 0, 0] => Some(Command::EmptyCache),
            [2, 0, 0] => Some(Command::Report),
            [3, 0, 0] => Some(Command::ResetPeak),
            [4, device, bytes] => Some(Command::Limit { device: u32::try_from(device).ok()?, bytes }),
            _ => None,
        }
    }
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Done: bytes given back, or the cap that now holds; 0 for the others.
    Done(u64),
    /// Done: the report is in this file.
    Written(String),
    /// Not done.
    Refused(Why),
}

/// Why a process does not do what it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Its library does not know the command, or gives no reason.
    Unknown,
    /// It has not used the device.
    Device,
    /// Its settings switch the report off.
    ReportOff,
    /// The report could not be written where its settings want it.
    ReportFailed,
}

impl Why {
    const ALL: [Why; 4] = [Why::Unknown, Why::Device, Why::ReportOff, Why::ReportFailed];

    fn from_word(word: u64) -> Why {
        Self::ALL.into_iter().find(|why| *why as u64 == word).unwrap_or(Why::Unknown)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "its library does not know the command",
            Self::Device => "it has not used that device",
            Self::ReportOff => "its settings switch the report off (GPUCACHE_REPORT=off)",
            Self::ReportFailed => {
                "the report could not be written where GPUCACHE_REPORT says; the text is on its stderr"
            }
        })
    }
}

fn check(ticket: u64, words: [u64; 3]) -> u64 {
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    words.into_iter().fold(mix(1, ticket), mix)
}

/// The words of a question.
pub(super) fn question(ticket: u64, words: [u64; 3]) -> [u64; 5] {
    [ticket, words[0], words[1], words[2], check(ticket, words)]
}

/// The process's own side: the mailbox, and where words go.
#[derive(Clone, Copy)]
pub struct Mailbox(&'static [AtomicU64], &'static [AtomicU64]);

impl Mailbox {
    pub(super) fn new(words: &'static [AtomicU64]) -> Mailbox {
        Mailbox(&words[at::MAILBOX..at::MAILBOX + ALL], &words[at::SAID..=at::SAID + SAID_WORDS])
    }

    /// Whether anything was asked and not answered yet; two loads.
    #[inline]
    pub fn is_waiting(self) -> bool {
        self.0[TICKET].load(Ordering::Relaxed) != self.0[ANSWERED].load(Ordering::Relaxed)
    }

    /// The question, with its ticket; `None` for the command if it is not understood. Nothing while half of it is there.
    pub fn take(self) -> Option<(u64, Option<Command>)> {
        let word = |at: usize| self.0[at].load(Ordering::Acquire);
        let (ticket, words) = (word(TICKET), [word(CODE), word(DEVICE), word(BYTES)]);
        let whole = word(CHECK) == check(ticket, words) && ticket != word(ANSWERED) && ticket != 0;
        whole.then(|| (ticket, Command::from_words(words)))
    }

    /// Leaves a text, whole or not at all: half a name is the name of something else.
    fn say(self, text: &str) {
        let bytes = if text.len() <= SAID_WORDS * 8 { text.as_bytes() } else { &[] };
        for (at, bytes) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.1[1 + at].store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        self.1[0].store(bytes.len() as u64, Ordering::Relaxed);
    }

    /// Answers it.
    pub fn answer(self, ticket: u64, answer: &Answer) {
        let (result, value) = match answer {
            Answer::Done(value) => (1, *value),
            Answer::Written(_) => (1, 0),
            Answer::Refused(why) => (2, *why as u64),
        };
        self.say(if let Answer::Written(file) = answer { file } else { "" });
        self.0[RESULT].store(result, Ordering::Relaxed);
        self.0[VALUE].store(value, Ordering::Relaxed);
        fence(Ordering::Release);
        self.0[ANSWERED].store(ticket, Ordering::Release);
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unanswered {
    /// The file is not believed, or cannot be written.
    File(Refusal),
    /// The process is gone, or was replaced by another program.
    Gone,
    /// Another process has asked something else in the meantime.
    Overtaken,
    /// The process did not come by in time: it makes no CUDA allocation or free. It will answer when it does.
    NotYet,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(why) => write!(f, "the live file cannot be used: {why}"),
            Self::Gone => f.write_str("the process is gone"),
            Self::Overtaken => f.write_str("somebody else has asked for something else meanwhile"),
            Self::NotYet => f.write_str("the process has not allocated or freed since, and so not looked"),
        }
    }
}

impl std::error::Error for Unanswered {}

/// Asks the process of a live file, and waits for its answer for at most so long.
///
/// # Errors
/// Why there is no answer. After [`Unanswered::NotYet`] the command stays and will be carried out.
pub fn ask(path: &Path, command: Command, patience: Duration) -> Result<Answer, Unanswered> {
    let gone = |view: &View| !matches!(files::fate(view), files::Fate::Running | files::Fate::Elsewhere);
    let seen = files::read(path).map_err(Unanswered::File)?;
    if gone(&seen) {
        return Err(Unanswered::Gone);
    }
    let file = files::open(path, true).map_err(Unanswered::File)?;
    let unreadable = |error: std::io::Error| Unanswered::File(Refusal::Unreadable(error.to_string()));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let ticket = (now.as_nanos() as u64 ^ (u64::from(std::process::id()) << 40)) | 1;
    let bytes: Vec<u8> =
        question(ticket, command.words()).iter().flat_map(|word| word.to_ne_bytes()).collect();
    file.write_all_at(&bytes, at::MAILBOX as u64 * 8).map_err(unreadable)?;
    let end = Instant::now() + patience;
    loop {
        let mut bytes = [0; ALL * 8];
        file.read_exact_at(&mut bytes, at::MAILBOX as u64 * 8).map_err(unreadable)?;
        let word = |at: usize| bytes[at * 8..at * 8 + 8].try_into().map_or(0, u64::from_ne_bytes);
        if word(ANSWERED) == ticket {
            // The answer's other words were written before.
            file.read_exact_at(&mut bytes, at::MAILBOX as u64 * 8).map_err(unreadable)?;
            let word = |at: usize| bytes[at * 8..at * 8 + 8].try_into().map_or(0, u64::from_ne_bytes);
            let value = word(VALUE);
            return Ok(match (word(RESULT), said(&file).filter(|text| !text.is_empty())) {
                (1, Some(text)) => Answer::Written(text),
                (1, None) => Answer::Done(value),
                _ => Answer::Refused(Why::from_word(value)),
            });
        }
        if word(TICKET) != ticket {
            return Err(Unanswered::Overtaken);
        }
        if gone(&seen) {
            return Err(Unanswered::Gone);
        }
        if Instant::now() > end {
            return Err(Unanswered::NotYet);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What the answer says in words.
fn said(file: &std::fs::File) -> Option<String> {
    let mut bytes = vec![0; (1 + SAID_WORDS) * 8];
    file.read_exact_at(&mut bytes, at::SAID as u64 * 8).ok()?;
    let (length, text) = bytes.split_at(8);
    let length = usize::try_from(u64::from_ne_bytes(length.try_into().ok()?)).ok()?;
    String::from_utf8(text.get(..length)?.to_vec()).ok()
}
