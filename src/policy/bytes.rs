//! Sizes as people write them in a configuration. Only forms with one possible meaning are taken: `8GB` could be a
//! decimal or a binary gigabyte, and a cap must not depend on a guess.

use std::fmt;

pub use crate::report::units::human;

/// What [`parse`] takes, for messages.
pub const ACCEPTED: &str = "whole bytes (8589934592) or a whole number of KiB, MiB, GiB or TiB (8GiB)";

/// A size that was not understood: says the value and the accepted form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BytesError {
    value: String,
    reason: &'static str,
}

impl fmt::Display for BytesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; accepted: {ACCEPTED}", self.fault())
    }
}

impl std::error::Error for BytesError {}

impl BytesError {
    /// The value and what is wrong with it, for a caller that says the accepted form itself.
    pub fn fault(&self) -> String {
        format!("`{}` {}", self.value, self.reason)
    }
}

/// Bytes for `8GiB`, `8192MiB`, `512KiB`, `1TiB` or plain digits.
///
/// ```
/// use gpucache::policy::bytes::parse;
/// assert_eq!(parse("8GiB"), Ok(8_589_934_592));
/// assert!(parse("8GB").unwrap_err().to_string().contains("8GiB"));
/// ```
///
/// # Errors
/// Anything else: another unit or none of these spellings, a sign, a fraction, an exponent, nothing at all, or more than
/// 64 bits hold.
pub fn parse(text: &str) -> Result<u64, BytesError> {
    let fail = |reason| Err(BytesError { value: text.to_owned(), reason });
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if text.is_empty() {
        return fail("is empty");
    }
    if number.is_empty() {
        return fail("does not start with a digit");
    }
    let shift = match unit {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ if unit.starts_with('.') => return fail("is not a whole number"),
        _ => return fail("has a unit that is not known"),
    };
    match number.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift)) {
        Some(bytes) => Ok(bytes),
        None => fail("is too large"),
    }
}

/// The shortest form that [`parse`] reads back as exactly `bytes`: `8GiB`, or plain digits.
pub fn exact(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_accepted_form_has_its_value() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("0GiB", 0),
            ("4KiB", 4096),
            ("8192MiB", 8 << 30),
            ("8GiB", 8 << 30),
            ("2TiB", 2 << 40),
            ("18446744073709551615", u64::MAX),
            ("16777215TiB", 16_777_215 << 40),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn every_other_form_is_an_error_that_shows_the_value_and_the_accepted_form() {
        for text in [
            "",
            "1e9",
            "8GB",
            "8gib",
            "8G",
            "0m",
            "-1",
            "+1",
            "1.5GiB",
            ".5",
            "GiB",
            " 8GiB",
            "8 GiB",
            "0x10",
            "18446744073709551616",
            "16777216TiB",
            "99999999999999999999GiB",
            "8GiB8",
            "٣",
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(&format!("`{text}`")) && message.contains(ACCEPTED), "{message}");
        }
    }

    proptest! {
        #[test]
        fn the_exact_form_reads_back(bits in 0_u32..64, n in any::<u64>(), shift in 0_u32..50) {
            let bytes = (n >> bits) << shift;
            prop_assert_eq!(parse(&exact(bytes)), Ok(bytes));
        }

        #[test]
        fn nothing_panics(text in "\\PC{0,12}") {
            let _ = parse(&text);
        }
    }
}
