//! The effective configuration: what each setting is and where it came from.
//!
//! | key | form | default | meaning |
//! |---|---|---|---|
//! | `memory_fraction`, `per_process_memory_fraction` | 0 to 1, or per device `[0:0.5,1:8GiB]` | none | cap as a share of the device's memory; 0 admits nothing |
//! | `memory_limit` | `8GiB`, `8192MiB`, bytes from 2 MiB on, or per device `[0:0.5,1:8GiB]` | none | cap in bytes; 0 admits nothing |
//! | `garbage_collection_threshold` | above 0, below 1 | off | give cached regions back above this share of the cap, or of the device where there is no cap |
//! | `max_split_size_mb` | whole number from 20 | unlimited | blocks of this size and above are not split, and serve no request below it |
//! | `max_non_split_rounding_mb` | whole number from 20 | 20 | a request at or above the split size takes no block larger than itself by this much |
//! | `roundup_power2_divisions` | power of two, or `[256:1,512:2,>:8]` | none | sizes are rounded up to a division of their power of two |
//! | `free_sync` | `True`, `False` | `False` | each free waits for the device, as `cudaFree` does |
//! | `live_file` | `True`, `False` | `True` | figures are kept in a small shared file while the process runs |
//! | `alert` | `[held:0.9,allocated:8GiB,fragmentation:0.5,growth:1GiB,leak:10]` | none | what is to be said while the process runs |
//! | `history` | 64 to 262144, or 0 | off | so many events are kept for the report |
//! | `history_min` | `1MiB` | `1MiB` | allocations and frees below this are no events |
//! | `sites` | `True`, `False`, or a size | `False` | allocations are sampled with their stacks, one in so many bytes |
//! | `expandable_segments` | `True`, `False` | `False` | memory of a pool lies in one range of addresses; free memory is moved where it is needed |
//!
//! Keys are looked up in `GPUCACHE_CONF`, then `PYTORCH_CUDA_ALLOC_CONF`, then `PYTORCH_ALLOC_CONF`, each key by itself.
//! The first two rows hold together: where both give a cap for a device, the smaller one counts. A device that a
//! per-device form does not name has no cap from it.

mod env;
mod keys;
mod nearest;
mod runs;
#[cfg(test)]
mod tests;
mod value;

pub use env::{CONF_VARIABLE, Parsed, unknown_variables};
pub use keys::ENVIRONMENT;
pub use runs::{RUN_VARIABLE, run_name, within};
pub use value::{Cap, Caps};

use crate::policy::alarms::Alarm;
use crate::policy::bytes;
use crate::policy::round::Rounding;
use crate::report::model::{DEFAULT_SOURCE, Setting};
use crate::report::template::Template;

/// The name under which a key of `GPUCACHE_CONF`, or an alias of one, is reported; none if it has no meaning there.
pub fn canonical_key(name: &str) -> Option<&'static str> {
    keys::find(name).map(|key| key.name)
}

/// A value, how it was written, and the environment variable that it came from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sourced<T> {
    value: T,
    /// The key as written, which may be another name of it; empty for a default.
    key: String,
    text: String,
    source: &'static str,
}

impl<T> Sourced<T> {
    fn default_of(value: T, text: impl Into<String>) -> Self {
        Self { value, key: String::new(), text: text.into(), source: DEFAULT_SOURCE }
    }

    fn setting(&self, key: &str) -> Setting {
        let other_name = (!self.key.is_empty() && self.key != key).then(|| self.key.clone());
        Setting {
            key: key.to_owned(),
            value: self.text.clone(),
            source: self.source.to_owned(),
            written_as: other_name,
        }
    }
}

/// The cap on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Most bytes that the process may hold; never above the device's total.
    pub bytes: u64,
    /// Whether that is less than the device has.
    pub capped: bool,
}

/// Where the report goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportTarget {
    /// Nowhere.
    Off,
    /// As text to the standard error stream.
    Stderr,
    /// As JSON to a file.
    File(Template),
}

/// How much the library says about its own working.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Nothing, not even warnings.
    Off,
    /// What went wrong.
    Error,
    /// What the user should look at: the default.
    Warn,
    /// What was decided, once each.
    Info,
    /// What happens on slow paths.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The word used in `GPUCACHE_LOG`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Every setting in effect. Made by [`Conf::from_env`]; the default is what holds when nothing is set.
#[derive(Debug, Clone, PartialEq)]
pub struct Conf {
    memory_fraction: Sourced<Option<Caps>>,
    memory_limit: Sourced<Option<Caps>>,
    garbage_collection_threshold: Sourced<Option<f64>>,
    max_split_size: Sourced<Option<u64>>,
    max_non_split_rounding: Sourced<u64>,
    rounding: Sourced<Rounding>,
    free_sync: Sourced<bool>,
    expandable_segments: Sourced<bool>,
    live_file: Sourced<bool>,
    alert: Sourced<Vec<Alarm>>,
    alert_file: Sourced<Option<Template>>,
    alert_command: Sourced<Option<String>>,
    history: Sourced<usize>,
    history_min: Sourced<u64>,
    sites: Sourced<Option<u64>>,
    report: Sourced<ReportTarget>,
    prom: Sourced<Option<Template>>,
    log: Sourced<LogLevel>,
    disabled: Sourced<bool>,
    runs: Vec<u64>,
}

impl Default for Conf {
    fn default() -> Self {
        Self {
            memory_fraction: Sourced::default_of(None, "none"),
            memory_limit: Sourced::default_of(None, "none"),
            garbage_collection_threshold: Sourced::default_of(None, "off"),
            max_split_size: Sourced::default_of(None, "unlimited"),
            max_non_split_rounding: Sourced::default_of(20 << 20, "20"),
            rounding: Sourced::default_of(Rounding::none(), "none"),
            free_sync: Sourced::default_of(false, "False"),
            expandable_segments: Sourced::default_of(false, "False"),
            live_file: Sourced::default_of(true, "True"),
            alert: Sourced::default_of(Vec::new(), "none"),
            alert_file: Sourced::default_of(None, "none"),
            alert_command: Sourced::default_of(None, "none"),
            history: Sourced::default_of(0, "off"),
            history_min: Sourced::default_of(1 << 20, "1MiB"),
            sites: Sourced::default_of(None, "False"),
            report: Sourced::default_of(ReportTarget::Stderr, "stderr"),
            prom: Sourced::default_of(None, "off"),
            log: Sourced::default_of(LogLevel::Warn, "warn"),
            disabled: Sourced::default_of(false, "0"),
            runs: Vec::new(),
        }
    }
}

impl Conf {
    /// What `memory_fraction` and `memory_limit` each allow on a device of `total` bytes, where they name it.
    pub fn caps_for(&self, device: u32, total: u64) -> [Option<u64>; 2] {
        let caps = [&self.memory_fraction.value, &self.memory_limit.value];
        caps.map(|caps| Some(caps.as_ref()?.for_device(device)?.bytes_of(total)))
    }

    /// The cap on a device of `total` bytes: the smallest of what the settings say about it and the total itself.
    pub fn limit_for(&self, device: u32, total: u64) -> Limit {
        let bytes = self.caps_for(device, total).into_iter().flatten().fold(total, u64::min);
        Limit { bytes, capped: bytes < total }
    }

    /// Whether any setting gives a cap to any device.
    pub fn has_cap(&self) -> bool {
        self.memory_fraction.value.is_some() || self.memory_limit.value.is_some()
    }

    /// Share of the cap, or of the device's total without one, above which cached regions are given back; none if off.
    pub fn garbage_collection_threshold(&self) -> Option<f64> {
        self.garbage_collection_threshold.value
    }

    /// Bytes from which on blocks are not split; none if all are.
    pub fn max_split_size(&self) -> Option<u64> {
        self.max_split_size.value
    }

    /// Bytes by which a block must exceed an unsplittable request to be refused for it.
    pub fn max_non_split_rounding(&self) -> u64 {
        self.max_non_split_rounding.value
    }

    /// How sizes are rounded.
    pub fn rounding(&self) -> &Rounding {
        &self.rounding.value
    }

    /// Whether a free waits for the device.
    pub fn free_sync(&self) -> bool {
        self.free_sync.value
    }

    /// Whether a pool's memory is to lie in one range that grows and whose free memory is moved.
    pub fn expandable_segments(&self) -> bool {
        self.expandable_segments.value
    }

    /// Whether figures are kept in a live file.
    pub fn live_file(&self) -> bool {
        self.live_file.value
    }

    /// Where the report goes.
    pub fn report(&self) -> &ReportTarget {
        &self.report.value
    }

    /// What is to be said while the process runs.
    pub fn alert(&self) -> &[Alarm] {
        &self.alert.value
    }

    /// The file that alarms are added to, besides the standard error stream; none if there is none.
    pub fn alert_file(&self) -> Option<&Template> {
        self.alert_file.value.as_ref()
    }

    /// The shell's command that is run for an alarm; none if there is none.
    pub fn alert_command(&self) -> Option<&str> {
        self.alert_command.value.as_deref()
    }

    /// Events that are kept for the report; 0 for no history.
    pub fn history(&self) -> usize {
        self.history.value
    }

    /// Bytes from which on allocations and frees are events.
    pub fn history_min(&self) -> u64 {
        self.history_min.value
    }

    /// Bytes between two allocations that are sampled with their stacks, on average; none if none are.
    pub fn sites(&self) -> Option<u64> {
        self.sites.value
    }

    /// Where figures for Prometheus go while the process runs; none if nowhere.
    pub fn prom(&self) -> Option<&Template> {
        self.prom.value.as_ref()
    }

    /// How much the library says about its own working.
    pub fn log(&self) -> LogLevel {
        self.log.value
    }

    /// Whether the library was told to do nothing.
    pub fn is_disabled(&self) -> bool {
        self.disabled.value
    }

    /// The runs of the tool that the process belongs to, the innermost last.
    pub fn runs(&self) -> &[u64] {
        &self.runs
    }

    /// All settings for the report, defaults included, in the order of the documentation.
    pub fn settings(&self) -> Vec<Setting> {
        vec![
            self.memory_fraction.setting("memory_fraction"),
            self.memory_limit.setting("memory_limit"),
            self.garbage_collection_threshold.setting("garbage_collection_threshold"),
            self.max_split_size.setting("max_split_size_mb"),
            self.max_non_split_rounding.setting("max_non_split_rounding_mb"),
            self.rounding.setting("roundup_power2_divisions"),
            self.free_sync.setting("free_sync"),
            self.expandable_segments.setting("expandable_segments"),
            self.live_file.setting("live_file"),
            self.alert.setting("alert"),
            self.history.setting("history"),
            self.history_min.setting("history_min"),
            self.sites.setting("sites"),
            self.report.setting("GPUCACHE_REPORT"),
            self.prom.setting("GPUCACHE_PROM"),
            self.alert_file.setting("GPUCACHE_ALERT_FILE"),
            self.alert_command.setting("GPUCACHE_ALERT_COMMAND"),
            self.log.setting("GPUCACHE_LOG"),
            self.disabled.setting("GPUCACHE_DISABLE"),
        ]
    }
}

impl Cap {
    /// The cap on a device of `total` bytes, not limited to the total.
    pub fn bytes_of(self, total: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            // Exactly the total at 1: a product in floating point could round a large total down or up.
            Self::Fraction(fraction) if fraction >= 1.0 => total,
            Self::Fraction(fraction) => (total as f64 * fraction) as u64,
        }
    }
}

impl std::fmt::Display for Cap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => f.write_str(&bytes::exact(*bytes)),
            Self::Fraction(fraction) => write!(f, "{fraction}"),
        }
    }
}
