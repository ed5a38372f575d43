//! Figures as people read them: bytes in binary units, counts with thousands separators, lists of words.

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Bytes in the largest binary unit that keeps the figure at or above one, with two decimals: `8.25 GiB`. Below 1 KiB
/// the figure is exact: `512 B`.
///
/// ```
/// assert_eq!(gpucache::report::units::human(8_858_370_048), "8.25 GiB");
/// ```
pub fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = 0;
    // 1023.995 and above would print as 1024.00: the next unit says the same thing better.
    while value >= 1023.995 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2} {}", UNITS[unit])
}

/// A count with a comma between groups of three digits: `29,850`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A count and its noun: `1 block`, `2,048 blocks`.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// A duration with two units at most: `0.8 s`, `2 min 5 s`, `3 h 12 min`.
pub fn duration(seconds: f64) -> String {
    // A clock that ran backwards, or none, is no time.
    let seconds = if seconds.is_finite() { seconds.max(0.0) } else { 0.0 };
    let whole = seconds.round() as u64;
    if whole < 60 {
        format!("{seconds:.1} s")
    } else if whole < 3600 {
        format!("{} min {} s", whole / 60, whole % 60)
    } else {
        format!("{} h {} min", whole / 3600, whole % 3600 / 60)
    }
}

/// Nanoseconds as microseconds with one decimal: `38.0 µs`.
pub fn microseconds(nanoseconds: u64) -> String {
    format!("{:.1} µs", nanoseconds as f64 / 1000.0)
}

/// The text with control characters as spaces: what a user's command line or environment holds must neither break a line
/// of output, nor drive the terminal, nor turn round in which direction what follows is read.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_directional(c) { ' ' } else { c }).collect()
}

/// Whether a character is one of those that only set the direction of the text around them.
fn is_directional(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_the_largest_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1536, "1.50 KiB"),
            (20 << 20, "20.00 MiB"),
            ((1 << 30) - 1, "1.00 GiB"),
            (8 << 30, "8.00 GiB"),
            (3 << 40, "3.00 TiB"),
            (u64::MAX, "16.00 EiB"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn counts_are_grouped_by_thousands() {
        for (count, text) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (29_850, "29,850"), (1_234_567, "1,234,567")]
        {
            assert_eq!(grouped(count), text);
        }
    }

    #[test]
    fn durations_take_two_units_at_most() {
        for (seconds, text) in [
            (-1.0, "0.0 s"),
            (f64::NAN, "0.0 s"),
            (0.83, "0.8 s"),
            (59.4, "59.4 s"),
            (59.6, "1 min 0 s"),
            (125.4, "2 min 5 s"),
            (3600.0, "1 h 0 min"),
            (11_520.0, "3 h 12 min"),
        ] {
            assert_eq!(duration(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn nothing_drives_the_terminal_or_turns_the_text_round() {
        assert_eq!(printable("a\u{1b}[31m\nb"), "a [31m b");
        assert_eq!(printable("train\u{202e}nosj.\u{2066}x\u{200f}\u{61c}"), "train nosj. x  ");
        assert_eq!(printable("עברית, é, 日本"), "עברית, é, 日本", "letters stay");
    }

    #[test]
    fn nouns_agree_with_their_count() {
        assert_eq!(counted(1, "block"), "1 block");
        assert_eq!(counted(0, "block"), "0 blocks");
        assert_eq!(counted(2048, "block"), "2,048 blocks");
    }
}
