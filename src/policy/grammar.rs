//! The grammar that `PyTorch` uses for its allocator's settings: `key:value,key:[a:b,c:d]`, white space ignored wherever
//! it stands. `PyTorch` lets wrong separators pass; here every departure from the grammar is a [`Fault`], and reading
//! goes on behind the next comma, so that one fault hides neither other faults nor good entries.

use std::fmt;

/// What the grammar accepts, for messages.
pub const ACCEPTED: &str = "key:value,key:[name:value,name:value]";

/// One setting as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The text before the colon, never empty.
    pub key: String,
    /// The text behind it.
    pub value: Value,
}

/// The right-hand side of an [`Entry`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// One word, never empty.
    Word(String),
    /// `[a:b,c:d]`: at least one pair; neither side of a pair is empty.
    List(Vec<(String, String)>),
}

/// A departure from the grammar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The key whose value is at fault, as far as one was read; may be empty.
    pub key: String,
    /// The faulty part of the text, white space removed.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => f.write_str(word),
            Self::List(pairs) => {
                for (i, (name, value)) in pairs.iter().enumerate() {
                    write!(f, "{}{name}:{value}", if i == 0 { '[' } else { ',' })?;
                }
                f.write_str("]")
            }
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.key, self.value)
    }
}

/// Reads a configuration text: the entries that follow the grammar, and the faults, each in the order of the text.
///
/// An empty text has neither. A comma may end the text, as in `PyTorch`. Keys may repeat: what that means is for the
/// caller to decide.
pub fn parse(text: &str) -> (Vec<Entry>, Vec<Fault>) {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let (mut entries, mut faults) = (Vec::new(), Vec::new());
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (item, tail) = split_at_comma(rest);
        rest = tail;
        match entry(item) {
            Ok(entry) => entries.push(entry),
            Err(fault) => faults.push(fault),
        }
    }
    (entries, faults)
}

/// The text up to the first comma outside brackets, and the text behind that comma.
fn split_at_comma(text: &str) -> (&str, &str) {
    let mut inside = false;
    for (at, c) in text.char_indices() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            ',' if !inside => return (&text[..at], &text[at + 1..]),
            _ => {}
        }
    }
    (text, "")
}

fn entry(item: &str) -> Result<Entry, Fault> {
    let fault = |key: &str, reason| Fault { key: key.to_owned(), text: item.to_owned(), reason };
    if item.is_empty() {
        return Err(fault("", "nothing stands between two commas"));
    }
    let Some((key, value)) = item.split_once(':') else {
        let key = item.split(['=', ';']).next().unwrap_or_default();
        return Err(fault(key, "a colon must stand between a key and its value"));
    };
    if key.is_empty() {
        return Err(fault("", "a key is missing before the colon"));
    }
    if key.contains(['[', ']']) {
        return Err(fault("", "a bracket stands before the colon"));
    }
    let value = value_of(value).map_err(|reason| fault(key, reason))?;
    Ok(Entry { key: key.to_owned(), value })
}

fn value_of(text: &str) -> Result<Value, &'static str> {
    if text.is_empty() {
        return Err("a value is missing behind the colon");
    }
    let Some(inner) = text.strip_prefix('[') else {
        return match text.find(['[', ']', ':']) {
            None => Ok(Value::Word(text.to_owned())),
            Some(at) if text[at..].starts_with(':') => {
                Err("a second colon follows the value; entries are parted by commas")
            }
            Some(_) => Err("a bracket is out of place"),
        };
    };
    let Some((inner, behind)) = inner.split_once(']') else {
        return Err("the bracket is not closed");
    };
    if inner.contains('[') || behind.contains(['[', ']']) {
        return Err("a bracket is out of place");
    }
    if !behind.is_empty() {
        return Err("something follows the closing bracket; entries are parted by commas");
    }
    let inner = inner.strip_suffix(',').unwrap_or(inner);
    if inner.is_empty() {
        return Err("the brackets are empty");
    }
    inner.split(',').map(pair).collect::<Result<_, _>>().map(Value::List)
}

fn pair(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once(':') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() && !value.contains(':') => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("each part between brackets must be name:value"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn word(key: &str, value: &str) -> Entry {
        Entry { key: key.into(), value: Value::Word(value.into()) }
    }

    #[test]
    fn words_and_lists_are_read_and_white_space_is_not() {
        let (entries, faults) = parse(" a : 1 ,b:[ 256:1,\t> : 8 ]\n, c:8 GiB");
        let list = Value::List(vec![("256".into(), "1".into()), (">".into(), "8".into())]);
        assert_eq!(entries, [word("a", "1"), Entry { key: "b".into(), value: list }, word("c", "8GiB")]);
        assert!(faults.is_empty());
    }

    #[test]
    fn an_empty_text_and_a_last_comma_are_no_faults() {
        assert_eq!(parse(""), (vec![], vec![]));
        assert_eq!(parse("  "), (vec![], vec![]));
        assert_eq!(parse("a:1,"), (vec![word("a", "1")], vec![]));
    }

    #[test]
    fn every_departure_is_a_fault_with_its_key() {
        for (text, key, part_of_reason) in [
            ("a=1", "a", "colon"),
            ("a;b", "a", "colon"),
            ("a", "a", "colon"),
            ("a:", "a", "missing behind"),
            (":1", "", "missing before"),
            (",", "", "between two commas"),
            ("a:1:2", "a", "second colon"),
            ("a:1;b:2", "a", "second colon"),
            ("a:[1:2", "a", "not closed"),
            ("a:1]", "a", "out of place"),
            ("a:[[1:2]]", "a", "out of place"),
            ("a:[1:2]]", "a", "out of place"),
            ("a:[1:2]b:3", "a", "follows the closing"),
            ("a:[]", "a", "empty"),
            ("a:[,]", "a", "empty"),
            ("a:[1]", "a", "name:value"),
            ("a:[1:2,,3:4]", "a", "name:value"),
            ("a:[1:2:3]", "a", "name:value"),
            ("a:[:2]", "a", "name:value"),
            ("[a:1]", "", "before the colon"),
        ] {
            let (entries, faults) = parse(text);
            assert_eq!(entries, [], "{text}");
            assert_eq!(faults.len(), 1, "{text}: {faults:?}");
            assert_eq!(faults[0].key, key, "{text}");
            assert!(faults[0].reason.contains(part_of_reason), "{text}: {}", faults[0].reason);
        }
    }

    #[test]
    fn a_fault_hides_nothing_behind_it() {
        let (entries, faults) = parse("a=1,b:2,,c:[3,d:4],e:5");
        assert_eq!(entries, [word("b", "2"), word("e", "5")]);
        assert_eq!(faults.len(), 3);
    }

    fn value() -> impl Strategy<Value = Value> {
        let name = "[A-Za-z0-9_.>ü-]{1,8}";
        prop_oneof![
            name.prop_map(Value::Word),
            proptest::collection::vec((name, name), 1..4).prop_map(Value::List),
        ]
    }

    proptest! {
        #[test]
        fn printing_and_reading_round_trips(
            pairs in proptest::collection::vec(("[a-z_0-9]{1,12}", value()), 0..5)
        ) {
            let entries: Vec<_> = pairs.into_iter().map(|(key, value)| Entry { key, value }).collect();
            let text: Vec<_> = entries.iter().map(ToString::to_string).collect();
            prop_assert_eq!(parse(&text.join(",")), (entries, vec![]));
        }

        #[test]
        fn nothing_panics_and_nothing_is_dropped_in_silence(text in "[a1:,\\[\\] =ü]{0,24}") {
            let (entries, faults) = parse(&text);
            let written = text.chars().any(|c| !c.is_whitespace());
            prop_assert_eq!(written, !(entries.is_empty() && faults.is_empty()));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,64}") {
            let _ = parse(&text);
        }
    }
}
