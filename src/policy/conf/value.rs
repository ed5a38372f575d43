//! Values of the settings: from the words of the grammar to numbers, each with the one form that it accepts.

use super::ReportTarget;
use crate::policy::alarms::{Alarm, MOST_MINUTES, Subject};
use crate::policy::bytes;
use crate::policy::grammar::Value;
use crate::policy::round::{Interval, Rounding};
use crate::report::template::Template;

/// A cap as written: a share of the device's memory or a number of bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cap {
    /// From 0 to 1.
    Fraction(f64),
    /// Bytes.
    Bytes(u64),
}

/// A cap for all devices, or one each for some.
#[derive(Debug, Clone, PartialEq)]
pub enum Caps {
    /// The same for every device.
    All(Cap),
    /// By CUDA ordinal; devices that are not named have none.
    PerDevice(Vec<(u32, Cap)>),
}

impl Caps {
    /// The cap that is given to one device, if any is.
    pub fn for_device(&self, device: u32) -> Option<Cap> {
        match self {
            Self::All(cap) => Some(*cap),
            Self::PerDevice(list) => list.iter().find(|(ordinal, _)| *ordinal == device).map(|(_, cap)| *cap),
        }
    }
}

/// Why a value is not accepted: the faulty part and what is wrong with it. The caller adds the accepted form.
pub(super) type Refusal = String;

fn word(value: &Value) -> Result<&str, Refusal> {
    match value {
        Value::Word(word) => Ok(word),
        Value::List(_) => Err("a list has no meaning here".to_owned()),
    }
}

/// A decimal number without sign; exponents are taken because Python prints small fractions with one.
fn number(text: &str) -> Result<f64, Refusal> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b".eE-".contains(&b));
    match text.parse() {
        Ok(_) if plain && text.starts_with('-') => Err(format!("`{text}` is negative")),
        Ok(number) if plain => Ok(number),
        _ => Err(format!("`{text}` is not a number")),
    }
}

/// The share that a percentage stands for: `0.8` for `80%`.
fn percentage(text: &str) -> Option<f64> {
    let percent = number(text.strip_suffix('%')?).ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

fn whole(text: &str) -> Option<u64> {
    // `parse` alone would take a leading plus.
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

pub(super) fn fraction(text: &str) -> Result<Cap, Refusal> {
    if let Some(share) = percentage(text) {
        return Err(format!("`{text}` is a percentage; write {share}"));
    }
    if text.ends_with(|c: char| c.is_ascii_alphabetic()) && bytes::parse(text).is_ok() {
        return Err(format!("`{text}` is a size and not a share of the device; write memory_limit:{text}"));
    }
    match number(text)? {
        n if (0.0..=1.0).contains(&n) => Ok(Cap::Fraction(n)),
        _ => Err(format!("`{text}` is not between 0 and 1")),
    }
}

/// The least cap, but for 0: a page of the driver, below which nothing can be allocated. Whoever writes less has left
/// the unit out.
const LEAST_LIMIT: u64 = 2 << 20;
/// Up to here a number without a unit is taken for one of GiB or MiB in what a message proposes.
const MOST_PROPOSED: u64 = 1 << 20;

pub(super) fn size(text: &str) -> Result<Cap, Refusal> {
    let share = percentage(text).or_else(|| {
        let share = number(text).ok()?;
        (share > 0.0 && share <= 1.0 && whole(text).is_none()).then_some(share)
    });
    if let Some(share) = share {
        return Err(format!(
            "`{text}` is a share of the device and not a size; write memory_fraction:{share}"
        ));
    }
    match bytes::parse(text).map_err(|error| error.fault())? {
        few if (1..LEAST_LIMIT).contains(&few) => {
            let least = bytes::exact(LEAST_LIMIT);
            let proposed = match whole(text) {
                // Not what would be refused in turn.
                Some(n) if n << 20 < LEAST_LIMIT => format!("; write {n}GiB if that is meant"),
                Some(n) if n <= MOST_PROPOSED => format!("; write {n}GiB or {n}MiB if that is meant"),
                _ => String::new(),
            };
            Err(format!(
                "`{text}` means {}, and less than {least} admits nothing{proposed}",
                bytes::human(few)
            ))
        }
        bytes => Ok(Cap::Bytes(bytes)),
    }
}

/// One cap for all devices in the key's own form, or a list in which each device may have either form: what has a unit is
/// a size, what has a decimal point is a fraction, and a bare whole number is whatever the key stands for.
pub(super) fn caps(value: &Value, own_form: fn(&str) -> Result<Cap, Refusal>) -> Result<Caps, Refusal> {
    let list = match value {
        Value::Word(word) => return own_form(word).map(Caps::All),
        Value::List(list) => list,
    };
    let mut caps: Vec<(u32, Cap)> = Vec::with_capacity(list.len());
    for (device, text) in list {
        let ordinal = whole(device).and_then(|n| u32::try_from(n).ok());
        let ordinal = ordinal.ok_or_else(|| format!("`{device}` is not the number of a device"))?;
        if caps.iter().any(|(earlier, _)| *earlier == ordinal) {
            return Err(format!("device {ordinal} is named twice"));
        }
        let form = if text.ends_with(|c: char| c.is_ascii_alphabetic()) {
            size
        } else if text.contains(['.', '%']) {
            fraction
        } else {
            own_form
        };
        caps.push((ordinal, form(text)?));
    }
    Ok(Caps::PerDevice(caps))
}

pub(super) fn open_unit_interval(value: &Value) -> Result<f64, Refusal> {
    let text = word(value)?;
    match number(text)? {
        n if n > 0.0 && n < 1.0 => Ok(n),
        _ => Err(format!("`{text}` is not above 0 and below 1")),
    }
}

/// Whole MiB from 20 on, in bytes: smaller ones would forbid splitting the pool's ordinary regions.
pub(super) fn split_mib(value: &Value) -> Result<u64, Refusal> {
    let text = word(value)?;
    match whole(text) {
        Some(mib) if mib >= 20 => Ok(mib.saturating_mul(1 << 20)),
        Some(_) => Err(format!("`{text}` is below 20")),
        None => Err(format!("`{text}` is not a whole number")),
    }
}

pub(super) fn truth(value: &Value) -> Result<bool, Refusal> {
    match word(value)? {
        "True" => Ok(true),
        "False" => Ok(false),
        other => Err(format!("`{other}` is neither")),
    }
}

/// Bytes between two samples where nobody says how many. A sample costs some 5 to 15 microseconds, and of the allocations of
/// the training jobs in `benches/traces` 2 to 6 per cent are one: a hundredth of a step's time at most. What is live is
/// known to a tenth where it is 13 GiB.
const SAMPLE_INTERVAL: u64 = 128 << 20;

/// `True`, `False`, or bytes from one sample to the next.
pub(super) fn interval(value: &Value) -> Result<Option<u64>, Refusal> {
    match word(value)? {
        "True" => Ok(Some(SAMPLE_INTERVAL)),
        "False" => Ok(None),
        text => match bytes::parse(text).map_err(|error| error.fault())? {
            0 => Err("`0` is neither an interval nor False".to_owned()),
            few if (2..4096).contains(&few) => Err(format!(
                "`{text}` means {few} B; write {few}MiB if that is meant, or 1 for every allocation"
            )),
            bytes => Ok(Some(bytes)),
        },
    }
}

/// Words that are more likely meant as an answer than as the name of a file.
const NO_FILE_NAMES: [&str; 18] = [
    "0", "1", "2", "-", "none", "no", "yes", "on", "true", "false", "null", "disable", "disabled", "stdout",
    "text", "txt", "json", "html",
];

pub(super) fn report_target(text: &str) -> Result<ReportTarget, Refusal> {
    let is = |word: &&str| text.eq_ignore_ascii_case(word);
    if is(&"off") {
        return Ok(ReportTarget::Off);
    }
    if is(&"stderr") {
        return Ok(ReportTarget::Stderr);
    }
    file(text).map(ReportTarget::File)
}

pub(super) fn file(text: &str) -> Result<Template, Refusal> {
    if NO_FILE_NAMES.iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return Err(format!("`{text}` is not taken for the name of a file; write ./{text} if it is one"));
    }
    if text.ends_with('/') {
        return Err(format!("`{text}` names a folder and no file"));
    }
    Template::parse(text).map_err(|error| error.fault())
}

/// Alarms at most.
const MOST_ALARMS: usize = 16;

pub(super) fn alarms(value: &Value) -> Result<Vec<Alarm>, Refusal> {
    let Value::List(list) = value else { return Err("a list is needed".to_owned()) };
    if list.len() > MOST_ALARMS {
        return Err(format!("{} are too many", list.len()));
    }
    list.iter().map(|(name, threshold)| alarm(name, threshold)).collect()
}

/// The least size in plain bytes that an alarm is taken to mean, but for 0: whoever writes less has left the unit out, or
/// means per cent.
const LEAST_BARE_THRESHOLD: u64 = 1 << 20;

fn alarm(name: &str, threshold: &str) -> Result<Alarm, Refusal> {
    let share = || match number(threshold)? {
        share if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err(format!("`{threshold}` is not above 0 and below 1")),
    };
    let bytes = || match bytes::parse(threshold).map_err(|error| error.fault())? {
        few if (1..LEAST_BARE_THRESHOLD).contains(&few) && whole(threshold).is_some() => {
            let percent = match (name, few) {
                ("growth", _) | (_, 1 | 100..) => String::new(),
                _ => format!(", or {} for that part of the cap", few as f64 / 100.0),
            };
            Err(format!("`{few}` means {few} B; write {few}GiB or {few}MiB if that is meant{percent}"))
        }
        bytes => Ok(bytes),
    };
    // `1.5GiB` is a size, too.
    let is_share = threshold.contains('.') && !threshold.ends_with(|c: char| c.is_ascii_alphabetic());
    let held = |subject| {
        if is_share {
            share().map(|share| Alarm::Share(subject, share))
        } else {
            bytes().map(|bytes| Alarm::Bytes(subject, bytes))
        }
    };
    match name {
        "allocated" => held(Subject::Allocated),
        "reserved" => held(Subject::Reserved),
        "held" => held(Subject::Held),
        "fragmentation" => Ok(Alarm::Fragmentation(share()?)),
        "growth" => Ok(Alarm::Growth(bytes()?)),
        "leak" => match whole(threshold) {
            Some(minutes) if (3..=MOST_MINUTES as u64).contains(&minutes) => {
                Ok(Alarm::Leak(minutes as usize))
            }
            _ => Err(format!("`{threshold}` is not a number of minutes from 3 to {MOST_MINUTES}")),
        },
        _ => Err(format!("`{name}` is no alarm")),
    }
}

/// Events of a history: fewer would tell nothing, more would make a report that nothing opens.
const EVENTS: std::ops::RangeInclusive<u64> = 64..=1 << 18;

pub(super) fn events(value: &Value) -> Result<usize, Refusal> {
    let text = word(value)?;
    match whole(text) {
        Some(0) => Ok(0),
        Some(events) if EVENTS.contains(&events) => Ok(events as usize),
        Some(_) => Err(format!("`{text}` is not from {} to {}", EVENTS.start(), EVENTS.end())),
        None => Err(format!("`{text}` is not a whole number")),
    }
}

pub(super) fn bytes_of(value: &Value) -> Result<u64, Refusal> {
    bytes::parse(word(value)?).map_err(|error| error.fault())
}

/// The collector reads no file of another name.
pub(super) fn prom_file(text: &str) -> Result<Template, Refusal> {
    // In this case of letters only.
    if text.strip_suffix(".prom").is_none() {
        return Err(format!("`{text}` does not end with .prom, and the collector would not read it"));
    }
    Template::parse(text).map_err(|error| error.fault())
}

pub(super) fn rounding(value: &Value) -> Result<Rounding, Refusal> {
    let list = match value {
        Value::Word(text) => {
            return match whole(text) {
                Some(n) if n.is_power_of_two() => Ok(Rounding::uniform(n)),
                _ => Err(format!("`{text}` is not a power of two")),
            };
        }
        Value::List(list) => list,
    };
    let mut pairs = Vec::with_capacity(list.len());
    for (interval, divisions) in list {
        let from = match interval.as_str() {
            ">" => Interval::Rest,
            text => match whole(text) {
                Some(mib) if mib.is_power_of_two() => Interval::From(mib),
                _ => return Err(format!("`{text}` is neither a power of two nor `>`")),
            },
        };
        match whole(divisions) {
            Some(n) if n == 0 || n.is_power_of_two() => pairs.push((from, n)),
            _ => return Err(format!("`{divisions}` is neither a power of two nor 0")),
        }
    }
    Ok(Rounding::from_intervals(pairs))
}
