//! Lengths of bars, in thousandths of the width: what is held of a device against its cap.

use crate::report::units::human;

/// A part of a stacked bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Its colour, by the name of a style.
    pub class: &'static str,
    pub name: &'static str,
    pub x: f64,
    pub width: f64,
    pub bytes: u64,
    pub shown: String,
}

/// A stacked bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    pub label: String,
    /// From left to right; none is empty.
    pub parts: Vec<Part>,
    /// All of them.
    pub total: String,
    /// Where the cap is, unless it lies beyond the right end.
    pub cap: Option<f64>,
}

/// A value as a share of the longest, in thousandths.
pub fn share(value: f64, longest: f64) -> f64 {
    if longest > 0.0 { (1000.0 * value / longest).clamp(0.0, 1000.0) } else { 0.0 }
}

/// The bytes that the whole width stands for: the cap, unless what is to be shown is so far below it that one would see
/// nothing, or above it.
pub fn width_of(most: u64, cap: u64) -> u64 {
    let most = most.max(1);
    if most.saturating_mul(8) < cap { most + most / 8 } else { cap.max(most) + cap.max(most) / 50 }
}

/// A bar of the given parts: class, name, bytes.
pub fn bar(label: &str, parts: &[(&'static str, &'static str, u64)], width: u64, cap: u64) -> Bar {
    let mut x = 0.0;
    let mut drawn = Vec::new();
    for &(class, name, bytes) in parts.iter().filter(|(_, _, bytes)| *bytes > 0) {
        let width = share(bytes as f64, width as f64);
        drawn.push(Part { class, name, x, width, bytes, shown: human(bytes) });
        x += width;
    }
    let total = parts.iter().map(|(_, _, bytes)| bytes).sum();
    let cap = (cap <= width).then(|| share(cap as f64, width as f64));
    Bar { label: label.to_owned(), parts: drawn, total: human(total), cap }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_and_fit() {
        let bar = bar("x", &[("a", "A", 25), ("b", "B", 0), ("c", "C", 50)], 100, 90);
        let places: Vec<_> = bar.parts.iter().map(|part| (part.name, part.x, part.width)).collect();
        assert_eq!(places, [("A", 0.0, 250.0), ("C", 250.0, 500.0)]);
        assert_eq!((bar.total.as_str(), bar.cap), ("75 B", Some(900.0)));
    }

    #[test]
    fn the_cap_is_the_width_unless_it_is_far_off() {
        assert_eq!(width_of(50, 100), 102);
        assert_eq!(width_of(200, 100), 204);
        assert_eq!(width_of(8, 1000), 9);
        assert_eq!(bar("x", &[], 9, 1000).cap, None);
        assert!(width_of(0, 0) > 0);
    }

    #[test]
    fn shares_never_leave_the_bar() {
        assert_eq!((share(5.0, 0.0), share(5.0, 1.0), share(-1.0, 1.0)), (0.0, 1000.0, 0.0));
    }
}
