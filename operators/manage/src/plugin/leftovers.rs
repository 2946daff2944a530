//! Items of openZro with the mark of this cluster whose objects do not exist.
//!
//! An item is left over if it bears the mark of an object of this cluster, and that object does not exist. The mark must not say that the item stays,
//! and no object may mention its id. Groups, routers and DNS records bear no mark, so they are never left over. The objects are those of all accounts,
//! and the items those of one.
//!
//! A router goes with its network, though, and only the group of its peers tells whether the operator made it: see `groups_of_peers`.

use std::collections::BTreeSet;

use konverge::{
    RECORD,
    kube::{ResourceExt, core::DynamicObject},
    remote::{self, Mark, Record, Remote},
};
use konverge_kubectl::{Cluster, Failure, Kind, Leftover};
use serde_json::Value;

use super::{health::record, server};
use crate::{
    annotations::ADOPT,
    remote::{GroupItem, Groups, Networks, Policies, Resources, RouterItem, Routers, SetupKeyItem, SetupKeys},
};

/// Lists leftovers, and deletes them on request: all of them, or those with these ids.
pub(super) async fn leftovers(
    cluster: &Cluster,
    kinds: &[Kind],
    only: &[String],
    delete: bool,
) -> Result<Vec<Leftover>, Failure> {
    let (account, config) = server::own(cluster, Some(&cluster.namespace)).await?;
    let name = server::cluster_name(cluster, &config).await?;
    let (policies, resources) = (Policies::new(account.clone()), Resources::new(account.clone()));
    let (keys, networks) = (SetupKeys::new(account.clone()), Networks::new(account.clone()));
    let (of_policies, of_resources) = (all(&policies).await?, all(&resources).await?);
    let (of_keys, of_networks) = (all(&keys).await?, all(&networks).await?);
    let of_groups = all(&Groups::new(account.clone())).await?;
    // The objects come last: the object of an item that is made meanwhile is among them.
    let objects = Objects::read(cluster, kinds).await?;

    let of_policies = left_over::<Policies>(of_policies, &name, &objects);
    let of_resources = left_over::<Resources>(of_resources, &name, &objects);
    let of_keys = left_over::<SetupKeys>(of_keys, &name, &objects);
    let of_networks = left_over::<Networks>(of_networks, &name, &objects);
    let found = [ids::<Policies>(&of_policies), ids::<Resources>(&of_resources), ids::<SetupKeys>(&of_keys)];
    let found: BTreeSet<String> = found.into_iter().flatten().chain(ids::<Networks>(&of_networks)).collect();
    if let Some(unknown) = only.iter().find(|id| !found.contains(*id)) {
        return Err(Failure::Failed(format!(
            "there is no leftover with the id {unknown:?}, so nothing was deleted; kubectl konverge leftovers lists them"
        )));
    }
    let run = Run { only, delete };
    let mut told = run.leftovers(&policies, of_policies, None).await;
    told.extend(run.leftovers(&resources, of_resources, None).await);
    let groups = groups_of_peers(&of_keys, &of_groups);
    let inside = Inside { networks: &networks, routers: Routers::new(account), groups, objects: &objects };
    // Before the keys: if this is interrupted, they still tell the routers of the operator from others.
    told.extend(run.leftovers(&networks, of_networks, Some(&inside)).await);
    told.extend(run.leftovers(&keys, of_keys, None).await);
    Ok(told)
}

/// The content of networks, which goes with them.
struct Inside<'a> {
    networks: &'a Networks,
    routers: Routers,
    /// The ids of the groups that the operator made for the peers of routers.
    groups: BTreeSet<String>,
    objects: &'a Objects,
}

impl Inside<'_> {
    /// Why the network is in use now, or `None`.
    async fn use_of(&self, id: &str) -> Result<Option<String>, remote::Failure> {
        let resources = self.networks.inside("", id).await?.0;
        Ok(use_of_network(id, resources, &self.routers.list("").await?, &self.groups, self.objects))
    }
}

async fn all<R: Remote>(remote: &R) -> Result<Vec<R::Item>, Failure> {
    let items = remote.list("").await;
    items.map_err(|failure| Failure::Failed(format!("cannot list each {} of openZro: {failure}", R::NOUN)))
}

/// The custom resources of the cluster.
#[derive(Default)]
struct Objects {
    /// Their uids, as marks have them.
    uids: BTreeSet<String>,
    /// Every text of their specs, statuses and records. The ids of the items that they use are among them.
    texts: BTreeSet<String>,
}

impl Objects {
    /// Reads all of them. Without all of them, nothing counts as left over.
    async fn read(cluster: &Cluster, kinds: &[Kind]) -> Result<Self, Failure> {
        let mut objects = Self::default();
        for kind in kinds {
            for object in cluster.list(kind, None).await? {
                objects.add(&object);
            }
        }
        Ok(objects)
    }

    fn add(&mut self, object: &DynamicObject) {
        self.uids.extend(object.uid().map(|uid| Mark::new("c", &uid, "").uid().to_owned()));
        self.add_texts(&object.data);
        self.texts.extend(object.annotations().get(ADOPT).cloned());
        if object.annotations().contains_key(RECORD) {
            let record = record(object);
            let entries = record.iter().flat_map(|record| record.parts().filter_map(|part| Record::part(record, part)));
            self.texts.extend(entries.filter_map(|entry| entry.id.clone()));
        }
    }

    fn add_texts(&mut self, value: &Value) {
        match value {
            Value::String(text) => drop(self.texts.insert(text.clone())),
            Value::Array(values) => values.iter().for_each(|value| self.add_texts(value)),
            Value::Object(fields) => fields.values().for_each(|value| self.add_texts(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Whether an item with this id and mark is left over.
fn is_left_over(id: &str, mark: &Mark, cluster: &str, objects: &Objects) -> bool {
    mark.cluster() == Mark::new(cluster, "", "").cluster()
        && !mark.stays()
        && !objects.uids.contains(mark.uid())
        && !objects.texts.contains(id)
}

fn left_over<R: Remote>(items: Vec<R::Item>, cluster: &str, objects: &Objects) -> Vec<(R::Item, Mark)> {
    let marked = items.into_iter().filter_map(|item| R::mark(&item).map(|mark| (item, mark)));
    marked.filter(|(item, mark)| is_left_over(R::id(item), mark, cluster, objects)).collect()
}

fn ids<R: Remote>(items: &[(R::Item, Mark)]) -> Vec<String> {
    items.iter().map(|(item, _)| R::id(item).to_owned()).collect()
}

/// Returns the ids of the groups that the operator made for the peers of routers: a setup key that is left over puts its peers into the group that
/// has the name of the key. Its other groups are those of people.
fn groups_of_peers(keys: &[(SetupKeyItem, Mark)], groups: &[GroupItem]) -> BTreeSet<String> {
    let is_of_key = |group: &&GroupItem| {
        let (id, name) = (group.id(), Groups::name(group));
        keys.iter().any(|(key, _)| SetupKeys::name(key) == name && key.auto_groups().contains(id))
    };
    groups.iter().filter(is_of_key).map(|group| group.id().to_owned()).collect()
}

/// Why a network is in use, or `None`. The router that the operator made goes with the network; those of people and of other objects do not. A
/// router bears no mark, and people make theirs with the same settings, so it counts as the operator's only with one of these `groups`.
fn use_of_network(
    id: &str,
    resources: usize,
    routers: &[RouterItem],
    groups: &BTreeSet<String>,
    objects: &Objects,
) -> Option<String> {
    let is_own = |router: &RouterItem| {
        let has_own_peers = groups.iter().any(|group| router.is_of_group(group));
        router.is_like_ours() && has_own_peers && !objects.texts.contains(router.id())
    };
    let routers = routers.iter().filter(|router| router.network() == id && !is_own(router)).count();
    (resources + routers > 0).then(|| {
        format!(
            "it has {resources} resources and {routers} routers that are in use or that others made; delete them first"
        )
    })
}

/// The action that the person requests.
struct Run<'a> {
    only: &'a [String],
    delete: bool,
}

impl Run<'_> {
    /// Returns the items of a collection as leftovers. Deletes them on request. `inside` is for networks.
    async fn leftovers<R: Remote>(
        &self,
        remote: &R,
        items: Vec<(R::Item, Mark)>,
        inside: Option<&Inside<'_>>,
    ) -> Vec<Leftover> {
        let mut told = Vec::new();
        for (item, mark) in items {
            if !self.only.is_empty() && !self.only.iter().any(|id| id == R::id(&item)) {
                continue;
            }
            let outcome =
                if self.delete { remove(remote, &item, &mark, inside).await.map(|()| true) } else { Ok(false) };
            told.push(Leftover {
                item: format!("{} {} ({})", R::NOUN, R::name(&item), R::id(&item)),
                uid: mark.uid().to_owned(),
                is_deleted: *outcome.as_ref().unwrap_or(&false),
                error: outcome.err(),
            });
        }
        told
    }
}

/// Deletes an item that still bears the mark and is not in use.
async fn remove<R: Remote>(remote: &R, item: &R::Item, mark: &Mark, inside: Option<&Inside<'_>>) -> Result<(), String> {
    let say = |failure: remote::Failure| failure.to_string();
    let Some(now) = remote.get("", R::id(item)).await.map_err(say)? else { return Ok(()) };
    if R::mark(&now).as_ref() != Some(mark) {
        return Err("somebody has changed its mark meanwhile".to_owned());
    }
    if let Some(inside) = inside
        && let Some(why) = inside.use_of(R::id(&now)).await.map_err(say)?
    {
        return Err(why);
    }
    remote.delete("", &now).await.map(drop).map_err(say)
}

#[cfg(test)]
mod tests {
    use konverge_openzro::types::{Router, SetupKey};
    use serde_json::json;

    use super::*;

    fn objects() -> Objects {
        let record = json!({ "cluster": "c", "uid": "live", "parts": { "policy/tcp": { "origin": "made", "name": "p", "id": "recorded" } } });
        let object = json!({ "apiVersion": "openzro.io/v1", "kind": "OZResource",
            "metadata": { "name": "a", "uid": "live", "annotations": { RECORD: record.to_string(), ADOPT: "adopted" } },
            "spec": { "networkID": "in-spec" }, "status": { "policies": { "tcp": "in-status" }, "number": 1, "none": null } });
        let mut objects = Objects::default();
        objects.add(&serde_json::from_value(object).unwrap());
        objects
    }

    #[test]
    fn only_a_marked_item_without_an_object_or_a_mention_is_left_over() {
        let mark = |cluster: &str, uid: &str| Mark::new(cluster, uid, "tcp");
        for (id, mark, expected) in [
            ("i", mark("c", "gone"), true),
            ("i", mark("c", "live"), false),
            ("i", mark("other", "gone"), false),
            ("i", mark("c", "gone").with_stay(true), false),
            ("in-spec", mark("c", "gone"), false),
            ("in-status", mark("c", "gone"), false),
            ("recorded", mark("c", "gone"), false),
            ("adopted", mark("c", "gone"), false),
        ] {
            assert_eq!(is_left_over(id, &mark, "c", &objects()), expected, "{id} {mark}");
        }
    }

    fn key(name: &str, groups: &[&str]) -> (SetupKeyItem, Mark) {
        let mark = Mark::new("c", "gone", "");
        let key = json!({ "id": "k", "name": format!("{name} {mark}"), "auto_groups": groups });
        (serde_json::from_value::<SetupKey>(key).unwrap().into(), mark)
    }

    #[test]
    fn a_group_of_peers_has_the_name_of_a_key_that_is_left_over_and_is_one_of_its_groups() {
        let groups = [("g1", "prod"), ("g2", "devs"), ("g3", "prod"), ("g4", "networkrouter-n1-0a1b")];
        let groups = groups.map(|(id, name)| serde_json::from_value(json!({ "id": id, "name": name })).unwrap());
        for (keys, expected) in [
            (vec![], vec![]),
            // People name groups for peers to join, too, and more than one group can have a name.
            (vec![key("prod", &["g1", "g2"])], vec!["g1"]),
            (vec![key("prod", &["g2"])], vec![]),
            (vec![key("prod", &["g1"]), key("networkrouter-n1-0a1b", &["g4"])], vec!["g1", "g4"]),
        ] {
            let found = groups_of_peers(&keys, &groups);
            assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{keys:?}");
        }
    }

    #[test]
    fn a_network_with_anything_of_others_is_in_use() {
        let router = |id: &str, network: &str, change: Value| {
            let mut router =
                json!({ "id": id, "peer_groups": ["g"], "metric": 9999, "masquerade": true, "enabled": true });
            router.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            RouterItem::new(serde_json::from_value::<Router>(router).unwrap(), network.to_owned())
        };
        let own = BTreeSet::from(["g".to_owned()]);
        for (resources, routers, is_used) in [
            (0, vec![], false),
            (0, vec![router("r", "n", json!({}))], false),
            (1, vec![], true),
            (0, vec![router("in-status", "n", json!({}))], true),
            (0, vec![router("r", "n", json!({ "metric": 100 }))], true),
            (0, vec![router("r", "n", json!({ "peer": "p", "peer_groups": null }))], true),
            // As people make them in the dashboard, which has the same settings.
            (0, vec![router("r", "n", json!({ "peer_groups": ["devs"] }))], true),
            (0, vec![router("r", "n", json!({ "peer_groups": ["g", "devs"] }))], true),
            (0, vec![router("r", "other", json!({ "metric": 100 }))], false),
        ] {
            let found = use_of_network("n", resources, &routers, &own, &objects());
            assert_eq!(found.is_some(), is_used, "{routers:?}");
        }
        let unknown = use_of_network("n", 0, &[router("r", "n", json!({}))], &BTreeSet::new(), &objects());
        assert!(unknown.is_some(), "nothing tells whose router it is");
    }
}
