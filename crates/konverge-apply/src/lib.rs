//! Writing to the cluster so that a repetition, a crash or a second writer does no harm.
//!
//! Read in this order: [`applier`], server-side apply of any object, and [`in_step`], how it is known without a request that there
//! is nothing to do; [`desired`], the children of an owner, with [`owners`] and [`mod@readiness`]; [`status`] and [`conditions`], what is
//! told about an object in the object; [`events`], telling people without ever holding up the work, and [`announce`], telling them
//! each thing once; [`delete`], [`metadata`] and
//! the finalizers of [`Applier`], the small writes; [`read`], the few questions that no cache answers; [`error`], what a refusal
//! means for the next attempt.
//!
//! For Secrets whose values must leave no copies behind there is [`secret`], with [`field_ownership`] for keys that an older program
//! wrote; a key that replicas share is a [`stored_key`]. Jobs that write outside the cluster keep a [`ledger`]. A cache that wants to know of our own writes is a [`witness`].
//!
//! Every write is for exactly the object that the caller saw: uid, resource version or a test of what is replaced go with it, and
//! [`ApplyError::Gone`] or [`ApplyError::OutOfDate`] say that it was not that one any more. Nothing here repeats a request: that is the
//! work of the queue, which knows about all the others.

mod altered;
mod annotation_sizes;
pub mod announce;
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
pub mod ledger;
pub mod metadata;
mod object;
mod object_name;
mod own_part;
pub mod owners;
pub mod read;
pub mod readiness;
pub mod secret;
pub mod status;
pub mod stored_key;
mod undeclared;
pub mod witness;

pub use altered::AlteredField;
pub use announce::{Announcer, Severity, Statement};
pub use applier::{Applied, Applier, ApplyOutcome};
pub use conditions::{ConditionStatus, Conditions, Moment, Reason};
pub use delete::Deletion;
pub use desired::{ChildOptions, DeleteBudget, DesiredSet, Recognition, SetError, SetReport};
pub use difference::Difference;
pub use error::ApplyError;
pub use metadata::{Metadata, MetadataChange};
pub use object::Writable;
pub use object_name::ObjectName;
pub use owners::{Owner, OwnerKey, controller_ref, owner_ref};
pub use readiness::{Readiness, readiness};
pub use secret::{Outcome, SecretApplier, SecretTarget};
pub use status::StatusWriter;
pub use witness::{Witness, Writing};
