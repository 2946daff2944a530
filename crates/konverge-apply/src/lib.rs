//! Writing to the cluster so that a repetition, a crash or a second writer does no harm.
//!
//! Read in this order: [`secret`], server-side apply of exactly the keys that are wanted; [`field_ownership`], which keys are
//! ours and how those that an older program wrote become ours; [`error`], what a refusal means for the next attempt;
//! [`events`], telling people without ever holding up the work.

pub mod applier;
mod body;
mod call;
pub mod conditions;
pub mod delete;
pub mod desired;
pub mod difference;
pub mod error;
pub mod events;
pub mod field_ownership;
mod finalizers;
pub mod in_step;
mod object;
pub mod owners;
pub mod readiness;
pub mod secret;
pub mod status;
pub mod witness;

pub use applier::{Applied, Applier, ApplyOutcome};
pub use conditions::{ConditionStatus, Conditions, Moment, Reason};
pub use delete::Deletion;
pub use desired::{DeleteBudget, DesiredSet, SetError, SetReport};
pub use difference::Difference;
pub use error::ApplyError;
pub use object::{ObjectName, Writable};
pub use owners::{Owner, controller_ref, owner_ref};
pub use readiness::{Readiness, readiness};
pub use secret::{Outcome, SecretApplier, SecretTarget};
pub use status::StatusWriter;
pub use witness::{Witness, Writing};
