//! Names of report files: a template is checked once, when the configuration is read, and expanded at the end of the
//! process, so that a typing error is seen before the work and not after it.

use std::fmt;

/// What a template may contain, for messages.
pub const ACCEPTED: &str =
    "%p (process id), %h (host), %e (executable), %t (unix time), %q{VAR} (environment variable), %%";

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Pid,
    Host,
    Executable,
    Time,
    Variable(String),
}

/// A checked file-name template. Its [`Display`](fmt::Display) form parses back to the same template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

/// What a template's placeholders stand for.
pub struct Facts<'a> {
    /// Process id.
    pub pid: u32,
    /// Name of the host.
    pub host: &'a str,
    /// Name of the executable without its directory.
    pub executable: &'a str,
    /// Seconds since 1970.
    pub unix_time: u64,
    /// Looks up an environment variable; in place of an unset one stands `unset-NAME`.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

/// A template that cannot be expanded: names the offending placeholder and the accepted ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateError {
    placeholder: String,
    reason: &'static str,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; accepted are {ACCEPTED}", self.fault())
    }
}

impl std::error::Error for TemplateError {}

impl TemplateError {
    /// The placeholder and what is wrong with it, for a caller that says the accepted forms itself.
    pub fn fault(&self) -> String {
        format!("`{}` {}", self.placeholder, self.reason)
    }
}

impl Template {
    /// Checks a template.
    ///
    /// # Errors
    /// A `%` followed by anything but the forms in [`ACCEPTED`], or a template without any character.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let fail = |placeholder: &str, reason| Err(TemplateError { placeholder: placeholder.into(), reason });
        if text.is_empty() {
            return fail(text, "names no file");
        }
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('%') {
            literal.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            let Some(letter) = after.chars().next() else {
                return fail("%", "at the end stands for nothing");
            };
            rest = &after[letter.len_utf8()..];
            let part = match letter {
                '%' => {
                    literal.push('%');
                    continue;
                }
                'p' => Part::Pid,
                'h' => Part::Host,
                'e' => Part::Executable,
                't' => Part::Time,
                'q' => {
                    let Some((name, tail)) = rest.strip_prefix('{').and_then(|inner| inner.split_once('}'))
                    else {
                        return fail("%q", "needs the name of a variable in braces");
                    };
                    if name.is_empty() || name.contains('=') {
                        return fail(&format!("%q{{{name}}}"), "does not name a variable");
                    }
                    rest = tail;
                    Part::Variable(name.to_owned())
                }
                _ => return fail(&format!("%{letter}"), "is not known"),
            };
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal)));
            }
            parts.push(part);
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(Self { parts })
    }

    /// The variables in it that are not set.
    pub fn unset<'a>(&'a self, facts: &Facts<'_>) -> impl Iterator<Item = &'a str> {
        let variables = self.parts.iter().filter_map(|part| match part {
            Part::Variable(name) => Some(name.as_str()),
            _ => None,
        });
        variables.filter(|name| (facts.variable)(name).is_none())
    }

    /// The file name for one process.
    pub fn expand(&self, facts: &Facts<'_>) -> String {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Pid => out.push_str(&facts.pid.to_string()),
                Part::Host => out.push_str(facts.host),
                Part::Executable => out.push_str(facts.executable),
                Part::Time => out.push_str(&facts.unix_time.to_string()),
                Part::Variable(name) => match (facts.variable)(name) {
                    Some(value) => out.push_str(&value),
                    None => out.push_str(&stand_in(name)),
                },
            }
        }
        out
    }
}

/// What stands for a variable that is not set: a word that shows what is missing, where nothing at all would let the files of
/// all ranks take the same ordinary name.
pub fn stand_in(variable: &str) -> String {
    format!("unset-{}", variable.replace('/', "_"))
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Text(text) => f.write_str(&text.replace('%', "%%"))?,
                Part::Pid => f.write_str("%p")?,
                Part::Host => f.write_str("%h")?,
                Part::Executable => f.write_str("%e")?,
                Part::Time => f.write_str("%t")?,
                Part::Variable(name) => write!(f, "%q{{{name}}}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn expand(template: &str) -> String {
        let facts = Facts {
            pid: 4242,
            host: "node7",
            executable: "python3.12",
            unix_time: 1_700_000_000,
            variable: &|name| (name == "RANK").then(|| "3".to_owned()),
        };
        Template::parse(template).unwrap().expand(&facts)
    }

    #[test]
    fn every_placeholder_expands() {
        assert_eq!(expand("/tmp/%h/%e.%p.%t.json"), "/tmp/node7/python3.12.4242.1700000000.json");
        assert_eq!(expand("rank%q{RANK}.json"), "rank3.json");
        assert_eq!(expand("100%%-%p"), "100%-4242");
        assert_eq!(expand("plain.json"), "plain.json");
    }

    #[test]
    fn in_place_of_an_unset_variable_stands_what_is_missing() {
        assert_eq!(expand("a-%q{NOBODY_SETS_THIS}.b"), "a-unset-NOBODY_SETS_THIS.b");
        assert_eq!(expand("%q{../A}"), "unset-.._A", "no part of a path");
        let facts = Facts {
            pid: 1,
            host: "h",
            executable: "e",
            unix_time: 0,
            variable: &|name| (name == "EMPTY").then(String::new),
        };
        let template = Template::parse("%q{EMPTY}-%p-%q{A}-%q{B}").unwrap();
        assert_eq!(template.expand(&facts), "-1-unset-A-unset-B", "empty is a value");
        assert_eq!(template.unset(&facts).collect::<Vec<_>>(), ["A", "B"]);
    }

    #[test]
    fn expanded_values_are_not_expanded_again() {
        let facts =
            Facts { pid: 1, host: "%p", executable: "e", unix_time: 0, variable: &|_| Some("%h".to_owned()) };
        assert_eq!(Template::parse("%h-%q{X}").unwrap().expand(&facts), "%p-%h");
    }

    #[test]
    fn faults_name_the_placeholder_and_the_accepted_forms() {
        for (template, named) in [
            ("a%x", "`%x`"),
            ("a%", "`%`"),
            ("%q", "`%q`"),
            ("%q{A", "`%q`"),
            ("%qA", "`%q`"),
            ("%q{}", "`%q{}`"),
            ("%ü", "`%ü`"),
            ("", "``"),
        ] {
            let message = Template::parse(template).unwrap_err().to_string();
            assert!(message.contains(named) && message.contains(ACCEPTED), "{template}: {message}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_printing_round_trips(text in "[%pheqt{}A-Zü/.]{0,24}") {
            if let Ok(template) = Template::parse(&text) {
                prop_assert_eq!(Template::parse(&template.to_string()).unwrap(), template);
            }
        }
    }
}
