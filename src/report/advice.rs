//! Advice: which setting would have helped this process. Each rule speaks only where its figures show that the setting
//! would have made a difference, and says nothing otherwise: advice that does not apply teaches people to skip it.
//!
//! | rule | speaks when | advises |
//! |---|---|---|
//! | [`Rule::RaiseCap`] | a request failed under a cap, and a higher one within the device's memory would have served it | the lowest such cap, where the cap comes from |
//! | [`Rule::Expand`] | a request failed in segments, whose free whole pages, with what could have been added, would have served it | `expandable_segments:True` |
//! | [`Rule::LimitSplitting`] | a request failed although that much was free, in smaller pieces, blocks of any size may be split, and the memory lies in segments | `max_split_size_mb` at the size of the request |
//! | [`Rule::WidenNonSplitRounding`] | a request failed although a free block was large enough, because `max_split_size_mb` forbade it, which it does in segments | a larger `max_non_split_rounding_mb` |
//! | [`Rule::FinerRounding`] | `roundup_power2_divisions` is set and rounding took more than an eighth of the allocated bytes at the peak | more divisions |
//! | [`Rule::CollectEarlier`] | at least ten requests succeeded only after everything cached had been given back, and no threshold is set | `garbage_collection_threshold:0.8` |
//! | [`Rule::CollectLater`] | a threshold is set and one in ten allocations or more had to go to the driver after a collection | a higher threshold, or none |
//! | [`Rule::DropFreeSync`] | `free_sync:True` is set and at least a thousand frees waited for the device | leaving it out, if the program does not rely on it |

use super::cap;
use super::failure::{room, within_a_range};
use super::model::{DEFAULT_SOURCE, DeviceReport, OomMoment, POOL, Report, Setting};
use super::units::{counted, grouped, human};

const MIB: u64 = 1 << 20;

/// Below this, in MiB, `max_split_size_mb` and `max_non_split_rounding_mb` are not accepted.
const SMALLEST_SPLIT_MIB: u64 = 20;

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
    let setting = config.iter().find(|setting| setting.key == key)?;
    (setting.source != DEFAULT_SOURCE).then_some(setting.value.as_str())
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
    let oom = device.fragmentation.at_oom.iter().find(served)?;
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
mod tests {
    use super::*;
    use crate::report::failure::Circumstances;
    use crate::report::model::{Counts, EndedBy, Mapped, Peak, Process, SCHEMA_VERSION};

    const GIB: u64 = 1 << 30;

    fn advice(device: &DeviceReport, settings: &[(&str, &str)]) -> Vec<(Rule, String)> {
        let setting = |&(key, value): &(&str, &str)| Setting {
            key: key.to_owned(),
            value: value.to_owned(),
            source: "GPUCACHE_CONF".to_owned(),
            written_as: None,
        };
        let report = Report {
            schema_version: SCHEMA_VERSION,
            process: Process {
                pid: 1,
                command: "p".into(),
                duration_s: 1.0,
                ended_by: EndedBy::Exit,
                runs: vec![],
            },
            config: settings.iter().map(setting).collect(),
            devices: vec![device.clone()],
            notes: vec![],
            history: None,
        };
        advise(&report).into_iter().map(|advice| (advice.rule, advice.text)).collect()
    }

    fn rules(device: &DeviceReport, settings: &[(&str, &str)]) -> Vec<Rule> {
        advice(device, settings).into_iter().map(|(rule, _)| rule).collect()
    }

    /// A device of 80 GiB at a cap, with one failed request for `requested` bytes.
    fn failed(requested: u64, free: u64, largest: u64, limit: u64) -> DeviceReport {
        let mut device =
            DeviceReport { total_bytes: 80 * GIB, limit_bytes: limit, ..DeviceReport::default() };
        device.counts = Counts { alloc: 10, oom: 1, ..Counts::default() };
        device.fragmentation.at_oom.push(OomMoment {
            kind: "pool".into(),
            requested_bytes: requested,
            free_bytes: free,
            largest_free_block_bytes: largest,
            reserved_bytes: limit,
            limit_bytes: limit,
            sufficient_limit_bytes: limit + requested,
            ..OomMoment::default()
        });
        device
    }

    #[test]
    fn a_process_without_trouble_gets_no_advice() {
        let mut device =
            DeviceReport { total_bytes: 80 * GIB, limit_bytes: 80 * GIB, ..DeviceReport::default() };
        device.counts = Counts { alloc: 1_000_000, free: 1_000_000, driver_alloc: 20, ..Counts::default() };
        assert_eq!(rules(&device, &[]), []);
    }

    #[test]
    fn a_higher_cap_is_advised_where_it_would_have_served() {
        let device = failed(GIB, 0, 0, 8 * GIB);
        let text = "memory_limit:9216MiB at least, for 1 request refused under the cap of 8.00 GiB";
        assert_eq!(advice(&device, &[]), [(Rule::RaiseCap, text.to_owned())]);
    }

    #[test]
    fn a_higher_cap_is_not_advised_without_a_cap_nor_beyond_the_device() {
        assert_eq!(rules(&failed(GIB, 0, 0, 80 * GIB), &[]), []);
        assert_eq!(rules(&failed(100 * GIB, 0, 0, 8 * GIB), &[]), []);
        let mut others_hold_the_rest = failed(GIB, 0, 0, 8 * GIB);
        others_hold_the_rest.fragmentation.at_oom[0].driver_free_bytes = Some(GIB - 1);
        assert_eq!(rules(&others_hold_the_rest, &[]), []);
        others_hold_the_rest.fragmentation.at_oom[0].driver_free_bytes = Some(GIB);
        assert_eq!(rules(&others_hold_the_rest, &[]), [Rule::RaiseCap]);
    }

    #[test]
    fn a_range_is_advised_where_it_would_have_put_the_pieces_together() {
        let told = |free_page_bytes| {
            let mut device = failed(GIB, 3 * GIB, GIB / 2, 8 * GIB);
            let oom = &mut device.fragmentation.at_oom[0];
            oom.in_use_bytes = 8 * GIB - 100 * MIB;
            oom.circumstances = Some(Circumstances { free_page_bytes, ..Circumstances::default() });
            device
        };
        let enough = told(GIB - 100 * MIB);
        assert!(rules(&enough, &[]).contains(&Rule::Expand));
        assert!(!rules(&told(GIB - 102 * MIB), &[]).contains(&Rule::Expand), "a page too few");
        assert!(!rules(&enough, &[("expandable_segments", "True")]).contains(&Rule::Expand), "it is on");
    }

    #[test]
    fn splitting_is_to_be_limited_where_the_free_memory_was_in_pieces() {
        let device = failed(GIB, 3 * GIB, GIB / 2, 80 * GIB);
        let text = "max_split_size_mb:1024 keeps large blocks whole: 1.00 GiB failed with 3.00 GiB free, \
                    the largest piece 512.00 MiB";
        assert_eq!(advice(&device, &[]), [(Rule::LimitSplitting, text.to_owned())]);
        assert_eq!(rules(&device, &[("max_split_size_mb", "2048")]), [Rule::LimitSplitting]);
    }

    #[test]
    fn splitting_is_not_to_be_limited_where_that_would_not_have_helped() {
        assert_eq!(rules(&failed(GIB, GIB - 1, GIB / 2, 80 * GIB), &[]), [], "too little was free");
        assert_eq!(rules(&failed(19 * MIB, GIB, MIB, 80 * GIB), &[]), [], "the key takes no such size");
        let device = failed(GIB, 3 * GIB, GIB / 2, 80 * GIB);
        assert_eq!(rules(&device, &[("max_split_size_mb", "1024")]), [], "it was limited");
        let mut outside = device;
        outside.fragmentation.at_oom[0].kind = "managed".into();
        assert_eq!(rules(&outside, &[]), [], "it was not the pool's request");
    }

    #[test]
    fn a_block_forbidden_by_the_rounding_is_pointed_out() {
        let device = failed(GIB, 2 * GIB, GIB + 100 * MIB, 80 * GIB);
        let text = "max_non_split_rounding_mb:101 would have let a free block of 1.10 GiB serve the 1.00 GiB that failed";
        let split = ("max_split_size_mb", "128");
        assert_eq!(advice(&device, &[split]), [(Rule::WidenNonSplitRounding, text.to_owned())]);
        assert_eq!(rules(&device, &[]), [], "nothing was forbidden");
        assert_eq!(rules(&failed(64 * MIB, 2 * GIB, GIB, 80 * GIB), &[split]), [], "the request may split");
    }

    #[test]
    fn rounding_is_judged_by_what_it_cost_at_the_peak() {
        let peak = |requested_bytes, allocated_bytes| DeviceReport {
            peak: Some(Peak { requested_bytes, allocated_bytes, ..Peak::default() }),
            ..DeviceReport::default()
        };
        let set = ("roundup_power2_divisions", "2");
        assert_eq!(rules(&peak(6 * GIB, 8 * GIB), &[set]), [Rule::FinerRounding]);
        assert_eq!(rules(&peak(7 * GIB, 8 * GIB), &[set]), [], "an eighth is what size classes cost");
        assert_eq!(rules(&peak(6 * GIB, 8 * GIB), &[]), [], "the setting is not in use");
    }

    #[test]
    fn garbage_collection_is_advised_by_retries_and_questioned_by_driver_calls() {
        let counts = |counts| DeviceReport { counts, ..DeviceReport::default() };
        let set = ("garbage_collection_threshold", "0.5");
        let retries = counts(Counts { alloc: 1000, retry: 10, ..Counts::default() });
        assert_eq!(rules(&retries, &[]), [Rule::CollectEarlier]);
        assert_eq!(rules(&retries, &[set]), []);
        assert_eq!(rules(&counts(Counts { alloc: 1000, retry: 9, ..Counts::default() }), &[]), []);
        let busy = counts(Counts { alloc: 1000, gc: 10, driver_alloc: 100, ..Counts::default() });
        assert_eq!(rules(&busy, &[set]), [Rule::CollectLater]);
        assert_eq!(rules(&busy, &[]), []);
        let calm = counts(Counts { alloc: 1000, gc: 10, driver_alloc: 99, ..Counts::default() });
        assert_eq!(rules(&calm, &[set]), []);
    }

    #[test]
    fn waiting_frees_are_pointed_out_where_there_are_many() {
        let frees =
            |free| DeviceReport { counts: Counts { free, ..Counts::default() }, ..DeviceReport::default() };
        assert_eq!(rules(&frees(1000), &[("free_sync", "True")]), [Rule::DropFreeSync]);
        assert_eq!(rules(&frees(999), &[("free_sync", "True")]), []);
        assert_eq!(rules(&frees(1000), &[("free_sync", "False")]), []);
        assert_eq!(rules(&frees(1000), &[]), []);
    }

    #[test]
    fn a_default_is_not_a_setting() {
        let default = Setting {
            key: "free_sync".into(),
            value: "True".into(),
            source: DEFAULT_SOURCE.into(),
            written_as: None,
        };
        assert_eq!(set(&[default], "free_sync"), None);
    }

    #[test]
    fn a_range_has_nothing_to_keep_whole() {
        let mut device = failed(100 * MIB, 300 * MIB, 50 * MIB, 1000 * MIB);
        assert!(rules(&device, &[]).contains(&Rule::LimitSplitting));
        device.mapped = Some(Mapped::default());
        assert!(!rules(&device, &[]).contains(&Rule::LimitSplitting));
        assert!(!rules(&device, &[("max_split_size_mb", "40")]).contains(&Rule::WidenNonSplitRounding));
    }
}
