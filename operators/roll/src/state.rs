//! The state of one workload and of one source, and the snapshot of both that a plan is made of. No lock, no IO.

pub mod revert_guard;
pub mod snapshot;
pub mod source;
pub mod workload;

pub use snapshot::Snapshot;
pub use source::{Read, SourceChange, SourceState};
pub use workload::WorkloadState;
