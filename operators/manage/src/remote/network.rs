//! Networks.

use konverge::remote::{Deletion, Failure, Mark, Remote};
use konverge_openzro::{Collection, types::Network};
use serde_json::json;

use super::{ORIGINAL_DESCRIPTION, differing, marked};
use crate::account::Account;

/// The networks of an account. The mark is in the description.
pub struct Networks(Account);

impl Networks {
    /// The networks of this account.
    pub fn new(account: Account) -> Self {
        Self(account)
    }

    /// Returns how many resources the network of a scope has now, and the ids of its routers. All of them go with the network. A network that is
    /// gone has none.
    pub async fn inside(&self, scope: &str, id: &str) -> Result<(usize, Vec<String>), Failure> {
        let network = self.0.of(scope)?.find::<Network>(&Collection::Networks.place(id)).await?;
        Ok(network.map_or((0, Vec::new()), |network| (network.resources.len(), network.routers)))
    }
}

/// A network, without its routers and resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkItem {
    id: String,
    name: String,
    description: String,
}

impl NetworkItem {
    /// The id.
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// The desired content of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredNetwork {
    /// The name.
    pub name: String,
}

impl From<Network> for NetworkItem {
    fn from(network: Network) -> Self {
        Self { id: network.id, name: network.name, description: network.description }
    }
}

impl Remote for Networks {
    type Item = NetworkItem;
    type Desired = DesiredNetwork;

    const NOUN: &'static str = "network";
    const NAMES_ARE_UNIQUE: bool = false;

    async fn list(&self, scope: &str) -> Result<Vec<NetworkItem>, Failure> {
        let networks = self.0.of(scope)?.networks().await?;
        Ok(networks.iter().cloned().map(Into::into).collect())
    }

    async fn get(&self, scope: &str, id: &str) -> Result<Option<NetworkItem>, Failure> {
        Ok(self.0.of(scope)?.find::<Network>(&Collection::Networks.place(id)).await?.map(Into::into))
    }

    async fn create(&self, scope: &str, desired: &DesiredNetwork, mark: &Mark) -> Result<NetworkItem, Failure> {
        let fields = json!({ "name": desired.name, "description": marked(ORIGINAL_DESCRIPTION, mark) });
        let made = self.0.of(scope)?.create::<Network>(&Collection::Networks, fields).await;
        self.0.of(scope)?.forget_networks().await;
        Ok(made?.0.into())
    }

    async fn update(
        &self,
        scope: &str,
        item: &NetworkItem,
        desired: &DesiredNetwork,
        mark: &Mark,
    ) -> Result<NetworkItem, Failure> {
        let fields = json!({ "name": desired.name, "description": marked(ORIGINAL_DESCRIPTION, mark) });
        let set = self.0.of(scope)?.set::<Network>(&Collection::Networks.place(&item.id), fields).await;
        self.0.of(scope)?.forget_networks().await;
        Ok(set?.into())
    }

    async fn delete(&self, scope: &str, item: &NetworkItem) -> Result<Deletion, Failure> {
        let deleted = self.0.of(scope)?.delete(&Collection::Networks.place(&item.id)).await;
        self.0.of(scope)?.forget_networks().await;
        deleted
    }

    async fn unmark(&self, scope: &str, item: &NetworkItem) -> Result<NetworkItem, Failure> {
        // The description of the original: the next routing peer takes the network over as one that an operator made.
        let fields = json!({ "description": ORIGINAL_DESCRIPTION });
        let set = self.0.of(scope)?.set::<Network>(&Collection::Networks.place(&item.id), fields).await;
        self.0.of(scope)?.forget_networks().await;
        Ok(set?.into())
    }

    fn id(item: &NetworkItem) -> &str {
        &item.id
    }

    fn name(item: &NetworkItem) -> &str {
        &item.name
    }

    fn mark(item: &NetworkItem) -> Option<Mark> {
        Mark::find_in(&item.description)
    }

    fn differences(item: &NetworkItem, desired: &DesiredNetwork, mark: &Mark) -> Result<Vec<&'static str>, Failure> {
        let has_mark = Self::mark(item).as_ref() == Some(mark);
        Ok(differing([("name", item.name == desired.name), ("description", has_mark)]))
    }

    fn is_of_former_operator(item: &NetworkItem) -> bool {
        item.description == ORIGINAL_DESCRIPTION
    }
}
