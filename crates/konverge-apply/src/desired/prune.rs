//! Which of the observed objects have to go. Pure.

use std::collections::BTreeSet;

use super::{
    budget::{ALLOW_DELETES, DeleteBudget},
    observed::Observed,
    recognition::{Recognition, Recognizer, labelled_owner},
};

/// More should go than may.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMany {
    pub(super) count: usize,
    pub(super) existing: usize,
    pub(super) allowed: usize,
}

/// The observed objects that name the owner and are not wanted.
#[derive(Default)]
pub(super) struct Pruning<'a> {
    /// Children that have to go.
    pub(super) unwanted: Vec<&'a Observed>,
    /// Objects that stay, since nothing proves that they are children.
    pub(super) unproven: Vec<&'a Observed>,
}

/// Returns the observed objects with the owner's uid in their label that are not wanted, by key or by uid, and not being deleted
/// already. Returns an error if more of them are children than may be deleted at once. An owner that is being deleted takes all its
/// children with it, so no limit holds.
pub(super) fn children_to_prune<'a>(
    recognizer: &Recognizer<'_>,
    observed: impl Iterator<Item = &'a Observed>,
    wanted: &BTreeSet<String>,
    budget: DeleteBudget,
) -> Result<Pruning<'a>, TooMany> {
    let owner = recognizer.owner;
    let labelled = observed.filter(|observed| labelled_owner(&observed.state["metadata"]) == Some(owner.uid()));
    let (ours, others): (Vec<_>, Vec<_>) =
        labelled.partition(|observed| recognizer.recognize(&observed.target, &observed.state) == Recognition::Proven);
    let existing = ours.len();
    let unwanted = |observed: Vec<&'a Observed>| -> Vec<&'a Observed> {
        observed
            .into_iter()
            .filter(|observed| !wanted.contains(&observed.target.key()))
            .filter(|observed| observed.metadata("uid").is_some_and(|uid| !wanted.contains(&uid)))
            .filter(|observed| observed.metadata("deletionTimestamp").is_none())
            .collect()
    };
    let pruning = Pruning { unwanted: unwanted(ours), unproven: unwanted(others) };
    let given = owner.annotations.get(ALLOW_DELETES).and_then(|number| number.parse().ok()).unwrap_or(0);
    let allowed = budget.allowed(existing).max(given);
    if pruning.unwanted.len() > allowed && !owner.is_terminating {
        return Err(TooMany { count: pruning.unwanted.len(), existing, allowed });
    }
    Ok(pruning)
}
