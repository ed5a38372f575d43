//! Each rule speaks where its setting would have helped, and nowhere else.

use super::*;
use crate::report::failure::Circumstances;
use crate::report::model::{Counts, DEFAULT_SOURCE, EndedBy, Mapped, Peak, Process, SCHEMA_VERSION};

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
    let mut device = DeviceReport { total_bytes: 80 * GIB, limit_bytes: limit, ..DeviceReport::default() };
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
    let mut device = DeviceReport { total_bytes: 80 * GIB, limit_bytes: 80 * GIB, ..DeviceReport::default() };
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
fn figures_that_cannot_be_make_advice_that_is_of_no_use_and_nothing_worse() {
    let mut device = failed(GIB, 0, 0, 8 * GIB);
    device.total_bytes = u64::MAX;
    device.fragmentation.at_oom[0].sufficient_limit_bytes = u64::MAX;
    for key in ["memory_limit", "memory_fraction"] {
        assert_eq!(rules(&device, &[(key, "0.5")]), [Rule::RaiseCap]);
    }
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

#[test]
fn a_range_is_advised_where_segments_took_much_more_than_was_in_use() {
    let peaks = |reserved, used| {
        let mut device = DeviceReport::default();
        (device.reserved_bytes.peak, device.allocated_bytes.peak) = (reserved, used);
        device
    };
    let (rule, text) = advice(&peaks(5 * GIB, 3 * GIB), &[]).remove(0);
    assert_eq!(rule, Rule::Expand);
    assert!(text.contains("up to 5.00 GiB were reserved, and never more than 3.00 GiB in use"), "{text}");
    assert_eq!(advice(&peaks(5 * GIB, 3 * GIB), &[("expandable_segments", "True")]), []);
    assert_eq!(advice(&peaks(11 * GIB, 10 * GIB), &[]), [], "a tenth more");
    assert_eq!(advice(&peaks(300 * MIB, 100 * MIB), &[]), [], "little in all");
    let mapped = DeviceReport { mapped: Some(Mapped::default()), ..peaks(5 * GIB, 3 * GIB) };
    assert_eq!(advice(&mapped, &[]), []);
}
