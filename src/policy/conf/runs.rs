//! Which runs of the tool a process belongs to. `gpucache run --html` gives each run a number, which its processes inherit and
//! leave in their reports and live files: names of files alone would not tell two runs at once apart.

/// The variable that processes inherit it by: numbers in hexadecimal with dots in between, the innermost run last.
pub const RUN_VARIABLE: &str = "GPUCACHE_RUN";
/// Runs within runs that are told apart: as many as a live file has room for.
pub const MOST_RUNS: usize = 5;

/// The runs in a value of the variable. It is no setting, and nobody's mistake: what is no number is passed over.
pub fn runs(text: &str) -> Vec<u64> {
    let mut all: Vec<u64> = text.split('.').filter_map(|part| u64::from_str_radix(part, 16).ok()).collect();
    all.drain(..all.len().saturating_sub(MOST_RUNS));
    all
}

/// The value for a run within those of `outer`.
pub fn within(outer: &str, run: u64) -> String {
    let mut all = runs(outer);
    all.push(run);
    all.iter().map(|run| run_name(*run)).collect::<Vec<_>>().join(".")
}

/// A run as it is written.
pub fn run_name(run: u64) -> String {
    format!("{run:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_within_runs_are_kept_the_innermost_last() {
        assert_eq!(runs(&within("", 0x1f)), [0x1f]);
        assert_eq!(runs(&within("1f.a0", 2)), [0x1f, 0xa0, 2]);
        assert_eq!(runs("1.2.3.4.5.6.7"), [3, 4, 5, 6, 7]);
        assert_eq!(runs("no number.7"), [7]);
        assert!(runs("").is_empty());
    }
}
