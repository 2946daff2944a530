//! The comparison of an environment with a Secret. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// How a key of the environment or of the Secret would change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// The Secret does not have the key.
    New,
    /// The Secret has another value.
    Changed,
    /// The Secret has the value.
    Unchanged,
    /// An earlier sync applied the key, and the environment no longer has it.
    Removed,
}

/// The keys that a sync is about, in order.
pub type Changes = BTreeMap<String, ChangeKind>;

/// Compares the values of an environment with those of a Secret. `owned` are the keys that earlier syncs applied. Other keys of the
/// Secret belong to somebody else, and are no change.
pub fn compare(desired: &BTreeMap<&str, &[u8]>, stored: &BTreeMap<&str, &[u8]>, owned: &BTreeSet<String>) -> Changes {
    let of_environment = desired.iter().map(|(key, value)| {
        let kind = match stored.get(key) {
            None => ChangeKind::New,
            Some(found) if found == value => ChangeKind::Unchanged,
            Some(_) => ChangeKind::Changed,
        };
        ((*key).to_owned(), kind)
    });
    let is_stale = |key: &&String| !desired.contains_key(key.as_str()) && stored.contains_key(key.as_str());
    let removed = owned.iter().filter(is_stale).map(|key| (key.clone(), ChangeKind::Removed));
    of_environment.chain(removed).collect()
}

/// The keys that would be taken from somebody else: they change, and no earlier sync applied them.
pub fn foreign<'a>(changes: &'a Changes, owned: &BTreeSet<String>) -> Vec<&'a str> {
    let is_foreign = |(key, kind): &(&String, &ChangeKind)| **kind == ChangeKind::Changed && !owned.contains(*key);
    changes.iter().filter(is_foreign).map(|(key, _)| key.as_str()).collect()
}

/// Whether nothing would change.
pub fn in_sync(changes: &Changes) -> bool {
    changes.values().all(|kind| *kind == ChangeKind::Unchanged)
}

/// The keys that a Secret cannot have. Kubernetes allows 1 to 253 of the characters `-._a-zA-Z0-9`, but not `.` and what begins with `..`.
pub fn impossible<'a>(keys: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let is_possible = |key: &str| {
        (1..=253).contains(&key.len())
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
            && key != "."
            && !key.starts_with("..")
    };
    keys.filter(|key| !is_possible(key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values<'a>(pairs: &[(&'a str, &'a str)]) -> BTreeMap<&'a str, &'a [u8]> {
        pairs.iter().map(|(key, value)| (*key, value.as_bytes())).collect()
    }

    fn owned(keys: &[&str]) -> BTreeSet<String> {
        keys.iter().copied().map(str::to_owned).collect()
    }

    #[test]
    fn each_key_is_judged_by_who_has_it_and_who_applied_it() {
        use ChangeKind::{Changed, New, Removed, Unchanged};
        let changes = compare(
            &values(&[("A", "1"), ("B", "2"), ("C", "3")]),
            &values(&[("B", "2"), ("C", "old"), ("GONE", "x"), ("FOREIGN", "y")]),
            &owned(&["B", "C", "GONE", "NEVER_STORED"]),
        );
        let expected = [("A", New), ("B", Unchanged), ("C", Changed), ("GONE", Removed)];
        assert_eq!(changes, expected.map(|(key, kind)| (key.to_owned(), kind)).into());
        assert!(!in_sync(&changes));
        assert!(in_sync(&compare(&values(&[("A", "1")]), &values(&[("A", "1"), ("FOREIGN", "y")]), &owned(&["A"]))));
        assert!(in_sync(&Changes::new()));
    }

    #[test]
    fn a_key_of_somebody_else_is_taken_only_if_it_would_change() {
        let stored = values(&[("A", "theirs"), ("B", "2"), ("C", "ours, old")]);
        let changes = compare(&values(&[("A", "1"), ("B", "2"), ("C", "3")]), &stored, &owned(&["C"]));
        assert_eq!(foreign(&changes, &owned(&["C"])), ["A"]);
    }

    #[test]
    fn keys_are_those_of_kubernetes() {
        let long = "a".repeat(254);
        let keys = ["a.b_c-D9", "a b", "", ".", "..", "..a", ".a", "ä", &long];
        assert_eq!(impossible(keys.into_iter()), ["a b", "", ".", "..", "..a", "ä", &long]);
    }
}
