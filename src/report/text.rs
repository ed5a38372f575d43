//! The report as text: about a dozen lines a device, for somebody who has just run a program and wants to know where
//! its memory went and what to change. Only what happened is shown; a figure of nothing takes no line.

use std::fmt::Write;

use super::advice::{Advice, advise};
use super::cap;
use super::failure;
use super::holders;
use super::model::{DeviceReport, EndedBy, Live, Mapped, OomMoment, POOL, Phase, Report};
use super::units::{counted, duration, grouped, human, microseconds, printable};

/// Column in which the figures start, so that the eye finds them.
const LABEL_WIDTH: usize = 15;

/// Characters of the command that the first line shows; the JSON has all of it.
const COMMAND_SHOWN: usize = 80;

/// Most phases that are listed.
const PHASES_SHOWN: usize = 8;

/// Sites that are listed at the end, and at the peak, where nobody asks for more.
const SITES_SHOWN: usize = 3;

/// Most sizes of never-freed blocks, and of those in use when memory ran out, that are listed.
const SIZES_SHOWN: usize = 3;

/// The report as lines of text, each ended by a newline; the first begins with `gpucache[PID]:`.
pub fn to_text(report: &Report) -> String {
    to_text_with(report, SITES_SHOWN)
}

/// The same with so many sites.
pub fn to_text_with(report: &Report, sites: usize) -> String {
    // Writing to a string cannot fail: the results of `write!` are dropped throughout.
    let process = &report.process;
    let command = one_line(&process.command);
    let mut out = format!("gpucache[{}]: {command}", process.pid);
    if report.devices.iter().any(DeviceReport::was_used) {
        let _ = writeln!(out, ", {}, {}", duration(process.duration_s), process.ended_by.in_words());
        let advice = advise(report);
        for device in report.devices.iter().filter(|device| device.was_used()) {
            device_lines(&mut out, report, device, &advice, sites);
        }
    } else {
        out.push_str(" used CUDA but allocated no device memory\n");
    }
    if let Some(history) = &report.history {
        let _ = writeln!(out, "  history: {}", history.summary());
    }
    for note in &report.notes {
        let _ = writeln!(out, "  note: {}", printable(note));
    }
    out
}

fn one_line(command: &str) -> String {
    let command = printable(command);
    match command.char_indices().nth(COMMAND_SHOWN) {
        Some((at, _)) => format!("{}…", command[..at].trim_end()),
        None => command,
    }
}

fn line(out: &mut String, label: &str, text: &str) {
    let _ = writeln!(out, "    {label:<LABEL_WIDTH$} {text}");
}

fn device_lines(out: &mut String, report: &Report, device: &DeviceReport, advice: &[Advice], sites: usize) {
    let _ =
        writeln!(out, "  GPU {}, {}, {}", device.ordinal, printable(&device.name), human(device.total_bytes));
    peak_lines(out, device);
    if device.external_bytes.total_allocated > 0 {
        line(out, "outside pool", &external(device));
    }
    line(out, "cap", &cap_in_force(report, device));
    let runs = report.process.ended_by == EndedBy::Running;
    line(out, report.process.ended_by.moment(), &end(device));
    if device.live_at_exit.blocks > 0 {
        line(out, if runs { "not freed yet" } else { "never freed" }, &never_freed(&device.live_at_exit));
    }
    for (label, text) in device.sites.iter().flat_map(|of| holders::lines(of, sites, runs)) {
        line(out, label, &text);
    }
    if device.counts.alloc > 0 {
        line(out, "served", &served(device));
        line(out, "driver calls", &driver_calls(device));
    }
    if let Some(range) = &device.mapped {
        line(out, "expandable", &expandable(range));
    }
    phase_lines(out, &device.phases);
    if device.counts.oom > 0 {
        line(out, "out of memory", &counted(device.counts.oom, "time"));
        for oom in device.fragmentation.at_oom.iter().take(1) {
            line(out, "", &out_of_memory(oom));
            line(out, "", &what_would_do(device, oom));
            if let Some(told) = &oom.circumstances {
                line(
                    out,
                    "",
                    &format!(
                        "asked by {}; in use were {}",
                        failure::who(told),
                        failure::live(told, SIZES_SHOWN)
                    ),
                );
                for held in failure::holders(told) {
                    line(out, "", &held);
                }
            }
            for obstacle in failure::obstacles(device, oom) {
                line(out, "", &obstacle);
            }
        }
    }
    if device.counts.invalid_free > 0 {
        line(
            out,
            "invalid frees",
            &format!("{}: freed twice, or never allocated", grouped(device.counts.invalid_free)),
        );
    }
    if device.counts.forwarded > 0 {
        line(
            out,
            "forwarded",
            &format!("{} that the pool could not serve", counted(device.counts.forwarded, "call")),
        );
    }
    for advice in advice.iter().filter(|advice| advice.device == device.ordinal) {
        line(out, "try", &advice.text);
    }
}

/// Phases in order, those with the highest peaks where there are many.
fn phase_lines(out: &mut String, phases: &[Phase]) {
    let mut shown: Vec<_> = phases.iter().enumerate().filter(|(_, phase)| !phase.name.is_empty()).collect();
    shown.sort_by_key(|(_, phase)| std::cmp::Reverse(phase.allocated_peak_bytes));
    shown.truncate(PHASES_SHOWN);
    shown.sort_by_key(|(at, _)| *at);
    for (_, phase) in shown {
        let name = one_line(&phase.name);
        let text = format!(
            "{name}: at most {} allocated, {} reserved; {}, grown by {}, {}",
            human(phase.allocated_peak_bytes),
            human(phase.reserved_peak_bytes),
            counted(phase.allocs, "allocation"),
            human(phase.grown_bytes),
            duration(phase.seconds),
        );
        line(out, "phase", &text);
    }
}

fn peak_lines(out: &mut String, device: &DeviceReport) {
    let Some(peak) = &device.peak else { return };
    line(
        out,
        "at the peak",
        &format!(
            "reserved {}: {} allocated ({} requested), {} cached",
            human(peak.reserved_bytes),
            human(peak.allocated_bytes),
            human(peak.requested_bytes),
            human(peak.cached_bytes),
        ),
    );
    if peak.cached_bytes > 0 {
        let largest = human(peak.largest_free_block_bytes);
        let fragmentation = device.fragmentation.at_peak;
        line(out, "", &format!("fragmentation {fragmentation:.2}, largest free block {largest}"));
    }
}

fn external(device: &DeviceReport) -> String {
    let mut kinds: Vec<_> = device.external_by_kind.iter().filter(|(_, gauge)| gauge.peak > 0).collect();
    kinds.sort_by_key(|(_, gauge)| std::cmp::Reverse(gauge.peak));
    let mut text = format!("at most {}", human(device.external_bytes.peak));
    for (i, (kind, gauge)) in kinds.into_iter().enumerate() {
        let _ = write!(text, "{}{kind} {}", if i == 0 { ": " } else { ", " }, human(gauge.peak));
    }
    text
}

fn cap_in_force(report: &Report, device: &DeviceReport) -> String {
    let closest = human(device.headroom_bytes);
    let origin = match cap::origin(device, &report.config) {
        none if none.is_empty() => none,
        origin => format!(" ({origin})"),
    };
    if device.is_capped() {
        return format!("{}{origin}; {closest} were left at the closest", human(device.limit_bytes));
    }
    // A setting that allows no less than the device has is not the same as none.
    let none =
        if origin.is_empty() { "none".to_owned() } else { format!("none below the device's memory{origin}") };
    format!("{none}; {closest} of the device were never in use by this process")
}

fn end(device: &DeviceReport) -> String {
    let reserved = device.reserved_bytes.current;
    let allocated = device.allocated_bytes.current;
    let mut text = format!("reserved {}, {} allocated", human(reserved), human(allocated));
    if reserved > allocated {
        let largest = human(device.largest_free_block_bytes);
        let _ =
            write!(text, "; fragmentation {:.2}, largest free block {largest}", device.fragmentation.at_exit);
    }
    text
}

fn never_freed(live: &Live) -> String {
    let mut sizes = live.by_size.clone();
    sizes.sort_by_key(|bucket| std::cmp::Reverse(bucket.bytes));
    let mut text = format!("{}, {}", counted(live.blocks, "block"), human(live.bytes));
    for (i, bucket) in sizes.iter().take(SIZES_SHOWN).enumerate() {
        let separator = if i == 0 { ": " } else { ", " };
        let _ = write!(text, "{separator}{} up to {}", grouped(bucket.count), human(bucket.max_bytes));
    }
    let rest: u64 = sizes.iter().skip(SIZES_SHOWN).map(|bucket| bucket.count).sum();
    if rest > 0 {
        let _ = write!(text, ", {} of other sizes", grouped(rest));
    }
    text
}

fn served(device: &DeviceReport) -> String {
    let counts = &device.counts;
    let share = 100.0 * counts.cache_hit as f64 / counts.alloc as f64;
    format!(
        "{}, {} of them ({share:.1} %) from memory already reserved",
        counted(counts.alloc, "allocation"),
        grouped(counts.cache_hit)
    )
}

fn expandable(range: &Mapped) -> String {
    let mut text = format!(
        "{} mapped by {} over {} of addresses",
        human(range.mapped_bytes),
        counted(range.handles, "handle"),
        human(range.spanned_bytes)
    );
    if range.loose_bytes > 0 {
        let _ = write!(text, ", {} held unmapped", human(range.loose_bytes));
    }
    if range.remaps > 0 {
        let _ = write!(
            text,
            "; {} moved {} in {}",
            counted(range.remaps, "remap"),
            human(range.moved_bytes),
            counted(range.moved_handles, "handle")
        );
    }
    let _ = write!(text, "; mapping took {:.1} ms", range.map_ns as f64 / 1e6);
    text
}

fn driver_calls(device: &DeviceReport) -> String {
    let counts = &device.counts;
    let mut text = format!(
        "{} avoided; made: {}, {}, {}",
        grouped(counts.driver_calls_avoided()),
        counted(counts.driver_alloc, "allocation"),
        counted(counts.driver_free, "free"),
        counted(counts.barrier, "barrier"),
    );
    if let Some(time) = &device.driver_time
        && time.allocs > 0
    {
        let mean = time.alloc_ns / time.allocs;
        let _ = write!(text, "; an allocation took {}", microseconds(mean));
        if let Some(mean) = time.free_ns.checked_div(time.frees) {
            let _ = write!(text, ", a free {}", microseconds(mean));
        }
    }
    text
}

fn out_of_memory(oom: &OomMoment) -> String {
    let asked = format!("the first: {} asked ({})", human(oom.requested_bytes), oom.kind);
    if oom.free_bytes == 0 {
        return format!("{asked}, nothing free in the pool");
    }
    let free = human(oom.free_bytes);
    if oom.kind != POOL {
        // How the pool's free memory lies decides nothing for an allocation outside it.
        return format!("{asked}, {free} free in the pool");
    }
    format!(
        "{asked}, {free} free in pieces of at most {} (fragmentation {:.2})",
        human(oom.largest_free_block_bytes),
        oom.fragmentation,
    )
}

fn what_would_do(device: &DeviceReport, oom: &OomMoment) -> String {
    let outside = match oom.external_bytes {
        0 => String::new(),
        bytes => format!(" and {} outside the pool", human(bytes)),
    };
    let held =
        format!("reserved {}{outside}, {} allocated", human(oom.reserved_bytes), human(oom.allocated_bytes));
    let enough = oom.sufficient_limit_bytes;
    if enough > device.total_bytes {
        let over = human(enough - device.total_bytes);
        format!("{held}; the device is too small by {over}")
    } else if enough > oom.limit_bytes {
        format!("{held}; a cap of {} would have sufficed", human(enough))
    } else {
        format!("{held}; the cap allowed it, the device had no more to give")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn an_ordinary_run() {
        let expected = "\
gpucache[4242]: python train.py --batch 64, 2 min 5 s, ended by exit
  GPU 0, NVIDIA H200, 139.72 GiB
    at the peak     reserved 7.61 GiB: 6.90 GiB allocated (6.80 GiB requested), 727.04 MiB cached
                    fragmentation 0.06, largest free block 683.42 MiB
    outside pool    at most 120.00 MiB: async 100.00 MiB, managed 20.00 MiB
    cap             8.00 GiB (memory_limit:8GiB in GPUCACHE_CONF); 279.36 MiB were left at the closest
    at the end      reserved 7.61 GiB, 12.00 MiB allocated; fragmentation 0.25, largest free block 5.70 GiB
    never freed     4 blocks, 12.00 MiB: 1 up to 8.00 MiB, 2 up to 4.00 MiB, 1 up to 512 B
    served          29,850 allocations, 29,821 of them (99.9 %) from memory already reserved
    driver calls    59,655 avoided; made: 29 allocations, 12 frees, 3 barriers
";
        assert_eq!(to_text(&sample::training()), expected);
    }

    #[test]
    fn a_run_that_failed_on_two_devices() {
        let expected = "\
gpucache[4243]: ./solver, 0.8 s, ended by _exit
  GPU 0, NVIDIA H200, 80.00 GiB
    at the peak     reserved 8.00 GiB: 5.00 GiB allocated (5.00 GiB requested), 3.00 GiB cached
                    fragmentation 0.83, largest free block 512.00 MiB
    cap             8.00 GiB (per_process_memory_fraction:0.1 in PYTORCH_ALLOC_CONF); 0 B were left at the closest
    at the end      reserved 8.00 GiB, 8.00 GiB allocated
    served          100 allocations, 60 of them (60.0 %) from memory already reserved
    driver calls    0 avoided; made: 140 allocations, 0 frees, 0 barriers; an allocation took 38.0 µs
    out of memory   2 times
                    the first: 1.00 GiB asked (pool), 3.00 GiB free in pieces of at most 512.00 MiB (fragmentation 0.83)
                    reserved 8.00 GiB, 5.00 GiB allocated; a cap of 9.00 GiB would have sufficed
    invalid frees   1: freed twice, or never allocated
    forwarded       3 calls that the pool could not serve
    try             per_process_memory_fraction:0.1125 at least, for 1 request refused under the cap of 8.00 GiB
    try             max_split_size_mb:1024 keeps large blocks whole: 1.00 GiB failed with 3.00 GiB free, the largest piece 512.00 MiB
  GPU 2, NVIDIA H200, 80.00 GiB
    outside pool    at most 1.00 GiB: vmm 1.00 GiB
    cap             none below the device's memory (per_process_memory_fraction:0.1 in PYTORCH_ALLOC_CONF); 79.00 GiB of the device were never in use by this process
    at the end      reserved 0 B, 0 B allocated
  note: a call was forwarded because the driver is older than 12.5
";
        assert_eq!(to_text(&sample::failure()), expected);
    }

    #[test]
    fn of_a_process_that_runs_nothing_is_said_to_be_over() {
        let mut report = sample::training();
        report.process.ended_by = EndedBy::Running;
        report.devices[0].sites = Some(sample::sites());
        let text = to_text(&report);
        assert!(text.contains("    now             reserved 7.61 GiB"), "{text}");
        assert!(text.contains("    not freed yet   4 blocks") && text.contains("still running"), "{text}");
        assert!(text.contains("    held now        640.00 MiB"), "{text}");
        assert!(!text.contains("at the end") && !text.contains("never"), "{text}");
    }

    #[test]
    fn a_process_that_allocated_nothing_is_one_line() {
        let mut report = sample::training();
        report.devices.clear();
        let expected =
            "gpucache[4242]: python train.py --batch 64 used CUDA but allocated no device memory\n";
        assert_eq!(to_text(&report), expected);
        report.devices.push(DeviceReport { ordinal: 0, ..DeviceReport::default() });
        assert_eq!(to_text(&report), expected);
    }

    #[test]
    fn a_command_is_one_line_of_bounded_length() {
        let mut report = sample::training();
        report.devices.clear();
        report.process.command = format!("python -c import\nos\u{1b}[31m {}", "é".repeat(200));
        let text = to_text(&report);
        assert_eq!(text.lines().count(), 1);
        assert!(!text.contains('\u{1b}') && text.contains("é…") && text.chars().count() < 160, "{text}");
    }

    #[test]
    fn an_empty_pool_is_not_said_to_have_pieces() {
        let moment = OomMoment { kind: "managed".into(), requested_bytes: 1 << 20, ..OomMoment::default() };
        assert_eq!(out_of_memory(&moment), "the first: 1.00 MiB asked (managed), nothing free in the pool");
    }

    #[test]
    fn pieces_are_spoken_of_where_they_matter() {
        let mut moment = OomMoment {
            kind: "managed".into(),
            requested_bytes: 1 << 20,
            free_bytes: 3 << 20,
            largest_free_block_bytes: 1 << 19,
            fragmentation: 0.83,
            ..OomMoment::default()
        };
        assert_eq!(out_of_memory(&moment), "the first: 1.00 MiB asked (managed), 3.00 MiB free in the pool");
        moment.kind = "pool".into();
        let text = "the first: 1.00 MiB asked (pool), 3.00 MiB free in pieces of at most 512.00 KiB (fragmentation 0.83)";
        assert_eq!(out_of_memory(&moment), text);
    }

    #[test]
    fn an_out_of_memory_says_what_stood_in_the_way() {
        let device = DeviceReport { total_bytes: 80 << 30, ..DeviceReport::default() };
        let moment = |sufficient_limit_bytes| OomMoment {
            limit_bytes: 8 << 30,
            external_bytes: 1 << 20,
            sufficient_limit_bytes,
            ..OomMoment::default()
        };
        for (enough, ending) in [
            (9 << 30, "a cap of 9.00 GiB would have sufficed"),
            (80 << 30, "a cap of 80.00 GiB would have sufficed"),
            (81 << 30, "the device is too small by 1.00 GiB"),
            (8 << 30, "the cap allowed it, the device had no more to give"),
        ] {
            let text = what_would_do(&device, &moment(enough));
            assert!(text.ends_with(ending) && text.contains("1.00 MiB outside the pool"), "{text}");
        }
    }
}
