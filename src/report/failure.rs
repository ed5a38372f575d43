//! Out of memory, explained: what was asked and by whom, what was in use, how the rest lay, and what would have been enough.
//! The same words stand on stderr at that moment and in the report.

use super::advice::advise;
use super::cap::SetBy;
use super::model::{DeviceReport, EndedBy, OomMoment, POOL, Process, Report, SCHEMA_VERSION, Setting};
use super::units::{counted, duration, human, printable};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The size of a driver's page.
const PAGE: u64 = 2 << 20;
/// Sizes of what was in use that are said on stderr.
const SIZES_SAID: usize = 4;

/// What else there is to know of a moment at which a request failed. The figures are those of all pools of the device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Circumstances {
    /// Seconds since the library was loaded.
    pub at_s: f64,
    /// The system's number of the thread that asked.
    pub thread: u64,
    /// Its name.
    pub thread_name: String,
    /// The phase that the process was in; empty for none.
    #[serde(default)]
    pub phase: String,
    /// Whether a stream was capturing, so that nothing could be waited for.
    #[serde(default)]
    pub capturing: bool,
    /// Blocks in use.
    pub live_blocks: u64,
    /// The sizes that the most of that was in, as the program had asked for them, largest sum first.
    pub live_sizes: Vec<SizeCount>,
    /// The places that had allocated the most of it, by estimate, where allocations are sampled (`sites`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub live_sites: Vec<SiteBytes>,
    /// Stretches of free memory.
    pub free_pieces: u64,
    /// Bytes of the whole pages of 2 MiB among them: what an expandable range could have put together.
    pub free_page_bytes: u64,
    /// Bytes that the device had given to others: the driver itself, other processes, and what is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_bytes: Option<u64>,
    /// Who had last changed the cap while the process ran; absent if nobody had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_set_by: Option<SetBy>,
}

/// How many blocks there are of one size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeCount {
    /// The size.
    pub bytes: u64,
    /// How many.
    pub count: u64,
}

/// What a place that allocates held.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteBytes {
    /// Bytes, by estimate.
    pub bytes: u64,
    /// The innermost frames that tell it from others.
    pub place: String,
}

/// Who held what was in use, a line each; nothing where allocations were not sampled.
pub fn holders(told: &Circumstances) -> Vec<String> {
    let line = |site: &SiteBytes| format!("{} held by {}", human(site.bytes), printable(&site.place));
    told.live_sites.iter().map(line).collect()
}

/// What could have been added to the pool at that moment, under the cap and by the device.
pub fn room(oom: &OomMoment) -> u64 {
    let under_cap = oom.limit_bytes.saturating_sub(oom.in_use_bytes);
    under_cap.min(oom.driver_free_bytes.unwrap_or(u64::MAX))
}

/// What an expandable range could have served: its whole free pages put together, and what could have been added. `None`
/// where nobody looked.
pub fn within_a_range(oom: &OomMoment) -> Option<u64> {
    let told = oom.circumstances.as_ref().filter(|_| oom.kind == POOL)?;
    Some((told.free_page_bytes + room(oom)) / PAGE * PAGE)
}

/// Who asked, and when: `thread 4242 (python) in phase "train", after 12.0 s`.
pub fn who(told: &Circumstances) -> String {
    // Writing to a string cannot fail.
    let mut text = format!("thread {}", told.thread);
    if !told.thread_name.is_empty() {
        let _ = write!(text, " ({})", printable(&told.thread_name));
    }
    if !told.phase.is_empty() {
        let _ = write!(text, " in phase \"{}\"", printable(&told.phase));
    }
    let _ = write!(text, ", after {}", duration(told.at_s));
    text
}

/// What was in use, by so many sizes at most: `5 blocks: 3 × 200.00 MiB, 2 × 1.00 MiB`.
pub fn live(told: &Circumstances, most: usize) -> String {
    let mut text = counted(told.live_blocks, "block");
    let shown = &told.live_sizes[..told.live_sizes.len().min(most)];
    for (i, size) in shown.iter().enumerate() {
        let separator = if i == 0 { ": " } else { ", " };
        let _ = write!(text, "{separator}{} × {}", size.count, human(size.bytes));
    }
    let rest = told.live_blocks.saturating_sub(shown.iter().map(|size| size.count).sum());
    if rest > 0 {
        let _ = write!(text, ", {rest} of other sizes");
    }
    text
}

/// What stood in the way, beside the cap.
pub fn obstacles(device: &DeviceReport, oom: &OomMoment) -> Vec<String> {
    let mut all = Vec::new();
    let need = oom.sufficient_limit_bytes.saturating_sub(oom.in_use_bytes);
    if let (Some(free), Some(others)) =
        (oom.driver_free_bytes, oom.circumstances.as_ref().and_then(|told| told.others_bytes))
        && free < need
    {
        all.push(format!(
            "of the device's {}, {} were free and {} held by others: the driver itself and other processes",
            human(device.total_bytes),
            human(free),
            human(others)
        ));
    }
    if oom.circumstances.as_ref().is_some_and(|told| told.capturing) && oom.free_bytes > 0 {
        all.push("a stream was capturing, and so freed memory could not be waited for".to_owned());
    }
    all
}

/// What is said at the moment itself: a line on what failed, and some on why and on what would have been enough.
pub fn message(device: &DeviceReport, oom: &OomMoment, config: &[Setting]) -> Vec<String> {
    let mut lines = Vec::new();
    let by = oom.circumstances.as_ref().map_or_else(String::new, |told| format!(" by {}", who(told)));
    lines.push(format!(
        "out of memory on GPU {}: {} asked ({}){by}",
        device.ordinal,
        human(oom.requested_bytes),
        oom.kind
    ));
    let what = if device.is_capped() { "cap" } else { "device" };
    let outside = match oom.external_bytes {
        0 => String::new(),
        bytes => format!(", {} are outside the pool", human(bytes)),
    };
    lines.push(format!(
        "  of the {what}'s {}, {} are in use by blocks, {} are free in the pool{outside}; {} could be added",
        human(oom.limit_bytes),
        human(oom.allocated_bytes),
        human(oom.free_bytes),
        human(room(oom)),
    ));
    if let Some(told) = oom.circumstances.as_ref().filter(|told| told.live_blocks > 0) {
        lines.push(format!("  in use: {}", live(told, SIZES_SAID)));
        lines.extend(holders(told).iter().map(|held| format!("    {held}")));
    }
    if oom.kind == POOL && oom.free_bytes > 0 {
        let pieces = oom.circumstances.as_ref().map_or(0, |told| told.free_pieces);
        let pieces = if pieces == 0 { String::new() } else { format!(" in {}", counted(pieces, "piece")) };
        lines.push(format!(
            "  free in the pool: {}{pieces}, the largest {} (fragmentation {:.2})",
            human(oom.free_bytes),
            human(oom.largest_free_block_bytes),
            oom.fragmentation
        ));
    }
    lines.extend(obstacles(device, oom).into_iter().map(|text| format!("  {text}")));
    lines.extend(enough(device, oom, config).into_iter().map(|text| format!("  {text}")));
    lines
}

/// What would have been enough: the advice on this moment alone, or how much is missing where no setting helps.
fn enough(device: &DeviceReport, oom: &OomMoment, config: &[Setting]) -> Vec<String> {
    let mut alone = device.clone();
    alone.fragmentation.at_oom = vec![oom.clone()];
    alone.counts = super::model::Counts { oom: 1, ..Default::default() };
    let process = Process {
        pid: 0,
        command: String::new(),
        duration_s: 0.0,
        ended_by: EndedBy::Running,
        runs: Vec::new(),
    };
    let report = Report {
        schema_version: SCHEMA_VERSION,
        process,
        config: config.to_vec(),
        devices: vec![alone],
        notes: Vec::new(),
        history: None,
    };
    let mut all: Vec<String> =
        advise(&report).into_iter().map(|advice| format!("try {}", advice.text)).collect();
    if all.is_empty() {
        let need = oom.sufficient_limit_bytes.saturating_sub(oom.in_use_bytes);
        let missing = need.saturating_sub(room(oom));
        all.push(if oom.sufficient_limit_bytes > device.total_bytes {
            let over = human(oom.sufficient_limit_bytes - device.total_bytes);
            format!("the device is too small by {over}: as much less in use would be enough")
        } else {
            format!("{} less in use, here or by others, would be enough", human(missing.max(1)))
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn device(limit: u64) -> DeviceReport {
        DeviceReport { ordinal: 1, total_bytes: 80 * GIB, limit_bytes: limit, ..DeviceReport::default() }
    }

    fn failed(limit: u64, in_use: u64, driver_free: u64) -> OomMoment {
        OomMoment {
            kind: POOL.into(),
            requested_bytes: GIB,
            free_bytes: 3 * GIB,
            largest_free_block_bytes: GIB / 2,
            fragmentation: 0.83,
            reserved_bytes: in_use,
            allocated_bytes: in_use - 3 * GIB,
            limit_bytes: limit,
            driver_free_bytes: Some(driver_free),
            in_use_bytes: in_use,
            sufficient_limit_bytes: in_use + GIB,
            circumstances: Some(Circumstances {
                at_s: 12.0,
                thread: 77,
                thread_name: "python".into(),
                phase: "train".into(),
                live_blocks: 7,
                live_sizes: vec![SizeCount { bytes: GIB, count: 4 }, SizeCount { bytes: GIB / 2, count: 2 }],
                free_pieces: 9,
                free_page_bytes: 2 * GIB,
                others_bytes: Some(4 * GIB),
                ..Circumstances::default()
            }),
            ..OomMoment::default()
        }
    }

    #[test]
    fn under_a_cap_with_memory_in_pieces() {
        let lines = message(&device(8 * GIB), &failed(8 * GIB, 8 * GIB, 60 * GIB), &[]);
        assert_eq!(
            lines,
            [
                "out of memory on GPU 1: 1.00 GiB asked (pool) by thread 77 (python) in phase \"train\", after 12.0 s",
                "  of the cap's 8.00 GiB, 5.00 GiB are in use by blocks, 3.00 GiB are free in the pool; 0 B could be added",
                "  in use: 7 blocks: 4 × 1.00 GiB, 2 × 512.00 MiB, 1 of other sizes",
                "  free in the pool: 3.00 GiB in 9 pieces, the largest 512.00 MiB (fragmentation 0.83)",
                "  try memory_limit:9216MiB at least, for 1 request refused under the cap of 8.00 GiB",
                "  try expandable_segments:True, which would have served the 1.00 GiB that failed: 2.00 GiB of the 3.00 GiB free \
                 are whole pages",
                "  try max_split_size_mb:1024 keeps large blocks whole: 1.00 GiB failed with 3.00 GiB free, the largest piece \
                 512.00 MiB",
            ]
        );
    }

    #[test]
    fn where_others_hold_the_device() {
        let mut oom = failed(80 * GIB, 75 * GIB, 100 * MIB);
        (oom.free_bytes, oom.largest_free_block_bytes) = (0, 0);
        if let Some(told) = &mut oom.circumstances {
            told.free_page_bytes = 0;
        }
        let lines = message(&device(80 * GIB), &oom, &[]).join("\n");
        assert!(
            lines.contains("of the device's 80.00 GiB, 100.00 MiB were free and 4.00 GiB held by others"),
            "{lines}"
        );
        assert!(lines.ends_with("  924.00 MiB less in use, here or by others, would be enough"), "{lines}");
    }

    #[test]
    fn what_could_be_added_is_bounded_by_cap_and_device() {
        assert_eq!(room(&failed(8 * GIB, 5 * GIB, GIB)), GIB);
        assert_eq!(room(&failed(8 * GIB, 7 * GIB, 70 * GIB)), GIB);
        assert_eq!(within_a_range(&failed(8 * GIB, 7 * GIB, 70 * GIB)), Some(3 * GIB));
        let outside = OomMoment { kind: "managed".into(), ..failed(8 * GIB, 7 * GIB, GIB) };
        assert_eq!(within_a_range(&outside), None);
    }

    #[test]
    fn a_capture_is_named() {
        let mut oom = failed(8 * GIB, 8 * GIB, 60 * GIB);
        if let Some(told) = &mut oom.circumstances {
            told.capturing = true;
        }
        assert!(message(&device(8 * GIB), &oom, &[]).iter().any(|line| line.contains("capturing")));
    }
}
