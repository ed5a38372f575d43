//! Made-up reports for the tests of every renderer, so that all are judged by the same figures.

use super::model::{
    Counts, DeviceReport, DriverTime, EndedBy, Fragmentation, Gauge, Live, OomMoment, Peak, Process, Report,
    SCHEMA_VERSION, Setting, SizeBucket,
};

use super::sites::{Frame, Held, Module, Site, Sites};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn gib(value: f64) -> u64 {
    (value * GIB as f64) as u64
}

fn gauge(current: u64, peak: u64, total_allocated: u64) -> Gauge {
    Gauge { current, peak, total_allocated, total_freed: total_allocated - current }
}

fn setting(key: &str, value: &str, source: &str) -> Setting {
    Setting { key: key.into(), value: value.into(), source: source.into(), written_as: None }
}

fn bucket(max_bytes: u64, count: u64, bytes: u64) -> SizeBucket {
    SizeBucket { min_bytes: max_bytes / 2 + 1, max_bytes, count, bytes }
}

/// A training job under a cap that it did not reach.
pub fn training() -> Report {
    let device = DeviceReport {
        ordinal: 0,
        name: "NVIDIA H200".into(),
        total_bytes: gib(139.72),
        limit_bytes: 8 * GIB,
        requested_bytes: gauge(12 * MIB, gib(6.80), gib(900.0)),
        allocated_bytes: gauge(12 * MIB, gib(6.90), gib(910.0)),
        reserved_bytes: gauge(gib(7.61), gib(7.61), gib(8.9)),
        external_bytes: gauge(0, 120 * MIB, 500 * MIB),
        external_by_kind: [
            ("managed".into(), gauge(0, 20 * MIB, 100 * MIB)),
            ("async".into(), gauge(0, 100 * MIB, 400 * MIB)),
        ]
        .into(),
        peak: Some(Peak {
            requested_bytes: gib(6.80),
            allocated_bytes: gib(6.90),
            reserved_bytes: gib(7.61),
            cached_bytes: gib(0.71),
            external_bytes: 0,
            largest_free_block_bytes: gib(0.6674),
        }),
        headroom_bytes: 8 * GIB - gib(7.61) - 120 * MIB,
        fragmentation: Fragmentation { at_peak: 0.06, at_exit: 0.25, at_oom: vec![] },
        largest_free_block_bytes: gib(5.70),
        size_histogram: vec![bucket(512, 20_000, 5_000_000), bucket(8 * MIB, 9_850, gib(60.0))],
        counts: Counts {
            alloc: 29_850,
            free: 29_846,
            cache_hit: 29_821,
            driver_alloc: 29,
            driver_free: 12,
            barrier: 3,
            ..Counts::default()
        },
        live_at_exit: Live {
            blocks: 4,
            bytes: 12 * MIB,
            by_size: vec![bucket(512, 1, 400), bucket(4 * MIB, 2, 5 * MIB), bucket(8 * MIB, 1, 7 * MIB)],
        },
        driver_time: None,
        mapped: None,
        ..DeviceReport::default()
    };
    Report {
        schema_version: SCHEMA_VERSION,
        process: Process {
            pid: 4242,
            command: "python train.py --batch 64".into(),
            duration_s: 125.4,
            ended_by: EndedBy::Exit,
            runs: vec![],
        },
        config: vec![
            setting("memory_fraction", "none", "default"),
            setting("memory_limit", "8GiB", "GPUCACHE_CONF"),
            setting("free_sync", "False", "default"),
        ],
        devices: vec![device],
        notes: vec![],
        history: None,
    }
}

/// A program on three devices that ran out of memory on the first, used none on the second, and only memory outside the
/// pool on the third.
pub fn failure() -> Report {
    let oom = OomMoment {
        kind: "pool".into(),
        requested_bytes: GIB,
        free_bytes: 3 * GIB,
        largest_free_block_bytes: GIB / 2,
        fragmentation: 0.833,
        reserved_bytes: 8 * GIB,
        allocated_bytes: 5 * GIB,
        external_bytes: 0,
        limit_bytes: 8 * GIB,
        driver_free_bytes: Some(70 * GIB),
        sufficient_limit_bytes: 9 * GIB,
        in_use_bytes: 8 * GIB,
        circumstances: None,
        map: None,
    };
    let base = DeviceReport { name: "NVIDIA H200".into(), total_bytes: 80 * GIB, ..DeviceReport::default() };
    let failed = DeviceReport {
        limit_bytes: 8 * GIB,
        requested_bytes: gauge(8 * GIB, 8 * GIB, 8 * GIB),
        allocated_bytes: gauge(8 * GIB, 8 * GIB, 8 * GIB),
        reserved_bytes: gauge(8 * GIB, 8 * GIB, 8 * GIB),
        peak: Some(Peak {
            requested_bytes: 5 * GIB,
            allocated_bytes: 5 * GIB,
            reserved_bytes: 8 * GIB,
            cached_bytes: 3 * GIB,
            largest_free_block_bytes: GIB / 2,
            ..Peak::default()
        }),
        fragmentation: Fragmentation { at_peak: 0.833, at_exit: 0.0, at_oom: vec![oom] },
        counts: Counts {
            alloc: 100,
            cache_hit: 60,
            driver_alloc: 140,
            oom: 2,
            invalid_free: 1,
            forwarded: 3,
            ..Counts::default()
        },
        driver_time: Some(DriverTime { alloc_ns: 5_320_000, allocs: 140, free_ns: 0, frees: 0 }),
        ..base.clone()
    };
    let unused = DeviceReport { ordinal: 1, limit_bytes: 80 * GIB, ..base.clone() };
    let outside = DeviceReport {
        ordinal: 2,
        limit_bytes: 80 * GIB,
        headroom_bytes: 79 * GIB,
        external_bytes: gauge(GIB, GIB, GIB),
        external_by_kind: [("vmm".into(), gauge(GIB, GIB, GIB))].into(),
        ..base
    };
    Report {
        schema_version: SCHEMA_VERSION,
        process: Process {
            pid: 4243,
            command: "./solver".into(),
            duration_s: 0.83,
            ended_by: EndedBy::ImmediateExit,
            runs: vec![],
        },
        config: vec![
            Setting {
                written_as: Some("per_process_memory_fraction".into()),
                ..setting("memory_fraction", "0.1", "PYTORCH_ALLOC_CONF")
            },
            setting("memory_limit", "none", "default"),
        ],
        devices: vec![failed, unused, outside],
        notes: vec!["a call was forwarded because the driver is older than 12.5".into()],
        history: None,
    }
}

/// Sites of a training job: one of Python that keeps memory, one of Python that holds most at the peak, one of C.
pub fn sites() -> Sites {
    let python = |file: &str, function: &str, line| Frame {
        file: Some(format!("/job/{file}")),
        function: Some(function.into()),
        line: Some(line),
        ..Frame::default()
    };
    let native = |module, offset, function: Option<&str>| Frame {
        module: Some(module),
        offset: Some(offset),
        function: function.map(Into::into),
        ..Frame::default()
    };
    let held = |live, peak, total, blocks| Held {
        live_bytes: live,
        live_blocks: u64::from(live > 0),
        live_samples: live / (64 * MIB),
        peak_bytes: peak,
        total_bytes: total,
        total_blocks: blocks,
        samples: total / (64 * MIB),
    };
    let site = |held, stack: &[u32]| Site { held, stack: stack.into(), cut: false };
    let mut sites = Sites {
        interval_bytes: 64 * MIB,
        rest: held(0, 64 * MIB, 128 * MIB, 2),
        modules: vec![
            Module { path: "/lib/libtorch.so".into(), build_id: "ab01".into() },
            Module { path: "/job/solver".into(), build_id: String::new() },
        ],
        frames: vec![
            python("train.py", "remember", 41),
            python("train.py", "main", 80),
            python("model.py", "forward", 12),
            native(0, 0x1000, Some("_ZN2at5emptyEv")),
            native(1, 0x1234, None),
        ],
        sites: vec![
            site(held(640 * MIB, 320 * MIB, 640 * MIB, 10), &[3, 0, 1]),
            site(held(128 * MIB, 128 * MIB, 128 * MIB, 1), &[4]),
            site(held(0, 4 * GIB, 800 * GIB, 9000), &[3, 2, 1]),
        ],
        python: "frames of Python 3.13 are read by the layout that it publishes".into(),
        ..Sites::default()
    };
    for at in 0..sites.sites.len() {
        let held = sites.sites[at].held;
        sites.all.add(&held);
    }
    let rest = sites.rest;
    sites.all.add(&rest);
    sites
}
