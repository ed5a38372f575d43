//! Who holds the memory, in the report: places in the program with estimates of what each holds, from a sample of the
//! allocations. Frames and modules stand once in a list, and stacks name them by their place there.

use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// What a sample of a device's allocations says (`sites` in the configuration).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sites {
    /// Bytes between two samples, on average; 1 where every allocation was looked at.
    pub interval_bytes: u64,
    /// All sites together, those that are not listed included. Its peak is the most that was live at once by estimate, and
    /// each site's `peak_bytes` are of that moment.
    pub all: Held,
    /// Those that are not listed.
    pub rest: Held,
    /// Samples whose stack found no room in the table: they count for `all` and `rest` only.
    pub unplaced_samples: u64,
    /// Samples that found no room among those that wait for their free: only their totals count.
    pub untracked_samples: u64,
    /// Where frames of Python come from, or why there are none; empty where there is no Python.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub python: String,
    /// Samples of threads that run Python whose frames could not be read.
    #[serde(default)]
    pub without_python: u64,
    /// The loaded objects that frames lie in.
    pub modules: Vec<Module>,
    /// The frames of all stacks.
    pub frames: Vec<Frame>,
    /// The sites, those that hold most at the end first.
    pub sites: Vec<Site>,
}

/// Estimates, and on how many samples they rest: a figure from `n` samples is off by about one part in the square root of
/// `n`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Bytes allocated and not freed.
    pub live_bytes: u64,
    /// Allocations that these are.
    pub live_blocks: u64,
    /// Samples that these rest on.
    pub live_samples: u64,
    /// Bytes live when the device's were most.
    pub peak_bytes: u64,
    /// Bytes allocated in all.
    pub total_bytes: u64,
    /// Allocations in all.
    pub total_blocks: u64,
    /// Samples that these rest on.
    pub samples: u64,
}

impl Held {
    /// Adds.
    pub fn add(&mut self, other: &Held) {
        self.live_bytes += other.live_bytes;
        self.live_blocks += other.live_blocks;
        self.live_samples += other.live_samples;
        self.peak_bytes += other.peak_bytes;
        self.total_bytes += other.total_bytes;
        self.total_blocks += other.total_blocks;
        self.samples += other.samples;
    }
}

/// A place in the program that allocates, by its whole stack.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// What it holds.
    #[serde(flatten)]
    pub held: Held,
    /// Frames, the innermost first, by their place in [`Sites::frames`].
    pub stack: Vec<u32>,
    /// Whether there were more frames than are kept: then these are the innermost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// A loaded object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Its path.
    pub path: String,
    /// Its build id in hexadecimal; empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub build_id: String,
}

/// One frame: of native code, or of Python.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Native: the object, by its place in [`Sites::modules`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<u32>,
    /// Native: the address of the call as the object was linked; of code in no object, the address itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The function: a symbol as it stands in the object, or the qualified name of a Python function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Python: the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Python: the line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

impl Frame {
    /// Whether both are told in the same words.
    pub fn reads_like(&self, other: &Frame) -> bool {
        let named = self.function.is_some();
        let same = (&self.function, &self.file, self.line, self.module)
            == (&other.function, &other.file, other.line, other.module);
        same && (named || self.offset == other.offset)
    }

    /// Whether it is one of Python.
    pub fn is_python(&self) -> bool {
        self.file.is_some()
    }
}

/// By what sites are put in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// What is live at the end.
    Live,
    /// What was live at the peak.
    Peak,
    /// What was allocated in all.
    Total,
}

impl By {
    /// The figure.
    pub fn of(self, held: &Held) -> u64 {
        match self {
            By::Live => held.live_bytes,
            By::Peak => held.peak_bytes,
            By::Total => held.total_bytes,
        }
    }
}

impl Sites {
    /// The listed sites that have any of it, those with most first.
    pub fn top(&self, by: By) -> Vec<&Site> {
        let mut sites: Vec<&Site> = self.sites.iter().filter(|site| by.of(&site.held) > 0).collect();
        sites.sort_by_key(|site| std::cmp::Reverse(by.of(&site.held)));
        sites
    }

    /// The frames of a site, the innermost first. Numbers that no list has (of a damaged report) are passed over.
    pub fn stack<'a>(&'a self, site: &'a Site) -> impl DoubleEndedIterator<Item = &'a Frame> {
        site.stack.iter().filter_map(|at| self.frames.get(*at as usize))
    }

    /// A frame in words: `function (file:line)`, `function in object`, or `object+0x12ab`.
    pub fn words(&self, frame: &Frame) -> String {
        let file = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        if let Some(path) = &frame.file {
            let function = frame.function.as_deref().unwrap_or("?");
            let line =
                frame.line.filter(|line| *line > 0).map_or_else(String::new, |line| format!(":{line}"));
            return format!("{function} ({}{line})", file(path));
        }
        let module = frame.module.and_then(|at| self.modules.get(at as usize));
        let name = module.map_or_else(|| "?".to_owned(), |module| file(&module.path));
        match &frame.function {
            Some(function) => format!("{function} in {name}"),
            None => format!("{name}+{:#x}", frame.offset.unwrap_or(0)),
        }
    }

    /// The same with where exactly the call is, also where the function has a name: `function in object+0x12ab`.
    pub fn exact_words(&self, frame: &Frame) -> String {
        let words = self.words(frame);
        match frame.offset.filter(|_| frame.function.is_some() && !frame.is_python()) {
            Some(offset) => format!("{words}+{offset:#x}"),
            None => words,
        }
    }

    /// The few frames that tell a site from others: of Python where there are any, else the innermost.
    pub fn gist<'a>(&'a self, site: &'a Site, most: usize) -> Vec<&'a Frame> {
        let python: Vec<&'a Frame> = self.stack(site).filter(|frame| frame.is_python()).take(most).collect();
        if python.is_empty() { self.stack(site).take(most).collect() } else { python }
    }

    /// A site in one line, innermost frame first.
    pub fn line(&self, site: &Site, most: usize) -> String {
        let words: Vec<String> = self.gist(site, most).into_iter().map(|frame| self.words(frame)).collect();
        if words.is_empty() { "(no frames)".to_owned() } else { words.join(" < ") }
    }

    /// Stacks in the form that flame graphs are drawn from: frames from the outermost in, and a figure.
    pub fn folded(&self, by: By) -> String {
        let plain = |text: &str| text.replace([';', '\n'], ":");
        let mut out = String::new();
        for site in self.top(by) {
            let mut frames: Vec<String> =
                self.stack(site).rev().map(|frame| plain(&self.words(frame))).collect();
            if site.cut {
                frames.insert(0, "(more)".to_owned());
            }
            let _ = writeln!(out, "{} {}", frames.join(";"), by.of(&site.held));
        }
        let rest = by.of(&self.rest);
        if rest > 0 {
            let _ = writeln!(out, "(other sites) {rest}");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn sites() -> Sites {
        sample::sites()
    }

    #[test]
    fn sites_come_in_the_order_of_what_is_asked() {
        let sites = sites();
        let first = |by| sites.line(sites.top(by)[0], 1);
        assert_eq!(first(By::Live), "remember (train.py:41)");
        assert_eq!(first(By::Peak), "forward (model.py:12)");
        assert_eq!(sites.top(By::Live).len(), 2, "what holds nothing is not there");
    }

    #[test]
    fn frames_are_told_by_the_best_that_is_known() {
        let sites = sites();
        let words: Vec<String> = sites.frames.iter().map(|frame| sites.words(frame)).collect();
        assert_eq!(
            words,
            [
                "remember (train.py:41)",
                "main (train.py:80)",
                "forward (model.py:12)",
                "_ZN2at5emptyEv in libtorch.so",
                "solver+0x1234"
            ]
        );
    }

    #[test]
    fn folded_stacks_go_from_the_outside_in_and_add_up() {
        let sites = sites();
        let folded = sites.folded(By::Total);
        assert!(
            folded.starts_with("main (train.py:80);forward (model.py:12);_ZN2at5emptyEv in libtorch.so "),
            "{folded}"
        );
        let sum: u64 =
            folded.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(sum, sites.all.total_bytes);
    }

    #[test]
    fn a_damaged_report_does_no_harm() {
        let mut sites = sites();
        sites.sites[0].stack = vec![77, 0];
        sites.modules.clear();
        assert_eq!(sites.line(&sites.sites[0], 3), "remember (train.py:41)");
        assert!(sites.folded(By::Live).contains("?+0x1234") || !sites.folded(By::Live).is_empty());
    }
}
