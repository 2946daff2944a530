//! `OZResource`: addresses in the network of a routing peer.

pub(super) mod groups;
mod policies;

use std::{collections::BTreeSet, sync::Arc};

use konverge::{
    Watch,
    kube::ResourceExt,
    prelude::{Action, Cleanup, Context, Controller, Error, ObjectKey, Reconcile},
    remote::{Adoption, Binding, Interest, Remote, Remotes},
};

use super::{references, routing::current_network};
use crate::{
    annotations,
    api::v1::{OZGroup, OZPolicy, OZResource, OZRoutingPeer},
    collections::Collections,
    control::{deadline, pause::LOOK_AGAIN, policy::requested_policies},
    reasons,
    remote::{DesiredResource, Networks, ORIGINAL_DESCRIPTION, address_type, canonical},
    settings::Settings,
};

/// The finalizer that is ours from now on: the original's.
const FINALIZER: &str = "gateway.openzro.io/resource";

/// Keeps `OZResource`s.
pub struct ResourceReconciler {
    collections: Collections,
    settings: Arc<Settings>,
}

/// The item. The original creates each resource itself, so an id in the status proves that.
fn binding(resource: &OZResource, settings: &Settings) -> Binding {
    let adoption = annotations::adoption(resource.annotations(), Adoption::Never);
    Binding::new(&resource.spec.name).with(|binding| {
        binding.scope = settings.scope(resource.metadata.namespace.as_deref());
        binding.id = resource.status.as_ref().and_then(|status| status.network_resource_id.clone());
        binding.id_is_proof = adoption == Adoption::Never;
        binding.adoption = adoption;
        binding.names = settings.names(resource.metadata.namespace.as_deref().unwrap_or_default());
        binding.deletion = settings.deletion(&resource.metadata);
    })
}

/// Returns the address in the server's form, or why the spec has none.
fn address(resource: &OZResource) -> Result<String, String> {
    let spec = &resource.spec;
    let address = canonical(&spec.address).ok_or_else(|| {
        format!("spec.address is {:?}; use an IP address, a CIDR or a domain such as web.example.com", spec.address)
    })?;
    let is = address_type(&address);
    match spec.type_.as_deref() {
        Some(wanted) if wanted != is => Err(format!("spec.type is {wanted}, and spec.address is a {is}; correct one")),
        _ => Ok(address),
    }
}

/// The network and the address of a resource, or what is waited for.
async fn place(
    resource: &OZResource,
    peers: &[Arc<OZRoutingPeer>],
    networks: &Remotes<Networks>,
    settings: &Settings,
) -> Result<(String, String), Error> {
    let (spec, namespace) = (&resource.spec, resource.namespace().unwrap_or_default());
    let address = address(resource).map_err(|why| Error::permanent(reasons::INVALID_SPEC, why))?;
    let scope = settings.scope(Some(&namespace));
    if let Some(reference) = &spec.network_ref
        && let of = reference.namespace.as_ref().unwrap_or(&namespace)
        && settings.scope(Some(of)) != scope
    {
        let message = format!(
            "spec.networkRef: OZRoutingPeer {of}/{} is in another account; refer to one of the same account",
            reference.name
        );
        return Err(Error::permanent(reasons::INVALID_SPEC, message));
    }
    let Some(network) = current_network(spec, &namespace, peers, settings) else {
        let message = match &spec.network_ref {
            Some(reference) => format!(
                "waits for the network of OZRoutingPeer {}; create the OZRoutingPeer, or see its status for the cause",
                reference.name
            ),
            None => {
                "waits for an OZRoutingPeer, whose network is the default; or give spec.networkID or spec.networkRef"
                    .to_owned()
            }
        };
        return Err(Error::after(LOOK_AGAIN, reasons::DEPENDENCY, message));
    };
    let Some(found) = networks.look_up(&scope, &network).await? else {
        let message = format!("waits for the network {network}, which openZro does not have; correct spec.networkID");
        return Err(Error::after(LOOK_AGAIN, reasons::DEPENDENCY, message));
    };
    if !may_be_in(resource, &network, peers, settings) {
        settings.check(&namespace, "its network", "network", Networks::name(&found))?;
    }
    Ok((network, address))
}

/// Returns `true` if a resource may be in a network without a rule: a Service of its own namespace in the network of the operator's namespace.
fn may_be_in(resource: &OZResource, network: &str, peers: &[Arc<OZRoutingPeer>], settings: &Settings) -> bool {
    let of_operator = peers.iter().filter(|peer| peer.metadata.namespace.as_deref() == Some(&settings.namespace));
    let mut networks = of_operator.filter_map(|peer| peer.status.as_ref()?.network_id.as_deref());
    is_own_service(resource, settings) && networks.any(|id| id == network)
}

/// Returns `true` if the address of a resource is that of a Service of its namespace.
pub(super) fn is_own_service(resource: &OZResource, settings: &Settings) -> bool {
    let services = format!(".{}.{}", resource.metadata.namespace.as_deref().unwrap_or_default(), settings.cluster_dns);
    resource.spec.address.strip_suffix(&services).is_some_and(|name| !name.contains(['.', '*']))
}

fn desired(resource: &OZResource, network: String, address: String, groups: BTreeSet<String>) -> DesiredResource {
    let spec = &resource.spec;
    let description = spec.description.clone().unwrap_or_else(|| ORIGINAL_DESCRIPTION.to_owned());
    DesiredResource { network, name: spec.name.clone(), description, address, groups }
}

/// A resource that may be written: everything that it refers to is checked.
struct Checked {
    network: String,
    address: String,
    /// The display names of its groups.
    groups: Vec<String>,
    policies: Vec<policies::Generated>,
}

/// The objects of other kinds that resources refer to.
#[derive(Default)]
pub(crate) struct Referenced {
    pub(crate) peers: Vec<Arc<OZRoutingPeer>>,
    pub(crate) groups: Vec<Arc<OZGroup>>,
    pub(crate) policies: Vec<Arc<OZPolicy>>,
}

/// Returns whether the plan of a resource depends on [`Referenced::policies`].
pub(crate) fn names_policies(resource: &OZResource) -> bool {
    !requested_policies(&resource.spec).is_empty()
}

/// Checks everything that a resource refers to. Nothing is written before, neither to openZro nor to the cluster.
async fn check(
    resource: &OZResource,
    referenced: &Referenced,
    collections: &Collections,
    settings: &Settings,
) -> Result<Checked, Error> {
    // Names of resources are unique in the account.
    let namespace = resource.namespace().unwrap_or_default();
    settings.check(&namespace, "spec.name", "network resource", &resource.spec.name)?;
    let (network, address) = place(resource, &referenced.peers, &collections.networks, settings).await?;
    let policies = policies::plan(resource, &referenced.policies, settings)?;
    let groups = groups::meant(resource, &referenced.groups, &collections.groups, settings).await?;
    for name in &groups {
        settings.check(&resource.namespace().unwrap_or_default(), "spec.groups", "group", name)?;
    }
    Ok(Checked { network, address, groups, policies })
}

/// Returns the item that the resource should have, or without a content the one that it should lose.
pub(crate) async fn plan(
    resource: &OZResource,
    referenced: &Referenced,
    collections: &Collections,
    settings: &Settings,
) -> Result<(Binding, Option<DesiredResource>), Error> {
    let binding = binding(resource, settings);
    if resource.metadata.deletion_timestamp.is_some() {
        return Ok((binding, None));
    }
    let Checked { network, address, groups, .. } = check(resource, referenced, collections, settings).await?;
    let groups = collections.groups.resolve(&binding.scope, &groups).await?;
    let groups = groups.iter().map(|group| group.id().to_owned()).collect();
    Ok((binding, Some(desired(resource, network, address, groups))))
}

impl Reconcile<OZResource> for ResourceReconciler {
    type Error = Error;

    async fn apply(&self, resource: Arc<OZResource>, context: Context<OZResource>) -> Result<Action, Error> {
        let spec = &resource.spec;
        let referenced = Referenced {
            peers: context.watched::<OZRoutingPeer>()?.list(),
            groups: context.watched::<OZGroup>()?.list(),
            policies: context.watched::<OZPolicy>()?.list(),
        };
        let Checked { network, address, groups: names, policies } =
            check(&resource, &referenced, &self.collections, &self.settings).await?;
        policies::check(&context, &policies).await?;
        let scope = self.settings.scope(resource.metadata.namespace.as_deref());
        if let Some(waits) = groups::ensure(&context, &self.collections.groups, &self.settings, &names).await? {
            return Err(Error::after(LOOK_AGAIN, reasons::DEPENDENCY, waits));
        }
        // A failure here ends the run: a resource never loses its groups because they could not be read.
        let groups = self.collections.groups.resolve(&scope, &names).await?;
        let groups: BTreeSet<String> = groups.iter().map(|group| group.id().to_owned()).collect();
        let desired = desired(&resource, network, address, groups.clone());
        let binding = binding(&resource, &self.settings);
        let applied = context.remote(&self.collections.resources).apply(&binding, &desired).await?;
        let mapping = policies::ensure(&context, policies).await?;
        groups::release_others(&context, &names).await?;
        context.status(|status| {
            status.policy_name_mapping = mapping;
            status.network_resource_id = Some(applied.item.id().to_owned());
            status.groups = groups.into_iter().collect();
            status.policy_name = Some(spec.policy_name.clone()).filter(|name| !name.is_empty());
            status.tcp_ports.clone_from(&spec.tcp_ports);
            status.udp_ports.clone_from(&spec.udp_ports);
        });
        Ok(Action::Done)
    }

    async fn finalize(&self, resource: Arc<OZResource>, context: Context<OZResource>) -> Result<Cleanup, Error> {
        policies::delete_generated(&context, &[]).await?;
        let resources = context.remote(&self.collections.resources);
        let outcome = resources.finalize(&binding(&resource, &self.settings)).await;
        deadline::bounded(&context, &self.settings, outcome).await
    }
}

/// The resources whose network a routing peer decides.
fn users(peer: &OZRoutingPeer, resources: Vec<Arc<OZResource>>, settings: &Settings) -> Vec<ObjectKey> {
    let peer = [Arc::new(peer.clone())];
    let is_user = |resource: &Arc<OZResource>| {
        let namespace = resource.namespace().unwrap_or_default();
        let reference = resource.spec.network_ref.as_ref().map(|reference| reference.name.as_str());
        let own = peer[0].status.as_ref().and_then(|status| status.network_id.clone());
        reference == peer[0].metadata.name.as_deref() && reference.is_some()
            || own.is_some() && current_network(&resource.spec, &namespace, &peer, settings) == own
    };
    resources.into_iter().filter(is_user).filter_map(|resource| ObjectKey::of(&*resource)).collect()
}

/// The controller of `OZResource`s.
pub fn oz_resource(collections: &Collections, settings: &Arc<Settings>) -> Controller<OZResource, ResourceReconciler> {
    let [of_resources, of_peers, of_groups] = [0; 3].map(|_| Arc::clone(settings));
    Controller::new(ResourceReconciler { collections: collections.clone(), settings: Arc::clone(settings) })
        .finalizer_on_demand(FINALIZER)
        .former_finalizer("openzro.io/cleanup")
        .access(|access| {
            access.to::<OZGroup>(&(), &["create", "delete", "patch"]);
            access.to::<OZPolicy>(&(), &["create", "delete", "patch"]);
        })
        .watches(Watch::<OZRoutingPeer>::new(), move |peer, resources| users(peer, resources.list(), &of_peers))
        .watches(Watch::<OZGroup>::new(), |group, resources| {
            let users =
                references::users_by_name(group, resources.list(), |resource: &OZResource| &resource.spec.groups);
            groups::owners(group).into_iter().chain(users).collect::<Vec<_>>()
        })
        .watches(Watch::<OZPolicy>::new(), |policy, resources| policies::users(policy, &resources.list()))
        .remote(&collections.groups, move |resource: &OZResource| {
            references::interest(&resource.metadata, resource.spec.groups.iter().map(String::as_str), &of_groups)
        })
        .remote(&collections.resources, move |resource: &OZResource| {
            Interest::default().claims(&binding(resource, &of_resources))
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_address_is_checked_before_the_server_answers_500() {
        for (spec, expected) in [
            (json!({ "address": "10.0.0.1" }), Ok("10.0.0.1/32")),
            (json!({ "address": "10.0.0.0/8", "type": "subnet" }), Ok("10.0.0.0/8")),
            (json!({ "address": "a.example.com", "type": "domain" }), Ok("a.example.com")),
            (json!({ "address": "a.example.com", "type": "host" }), Err("is a domain")),
            (json!({ "address": "nonsense" }), Err("spec.address is \"nonsense\"")),
        ] {
            let resource = OZResource::new("r", serde_json::from_value(spec.clone()).unwrap());
            match (address(&resource), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
                other => panic!("{spec}: {other:?}"),
            }
        }
    }
}
