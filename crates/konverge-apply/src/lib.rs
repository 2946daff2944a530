//! Writing to the cluster so that a repetition, a crash or a second writer does no harm.
//!
//! Begin with [`applier`], server-side apply of any object, and [`in_sync`], which finds without a request that an object is in sync. The
//! module [`desired`] has the children of an owner, with [`owners`] and [`mod@readiness`]. The modules [`status`] and [`conditions`]
//! report in the object itself, and [`events`] to people, without ever holding up the work; [`announce`] reports each thing once. The
//! small writes are [`delete`], [`metadata`] and the finalizers of [`Applier`]. The module [`read`] has the few questions that no cache
//! answers, and [`error`] says what a refusal means for the next attempt.
//!
//! For Secrets whose values must leave no copies behind there is [`secret`], with [`field_ownership`] for keys that an older program
//! wrote; a key that replicas share is a [`stored_key`]. Jobs that write outside the cluster keep a [`ledger`]. A cache that wants to know of our own writes is a [`write_observer`].
//!
//! Every write is for exactly the object that the caller saw, and carries its uid, its resource version or a test of the replaced
//! value. If the object is another one meanwhile, the write fails with [`ApplyError::Gone`] or [`ApplyError::OutOfDate`]. Nothing here
//! repeats a request: that is the work of the queue, which knows about all the others.

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
pub mod in_sync;
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
pub mod write_observer;

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
pub use secret::{CreatedSecret, Outcome, SecretApplier, SecretMetadata, SecretTarget};
pub use status::StatusWriter;
pub use write_observer::{WriteObserver, Writing};
