//! Advice: which setting would have helped this process. Each rule speaks only where its figures show that the setting
//! would have made a difference, and says nothing otherwise: advice that does not apply teaches people to skip it.
//!
//! | rule | speaks when | advises |
//! |---|---|---|
//! | [`Rule::RaiseCap`] | a request failed under a cap, and a higher one within the device's memory would have served it | the lowest such cap, where the cap comes from |
//! | [`Rule::Expand`] | a request failed in segments, whose free whole pages, with what could have been added, would have served it; or segments took a fifth more, and 256 MiB, than was ever in use at once | `expandable_segments:True` |
//! | [`Rule::LimitSplitting`] | a request failed although that much was free, in smaller pieces, blocks of any size may be split, and the memory lies in segments | `max_split_size_mb` at the size of the request |
//! | [`Rule::WidenNonSplitRounding`] | a request failed although a free block was large enough, because `max_split_size_mb` forbade it, which it does in segments | a larger `max_non_split_rounding_mb` |
//! | [`Rule::FinerRounding`] | `roundup_power2_divisions` is set and rounding took more than an eighth of the allocated bytes at the peak | more divisions |
//! | [`Rule::CollectEarlier`] | at least ten requests succeeded only after everything cached had been given back, and no threshold is set | `garbage_collection_threshold:0.8` |
//! | [`Rule::CollectLater`] | a threshold is set and one in ten allocations or more had to go to the driver after a collection | a higher threshold, or none |
//! | [`Rule::DropFreeSync`] | `free_sync:True` is set and at least a thousand frees waited for the device | leaving it out, if the program does not rely on it |

use super::cap;
use super::failure::{room, within_a_range};
use super::model::{DeviceReport, OomMoment, POOL, Report, Setting};
use super::units::{counted, grouped, human};

const MIB: u64 = 1 << 20;

/// Below this, in MiB, `max_split_size_mb` and `max_non_split_rounding_mb` are not accepted.
const SMALLEST_SPLIT_MIB: u64 = 20;
/// What segments may take beyond what is in use at once, in bytes and as a part of that, before it is worth a word.
const WORTH_A_WORD: u64 = 256 * MIB;
const WORTH_A_WORD_SHARE: u64 = 5;

/// The reason for a piece of advice; the table at the head of the module says when each applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // The table is the documentation; a second one here would drift from it.
pub enum Rule {
    RaiseCap,
    Expand,
    LimitSplitting,
    WidenNonSplitRounding,
    FinerRounding,
    CollectEarlier,
    CollectLater,
    DropFreeSync,
}

/// One piece of advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// Why it is given.
    pub rule: Rule,
    /// Ordinal of the device whose figures led to it.
    pub device: u32,
    /// One sentence: what to set, and what it would have changed.
    pub text: String,
}

/// What a rule has to say about one device under the process's settings; usually nothing.
type Judge = fn(&DeviceReport, &[Setting]) -> Option<String>;

const RULES: [(Rule, Judge); 8] = [
    (Rule::RaiseCap, raise_cap),
    (Rule::Expand, expand),
    (Rule::LimitSplitting, limit_splitting),
    (Rule::WidenNonSplitRounding, widen_non_split_rounding),
    (Rule::FinerRounding, finer_rounding),
    (Rule::CollectEarlier, collect_earlier),
    (Rule::CollectLater, collect_later),
    (Rule::DropFreeSync, drop_free_sync),
];

/// All advice for a process, by device and in the order of the rules; usually none.
pub fn advise(report: &Report) -> Vec<Advice> {
    let mut all = Vec::new();
    for device in &report.devices {
        for (rule, judge) in RULES {
            if let Some(text) = judge(device, &report.config) {
                all.push(Advice { rule, device: device.ordinal, text });
            }
        }
    }
    all
}

/// The value of a setting that somebody set.
fn set<'a>(config: &'a [Setting], key: &str) -> Option<&'a str> {
    Setting::that_is_set(config, key).map(|setting| setting.value.as_str())
}

/// The bytes of a setting that is written in MiB.
fn mib_setting(config: &[Setting], key: &str) -> Option<u64> {
    set(config, key)?.parse::<u64>().ok()?.checked_mul(MIB)
}

fn raise_cap(device: &DeviceReport, config: &[Setting]) -> Option<String> {
    // The device must have had the memory to give: a cap does not create any.
    let served = |oom: &&OomMoment| {
        oom.sufficient_limit_bytes > oom.limit_bytes
            && oom.sufficient_limit_bytes <= device.total_bytes
            && oom.driver_free_bytes.is_none_or(|free| free >= oom.sufficient_limit_bytes - oom.limit_bytes)
    };
    let moments: Vec<_> = device.fragmentation.at_oom.iter().filter(served).collect();
    let most = moments.iter().max_by_key(|oom| oom.sufficient_limit_bytes)?;
    let setters: Vec<_> = moments.iter().map(|oom| cap::setter_then(device, oom)).collect();
    Some(format!(
        "{} at least, for {} refused under the cap of {}{}",
        cap::to_raise(device, config, &setters, most.sufficient_limit_bytes.div_ceil(MIB)),
        counted(moments.len() as u64, "request"),
        human(most.limit_bytes),
        cap::set_by_words(cap::setter_then(device, most)),
    ))
}

fn expand(device: &DeviceReport, config: &[Setting]) -> Option<String> {
    if device.mapped.is_some() || set(config, "expandable_segments") == Some("True") {
        return None; // it is on, or not possible here
    }
    let served = |oom: &&OomMoment| {
        oom.largest_free_block_bytes < oom.requested_bytes
            && within_a_range(oom).is_some_and(|most| most >= oom.requested_bytes)
    };
    let Some(oom) = device.fragmentation.at_oom.iter().find(served) else { return expand_to_save(device) };
    let pages = oom.circumstances.as_ref()?.free_page_bytes;
    let added = match room(oom) {
        0 => String::new(),
        bytes => format!(", and {} could be added", human(bytes)),
    };
    Some(format!(
        "expandable_segments:True, which would have served the {} that failed: {} of the {} free are whole pages{added}",
        human(oom.requested_bytes),
        human(pages),
        human(oom.free_bytes),
    ))
}

fn expand_to_save(device: &DeviceReport) -> Option<String> {
    let (reserved, used) = (device.reserved_bytes.peak, device.allocated_bytes.peak);
    let more = reserved.saturating_sub(used);
    (more >= WORTH_A_WORD && more >= used / WORTH_A_WORD_SHARE).then(|| {
        format!(
            "expandable_segments:True, which can move free memory to where it is needed: up to {} were reserved, and never more \
             than {} in use at once. Not where blocks are shared by CUDA IPC",
            human(reserved),
            human(used)
        )
    })
}

fn limit_splitting(device: &DeviceReport, config: &[Setting]) -> Option<String> {
    let fits_in_pieces = |oom: &&OomMoment| {
        oom.kind == POOL
            && oom.requested_bytes >= SMALLEST_SPLIT_MIB * MIB
            && oom.free_bytes >= oom.requested_bytes
            && oom.largest_free_block_bytes < oom.requested_bytes
    };
    let oom = device.fragmentation.at_oom.iter().find(fits_in_pieces)?;
    if device.mapped.is_some() {
        return None; // a range has joined what could be joined, and has no blocks that are kept whole
    }
    let advised = oom.requested_bytes / MIB;
    if mib_setting(config, "max_split_size_mb").is_some_and(|size| size <= advised * MIB) {
        return None;
    }
    Some(format!(
        "max_split_size_mb:{advised} keeps large blocks whole: {} failed with {} free, the largest piece {}",
        human(oom.requested_bytes),
        human(oom.free_bytes),
        human(oom.largest_free_block_bytes),
    ))
}

fn widen_non_split_rounding(device: &DeviceReport, config: &[Setting]) -> Option<String> {
    let split = mib_setting(config, "max_split_size_mb").filter(|_| device.mapped.is_none())?;
    let forbidden = |oom: &&OomMoment| {
        oom.kind == POOL
            && oom.requested_bytes >= split
            && oom.largest_free_block_bytes >= oom.requested_bytes
    };
    let oom = device.fragmentation.at_oom.iter().find(forbidden)?;
    let slack = oom.largest_free_block_bytes - oom.requested_bytes;
    // A block is refused from size plus rounding on, so the rounding must exceed the difference.
    let advised = (slack / MIB + 1).max(SMALLEST_SPLIT_MIB);
    Some(format!(
        "max_non_split_rounding_mb:{advised} would have let a free block of {} serve the {} that failed",
        human(oom.largest_free_block_bytes),
        human(oom.requested_bytes),
    ))
}

fn finer_rounding(device: &DeviceReport, config: &[Setting]) -> Option<String> {
    let divisions = set(config, "roundup_power2_divisions")?;
    let peak = device.peak?;
    let lost = peak.allocated_bytes.saturating_sub(peak.requested_bytes);
    if lost <= peak.allocated_bytes / 8 {
        return None;
    }
    Some(format!(
        "roundup_power2_divisions:{divisions} cost up to {} at the peak; more divisions cost less",
        human(lost)
    ))
}

fn collect_earlier(device: &DeviceReport, config: &[Setting]) -> Option<String> {
    if device.counts.retry < 10 || set(config, "garbage_collection_threshold").is_some() {
        return None;
    }
    Some(format!(
        "garbage_collection_threshold:0.8 gives cached memory back before it runs out: {} had to wait for that",
        counted(device.counts.retry, "request"),
    ))
}

fn collect_later(device: &DeviceReport, config: &[Setting]) -> Option<String> {
    let threshold = set(config, "garbage_collection_threshold")?;
    let counts = &device.counts;
    let sent_to_driver = counts.driver_alloc.saturating_mul(10) >= counts.alloc;
    if counts.gc < 10 || !sent_to_driver {
        return None;
    }
    Some(format!(
        "garbage_collection_threshold:{threshold} made {} collections and {} driver allocations; a higher one keeps more",
        grouped(counts.gc),
        grouped(counts.driver_alloc),
    ))
}

fn drop_free_sync(device: &DeviceReport, config: &[Setting]) -> Option<String> {
    if set(config, "free_sync") != Some("True") || device.counts.free < 1000 {
        return None;
    }
    Some(format!(
        "without free_sync:True {} would not have waited for the device; \
         leave it out unless the program uses cudaFree as a barrier",
        counted(device.counts.free, "free"),
    ))
}

#[cfg(test)]
mod tests;
