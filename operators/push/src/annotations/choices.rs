//! The JSON of `vault-sync.io/secrets`: which keys of which Secrets. Pure.
//!
//! Read as Go's `encoding/json` reads it, since texts that the original takes are in use: names of fields in any case, unknown fields
//! ignored, `null` for nothing, data after the end an error.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
};

use konverge_core::names::is_object_name;
use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny, MapAccess, Visitor},
};

use crate::{content::LARGEST, spec::Choice};

/// More entries than any object uses Secrets.
const MOST_ENTRIES: usize = 1_000;

/// The longest prefix. Keys of Secrets end at 253 characters.
const LONGEST_PREFIX: usize = 1_024;

/// The longest text that the API server keeps in annotations.
const LONGEST_TEXT: usize = 256 * 1024;

/// The most repeated keys that a note names. The rest is counted.
const NAMED: usize = 3;

/// Reads the annotation. On success there come notes on what it says and can hardly mean.
pub(super) fn parse(text: &str) -> Result<(Vec<Choice>, Vec<String>), String> {
    if text.len() > LONGEST_TEXT {
        return Err(format!("it has {} bytes, and {LONGEST_TEXT} are allowed", text.len()));
    }
    let entries: Option<Vec<Option<RawChoice>>> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let entries = entries.unwrap_or_default();
    if entries.len() > MOST_ENTRIES {
        return Err(format!("it has {} entries, and {MOST_ENTRIES} are allowed", entries.len()));
    }
    let mut choices = Vec::with_capacity(entries.len());
    for (index, entry) in entries.into_iter().enumerate() {
        let RawChoice { name, keys, prefix } = entry.unwrap_or_default();
        let place = index + 1;
        if name.is_empty() {
            return Err(format!("entry {place} has no name; give the name of a Secret"));
        }
        if !is_object_name(&name) {
            return Err(format!("entry {place} names {name:?}, which no Secret can be called"));
        }
        if prefix.len() > LONGEST_PREFIX {
            return Err(format!("the prefix of entry {place} is longer than {LONGEST_PREFIX} bytes"));
        }
        choices.push(Choice { name, keys, prefix });
    }
    let written: usize = choices.iter().map(length_of_keys).fold(0, usize::saturating_add);
    if written > LARGEST {
        return Err(format!("its keys with their prefixes have {written} bytes, and {LARGEST} fit into a path"));
    }
    let notes = notes(&choices);
    Ok((choices, notes))
}

/// How long the names of the keys are in Vault. A long prefix makes much of little.
fn length_of_keys(Choice { keys, prefix, .. }: &Choice) -> usize {
    keys.iter().map(|key| prefix.len() + key.len()).fold(0, usize::saturating_add)
}

fn notes(choices: &[Choice]) -> Vec<String> {
    if choices.is_empty() {
        return vec!["it names no Secret, so nothing is written".to_owned()];
    }
    let idle = choices.iter().filter(|choice| choice.keys.is_empty());
    let mut notes: Vec<String> = idle
        .map(|choice| format!("it names no keys of the Secret {}, so nothing of it is written", choice.name))
        .collect();
    let mut sources = BTreeMap::new();
    let mut taken = Vec::new();
    for choice in choices {
        for key in &choice.keys {
            let source = (&choice.name, key);
            match sources.entry(format!("{}{key}", choice.prefix)) {
                Entry::Vacant(free) => {
                    free.insert(source);
                }
                Entry::Occupied(mut before) if *before.get() != source => {
                    let (name, other) = *before.get();
                    let target = before.key();
                    taken.push(format!(
                        "it writes {target:?} twice, from {other:?} of the Secret {name} and from {key:?} of {}: the latter counts",
                        choice.name
                    ));
                    before.insert(source);
                }
                Entry::Occupied(_) => {}
            }
        }
    }
    let more = taken.len().saturating_sub(NAMED);
    notes.extend(taken.into_iter().take(NAMED));
    if more > 0 {
        notes.push(format!("it writes {more} more keys twice: the latter counts each time"));
    }
    notes
}

/// One entry of the JSON before it is checked. A missing field or `null` is empty.
#[derive(Default)]
struct RawChoice {
    name: String,
    keys: Vec<String>,
    prefix: String,
}

impl<'de> Deserialize<'de> for RawChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RawChoiceVisitor)
    }
}

struct RawChoiceVisitor;

impl<'de> Visitor<'de> for RawChoiceVisitor {
    type Value = RawChoice;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object with name, keys and prefix")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawChoice, A::Error> {
        let mut choice = RawChoice::default();
        while let Some(field) = map.next_key::<String>()? {
            let wrong = |error: A::Error| de::Error::custom(format!("{field}: {error}"));
            match folded(&field).as_str() {
                // A field may come twice: the later one counts, unless it is null.
                "name" => {
                    let name = map.next_value::<Option<String>>().map_err(wrong)?;
                    choice.name = name.unwrap_or(choice.name);
                }
                "prefix" => {
                    let prefix = map.next_value::<Option<String>>().map_err(wrong)?;
                    choice.prefix = prefix.unwrap_or(choice.prefix);
                }
                "keys" => {
                    let keys = map.next_value::<Option<Vec<Option<String>>>>().map_err(wrong)?;
                    choice.keys = keys.unwrap_or_default().into_iter().map(Option::unwrap_or_default).collect();
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(choice)
    }
}

/// In lower case, as Go folds it: two letters beyond ASCII are another case of one within.
fn folded(field: &str) -> String {
    let fold = |letter| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    field.chars().map(fold).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn choice(name: &str, keys: &[&str], prefix: &str) -> Choice {
        let keys = keys.iter().map(|&key| key.to_owned()).collect();
        Choice { name: name.to_owned(), keys, prefix: prefix.to_owned() }
    }

    #[test]
    fn texts_that_go_takes() {
        for (text, expected) in [
            ("null", vec![]),
            (" [ ] \n", vec![]),
            (r#"[{"name":"db","keys":["a","b"],"prefix":"db_"}]"#, vec![choice("db", &["a", "b"], "db_")]),
            (r#"[{"name":"db","keys":["a"]}]"#, vec![choice("db", &["a"], "")]),
            (r#"[{"name":"db"}]"#, vec![choice("db", &[], "")]),
            (r#"[{"name":"db","keys":null,"prefix":null}]"#, vec![choice("db", &[], "")]),
            (r#"[{"Name":"db","KEYS":["a"],"preFix":"x"}]"#, vec![choice("db", &["a"], "x")]),
            ("[{\"name\":\"db\",\"\u{212a}ey\u{17f}\":[\"a\"]}]", vec![choice("db", &["a"], "")]),
            (r#"[{"name":"db","keys":["a"],"other":{"deep":[1,2]}}]"#, vec![choice("db", &["a"], "")]),
            (r#"[{"name":"one","NAME":"two","keys":["a"],"keys":["b"],"name":null}]"#, vec![choice("two", &["b"], "")]),
            (
                r#"[{"name":"db","keys":["a"],"prefix":"x_"},{"name":"db","keys":["a"],"prefix":"y_"}]"#,
                vec![choice("db", &["a"], "x_"), choice("db", &["a"], "y_")],
            ),
        ] {
            assert_eq!(parse(text).map(|(choices, _)| choices), Ok(expected), "{text}");
        }
    }

    #[test]
    fn texts_that_are_refused_and_why() {
        let many = format!("[{}]", vec![r#"{"name":"a"}"#; MOST_ENTRIES + 1].join(","));
        let long = json!([{ "name": "a", "prefix": "x".repeat(LONGEST_PREFIX + 1) }]).to_string();
        let blank = " ".repeat(LONGEST_TEXT + 1);
        for (text, cause) in [
            (" ", "EOF"),
            ("[", "EOF"),
            (r#"{"name":"db"}"#, "expected a sequence"),
            ("[1]", "an object with name, keys and prefix"),
            (r#"[["db"]]"#, "an object with name, keys and prefix"),
            ("[] x", "trailing"),
            (r#"[{"name":"db"}]]"#, "trailing"),
            (r#"[{"name":"db"},]"#, "trailing comma"),
            (r#"[{"name":1}]"#, "name: invalid type"),
            (r#"[{"name":"db","keys":"a"}]"#, "keys: invalid type"),
            (r#"[{"name":"db","keys":[1]}]"#, "keys: invalid type"),
            (r#"[{"name":"db"},{"keys":["a"]}]"#, "entry 2 has no name"),
            ("[null]", "entry 1 has no name"),
            (r#"[{"name":"../x"}]"#, "no Secret can be called"),
            (r#"[{"name":"a/b"}]"#, "no Secret can be called"),
            (r#"[{"name":"A"}]"#, "no Secret can be called"),
            (r#"[{"name":"a..b"}]"#, "no Secret can be called"),
            (&many, "1001 entries"),
            (&long, "prefix of entry 1"),
            (&blank, "bytes"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(cause), "{text:.40}: {error}");
        }
    }

    #[test]
    fn what_can_hardly_be_meant_is_noted() {
        let notes = |text: &str| parse(text).unwrap().1;
        assert!(notes("[]")[0].contains("names no Secret"));
        assert!(notes(r#"[{"name":"db","keys":[]}]"#)[0].contains("no keys of the Secret db"));
        assert_eq!(notes(r#"[{"name":"db","keys":["a","a"]},{"name":"db","keys":["a"],"prefix":"x"}]"#), [""; 0]);
        let twice = notes(r#"[{"name":"db","keys":["xa"]},{"name":"web","keys":["a"],"prefix":"x"}]"#);
        assert_eq!(
            twice,
            [r#"it writes "xa" twice, from "xa" of the Secret db and from "a" of web: the latter counts"#]
        );
        let thrice = notes(r#"[{"name":"a","keys":["k"]},{"name":"b","keys":["k"]},{"name":"c","keys":["k"]}]"#);
        assert!(thrice[1].contains("of the Secret b and") && thrice[1].contains("of c:"), "{thrice:?}");
        let keys: Vec<String> = (0..10).map(|key| key.to_string()).collect();
        let many = notes(&json!([{ "name": "a", "keys": keys }, { "name": "b", "keys": keys }]).to_string());
        assert_eq!(many.len(), NAMED + 1);
        assert!(many[NAMED].contains("7 more"), "{many:?}");
    }

    #[test]
    fn a_prefix_does_not_make_much_of_little() {
        let keys: Vec<String> = (0..4_000).map(|key| format!("{key:04}")).collect();
        let text = |prefix: usize| json!([{ "name": "db", "keys": keys, "prefix": "p".repeat(prefix) }]).to_string();
        assert!(parse(&text(500)).is_ok());
        let refused = parse(&text(1_000)).unwrap_err();
        assert!(refused.contains("4016000") && refused.contains(&LARGEST.to_string()), "{refused}");
    }

    fn any_choice() -> impl Strategy<Value = Choice> {
        let keys = proptest::collection::vec(".{0,6}", 0..4);
        ("[a-z0-9]([-a-z0-9]{0,5}[a-z0-9])?", keys, ".{0,6}").prop_map(|(name, keys, prefix)| Choice {
            name,
            keys,
            prefix,
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(choices in proptest::collection::vec(any_choice(), 0..5)) {
            let written: Vec<_> = choices
                .iter()
                .map(|Choice { name, keys, prefix }| json!({ "name": name, "keys": keys, "prefix": prefix }))
                .collect();
            let read = parse(&serde_json::Value::from(written).to_string());
            prop_assert_eq!(read.map(|(choices, _)| choices), Ok(choices));
        }

        #[test]
        fn nothing_makes_it_stumble(text in r#"[\[\]{},:"a-z\\ 0-9null]{0,40}"#) {
            let _ = parse(&text);
        }
    }
}
