//! A report: whether memory went past the pool, and whether something was there that the library did not know.

use super::Check;
use crate::report::Report;
use crate::report::units::{counted, human};

/// What the report says about escapes.
pub fn checks(report: &Report) -> Vec<Check> {
    let mut checks = Vec::new();
    for device in &report.devices {
        let counts = &device.counts;
        if counts.forwarded > 0 {
            checks.push(Check::warning(
                "escapes",
                format!(
                    "GPU {}: {} went to the driver past the pool",
                    device.ordinal,
                    counted(counts.forwarded, "call")
                ),
                "the notes say why; such memory is correct, but neither cached nor under the cap",
            ));
        }
        if counts.invalid_free > 0 {
            checks.push(Check::warning(
                "escapes",
                format!("GPU {}: {} of memory that was not allocated", device.ordinal, counted(counts.invalid_free, "free")),
                "the program frees twice, or what it has from elsewhere; the driver would have refused it too",
            ));
        }
        for (kind, gauge) in device.external_by_kind.iter().filter(|(_, gauge)| gauge.peak > 0) {
            checks.push(Check::ok(
                "outside pool",
                format!(
                    "GPU {}: {kind}, at most {}: counted and under the cap, not cached",
                    device.ordinal,
                    human(gauge.peak)
                ),
            ));
        }
    }
    for note in &report.notes {
        checks.push(Check::warning("note", note.clone(), ""));
    }
    if !checks.iter().any(|check| check.verdict != super::Verdict::Ok) {
        checks.push(Check::ok("escapes", format!("none in the report of process {}", report.process.pid)));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use crate::report::sample;

    #[test]
    fn forwarded_calls_and_notes_are_escapes() {
        let warnings =
            |report: &Report| checks(report).iter().filter(|c| c.verdict == Verdict::Warning).count();
        assert_eq!(warnings(&sample::failure()), 3, "forwarded, invalid frees, a note");
        assert_eq!(warnings(&sample::training()), 0);
        assert!(checks(&sample::training()).last().unwrap().finding.contains("none"));
    }
}
