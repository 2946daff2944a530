//! Resources of networks.

use std::collections::BTreeSet;

use konverge::remote::{Deletion, Failure, Mark, Remote};
use konverge_core::error::ErrorClass;
use konverge_openzro::{Collection, types::Resource};
use serde_json::{Value, json};

use super::{differing, marked};
use crate::{account::Account, reasons};

/// The network resources of an account. The mark is in the description.
pub struct Resources(Account);

impl Resources {
    /// The network resources of this account.
    pub fn new(account: Account) -> Self {
        Self(account)
    }

    fn collection(network: &str) -> Collection {
        Collection::Resources { network: network.to_owned() }
    }

    /// The resources with their networks.
    async fn placed(&self, scope: &str, resources: Vec<Resource>) -> Result<Vec<ResourceItem>, Failure> {
        let account = self.0.of(scope)?;
        let networks = account.networks_of(&resources, |resource| &resource.id, |network| &network.resources).await?;
        let place = |resource: Resource| {
            let network = networks.get(&resource.id).cloned().unwrap_or_default();
            ResourceItem::new(resource, network)
        };
        Ok(resources.into_iter().map(place).collect())
    }
}

/// A network resource in normal form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceItem {
    id: String,
    /// The id of its network; empty if no network shows it.
    network: String,
    name: String,
    description: String,
    address: String,
    enabled: bool,
    groups: BTreeSet<String>,
}

impl ResourceItem {
    fn new(resource: Resource, network: String) -> Self {
        let groups = resource.groups.into_iter().map(|group| group.id).collect();
        let Resource { id, name, description, address, enabled, .. } = resource;
        Self { id, network, name, description, address, enabled, groups }
    }

    /// The id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The id of its network.
    pub fn network(&self) -> &str {
        &self.network
    }
}

/// The desired content of a network resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredResource {
    /// The id of the network.
    pub network: String,
    /// The name, unique in the account.
    pub name: String,
    /// The description, without the mark.
    pub description: String,
    /// The address in its [canonical](super::canonical) form.
    pub address: String,
    /// Ids of the groups.
    pub groups: BTreeSet<String>,
}

fn fields(desired: &DesiredResource, mark: &Mark) -> Value {
    let description = marked(&desired.description, mark);
    json!({ "name": desired.name, "description": description, "address": desired.address, "enabled": true,
        "groups": desired.groups })
}

impl Remote for Resources {
    type Item = ResourceItem;
    type Desired = DesiredResource;

    const NOUN: &'static str = "network resource";

    async fn list(&self, scope: &str) -> Result<Vec<ResourceItem>, Failure> {
        self.placed(scope, self.0.of(scope)?.list::<Resource>(&Collection::AllResources).await?).await
    }

    async fn get(&self, scope: &str, id: &str) -> Result<Option<ResourceItem>, Failure> {
        // There is no route to a resource whose network is not known, so the list that began now is the answer.
        Ok(self.list(scope).await?.into_iter().find(|resource| resource.id == id))
    }

    async fn create(&self, scope: &str, desired: &DesiredResource, mark: &Mark) -> Result<ResourceItem, Failure> {
        let made =
            self.0.of(scope)?.create::<Resource>(&Self::collection(&desired.network), fields(desired, mark)).await;
        self.0.of(scope)?.forget_networks().await;
        Ok(ResourceItem::new(made?.0, desired.network.clone()))
    }

    async fn update(
        &self,
        scope: &str,
        item: &ResourceItem,
        desired: &DesiredResource,
        mark: &Mark,
    ) -> Result<ResourceItem, Failure> {
        let place = Self::collection(&item.network).place(&item.id);
        let set = if item.network == desired.network {
            self.0.of(scope)?.set(&place, fields(desired, mark)).await
        } else {
            let moved =
                self.0.of(scope)?.relocate(&place, &Self::collection(&desired.network), fields(desired, mark)).await;
            self.0.of(scope)?.forget_networks().await;
            moved
        };
        Ok(ResourceItem::new(set?, desired.network.clone()))
    }

    async fn delete(&self, scope: &str, item: &ResourceItem) -> Result<Deletion, Failure> {
        if item.network.is_empty() {
            let message = format!("no network shows the resource {}; it is tried again with a newer list", item.name);
            return Err(Failure::new(ErrorClass::Transient, reasons::NETWORK_UNKNOWN, message));
        }
        let deleted = self.0.of(scope)?.delete(&Self::collection(&item.network).place(&item.id)).await;
        self.0.of(scope)?.forget_networks().await;
        deleted
    }

    fn id(item: &ResourceItem) -> &str {
        &item.id
    }

    fn name(item: &ResourceItem) -> &str {
        &item.name
    }

    fn mark(item: &ResourceItem) -> Option<Mark> {
        Mark::find_in(&item.description)
    }

    fn differences(item: &ResourceItem, desired: &DesiredResource, mark: &Mark) -> Result<Vec<&'static str>, Failure> {
        Ok(differing([
            ("network", item.network == desired.network),
            ("name", item.name == desired.name),
            ("description", item.description == marked(&desired.description, mark)),
            ("address", item.address == desired.address),
            ("enabled", item.enabled),
            ("groups", item.groups == desired.groups),
        ]))
    }
}
