//! The keys of a content that a Secret gets, and their names in the Secret. Pure.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use konverge_core::allow;

/// A choice of keys, and their names in the Secret. The default is all keys under their own names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The names of keys. `*` stands for any run of characters. Empty is all keys.
    pub keys: Vec<String>,
    /// Their names in the Secret.
    pub rename: Rename,
}

/// How keys are renamed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Rename {
    /// Not at all.
    #[default]
    No,
    /// These keys get these names, and all others keep their own.
    Table(BTreeMap<String, String>),
    /// All keys by one rule.
    Rule {
        /// The beginning that is removed, where a key begins with it.
        strip: String,
        /// The text that is put in front.
        prefix: String,
        /// Whether ASCII letters become upper case.
        upper: bool,
    },
}

/// The result of a selection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selected<'a> {
    /// From the name in the Secret to the key of the content.
    pub names: BTreeMap<Cow<'a, str>, &'a str>,
    /// The names that are selected without a `*` and that the content does not have, as they are called in the Secret.
    pub missing: BTreeSet<Cow<'a, str>>,
}

/// Two keys would have one name in the Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collision {
    /// The name.
    pub name: String,
    /// The keys.
    pub keys: [String; 2],
}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, keys: [one, other] } = self;
        write!(f, "the keys {one:?} and {other:?} would both have the name {name:?}")
    }
}

impl Selection {
    /// Reads a list of keys with commas or white space between them.
    pub fn of_list(text: &str) -> Self {
        let words = text.split(|letter: char| letter == ',' || letter.is_whitespace());
        let keys = words.filter(|word| !word.is_empty()).map(str::to_owned).collect();
        Self { keys, rename: Rename::No }
    }

    /// Selects among these keys.
    ///
    /// # Errors
    /// Two keys that would have one name in the Secret.
    pub fn select<'a>(&'a self, keys: impl Iterator<Item = &'a str> + Clone) -> Result<Selected<'a>, Collision> {
        let mut selected = Selected::default();
        let is_chosen = |key: &str| self.keys.is_empty() || self.keys.iter().any(|chosen| allow::matches(chosen, key));
        for key in keys.filter(|key| is_chosen(key)) {
            let name = self.rename.apply(key);
            if let Some(other) = selected.names.get(&name) {
                let keys = [(*other).to_owned(), key.to_owned()];
                return Err(Collision { name: name.into_owned(), keys });
            }
            selected.names.insert(name, key);
        }
        let is_there = |name: &str| selected.names.values().any(|key| *key == name);
        let literal = self.keys.iter().filter(|chosen| !chosen.contains('*') && !is_there(chosen));
        selected.missing = literal.map(|key| self.rename.apply(key)).collect();
        Ok(selected)
    }
}

impl Rename {
    /// Returns the name of a key in the Secret.
    fn apply<'a>(&'a self, key: &'a str) -> Cow<'a, str> {
        match self {
            Self::No => key.into(),
            Self::Table(table) => table.get(key).map_or(key, String::as_str).into(),
            Self::Rule { strip, prefix, upper } => {
                let name = format!("{prefix}{}", key.strip_prefix(strip.as_str()).unwrap_or(key));
                if *upper { name.to_ascii_uppercase().into() } else { name.into() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn selection(keys: &[&str], rename: Rename) -> Selection {
        Selection { keys: keys.iter().map(|&key| key.to_owned()).collect(), rename }
    }

    fn rule(strip: &str, prefix: &str, upper: bool) -> Rename {
        Rename::Rule { strip: strip.into(), prefix: prefix.into(), upper }
    }

    #[test]
    fn keys_are_chosen_and_named() {
        let content = ["api-key", "db-password", "db-user"];
        let table = Rename::Table([("db-user".to_owned(), "USER".to_owned())].into());
        for (keys, rename, expected, missing) in [
            (
                &[][..],
                Rename::No,
                &[("api-key", "api-key"), ("db-password", "db-password"), ("db-user", "db-user")][..],
                &[][..],
            ),
            (&["db-user"], Rename::No, &[("db-user", "db-user")], &[]),
            (&["db-*", "host"], table.clone(), &[("USER", "db-user"), ("db-password", "db-password")], &["host"]),
            (&["db-*"], rule("db-", "DB_", true), &[("DB_PASSWORD", "db-password"), ("DB_USER", "db-user")], &[]),
            (&["host"], rule("", "x-", false), &[], &["x-host"]),
            (&["none-*"], table, &[], &[]),
        ] {
            let selection = selection(keys, rename);
            let selected = selection.select(content.into_iter()).unwrap();
            let names: Vec<_> = selected.names.iter().map(|(name, key)| (&**name, *key)).collect();
            assert_eq!(names, expected, "{selection:?}");
            assert_eq!(selected.missing.iter().map(|name| &**name).collect::<Vec<_>>(), missing, "{selection:?}");
        }
    }

    #[test]
    fn two_keys_with_one_name_are_refused() {
        let error = selection(&[], rule("", "", true)).select(["a", "A"].into_iter()).unwrap_err();
        assert_eq!(error, Collision { name: "A".into(), keys: ["a".into(), "A".into()] });
    }

    #[test]
    fn a_list_has_commas_or_lines() {
        assert_eq!(Selection::of_list(" A, B_*\nC ,").keys, ["A", "B_*", "C"]);
    }

    proptest! {
        #[test]
        fn each_name_has_one_key_or_all_is_refused(
            content in proptest::collection::btree_set("[a-bA-B]{1,3}", 0..6),
            keys in proptest::collection::vec("[a-bA-B*]{1,3}", 0..3),
            strip in "[a-b]{0,1}",
            upper in any::<bool>(),
        ) {
            let selection = Selection { keys, rename: rule(&strip, "", upper) };
            let chosen = |key: &&String| selection.keys.is_empty() || selection.keys.iter().any(|one| allow::matches(one, key));
            let expected: BTreeSet<_> = content.iter().filter(chosen).map(String::as_str).collect();
            match selection.select(content.iter().map(String::as_str)) {
                Ok(selected) => prop_assert_eq!(selected.names.values().copied().collect::<BTreeSet<_>>(), expected),
                Err(Collision { name, keys: [one, other] }) => {
                    prop_assert!(one != other && expected.contains(&*one) && expected.contains(&*other));
                    prop_assert_eq!(selection.rename.apply(&one), selection.rename.apply(&other));
                    prop_assert_eq!(selection.rename.apply(&one), name);
                }
            }
        }
    }
}
