//! Children of kinds that a controller no longer owns: an earlier release made them, and the code of this one does not mention them.
//!
//! The kinds that a controller owns are recorded in an annotation of the Secret with the owner key. When a controller begins to work and the
//! annotation names a kind that the controller does not declare, it lists the children of that kind, once and as metadata, and wakes their
//! owners. The next run of such an owner observes these children along with its others, so the proof, the order and the
//! budget decide about them as about any child that is not wanted. A kind leaves the record when no child of it is left.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use konverge_apply::{
    owners::{MANAGED_BY, OWNER_UID, RETAINED, managed_by},
    read,
};
use konverge_core::error::in_one_line;
use konverge_gen::Access;
use konverge_runtime::object::{Object, Scope};
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
    discovery,
    error::DiscoveryError,
};

use crate::{error::Error, leading::Leading, owner_keys::OwnerKeys};

/// Between two looks at children that their owners have yet to delete. Grows up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_secs(600);

/// A child of a former kind, as far as it is known.
pub(crate) type FormerChild = PartialObjectMeta<DynamicObject>;

/// Where the children of an owner are: kind and namespace.
type Places = HashSet<(ApiResource, Option<String>)>;

/// By uid of the owner: where it has children of former kinds. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct FormerChildren(Arc<Mutex<HashMap<String, Places>>>);

impl FormerChildren {
    /// The places where this owner has children of former kinds. Mostly none.
    pub(crate) fn places(&self, owner_uid: &str) -> Places {
        self.lock().get(owner_uid).cloned().unwrap_or_default()
    }

    /// Forgets an owner whose children of former kinds are deleted.
    pub(crate) fn forget(&self, owner_uid: &str) {
        self.lock().remove(owner_uid);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Places>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the children of an owner in one of its [places](FormerChildren::places).
pub(crate) async fn children_at(
    client: &Client,
    kind: &ApiResource,
    namespace: Option<&str>,
    owner_uid: &str,
) -> Result<Vec<FormerChild>, kube::Error> {
    let parameters = ListParams::default().labels(&format!("{OWNER_UID}={owner_uid}"));
    read::pick(&api(client, kind, namespace), &parameters, Some).await
}

fn api(client: &Client, kind: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
    <DynamicObject as kube::Resource>::Scope::api(client.clone(), kind, namespace)
}

/// The kinds that a controller owns and owned.
pub(crate) struct Inventory {
    pub(crate) controller: String,
    pub(crate) field_manager: String,
    pub(crate) namespaces: Vec<String>,
    /// The kinds that the controller owns, as [`resource_name`] spells them.
    pub(crate) owned: BTreeSet<String>,
    /// The kinds that its author says it owned before.
    pub(crate) formerly_owned: BTreeSet<String>,
    pub(crate) client: Client,
    pub(crate) keys: OwnerKeys,
    pub(crate) leading: Leading,
    pub(crate) children: FormerChildren,
    /// Wakes the owner with this uid. Returns whether the controller knows it.
    pub(crate) wake: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

/// The result of listing a former kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// No child of the kind exists.
    Nothing,
    /// Children exist, of owners that this controller does not know, such as those of another controller or shard.
    OfOthers,
    /// Owners that this controller knows have children of the kind.
    OfOurs,
    /// The role does not allow to look.
    Forbidden,
}

/// The kinds to record after a look at the former ones, and whether to look again.
fn record(owned: &BTreeSet<String>, looks: &[(String, Found)]) -> (BTreeSet<String>, bool) {
    let left = looks.iter().filter(|(_, found)| *found != Found::Nothing).map(|(kind, _)| kind.clone());
    let is_unfinished = looks.iter().any(|(_, found)| matches!(found, Found::OfOurs | Found::Forbidden));
    (owned.iter().cloned().chain(left).collect(), is_unfinished)
}

impl Inventory {
    /// Looks for children of former kinds until there are none, and records the kinds. Never ends.
    pub(crate) async fn keep(self) {
        self.leading.begun().await;
        let mut pause = SHORTEST;
        loop {
            match self.look_once().await {
                Ok(false) => return std::future::pending().await,
                Ok(true) => {}
                Err(error) => {
                    tracing::warn!(
                        error = %in_one_line(&error),
                        controller = self.controller,
                        retry_after = ?pause,
                        "cannot look for children of kinds that the controller no longer owns"
                    );
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
        }
    }

    /// Looks at each former kind, wakes the owners of its children, and records the kinds. Returns whether to look again.
    async fn look_once(&self) -> Result<bool, Error> {
        let Some(recorded) = self.keys.recorded_kinds(&self.controller).await? else { return Ok(false) };
        let mut looks = Vec::new();
        for former in recorded.kinds.union(&self.formerly_owned).filter(|kind| !self.owned.contains(*kind)) {
            let found = self.look_at(former).await?;
            if found == Found::Forbidden {
                let controller = &self.controller;
                tracing::warn!(
                    controller,
                    kind = former,
                    "an earlier release owned children of this kind, and the role does not allow to delete them; add \
                     .formerly_owned(\"{former}\") to the controller and apply the generated role, or allow list and delete on {former}"
                );
            }
            looks.push((former.clone(), found));
        }
        let (kinds, is_unfinished) = record(&self.owned, &looks);
        let is_recorded = kinds == recorded.kinds || self.keys.record_kinds(&self.controller, recorded, &kinds).await?;
        Ok(is_unfinished || !is_recorded)
    }

    async fn look_at(&self, former: &str) -> Result<Found, Error> {
        let Some(kind) = self.served(former).await? else { return Ok(Found::Nothing) };
        let namespaces = match self.namespaces.as_slice() {
            [] => vec![None],
            namespaces => namespaces.iter().map(|namespace| Some(namespace.as_str())).collect(),
        };
        let parameters =
            ListParams::default().labels(&format!("{MANAGED_BY}={},{OWNER_UID}", managed_by(&self.field_manager)));
        let mut owners: HashMap<String, Places> = HashMap::new();
        for namespace in namespaces {
            let picked = |child: FormerChild| {
                let is_retained = child.annotations().contains_key(RETAINED);
                let owner = child.labels().get(OWNER_UID).filter(|_| !is_retained).cloned();
                owner.map(|owner| (owner, child.namespace()))
            };
            let found = match read::pick(&api(&self.client, &kind, namespace), &parameters, picked).await {
                Ok(found) => found,
                Err(kube::Error::Api(status)) if status.code == 403 => return Ok(Found::Forbidden),
                Err(error) => return Err(error.into()),
            };
            for (owner, namespace) in found {
                owners.entry(owner).or_default().insert((kind.clone(), namespace));
            }
        }
        let mut result = if owners.is_empty() { Found::Nothing } else { Found::OfOthers };
        for (owner, places) in owners {
            self.children.lock().entry(owner.clone()).or_default().extend(places);
            if (self.wake)(&owner) {
                result = Found::OfOurs;
            } else {
                self.children.forget(&owner);
            }
        }
        Ok(result)
    }

    /// How the API server serves a kind. `None` if it does not: without a definition there are no objects.
    async fn served(&self, kind: &str) -> Result<Option<ApiResource>, Error> {
        let (plural, group) = kind.split_once('.').unwrap_or((kind, ""));
        match discovery::group(&self.client, group).await {
            Ok(group) => {
                let resources = group.resources_by_stability().into_iter().map(|(resource, _)| resource);
                Ok(resources.into_iter().find(|resource| resource.plural == plural))
            }
            Err(kube::Error::Discovery(DiscoveryError::MissingApiGroup(_))) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The name of a kind as `kubectl` and definitions have it: `configmaps`, `deployments.apps`.
pub(crate) fn resource_name<K: Object>(kind: &K::DynamicType) -> String {
    let (plural, group) = (K::plural(kind), K::group(kind));
    if group.is_empty() { plural.into_owned() } else { format!("{plural}.{group}") }
}

/// Declares the access that pruning a former kind needs.
pub(crate) fn declare(kind: &str, access: &mut Access) {
    let (plural, group) = kind.split_once('.').unwrap_or((kind, ""));
    access.to_resource(group, plural, &["delete", "list"]);
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};

    use super::*;

    fn kinds(kinds: &[&str]) -> BTreeSet<String> {
        kinds.iter().map(|kind| (*kind).to_owned()).collect()
    }

    #[test]
    fn a_kind_is_recorded_until_no_child_of_it_is_left() {
        use Found::{Forbidden, Nothing, OfOthers, OfOurs};
        for (found, is_recorded, is_unfinished) in
            [(Nothing, false, false), (OfOthers, true, false), (OfOurs, true, true), (Forbidden, true, true)]
        {
            let looks = [("jobs.batch".to_owned(), Nothing), ("services".to_owned(), found)];
            let expected = if is_recorded { kinds(&["configmaps", "services"]) } else { kinds(&["configmaps"]) };
            assert_eq!(record(&kinds(&["configmaps"]), &looks), (expected, is_unfinished), "{found:?}");
        }
        assert_eq!(record(&kinds(&["configmaps"]), &[]), (kinds(&["configmaps"]), false));
    }

    #[test]
    fn kinds_are_named_as_their_definitions_are() {
        assert_eq!(resource_name::<Service>(&()), "services");
        assert_eq!(resource_name::<Deployment>(&()), "deployments.apps");
        let mut access = Access::default();
        declare("deployments.apps", &mut access);
        let mut expected = Access::default();
        expected.to::<Deployment>(&(), &["delete", "list"]);
        assert_eq!(access, expected);
    }
}
