//! Which of the observed objects have to go. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    object::{Target, metadata_string},
    owners::{OWNER_UID, Owner},
};

use super::budget::{ALLOW_DELETES, DeleteBudget};

/// More should go than may.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMany {
    pub(super) count: usize,
    pub(super) existing: usize,
    pub(super) allowed: usize,
}

/// An object as it was seen.
pub(super) struct Observed {
    pub(super) target: Target,
    pub(super) state: Value,
}

impl Observed {
    /// Uid of the owner that its label tells.
    pub(super) fn owner(&self) -> Option<&str> {
        self.state.get("metadata")?.get("labels")?.get(OWNER_UID)?.as_str()
    }

    /// Uid of the owner that manages it, by label or by controller reference.
    pub(super) fn controller(&self) -> Option<&str> {
        let controller = || {
            let references = self.state.get("metadata")?.get("ownerReferences")?.as_array()?;
            let controller =
                references.iter().find(|reference| reference.get("controller") == Some(&Value::Bool(true)))?;
            controller.get("uid")?.as_str()
        };
        self.owner().or_else(controller)
    }

    pub(super) fn metadata(&self, field: &str) -> Option<String> {
        metadata_string(&self.state, field).map(ToOwned::to_owned)
    }
}

/// The observed objects with the owner's uid that are not wanted, by key or by uid, and not being deleted already; an error if they are more than may be
/// deleted at once. An owner that is being deleted takes all its children with it, so no limit holds.
pub(super) fn to_prune<'a>(
    owner: &Owner,
    observed: impl Iterator<Item = &'a Observed>,
    wanted: &BTreeSet<String>,
    budget: DeleteBudget,
) -> Result<Vec<&'a Observed>, TooMany> {
    let ours: Vec<_> = observed.filter(|observed| observed.owner() == Some(owner.uid())).collect();
    let existing = ours.len();
    let unwanted: Vec<_> = ours
        .into_iter()
        .filter(|observed| !wanted.contains(&observed.target.key()))
        .filter(|observed| observed.metadata("uid").is_some_and(|uid| !wanted.contains(&uid)))
        .filter(|observed| observed.metadata("deletionTimestamp").is_none())
        .collect();
    let given = owner.annotations.get(ALLOW_DELETES).and_then(|number| number.parse().ok()).unwrap_or(0);
    let allowed = budget.allowed(existing).max(given);
    if unwanted.len() > allowed && !owner.is_terminating {
        return Err(TooMany { count: unwanted.len(), existing, allowed });
    }
    Ok(unwanted)
}
