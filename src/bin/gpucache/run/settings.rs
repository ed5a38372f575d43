//! From options and environment to the variables that the library reads. Every value is put to the library's own parser, so
//! what it would refuse when the program makes its first CUDA call is refused here, by the name of the option.

use crate::args::Run;
use crate::failure::Failure;
use crate::output;
use crate::policy::conf::{CONF_VARIABLE, canonical_key};
use crate::policy::grammar::{self, Entry};
use crate::policy::{Conf, ReportTarget};
use crate::report::units::printable;
use std::ffi::{OsStr, OsString};
use std::path::{Path, absolute};

const REPORT: &str = "GPUCACHE_REPORT";
const LOG: &str = "GPUCACHE_LOG";
const DISABLE: &str = "GPUCACHE_DISABLE";

/// What the program gets.
pub struct Settings {
    /// Variables to set; those that stay as they are are not among them.
    pub variables: Vec<(&'static str, OsString)>,
    /// Template of the report files; none if no file will be written.
    pub reports: Option<String>,
    /// What the user should know.
    pub remarks: Vec<String>,
}

/// An entry of the configuration and the option that it was given by, as the user wrote it.
struct Given {
    option: String,
    entry: Entry,
    key: Option<&'static str>,
}

/// The settings of a run. `beside` is where the JSON goes if nothing else says so.
pub fn compose(
    args: &Run,
    beside: Option<OsString>,
    get: impl Fn(&str) -> Option<OsString>,
) -> Result<Settings, Failure> {
    let mut variables = Vec::new();
    let mut remarks = Vec::new();
    let given = given(args)?;
    if !given.is_empty() {
        let existing = get(CONF_VARIABLE).unwrap_or_default();
        variables.push((CONF_VARIABLE, joined(&given, &existing, &mut remarks)?.into()));
    }
    if let Some(level) = &args.log {
        check_alone(LOG, level.as_ref(), "--log")?;
        variables.push((LOG, level.into()));
    }
    if let Some(target) = &args.report {
        check_alone(REPORT, target, "--report")?;
        if let Some(page) = args.html.as_ref().filter(|_| !is_file(target)) {
            return Err(Failure::new(format!(
                "--report {} and --html {}: a page is made of the report's JSON, which would be in no file; leave one out",
                target.display(),
                page.display()
            )));
        }
        variables.push((REPORT, in_this_folder(target, "--report")?));
    } else if let Some(beside) = beside
        && get(REPORT).is_none_or(|value| !is_file(&value))
    {
        variables.push((REPORT, beside));
    }
    let value = |name: &str| {
        let set = variables.iter().find(|(variable, _)| *variable == name);
        set.map(|(_, value)| value.clone()).or_else(|| get(name))
    };
    let parsed = Conf::from_env(value);
    if parsed.conf.is_disabled() {
        remarks.push(format!("warning: {DISABLE}=1 is in the environment: the library will do nothing"));
    } else if !parsed.errors.is_empty() {
        // Options have been checked one by one: what is left was there before.
        let lines: Vec<_> =
            parsed.errors.iter().map(|error| format!("in the environment: {error}")).collect();
        return Err(Failure::new(lines.join("\n")));
    }
    let reports = value(REPORT).and_then(|value| value.into_string().ok());
    let reports = reports.filter(|value| is_file(value.as_ref()));
    Ok(Settings { variables, reports, remarks })
}

/// Everything that options say about `GPUCACHE_CONF`, each checked by itself.
fn given(args: &Run) -> Result<Vec<Given>, Failure> {
    let mut given: Vec<Given> = Vec::new();
    let caps = [("--limit", "memory_limit", &args.limit), ("--fraction", "memory_fraction", &args.fraction)];
    let caps = caps.into_iter().filter_map(|(option, key, value)| {
        value.as_ref().map(|value| (format!("{option} {value}"), format!("{key}:{value}"), true))
    });
    let others = args.conf.iter().map(|text| (format!("--conf {text}"), text.clone(), false));
    for (option, text, single) in caps.chain(others) {
        for entry in checked(&option, &text, single)? {
            let key = canonical_key(&entry.key);
            if let Some(earlier) = given.iter().find(|earlier| key.is_some() && earlier.key == key) {
                let key = key.unwrap_or_default();
                let earlier = &earlier.option;
                return Err(Failure::new(format!("{earlier} and {option} both set {key}; give one of them")));
            }
            given.push(Given { option: option.clone(), entry, key });
        }
    }
    Ok(given)
}

/// The entries of one option's text, if the library takes them.
fn checked(option: &str, text: &str, single: bool) -> Result<Vec<Entry>, Failure> {
    let fail = |what: &str| Err(Failure::new(format!("{}: {what}", printable(option))));
    let (entries, _) = grammar::parse(text);
    let parsed = Conf::from_env(|name| (name == CONF_VARIABLE).then(|| text.to_owned()));
    if let Some(error) = parsed.errors.first() {
        let what = without(error, &format!("{CONF_VARIABLE}: "));
        // What stands in the option need not be said again.
        return fail(without(what, &format!("{text}: ")));
    }
    if entries.is_empty() || (single && entries.len() != 1) {
        return fail(if single { "one value is wanted" } else { "KEY:VALUE is wanted" });
    }
    // The library warns of a key that it does not know and goes on: the variable may be meant for a newer version. An
    // option has just been typed.
    if let Some(unknown) = parsed.warnings.iter().find(|warning| warning.contains("unknown key")) {
        return fail(without(unknown, &format!("{CONF_VARIABLE}: ")));
    }
    Ok(entries)
}

fn without<'a>(text: &'a str, prefix: &str) -> &'a str {
    text.strip_prefix(prefix).unwrap_or(text)
}

/// The value of `GPUCACHE_CONF`: what it holds already, less what an option sets too, and the options.
fn joined(given: &[Given], existing: &OsStr, remarks: &mut Vec<String>) -> Result<String, Failure> {
    let Some(existing) = existing.to_str() else {
        return Err(Failure::new(format!(
            "in the environment: {CONF_VARIABLE}: not valid UTF-8; accepted: text"
        )));
    };
    let (entries, faults) = grammar::parse(existing);
    if let Some(fault) = faults.first() {
        return Err(Failure::new(format!(
            "in the environment: {CONF_VARIABLE}: `{}`: {}; accepted: {}",
            fault.text,
            fault.reason,
            grammar::ACCEPTED
        )));
    }
    let mut kept = Vec::new();
    for entry in entries {
        let key = canonical_key(&entry.key);
        match given.iter().find(|given| key.is_some() && given.key == key) {
            Some(given) if given.entry.value == entry.value => {}
            Some(given) => {
                remarks.push(format!("{} takes the place of {entry} in {CONF_VARIABLE}", given.option));
            }
            None => kept.push(entry.to_string()),
        }
    }
    kept.extend(given.iter().map(|given| given.entry.to_string()));
    Ok(kept.join(","))
}

/// Puts the value of a variable that is a setting by itself to the library's parser.
fn check_alone(variable: &str, value: &OsStr, option: &str) -> Result<(), Failure> {
    let shown = value.to_string_lossy();
    if value.is_empty() {
        return Err(Failure::new(format!("{option}: a value is wanted")));
    }
    let parsed = Conf::from_env(|name| (name == variable).then(|| value.to_owned()));
    let Some(error) = parsed.errors.first() else { return Ok(()) };
    let what = without(without(error, &format!("{variable}: ")), &format!("{shown}: "));
    Err(Failure::new(format!("{option} {shown}: {what}")))
}

/// Whether the library takes a value of `GPUCACHE_REPORT` for a file's name, and not for one of its words (`off`,
/// `stderr`). What it refuses is no word either.
fn is_file(value: &OsStr) -> bool {
    let parsed = Conf::from_env(|name| (name == REPORT).then(|| value.to_owned()));
    !parsed.errors.is_empty() || matches!(parsed.conf.report(), ReportTarget::File(_))
}

/// The template from the root of the file system on, because the program may change its folder; the folder's own name is no
/// template. Says now if the folder is not there or takes no file, unless its name is known only later.
fn in_this_folder(target: &OsStr, option: &str) -> Result<OsString, Failure> {
    if option == "--report" && !is_file(target) {
        return Ok(target.to_owned());
    }
    let path = Path::new(target);
    let folder = path.parent().unwrap_or(path);
    let is_known = option == "--html" || !folder.to_string_lossy().contains('%');
    if is_known && !folder.as_os_str().is_empty() && !folder.is_dir() {
        return Err(Failure::new(format!(
            "{option} {}: there is no folder {}",
            path.display(),
            folder.display()
        )));
    }
    if path.is_dir() {
        return Err(Failure::new(format!("{option} {}: it is a folder; a file is wanted", path.display())));
    }
    if is_known && let Err(error) = output::can_write(path) {
        return Err(Failure::new(format!("{option} {}: it cannot be written: {error}", path.display())));
    }
    let folder = std::env::current_dir().unwrap_or_default();
    match (path.is_absolute(), folder.to_str(), target.to_str()) {
        (false, Some(folder), Some(target)) => Ok(format!("{}/{target}", folder.replace('%', "%%")).into()),
        _ => Ok(target.to_owned()),
    }
}

/// The template of the JSON files beside a page: `page-TOOL-PID.json`. The tool's own number is in it so that another run
/// for the same page, at the same time or still ending, is never taken for this one.
pub fn json_beside(page: &Path) -> Result<OsString, Failure> {
    in_this_folder(page.as_os_str(), "--html")?;
    let Some(stem) = page.file_stem() else {
        return Err(Failure::new(format!("--html {}: it names no file", page.display())));
    };
    let beside = absolute(page).unwrap_or_else(|_| page.to_owned()).with_file_name(stem);
    Ok(format!("{}-{}-%p.json", beside.to_string_lossy().replace('%', "%%"), std::process::id()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> Run {
        Run {
            limit: None,
            fraction: None,
            report: None,
            html: None,
            conf: vec![],
            log: None,
            place: crate::args::Place::default(),
            print: false,
            program: vec!["true".into()],
        }
    }

    fn conf(args: &Run, existing: &str) -> (String, Vec<String>) {
        let settings = compose(args, None, |name| (name == CONF_VARIABLE).then(|| existing.into())).unwrap();
        let value = settings.variables.into_iter().find(|(name, _)| *name == CONF_VARIABLE);
        (value.map(|(_, value)| value.into_string().unwrap()).unwrap_or_default(), settings.remarks)
    }

    fn error(args: &Run) -> String {
        compose(args, None, |_| None).err().unwrap().to_string()
    }

    #[test]
    fn options_join_what_is_there_and_win_over_the_same_key() {
        let args = Run { limit: Some("8GiB".into()), conf: vec!["free_sync:True".into()], ..args() };
        assert_eq!(conf(&args, "").0, "memory_limit:8GiB,free_sync:True");
        let (value, remarks) = conf(&args, "max_split_size_mb:128,memory_limit:[0:4GiB],");
        assert_eq!(value, "max_split_size_mb:128,memory_limit:8GiB,free_sync:True");
        assert_eq!(remarks, ["--limit 8GiB takes the place of memory_limit:[0:4GiB] in GPUCACHE_CONF"]);
        assert_eq!(conf(&args, "memory_limit:8GiB").1, [""; 0], "the same value is no conflict");
    }

    #[test]
    fn an_alias_is_the_same_key() {
        let args = Run { fraction: Some("0.5".into()), ..args() };
        let (value, remarks) = conf(&args, "per_process_memory_fraction:0.9");
        assert_eq!((value.as_str(), remarks.len()), ("memory_fraction:0.5", 1));
    }

    #[test]
    fn without_options_nothing_is_set() {
        assert_eq!(conf(&args(), "memory_limit:8GiB").0, "");
    }

    #[test]
    fn a_wrong_value_names_its_option_and_what_is_accepted() {
        for (given, option, accepted) in [
            (Run { limit: Some("8GB".into()), ..args() }, "--limit 8GB: ", "8GiB"),
            (Run { fraction: Some("1.5".into()), ..args() }, "--fraction 1.5: ", "from 0 to 1"),
            (Run { conf: vec!["free_sync:yes".into()], ..args() }, "--conf free_sync:yes: ", "True or False"),
            (Run { conf: vec!["free_sync".into()], ..args() }, "--conf free_sync: ", "key:value"),
            (
                Run { conf: vec!["memory_limt:8GiB".into()], ..args() },
                "--conf memory_limt:8GiB: ",
                "memory_limit",
            ),
            (Run { log: Some("loud".into()), ..args() }, "--log loud: ", "trace"),
            (Run { report: Some("%x".into()), ..args() }, "--report %x: ", "%q{VAR}"),
            (
                Run { report: Some("/no/such/f.json".into()), ..args() },
                "--report /no/such/f.json: ",
                "no folder /no/such",
            ),
            (
                Run { limit: Some("8GiB,free_sync:True".into()), ..args() },
                "--limit 8GiB,free_sync:True: ",
                "one value",
            ),
        ] {
            let message = error(&given);
            assert!(message.starts_with(option) && message.contains(accepted), "{message}");
            assert!(!message.contains("GPUCACHE_CONF"), "{message}");
        }
    }

    #[test]
    fn two_options_for_one_key_are_a_conflict() {
        let both = Run { limit: Some("8GiB".into()), conf: vec!["memory_limit:4GiB".into()], ..args() };
        assert_eq!(
            error(&both),
            "--limit 8GiB and --conf memory_limit:4GiB both set memory_limit; give one of them"
        );
    }

    #[test]
    fn what_is_wrong_in_the_environment_is_said_to_be_there() {
        let result =
            compose(&args(), None, |name| (name == CONF_VARIABLE).then(|| "memory_limit:8GB".into()));
        let message = result.err().unwrap().to_string();
        assert!(message.starts_with("in the environment: GPUCACHE_CONF: memory_limit:8GB"), "{message}");
    }

    #[test]
    fn reports_stay_where_the_tool_was_started() {
        let settings = compose(&Run { report: Some("r-%p.json".into()), ..args() }, None, |_| None).unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!(settings.reports.unwrap(), format!("{}/r-%p.json", here.display()));
    }

    #[test]
    fn a_page_has_its_reports_beside_it_unless_they_have_a_place() {
        let beside = || Some(json_beside(Path::new("/tmp/50%.html")).unwrap());
        let alone = compose(&args(), beside(), |_| None).unwrap();
        assert_eq!(alone.reports.clone().unwrap(), format!("/tmp/50%%-{}-%p.json", std::process::id()));
        let placed =
            compose(&args(), beside(), |name| (name == REPORT).then(|| "/tmp/x.json".into())).unwrap();
        assert_eq!(placed.reports.unwrap(), "/tmp/x.json");
        let word = compose(&args(), beside(), |name| (name == REPORT).then(|| "stderr".into())).unwrap();
        assert_eq!(word.reports, alone.reports, "a word names no file");
    }
}
