//! Routers of networks.

use konverge::remote::{Deletion, Failure, Mark, Remote};
use konverge_core::error::ErrorClass;
use konverge_openzro::{Collection, types::Router};
use serde_json::{Value, json};

use super::differing;
use crate::{account::Account, reasons};

/// The routers of an account. They have no field for a mark, and are found by their group of peers.
pub struct Routers(Account);

impl Routers {
    /// The routers of this account.
    pub fn new(account: Account) -> Self {
        Self(account)
    }

    fn collection(network: &str) -> Collection {
        Collection::Routers { network: network.to_owned() }
    }

    /// The routers with their networks.
    async fn placed(&self, scope: &str, routers: Vec<Router>) -> Result<Vec<RouterItem>, Failure> {
        let account = self.0.of(scope)?;
        let networks = account.networks_of(&routers, |router| &router.id, |network| &network.routers).await?;
        let place = |router: Router| {
            let network = networks.get(&router.id).cloned().unwrap_or_default();
            RouterItem::new(router, network)
        };
        Ok(routers.into_iter().map(place).collect())
    }
}

/// A router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterItem {
    id: String,
    /// The id of its network; empty if no network shows it.
    network: String,
    /// The id of its group, or of its peer if it has no group.
    name: String,
    is_of_one_group: bool,
    metric: i64,
    masquerade: bool,
    enabled: bool,
}

impl RouterItem {
    pub(crate) fn new(router: Router, network: String) -> Self {
        let is_of_one_group = router.peer.is_empty() && router.peer_groups.len() == 1;
        let name = router.peer_groups.into_iter().next().unwrap_or(router.peer);
        let (id, metric, masquerade, enabled) = (router.id, router.metric, router.masquerade, router.enabled);
        Self { id, network, name, is_of_one_group, metric, masquerade, enabled }
    }

    /// The id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The id of its network; empty if no network shows it.
    pub fn network(&self) -> &str {
        &self.network
    }

    /// Whether its peers are those of this group.
    pub fn is_of_group(&self, group: &str) -> bool {
        self.is_of_one_group && self.name == group
    }

    /// Whether it looks like the routers that the operator makes.
    pub(crate) fn is_like_ours(&self) -> bool {
        self.is_of_one_group && self.metric == METRIC && self.masquerade
    }
}

/// The desired content of a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredRouter {
    /// The id of the network.
    pub network: String,
    /// The id of the group of its peers.
    pub group: String,
}

/// The metric of the original, which gives other routers precedence.
const METRIC: i64 = 9999;

fn fields(desired: &DesiredRouter) -> Value {
    json!({ "enabled": true, "masquerade": true, "metric": METRIC, "peer": "", "peer_groups": [desired.group] })
}

impl Remote for Routers {
    type Item = RouterItem;
    type Desired = DesiredRouter;

    const NOUN: &'static str = "network router";
    const IS_MARKED: bool = false;

    async fn list(&self, scope: &str) -> Result<Vec<RouterItem>, Failure> {
        self.placed(scope, self.0.of(scope)?.list::<Router>(&Collection::AllRouters).await?).await
    }

    async fn get(&self, scope: &str, id: &str) -> Result<Option<RouterItem>, Failure> {
        // There is no route to a router whose network is not known, so the list that began now is the answer.
        Ok(self.list(scope).await?.into_iter().find(|router| router.id == id))
    }

    async fn create(&self, scope: &str, desired: &DesiredRouter, _: &Mark) -> Result<RouterItem, Failure> {
        let made = self.0.of(scope)?.create::<Router>(&Self::collection(&desired.network), fields(desired)).await;
        self.0.of(scope)?.forget_networks().await;
        Ok(RouterItem::new(made?.0, desired.network.clone()))
    }

    async fn update(
        &self,
        scope: &str,
        item: &RouterItem,
        desired: &DesiredRouter,
        _: &Mark,
    ) -> Result<RouterItem, Failure> {
        let place = Self::collection(&item.network).place(&item.id);
        Ok(RouterItem::new(self.0.of(scope)?.set(&place, fields(desired)).await?, item.network.clone()))
    }

    async fn delete(&self, scope: &str, item: &RouterItem) -> Result<Deletion, Failure> {
        if item.network.is_empty() {
            let message = format!("no network shows the router {}; it is tried again with a newer list", item.id);
            return Err(Failure::new(ErrorClass::Transient, reasons::NETWORK_UNKNOWN, message));
        }
        let deleted = self.0.of(scope)?.delete(&Self::collection(&item.network).place(&item.id)).await;
        self.0.of(scope)?.forget_networks().await;
        deleted
    }

    fn id(item: &RouterItem) -> &str {
        &item.id
    }

    fn name(item: &RouterItem) -> &str {
        &item.name
    }

    fn mark(_: &RouterItem) -> Option<Mark> {
        None
    }

    fn differences(item: &RouterItem, desired: &DesiredRouter, _: &Mark) -> Result<Vec<&'static str>, Failure> {
        if item.network != desired.network {
            let message = format!(
                "the router {} is in the network {:?} and is wanted in {}; delete it on the server",
                item.id, item.network, desired.network
            );
            return Err(Failure::refused(reasons::IN_OTHER_NETWORK, message));
        }
        Ok(differing([
            ("peer_groups", item.is_of_one_group && item.name == desired.group),
            ("metric", item.metric == METRIC),
            ("masquerade", item.masquerade),
            ("enabled", item.enabled),
        ]))
    }
}
