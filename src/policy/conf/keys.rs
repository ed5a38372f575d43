//! The table of keys: for each the form it accepts and how a value of that form becomes a setting.

use super::value::{self, Refusal};
use super::{Conf, LogLevel, Sourced};
use crate::policy::grammar::Value;

/// The environment variables that the library reads, `PyTorch`'s apart.
pub const ENVIRONMENT: [&str; 7] = [
    "GPUCACHE_CONF",
    "GPUCACHE_REPORT",
    "GPUCACHE_PROM",
    "GPUCACHE_ALERT_FILE",
    "GPUCACHE_ALERT_COMMAND",
    "GPUCACHE_LOG",
    "GPUCACHE_DISABLE",
];

/// A key of the configuration variables.
pub(super) struct Key {
    /// Name under which the setting is reported, and by which duplicates are recognised.
    pub name: &'static str,
    /// The name under which `PyTorch` has the same setting, so that its variables may set it.
    pub pytorch_name: Option<&'static str>,
    /// The accepted form, for messages.
    pub accepted: &'static str,
    /// Takes a value into the configuration.
    pub set: fn(&mut Conf, &Value, Origin) -> Result<(), Refusal>,
}

/// How a value was written and where.
pub(super) struct Origin {
    /// The key as written; the variable where that is the setting.
    pub key: String,
    pub text: String,
    pub source: &'static str,
}

impl Origin {
    fn with<T>(self, value: T) -> Sourced<T> {
        Sourced { value, key: self.key, text: self.text, source: self.source }
    }
}

const FRACTION_FORM: &str = "a number from 0 to 1, or one for each device: [0:0.5,1:8GiB]";
const MIB_FORM: &str = "a whole number of MiB, at least 20";
const TRUTH_FORM: &str = "True or False";

pub(super) const KEYS: [Key; 13] = [
    Key {
        name: "memory_fraction",
        pytorch_name: Some("per_process_memory_fraction"),
        accepted: FRACTION_FORM,
        set: |conf, value, origin| {
            let caps = value::caps(value, value::fraction)?;
            conf.memory_fraction = origin.with(Some(caps));
            Ok(())
        },
    },
    Key {
        name: "memory_limit",
        pytorch_name: None,
        accepted: "8GiB, 8192MiB or plain bytes from 2MiB on, 0 to admit nothing, or one for each device: \
                   [0:0.5,1:8GiB]",
        set: |conf, value, origin| {
            let caps = value::caps(value, value::size)?;
            conf.memory_limit = origin.with(Some(caps));
            Ok(())
        },
    },
    Key {
        name: "garbage_collection_threshold",
        pytorch_name: Some("garbage_collection_threshold"),
        accepted: "a number above 0 and below 1",
        set: |conf, value, origin| {
            conf.garbage_collection_threshold = origin.with(Some(value::open_unit_interval(value)?));
            Ok(())
        },
    },
    Key {
        name: "max_split_size_mb",
        pytorch_name: Some("max_split_size_mb"),
        accepted: MIB_FORM,
        set: |conf, value, origin| {
            conf.max_split_size = origin.with(Some(value::split_mib(value)?));
            Ok(())
        },
    },
    Key {
        name: "max_non_split_rounding_mb",
        pytorch_name: Some("max_non_split_rounding_mb"),
        accepted: MIB_FORM,
        set: |conf, value, origin| {
            conf.max_non_split_rounding = origin.with(value::split_mib(value)?);
            Ok(())
        },
    },
    Key {
        name: "roundup_power2_divisions",
        pytorch_name: Some("roundup_power2_divisions"),
        accepted: "a power of two (1 for none), or one for each range of MiB: [256:1,512:2,>:8]",
        set: |conf, value, origin| {
            conf.rounding = origin.with(value::rounding(value)?);
            Ok(())
        },
    },
    Key {
        name: "free_sync",
        pytorch_name: None,
        accepted: TRUTH_FORM,
        set: |conf, value, origin| {
            conf.free_sync = origin.with(value::truth(value)?);
            Ok(())
        },
    },
    Key {
        name: "expandable_segments",
        // The key is PyTorch's too, but there it is a matter between PyTorch and the driver.
        pytorch_name: None,
        accepted: TRUTH_FORM,
        set: |conf, value, origin| {
            conf.expandable_segments = origin.with(value::truth(value)?);
            Ok(())
        },
    },
    Key {
        name: "alert",
        pytorch_name: None,
        accepted: "a list of at most 16, each one of allocated, reserved or held with a size or a share of the cap, \
                   fragmentation with a share, growth with a size (a minute), leak with a number of minutes: \
                   [held:0.9,allocated:8GiB,fragmentation:0.5,growth:1GiB,leak:10]",
        set: |conf, value, origin| {
            conf.alert = origin.with(value::alarms(value)?);
            Ok(())
        },
    },
    Key {
        name: "history",
        pytorch_name: None,
        accepted: "a whole number of events from 64 to 262144, or 0 for none",
        set: |conf, value, origin| {
            conf.history = origin.with(value::events(value)?);
            Ok(())
        },
    },
    Key {
        name: "history_min",
        pytorch_name: None,
        accepted: "a size: 1MiB, 64KiB or plain bytes",
        set: |conf, value, origin| {
            conf.history_min = origin.with(value::bytes_of(value)?);
            Ok(())
        },
    },
    Key {
        name: "sites",
        pytorch_name: None,
        accepted: "True, False, or the bytes from one sample to the next on average: 32MiB, or 1 for every allocation",
        set: |conf, value, origin| {
            conf.sites = origin.with(value::interval(value)?);
            Ok(())
        },
    },
    Key {
        name: "live_file",
        pytorch_name: None,
        accepted: TRUTH_FORM,
        set: |conf, value, origin| {
            conf.live_file = origin.with(value::truth(value)?);
            Ok(())
        },
    },
];

/// Other names of keys.
const ALIASES: [(&str, &str); 1] = [("per_process_memory_fraction", "memory_fraction")];

/// Keys that mean something to `PyTorch`'s own allocator and nothing here.
const PYTORCH_ONLY: [&str; 15] = [
    "backend",
    "expandable_segments_reserve",
    "expandable_segments_reserve_by_class",
    "graph_capture_record_stream_reuse",
    "large_segment_size_mb",
    "pinned_free_catch_all",
    "pinned_max_register_threads",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "throw_on_cudamalloc_oom",
];

/// The key of a name or an alias.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
    KEYS.iter().find(|key| key.name == name)
}

/// The key that one of `PyTorch`'s variables sets by this name.
pub(super) fn find_in_pytorch(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.pytorch_name == Some(name))
}

/// Whether a key only concerns `PyTorch`'s own allocator.
pub(super) fn is_pytorch_only(name: &str) -> bool {
    PYTORCH_ONLY.contains(&name)
}

/// Every name that `GPUCACHE_CONF` gives a meaning to.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|key| key.name).chain(ALIASES.iter().map(|(alias, _)| *alias))
}

/// An environment variable that is a setting by itself.
pub(super) struct Variable {
    pub name: &'static str,
    pub accepted: &'static str,
    pub set: fn(&mut Conf, &str, Origin) -> Result<(), Refusal>,
}

pub(super) const VARIABLES: [Variable; 6] = [
    Variable {
        name: "GPUCACHE_REPORT",
        accepted: "off, stderr, or a file name in which %p, %h, %e, %t, %q{VAR} and %% stand for process id, host, \
                   executable, unix time, a variable and a percent sign",
        set: |conf, text, origin| {
            conf.report = origin.with(value::report_target(text)?);
            Ok(())
        },
    },
    Variable {
        name: "GPUCACHE_PROM",
        accepted: "a file name that ends with .prom, in which %p, %h, %e, %t, %q{VAR} and %% stand for process id, host, \
                   executable, unix time, a variable and a percent sign",
        set: |conf, text, origin| {
            conf.prom = origin.with(Some(value::prom_file(text)?));
            Ok(())
        },
    },
    Variable {
        name: "GPUCACHE_ALERT_FILE",
        accepted: "a file name in which %p, %h, %e, %t, %q{VAR} and %% stand for process id, host, executable, unix time, \
                   a variable and a percent sign",
        set: |conf, text, origin| {
            conf.alert_file = origin.with(Some(value::file(text)?));
            Ok(())
        },
    },
    Variable {
        name: "GPUCACHE_ALERT_COMMAND",
        accepted: "a command for /bin/sh, which finds what has happened in ALERT_TEXT and other variables",
        set: |conf, text, origin| {
            conf.alert_command = origin.with(Some(text.to_owned()));
            Ok(())
        },
    },
    Variable {
        name: "GPUCACHE_LOG",
        accepted: "off, error, warn, info, debug or trace",
        set: |conf, text, origin| {
            use LogLevel::{Debug, Error, Info, Off, Trace, Warn};
            let levels = [Off, Error, Warn, Info, Debug, Trace];
            let Some(level) = levels.into_iter().find(|level| level.as_str().eq_ignore_ascii_case(text))
            else {
                return Err(format!("`{text}` is none of these"));
            };
            conf.log = origin.with(level);
            Ok(())
        },
    },
    Variable {
        name: "GPUCACHE_DISABLE",
        accepted: "1 to disable, 0 or nothing not to",
        set: |conf, text, origin| {
            conf.disabled = origin.with(match text {
                "1" => true,
                "0" => false,
                _ => return Err(format!("`{text}` is neither")),
            });
            Ok(())
        },
    },
];
