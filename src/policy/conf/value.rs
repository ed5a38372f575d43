//! Values of the settings: from the words of the grammar to numbers, each with the one form that it accepts.

use crate::policy::bytes;
use crate::policy::grammar::Value;
use crate::policy::round::{Interval, Rounding};

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
fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b".eE-".contains(&b)) && !text.starts_with('-');
    text.parse().ok().filter(|_| plain)
}

fn whole(text: &str) -> Option<u64> {
    // `parse` alone would take a leading plus.
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

pub(super) fn fraction(text: &str) -> Result<Cap, Refusal> {
    match number(text) {
        Some(n) if (0.0..=1.0).contains(&n) => Ok(Cap::Fraction(n)),
        Some(_) => Err(format!("`{text}` is not between 0 and 1")),
        None => Err(format!("`{text}` is not a number")),
    }
}

pub(super) fn size(text: &str) -> Result<Cap, Refusal> {
    bytes::parse(text).map(Cap::Bytes).map_err(|error| error.fault())
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
        } else if text.contains('.') {
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
    match number(text) {
        Some(n) if n > 0.0 && n < 1.0 => Ok(n),
        Some(_) => Err(format!("`{text}` is not above 0 and below 1")),
        None => Err(format!("`{text}` is not a number")),
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
