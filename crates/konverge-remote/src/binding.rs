//! The item that an object stands for, and what may happen to it.

use std::time::Duration;

use konverge_core::allow::Pattern;

use crate::record::Origin;

/// Which item on the server an object stands for. Made by the author from the object alone, without a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
#[non_exhaustive]
pub struct Binding {
    /// The part of the object, if it stands for several items of one collection; empty for the only one.
    pub part: String,
    /// The account or tenant whose list has the item; empty if there is only one.
    pub scope: String,
    /// The name of the item on the server.
    pub name: String,
    /// The id in the status of the object, if there is one.
    pub id: Option<String>,
    /// Whether that id proves, also without a mark and a record, that the item was made for the object: for objects of a former operator that
    /// wrote only ids of items that it had made.
    pub id_is_proof: bool,
    /// Whether an item that somebody else made may be taken over.
    pub adoption: Adoption,
    /// Whether an adopted item is only observed: it is never updated.
    pub observe_adopted: bool,
    /// The names of items that the object may use; `None` for all. No status, record or adoption leads to an item of another name, unless the item
    /// has the object's mark.
    pub names: Option<Vec<Pattern>>,
    /// The fate of the item when the object is deleted.
    pub deletion: DeletionPolicy,
    /// Whether the item is deleted although others have put something into it; see [`Remote::foreign_content`](crate::Remote::foreign_content).
    pub deletes_foreign_content: bool,
    /// Whether another item has taken the place of this one, so that its deletion needs no approval; see [`Deletions`](crate::Deletions).
    pub is_replaced: bool,
    /// The time after which a deletion is given up. The object goes, and the item is [left behind](crate::LeftBehind). Without a limit, the
    /// object waits until the item is gone.
    pub deletion_deadline: Option<Duration>,
}

impl Binding {
    /// The item of this name: it is created if there is none, nothing is adopted, and it is deleted with the object.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Whether an item of this origin stays on the server when the object is deleted.
    pub fn leaves(&self, origin: Origin) -> bool {
        match self.deletion {
            DeletionPolicy::Orphan => true,
            DeletionPolicy::Delete => origin == Origin::Adopted,
            DeletionPolicy::DeleteAdopted => false,
        }
    }

    /// Returns `true` if the object may use an item of this name.
    pub(crate) fn permits(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.iter().any(|pattern| pattern.matches(name)))
    }

    /// The name, and the id of an item to adopt: what two objects cannot both have.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &str> {
        let id = if let Adoption::ById(id) = &self.adoption { Some(id.as_str()) } else { None };
        [self.name.as_str()].into_iter().chain(id)
    }

    /// Changes it.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// Whether an item that somebody else made may be taken over. An item with the mark of another object or cluster never is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Adoption {
    /// Never.
    #[default]
    Never,
    /// The only item of the wanted name.
    ByName,
    /// The item with this id. If there is none, nothing is created in its place.
    ById(String),
}

/// The fate of the item when its object is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeletionPolicy {
    /// An item that was made for the object is deleted; an adopted one stays.
    #[default]
    Delete,
    /// The item is deleted even if it was adopted.
    DeleteAdopted,
    /// The item stays, and the object is released at once, also while the server is away.
    Orphan,
}
