//! The library's variables in this environment: what a program started from here would run on, or fail for.

use super::{Check, Verdict};
use crate::policy::Conf;
use crate::policy::conf::ReportTarget;
use crate::report::Template;
use std::ffi::OsString;
use std::path::Path;

/// What the library's own parser says, and whether files can be made where they are to be. Nothing where nothing is set.
pub fn checks(get: impl Fn(&str) -> Option<OsString>) -> Vec<Check> {
    let parsed = Conf::from_env(&get);
    if parsed.conf.is_disabled() {
        let finding = "GPUCACHE_DISABLE is set: the library would do nothing";
        return vec![Check::warning("environment", finding, "unset GPUCACHE_DISABLE")];
    }
    let mut checks: Vec<Check> = Vec::new();
    for error in parsed.errors {
        checks.push(Check::fail(
            "environment",
            error,
            "the first CUDA call of every program would fail for this; write it as accepted, or unset it",
        ));
    }
    checks.extend(parsed.warnings.into_iter().map(|warning| Check::warning("environment", warning, "")));
    let report = match parsed.conf.report() {
        ReportTarget::File(template) => Some(template),
        ReportTarget::Off | ReportTarget::Stderr => None,
    };
    for (variable, template) in [
        ("GPUCACHE_REPORT", report),
        ("GPUCACHE_PROM", parsed.conf.prom()),
        ("GPUCACHE_ALERT_FILE", parsed.conf.alert_file()),
    ] {
        checks.extend(template.and_then(|template| folder(variable, template)));
    }
    let set = ["GPUCACHE_CONF", "GPUCACHE_REPORT", "GPUCACHE_PROM", "GPUCACHE_ALERT_FILE", "GPUCACHE_LOG"];
    let set: Vec<_> = set.into_iter().filter(|name| get(name).is_some_and(|text| !text.is_empty())).collect();
    if !set.is_empty() && checks.iter().all(|check| check.verdict != Verdict::Fail) {
        checks.push(Check::ok("environment", format!("the library takes {}", set.join(", "))));
    }
    checks
}

/// A folder that is not there, unless its name is known only later.
fn folder(variable: &str, template: &Template) -> Option<Check> {
    let shown = template.to_string();
    let folder = Path::new(&shown).parent().filter(|folder| !folder.as_os_str().is_empty())?;
    if folder.to_string_lossy().contains('%') || folder.is_dir() {
        return None;
    }
    Some(Check::fail(
        "environment",
        format!("{variable}={shown}: there is no folder {}", folder.display()),
        "make it before the program starts; the library makes none",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(variable: &str, value: &str) -> Vec<Verdict> {
        let found = checks(|name| (name == variable).then(|| value.into()));
        found.iter().map(|check| check.verdict).collect()
    }

    #[test]
    fn what_the_library_would_refuse_fails() {
        for (variable, value, verdict) in [
            ("GPUCACHE_CONF", "foo", Verdict::Fail),
            ("GPUCACHE_CONF", "memory_limit:8GB", Verdict::Fail),
            ("GPUCACHE_REPORT", "%x", Verdict::Fail),
            ("GPUCACHE_REPORT", "/no/such/r.json", Verdict::Fail),
            ("GPUCACHE_PROM", "/no/such/r.prom", Verdict::Fail),
            ("GPUCACHE_ALERT_FILE", "/no/such/alerts", Verdict::Fail),
            ("GPUCACHE_DISABLE", "1", Verdict::Warning),
            ("GPUCACHE_CONF", "memory_limit:8GiB", Verdict::Ok),
            ("GPUCACHE_REPORT", "r-%p.json", Verdict::Ok),
            ("GPUCACHE_REPORT", "/no/such/%p/r.json", Verdict::Ok),
            ("GPUCACHE_REPORT", "off", Verdict::Ok),
        ] {
            assert_eq!(verdicts(variable, value), [verdict], "{variable}={value}");
        }
        assert_eq!(verdicts("HOME", "/root"), [], "nothing is set");
    }
}
