//! Groups.

use konverge::remote::{Deletion, Failure, Mark, Remote};
use konverge_openzro::{Collection, types::Group};
use serde_json::json;

use super::differing;
use crate::account::Account;

/// The groups of an account. They have no field for a mark, and are found by their name.
pub struct Groups(Account);

impl Groups {
    /// The groups of this account.
    pub fn new(account: Account) -> Self {
        Self(account)
    }

    /// The account.
    pub fn account(&self) -> &Account {
        &self.0
    }
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupItem {
    id: String,
    name: String,
    /// Not their number, which changes whenever a peer comes or goes.
    has_peers: bool,
}

impl GroupItem {
    /// The id.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl From<Group> for GroupItem {
    fn from(group: Group) -> Self {
        Self { has_peers: !group.peers.is_empty(), id: group.id, name: group.name }
    }
}

impl Remote for Groups {
    type Item = GroupItem;
    /// The name.
    type Desired = String;

    const NOUN: &'static str = "group";
    const IS_MARKED: bool = false;
    const HAS_FOREIGN_CONTENT: bool = true;

    async fn list(&self, scope: &str) -> Result<Vec<GroupItem>, Failure> {
        Ok(self.0.of(scope)?.list::<Group>(&Collection::Groups).await?.into_iter().map(Into::into).collect())
    }

    async fn get(&self, scope: &str, id: &str) -> Result<Option<GroupItem>, Failure> {
        Ok(self.0.of(scope)?.find::<Group>(&Collection::Groups.place(id)).await?.map(Into::into))
    }

    async fn create(&self, scope: &str, name: &String, _: &Mark) -> Result<GroupItem, Failure> {
        Ok(self.0.of(scope)?.create::<Group>(&Collection::Groups, json!({ "name": name })).await?.0.into())
    }

    async fn update(&self, scope: &str, item: &GroupItem, name: &String, _: &Mark) -> Result<GroupItem, Failure> {
        let place = Collection::Groups.place(&item.id);
        Ok(self.0.of(scope)?.set::<Group>(&place, json!({ "name": name })).await?.into())
    }

    async fn delete(&self, scope: &str, item: &GroupItem) -> Result<Deletion, Failure> {
        self.0.of(scope)?.delete(&Collection::Groups.place(&item.id)).await
    }

    fn id(item: &GroupItem) -> &str {
        &item.id
    }

    fn name(item: &GroupItem) -> &str {
        &item.name
    }

    fn mark(_: &GroupItem) -> Option<Mark> {
        None
    }

    fn differences(item: &GroupItem, name: &String, _: &Mark) -> Result<Vec<&'static str>, Failure> {
        Ok(differing([("name", item.name == *name)]))
    }

    fn foreign_content(item: &GroupItem) -> Option<String> {
        item.has_peers.then(|| "peers".to_owned())
    }
}
