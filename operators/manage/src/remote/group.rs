//! Groups.

use konverge::remote::{Deletion, Failure, Mark, Remote};
use konverge_openzro::Collection;
use serde::{Deserialize, Deserializer, de::IgnoredAny};
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

/// A group. It is read directly from the answer: a large account has thousands of groups, and their peers are most of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GroupItem {
    id: String,
    name: String,
    /// Not their number, which changes whenever a peer comes or goes.
    #[serde(default, rename = "peers", deserialize_with = "is_filled")]
    has_peers: bool,
}

/// Whether a list has entries. `null` has none.
fn is_filled<'de, D: Deserializer<'de>>(list: D) -> Result<bool, D::Error> {
    let entries = Option::<Vec<IgnoredAny>>::deserialize(list)?;
    Ok(entries.is_some_and(|entries| !entries.is_empty()))
}

impl GroupItem {
    /// The id.
    pub fn id(&self) -> &str {
        &self.id
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
        self.0.of(scope)?.list(&Collection::Groups).await
    }

    async fn get(&self, scope: &str, id: &str) -> Result<Option<GroupItem>, Failure> {
        self.0.of(scope)?.find(&Collection::Groups.place(id)).await
    }

    async fn create(&self, scope: &str, name: &String, _: &Mark) -> Result<GroupItem, Failure> {
        Ok(self.0.of(scope)?.create(&Collection::Groups, json!({ "name": name })).await?.0)
    }

    async fn update(&self, scope: &str, item: &GroupItem, name: &String, _: &Mark) -> Result<GroupItem, Failure> {
        let place = Collection::Groups.place(&item.id);
        self.0.of(scope)?.set(&place, json!({ "name": name })).await
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn of_the_peers_of_a_group_only_their_presence_is_kept() {
        let peer = json!({ "id": "p", "name": "laptop" });
        for (peers, has_peers) in [(Value::Null, false), (json!([]), false), (json!([peer]), true)] {
            let group = json!({ "id": "g", "name": "n", "peers": peers, "peers_count": 1, "resources": null });
            let group: GroupItem = serde_json::from_value(group).unwrap();
            assert_eq!(group, GroupItem { id: "g".to_owned(), name: "n".to_owned(), has_peers });
        }
        let without: GroupItem = serde_json::from_value(json!({ "id": "g", "name": "n" })).unwrap();
        assert!(!without.has_peers);
        // A server that shows peers in another form shows nobody that the group is empty.
        assert!(serde_json::from_value::<GroupItem>(json!({ "id": "g", "name": "n", "peers": 3 })).is_err());
    }
}
