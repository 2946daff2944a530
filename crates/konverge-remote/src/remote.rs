//! The trait that an author implements for a kind of items on a server.

use crate::{failure::Failure, mark::Mark};

/// A collection of items on a server: how to call the server, and how to read an item.
///
/// The calls are IO, and each has a deadline of its own. The readers are pure. Rate limits, credentials and a circuit breaker belong beneath the
/// calls, such as in `konverge-endpoint`.
pub trait Remote: Send + Sync + 'static {
    /// An item as the server shows it. Leave out fields that change all the time: each difference wakes the objects concerned.
    type Item: Clone + PartialEq + Send + Sync + 'static;
    /// The desired content of an item.
    type Desired: Send + Sync;

    /// The word for an item in messages, such as `bucket`.
    const NOUN: &'static str;

    /// Whether the server keeps two items of one scope from having the same name.
    const NAMES_ARE_UNIQUE: bool = true;

    /// Whether items bear a [`Mark`]. Kinds without a field for it are found again by their unique name.
    const IS_MARKED: bool = true;

    /// Whether others can put something into an item; see [`foreign_content`](Self::foreign_content). The layer reads such an
    /// item alone before it deletes the item, because a list is up to two intervals old.
    const HAS_FOREIGN_CONTENT: bool = false;

    /// Lists all items of a scope.
    fn list(&self, scope: &str) -> impl Future<Output = Result<Vec<Self::Item>, Failure>> + Send;

    /// Returns the item with this id, or `None` if the server itself says that there is none. A 404 of a proxy is a failure.
    fn get(&self, scope: &str, id: &str) -> impl Future<Output = Result<Option<Self::Item>, Failure>> + Send;

    /// Creates an item that bears the mark, and returns it as the server shows it.
    fn create(
        &self,
        scope: &str,
        desired: &Self::Desired,
        mark: &Mark,
    ) -> impl Future<Output = Result<Self::Item, Failure>> + Send;

    /// Makes the item as desired and returns it as the server shows it. Fields that nobody asked to change stay.
    fn update(
        &self,
        scope: &str,
        item: &Self::Item,
        desired: &Self::Desired,
        mark: &Mark,
    ) -> impl Future<Output = Result<Self::Item, Failure>> + Send;

    /// Deletes the item. An item that is gone already is no failure.
    fn delete(&self, scope: &str, item: &Self::Item) -> impl Future<Output = Result<Deletion, Failure>> + Send;

    /// Takes the mark off the item, which otherwise stays as it is, and returns it as the server shows it. Only needed for
    /// [`Remotes::hand_over`](crate::Remotes::hand_over). An item without a mark must be one that the next object may take over, for example as one of a
    /// [former operator](Self::is_of_former_operator).
    fn unmark(&self, scope: &str, item: &Self::Item) -> impl Future<Output = Result<Self::Item, Failure>> + Send {
        let _ = (scope, item);
        std::future::ready(Err(Failure::permanent("NotShared", format!("a {} cannot be handed over", Self::NOUN))))
    }

    /// The id that the server gave the item.
    fn id(item: &Self::Item) -> &str;

    /// The name of the item.
    fn name(item: &Self::Item) -> &str;

    /// Returns the name by which [`Binding::names`](crate::Binding::names) permits the item. The default is the name.
    fn name_for_rules(item: &Self::Item) -> &str {
        Self::name(item)
    }

    /// The mark that the item bears. Always `None` for kinds without one.
    fn mark(item: &Self::Item) -> Option<Mark>;

    /// Whether the item is in use or on its way out.
    fn life(item: &Self::Item) -> Life {
        let _ = item;
        Life::Active
    }

    /// Returns the names of the fields in which the item differs from the desired one, in normal form: order, spelling and server defaults do not
    /// count. A failure says that the item cannot become as desired, for example because a field cannot be changed.
    fn differences(item: &Self::Item, desired: &Self::Desired, mark: &Mark) -> Result<Vec<&'static str>, Failure>;

    /// Whether an item without a mark was made by a former operator of the same objects, if the status of an object has its id. It then counts as
    /// made for that object, and not as adopted.
    fn is_of_former_operator(item: &Self::Item) -> bool {
        let _ = item;
        false
    }

    /// Returns what others have put into the item, such as `3 peers`. An item with such content is left behind instead of deleted, unless
    /// [`Binding::deletes_foreign_content`](crate::Binding::deletes_foreign_content) says otherwise. Set
    /// [`HAS_FOREIGN_CONTENT`](Self::HAS_FOREIGN_CONTENT), too.
    fn foreign_content(item: &Self::Item) -> Option<String> {
        let _ = item;
        None
    }
}

/// Whether an item is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Life {
    /// It is in use.
    Active,
    /// The server is deleting it.
    Deleting,
}

/// The answer to a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deletion {
    /// The item is gone.
    Gone,
    /// The server has begun to delete it. The list tells when it is gone.
    Begun,
}
