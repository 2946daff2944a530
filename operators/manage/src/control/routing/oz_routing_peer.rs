//! `OZRoutingPeer`: the network of the cluster or a namespace, and its routing peers.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::apps::v1::Deployment;
use konverge::{
    Watch,
    apply::Owner,
    kube::{ResourceExt, api::ObjectMeta},
    prelude::{Action, Cleanup, Context, Controller, Error, ObjectKey, Reconcile},
    remote::{Adoption, Binding, DeletionPolicy, Interest, Step},
};
use konverge_core::names::few;

use super::{
    children, exemption,
    workload::{self, Wishes, Workload},
};
use crate::{
    annotations,
    api::v1::{OZGroup, OZGroupSpec, OZResource, OZResourceSpec, OZRoutingPeer},
    collections::Collections,
    control::setup_key::{self, Place},
    reasons::Why,
    remote::{DesiredNetwork, DesiredRouter, DesiredSetupKey},
    settings::Settings,
};

/// The finalizer, which is the original's.
const FINALIZER: &str = "openzro.io/cleanup";
/// Annotation: the ids of networks that the object had before, separated by commas. Resources that name one of them follow to the current one.
const FORMER_NETWORKS: &str = "konverge.dev/former-networks";
/// How soon an object is looked at that waits for another one, which mostly wakes it before.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// Keeps `OZRoutingPeer`s.
pub struct OzRoutingPeerReconciler {
    collections: Collections,
    settings: Arc<Settings>,
}

/// The name of the network, of the group of its peers and of their setup key.
fn network_name(peer: &OZRoutingPeer, settings: &Settings) -> String {
    let cluster = &settings.cluster_name;
    if settings.namespaced_networks {
        format!("{cluster}-{}", peer.namespace().unwrap_or_default())
    } else {
        cluster.clone()
    }
}

fn deletion(peer: &OZRoutingPeer, settings: &Settings) -> DeletionPolicy {
    annotations::deletion(peer.annotations(), settings.deletes_adopted)
}

/// The network: one of the name is adopted and not changed, as in the original, but it survives the object.
fn network(peer: &OZRoutingPeer, settings: &Settings) -> Binding {
    Binding::new(network_name(peer, settings)).with(|binding| {
        binding.id = peer.status.as_ref().and_then(|status| status.network_id.clone());
        binding.adoption = annotations::adoption(peer.annotations(), Adoption::ByName);
        binding.observe_adopted = true;
        binding.deletion = deletion(peer, settings);
    })
}

fn setup_key(peer: &OZRoutingPeer, settings: &Settings) -> Binding {
    let id = peer.status.as_ref().and_then(|status| status.setup_key_id.clone());
    setup_key::binding(&network_name(peer, settings), id, deletion(peer, settings))
}

/// The router of a group of peers, by whose id it is known.
fn router(peer: &OZRoutingPeer, group: &str, settings: &Settings) -> Binding {
    Binding::new(group).with(|binding| {
        binding.id = peer.status.as_ref().and_then(|status| status.router_id.clone());
        binding.adoption = Adoption::ByName;
        binding.deletion = deletion(peer, settings);
    })
}

/// The ids of the network that the object has and had.
fn networks_of(peer: &OZRoutingPeer) -> BTreeSet<&str> {
    let former = peer.annotations().get(FORMER_NETWORKS).map(String::as_str).unwrap_or_default();
    let current = peer.status.as_ref().and_then(|status| status.network_id.as_deref());
    former.split(',').filter(|id| !id.is_empty()).chain(current).collect()
}

/// The network of a resource: that of the routing peer that it refers to, or that it names by an id that a routing peer has or had. `None` if the
/// routing peer has none yet.
pub(in crate::control) fn current_network(
    spec: &OZResourceSpec,
    namespace: &str,
    peers: &[Arc<OZRoutingPeer>],
) -> Option<String> {
    let of = |peer: &Arc<OZRoutingPeer>| peer.status.as_ref()?.network_id.clone();
    if let Some(reference) = &spec.network_ref {
        let namespace = reference.namespace.as_deref().unwrap_or(namespace);
        let is_meant = |peer: &&Arc<OZRoutingPeer>| {
            peer.metadata.name.as_deref() == Some(&reference.name)
                && peer.metadata.namespace.as_deref() == Some(namespace)
        };
        return peers.iter().find(is_meant).and_then(of);
    }
    let id = spec.network_id.as_str();
    let current = peers.iter().find(|peer| networks_of(peer).contains(id)).and_then(of);
    current.or_else(|| (!id.is_empty()).then(|| id.to_owned()))
}

/// Whether a resource is in the network of a routing peer.
fn is_in(resource: &OZResource, peer: &Arc<OZRoutingPeer>) -> bool {
    let namespace = resource.namespace().unwrap_or_default();
    let network = current_network(&resource.spec, &namespace, std::slice::from_ref(peer));
    network.is_some_and(|network| networks_of(peer).contains(network.as_str()))
}

fn wishes(peer: &OZRoutingPeer) -> Wishes {
    let spec = &peer.spec;
    Wishes {
        replicas: spec.replicas,
        labels: spec.labels.clone(),
        annotations: spec.annotations.clone(),
        node_selector: spec.node_selector.clone(),
        tolerations: spec.tolerations.clone(),
        volumes: spec.volumes.clone(),
        volume_mounts: spec.volume_mounts.clone(),
        resources: spec.resources.clone(),
        privileged: spec.privileged.unwrap_or_default(),
        pod_template: None,
    }
}

impl OzRoutingPeerReconciler {
    /// Makes the network exist. The id of one that vanished is kept, so that its resources follow.
    async fn network(&self, peer: &OZRoutingPeer, context: &Context<OZRoutingPeer>) -> Result<String, Error> {
        let binding = network(peer, &self.settings);
        let desired = DesiredNetwork { name: binding.name.clone() };
        let standing = context.remote(&self.collections.networks).apply(&binding, &desired).await?;
        let id = standing.item.id().to_owned();
        let mut known = networks_of(peer);
        if !known.is_empty() && !known.contains(id.as_str()) {
            known.remove(id.as_str());
            let former: Vec<_> = known.into_iter().collect();
            context.annotate(FORMER_NETWORKS, &former.join(",")).await?;
        }
        context.status(|status| status.network_id = Some(id.clone()));
        Ok(id)
    }

    /// Makes the `OZGroup` of the peers exist. Returns its id, or `None` while it has none.
    async fn group(&self, peer: &OZRoutingPeer, context: &Context<OZRoutingPeer>) -> Result<Option<String>, Error> {
        let spec = OZGroupSpec { name: network_name(peer, &self.settings) };
        let mut group = OZGroup::new(&peer.name_any(), spec);
        let labels = &self.settings.default_labels;
        group.metadata = ObjectMeta {
            namespace: peer.namespace(),
            labels: Some(labels.clone()).filter(|labels| !labels.is_empty()),
            owner_references: Some(vec![Owner::of(peer)?.controller_reference()]),
            ..group.metadata
        };
        let observed = children::apply(context, &group).await?;
        Ok(observed.and_then(|group| group.status.as_ref()?.group_id.clone()))
    }

    async fn setup_key(
        &self,
        peer: &OZRoutingPeer,
        context: &Context<OZRoutingPeer>,
        group: &str,
        place: &Place,
    ) -> Result<(), Error> {
        let more = self.collections.groups.resolve("", &peer.spec.groups).await?;
        let more = more.iter().map(|group| group.id().to_owned());
        let desired = DesiredSetupKey {
            name: network_name(peer, &self.settings),
            is_reusable: true,
            usage_limit: 0,
            ephemeral: peer.spec.ephemeral.unwrap_or_default(),
            expires_in: 0,
            auto_groups: [group.to_owned()].into_iter().chain(more).collect(),
            allow_extra_dns_labels: false,
        };
        let (keys, binding) = (&self.collections.setup_keys, setup_key(peer, &self.settings));
        let set_id = |id| context.status(|status| status.setup_key_id = id);
        setup_key::ensure(context, keys, &self.settings, binding, &desired, place, set_id).await?;
        Ok(())
    }
}

impl Reconcile<OZRoutingPeer> for OzRoutingPeerReconciler {
    type Error = Error;

    async fn apply(&self, peer: Arc<OZRoutingPeer>, context: Context<OZRoutingPeer>) -> Result<Action, Error> {
        let network = self.network(&peer, &context).await?;
        let Some(group) = self.group(&peer, &context).await? else {
            let (namespace, name) = (peer.namespace().unwrap_or_default(), peer.name_any());
            context.progressing(Why::Dependency, format!("waits for OZGroup {namespace}/{name}"));
            return Ok(Action::After(LOOK_AGAIN));
        };
        let place = Place { name: peer.name_any(), key: "setupKey".to_owned() };
        self.setup_key(&peer, &context, &group, &place).await?;
        let binding = router(&peer, &group, &self.settings);
        let desired = DesiredRouter { network, group: group.clone() };
        let standing = context.remote(&self.collections.routers).apply(&binding, &desired).await?;
        context.status(|status| status.router_id = Some(standing.item.id().to_owned()));

        let (owner, name) = (Owner::of(&*peer)?, peer.name_any());
        let selector = [("app.kubernetes.io/name", "openzro-router"), ("app.kubernetes.io/instance", &name)];
        let wishes = wishes(&peer);
        let workload = Workload {
            name: &name,
            namespace: &peer.namespace().unwrap_or_default(),
            owner: &owner,
            selector: selector.map(|(label, value)| (label.to_owned(), value.to_owned())).into(),
            secret: (&place.name, &place.key),
            wishes: &wishes,
        };
        let waits = workload::apply(&context, &workload, &self.settings).await?;

        // Last, because a token that may not write settings must not keep the pods from running.
        let is_exempt = peer.spec.exempt_from_admission.unwrap_or(true);
        exemption::set(&self.collections.groups, &group, is_exempt).await?;
        if let Some(waits) = waits {
            context.progressing(Why::WaitingForPods, waits);
        }
        Ok(Action::After(setup_key::SECRET_CHECK))
    }

    async fn finalize(&self, peer: Arc<OZRoutingPeer>, context: Context<OZRoutingPeer>) -> Result<Cleanup, Error> {
        if deletion(&peer, &self.settings) == DeletionPolicy::Orphan {
            return Ok(Cleanup::Done);
        }
        let resources = context.watched::<OZResource>()?.list();
        let users: Vec<_> = resources
            .iter()
            .filter(|resource| is_in(resource, &peer))
            .filter_map(|user| ObjectKey::of(&**user))
            .collect();
        let network = network(&peer, &self.settings);
        if !users.is_empty() {
            let message = format!("the network {} is in use by OZResource {}", network.name, few(users));
            return Ok(Cleanup::pending(LOOK_AGAIN, Why::InUse, message));
        }
        if let Step::Delete(item) = context.remote(&self.collections.networks).preview(&network, None).await?
            && let Some(remote) = self.collections.networks.remote()
            && let count @ 1.. = remote.resources_of(item.id()).await?
        {
            let message = format!(
                "the network {} has {count} resources that others made; delete them, or set the annotation {} to orphan",
                network.name,
                annotations::DELETION
            );
            return Ok(Cleanup::pending(LOOK_AGAIN, Why::InUse, message));
        }
        let name = ObjectKey { namespace: peer.namespace(), name: peer.name_any() };
        let group = context.watched::<OZGroup>()?.get(&name).and_then(|group| group.status.as_ref()?.group_id.clone());
        if let Some(group) = &group {
            exemption::withdraw(&self.collections.groups, group).await?;
        }
        let key =
            setup_key::finalize(&context, &self.collections.setup_keys, &setup_key(&peer, &self.settings)).await?;
        let router = router(&peer, &group.unwrap_or_default(), &self.settings);
        let router = context.remote(&self.collections.routers).finalize(&router).await?;
        let network = context.remote(&self.collections.networks).finalize(&network).await?;
        Ok([key, router, network].into_iter().find(|cleanup| *cleanup != Cleanup::Done).unwrap_or(Cleanup::Done))
    }
}

/// The controller of `OZRoutingPeer`s.
pub fn oz_routing_peer(
    collections: &Collections,
    settings: &Arc<Settings>,
) -> Controller<OZRoutingPeer, OzRoutingPeerReconciler> {
    let (of_networks, of_keys) = (Arc::clone(settings), Arc::clone(settings));
    Controller::new(OzRoutingPeerReconciler { collections: collections.clone(), settings: Arc::clone(settings) })
        .finalizer_on_demand(FINALIZER)
        .reasons::<Why>()
        .access(setup_key::declare)
        .access(|access| {
            access.to::<OZGroup>(&(), &["create", "patch"]);
            workload::declare(access);
        })
        .watches(Watch::<OZGroup>::new(), |group, _| children::owner_key::<_, OZRoutingPeer>(group))
        .watches(Watch::<Deployment>::new(), |deployment, _| children::owner_key::<_, OZRoutingPeer>(deployment))
        .watches(Watch::<OZResource>::new(), |resource, peers| {
            let users = peers.list().into_iter().filter(|peer: &Arc<OZRoutingPeer>| {
                peer.metadata.deletion_timestamp.is_some() && is_in(resource, peer)
            });
            users.filter_map(|peer| ObjectKey::of(&*peer)).collect::<Vec<_>>()
        })
        .remote(&collections.groups, |peer: &OZRoutingPeer| {
            peer.spec.groups.iter().fold(Interest::default(), |interest, name| interest.refers_to("", name))
        })
        .remote(&collections.networks, move |peer: &OZRoutingPeer| {
            Interest::default().claims(&network(peer, &of_networks))
        })
        .remote(&collections.setup_keys, move |peer: &OZRoutingPeer| {
            Interest::default().claims(&setup_key(peer, &of_keys))
        })
        .remote(&collections.routers, |peer: &OZRoutingPeer| {
            let id = peer.status.as_ref().and_then(|status| status.router_id.clone()).unwrap_or_default();
            Interest::default().refers_to("", &id)
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn peer(name: &str, network: Option<&str>, former: &str) -> Arc<OZRoutingPeer> {
        let mut peer = OZRoutingPeer::new(name, serde_json::from_value(json!({})).unwrap());
        peer.metadata.namespace = Some("ns".to_owned());
        peer.metadata.annotations = Some([(FORMER_NETWORKS.to_owned(), former.to_owned())].into());
        peer.status = Some(serde_json::from_value(json!({ "networkID": network })).unwrap());
        Arc::new(peer)
    }

    #[test]
    fn w15_w16_a_resource_follows_the_network_of_its_routing_peer_and_no_other() {
        let peers = [peer("a", Some("new"), "old,older"), peer("b", Some("other"), ""), peer("c", None, "")];
        for (spec, expected) in [
            (json!({ "networkID": "new" }), Some("new")),
            (json!({ "networkID": "old" }), Some("new")),
            (json!({ "networkID": "older" }), Some("new")),
            (json!({ "networkID": "other" }), Some("other")),
            (json!({ "networkID": "unknown" }), Some("unknown")),
            (json!({ "networkRef": { "name": "b" } }), Some("other")),
            (json!({ "networkRef": { "name": "b", "namespace": "elsewhere" } }), None),
            (json!({ "networkRef": { "name": "c" } }), None),
            (json!({}), None),
        ] {
            let parsed: OZResourceSpec = serde_json::from_value(spec.clone()).unwrap();
            assert_eq!(current_network(&parsed, "ns", &peers).as_deref(), expected, "{spec}");
        }
        let resource = OZResource::new("r", serde_json::from_value(json!({ "networkID": "old" })).unwrap());
        assert!(is_in(&resource, &peers[0]) && !is_in(&resource, &peers[1]) && !is_in(&resource, &peers[2]));
    }
}
