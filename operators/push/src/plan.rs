//! The plan for one path: from the desired and the current content to one step. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use konverge_vault::{Content, Deletion, Expected, Found, Owner, Ownership, VersionState};

use crate::{
    merge::{Refusal, other_keeper},
    record::Written,
    spec::{ExistingPolicy, UpdatePolicy},
};

/// Content without a mark is adopted when it is older than this. If several installations write at the same time, Vault accepts the version of one.
/// That one sets its mark much sooner ([`MARKED_WITHIN`]), or reads whether another installation has.
pub const UNDISTURBED: Duration = Duration::from_secs(5);

/// The longest time between a write and its mark that leaves no doubt.
pub const MARKED_WITHIN: Duration = Duration::from_secs(1);

/// How far Vault's clock may be behind ours.
const CLOCKS: SignedDuration = SignedDuration::from_secs(-5);

/// The earlier knowledge about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Nothing: it is wanted for the first time.
    New,
    /// It is recorded that it was to be written; whether it was is not known.
    Intended,
    /// It is recorded that its first version was to be written from this moment on; whether it was is not known.
    Begun(Timestamp),
    /// It is recorded that it was written for this object, in this version where there are versions.
    Written(Option<u64>),
}

impl Claim {
    /// How much the record of a path proves.
    pub fn recorded(recorded: &Written) -> Self {
        match recorded {
            Written { written: true, version, .. } => Self::Written(*version),
            Written { begun: Some(since), .. } => Self::Begun(*since),
            _ => Self::Intended,
        }
    }

    /// The claim of a path with this update policy, from its record before the run.
    pub fn of(update: UpdatePolicy, recorded: Option<&Written>) -> Self {
        match recorded {
            Some(written) if written.keys.is_none() && (written.written || written.begun.is_some()) => {
                Self::recorded(written)
            }
            _ if update != UpdatePolicy::IfNotExists => Self::Intended,
            // Another actor may have written the same content. Only a path that was begun before is ours.
            Some(written) if !written.left => Self::Intended,
            _ => Self::New,
        }
    }

    /// Returns whether content without a mark is the content that was written. Another actor may have removed the path with its mark and written it
    /// since.
    fn is_of(self, found: &Found) -> bool {
        let version = match found {
            Found::Live(secret) => secret.version.as_ref(),
            Found::Deleted(version) => Some(version),
            Found::Absent => None,
        };
        match (self, version) {
            (Self::Written(recorded), _) => recorded == version.map(|version| version.number),
            // Vault makes a first version only once. If there had been one before, Vault would have refused the write.
            (Self::Begun(since), Some(VersionState { number: 1, created, .. })) => {
                created.parse::<Timestamp>().is_ok_and(|created| created.duration_since(since) >= CLOCKS)
            }
            _ => false,
        }
    }
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The path is in sync.
    Nothing,
    /// The path has the desired content and lacks the mark of its owner.
    Mark,
    /// The content stays, as the object requests.
    Leave {
        /// Whether it was written for this object.
        ours: bool,
        /// Whether the mark of its owner is missing.
        mark: bool,
    },
    /// The content is so new that its writer may be about to mark it. The operator reads it again after this pause.
    Wait(Duration),
    /// Write the content if the path still has the content that was read, and mark it if it has no mark.
    Write {
        /// The content that was there.
        expected: Expected,
        /// Whether the mark is missing.
        mark: bool,
        /// Whether content without an owner is replaced.
        adopted: bool,
        /// Whether another actor has changed or deleted the content of this object.
        drifted: bool,
    },
}

/// Plans the write of `content` to the path. `known` tells whether the content is the one that was written last.
pub fn plan(
    content: &Content,
    found: &Found,
    owner: &Owner,
    claim: Claim,
    existing: ExistingPolicy,
    known: Known,
) -> Result<Step, Refusal> {
    let ownership = ownership(found, owner);
    if let Ownership::Foreign(name) = ownership {
        return Err(Refusal::Foreign(name));
    }
    let equal = matches!(found, Found::Live(secret) if secret.content == *content);
    // A path whose newest version is deleted holds nothing, and clearing leaves one of ours like that, without its mark.
    let ours = ownership != Ownership::Unowned || claim.is_of(found) || !matches!(found, Found::Live(_));
    // Content that equals the content of an unfinished write counts as made by that write.
    let ours = ours || (claim != Claim::New && equal);
    if !ours && existing == ExistingPolicy::Refuse {
        return Err(Refusal::Existing);
    }
    if let Some(rest) = undisturbed(found, &ownership, claim) {
        return Ok(Step::Wait(rest));
    }
    let mark = ownership != Ownership::Ours && is_versioned(found);
    Ok(match (equal, mark) {
        (true, false) => Step::Nothing,
        (true, true) => Step::Mark,
        (false, _) => Step::Write {
            expected: found.expected(),
            mark: ownership != Ownership::Ours,
            adopted: !ours,
            drifted: matches!(claim, Claim::Written(_)) && known == Known::Same,
        },
    })
}

/// Plans a write that happens once, after which the content stays.
pub fn plan_once(content: &Content, found: &Found, owner: &Owner, claim: Claim) -> Result<Step, Refusal> {
    let ownership = ownership(found, owner);
    if let Ownership::Foreign(name) = ownership {
        return Err(Refusal::Foreign(name));
    }
    let Found::Live(secret) = found else {
        let (expected, drifted) = (found.expected(), matches!(claim, Claim::Written(_)));
        return Ok(Step::Write { expected, mark: ownership != Ownership::Ours, adopted: false, drifted });
    };
    let equal = secret.content == *content;
    let ours = ownership != Ownership::Unowned || claim.is_of(found) || (claim != Claim::New && equal);
    if ours && let Some(rest) = undisturbed(found, &ownership, claim) {
        return Ok(Step::Wait(rest));
    }
    let mark = ours && ownership != Ownership::Ours && is_versioned(found);
    Ok(match (ours && equal, mark) {
        (true, false) => Step::Nothing,
        (true, true) => Step::Mark,
        (false, mark) => Step::Leave { ours, mark },
    })
}

/// Whether what should be there is what was written last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// It is, so another actor caused a difference.
    Same,
    /// It is not, or that is not known.
    Changed,
}

/// The plan for a path that is no longer desired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletionPlan {
    /// It is not there, or it is not ours: it is forgotten.
    Forget,
    /// Content without a mark differs from the record. It stays, and the operator reports it.
    Report,
    /// It is ours and deleted already: the mark goes.
    Unmark,
    /// It is ours: it is deleted, then the mark goes.
    Delete,
}

/// The plan for a path that is no longer desired. `content` is what an unfinished write would have made, if that is known.
///
/// Beneath the newest version there may be older ones, which every way of deleting but the soft one is for.
pub fn plan_deletion(
    found: &Found,
    owner: &Owner,
    claim: Claim,
    content: Option<&Content>,
    deletion: Deletion,
) -> DeletionPlan {
    let ours = match ownership(found, owner) {
        Ownership::Foreign(_) => return DeletionPlan::Forget,
        Ownership::Ours | Ownership::Predecessor => true,
        Ownership::Unowned => {
            let equal = matches!((found, content), (Found::Live(secret), Some(content)) if secret.content == *content);
            claim.is_of(found) || (claim != Claim::New && equal)
        }
    };
    match found {
        // It is recorded as ours and not known to be, so it must be reported.
        Found::Live(_) if !ours && !matches!(claim, Claim::New | Claim::Intended) => DeletionPlan::Report,
        _ if !ours => DeletionPlan::Forget,
        Found::Absent => DeletionPlan::Forget,
        Found::Deleted(_) if deletion == Deletion::Soft => DeletionPlan::Unmark,
        Found::Deleted(_) | Found::Live(_) => DeletionPlan::Delete,
    }
}

fn ownership(found: &Found, owner: &Owner) -> Ownership {
    let Some(metadata) = found.custom_metadata() else { return Ownership::Unowned };
    match (owner.ownership(metadata), other_keeper(metadata, owner)) {
        // The owner of a single key there would lose it.
        (Ownership::Unowned, Some(name)) => Ownership::Foreign(name),
        (ownership, _) => ownership,
    }
}

/// How long to wait for the mark of the content's writer. `None` if the content is older than that, or known to be ours.
fn undisturbed(found: &Found, ownership: &Ownership, claim: Claim) -> Option<Duration> {
    let Found::Live(secret) = found else { return None };
    let is_recorded = matches!(claim, Claim::Written(_)) && claim.is_of(found);
    let age = secret.version.as_ref()?.age.filter(|_| *ownership == Ownership::Unowned && !is_recorded)?;
    UNDISTURBED.checked_sub(age).filter(|rest| !rest.is_zero())
}

fn is_versioned(found: &Found) -> bool {
    found.custom_metadata().is_some()
}

#[cfg(test)]
mod tests;
