//! Reading the environment: three variables in `PyTorch`'s grammar, key by key, and some that are settings by
//! themselves. Nothing is decided here about a fault but how grave it is: in `GPUCACHE_*` it is an error, because a
//! limit that was asked for must not silently become none; in `PYTORCH_*` it is a warning, because those belong to
//! `PyTorch`, which complains itself.

use std::ffi::OsString;
use std::fmt;

use super::Conf;
use super::keys::{self, ENVIRONMENT, Key, Origin, VARIABLES};
use super::nearest::nearest;
use super::runs::{self, RUN_VARIABLE};
use crate::policy::grammar::{self, Entry};
use crate::report::units::printable;

/// The configuration variable that is the library's own.
pub const CONF_VARIABLE: &str = "GPUCACHE_CONF";

/// The others, in order of precedence.
const FALLBACKS: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// What is no setting: where the tool finds the library, and what it leaves for that.
const TOOLS_VARIABLES: [&str; 2] = ["GPUCACHE_LIB", RUN_VARIABLE];

/// What was made of an environment. If there are errors, the configuration is not what the user asked for, and the
/// process must not run on it: the settings without fault are there so that the message goes where the user wants it. A
/// library that is disabled ([`Conf::is_disabled`]) forwards everything, faults or not.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The settings, without those at fault.
    pub conf: Conf,
    /// What should be said once, but stops nothing.
    pub warnings: Vec<String>,
    /// What the first CUDA call must fail for; each is one line.
    pub errors: Vec<String>,
}

/// A value that was not accepted, with everything that its author needs to repair it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    variable: &'static str,
    /// None where the variable itself is the setting, or `value` holds the key too.
    key: Option<String>,
    value: String,
    reason: String,
    accepted: &'static str,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { variable, key, value, reason, accepted } = self;
        match key {
            Some(key) => write!(f, "{variable}: {key}:{value}: ")?,
            None => write!(f, "{variable}: {value}: ")?,
        }
        write!(f, "{reason}; accepted: {accepted}")
    }
}

impl Conf {
    /// Reads the configuration through `get`, which returns the value of an environment variable, if it is set.
    pub fn from_env<V: Into<OsString>>(get: impl Fn(&str) -> Option<V>) -> Parsed {
        let mut parsed = Parsed { conf: Self::default(), warnings: Vec::new(), errors: Vec::new() };
        // Lowest precedence first: what comes later replaces what came before, key by key.
        for &variable in FALLBACKS.iter().rev() {
            match get(variable).map(|value| value.into().into_string()) {
                None => {}
                Some(Ok(text)) => parsed.read_fallback(variable, &text),
                Some(Err(raw)) => {
                    parsed.warnings.push(format!("{}; it is ignored", not_utf8(variable, &raw)));
                }
            }
        }
        match get(CONF_VARIABLE).map(|value| value.into().into_string()) {
            None => {}
            Some(Ok(text)) => parsed.read_own(&text),
            Some(Err(raw)) => parsed.errors.push(not_utf8(CONF_VARIABLE, &raw)),
        }
        for variable in &VARIABLES {
            let Some(value) = get(variable.name).map(Into::into) else { continue };
            let text = match value.into_string() {
                // Set to nothing is how a shell unsets a variable for one command. White space means nothing at the
                // ends, as it does in the grammar.
                Ok(text) if text.trim().is_empty() => continue,
                Ok(text) => text.trim().to_owned(),
                Err(raw) => {
                    parsed.errors.push(not_utf8(variable.name, &raw));
                    continue;
                }
            };
            let origin = Origin { key: variable.name.to_owned(), text: text.clone(), source: variable.name };
            if let Err(reason) = (variable.set)(&mut parsed.conf, &text, origin) {
                let accepted = variable.accepted;
                let fault = Fault { variable: variable.name, key: None, value: text, reason, accepted };
                parsed.errors.push(fault.to_string());
            }
        }
        let runs = get(RUN_VARIABLE).and_then(|value| value.into().into_string().ok());
        parsed.conf.runs = runs.map_or_else(Vec::new, |text| runs::runs(&text));
        for message in parsed.errors.iter_mut().chain(&mut parsed.warnings) {
            *message = printable(message);
        }
        if parsed.conf.alert_command().is_some() && parsed.conf.alert().is_empty() {
            let text = "GPUCACHE_ALERT_COMMAND: it has no effect without an alarm, such as alert:[held:0.9]";
            parsed.warnings.push(text.to_owned());
        }
        parsed
    }
}

impl Parsed {
    fn read_own(&mut self, text: &str) {
        let (entries, faults) = grammar::parse(text);
        self.errors.extend(faults.into_iter().map(|fault| grammar_fault(CONF_VARIABLE, &fault).to_string()));
        let mut seen: Vec<(&str, &Entry)> = Vec::new();
        for entry in &entries {
            let Some(key) = keys::find(&entry.key) else {
                self.warnings.push(unknown_key(&entry.key));
                continue;
            };
            if let Some((_, earlier)) = seen.iter().find(|(name, _)| *name == key.name) {
                self.errors.push(format!(
                    "{CONF_VARIABLE}: {}: given twice, as `{earlier}` and as `{entry}`; accepted: one of them",
                    key.name
                ));
                continue;
            }
            seen.push((key.name, entry));
            if let Err(fault) = set(&mut self.conf, key, entry, CONF_VARIABLE) {
                self.errors.push(fault.to_string());
            }
        }
        if self.conf.expandable_segments() {
            for without in ["max_split_size_mb", "max_non_split_rounding_mb"] {
                if seen.iter().any(|(name, _)| *name == without) {
                    self.warnings.push(format!(
                        "{CONF_VARIABLE}: {without} has no effect with expandable_segments:True: it keeps segments \
                         whole, and there is one range"
                    ));
                }
            }
        }
    }

    fn read_fallback(&mut self, variable: &'static str, text: &str) {
        let (entries, faults) = grammar::parse(text);
        let mut warn = |fault: &Fault| self.warnings.push(format!("{fault}; it is ignored here"));
        for fault in faults {
            // What concerns PyTorch alone is PyTorch's to complain about.
            if keys::find_in_pytorch(&fault.key).is_some() {
                warn(&grammar_fault(variable, &fault));
            }
        }
        for entry in &entries {
            if let Some(key) = keys::find_in_pytorch(&entry.key) {
                if let Err(fault) = set(&mut self.conf, key, entry, variable) {
                    self.warnings.push(format!("{fault}; it is ignored here"));
                }
                continue;
            }
            match keys::find(&entry.key) {
                // A limit that has no effect where it stands must not go unsaid.
                Some(key) if key.name != "expandable_segments" => self.warnings.push(format!(
                    "{variable}: {} has no effect here, because PyTorch does not know it; set it in {CONF_VARIABLE}",
                    entry.key
                )),
                _ => {}
            }
        }
    }
}

fn set(conf: &mut Conf, key: &Key, entry: &Entry, variable: &'static str) -> Result<(), Fault> {
    let text = entry.value.to_string();
    let origin = Origin { key: entry.key.clone(), text: text.clone(), source: variable };
    (key.set)(conf, &entry.value, origin).map_err(|reason| Fault {
        variable,
        key: Some(entry.key.clone()),
        value: text,
        reason,
        accepted: key.accepted,
    })
}

fn grammar_fault(variable: &'static str, fault: &grammar::Fault) -> Fault {
    let (value, reason) = (format!("`{}`", fault.text), fault.reason.to_owned());
    Fault { variable, key: None, value, reason, accepted: grammar::ACCEPTED }
}

fn not_utf8(variable: &str, raw: &std::ffi::OsStr) -> String {
    format!("{variable}: `{}`: not valid UTF-8; accepted: text", raw.display())
}

fn unknown_key(key: &str) -> String {
    if keys::is_pytorch_only(key) {
        return format!("{CONF_VARIABLE}: {key} has no effect here: it concerns PyTorch's own allocator");
    }
    match nearest(key, keys::names()) {
        Some(known) => format!("{CONF_VARIABLE}: unknown key {key}; did you mean {known}?"),
        None => format!("{CONF_VARIABLE}: unknown key {key}; known are {}", known_keys()),
    }
}

fn known_keys() -> String {
    keys::names().collect::<Vec<_>>().join(", ")
}

/// A warning for each `GPUCACHE_…` variable among `names` that the library does not read, with the nearest that it does.
pub fn unknown_variables<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let unknown = names.into_iter().filter(|name| {
        name.starts_with("GPUCACHE_") && !TOOLS_VARIABLES.contains(name) && !ENVIRONMENT.contains(name)
    });
    unknown
        .map(|name| {
            // The common prefix would make every pair look alike.
            let own = |full: &'static str| &full["GPUCACHE_".len()..];
            match nearest(&name["GPUCACHE_".len()..], ENVIRONMENT.iter().map(|full| own(full))) {
                Some(known) => format!("unknown variable {name}; did you mean GPUCACHE_{known}?"),
                None => format!("unknown variable {name}; known are {}", ENVIRONMENT.join(", ")),
            }
        })
        .collect()
}
