//! One device's figures as the page shows them: words, numbers with units, and lengths of bars.

use super::bars::{Bar, bar, share, width_of};
use super::history::{Timeline, timeline};
use super::segments::{Map, of_device};
use super::sites::Holders;
use crate::figures::Unit;
use crate::report::model::{DeviceReport, EndedBy, OomMoment, POOL, SizeBucket};
use crate::report::units::{counted, grouped, human, microseconds, printable};
use crate::report::{Report, cap, failure};

/// A device of the page.
pub struct Device {
    pub ordinal: u32,
    pub name: String,
    pub total: String,
    pub cap: String,
    pub cap_from: String,
    /// The figures to see first: value, what it is, and something about it.
    pub heads: Vec<(String, &'static str, String)>,
    pub bars: Vec<Bar>,
    /// Where the cap is, if the bars do not show it.
    pub beyond: String,
    pub sizes: Vec<Size>,
    pub counts: Vec<(&'static str, String, &'static str)>,
    pub times: Vec<(&'static str, String, String, String)>,
    pub pieces: Vec<Pieces>,
    pub ooms: Vec<Oom>,
    pub oom_count: u64,
    pub external: Vec<(String, String, String)>,
    pub live: String,
    pub live_sizes: Vec<Size>,
    pub holders: Option<Holders>,
    pub timeline: Option<Timeline>,
    pub maps: Vec<Map>,
    /// The moment of the last figures: the end, unless the process runs.
    pub moment: &'static str,
    pub runs: bool,
}

/// Requests, or blocks, of one size.
pub struct Size {
    pub range: String,
    pub length: f64,
    pub count: String,
    pub bytes: String,
}

/// How the free memory lay at one moment.
pub struct Pieces {
    pub moment: &'static str,
    pub fragmentation: String,
    pub free: String,
    pub largest: String,
    pub length: f64,
}

/// A request that failed.
pub struct Oom {
    pub asked: String,
    pub kind: String,
    pub bar: Bar,
    pub facts: Vec<(&'static str, String)>,
    /// Who asked, what was live, what stood in the way.
    pub about: Vec<String>,
    pub enough: String,
}

impl Device {
    /// What there is to say about a device.
    pub fn of(device: &DeviceReport, report: &Report) -> Self {
        let moment = report.process.ended_by.moment();
        let (bars, beyond) = held(device, moment);
        Self {
            ordinal: device.ordinal,
            name: printable(&device.name),
            total: human(device.total_bytes),
            cap: if device.is_capped() { human(device.limit_bytes) } else { "none".to_owned() },
            cap_from: cap::origin(device, &report.config),
            heads: heads(device),
            bars,
            beyond,
            sizes: sizes(&device.size_histogram),
            counts: counts(device),
            times: times(device),
            pieces: pieces(device, moment),
            ooms: device.fragmentation.at_oom.iter().map(|oom| failed(device, oom)).collect(),
            oom_count: device.counts.oom,
            external: external(device),
            live: match device.live_at_exit.blocks {
                0 => String::new(),
                blocks => format!("{}, {}", counted(blocks, "block"), human(device.live_at_exit.bytes)),
            },
            live_sizes: sizes(&device.live_at_exit.by_size),
            holders: device.sites.as_ref().map(|sites| Holders::of(sites, moment)),
            timeline: report.history.as_ref().and_then(|history| timeline(device, history)),
            maps: of_device(device, moment),
            moment,
            runs: report.process.ended_by == EndedBy::Running,
        }
    }

    /// Whether more requests failed than the report keeps.
    pub fn more_ooms(&self) -> u64 {
        self.oom_count.saturating_sub(self.ooms.len() as u64)
    }
}

fn heads(device: &DeviceReport) -> Vec<(String, &'static str, String)> {
    let mut heads = Vec::new();
    if let Some(peak) = &device.peak {
        let limit = device.limit_bytes.max(1) as f64;
        let of_cap = 100.0 * peak.reserved_bytes as f64 / limit;
        let of = if device.is_capped() { "cap" } else { "device" };
        heads.push((
            human(peak.reserved_bytes),
            "reserved at the peak",
            format!("{of_cap:.1} % of the {of}"),
        ));
        let used = 100.0 * peak.allocated_bytes as f64 / peak.reserved_bytes.max(1) as f64;
        heads.push((human(peak.allocated_bytes), "of that allocated", format!("{used:.1} % in use")));
        let largest = human(peak.largest_free_block_bytes);
        let fragmentation = format!("{:.2}", device.fragmentation.at_peak);
        heads.push((fragmentation, "fragmentation", format!("largest free block {largest}")));
    } else {
        heads.push((human(device.external_bytes.peak), "outside the pool", "at the most".to_owned()));
    }
    let below = if device.is_capped() { "below the cap" } else { "of the device's memory" };
    heads.push((human(device.headroom_bytes), "left at the closest", below.to_owned()));
    let counts = &device.counts;
    if counts.alloc > 0 {
        let hits = 100.0 * counts.cache_hit as f64 / counts.alloc as f64;
        let of = format!("of {}", counted(counts.alloc, "allocation"));
        heads.push((format!("{hits:.1} %"), "served without the driver", of));
    }
    heads
}

/// Bars for the peak and the end, and a word about a cap that is beyond them.
fn held(device: &DeviceReport, last: &'static str) -> (Vec<Bar>, String) {
    let (reserved, allocated) = (device.reserved_bytes.current, device.allocated_bytes.current);
    let (requested, external) = (device.requested_bytes.current, device.external_bytes.current);
    let most = device.peak.map_or(0, |peak| peak.reserved_bytes + peak.external_bytes);
    let width = width_of(most.max(reserved + external).max(device.external_bytes.peak), device.limit_bytes);
    let parts = |requested: u64, allocated: u64, reserved: u64, external: u64| {
        [
            ("used", "requested", requested.min(allocated)),
            ("rounding", "rounding", allocated.saturating_sub(requested)),
            ("cached", "cached", reserved.saturating_sub(allocated)),
            ("outside", "outside the pool", external),
        ]
    };
    let mut bars = Vec::new();
    if let Some(peak) = &device.peak {
        let p = parts(peak.requested_bytes, peak.allocated_bytes, peak.reserved_bytes, peak.external_bytes);
        bars.push(bar("at the peak", &p, width, device.limit_bytes));
    }
    if device.external_bytes.peak > 0 {
        let p = [("outside", "outside the pool", device.external_bytes.peak)];
        bars.push(bar("most outside the pool", &p, width, device.limit_bytes));
    }
    bars.push(bar(last, &parts(requested, allocated, reserved, external), width, device.limit_bytes));
    let what = if device.is_capped() { "The cap of" } else { "The device's" };
    let beyond = if device.limit_bytes > width {
        let times = device.limit_bytes as f64 / width as f64;
        format!("{what} {} would be {times:.0} times as far to the right.", human(device.limit_bytes))
    } else {
        String::new()
    };
    (bars, beyond)
}

/// Sizes with bars whose length is the logarithm of the count: a few large requests matter as much as many small ones.
fn sizes(buckets: &[SizeBucket]) -> Vec<Size> {
    let length = |count: u64| (count as f64 + 1.0).log10();
    let longest = buckets.iter().map(|bucket| length(bucket.count)).fold(0.0, f64::max);
    let size = |bucket: &SizeBucket| Size {
        range: format!("up to {}", short(bucket.max_bytes)),
        length: share(length(bucket.count), longest),
        count: grouped(bucket.count),
        bytes: human(bucket.bytes),
    };
    buckets.iter().map(size).collect()
}

/// A power of two without decimals: `512 KiB`.
fn short(bytes: u64) -> String {
    human(bytes).replace(".00 ", " ")
}

fn counts(device: &DeviceReport) -> Vec<(&'static str, String, &'static str)> {
    let c = &device.counts;
    let rows = [
        ("allocations", c.alloc, "requests that the pool served"),
        ("frees", c.free, "of pooled blocks"),
        ("served without a driver call", c.cache_hit, "from memory already reserved"),
        ("driver calls avoided", c.driver_calls_avoided(), "asked for by the program, never made"),
        ("driver allocations", c.driver_alloc, "made by the pool"),
        ("driver frees", c.driver_free, "made by the pool"),
        ("barriers", c.barrier, "waits on the device, so that freed memory could be reused"),
        ("out of memory", c.oom, "requests that failed"),
        ("served after giving back", c.retry, "requests that cached memory had to make room for"),
        ("garbage collections", c.gc, "that gave at least one segment back"),
        ("invalid frees", c.invalid_free, "freed twice, or never allocated"),
        ("forwarded", c.forwarded, "calls that the pool could not serve"),
    ];
    // A program without trouble has no rows about trouble.
    rows.into_iter()
        .enumerate()
        .filter(|(i, (_, count, _))| *i < 7 || *count > 0)
        .map(|(_, (label, count, meaning))| (label, grouped(count), meaning))
        .collect()
}

fn times(device: &DeviceReport) -> Vec<(&'static str, String, String, String)> {
    let Some(time) = &device.driver_time else { return Vec::new() };
    [("driver allocations", time.allocs, time.alloc_ns), ("driver frees", time.frees, time.free_ns)]
        .into_iter()
        .filter_map(|(label, calls, ns)| {
            let mean = ns.checked_div(calls)?;
            Some((label, grouped(calls), microseconds(mean), Unit::Time.show(ns as f64)))
        })
        .collect()
}

fn pieces(device: &DeviceReport, last: &'static str) -> Vec<Pieces> {
    let one = |moment, fragmentation: f64, free: u64, largest: u64| Pieces {
        moment,
        fragmentation: format!("{fragmentation:.2}"),
        free: human(free),
        largest: human(largest.min(free)),
        length: share(largest as f64, free as f64),
    };
    let mut pieces = Vec::new();
    if let Some(peak) = device.peak.filter(|peak| peak.cached_bytes > 0) {
        let largest = peak.largest_free_block_bytes;
        pieces.push(one("at the peak", device.fragmentation.at_peak, peak.cached_bytes, largest));
    }
    let free = device.reserved_bytes.current.saturating_sub(device.allocated_bytes.current);
    if free > 0 {
        let largest = device.largest_free_block_bytes;
        pieces.push(one(last, device.fragmentation.at_exit, free, largest));
    }
    pieces
}

fn failed(device: &DeviceReport, oom: &OomMoment) -> Oom {
    let held = oom.reserved_bytes + oom.external_bytes;
    let width = width_of(held + oom.requested_bytes, oom.limit_bytes.max(oom.sufficient_limit_bytes));
    let parts = [
        ("used", "allocated", oom.allocated_bytes),
        ("cached", "free in the pool", oom.reserved_bytes.saturating_sub(oom.allocated_bytes)),
        ("outside", "outside the pool", oom.external_bytes),
        ("asked", "asked for", oom.requested_bytes),
    ];
    let mut facts = vec![("free in the pool", human(oom.free_bytes))];
    if oom.kind == POOL && oom.free_bytes > 0 {
        facts.push(("largest free block", human(oom.largest_free_block_bytes)));
        facts.push(("fragmentation", format!("{:.2}", oom.fragmentation)));
    }
    facts.push(("cap", human(oom.limit_bytes)));
    facts.extend(oom.driver_free_bytes.map(|free| ("free on the device", human(free))));
    let mut about = failure::obstacles(device, oom);
    if let Some(told) = &oom.circumstances {
        facts.extend(told.others_bytes.map(|bytes| ("held by others", human(bytes))));
        about.insert(0, format!("Asked by {}.", failure::who(told)));
        if told.live_blocks > 0 {
            about.insert(1, format!("In use: {}.", failure::live(told, usize::MAX)));
            about.extend(failure::holders(told));
        }
    }
    let enough = oom.sufficient_limit_bytes;
    let enough = if enough > device.total_bytes {
        format!("The device is too small by {}.", human(enough - device.total_bytes))
    } else if enough > oom.limit_bytes {
        format!("A cap of {} would have been enough.", human(enough))
    } else {
        "The cap allowed it; the device had no more to give.".to_owned()
    };
    Oom {
        asked: human(oom.requested_bytes),
        kind: printable(&oom.kind),
        bar: bar("then", &parts, width, oom.limit_bytes),
        facts,
        about,
        enough,
    }
}

fn external(device: &DeviceReport) -> Vec<(String, String, String)> {
    let mut kinds: Vec<_> = device.external_by_kind.iter().filter(|(_, gauge)| gauge.peak > 0).collect();
    kinds.sort_by_key(|(_, gauge)| std::cmp::Reverse(gauge.peak));
    kinds.into_iter().map(|(kind, g)| (printable(kind), human(g.peak), human(g.current))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn device(report: &Report, index: usize) -> Device {
        Device::of(&report.devices[index], report)
    }

    #[test]
    fn a_training_run() {
        let device = device(&sample::training(), 0);
        assert_eq!(device.cap, "8.00 GiB");
        assert_eq!(device.cap_from, "memory_limit:8GiB in GPUCACHE_CONF");
        let labels: Vec<_> = device.bars.iter().map(|bar| (&*bar.label, &*bar.total)).collect();
        assert_eq!(labels[0], ("at the peak", "7.61 GiB"));
        assert_eq!(labels[2].0, "at the end");
        assert!(device.bars.iter().all(|bar| bar.cap.is_some()) && device.beyond.is_empty());
        assert_eq!(
            device.sizes.iter().map(|size| &*size.range).collect::<Vec<_>>(),
            ["up to 512 B", "up to 8 MiB"]
        );
        assert!(device.sizes[1].length > 800.0, "the scale is logarithmic");
        assert!(device.ooms.is_empty() && device.counts.len() == 7);
    }

    #[test]
    fn a_failed_run_says_what_would_have_been_enough() {
        let report = sample::failure();
        let device = device(&report, 0);
        assert_eq!(device.ooms[0].enough, "A cap of 9.00 GiB would have been enough.");
        assert_eq!(device.more_ooms(), 1);
        assert_eq!(device.times.len(), 1);
        let end = device.ooms[0].bar.parts.last().unwrap();
        assert_eq!(end.name, "asked for");
        assert!(end.x + end.width <= 1000.0);
    }

    #[test]
    fn a_cap_far_off_is_spoken_of() {
        let device = device(&sample::failure(), 2);
        assert_eq!((device.cap.as_str(), device.bars[0].cap), ("none", None));
        assert!(device.heads.iter().all(|(_, _, about)| !about.contains("cap")), "{:?}", device.heads);
        assert!(
            device.beyond.contains("80.00 GiB") && device.beyond.contains("71 times"),
            "{}",
            device.beyond
        );
    }
}
