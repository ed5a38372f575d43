//! The places in the program that allocate, and what each holds.
//!
//! What a site held at the peak needs no copy of the table at each new peak. Peaks have numbers, and a site remembers
//! the number of the peak for which it has noted what it held. When it changes, and that number is an old one, it has not
//! changed since the newest peak: so what it holds just before the change is what it held then.

use super::frames::{Frames, Renumbered, Stack};
use super::sampler::Scaled;
use crate::report::sites::{By, Held, Site as Listed, Sites};
use std::collections::HashMap;

/// Sites that are kept. What more there are go by one.
const MOST: usize = 4096;
/// Hashes that lead to a site without a look at its frames. Several may lead to one: what tells two walks apart, but is
/// not shown, is no difference.
const KEYS: usize = 4 * MOST;

struct Site {
    device: u32,
    stack: Box<[u32]>,
    cut: bool,
    live: Scaled,
    live_samples: u64,
    total: Scaled,
    samples: u64,
    /// What was live at the device's peak of that number.
    at_peak: Scaled,
    peak: u64,
}

#[derive(Default)]
struct Device {
    live: Scaled,
    most: u64,
    /// Number of the newest peak.
    peak: u64,
    /// The site of what has no room.
    rest: Option<u32>,
    untracked: u64,
    without_python: u64,
}

/// What a caller out of memory may note without much work: a site and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// Number of the site, for [`Table::listed`].
    pub site: u32,
    /// Bytes, by estimate.
    pub live_bytes: u64,
    /// Allocations, by estimate.
    pub live_blocks: u64,
}

/// All sites of the process.
#[derive(Default)]
pub struct Table {
    sites: Vec<Site>,
    by_key: HashMap<(u32, u64), u32>,
    by_stack: HashMap<(u32, Box<[u32]>), u32>,
    frames: Frames,
    devices: HashMap<u32, Device>,
}

impl Table {
    /// The site of a device's stack, by a hash of the stack.
    pub fn find(&self, device: u32, key: u64) -> Option<u32> {
        self.by_key.get(&(device, key)).copied()
    }

    /// The same, made if it is not there.
    pub fn enter(&mut self, device: u32, key: u64, stack: &Stack) -> u32 {
        if let Some(known) = self.find(device, key) {
            return known;
        }
        let full = self.sites.len() >= MOST;
        // Where there is no room for a site, none is taken for its frames.
        let numbers =
            stack.frames.iter().map(|frame| self.frames.number(frame, full)).collect::<Option<Box<[u32]>>>();
        let known = numbers.clone().and_then(|numbers| self.by_stack.get(&(device, numbers)).copied());
        let site = match (known, numbers) {
            (Some(site), _) => site,
            (None, Some(numbers)) if !full => {
                let site = self.add(device, numbers.clone(), stack.cut);
                self.by_stack.insert((device, numbers), site);
                site
            }
            _ => self.rest(device),
        };
        if self.by_key.len() < KEYS {
            self.by_key.insert((device, key), site);
        }
        site
    }

    fn add(&mut self, device: u32, stack: Box<[u32]>, cut: bool) -> u32 {
        self.sites.push(Site {
            device,
            stack,
            cut,
            live: Scaled::default(),
            live_samples: 0,
            total: Scaled::default(),
            samples: 0,
            at_peak: Scaled::default(),
            // Whatever the newest peak is, the site held nothing then.
            peak: u64::MAX,
        });
        let of = self.devices.entry(device).or_default();
        let number = self.sites.len() as u32 - 1;
        self.sites[number as usize].peak = of.peak;
        number
    }

    /// The site of what has no room.
    fn rest(&mut self, device: u32) -> u32 {
        let known = self.devices.entry(device).or_default().rest;
        let site = known.unwrap_or_else(|| self.add(device, Box::default(), false));
        self.devices.entry(device).or_default().rest = Some(site);
        site
    }

    /// An allocation of a site is live.
    pub fn begin(&mut self, site: u32, scaled: Scaled) {
        self.count(site, scaled);
        self.change(site, |live, samples| {
            live.add(scaled);
            *samples += 1;
        });
    }

    /// An allocation of a site counts in its totals only: there is no room to wait for its free.
    pub fn begin_untracked(&mut self, site: u32, scaled: Scaled) {
        self.count(site, scaled);
        if let Some(site) = self.sites.get(site as usize) {
            self.devices.entry(site.device).or_default().untracked += 1;
        }
    }

    fn count(&mut self, site: u32, scaled: Scaled) {
        if let Some(site) = self.sites.get_mut(site as usize) {
            site.total.add(scaled);
            site.samples += 1;
        }
    }

    /// It is freed.
    pub fn end(&mut self, site: u32, scaled: Scaled) {
        self.change(site, |live, samples| {
            live.sub(scaled);
            *samples = samples.saturating_sub(1);
        });
    }

    /// It is not, after all.
    pub fn end_undone(&mut self, site: u32, scaled: Scaled) {
        self.change(site, |live, samples| {
            live.add(scaled);
            *samples += 1;
        });
    }

    /// A sample of the device was taken in a thread whose frames of Python could not be read.
    pub fn lacks_python(&mut self, device: u32) {
        self.devices.entry(device).or_default().without_python += 1;
    }

    fn change(&mut self, site: u32, change: impl Fn(&mut Scaled, &mut u64)) {
        let Some(site) = self.sites.get_mut(site as usize) else { return };
        let device = self.devices.entry(site.device).or_default();
        if site.peak != device.peak {
            site.at_peak = site.live;
            site.peak = device.peak;
        }
        change(&mut site.live, &mut site.live_samples);
        change(&mut device.live, &mut 0);
        if device.live.bytes > device.most {
            device.most = device.live.bytes;
            device.peak += 1;
        }
    }

    fn held(site: &Site, newest_peak: u64) -> Held {
        let at_peak = if site.peak == newest_peak { site.at_peak } else { site.live };
        Held {
            live_bytes: site.live.bytes,
            live_blocks: site.live.count(),
            live_samples: site.live_samples,
            peak_bytes: at_peak.bytes,
            total_bytes: site.total.bytes,
            total_blocks: site.total.count(),
            samples: site.samples,
        }
    }

    /// The sites of a device that hold most now, as many as there is room for; returns how many. Allocates nothing.
    pub fn top_live(&self, device: u32, into: &mut [Noted]) -> usize {
        let mut found = 0;
        for (number, site) in self.sites.iter().enumerate() {
            if site.device != device || site.live.bytes == 0 {
                continue;
            }
            let noted =
                Noted { site: number as u32, live_bytes: site.live.bytes, live_blocks: site.live.count() };
            let at = into[..found].partition_point(|other| other.live_bytes >= noted.live_bytes);
            if at >= into.len() {
                continue;
            }
            found = (found + 1).min(into.len());
            into[at..found].rotate_right(1);
            into[at] = noted;
        }
        found
    }

    /// What a report says of a device: the sites that are among the first `most` by what is live, was live at the peak or
    /// was allocated in all. `None` if nothing was sampled there.
    pub fn report(&self, device: u32, interval: u64, most: usize) -> Option<Sites> {
        let of = self.devices.get(&device)?;
        let own = self.sites.iter().enumerate().filter(|(_, site)| site.device == device);
        let mut all: Vec<(u32, Held)> =
            own.map(|(number, site)| (number as u32, Table::held(site, of.peak))).collect();
        let mut chosen = vec![false; all.len()];
        for by in [By::Live, By::Peak, By::Total] {
            let listable = |at: &usize| by.of(&all[*at].1) > 0 && of.rest != Some(all[*at].0);
            let mut order: Vec<usize> = (0..all.len()).filter(listable).collect();
            order.sort_by_key(|at| std::cmp::Reverse(by.of(&all[*at].1)));
            order.into_iter().take(most).for_each(|at| chosen[at] = true);
        }
        let mut report = Sites {
            interval_bytes: interval,
            unplaced_samples: of.rest.map_or(0, |rest| self.sites[rest as usize].samples),
            untracked_samples: of.untracked,
            without_python: of.without_python,
            ..Sites::default()
        };
        let mut listed = Vec::new();
        for (at, (number, held)) in all.drain(..).enumerate() {
            report.all.add(&held);
            if chosen[at] {
                listed.push((number, held));
            } else {
                report.rest.add(&held);
            }
        }
        listed.sort_by_key(|(_, held)| std::cmp::Reverse((held.live_bytes, held.total_bytes)));
        let mut numbers = Renumbered::default();
        for (number, held) in listed {
            let site = &self.sites[number as usize];
            let stack =
                site.stack.iter().map(|frame| numbers.frame(&self.frames, &mut report, *frame)).collect();
            report.sites.push(Listed { held, stack, cut: site.cut });
        }
        Some(report)
    }

    /// A site that was noted at another time, as a report lists it.
    pub fn listed(&self, noted: &Noted) -> Option<Sites> {
        let site = self.sites.get(noted.site as usize)?;
        let (mut shown, mut numbers) = (Sites::default(), Renumbered::default());
        let stack = site.stack.iter().map(|frame| numbers.frame(&self.frames, &mut shown, *frame)).collect();
        let held = Held { live_bytes: noted.live_bytes, live_blocks: noted.live_blocks, ..Held::default() };
        shown.sites.push(Listed { held, stack, cut: site.cut });
        Some(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::{Frame, Module};
    use super::*;

    fn stack(name: &str) -> Stack {
        let module = Module { path: format!("/lib/{name}.so"), build_id: vec![0xab, 1] };
        Stack {
            frames: vec![
                Frame::Native(Some(module), 0x1000),
                Frame::Python("/a/b.py".into(), name.into(), 3),
            ],
            cut: false,
        }
    }

    fn bytes(bytes: u64) -> Scaled {
        Scaled { bytes, blocks: 1024 }
    }

    #[test]
    fn sites_are_one_for_each_stack_and_device() {
        let mut table = Table::default();
        let first = table.enter(0, 1, &stack("a"));
        assert_eq!(table.enter(0, 1, &stack("a")), first);
        let others = [table.enter(0, 2, &stack("b")), table.enter(1, 1, &stack("a"))];
        assert!(!others.contains(&first) && others[0] != others[1]);
        assert_eq!(table.find(0, 2), Some(others[0]));
    }

    #[test]
    fn walks_that_differ_in_nothing_that_is_shown_lead_to_one_site() {
        let mut table = Table::default();
        let first = table.enter(0, 1, &stack("a"));
        assert_eq!(table.enter(0, 2, &stack("a")), first);
        assert_eq!(table.find(0, 2), Some(first));
    }

    /// The peak, site by site, is what a copy of the whole at each new peak says.
    #[test]
    fn what_was_held_at_the_peak_is_as_copies_would_have_it() {
        let mut table = Table::default();
        let sites: Vec<u32> = (0..5).map(|at| table.enter(0, at, &stack(&at.to_string()))).collect();
        let (mut held, mut copy, mut most) = ([0u64; 5], [0u64; 5], 0);
        let mut blocks: Vec<(usize, u64)> = Vec::new();
        let mut random = 12345u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for _ in 0..5000 {
            if blocks.is_empty() || next(5) < 3 {
                let (site, taken) = (next(5) as usize, 1 + next(1000));
                table.begin(sites[site], bytes(taken));
                held[site] += taken;
                blocks.push((site, taken));
            } else {
                let (site, taken) = blocks.swap_remove(next(blocks.len() as u64) as usize);
                table.end(sites[site], bytes(taken));
                held[site] -= taken;
            }
            if held.iter().sum::<u64>() > most {
                most = held.iter().sum();
                copy = held;
            }
            let newest = table.devices[&0].peak;
            let now: Vec<u64> = table.sites.iter().map(|site| Table::held(site, newest).peak_bytes).collect();
            assert_eq!(now, copy);
        }
        assert_eq!(table.report(0, 1, 10).unwrap().all.peak_bytes, most);
    }

    #[test]
    fn a_site_that_is_new_after_the_peak_held_nothing_then() {
        let mut table = Table::default();
        let old = table.enter(0, 1, &stack("old"));
        table.begin(old, bytes(100));
        table.end(old, bytes(100));
        let new = table.enter(0, 2, &stack("new"));
        table.begin(new, bytes(50));
        let report = table.report(0, 1, 10).unwrap();
        let peaks: Vec<u64> = report.sites.iter().map(|site| site.held.peak_bytes).collect();
        assert_eq!(peaks, [0, 100], "the one that is live comes first");
    }

    #[test]
    fn what_has_no_room_is_counted_together() {
        let mut table = Table::default();
        for key in 0..MOST as u64 + 5 {
            let site = table.enter(0, key, &stack(&key.to_string()));
            table.begin(site, bytes(1));
        }
        let report = table.report(0, 1, 10).unwrap();
        assert_eq!((report.unplaced_samples, report.all.live_bytes), (5, MOST as u64 + 5));
        assert_eq!(report.sites.len(), 10);
        assert_eq!(report.rest.live_bytes, MOST as u64 + 5 - 10);
        assert!(report.sites.iter().all(|site| !site.stack.is_empty()));
    }

    #[test]
    fn the_first_few_are_found_without_a_list() {
        let mut table = Table::default();
        for (key, size) in [5, 9, 1, 7, 3, 0].into_iter().enumerate() {
            let site = table.enter(0, key as u64, &stack(&key.to_string()));
            table.begin(site, bytes(size));
        }
        let mut into = [Noted::default(); 3];
        assert_eq!(table.top_live(0, &mut into), 3);
        assert_eq!(into.map(|noted| noted.live_bytes), [9, 7, 5]);
        let listed = table.listed(&into[0]).unwrap();
        assert_eq!(listed.line(&listed.sites[0], 3), "1 (b.py:3)");
        assert_eq!(listed.sites[0].held.live_bytes, 9);
        let mut wide = [Noted::default(); 8];
        assert_eq!(table.top_live(0, &mut wide), 5, "what holds nothing is not there");
        assert_eq!(table.top_live(3, &mut wide), 0);
    }

    #[test]
    fn a_report_names_each_frame_and_object_once() {
        let mut table = Table::default();
        for key in 0..3 {
            let mut stack = stack("same");
            stack.frames.rotate_left(key as usize);
            stack.frames.truncate(1 + key as usize / 2);
            let site = table.enter(0, key, &stack);
            table.begin(site, bytes(key + 1));
        }
        let report = table.report(0, 64, 10).unwrap();
        assert_eq!((report.frames.len(), report.modules.len(), report.sites.len()), (2, 1, 3));
        assert_eq!(report.modules[0].build_id, "ab01");
        let stacks: Vec<&[u32]> = report.sites.iter().map(|site| &site.stack[..]).collect();
        assert_eq!(stacks, [&[0, 1][..], &[1], &[0]], "those that hold most first");
        assert_eq!(table.report(1, 64, 10), None);
    }
}
