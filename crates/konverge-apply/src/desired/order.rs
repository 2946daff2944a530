//! In which order children are written, and deleted. Pure.

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
