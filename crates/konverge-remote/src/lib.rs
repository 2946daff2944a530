//! Objects that stand for objects on a server: "this custom resource is that bucket in the cloud".
//!
//! ```text
//! Remote  (yours)   list, get, create, update, delete, and how to read an item
//!    │
//! Collection        one list per scope and interval for all objects; own writes pass through it; its differences wake objects
//!    │
//! plan    (pure)    object's binding, record, list, claims  →  one step
//!    │
//! Remotes           takes the steps: record first, then the call, then the list
//! ```
//!
//! This crate knows neither Kubernetes nor HTTP. The feature `remote` of `konverge` connects it with a controller: there, the record is an
//! annotation, and the id is in the status.
//!
//! # Guarantees
//!
//! - Before the first create, the finalizer and the intent are on the object, in one write. After a lost reply or a crash the next run looks
//!   the item up, by its mark or its unique name, in a list that began later than the create. It never creates a second item for that.
//!
//! - An item is written only if it differs from the desired one, as [`Remote::differences`] compares them.
//!
//! - An item with the mark of another object or another cluster is never written or deleted. An adopted item survives its object.
//!
//! - The id in the status and the record each suffice when the other is lost. A record that was copied from another object counts for nothing.
//!
//! - A budget limits deletions that come together. The others wait until a person approves them: see [`Deletions`].
//!
//! - A failed call, an empty list or a missing item never leads to a deletion. Before an item counts as gone, the server has said so twice:
//!   in the list, and when asked for the item alone.
//!
//! # Limits
//! - A kind without a mark is found again by its name. If another client creates an item of the wanted name after the list and before the
//!   create, and if the reply to the create is lost, that item counts as ours. Override [`Remote::foreign_content`] to keep such an item.
//! - What others put into an item between the last look at it and its deletion goes with it. The look comes directly before the deletion.
//! - A request that left this process before it lost its lease may arrive later. [`Settings::settle`] is the time to wait for it.
//!
//! # Reading order
//! [`Remote`] → [`Binding`] → `plan` → [`Record`] → [`Remotes`] → `collection`, `relations`.

mod binding;
mod collection;
mod deletions;
mod driver;
mod failure;
mod ledger;
mod mark;
mod memory;
mod plan;
mod record;
mod relations;
mod remote;
mod run;

pub use binding::{Adoption, Binding, DeletionPolicy};
pub use collection::Items;
pub use deletions::Deletions;
pub use driver::{Figures, Finalized, Remotes, Settings, SyncedItem};
pub use failure::Failure;
pub use ledger::{Ledger, ObjectEvent};
pub use mark::Mark;
pub use memory::LeftBehind;
pub use plan::{Facts, Step, hand_over, plan};
pub use record::{Entry, Origin, Record};
pub use relations::{Interest, Subject};
pub use remote::{Deletion, Life, Remote};
