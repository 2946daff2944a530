//! Telling a cache of our own writes, so that the next look at it shows them and their echo on the watch is recognised.

use serde_json::Value;

use crate::object_name::ObjectName;

/// An observer of every write of an [`Applier`](crate::Applier), such as a cache. Called on the way of the write, so
/// nothing in it may wait. Not called in dry runs.
pub trait WriteObserver: Send + Sync {
    /// A request that may change this object is about to be sent. `api_version` is such as `apps/v1`.
    fn begin(&self, object: &ObjectName, api_version: &str) -> Box<dyn Writing>;
}

/// A write under way. Dropped without a word, its outcome is unknown: it failed, or the answer was lost.
pub trait Writing: Send {
    /// The API server answered with the object as it is now, changed or not.
    fn wrote(self: Box<Self>, object: &Value);

    /// The API server answered that the object with this uid is gone. Without a uid, no object of this name exists.
    fn deleted(self: Box<Self>, uid: Option<&str>);
}
