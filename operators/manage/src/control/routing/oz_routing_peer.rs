//! `OZRoutingPeer`: the network of the cluster or a namespace, and its routing peers.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::apps::v1::Deployment;
use konverge::{
    Watch,
    apply::Owner,
    kube::{ResourceExt, api::ObjectMeta},
    prelude::{Action, Cleanup, Context, Controller, Error, ObjectKey, Reason, Reconcile},
    remote::{Adoption, Binding, DeletionPolicy, Interest, Remotes},
};
use konverge_core::{allow::Pattern, error::Classify, names::few};

use super::{
    children, exemption, removal,
    workload::{self, PodSettings, Workload},
};
use crate::{
    annotations::{self, FORMER_NETWORKS},
    api::v1::{OZGroup, OZGroupSpec, OZResource, OZResourceSpec, OZRoutingPeer, OZRoutingPeerSpec},
    collections::Collections,
    control::{
        deadline, label_value,
        pause::LOOK_AGAIN,
        references, resource,
        setup_key::{self, Place},
        short_digest,
    },
    reasons,
    remote::{
        DesiredNetwork, DesiredResource, DesiredRouter, DesiredSetupKey, Groups, ORIGINAL_DESCRIPTION, canonical,
    },
    settings::Settings,
};

/// The finalizer, which is the original's.
const FINALIZER: &str = "openzro.io/cleanup";

/// Keeps `OZRoutingPeer`s.
pub struct OzRoutingPeerReconciler {
    collections: Collections,
    settings: Arc<Settings>,
}

/// The name of the network, of the group of its peers and of their setup key.
fn network_name(peer: &OZRoutingPeer, settings: &Settings) -> String {
    let (cluster, namespace) = (&settings.cluster_name, peer.namespace().unwrap_or_default());
    if settings.has_own_network(&namespace) { format!("{cluster}-{namespace}") } else { cluster.clone() }
}

fn scope(peer: &OZRoutingPeer, settings: &Settings) -> String {
    settings.scope(peer.metadata.namespace.as_deref())
}

fn deletion(peer: &OZRoutingPeer, settings: &Settings) -> DeletionPolicy {
    settings.deletion(&peer.metadata)
}

fn names(peer: &OZRoutingPeer, settings: &Settings) -> Option<Vec<Pattern>> {
    settings.names(peer.metadata.namespace.as_deref().unwrap_or_default())
}

/// The network: one of the name is adopted and not changed, as in the original, but it survives the object.
fn network(peer: &OZRoutingPeer, settings: &Settings) -> Binding {
    Binding::new(network_name(peer, settings)).with(|binding| {
        binding.scope = scope(peer, settings);
        binding.id = peer.status.as_ref().and_then(|status| status.network_id.clone());
        binding.adoption = annotations::adoption(peer.annotations(), Adoption::ByName);
        binding.observe_adopted = true;
        binding.names = names(peer, settings);
        binding.deletion = deletion(peer, settings);
    })
}

fn setup_key(peer: &OZRoutingPeer, settings: &Settings) -> Binding {
    let id = peer.status.as_ref().and_then(|status| status.setup_key_id.clone());
    setup_key::binding(&network_name(peer, settings), id, &peer.metadata, settings)
}

/// The router of a group of peers, by whose id it is known.
fn router(peer: &OZRoutingPeer, group: &str, settings: &Settings) -> Binding {
    Binding::new(group).with(|binding| {
        binding.scope = scope(peer, settings);
        binding.id = peer.status.as_ref().and_then(|status| status.router_id.clone());
        binding.adoption = Adoption::ByName;
        // A router has no mark, and its name is the id of its group.
        binding.names = names(peer, settings).map(|_| vec![Pattern::new(group)]);
        binding.deletion = deletion(peer, settings);
    })
}

/// The id of the network that the object has.
fn network_id(peer: &OZRoutingPeer) -> Option<&str> {
    peer.status.as_ref()?.network_id.as_deref().filter(|id| !id.is_empty())
}

/// Whether another routing peer means the same network, which is always within one account, and may use it.
fn is_of_same_network(peer: &OZRoutingPeer, other: &OZRoutingPeer, settings: &Settings) -> bool {
    let network = network_name(peer, settings);
    peer.metadata.uid != other.metadata.uid
        && scope(peer, settings) == scope(other, settings)
        && network == network_name(other, settings)
        && settings.allows(&other.namespace().unwrap_or_default(), &network)
}

/// The network that another routing peer of the same network has already: that of the oldest one.
fn shared_network(peer: &OZRoutingPeer, peers: &[Arc<OZRoutingPeer>], settings: &Settings) -> Option<String> {
    let wanted = match annotations::adoption(peer.annotations(), Adoption::ByName) {
        Adoption::ById(id) => Some(id),
        _ => None,
    };
    let others = peers.iter().filter(|other| is_of_same_network(peer, other, settings) && network_id(other).is_some());
    let oldest = others.min_by_key(|other| (other.metadata.creation_timestamp.clone(), other.metadata.uid.clone()))?;
    let id = network_id(oldest)?.to_owned();
    wanted.is_none_or(|wanted| wanted == id).then_some(id)
}

/// The other routing peers that stay in the network of this one when it goes.
fn sharers(peer: &OZRoutingPeer, peers: &[Arc<OZRoutingPeer>], settings: &Settings) -> Vec<Arc<OZRoutingPeer>> {
    let stays = |other: &&Arc<OZRoutingPeer>| {
        other.metadata.deletion_timestamp.is_none()
            && is_of_same_network(peer, other, settings)
            && network_id(other).is_some()
            && network_id(other) == network_id(peer)
    };
    peers.iter().filter(stays).cloned().collect()
}

/// Whether a resource is in the account of a routing peer.
fn is_of_account(resource: &OZResource, peer: &OZRoutingPeer, settings: &Settings) -> bool {
    settings.scope(resource.metadata.namespace.as_deref()) == scope(peer, settings)
}

/// Whether a resource names this routing peer, and not only its network.
fn refers_to(resource: &OZResource, peer: &OZRoutingPeer, settings: &Settings) -> bool {
    let reference = resource.spec.network_ref.as_ref().filter(|_| is_of_account(resource, peer, settings));
    reference.is_some_and(|reference| {
        let namespace = reference.namespace.as_deref().or(resource.metadata.namespace.as_deref());
        Some(&reference.name) == peer.metadata.name.as_ref() && namespace == peer.metadata.namespace.as_deref()
    })
}

/// The ids of the network that the object has and had.
fn networks_of(peer: &OZRoutingPeer) -> BTreeSet<&str> {
    let former = peer.annotations().get(FORMER_NETWORKS).map(String::as_str).unwrap_or_default();
    former.split(',').filter(|id| !id.is_empty()).chain(network_id(peer)).collect()
}

/// Whether the former networks of a routing peer count for the resources of a namespace. They are in an annotation, with which an object could
/// draw resources of other namespaces into its network.
fn has_former_networks(peer: &OZRoutingPeer, namespace: &str, settings: &Settings) -> bool {
    names(peer, settings).is_none() || peer.metadata.namespace.as_deref() == Some(namespace)
}

/// The network of a resource: that of the routing peer that it refers to, or that it names by an id that a routing peer has or had. `None` if the
/// routing peer has none yet.
///
/// A resource that names no network is in the default one: that of the routing peers of the cluster, or of its namespace if each namespace has a
/// network of its own. A resource is never in a network of another account, even if a routing peer there has the id.
pub(in crate::control) fn current_network(
    spec: &OZResourceSpec,
    namespace: &str,
    peers: &[Arc<OZRoutingPeer>],
    settings: &Settings,
) -> Option<String> {
    let of = |peer: &Arc<OZRoutingPeer>| network_id(peer).map(str::to_owned);
    let account = settings.scope(Some(namespace));
    let mut peers = peers.iter().filter(|peer| scope(peer, settings) == account);
    if let Some(reference) = &spec.network_ref {
        let namespace = reference.namespace.as_deref().unwrap_or(namespace);
        let is_meant = |peer: &&Arc<OZRoutingPeer>| {
            peer.metadata.name.as_deref() == Some(&reference.name)
                && peer.metadata.namespace.as_deref() == Some(namespace)
        };
        return peers.find(is_meant).and_then(of);
    }
    let id = spec.network_id.as_str();
    if id.is_empty() {
        let is_own = |peer: &&Arc<OZRoutingPeer>| peer.metadata.namespace.as_deref() == Some(namespace);
        let candidates = peers.filter(|peer| network_id(peer).is_some());
        let candidates = candidates.filter(|peer| is_own(peer) || !settings.namespaced_networks);
        return candidates.min_by_key(|peer| (!is_own(peer), peer.namespace(), peer.name_any())).and_then(of);
    }
    let had =
        |peer: &&Arc<OZRoutingPeer>| networks_of(peer).contains(id) && has_former_networks(peer, namespace, settings);
    let peers: Vec<_> = peers.collect();
    let has = peers.iter().find(|peer| network_id(peer) == Some(id));
    let current = has.or_else(|| peers.iter().find(|peer| had(peer))).and_then(|peer| of(peer));
    current.or_else(|| Some(id.to_owned()))
}

/// Whether the rules permit a resource in the network of a routing peer. A resource that they refuse does not keep the network. Resources of
/// the namespace always count. `local` are the `OZGroup`s of the cluster.
fn may_be_in(resource: &OZResource, peer: &OZRoutingPeer, local: &[Arc<OZGroup>], settings: &Settings) -> bool {
    let namespace = resource.namespace().unwrap_or_default();
    let is_of_operator = peer.metadata.namespace.as_deref() == Some(&settings.namespace);
    let allows_network = settings.allows(&namespace, &network_name(peer, settings))
        || (is_of_operator && resource::is_own_service(resource, settings));
    let allows_group = |word: &String| {
        let display = references::display_name(word, &namespace, local);
        [word, &display].into_iter().any(|name| settings.allows(&namespace, name))
    };
    resource.metadata.namespace == peer.metadata.namespace
        || (allows_network
            && settings.allows(&namespace, &resource.spec.name)
            && resource.spec.groups.iter().all(allows_group))
}

/// Whether a resource is in the network of a routing peer.
fn is_in(resource: &OZResource, peer: &Arc<OZRoutingPeer>, settings: &Settings) -> bool {
    let namespace = resource.namespace().unwrap_or_default();
    let network = current_network(&resource.spec, &namespace, std::slice::from_ref(peer), settings);
    is_of_account(resource, peer, settings)
        && network.is_some_and(|network| networks_of(peer).contains(network.as_str()))
}

fn pod_settings(peer: &OZRoutingPeer) -> PodSettings {
    let spec = &peer.spec;
    PodSettings {
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
    /// Makes the network exist, or shares that of another routing peer. The id of one that vanished is kept, so that its resources follow.
    async fn network(&self, peer: &OZRoutingPeer, context: &Context<OZRoutingPeer>) -> Result<String, Error> {
        let binding = network(peer, &self.settings);
        let desired = DesiredNetwork { name: binding.name.clone() };
        let id = match context.remote(&self.collections.networks).apply(&binding, &desired).await {
            Ok(applied) => applied.item.id().to_owned(),
            // Another object stands for the network. If it is a routing peer of the same network, the pods of this one route there, too.
            Err(error) if [reasons::CLAIMED, reasons::NOT_OURS].contains(&error.reason()) => {
                let shared = shared_network(peer, &context.store().list(), &self.settings);
                shared.ok_or(error)?
            }
            Err(error) => return Err(error),
        };
        let mut known = networks_of(peer);
        if !known.is_empty() && !known.contains(id.as_str()) {
            known.remove(id.as_str());
            let former: Vec<_> = known.into_iter().collect();
            context.annotate(FORMER_NETWORKS, &former.join(",")).await?;
        }
        context.status(|status| status.network_id = Some(id.clone()));
        Ok(id)
    }

    /// Returns the `OZGroup` of the peers.
    fn group(&self, peer: &OZRoutingPeer) -> Result<OZGroup, Error> {
        let spec = OZGroupSpec { name: network_name(peer, &self.settings) };
        let mut group = OZGroup::new(&peer.name_any(), spec);
        let labels = &self.settings.default_labels;
        group.metadata = ObjectMeta {
            namespace: peer.namespace(),
            labels: Some(labels.clone()).filter(|labels| !labels.is_empty()),
            owner_references: Some(vec![Owner::of(peer)?.controller_reference()]),
            annotations: annotations::inherited(peer.annotations()),
            ..group.metadata
        };
        Ok(group)
    }

    /// Makes the `OZGroup` of the peers exist. Returns the id of the group, or `None` while it has none.
    async fn group_id(
        &self,
        peer: &OZRoutingPeer,
        context: &Context<OZRoutingPeer>,
        group: &OZGroup,
    ) -> Result<Option<String>, Error> {
        let observed = children::apply(context, group).await?;
        let id = observed.and_then(|group| group.status.as_ref()?.group_id.clone());
        if let Some(id) = &id {
            references::check_id(&peer.metadata, &[], id, &self.collections.groups, &self.settings).await?;
        }
        Ok(id)
    }

    /// Fails if the API server would not accept an object that belongs to the routing peer. Writes nothing.
    async fn try_children(
        &self,
        peer: &OZRoutingPeer,
        context: &Context<OZRoutingPeer>,
        group: &OZGroup,
        place: &Place,
    ) -> Result<(), Error> {
        children::check(context, group).await?;
        let has_key = peer.status.as_ref().is_some_and(|status| status.setup_key_id.is_some());
        if has_key { Ok(()) } else { setup_key::check_place(context, &self.settings, place).await }
    }

    /// Returns `true` if the peers are exempt from the admission checks of the account. Refuses the exemption where the namespace may not change a
    /// setting of the account.
    fn is_exempt(&self, peer: &OZRoutingPeer) -> Result<bool, Error> {
        let namespace = peer.namespace().unwrap_or_default();
        let is_exempt = self.settings.exempts_from_admission(&namespace);
        if peer.spec.exempt_from_admission == Some(true) && !is_exempt {
            let (field, advice) = ("spec.exemptFromAdmission", ", because it changes a setting of the account");
            let checked = self.settings.check_privileges(&namespace, vec![field], advice);
            checked.map_err(|why| Error::permanent(reasons::PRIVILEGE_NOT_ALLOWED, why))?;
        }
        Ok(peer.spec.exempt_from_admission.unwrap_or(is_exempt))
    }

    async fn setup_key(
        &self,
        peer: &OZRoutingPeer,
        context: &Context<OZRoutingPeer>,
        group: &str,
        place: &Place,
    ) -> Result<(), Error> {
        let local = context.watched::<OZGroup>()?.list();
        let desired = desired_key(peer, group, &local, &self.collections.groups, &self.settings).await?;
        let (keys, binding) = (&self.collections.setup_keys, setup_key(peer, &self.settings));
        let set_id = |id| context.status(|status| status.setup_key_id = id);
        setup_key::ensure(context, keys, &self.settings, binding, &desired, place, set_id).await?;
        Ok(())
    }
}

impl OzRoutingPeerReconciler {
    /// Makes one resource exist for each route, and withdraws those of former routes.
    async fn routes(
        &self,
        context: &Context<OZRoutingPeer>,
        routes: &BTreeSet<String>,
        network: &str,
        group: &str,
    ) -> Result<(), Error> {
        let peer = Arc::clone(context.object());
        let remote = context.remote(&self.collections.resources);
        // A route that fails does not keep the others from their place.
        let mut first_error = None;
        for route in routes {
            let binding = route_binding(&peer, route, &self.settings);
            let desired = desired_route(&binding, route, network, group);
            match remote.apply(&binding, &desired).await {
                Ok(applied) => context.status(|status| {
                    status.route_resource_ids.insert(route.clone(), applied.item.id().to_owned());
                }),
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        let wanted: BTreeSet<String> = routes.iter().map(|route| route_part(route)).collect();
        for part in route_parts(&peer, remote.parts().await?).difference(&wanted) {
            let withdrawn = remote.withdraw(&part_binding(&peer, part, &self.settings)).await?;
            if let Cleanup::Pending { after, reason, message } = withdrawn {
                let is_stopped = reason == Reason::new(reasons::DELETIONS_STOPPED);
                let reason = if is_stopped { reasons::DELETIONS_STOPPED } else { reasons::IN_USE };
                return Err(Error::after(after, reason, message));
            }
            context.status(|status| status.route_resource_ids.retain(|route, _| route_part(route) != *part));
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Deletes the resources of all routes.
    async fn finalize_routes(&self, context: &Context<OZRoutingPeer>) -> Result<Cleanup, Error> {
        let (peer, remote) = (Arc::clone(context.object()), context.remote(&self.collections.resources));
        let mut cleanup = Cleanup::Done;
        for part in route_parts(&peer, remote.parts().await?) {
            let of_part = remote.finalize(&part_binding(&peer, &part, &self.settings)).await?;
            if of_part != Cleanup::Done {
                cleanup = of_part;
            }
        }
        Ok(cleanup)
    }
}

impl Reconcile<OZRoutingPeer> for OzRoutingPeerReconciler {
    type Error = Error;

    async fn apply(&self, peer: Arc<OZRoutingPeer>, context: Context<OZRoutingPeer>) -> Result<Action, Error> {
        let namespace = peer.namespace().unwrap_or_default();
        self.settings.check(&namespace, "its network", "network", &network_name(&peer, &self.settings))?;
        let (owner, name) = (Owner::of(&*peer)?, peer.name_any());
        let instance = label_value(&name);
        let selector = [("app.kubernetes.io/name", "openzro-router"), ("app.kubernetes.io/instance", &instance)];
        let (place, pod_settings) = (Place { name: name.clone(), key: "setupKey".to_owned() }, pod_settings(&peer));
        let workload = Workload {
            name: &name,
            namespace: &namespace,
            owner: &owner,
            selector: selector.map(|(label, value)| (label.to_owned(), value.to_owned())).into(),
            secret: (&place.name, &place.key),
            pod_settings: &pod_settings,
        };
        // Before the first write: an invalid spec makes nothing, and neither does one that no rule permits.
        let routes = valid_routes(&peer.spec)?;
        further_groups(&peer, &context.watched::<OZGroup>()?.list(), &self.settings)?;
        let is_exempt = self.is_exempt(&peer)?;
        let pods = workload::desired(&context, &workload, &self.settings).await?;
        let child = self.group(&peer)?;
        self.try_children(&peer, &context, &child, &place).await?;

        let network = self.network(&peer, &context).await?;
        let Some(group) = self.group_id(&peer, &context, &child).await? else {
            context.progressing(Reason::new(reasons::DEPENDENCY), waits_for_group(&peer));
            return Ok(Action::After(LOOK_AGAIN));
        };
        self.setup_key(&peer, &context, &group, &place).await?;
        let binding = router(&peer, &group, &self.settings);
        let desired = DesiredRouter { network: network.clone(), group: group.clone() };
        let applied = context.remote(&self.collections.routers).apply(&binding, &desired).await?;
        context.status(|status| status.router_id = Some(applied.item.id().to_owned()));
        let routes = self.routes(&context, &routes, &network, &group).await;
        let waits = workload::apply(&context, &workload, &pods).await?;

        // Last, because neither a token that may not write settings nor a route that openZro refuses must keep the pods from running.
        let (groups, scope) = (&self.collections.groups, scope(&peer, &self.settings));
        exemption::set(&context, groups, &scope, &group, is_exempt).await?;
        routes?;
        if let Some(waits) = waits {
            context.progressing(Reason::new(reasons::WAITING_FOR_PODS), waits);
        }
        Ok(Action::After(setup_key::SECRET_CHECK))
    }

    async fn finalize(&self, peer: Arc<OZRoutingPeer>, context: Context<OZRoutingPeer>) -> Result<Cleanup, Error> {
        let outcome = self.clear(&peer, &context).await;
        deadline::bounded(&context, &self.settings, outcome).await
    }
}

impl OzRoutingPeerReconciler {
    /// Deletes the items of a routing peer in openZro.
    async fn clear(&self, peer: &Arc<OZRoutingPeer>, context: &Context<OZRoutingPeer>) -> Result<Cleanup, Error> {
        let network = network(peer, &self.settings);
        let sharers = sharers(peer, &context.store().list(), &self.settings);
        let networks = context.remote(&self.collections.networks);
        if deletion(peer, &self.settings) == DeletionPolicy::Orphan {
            if !sharers.is_empty() {
                let shared = network.with(|binding| binding.deletion = DeletionPolicy::Delete);
                if let Err(error) = networks.hand_over(&shared).await {
                    // The object is released at once, also while openZro is away. The others go on in the network, which stays.
                    tracing::warn!("the mark of a released routing peer stays on its network: {error}");
                }
            }
            children::orphan_item::<_, OZGroup>(context, &peer.name_any()).await?;
            return Ok(Cleanup::Done);
        }
        let (resources, local) = (context.watched::<OZResource>()?.list(), context.watched::<OZGroup>()?.list());
        let keeps = |resource: &&Arc<OZResource>| {
            let is_user = if sharers.is_empty() {
                is_in(resource, peer, &self.settings)
            } else {
                refers_to(resource, peer, &self.settings)
            };
            is_user && may_be_in(resource, peer, &local, &self.settings)
        };
        let users: Vec<_> = resources.iter().filter(keeps).filter_map(|user| ObjectKey::of(&**user)).collect();
        if !users.is_empty() {
            let message = format!("the network {} is in use by OZResource {}", network.name, few(users));
            return Ok(Cleanup::pending(LOOK_AGAIN, Reason::new(reasons::IN_USE), message));
        }
        let of_routes = self.finalize_routes(context).await?;
        if of_routes != Cleanup::Done {
            return Ok(of_routes);
        }
        let name = ObjectKey { namespace: peer.namespace(), name: peer.name_any() };
        let group = context.watched::<OZGroup>()?.get(&name).and_then(|group| group.status.as_ref()?.group_id.clone());
        let groups = &self.collections.groups;
        let group = references::permitted_id(&peer.metadata, &[], group, groups, &self.settings).await?;
        let router = router(peer, group.as_deref().unwrap_or_default(), &self.settings);
        if sharers.is_empty() {
            let others = removal::others_inside(context, &self.collections, &network, &router, group.as_deref());
            if let Some(waits) = others.await? {
                return Ok(waits);
            }
        }
        // First, because it shows whether the deletion has to wait for an approval.
        let key = setup_key::finalize(context, &self.collections.setup_keys, &setup_key(peer, &self.settings)).await?;
        if key != Cleanup::Done {
            return Ok(key);
        }
        if let Some(group) = group.as_ref().filter(|_| sharers.is_empty()) {
            exemption::withdraw(context, groups, &scope(peer, &self.settings), group).await?;
        }
        let router = context.remote(&self.collections.routers).finalize(&router).await?;
        let network =
            if sharers.is_empty() { networks.finalize(&network).await? } else { networks.hand_over(&network).await? };
        Ok([router, network].into_iter().find(|cleanup| *cleanup != Cleanup::Done).unwrap_or(Cleanup::Done))
    }
}

/// Returns the display names of the groups of the spec. `local` are the `OZGroup`s of the cluster.
fn further_groups(
    peer: &OZRoutingPeer,
    local: &[Arc<OZGroup>],
    settings: &Settings,
) -> Result<BTreeSet<String>, Error> {
    let namespace = peer.namespace().unwrap_or_default();
    let names: BTreeSet<String> =
        peer.spec.groups.iter().map(|name| references::display_name(name, &namespace, local)).collect();
    for name in &names {
        settings.check(&namespace, "spec.groups", "group", name)?;
    }
    Ok(names)
}

/// The content of the setup key of the peers, which join their own group and those of the spec.
async fn desired_key(
    peer: &OZRoutingPeer,
    group: &str,
    local: &[Arc<OZGroup>],
    groups: &Remotes<Groups>,
    settings: &Settings,
) -> Result<DesiredSetupKey, Error> {
    let names: Vec<_> = further_groups(peer, local, settings)?.into_iter().collect();
    let more = groups.resolve(&scope(peer, settings), &names).await?;
    let more = more.iter().map(|group| group.id().to_owned());
    let (expires_in, usage_limit) = settings.key_limits(&peer.namespace().unwrap_or_default(), None, None);
    Ok(DesiredSetupKey {
        name: network_name(peer, settings),
        is_reusable: true,
        usage_limit,
        is_own_limit: false,
        ephemeral: peer.spec.ephemeral.unwrap_or_default(),
        expires_in,
        auto_groups: [group.to_owned()].into_iter().chain(more).collect(),
        allow_extra_dns_labels: false,
    })
}

fn desired_route(binding: &Binding, route: &str, network: &str, group: &str) -> DesiredResource {
    DesiredResource {
        network: network.to_owned(),
        name: binding.name.clone(),
        description: ORIGINAL_DESCRIPTION.to_owned(),
        address: route.to_owned(),
        groups: [group.to_owned()].into(),
    }
}

/// The items of a routing peer. Those without a content are to be deleted.
pub(crate) struct PeerPlan {
    /// `None` if it shares the network of another routing peer.
    pub(crate) network: Option<(Binding, Option<DesiredNetwork>)>,
    pub(crate) keys: setup_key::Planned,
    pub(crate) router: (Binding, Option<DesiredRouter>),
    pub(crate) routes: Vec<(Binding, Option<DesiredResource>)>,
}

/// Returns the items of a routing peer, or what is waited for. `recorded` are the parts of its record: those of the setup key, and those of routes.
pub(crate) async fn plan(
    peer: &OZRoutingPeer,
    peers: &[Arc<OZRoutingPeer>],
    local: &[Arc<OZGroup>],
    collections: &Collections,
    recorded: (&[String], Vec<String>),
    settings: &Settings,
) -> Result<PeerPlan, Error> {
    let (recorded_keys, recorded_routes) = recorded;
    let (binding, is_going) = (network(peer, settings), peer.metadata.deletion_timestamp.is_some());
    let wanted = if is_going { BTreeSet::new() } else { valid_routes(&peer.spec)? };
    let is_own_group = |group: &&Arc<OZGroup>| {
        group.metadata.namespace == peer.metadata.namespace && group.metadata.name == peer.metadata.name
    };
    let group = local.iter().find(is_own_group).and_then(|group| group.status.as_ref()?.group_id.clone());
    let key = match (&group, is_going) {
        (_, true) => None,
        (Some(group), false) => Some(desired_key(peer, group, local, &collections.groups, settings).await?),
        (None, false) => return Err(Error::after(LOOK_AGAIN, reasons::DEPENDENCY, waits_for_group(peer))),
    };
    let keys = setup_key::planned(setup_key(peer, settings), key, &collections.setup_keys, recorded_keys).await?;
    let group = group.unwrap_or_default();
    let shared = shared_network(peer, peers, settings).filter(|shared| network_id(peer) == Some(shared.as_str()));
    let id = network_id(peer).unwrap_or_default().to_owned();
    let parts: BTreeSet<String> = wanted.iter().map(|route| route_part(route)).collect();
    let dropped = route_parts(peer, recorded_routes).into_iter().filter(|part| !parts.contains(part));
    let dropped: Vec<_> = dropped.map(|part| (part_binding(peer, &part, settings), None)).collect();
    let kept = wanted.iter().map(|route| {
        let binding = route_binding(peer, route, settings);
        let desired = desired_route(&binding, route, &id, &group);
        (binding, Some(desired))
    });
    let of_network = (!is_going).then(|| DesiredNetwork { name: binding.name.clone() });
    let of_router = (!is_going).then(|| DesiredRouter { network: id.clone(), group: group.clone() });
    Ok(PeerPlan {
        network: shared.is_none().then_some((binding, of_network)),
        keys,
        router: (router(peer, &group, settings), of_router),
        routes: kept.chain(dropped).collect(),
    })
}

/// The routes in the server's form, or why the spec has none.
fn routes(spec: &OZRoutingPeerSpec) -> Result<BTreeSet<String>, String> {
    let read = |route: &String| {
        let subnet = canonical(route).filter(|address| address.contains('/'));
        subnet.ok_or_else(|| format!("spec.routes has {route:?}; use a subnet such as 10.0.0.0/8"))
    };
    spec.routes.iter().map(read).collect()
}

fn valid_routes(spec: &OZRoutingPeerSpec) -> Result<BTreeSet<String>, Error> {
    routes(spec).map_err(|why| Error::permanent(reasons::INVALID_SPEC, why))
}

fn waits_for_group(peer: &OZRoutingPeer) -> String {
    let (namespace, name) = (peer.namespace().unwrap_or_default(), peer.name_any());
    format!("waits for its OZGroup {namespace}/{name}, which is not in openZro yet; see its status for the cause")
}

/// The part of a route in the record.
fn route_part(route: &str) -> String {
    format!("route-{}", short_digest(route))
}

/// All parts that may exist on the server: those of the record, and those whose ids are in the status.
fn route_parts(peer: &OZRoutingPeer, recorded: Vec<String>) -> BTreeSet<String> {
    let status = peer.status.iter().flat_map(|status| status.route_resource_ids.keys());
    recorded.into_iter().chain(status.map(|route| route_part(route))).collect()
}

/// The name of the resource of a route. Names of resources are unique in the account, so it has that of the object.
fn route_name(peer: &OZRoutingPeer, route: &str, settings: &Settings) -> String {
    let (network, namespace) = (network_name(peer, settings), peer.namespace().unwrap_or_default());
    format!("{network} {namespace}/{} {route}", peer.name_any())
}

/// Returns the names that the resource of a route may have: its own, or none for a route that is not known.
fn route_names(peer: &OZRoutingPeer, route: Option<&str>, settings: &Settings) -> Option<Vec<Pattern>> {
    let own = route.map(|route| Pattern::new(route_name(peer, route, settings)));
    names(peer, settings).map(|_| own.into_iter().collect())
}

/// The item of a part, whatever its route is.
fn part_binding(peer: &OZRoutingPeer, part: &str, settings: &Settings) -> Binding {
    let ids = peer.status.as_ref().map(|status| &status.route_resource_ids);
    let known = ids.and_then(|ids| ids.iter().find(|(route, _)| route_part(route) == part));
    Binding::default().with(|binding| {
        part.clone_into(&mut binding.part);
        binding.scope = scope(peer, settings);
        binding.id = known.map(|(_, id)| id.clone());
        binding.names = route_names(peer, known.map(|(route, _)| route.as_str()), settings);
        binding.deletion = deletion(peer, settings);
    })
}

/// The resource of a route.
fn route_binding(peer: &OZRoutingPeer, route: &str, settings: &Settings) -> Binding {
    part_binding(peer, &route_part(route), settings).with(|binding| {
        binding.name = route_name(peer, route, settings);
        binding.names = route_names(peer, Some(route), settings);
    })
}

/// The controller of `OZRoutingPeer`s.
pub fn oz_routing_peer(
    collections: &Collections,
    settings: &Arc<Settings>,
) -> Controller<OZRoutingPeer, OzRoutingPeerReconciler> {
    let [of_networks, of_keys, of_routes, of_resources, of_peers, by_name, by_id] =
        [0; 7].map(|_| Arc::clone(settings));
    Controller::new(OzRoutingPeerReconciler { collections: collections.clone(), settings: Arc::clone(settings) })
        .finalizer_on_demand(FINALIZER)
        .access(setup_key::declare)
        .access(|access| {
            access.to::<OZGroup>(&(), &["create", "patch"]);
            workload::declare(access);
        })
        .watches(Watch::<OZGroup>::new(), |group, peers| {
            let users = references::users_by_name(group, peers.list(), |peer: &OZRoutingPeer| &peer.spec.groups);
            users.into_iter().chain(children::owner_key::<_, OZRoutingPeer>(group)).collect::<Vec<_>>()
        })
        .watches(setup_key::watch(), |secret, _| children::owner_key::<_, OZRoutingPeer>(secret))
        .watches(Watch::<Deployment>::new(), |deployment, _| children::owner_key::<_, OZRoutingPeer>(deployment))
        .watches(Watch::<OZResource>::new(), move |resource, peers| {
            let users = peers.list().into_iter().filter(|peer: &Arc<OZRoutingPeer>| {
                peer.metadata.deletion_timestamp.is_some() && is_in(resource, peer, &of_resources)
            });
            users.filter_map(|peer| ObjectKey::of(&*peer)).collect::<Vec<_>>()
        })
        // A network that one of several routing peers has is the network of the others.
        .watches(Watch::<OZRoutingPeer>::new(), move |peer, peers| {
            let others = peers.list().into_iter();
            let others = others.filter(|other| is_of_same_network(peer, other, &of_peers));
            others.filter_map(|other| ObjectKey::of(&*other)).collect::<Vec<_>>()
        })
        .remote(&collections.groups, move |peer: &OZRoutingPeer| {
            references::interest(&peer.metadata, peer.spec.groups.iter().map(String::as_str), &by_name)
        })
        .remote(&collections.networks, move |peer: &OZRoutingPeer| {
            Interest::default().claims(&network(peer, &of_networks))
        })
        .remote(&collections.setup_keys, move |peer: &OZRoutingPeer| {
            Interest::default().claims(&setup_key(peer, &of_keys))
        })
        .remote(&collections.routers, move |peer: &OZRoutingPeer| {
            let id = peer.status.as_ref().and_then(|status| status.router_id.clone()).unwrap_or_default();
            Interest::default().refers_to(&scope(peer, &by_id), &id)
        })
        .remote(&collections.resources, move |peer: &OZRoutingPeer| {
            let routes = routes(&peer.spec).unwrap_or_default();
            routes
                .iter()
                .fold(Interest::default(), |interest, route| interest.claims(&route_binding(peer, route, &of_routes)))
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

    fn settings(namespaced_networks: bool) -> Settings {
        Settings {
            cluster_name: "prod".to_owned(),
            namespaced_networks,
            cluster_dns: "svc.cluster.local".to_owned(),
            management_url: "https://openzro.example.com".to_owned(),
            client_image: "client:1".to_owned(),
            namespace: "openzro".to_owned(),
            ..Settings::default()
        }
    }

    /// A routing peer with a uid, in a namespace.
    fn placed(namespace: &str, name: &str, network: Option<&str>) -> Arc<OZRoutingPeer> {
        let mut peer = (*peer(name, network, "")).clone();
        peer.metadata.namespace = Some(namespace.to_owned());
        peer.metadata.uid = Some(format!("{namespace}-{name}"));
        Arc::new(peer)
    }

    #[test]
    fn further_groups_need_a_rule_by_whatever_name() {
        let settings = Settings {
            rules: Some(vec!["*={namespace}/*".parse().unwrap()]),
            namespace: "o".to_owned(),
            ..Settings::default()
        };
        let local = |namespace: &str, name: &str, display: &str| {
            let mut group = OZGroup::new(name, OZGroupSpec { name: display.to_owned() });
            group.metadata.namespace = Some(namespace.to_owned());
            Arc::new(group)
        };
        let objects =
            [local("shop", "ops", "prod-ops"), local("shop", "web", "shop/web"), local("team", "db", "shop/db")];
        for (namespace, groups, expected) in [
            ("shop", vec![], Some(0)),
            ("shop", vec!["shop/web", "web"], Some(1)),
            ("shop", vec!["prod-ops"], None),
            ("shop", vec!["shop/web", "ops"], None),
            ("shop", vec!["db"], None),
            ("o", vec!["prod-ops"], Some(1)),
        ] {
            let spec = serde_json::from_value(json!({ "groups": groups })).unwrap();
            let mut peer = OZRoutingPeer::new("r", spec);
            peer.metadata.namespace = Some(namespace.to_owned());
            let found = further_groups(&peer, &objects, &settings);
            assert_eq!(found.as_ref().ok().map(BTreeSet::len), expected, "{namespace} {groups:?}");
            assert!(found.err().is_none_or(|error| error.to_string().starts_with("spec.groups: ")));
        }
    }

    #[test]
    fn a_resource_without_a_network_is_in_the_default_one() {
        let spec: OZResourceSpec = serde_json::from_value(json!({})).unwrap();
        let peers = [placed("a", "x", Some("of-a")), placed("b", "y", Some("of-b")), placed("c", "z", None)];
        for (namespace, is_namespaced, expected) in [
            ("a", false, Some("of-a")),
            ("b", false, Some("of-b")),
            // Without one of its own, that of the cluster.
            ("c", false, Some("of-a")),
            ("a", true, Some("of-a")),
            ("c", true, None),
        ] {
            let found = current_network(&spec, namespace, &peers, &settings(is_namespaced));
            assert_eq!(found.as_deref(), expected, "{namespace} {is_namespaced}");
        }
    }

    /// The namespaces `b` and `t` have accounts of their own.
    fn with_tenants() -> Settings {
        let accounts = ["b", "t"].map(|namespace| (namespace.to_owned(), "https://t.example.com".to_owned()));
        Settings { accounts: accounts.into(), ..settings(false) }
    }

    #[test]
    fn a_resource_is_never_in_a_network_of_another_account() {
        // The routing peer of the tenant b claims the networks of the others as its former ones.
        let mut greedy = (*peer("y", Some("of-b"), "of-a,free")).clone();
        greedy.metadata.namespace = Some("b".to_owned());
        let peers = [Arc::new(greedy), placed("a", "x", Some("of-a"))];
        let to = |name: &str, of: &str| json!({ "networkRef": { "name": name, "namespace": of } });
        for (namespace, spec, expected) in [
            ("a", json!({}), Some("of-a")),
            ("b", json!({}), Some("of-b")),
            ("c", json!({}), Some("of-a")),
            ("t", json!({}), None),
            ("a", json!({ "networkID": "free" }), Some("free")),
            ("a", json!({ "networkID": "of-a" }), Some("of-a")),
            ("b", json!({ "networkID": "free" }), Some("of-b")),
            ("t", json!({ "networkID": "free" }), Some("free")),
            ("a", to("y", "b"), None),
            ("b", to("x", "a"), None),
            ("c", to("x", "a"), Some("of-a")),
        ] {
            let mut resource = OZResource::new("r", serde_json::from_value(spec.clone()).unwrap());
            resource.metadata.namespace = Some(namespace.to_owned());
            let found = current_network(&resource.spec, namespace, &peers, &with_tenants());
            assert_eq!(found.as_deref(), expected, "{namespace} {spec}");
            let is_same = |peer: &Arc<OZRoutingPeer>| (peer.namespace().as_deref() == Some("b")) == (namespace == "b");
            for peer in peers.iter().filter(|peer| !is_same(peer)) {
                let blocks = is_in(&resource, peer, &with_tenants()) || refers_to(&resource, peer, &with_tenants());
                assert!(!blocks, "{namespace} {spec} blocks the deletion of {}", peer.name_any());
            }
        }
        // `prod-b` is the network of b, and never that of another account.
        let in_b = [placed("b", "v", None), placed("b", "w", Some("of-b")), placed("a", "x", Some("of-a"))];
        assert_eq!(shared_network(&in_b[0], &in_b, &with_tenants()).as_deref(), Some("of-b"));
        assert_eq!(shared_network(&in_b[2], &in_b, &with_tenants()), None);
        assert_eq!(network_name(&in_b[0], &with_tenants()), "prod-b");
    }

    fn confined() -> Settings {
        Settings { rules: Some(vec!["*={namespace}/*".parse().unwrap()]), ..settings(true) }
    }

    #[test]
    fn a_routing_peer_draws_no_resource_of_another_namespace_into_its_network() {
        let with = |namespace: &str, network: &str, former: &str| {
            let mut peer = (*placed(namespace, namespace, Some(network))).clone();
            peer.metadata.annotations = Some([(FORMER_NETWORKS.to_owned(), former.to_owned())].into());
            Arc::new(peer)
        };
        // The first one says that its network was that of the others.
        let peers = [
            with("a", "of-a", "of-shop,was-of-shop,of-o"),
            with("shop", "of-shop", "was-of-shop"),
            with("o", "of-o", ""),
        ];
        for (namespace, id, expected) in [
            ("shop", "of-shop", "of-shop"),
            ("shop", "was-of-shop", "of-shop"),
            ("shop", "of-o", "of-o"),
            ("o", "was-of-shop", "was-of-shop"),
            ("a", "of-o", "of-o"),
            ("a", "was-of-shop", "of-a"),
        ] {
            let spec = serde_json::from_value(json!({ "networkID": id })).unwrap();
            let found =
                current_network(&spec, namespace, &peers, &Settings { namespace: "o".to_owned(), ..confined() });
            assert_eq!(found.as_deref(), Some(expected), "{namespace} {id}");
        }
    }

    #[test]
    fn a_resource_that_the_rules_refuse_keeps_no_network() {
        let settings = Settings { namespace: "o".to_owned(), ..confined() };
        let own = ["team/g", "g"];
        let mut local = OZGroup::new("g", OZGroupSpec { name: "team/g".to_owned() });
        local.metadata.namespace = Some("team".to_owned());
        let local = [Arc::new(local)];
        for (of, namespace, name, address, groups, expected) in [
            ("shop", "shop", "any", "10.0.0.1", &["prod-ops"][..], true),
            ("shop", "team", "team/r", "10.0.0.1", &own, false),
            ("o", "team", "team/r", "10.0.0.1", &own, false),
            ("o", "team", "team/r", "web.team.svc.cluster.local", &own, true),
            ("o", "team", "team/r", "web.shop.svc.cluster.local", &own, false),
            ("o", "team", "shop/r", "web.team.svc.cluster.local", &own, false),
            ("o", "team", "team/r", "web.team.svc.cluster.local", &["prod-ops"], false),
            ("o", "o", "any", "10.0.0.1", &["prod-ops"], true),
        ] {
            let spec = json!({ "name": name, "address": address, "groups": groups });
            let mut resource = OZResource::new("r", serde_json::from_value(spec.clone()).unwrap());
            resource.metadata.namespace = Some(namespace.to_owned());
            let peer = placed(of, "x", Some("n"));
            assert_eq!(may_be_in(&resource, &peer, &local, &settings), expected, "{of} {namespace} {spec}");
        }
    }

    #[test]
    fn a_routing_peer_that_no_rule_permits_shares_no_network() {
        let settings = Settings { namespaced_networks: false, namespace: "a".to_owned(), ..confined() };
        let peers = [placed("a", "x", Some("n")), placed("b", "y", Some("n"))];
        assert!(sharers(&peers[0], &peers, &settings).is_empty());
        assert_eq!(shared_network(&peers[0], &peers, &settings), None);
        let shared = Settings { rules: Some(vec!["b=prod".parse().unwrap()]), ..settings };
        assert_eq!(sharers(&peers[0], &peers, &shared).len(), 1);
    }

    #[test]
    fn a_part_of_unknown_origin_permits_no_item() {
        let owner = placed("shop", "x", None);
        assert_eq!(part_binding(&owner, "route-x", &confined()).names, Some(Vec::new()));
        assert_eq!(part_binding(&owner, "route-x", &settings(true)).names, None);
        let names = route_binding(&owner, "10.0.0.0/8", &confined()).names;
        assert_eq!(names, Some(vec![Pattern::new("prod-shop shop/x 10.0.0.0/8")]));
    }

    #[test]
    fn routing_peers_of_one_name_share_a_network_and_the_last_one_has_it_alone() {
        let (all, each) = (settings(false), settings(true));
        let peers = [placed("a", "x", Some("n")), placed("b", "y", Some("n")), placed("c", "z", None)];
        assert_eq!(shared_network(&peers[2], &peers, &all).as_deref(), Some("n"));
        assert_eq!(shared_network(&peers[2], &peers, &each), None, "each namespace has a network of its own");
        assert_eq!(shared_network(&peers[0], &peers[..1], &all), None, "an object does not share with itself");
        let names = |peers: Vec<Arc<OZRoutingPeer>>| peers.iter().map(|peer| peer.name_any()).collect::<Vec<_>>();
        assert_eq!(names(sharers(&peers[0], &peers, &all)), ["y"]);
        assert!(sharers(&peers[0], &peers, &each).is_empty() && sharers(&peers[2], &peers, &all).is_empty());
        let mut going = (*peers[1]).clone();
        going.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        assert!(sharers(&peers[0], &[Arc::new(going)], &all).is_empty());
        let mut choosy = (*peers[2]).clone();
        choosy.metadata.annotations = Some([(annotations::ADOPT.to_owned(), "other".to_owned())].into());
        assert_eq!(shared_network(&choosy, &peers, &all), None);
    }

    #[test]
    fn routes_are_subnets_and_each_is_a_resource_of_its_own() {
        let spec = |routes: serde_json::Value| -> OZRoutingPeerSpec {
            serde_json::from_value(json!({ "routes": routes })).unwrap()
        };
        let found = routes(&spec(json!(["10.0.0.0/8", "192.168.1.1", "192.168.1.1/32", "fd00::/8"]))).unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["10.0.0.0/8", "192.168.1.1/32", "fd00::/8"]);
        for wrong in ["web.example.com", "10.0.0.0/33", ""] {
            let why = routes(&spec(json!(["10.0.0.0/8", wrong]))).unwrap_err();
            assert!(why.contains(&format!("{wrong:?}")), "{why}");
        }
        let mut owner = (*placed("a", "x", None)).clone();
        let ids = json!({ "routeResourceIDs": { "10.0.0.0/8": "r1", "10.1.0.0/16": "r2" } });
        owner.status = Some(serde_json::from_value(ids).unwrap());
        let binding = route_binding(&owner, "10.0.0.0/8", &settings(false));
        assert_eq!((&*binding.name, binding.id.as_deref()), ("prod a/x 10.0.0.0/8", Some("r1")));
        let parts = route_parts(&owner, vec![route_part("10.0.0.0/8"), "route-lost".to_owned()]);
        assert_eq!(parts.len(), 3, "recorded or in the status: {parts:?}");
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
        ] {
            let parsed: OZResourceSpec = serde_json::from_value(spec.clone()).unwrap();
            assert_eq!(current_network(&parsed, "ns", &peers, &settings(true)).as_deref(), expected, "{spec}");
        }
        let resource = OZResource::new("r", serde_json::from_value(json!({ "networkID": "old" })).unwrap());
        let is_in = |peer| is_in(&resource, peer, &settings(true));
        assert!(is_in(&peers[0]) && !is_in(&peers[1]) && !is_in(&peers[2]));
    }
}
