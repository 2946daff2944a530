//! `NetworkResource`: Services in the network of a `NetworkRouter`, with a DNS record each.

use std::{net::IpAddr, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Service;
use konverge::{
    Watch,
    kube::ResourceExt,
    prelude::{Action, Cleanup, Context, Controller, Error, ObjectKey, Reconcile},
    remote::{Adoption, Binding, Interest},
};
use konverge_core::error::Classify;

use super::references;
use crate::{
    annotations,
    api::v1alpha1::{CrossNamespaceReference, Group, NetworkResource, NetworkRouter},
    collections::Collections,
    reasons::Why,
    remote::{DesiredRecord, DesiredResource, canonical},
    settings::Settings,
};

/// The finalizer, which is the original's.
const FINALIZER: &str = "finalizers.openzro.io/networkresource";
/// How soon an object is looked at that waits for another one, which mostly wakes it before.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// Keeps `NetworkResource`s.
pub struct NetworkResourceReconciler {
    collections: Collections,
    settings: Arc<Settings>,
}

/// The item, named by the uid of its object as in the original, which creates each itself.
fn of_resource(resource: &NetworkResource, settings: &Settings) -> Binding {
    let adoption = annotations::adoption(resource.annotations(), Adoption::Never);
    Binding::new(resource.metadata.uid.clone().unwrap_or_default()).with(|binding| {
        binding.scope = settings.scope(resource.metadata.namespace.as_deref());
        binding.id = resource.status.as_ref().and_then(|status| status.resource_id.clone());
        binding.id_is_proof = adoption == Adoption::Never;
        binding.adoption = adoption;
        binding.deletion = annotations::deletion(resource.annotations(), settings.deletes_adopted);
    })
}

fn of_record(resource: &NetworkResource, name: String, settings: &Settings) -> Binding {
    Binding::new(name).with(|binding| {
        binding.scope = settings.scope(resource.metadata.namespace.as_deref());
        binding.id = resource.status.as_ref().and_then(|status| status.dns_record_id.clone());
        binding.id_is_proof = true;
        binding.deletion = annotations::deletion(resource.annotations(), settings.deletes_adopted);
    })
}

/// The address of a Service, or why it has none.
fn address(service: Option<&Service>, name: &str) -> Result<IpAddr, String> {
    let service = service.ok_or_else(|| format!("waits for the Service {name}"))?;
    let spec = service.spec.clone().unwrap_or_default();
    match spec.type_.as_deref() {
        None | Some("ClusterIP") => {}
        Some(other) => return Err(format!("the Service {name} has the type {other}; only ClusterIP is served")),
    }
    let address = spec.cluster_ip.filter(|address| !address.is_empty() && address != "None");
    address
        .and_then(|address| address.parse().ok())
        .ok_or_else(|| format!("the Service {name} has no cluster IP; a headless Service is not served"))
}

/// Refuses a router of another account.
fn check_account(resource: &NetworkResource, settings: &Settings) -> Result<(), Error> {
    let CrossNamespaceReference { name, namespace } = &resource.spec.network_router_ref;
    if settings.scope(Some(namespace)) == settings.scope(resource.metadata.namespace.as_deref()) {
        return Ok(());
    }
    let message = format!(
        "spec.networkRouterRef: NetworkRouter {namespace}/{name} is in another account; refer to one of the same account"
    );
    Err(Error::permanent(Why::InvalidSpec, message))
}

fn waits(message: String) -> Error {
    Error::after(LOOK_AGAIN, Why::Dependency, message)
}

impl NetworkResourceReconciler {
    /// The ids of network and zone, and the domain of the zone.
    async fn place(
        &self,
        resource: &NetworkResource,
        context: &Context<NetworkResource>,
    ) -> Result<(String, String, String), Error> {
        let reference = &resource.spec.network_router_ref;
        let key = ObjectKey { namespace: Some(reference.namespace.clone()), name: reference.name.clone() };
        let scope = self.settings.scope(resource.metadata.namespace.as_deref());
        let router = context.watched::<NetworkRouter>()?.get(&key);
        let router = router.ok_or_else(|| waits(format!("waits for NetworkRouter {key}")))?;
        let status = router.status.clone().unwrap_or_default();
        let (Some(network), Some(_)) = (status.network_id, status.routing_peer_id) else {
            return Err(waits(format!("waits for NetworkRouter {key}, which has no network or no router yet")));
        };
        let name = &router.spec.dns_zone_ref.name;
        let records = self.collections.records.remote();
        let zone = match records {
            Some(records) => records.zone(&scope, name).await?,
            None => None,
        };
        let missing =
            || waits(format!("waits for the DNS zone {name}; create it in openZro, or correct NetworkRouter {key}"));
        let (zone, domain) = zone.ok_or_else(missing)?;
        Ok((network, zone, domain))
    }
}

impl Reconcile<NetworkResource> for NetworkResourceReconciler {
    type Error = Error;

    async fn apply(&self, resource: Arc<NetworkResource>, context: Context<NetworkResource>) -> Result<Action, Error> {
        let (namespace, name) = (resource.namespace().unwrap_or_default(), &resource.spec.service_ref.name);
        let key = ObjectKey { namespace: Some(namespace.clone()), name: name.clone() };
        check_account(&resource, &self.settings)?;
        let service = context.watched::<Service>()?.get(&key);
        let address = address(service.as_deref(), &key.to_string()).map_err(waits)?;
        let (network, zone, domain) = self.place(&resource, &context).await?;
        let local = context.watched::<Group>()?;
        let binding = of_resource(&resource, &self.settings);
        let (references, known) = (&resource.spec.groups, &self.collections.groups);
        let groups = references::group_ids(references, &namespace, &local, known, &binding.scope).await?;
        let desired = DesiredResource {
            network: network.clone(),
            name: binding.name.clone(),
            description: format!("{name}/{namespace}"),
            address: canonical(&address.to_string()).unwrap_or_default(),
            groups,
        };
        let standing = context.remote(&self.collections.resources).apply(&binding, &desired).await?;
        context.status(|status| {
            status.network_id = Some(network);
            status.resource_id = Some(standing.item.id().to_owned());
        });

        let kind = if address.is_ipv4() { "A" } else { "AAAA" };
        let name = format!("{name}.{namespace}.{}", domain.trim_end_matches('.'));
        let desired = DesiredRecord { zone: zone.clone(), name, kind, content: address.to_string() };
        let mut binding = of_record(&resource, desired.full_name(), &self.settings);
        let records = context.remote(&self.collections.records);
        if let Some(id) = &binding.id
            && let Some(known) = self.collections.records.look_up(&binding.scope, id).await?
            && known.zone() != zone
        {
            // A record cannot move to another zone.
            if let Cleanup::Pending { after, message, .. } = records.withdraw(&binding).await? {
                return Err(Error::after(after, "Deleting", message));
            }
            context.status(|status| status.dns_record_id = None);
            binding.id = None;
        }
        let standing = records.apply(&binding, &desired).await?;
        context.status(|status| {
            status.dns_zone_id = Some(zone);
            status.dns_record_id = Some(standing.item.id().to_owned());
        });
        Ok(Action::Done)
    }

    async fn finalize(
        &self,
        resource: Arc<NetworkResource>,
        context: Context<NetworkResource>,
    ) -> Result<Cleanup, Error> {
        let binding = of_resource(&resource, &self.settings);
        let item = context.remote(&self.collections.resources).finalize(&binding).await?;
        let binding = of_record(&resource, String::new(), &self.settings);
        let record = match context.remote(&self.collections.records).finalize(&binding).await {
            // A server without zones has no records.
            Err(error) if error.reason() == "Unsupported" => Cleanup::Done,
            record => record?,
        };
        Ok(if item == Cleanup::Done { record } else { item })
    }
}

/// The controller of `NetworkResource`s.
pub fn network_resource(
    collections: &Collections,
    settings: &Arc<Settings>,
) -> Controller<NetworkResource, NetworkResourceReconciler> {
    let [of_interest, of_groups, of_records] = [0; 3].map(|_| Arc::clone(settings));
    Controller::new(NetworkResourceReconciler { collections: collections.clone(), settings: Arc::clone(settings) })
        .finalizer_on_demand(FINALIZER)
        .reasons::<Why>()
        .watches(Watch::<Service>::new(), |service, resources| {
            let is_user = |resource: &Arc<NetworkResource>| {
                resource.metadata.namespace == service.metadata.namespace
                    && Some(&resource.spec.service_ref.name) == service.metadata.name.as_ref()
            };
            let users = resources.list().into_iter().filter(is_user);
            users.filter_map(|resource| ObjectKey::of(&*resource)).collect::<Vec<_>>()
        })
        .watches(Watch::<NetworkRouter>::new(), |router, resources| {
            let is_user = |resource: &Arc<NetworkResource>| {
                let reference = &resource.spec.network_router_ref;
                Some(&reference.namespace) == router.metadata.namespace.as_ref()
                    && Some(&reference.name) == router.metadata.name.as_ref()
            };
            let users = resources.list().into_iter().filter(is_user);
            users.filter_map(|resource| ObjectKey::of(&*resource)).collect::<Vec<_>>()
        })
        .watches(Watch::<Group>::new(), |group, store| {
            references::users(group, store.list(), |resource: &NetworkResource| &resource.spec.groups)
        })
        .remote(&collections.groups, move |resource: &NetworkResource| {
            let scope = of_groups.scope(resource.metadata.namespace.as_deref());
            let names = references::names(&resource.spec.groups);
            names.fold(Interest::default(), |interest, name| interest.refers_to(&scope, name))
        })
        .remote(&collections.resources, move |resource: &NetworkResource| {
            Interest::default().claims(&of_resource(resource, &of_interest))
        })
        .remote(&collections.records, move |resource: &NetworkResource| {
            let id = resource.status.as_ref().and_then(|status| status.dns_record_id.clone()).unwrap_or_default();
            Interest::default().refers_to(&of_records.scope(resource.metadata.namespace.as_deref()), &id)
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_service_needs_a_cluster_ip() {
        let of = |spec: Value| {
            let service: Service = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
            address(Some(&service), "n/s").map(|address| address.to_string())
        };
        assert_eq!(of(json!({ "clusterIP": "10.0.0.1" })).as_deref(), Ok("10.0.0.1"));
        assert_eq!(of(json!({ "type": "ClusterIP", "clusterIP": "fd00::1" })).as_deref(), Ok("fd00::1"));
        for (spec, word) in [
            (json!({ "clusterIP": "None" }), "headless"),
            (json!({ "type": "ExternalName" }), "ExternalName"),
            (json!({}), "no cluster IP"),
        ] {
            let error = of(spec).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        assert!(address(None, "n/s").unwrap_err().contains("waits for the Service n/s"));
    }
}
