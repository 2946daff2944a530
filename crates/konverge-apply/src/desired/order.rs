//! In which order children are written, and deleted. Pure.

use kube::api::PropagationPolicy;
use serde_json::Value;

/// Annotation of a child that comes after others: how many levels of children are below it. Deletion goes from the highest level down.
pub const APPLY_ORDER: &str = "konverge.dev/apply-order";

/// The level of each child: 0 for one that waits for no other, else one more than the highest that it waits for. A child waits for those
/// of all lower stages, and for those in `after`. `None` if children wait for each other.
pub(super) fn levels(stages: &[usize], after: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut levels = vec![0; stages.len()];
    // Without a cycle, no path is longer than there are children.
    for _ in 0..=stages.len() {
        let mut below = vec![0; stages.iter().max().map_or(0, |highest| highest + 2)];
        for (stage, level) in stages.iter().zip(&levels) {
            below[stage + 1] = below[stage + 1].max(level + 1);
        }
        for stage in 1..below.len() {
            below[stage] = below[stage].max(below[stage - 1]);
        }
        let level =
            |child: usize| after[child].iter().map(|other| levels[*other] + 1).fold(below[stages[child]], usize::max);
        let higher: Vec<usize> = (0..stages.len()).map(level).collect();
        if higher == levels {
            return Some(levels);
        }
        levels = higher;
    }
    None
}

/// The deletion of children from the highest level down: each once all above it are gone.
#[derive(Debug)]
pub(super) struct PruneOrder {
    lowest: usize,
    /// The highest level on which something is left.
    held_from: Option<usize>,
}

impl PruneOrder {
    /// For unwanted children on the levels `unwanted`, while others on the levels `going` are being deleted already.
    pub(super) fn new(unwanted: impl IntoIterator<Item = usize>, going: impl IntoIterator<Item = usize>) -> Self {
        Self { lowest: unwanted.into_iter().min().unwrap_or(0), held_from: going.into_iter().max() }
    }

    /// How to delete a child on this level; `None` if it waits for those above it. Ask for the children in the order of their levels, the
    /// highest first.
    pub(super) fn policy(&self, level: usize) -> Option<PropagationPolicy> {
        if self.held_from.is_some_and(|held_from| level < held_from) {
            return None;
        }
        // Children below wait until everything that this child has made is gone, too.
        Some(if level > self.lowest { PropagationPolicy::Foreground } else { PropagationPolicy::Background })
    }

    /// Takes in that a child on this level is still there: it is terminating, or could not be deleted.
    pub(super) fn is_left(&mut self, level: usize) {
        self.held_from = self.held_from.max(Some(level));
    }
}

/// The level that a child was written with.
pub(super) fn level_of(state: &Value) -> usize {
    state["metadata"]["annotations"][APPLY_ORDER].as_str().and_then(|level| level.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn levels_follow_stages_and_edges() {
        let none = || vec![Vec::new(); 3];
        let table = [
            (vec![0, 0, 0], none(), Some(vec![0, 0, 0])),
            (vec![0, 1, 2], none(), Some(vec![0, 1, 2])),
            (vec![0, 0, 3], none(), Some(vec![0, 0, 1])),
            // The first waits for the last, which waits for the second.
            (vec![0, 0, 0], vec![vec![2], vec![], vec![1]], Some(vec![2, 0, 1])),
            (vec![0, 1, 1], vec![vec![], vec![2], vec![]], Some(vec![0, 2, 1])),
            (vec![0, 0, 0], vec![vec![1], vec![0], vec![]], None),
            (vec![0, 0, 0], vec![vec![0], vec![], vec![]], None),
            // An edge against the stages.
            (vec![0, 1, 1], vec![vec![1], vec![], vec![]], None),
        ];
        for (stages, after, expected) in table {
            assert_eq!(levels(&stages, &after), expected, "{stages:?} {after:?}");
        }
        assert_eq!(levels(&[], &[]), Some(vec![]));
    }

    #[test]
    fn children_are_deleted_from_the_highest_level_down_each_when_those_above_it_are_gone() {
        type Levels = &'static [usize];
        // Levels of unwanted children, levels of children that are going already, and levels on which a deletion leaves something. For
        // each child, the last column says how it is deleted: F in the foreground, B in the background, - not yet.
        let table: [(Levels, Levels, Levels, &str); 10] = [
            (&[], &[], &[], ""),
            (&[0, 0], &[], &[], "BB"),
            (&[0, 0], &[], &[0], "BB"),
            (&[3, 3], &[], &[], "BB"),
            (&[2, 1, 0], &[], &[], "FFB"),
            (&[2, 1, 0], &[], &[2], "F--"),
            (&[2, 2, 1, 0], &[], &[1], "FFF-"),
            (&[1, 0], &[2], &[], "--"),
            (&[2, 1, 0], &[1], &[], "FF-"),
            (&[0], &[0], &[], "B"),
        ];
        for (unwanted, going, left, expected) in table {
            let mut order = PruneOrder::new(unwanted.iter().copied(), going.iter().copied());
            let mut deleted = String::new();
            for level in unwanted {
                deleted.push(match order.policy(*level) {
                    None => '-',
                    Some(PropagationPolicy::Foreground) => 'F',
                    Some(_) => 'B',
                });
                if left.contains(level) && !deleted.ends_with('-') {
                    order.is_left(*level);
                }
            }
            assert_eq!(deleted, expected, "{unwanted:?} {going:?} {left:?}");
        }
    }

    proptest! {
        #[test]
        fn each_child_is_above_all_that_it_waits_for(edges in proptest::collection::vec((0..12_usize, 0..12_usize), 0..20)) {
            let mut after = vec![Vec::new(); 12];
            // Only from higher to lower numbers, so there is no cycle.
            for (one, other) in edges.into_iter().filter(|(one, other)| one != other) {
                after[one.max(other)].push(one.min(other));
            }
            let levels = levels(&[0; 12], &after).expect("no cycle");
            for (child, others) in after.iter().enumerate() {
                prop_assert_eq!(levels[child], others.iter().map(|other| levels[*other] + 1).max().unwrap_or(0));
            }
        }
    }
}
