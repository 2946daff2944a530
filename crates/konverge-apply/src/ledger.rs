//! The ledger on the object, for jobs that write to systems outside the cluster.
//!
//! The record of such a write is on the object, so it survives a crash, a failover and a second leader. These pieces are what jobs need besides
//! the record itself:
//!
//! - [`ClusterIdentity`]: the name of this cluster in the marks outside.
//!
//! - [`Journal`]: the record of many new objects in one write, until each object bears its own.
//!
//! - [`DeletionDeadline`]: how long a deletion waits for the system outside.
//!
//! - [`Drain`]: before an uninstall, the release of every object from the operator.
//!
//! Three more pieces need no IO, so they are in `konverge_core`. There, `revert_backoff` is the backoff against an actor that reverts our writes. The
//! module `claims` says which object has a thing that several want, and `reverse_index` finds the objects that refer to a thing.

mod deadline;
mod drain;
mod identity;
mod journal;

pub use deadline::{DeletionDeadline, deleting_for};
pub use drain::{Drain, DrainError, DrainedObject};
pub use identity::{CLUSTER_NAMESPACE, ClusterIdentity, Unnamed, cluster_uid};
pub use journal::{BatchData, Intention, Journal, JournalError, JournalOptions};
