//! Where the cap in force comes from: a setting, or who has changed it while the process ran. A report that names the wrong
//! one sends people to change what would change nothing.

use super::model::{DeviceReport, OomMoment, Setting};
use super::units::{human, printable};
use serde::{Deserialize, Serialize};

const MIB: u64 = 1 << 20;

/// Who has changed a cap while the process ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetBy {
    /// `gpucache ctl`.
    #[serde(rename = "ctl")]
    Ctl,
    /// The program, by `gpucache_set_limit`.
    #[serde(rename = "program")]
    Program,
    /// Somebody for whom this version has no word.
    #[serde(rename = "other", other)]
    Other,
}

impl SetBy {
    /// As a number: 0 is nobody.
    pub fn code(by: Option<SetBy>) -> u64 {
        match by {
            None => 0,
            Some(SetBy::Ctl) => 1,
            Some(SetBy::Program) => 2,
            Some(SetBy::Other) => 3,
        }
    }

    /// Back from a number.
    pub fn from_code(code: u64) -> Option<SetBy> {
        match code {
            0 => None,
            1 => Some(SetBy::Ctl),
            2 => Some(SetBy::Program),
            _ => Some(SetBy::Other),
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            SetBy::Ctl => "`gpucache ctl`",
            SetBy::Program => "the program (gpucache_set_limit)",
            SetBy::Other => "somebody, while the process ran",
        }
    }
}

/// What is behind the cap of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapFrom {
    /// The cap by `memory_fraction`, where that names the device; may be above the device's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_fraction_bytes: Option<u64>,
    /// The cap by `memory_limit`, where that names the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// Who has last changed the cap while the process ran; absent if nobody has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_by: Option<SetBy>,
}

impl CapFrom {
    /// The cap by the settings alone: the highest that it can be changed to.
    fn configured(&self, total: u64) -> u64 {
        let caps = [self.memory_fraction_bytes, self.memory_limit_bytes];
        caps.into_iter().flatten().fold(total, u64::min)
    }
}

/// A setting that gives a cap to a device.
struct Cap<'a> {
    setting: &'a Setting,
    bytes: u64,
}

impl Cap<'_> {
    fn name(&self) -> &str {
        self.setting.written_as.as_ref().unwrap_or(&self.setting.key)
    }

    fn in_words(&self) -> String {
        format!("{}:{} in {}", self.name(), self.setting.value, self.setting.source)
    }

    /// What to write instead, so that it allows so many MiB on a device.
    fn raised(&self, device: &DeviceReport, mib: u64) -> String {
        let name = self.name();
        if self.setting.value.starts_with('[') {
            return format!("{name}:[{}:{mib}MiB]", device.ordinal);
        }
        if self.setting.key != "memory_fraction" {
            return format!("{name}:{mib}MiB");
        }
        // Upwards, in steps that people write.
        let share = mib.saturating_mul(MIB) as f64 / device.total_bytes.max(1) as f64;
        format!("{name}:{}", ((share * 1e4).ceil() / 1e4).min(1.0))
    }
}

/// The settings that give a cap to this device, the lowest first. Where a report does not tell what each comes to, as those
/// of earlier versions: all that are set, as if each were what holds.
fn settings<'a>(device: &DeviceReport, config: &'a [Setting]) -> Vec<Cap<'a>> {
    let bytes = |told: fn(&CapFrom) -> Option<u64>| match &device.cap_from {
        Some(from) => told(from),
        None => Some(device.limit_bytes),
    };
    let cap = |key, told| Some(Cap { setting: Setting::that_is_set(config, key)?, bytes: bytes(told)? });
    let mut caps: Vec<Cap<'_>> = [
        cap("memory_fraction", |from| from.memory_fraction_bytes),
        cap("memory_limit", |from| from.memory_limit_bytes),
    ]
    .into_iter()
    .flatten()
    .collect();
    caps.sort_by_key(|cap| cap.bytes);
    caps
}

/// The cap by the settings alone.
fn configured(device: &DeviceReport) -> u64 {
    device.cap_from.map_or(device.limit_bytes, |from| from.configured(device.total_bytes))
}

/// Who has changed the cap that is in force, if not the settings.
fn setter(device: &DeviceReport) -> Option<SetBy> {
    device.cap_from?.set_by.filter(|_| device.limit_bytes < configured(device))
}

/// Where the cap in force comes from, in words; empty if from nowhere.
pub fn origin(device: &DeviceReport, config: &[Setting]) -> String {
    let caps = settings(device, config);
    let mut parts = Vec::new();
    if let Some(by) = setter(device) {
        parts.push(format!("set by {}", by.in_words()));
        parts.extend(caps.iter().map(|cap| format!("{} allows {}", cap.in_words(), human(cap.bytes))));
    } else {
        let lowest = caps.first().map_or(0, |cap| cap.bytes);
        let (decide, others): (Vec<_>, Vec<_>) = caps.iter().partition(|cap| cap.bytes == lowest);
        let decide: Vec<_> = decide.into_iter().map(Cap::in_words).collect();
        parts.extend((!decide.is_empty()).then(|| decide.join(", ")));
        parts.extend(others.iter().map(|cap| format!("{} allows {}", cap.in_words(), human(cap.bytes))));
    }
    printable(&parts.join("; "))
}

/// Who had set the cap that refused a request, if not the settings.
pub fn setter_then(device: &DeviceReport, oom: &OomMoment) -> Option<SetBy> {
    if oom.limit_bytes >= configured(device) {
        return None;
    }
    oom.circumstances.as_ref().and_then(|told| told.cap_set_by).or(device.cap_from?.set_by)
}

/// What has to be changed for a cap of so many MiB, where the caps that were too low had been set by these; `None` for the
/// settings.
pub fn to_raise(device: &DeviceReport, config: &[Setting], setters: &[Option<SetBy>], mib: u64) -> String {
    let mut parts: Vec<String> = Vec::new();
    let bytes = mib.saturating_mul(MIB);
    if bytes > configured(device) || setters.iter().all(Option::is_none) {
        let too_low = settings(device, config).into_iter().filter(|cap| cap.bytes < bytes);
        parts.extend(too_low.map(|cap| cap.raised(device, mib)));
        if parts.is_empty() {
            parts.push(format!("memory_limit:{mib}MiB"));
        }
    }
    if setters.contains(&Some(SetBy::Ctl)) {
        parts.push(format!("`gpucache ctl PID limit {mib}MiB`"));
    }
    if setters.contains(&Some(SetBy::Program)) {
        parts.push(format!("gpucache_set_limit of {mib} MiB in the program"));
    }
    if setters.contains(&Some(SetBy::Other)) {
        parts.push(format!("a cap of {mib} MiB where it was changed"));
    }
    parts.join(" and ")
}

/// The same in the words that follow a cap: `, set by …`; empty for the settings.
pub fn set_by_words(setter: Option<SetBy>) -> String {
    setter.map_or_else(String::new, |by| format!(", set by {}", by.in_words()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::failure::Circumstances;

    const GIB: u64 = 1 << 30;

    fn setting(key: &str, value: &str) -> Setting {
        Setting { key: key.into(), value: value.into(), source: "GPUCACHE_CONF".into(), written_as: None }
    }

    fn device(limit_bytes: u64, from: CapFrom) -> DeviceReport {
        DeviceReport {
            ordinal: 1,
            total_bytes: 80 * GIB,
            limit_bytes,
            cap_from: Some(from),
            ..DeviceReport::default()
        }
    }

    const BOTH: CapFrom =
        CapFrom { memory_fraction_bytes: Some(40 * GIB), memory_limit_bytes: Some(8 * GIB), set_by: None };

    fn both() -> [Setting; 2] {
        [setting("memory_fraction", "0.5"), setting("memory_limit", "8GiB")]
    }

    #[test]
    fn the_setting_that_decides_is_named_first_and_what_the_other_allows() {
        let text =
            "memory_limit:8GiB in GPUCACHE_CONF; memory_fraction:0.5 in GPUCACHE_CONF allows 40.00 GiB";
        assert_eq!(origin(&device(8 * GIB, BOTH), &both()), text);
    }

    #[test]
    fn a_list_that_does_not_name_the_device_is_no_cap() {
        let none = CapFrom::default();
        assert_eq!(origin(&device(80 * GIB, none), &[setting("memory_limit", "[0:8GiB]")]), "");
    }

    #[test]
    fn who_has_changed_the_cap_is_named_while_that_holds() {
        let by = |set_by, limit| device(limit, CapFrom { set_by: Some(set_by), ..BOTH });
        let text = origin(&by(SetBy::Ctl, GIB), &both());
        assert!(
            text.starts_with("set by `gpucache ctl`; memory_limit:8GiB in GPUCACHE_CONF allows 8.00 GiB; "),
            "{text}"
        );
        assert!(origin(&by(SetBy::Program, GIB), &[]).starts_with("set by the program (gpucache_set_limit)"));
        assert!(
            origin(&by(SetBy::Ctl, 8 * GIB), &both()).starts_with("memory_limit:8GiB"),
            "it was given back"
        );
    }

    #[test]
    fn what_is_to_be_raised_is_all_that_is_too_low_and_nothing_else() {
        let raise = |from, config: &[Setting], mib| to_raise(&device(GIB, from), config, &[None], mib);
        assert_eq!(raise(BOTH, &both(), 9 << 10), "memory_limit:9216MiB");
        assert_eq!(raise(BOTH, &both(), 41 << 10), "memory_limit:41984MiB and memory_fraction:0.5125");
        let one = CapFrom { memory_fraction_bytes: Some(8 * GIB), ..CapFrom::default() };
        assert_eq!(raise(one, &[setting("memory_fraction", "0.1")], 8200), "memory_fraction:0.1001");
        assert_eq!(raise(one, &[setting("memory_fraction", "[1:0.1]")], 8200), "memory_fraction:[1:8200MiB]");
        assert_eq!(raise(one, &[setting("memory_fraction", "0.1")], 80 << 10), "memory_fraction:1");
    }

    #[test]
    fn a_cap_that_was_set_is_raised_by_who_set_it() {
        let raise = |by, mib| to_raise(&device(GIB, BOTH), &both(), &[Some(by)], mib);
        assert_eq!(raise(SetBy::Ctl, 2048), "`gpucache ctl PID limit 2048MiB`");
        assert_eq!(raise(SetBy::Program, 2048), "gpucache_set_limit of 2048 MiB in the program");
        assert_eq!(raise(SetBy::Ctl, 9216), "memory_limit:9216MiB and `gpucache ctl PID limit 9216MiB`");
    }

    #[test]
    fn a_failure_knows_who_had_set_the_cap_then() {
        let now = device(GIB, CapFrom { set_by: Some(SetBy::Ctl), ..BOTH });
        let then = |limit_bytes, cap_set_by| OomMoment {
            limit_bytes,
            circumstances: Some(Circumstances { cap_set_by, ..Circumstances::default() }),
            ..OomMoment::default()
        };
        assert_eq!(setter_then(&now, &then(2 * GIB, Some(SetBy::Program))), Some(SetBy::Program));
        assert_eq!(setter_then(&now, &then(2 * GIB, None)), Some(SetBy::Ctl), "of a live file");
        assert_eq!(
            setter_then(&now, &then(8 * GIB, Some(SetBy::Program))),
            None,
            "it was the configured one"
        );
    }

    #[test]
    fn numbers_stand_for_who_it_was() {
        for by in [None, Some(SetBy::Ctl), Some(SetBy::Program), Some(SetBy::Other)] {
            assert_eq!(SetBy::from_code(SetBy::code(by)), by);
        }
    }
}
