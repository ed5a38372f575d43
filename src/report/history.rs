//! What happened when, and how the memory lay: the parts of the report that are there when a history was kept, or when
//! memory ran out. What there are many of stands in the JSON as a row, a list in place of an object, so that a report with
//! a hundred thousand events can still be read and mailed.

use super::units::{counted, duration, grouped};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;

/// What an event is about. The words for segments, allocations and frees are those of `PyTorch`'s traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// The pool has got a segment from the driver.
    SegmentAlloc = 1,
    /// A segment has gone back to the driver, or has ended with its context.
    SegmentFree = 2,
    /// Memory was mapped into an expandable range.
    SegmentMap = 3,
    /// Memory was taken out of a range: given back, or mapped elsewhere by the next event.
    SegmentUnmap = 4,
    /// An allocation of the program, of `min_bytes` or more.
    Alloc = 5,
    /// A free of one.
    Free = 6,
    /// A request that could not be served.
    Oom = 7,
    /// Idle memory was given back because memory was short, or because somebody asked; the bytes are the sum.
    Trim = 8,
    /// The same by `garbage_collection_threshold`.
    Collect = 9,
    /// All later work of the device was made to wait for freed memory.
    Barrier = 10,
    /// The pool has never held so much; the bytes are what it held at the mark before.
    Peak = 11,
    /// The program has begun a phase.
    Phase = 12,
}

impl What {
    /// All of them.
    pub const ALL: [What; 12] = [
        What::SegmentAlloc,
        What::SegmentFree,
        What::SegmentMap,
        What::SegmentUnmap,
        What::Alloc,
        What::Free,
        What::Oom,
        What::Trim,
        What::Collect,
        What::Barrier,
        What::Peak,
        What::Phase,
    ];

    /// The word in the report.
    pub fn as_str(self) -> &'static str {
        match self {
            What::SegmentAlloc => "segment_alloc",
            What::SegmentFree => "segment_free",
            What::SegmentMap => "segment_map",
            What::SegmentUnmap => "segment_unmap",
            What::Alloc => "alloc",
            What::Free => "free",
            What::Oom => "oom",
            What::Trim => "trim",
            What::Collect => "gc",
            What::Barrier => "barrier",
            What::Peak => "peak",
            What::Phase => "phase",
        }
    }

    /// The kind of this word.
    pub fn named(word: &str) -> Option<What> {
        What::ALL.into_iter().find(|what| what.as_str() == word)
    }
}

/// The history of a process: `GPUCACHE_CONF=history:N`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Events that there is room for.
    pub capacity: u64,
    /// Events that there were; the first `lost` of them, or nearly so, are not here.
    pub recorded: u64,
    /// Events that had to make room for later ones, or met another in its place.
    pub lost: u64,
    /// Allocations and frees below this are no events.
    pub min_bytes: u64,
    /// Names of the phases, by the numbers in the events; that of 0, before the first mark, is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<String>,
    /// What the elements of an event are.
    #[serde(default = "event_columns")]
    pub event_columns: Vec<String>,
    /// By time.
    pub events: Vec<Event>,
    /// What the elements of a sample are.
    #[serde(default = "sample_columns")]
    pub sample_columns: Vec<String>,
    /// Readings over the whole life of the process, by time: where there are too many, every other one is dropped, and half as
    /// many taken from then on.
    pub samples: Vec<Sample>,
}

impl History {
    /// How much of it there is, in words.
    pub fn summary(&self) -> String {
        let events = match self.lost {
            0 => counted(self.recorded, "event"),
            lost => {
                format!("the last {} of {}", grouped(self.recorded - lost), counted(self.recorded, "event"))
            }
        };
        let since = self.events.first().map_or(0.0, |event| event.at_s);
        format!(
            "{events}, from {} on; {} since the start",
            duration(since),
            counted(self.samples.len() as u64, "sample")
        )
    }
}

fn names(columns: &[&str]) -> Vec<String> {
    columns.iter().map(|&name| name.to_owned()).collect()
}

/// What an [`Event`]'s elements are in the JSON.
pub fn event_columns() -> Vec<String> {
    names(&[
        "at_s",
        "kind",
        "device",
        "bytes",
        "address",
        "reserved_bytes",
        "allocated_bytes",
        "external_bytes",
        "phase",
        "pool",
    ])
}

/// What a [`Sample`]'s elements are in the JSON.
pub fn sample_columns() -> Vec<String> {
    names(&["at_s", "device", "reserved_bytes", "allocated_bytes", "external_bytes"])
}

/// Something that happened on a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Value>", into = "EventRow")]
pub struct Event {
    /// Seconds since the library was loaded.
    pub at_s: f64,
    /// [`What`] it was, as a word: a later version may have others.
    pub kind: Cow<'static, str>,
    /// The device.
    pub device: u32,
    /// How much it was about; of an allocation what the program had asked for.
    pub bytes: u64,
    /// Where, if it was at some address.
    pub address: u64,
    /// What the pools of the device held afterwards.
    pub reserved_bytes: u64,
    /// What was in use of that, in the pool of the event.
    pub allocated_bytes: u64,
    /// What was held outside the pools.
    pub external_bytes: u64,
    /// Number of the phase.
    pub phase: u32,
    /// Number of the pool: a device has one for each context that lives beside others.
    pub pool: u32,
}

type EventRow = (f64, Cow<'static, str>, u32, u64, u64, u64, u64, u64, u32, u32);

impl From<Event> for EventRow {
    fn from(event: Event) -> EventRow {
        let Event { at_s, kind, device, bytes, address, reserved_bytes, .. } = event;
        let Event { allocated_bytes, external_bytes, phase, pool, .. } = event;
        (at_s, kind, device, bytes, address, reserved_bytes, allocated_bytes, external_bytes, phase, pool)
    }
}

/// The whole number at a place of a row.
fn whole(row: &[Value], at: usize) -> Result<u64, String> {
    row.get(at).and_then(Value::as_u64).ok_or_else(|| format!("a row has no number at place {at}"))
}

fn small(row: &[Value], at: usize) -> Result<u32, String> {
    u32::try_from(whole(row, at)?).map_err(|_| format!("a row has too large a number at place {at}"))
}

fn text(row: &[Value], at: usize) -> Result<String, String> {
    row.get(at)
        .and_then(Value::as_str)
        .map(str::to_owned)
        .ok_or_else(|| format!("a row has no word at place {at}"))
}

fn seconds(row: &[Value], at: usize) -> Result<f64, String> {
    row.get(at).and_then(Value::as_f64).ok_or_else(|| format!("a row has no time at place {at}"))
}

// Not by a tuple: a later version may have added elements.
impl TryFrom<Vec<Value>> for Event {
    type Error = String;

    fn try_from(row: Vec<Value>) -> Result<Event, String> {
        Ok(Event {
            at_s: seconds(&row, 0)?,
            kind: text(&row, 1)?.into(),
            device: small(&row, 2)?,
            bytes: whole(&row, 3)?,
            address: whole(&row, 4)?,
            reserved_bytes: whole(&row, 5)?,
            allocated_bytes: whole(&row, 6)?,
            external_bytes: whole(&row, 7)?,
            phase: small(&row, 8)?,
            pool: small(&row, 9)?,
        })
    }
}

/// A reading of a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Value>", into = "(f64, u32, u64, u64, u64)")]
pub struct Sample {
    /// Seconds since the library was loaded.
    pub at_s: f64,
    /// The device.
    pub device: u32,
    /// What its pools held.
    pub reserved_bytes: u64,
    /// What was in use of that.
    pub allocated_bytes: u64,
    /// What was held outside the pools.
    pub external_bytes: u64,
}

impl From<Sample> for (f64, u32, u64, u64, u64) {
    fn from(s: Sample) -> Self {
        (s.at_s, s.device, s.reserved_bytes, s.allocated_bytes, s.external_bytes)
    }
}

impl TryFrom<Vec<Value>> for Sample {
    type Error = String;

    fn try_from(row: Vec<Value>) -> Result<Sample, String> {
        Ok(Sample {
            at_s: seconds(&row, 0)?,
            device: small(&row, 1)?,
            reserved_bytes: whole(&row, 2)?,
            allocated_bytes: whole(&row, 3)?,
            external_bytes: whole(&row, 4)?,
        })
    }
}

/// How the memory of a device's pools lay at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// Seconds since the library was loaded.
    pub at_s: f64,
    /// By address.
    pub segments: Vec<Segment>,
    /// Segments that there was no room for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's form
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's form
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// A driver allocation of a pool, or a stretch of its range that is mapped without a gap.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// Address.
    pub address: u64,
    /// Size.
    pub bytes: u64,
    /// Whether it is a part of an expandable range.
    #[serde(default, skip_serializing_if = "is_false")]
    pub expandable: bool,
    /// By address; together they are the segment.
    pub blocks: Vec<Block>,
}

/// A block of a segment: in the JSON a row of offset, bytes, state, requested bytes and number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Value>", into = "(u64, u64, Cow<'static, str>, u64, u64)")]
pub struct Block {
    /// Where it begins in the segment.
    pub offset: u64,
    /// Its size.
    pub bytes: u64,
    /// [`ALLOCATED`], [`PENDING`] or [`FREE`].
    pub state: Cow<'static, str>,
    /// What the program had asked for; 0 unless allocated.
    pub requested: u64,
    /// How many small blocks beside each other this stands for.
    pub count: u64,
}

/// State of a block that is the program's.
pub const ALLOCATED: &str = "allocated";
/// State of a block that is freed, and waits for work submitted before, or for its thread.
pub const PENDING: &str = "pending";
/// State of a block that can be handed out.
pub const FREE: &str = "free";

impl From<Block> for (u64, u64, Cow<'static, str>, u64, u64) {
    fn from(block: Block) -> Self {
        (block.offset, block.bytes, block.state, block.requested, block.count)
    }
}

impl TryFrom<Vec<Value>> for Block {
    type Error = String;

    fn try_from(row: Vec<Value>) -> Result<Block, String> {
        Ok(Block {
            offset: whole(&row, 0)?,
            bytes: whole(&row, 1)?,
            state: text(&row, 2)?.into(),
            requested: whole(&row, 3)?,
            count: whole(&row, 4)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_word_of_its_own() {
        for what in What::ALL {
            assert_eq!(What::named(what.as_str()), Some(what));
        }
        assert_eq!(What::named("invented_later"), None);
    }

    #[test]
    fn the_summary_says_what_is_missing() {
        let history = History { recorded: 12_000, lost: 11_000, ..History::default() };
        assert_eq!(
            history.summary(),
            "the last 1,000 of 12,000 events, from 0.0 s on; 0 samples since the start"
        );
        let history = History { recorded: 1, ..History::default() };
        assert_eq!(history.summary(), "1 event, from 0.0 s on; 0 samples since the start");
    }

    #[test]
    fn rows_read_back_and_longer_ones_too() {
        let event = Event {
            at_s: 1.5,
            kind: "alloc".into(),
            device: 1,
            bytes: 2,
            address: 3,
            reserved_bytes: 4,
            allocated_bytes: 5,
            external_bytes: 6,
            phase: 7,
            pool: 8,
        };
        let mut row = serde_json::to_value(&event).unwrap();
        assert_eq!(row.as_array().unwrap().len(), event_columns().len());
        row.as_array_mut().unwrap().push("invented later".into());
        assert_eq!(serde_json::from_value::<Event>(row).unwrap(), event);
        let block = Block { offset: 1, bytes: 2, state: FREE.into(), requested: 0, count: 1 };
        assert_eq!(serde_json::to_string(&block).unwrap(), "[1,2,\"free\",0,1]");
        assert!(serde_json::from_str::<Block>("[1,2]").is_err());
        let sample =
            Sample { at_s: 0.5, device: 0, reserved_bytes: 1, allocated_bytes: 2, external_bytes: 3 };
        let row = serde_json::to_value(&sample).unwrap();
        assert_eq!(row.as_array().unwrap().len(), sample_columns().len());
        assert_eq!(serde_json::from_value::<Sample>(row).unwrap(), sample);
    }
}
