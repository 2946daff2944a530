//! Why a run is wanted.

use std::collections::BTreeSet;

/// Some reasons, each of a fixed list. Mostly there is one, and ten thousand keys that were listed have a set less each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reasons {
    One(&'static str),
    Several(BTreeSet<&'static str>),
}

impl Reasons {
    pub(super) fn merge(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::One(one), Self::One(other)) if *one == other => {}
            (Self::Several(several), other) => several.extend(other.into_set()),
            (Self::One(one), other) => {
                let mut several = other.into_set();
                several.insert(*one);
                *self = Self::Several(several);
            }
        }
    }

    pub(super) fn into_set(self) -> BTreeSet<&'static str> {
        match self {
            Self::One(one) => BTreeSet::from([one]),
            Self::Several(several) => several,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_counts_once_in_whatever_order_they_come() {
        for (reasons, expected) in [
            (vec!["a"], vec!["a"]),
            (vec!["a", "a"], vec!["a"]),
            (vec!["b", "a", "b"], vec!["a", "b"]),
            (vec!["a", "b", "c", "a"], vec!["a", "b", "c"]),
        ] {
            let all = reasons.iter().copied().map(Reasons::One).reduce(|mut all, reason| {
                all.merge(reason);
                all
            });
            assert_eq!(all.unwrap().into_set(), BTreeSet::from_iter(expected), "{reasons:?}");
        }
        let mut one = Reasons::One("a");
        one.merge(Reasons::Several(BTreeSet::from(["b", "c"])));
        assert_eq!(one.into_set(), BTreeSet::from(["a", "b", "c"]));
    }
}
