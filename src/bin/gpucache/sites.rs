//! Which sites hold more at the end of one run than of another. A site is the same if its whole stack reads the same: the
//! addresses of a program differ from build to build, and lines of Python when the file is edited.

use crate::report::holders::place;
use crate::report::model::DeviceReport;
use crate::report::sites::{Site, Sites};
use crate::report::units::human;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Sites that the text shows; the JSON has all.
const SHOWN: usize = 10;

/// A site that holds more.
pub struct Grown {
    /// Its innermost frames.
    place: String,
    /// All of its frames, the innermost first.
    stack: Vec<String>,
    /// Bytes live at the end, in both.
    bytes: [u64; 2],
    /// Samples that these rest on.
    samples: [u64; 2],
    /// Whether both may be what they are by the chance of sampling.
    within_chance: bool,
}

/// The sites of which `b` holds more than `a`, those that grew most first.
pub fn grown_sites(a: &DeviceReport, b: &DeviceReport) -> Vec<Grown> {
    let (Some(after), before) = (&b.sites, by_stack(a.sites.as_ref())) else { return Vec::new() };
    let exact = after.interval_bytes == 1 && a.sites.as_ref().is_none_or(|sites| sites.interval_bytes == 1);
    let mut grown: Vec<Grown> = by_stack(Some(after))
        .into_iter()
        .filter_map(|(stack, (place, bytes, samples))| {
            let (before, before_samples) =
                before.get(&stack).map_or((0, 0), |(_, bytes, samples)| (*bytes, *samples));
            let (bytes, samples) = ([before, bytes], [before_samples, samples]);
            // Twice what a count of random events is off by.
            let chance = 2.0 * ((samples[0] + samples[1]) as f64).sqrt();
            let within_chance = !exact && (samples[1] as f64 - samples[0] as f64) < chance;
            (bytes[1] > before).then_some(Grown { place, stack, bytes, samples, within_chance })
        })
        .collect();
    grown.sort_by_key(|site| std::cmp::Reverse(site.bytes[1] - site.bytes[0]));
    grown
}

type Amount = (String, u64, u64);

/// What is live, by whole stacks in words.
fn by_stack(sites: Option<&Sites>) -> BTreeMap<Vec<String>, Amount> {
    let mut all = BTreeMap::new();
    if let Some(sites) = sites {
        let words =
            |site: &Site| sites.stack(site).map(|frame| without_offset(&sites.words(frame))).collect();
        for site in &sites.sites {
            let amount: &mut Amount = all.entry(words(site)).or_insert_with(|| (place(sites, site), 0, 0));
            amount.1 += site.held.live_bytes;
            amount.2 += site.held.live_samples;
        }
    }
    all
}

/// Where a function has no name, its object has to do: the same code lies elsewhere in another build.
fn without_offset(words: &str) -> String {
    match words.rsplit_once("+0x") {
        Some((object, offset)) if offset.bytes().all(|byte| byte.is_ascii_hexdigit()) => object.to_owned(),
        _ => words.to_owned(),
    }
}

/// Lines for people; none if there is nothing.
pub fn as_text(sites: &[Grown]) -> String {
    if sites.is_empty() {
        return String::new();
    }
    let line = |site: &Grown| {
        let chance = if site.within_chance { ", which may be chance" } else { "" };
        let [before, after] = site.bytes.map(human);
        format!(
            "    +{} ({before} → {after}{chance}): {}\n",
            human(site.bytes[1] - site.bytes[0]),
            site.place
        )
    };
    let lines: String = sites.iter().take(SHOWN).map(line).collect();
    let more = match sites.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("    and {more} more\n"),
    };
    format!("\n  sites that hold more at the end\n{lines}{more}")
}

/// All of them for programs.
pub fn as_json(sites: &[Grown]) -> Value {
    let site = |site: &Grown| {
        json!({
            "stack": site.stack,
            "bytes_a": site.bytes[0],
            "bytes_b": site.bytes[1],
            "samples_a": site.samples[0],
            "samples_b": site.samples[1],
            "may_be_chance": site.within_chance,
        })
    };
    sites.iter().map(site).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    const MIB: u64 = 1 << 20;

    fn device(change: impl FnOnce(&mut Sites)) -> DeviceReport {
        let mut sites = sample::sites();
        change(&mut sites);
        DeviceReport { sites: Some(sites), ..DeviceReport::default() }
    }

    #[test]
    fn what_grew_is_found_by_its_stack() {
        let (a, b) = (
            device(|_| {}),
            device(|sites| {
                // In another order, with another offset, and 100 samples more.
                sites.frames[4].offset = Some(0x9999);
                sites.sites.reverse();
                sites.sites[2].held.live_bytes += 6400 * MIB;
                sites.sites[2].held.live_samples += 100;
            }),
        );
        let grown = grown_sites(&a, &b);
        assert_eq!(grown.len(), 1);
        assert_eq!(grown[0].bytes, [640 * MIB, 7040 * MIB]);
        assert!(grown[0].place.starts_with("remember (train.py:41)") && !grown[0].within_chance);
        assert!(grown_sites(&a, &a).is_empty());
        assert!(as_text(&grown).contains("+6.25 GiB"), "{}", as_text(&grown));
        assert_eq!(as_json(&grown)[0]["samples_b"], 110);
    }

    #[test]
    fn a_difference_that_sampling_may_make_is_called_that() {
        let b = device(|sites| {
            sites.sites[0].held.live_bytes += 64 * MIB;
            sites.sites[0].held.live_samples += 1;
        });
        let a = device(|_| {});
        assert!(grown_sites(&a, &b)[0].within_chance);
        let exact = |mut device: DeviceReport| {
            device.sites.as_mut().unwrap().interval_bytes = 1;
            device
        };
        assert!(!grown_sites(&exact(a), &exact(b))[0].within_chance);
    }

    #[test]
    fn a_report_without_sites_holds_nothing() {
        let none = DeviceReport::default();
        assert!(grown_sites(&device(|_| {}), &none).is_empty());
        assert_eq!(grown_sites(&none, &device(|_| {})).len(), 2, "all that is live is new");
    }
}
