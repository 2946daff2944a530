//! How many of a namespace's Secrets are used. Of unused Secrets, only the number in the last complete list is known.

use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Shares {
    used: HashMap<String, usize>,
    listed: HashMap<String, usize>,
}

impl Shares {
    /// One more is used.
    pub(super) fn used(&mut self, namespace: &str) {
        match self.used.get_mut(namespace) {
            Some(used) => *used += 1,
            None => drop(self.used.insert(namespace.to_owned(), 1)),
        }
    }

    /// One less is used.
    pub(super) fn unused(&mut self, namespace: &str) {
        if let Some(used) = self.used.get_mut(namespace) {
            *used -= 1;
            if *used == 0 {
                self.used.remove(namespace);
            }
        }
    }

    /// A complete list showed these numbers by namespace.
    pub(super) fn listed(&mut self, counts: HashMap<String, usize>) {
        self.listed = counts;
    }

    /// Returns whether at least `least` of the namespace are used, and at least half of all that were listed.
    pub(super) fn are_mostly_used(&self, namespace: &str, least: usize) -> bool {
        let of = |counts: &HashMap<String, usize>| counts.get(namespace).copied().unwrap_or_default();
        let (used, listed) = (of(&self.used), of(&self.listed));
        listed > 0 && used >= least && used * 2 >= listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_is_mostly_and_what_was_never_listed_is_not() {
        let mut shares = Shares::default();
        for _ in 0..4 {
            shares.used("shop");
        }
        assert!(!shares.are_mostly_used("shop", 1), "nobody knows of how many");
        for (listed, least, expected) in [(4, 4, true), (8, 4, true), (9, 4, false), (4, 5, false)] {
            shares.listed(HashMap::from([("shop".to_owned(), listed)]));
            assert_eq!(shares.are_mostly_used("shop", least), expected, "{least} of {listed}");
        }
        shares.listed(HashMap::from([("shop".to_owned(), 8)]));
        shares.unused("shop");
        assert!(!shares.are_mostly_used("shop", 1), "three of eight");
        for _ in 0..3 {
            shares.unused("shop");
        }
        assert!(shares.used.is_empty());
    }
}
