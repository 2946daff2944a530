//! Why a key is in a work queue, in one word: in logs, spans and introspection.

/// An object has changed.
pub const OBJECT: &str = "object";
/// An object is in the first list, or in a list after a watch was broken.
pub const LISTED: &str = "listed";
/// The content of a source has changed, or it may not be read.
pub const SOURCE: &str = "source";
/// There is room in the budget.
pub const ROOM: &str = "room";
/// An object was changed by another client while the operator worked on it.
pub const CONTENDED: &str = "contended";
/// Something was reported about a workload of a trigger.
pub const WORKLOAD: &str = "workload";
