//! The object of one run.

use std::time::Duration;

use crate::{failure::Failure, relations::Subject};

/// The object of one run: what is recorded on it, and how to write there.
pub trait Ledger: Send + Sync {
    /// The object.
    fn subject(&self) -> Subject;

    /// The uid of the object.
    fn uid(&self) -> &str;

    /// The name that tells this cluster from all others that use the same server.
    fn cluster(&self) -> &str;

    /// For how long the object has been in deletion; zero if it is not.
    fn deleting_for(&self) -> Duration;

    /// The text of the record, as the last write left it.
    fn record(&self) -> Option<String>;

    /// Whether the object has the finalizer.
    fn is_held(&self) -> bool;

    /// Writes the record, and the finalizer if `hold`, in one request.
    fn write(&self, record: &str, hold: bool) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Fails unless this process still leads.
    fn check_lease(&self) -> Result<(), Failure>;

    /// Whether nothing may be written anywhere.
    fn is_dry_run(&self) -> bool;

    /// Tells the readers of the object's events.
    fn publish(&self, event: ObjectEvent);
}

/// Something worth an event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectEvent {
    /// `Created`, `Updated`, `Adopted`, `Deleted`, `DeletionsStopped`, `HandedOver` or `LeftBehind`.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}
