//! The report as plain data. Every renderer and every reader works from these structs, and serde's view of them is the
//! JSON format: a field renamed here is a format change and raises [`SCHEMA_VERSION`].
//!
//! The words are those of `PyTorch`'s `memory_stats`: *requested* is what the program asked for, *allocated* what its
//! blocks take after rounding, *reserved* what the pool holds from the driver, *cached* the part of that which is free.
//! All sizes are bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use super::cap::CapFrom;
pub use super::counts::Counts;
use super::failure::Circumstances;
use super::history::{History, Map, Segment};
use super::sites::Sites;

/// Version of the JSON format. Fields may be added without raising it; nothing is renamed or removed without.
pub const SCHEMA_VERSION: u32 = 1;

/// Everything that one process has to say about its device memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The process that the figures belong to.
    pub process: Process,
    /// Effective settings, defaults included, and where each came from.
    pub config: Vec<Setting>,
    /// One entry for each device that the process used, in order of their ordinals.
    pub devices: Vec<DeviceReport>,
    /// Remarks for the reader: what was degraded, not counted or not understood.
    pub notes: Vec<String>,
    /// What happened when; absent unless `history` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
}

/// The process that a report is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Command line, arguments joined by spaces.
    pub command: String,
    /// Seconds from the library's start to the report.
    pub duration_s: f64,
    /// What ended the process.
    pub ended_by: EndedBy,
    /// The runs of `gpucache run --html` that it belongs to, the innermost last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<String>,
}

/// The way in which a process came to its end, as far as the library could see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndedBy {
    /// `exit`, or the return from `main`.
    #[serde(rename = "exit")]
    Exit,
    /// `_exit`.
    #[serde(rename = "_exit")]
    ImmediateExit,
    /// `_Exit`, the name that the C standard gives to `_exit`.
    #[serde(rename = "_Exit")]
    StandardImmediateExit,
    /// `quick_exit`.
    #[serde(rename = "quick_exit")]
    QuickExit,
    /// The process still runs: the report was asked for, not caused by an end.
    #[serde(rename = "running")]
    Running,
    /// `exec`: the process has become another program.
    #[serde(rename = "exec")]
    Exec,
    /// No end was seen: a signal, a crash, or the kernel's out-of-memory killer. The report was made from the live file.
    #[serde(rename = "killed")]
    Killed,
    /// An end that this version has no word for.
    #[serde(rename = "other", other)]
    Other,
}

impl EndedBy {
    /// The word used in JSON and in text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exit => "exit",
            Self::ImmediateExit => "_exit",
            Self::StandardImmediateExit => "_Exit",
            Self::QuickExit => "quick_exit",
            Self::Running => "running",
            Self::Exec => "exec",
            Self::Killed => "killed",
            Self::Other => "other",
        }
    }

    /// The same for people.
    pub fn in_words(self) -> String {
        match self {
            Self::Running => "still running".to_owned(),
            Self::Killed => "killed: no end was seen".to_owned(),
            other => format!("ended by {}", other.as_str()),
        }
    }

    /// The moment of the last figures.
    pub fn moment(self) -> &'static str {
        if self == Self::Running { "now" } else { "at the end" }
    }
}

/// One effective setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Key of the configuration variable, or the name of an environment variable that is a setting by itself.
    pub key: String,
    /// Value in the form in which it can be written into a configuration variable.
    pub value: String,
    /// Name of the environment variable that it came from, or `default`.
    pub source: String,
    /// The name under which it was written there, if that is another name of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_as: Option<String>,
}

impl Setting {
    /// The setting `key`, if somebody set it.
    pub fn that_is_set<'a>(config: &'a [Setting], key: &str) -> Option<&'a Setting> {
        config.iter().find(|setting| setting.key == key).filter(|setting| setting.source != DEFAULT_SOURCE)
    }
}

/// [`Setting::source`] of a setting that nobody set.
pub const DEFAULT_SOURCE: &str = "default";

/// A byte count over the life of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gauge {
    /// Bytes now.
    pub current: u64,
    /// Most bytes at any moment.
    pub peak: u64,
    /// Sum of everything ever added.
    pub total_allocated: u64,
    /// Sum of everything ever taken away.
    pub total_freed: u64,
}

/// Figures of one device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// CUDA ordinal within the process.
    pub ordinal: u32,
    /// Name that the driver gives to the device.
    pub name: String,
    /// Memory of the device.
    pub total_bytes: u64,
    /// Cap on reserved plus external bytes; equal to `total_bytes` where no setting is lower.
    pub limit_bytes: u64,
    /// Where the cap comes from; absent in reports of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_from: Option<CapFrom>,
    /// Bytes that the program asked for and has not freed. The peak is exact while one context at a time has a pool. Of
    /// several at once it is the sum of their peaks, an upper bound, but never above the peak of `reserved_bytes`, which
    /// is exact; contexts that followed each other do not add up.
    pub requested_bytes: Gauge,
    /// Bytes of the blocks that serve those requests. The peak is as exact as that of `requested_bytes`.
    pub allocated_bytes: Gauge,
    /// Bytes that the pool holds from the driver.
    pub reserved_bytes: Gauge,
    /// Bytes that the program allocated outside the pool and that count against the cap.
    pub external_bytes: Gauge,
    /// `external_bytes` by the kind of allocation; kinds never used are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub external_by_kind: BTreeMap<String, Gauge>,
    /// The moment of the reserved bytes' high-water mark; absent when the pool never held anything. Where several contexts
    /// had a pool: of the one whose mark was highest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<Peak>,
    /// Closest approach to the cap: limit less the most that was in use at once.
    pub headroom_bytes: u64,
    /// How much of the free memory was out of one piece's reach, at three kinds of moment.
    pub fragmentation: Fragmentation,
    /// Largest free block in the pool at the end; see [`Fragmentation`].
    pub largest_free_block_bytes: u64,
    /// Requests by size; empty buckets are left out.
    pub size_histogram: Vec<SizeBucket>,
    /// How often each thing happened.
    pub counts: Counts,
    /// What the program never freed.
    #[serde(default)]
    pub live_at_exit: Live,
    /// Time measured inside the pool's driver calls; absent when it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_time: Option<DriverTime>,
    /// The expandable ranges of the pools (`expandable_segments:True`), added up; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapped: Option<Mapped>,
    /// The parts of its life that the program has named by `gpucache_mark`, in order of their first beginning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// How the memory lay at the end; empty unless `history` is set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Segment>,
    /// How it lay at the reserved bytes' high-water mark, or shortly before; absent unless `history` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map_at_peak: Option<Map>,
    /// Who holds the memory, where allocations were sampled (`sites`); absent where not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sites: Option<Sites>,
}

/// A part of the process's life that the program has named. One that was entered more than once adds up, but for peaks.
/// Peaks of several contexts add up to an upper bound.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Its name; empty for the time before the first.
    pub name: String,
    /// How often it was entered.
    pub entered: u64,
    /// Seconds spent in it.
    pub seconds: f64,
    /// Most bytes that the program had asked for at once.
    pub requested_peak_bytes: u64,
    /// Most bytes of the blocks for that.
    pub allocated_peak_bytes: u64,
    /// Most bytes that the pool held.
    pub reserved_peak_bytes: u64,
    /// Bytes by which the pool grew.
    pub grown_bytes: u64,
    /// Allocation requests that the pool served.
    pub allocs: u64,
    /// Frees of pooled blocks.
    pub frees: u64,
    /// Allocation calls that the pool made to the driver.
    pub driver_allocs: u64,
}

/// The pool at the moment when it reserved more than ever before or after.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peak {
    /// Bytes that the program had asked for.
    pub requested_bytes: u64,
    /// Bytes of the blocks that served it.
    pub allocated_bytes: u64,
    /// Bytes that the pool held.
    pub reserved_bytes: u64,
    /// Reserved bytes that were in no block in use.
    pub cached_bytes: u64,
    /// Bytes outside the pool.
    pub external_bytes: u64,
    /// Largest free block; see [`Fragmentation`].
    pub largest_free_block_bytes: u64,
}

/// Fragmentation as `1 - largest free block / all free bytes`: 0 when the free memory is one piece or there is none,
/// towards 1 as it falls into small pieces.
///
/// A *free block* here and in the fields of that name is the largest stretch of free memory without anything in use in
/// between, within what the driver gave in one allocation. Memory that was freed but must wait for work submitted before
/// counts as free: how it lies is what is judged, not when it can be used again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Fragmentation {
    /// At the reserved bytes' high-water mark.
    pub at_peak: f64,
    /// At the end of the process.
    pub at_exit: f64,
    /// At each out of memory, the first ones where there were many.
    pub at_oom: Vec<OomMoment>,
}

/// [`OomMoment::kind`] of a request for memory of the pool.
pub const POOL: &str = "pool";

/// One request that was answered with out of memory, and what the memory looked like. The pool's figures are those of the
/// context that asked, or of all contexts of the device where the request was for memory outside the pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OomMoment {
    /// What asked: [`POOL`], or the kind of an allocation outside it.
    pub kind: String,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// Free bytes within the reserved ones.
    pub free_bytes: u64,
    /// Largest free block; see [`Fragmentation`]. All pending memory has been waited for at that moment, unless a stream
    /// was capturing: so mostly the largest request that could have been served without growing.
    pub largest_free_block_bytes: u64,
    /// Fragmentation of the free bytes.
    pub fragmentation: f64,
    /// Bytes that the pool held.
    pub reserved_bytes: u64,
    /// Bytes of blocks in use.
    pub allocated_bytes: u64,
    /// Bytes outside the pool.
    pub external_bytes: u64,
    /// The cap.
    pub limit_bytes: u64,
    /// Bytes that the driver reported free on the device, where it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_free_bytes: Option<u64>,
    /// The lowest cap under which the request would have fitted: what was in use, and what the driver takes for the
    /// request, whole pages of 2 MiB but for small allocations outside the pool; without what lay idle in the pool, which
    /// would have made room for memory outside it.
    pub sufficient_limit_bytes: u64,
    /// Bytes held by the process on the device in all.
    #[serde(default)]
    pub in_use_bytes: u64,
    /// Who asked, and what was live: absent where so many requests had failed before that nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circumstances: Option<Circumstances>,
    /// How the memory lay, for the first few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<Map>,
}

/// Requests whose size lies in one power-of-two interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeBucket {
    /// Smallest size that belongs here.
    pub min_bytes: u64,
    /// Largest size that belongs here, a power of two but for the last bucket.
    pub max_bytes: u64,
    /// Number of requests.
    pub count: u64,
    /// Sum of their sizes.
    pub bytes: u64,
}

/// Blocks in use at the end of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes that the program had asked for with them.
    pub bytes: u64,
    /// The same by size; empty buckets are left out.
    #[serde(default)]
    pub by_size: Vec<SizeBucket>,
}

/// Time that the pool's own driver calls took, measured around each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverTime {
    /// Nanoseconds within allocation calls.
    pub alloc_ns: u64,
    /// Number of allocation calls measured.
    pub allocs: u64,
    /// Nanoseconds within free calls.
    pub free_ns: u64,
    /// Number of free calls measured.
    pub frees: u64,
}

/// What lies behind the expandable ranges of a device, and what was moved in them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapped {
    /// Physical memory mapped now; with `loose_bytes` the ranges' part of `reserved_bytes`.
    pub mapped_bytes: u64,
    /// Physical memory that is held and mapped nowhere, after a driver call has failed.
    pub loose_bytes: u64,
    /// Addresses from the start of a range to its last mapped one, holes included.
    pub spanned_bytes: u64,
    /// Driver handles behind the mapped memory.
    pub handles: u64,
    /// Growths that moved free memory instead of taking new.
    pub remaps: u64,
    /// Handles that these moved.
    pub moved_handles: u64,
    /// Bytes that these moved.
    pub moved_bytes: u64,
    /// Nanoseconds within growths, the making of new memory included.
    pub map_ns: u64,
}

impl Mapped {
    /// Adds the range of another pool.
    pub fn merge(&mut self, other: &Mapped) {
        self.mapped_bytes += other.mapped_bytes;
        self.loose_bytes += other.loose_bytes;
        self.spanned_bytes += other.spanned_bytes;
        self.handles += other.handles;
        self.remaps += other.remaps;
        self.moved_handles += other.moved_handles;
        self.moved_bytes += other.moved_bytes;
        self.map_ns += other.map_ns;
    }
}

impl DeviceReport {
    /// Whether a setting holds the process below the device's own memory.
    pub fn is_capped(&self) -> bool {
        self.limit_bytes < self.total_bytes
    }

    /// Whether anything was ever allocated, or asked for, on the device.
    pub fn was_used(&self) -> bool {
        self.counts.alloc > 0 || self.counts.oom > 0 || self.external_bytes.total_allocated > 0
    }
}
