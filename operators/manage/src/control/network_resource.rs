//! `NetworkResource`: Services in the network of a `NetworkRouter`, with a DNS record each.

use std::{net::IpAddr, sync::Arc};

use k8s_openapi::api::core::v1::Service;
use konverge::{
    Watch,
    kube::ResourceExt,
    prelude::{Action, Cleanup, Context, Controller, Error, ObjectKey, Reconcile},
    remote::{Adoption, Binding, Interest, Remotes},
};
use konverge_core::{allow::Pattern, error::Classify};

use super::references;
use crate::{
    annotations,
    api::v1alpha1::{CrossNamespaceReference, Group, NetworkResource, NetworkRouter},
    collections::Collections,
    control::{deadline, pause::LOOK_AGAIN},
    reasons,
    remote::{DesiredRecord, DesiredResource, Records, canonical},
    settings::Settings,
};

/// The finalizer, which is the original's.
const FINALIZER: &str = "finalizers.openzro.io/networkresource";

/// Keeps `NetworkResource`s.
pub struct NetworkResourceReconciler {
    collections: Collections,
    settings: Arc<Settings>,
}

/// The item, named by the uid of its object as in the original, which creates each itself.
fn of_resource(resource: &NetworkResource, settings: &Settings) -> Binding {
    let adoption = annotations::adoption(resource.annotations(), Adoption::Never);
    let name = resource.metadata.uid.clone().unwrap_or_default();
    Binding::new(name.clone()).with(|binding| {
        binding.scope = settings.scope(resource.metadata.namespace.as_deref());
        binding.id = resource.status.as_ref().and_then(|status| status.resource_id.clone());
        binding.id_is_proof = adoption == Adoption::Never;
        binding.adoption = adoption;
        // No other object can have the uid, so it needs no rule.
        let names = settings.names(resource.metadata.namespace.as_deref().unwrap_or_default());
        binding.names = names.map(|names| names.into_iter().chain([Pattern::new(name)]).collect());
        binding.deletion = settings.deletion(&resource.metadata);
    })
}

fn of_record(resource: &NetworkResource, name: String, settings: &Settings) -> Binding {
    Binding::new(name).with(|binding| {
        binding.scope = settings.scope(resource.metadata.namespace.as_deref());
        binding.id = resource.status.as_ref().and_then(|status| status.dns_record_id.clone());
        binding.id_is_proof = true;
        // A record has no mark. Its name in the zone is that of a Service and the namespace.
        let namespace = resource.metadata.namespace.as_deref().unwrap_or_default();
        binding.names = settings.names(namespace).map(|_| vec![Pattern::of_labels(format!("*.{namespace}"))]);
        binding.deletion = settings.deletion(&resource.metadata);
    })
}

/// The address of a Service, or why it has none.
fn address(service: Option<&Service>, name: &str) -> Result<IpAddr, String> {
    let service =
        service.ok_or_else(|| format!("waits for the Service {name}; create it, or correct spec.serviceRef"))?;
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

/// Refuses a router of another namespace that no rule permits, and one of another account.
pub(super) fn check_router(resource: &NetworkResource, settings: &Settings) -> Result<(), Error> {
    let CrossNamespaceReference { name, namespace } = &resource.spec.network_router_ref;
    let own = resource.metadata.namespace.as_deref();
    if settings.scope(Some(namespace)) == settings.scope(own) {
        let is_own = own == Some(namespace.as_str());
        let name = format!("{namespace}/{name}");
        let check = || settings.check(own.unwrap_or_default(), "spec.networkRouterRef", "NetworkRouter", &name);
        return if is_own { Ok(()) } else { check() };
    }
    let message = format!(
        "spec.networkRouterRef: NetworkRouter {namespace}/{name} is in another account; refer to one of the same account"
    );
    Err(Error::permanent(reasons::INVALID_SPEC, message))
}

fn waits(message: String) -> Error {
    Error::after(LOOK_AGAIN, reasons::DEPENDENCY, message)
}

/// The items that a resource should have.
pub(crate) struct Wanted {
    pub(crate) resource: DesiredResource,
    pub(crate) record: DesiredRecord,
}

/// The ids of network and zone, and the domain of the zone.
async fn place(
    resource: &NetworkResource,
    routers: &[Arc<NetworkRouter>],
    records: &Remotes<Records>,
    scope: &str,
) -> Result<(String, String, String), Error> {
    let CrossNamespaceReference { name, namespace } = &resource.spec.network_router_ref;
    let key = format!("{namespace}/{name}");
    let is_meant = |router: &&Arc<NetworkRouter>| {
        router.metadata.namespace.as_ref() == Some(namespace) && router.metadata.name.as_ref() == Some(name)
    };
    let missing = || waits(format!("waits for NetworkRouter {key}"));
    let router = routers.iter().find(is_meant).ok_or_else(missing)?;
    let status = router.status.clone().unwrap_or_default();
    let (Some(network), Some(_)) = (status.network_id, status.routing_peer_id) else {
        return Err(waits(format!("waits for NetworkRouter {key}, which has no network or no router yet")));
    };
    let name = &router.spec.dns_zone_ref.name;
    let zone = match records.remote() {
        Some(records) => records.zone(scope, name).await?,
        None => None,
    };
    let missing =
        || waits(format!("waits for the DNS zone {name}; create it in openZro, or correct NetworkRouter {key}"));
    let (zone, domain) = zone.ok_or_else(missing)?;
    Ok((network, zone, domain))
}

/// The items that a resource should have, or what is waited for. `local` finds a `Group` by its key.
pub(crate) async fn wanted(
    resource: &NetworkResource,
    service: Option<&Service>,
    local: impl Fn(&ObjectKey) -> Option<Arc<Group>> + Send,
    routers: &[Arc<NetworkRouter>],
    collections: &Collections,
    settings: &Settings,
) -> Result<Wanted, Error> {
    let (namespace, name) = (resource.namespace().unwrap_or_default(), &resource.spec.service_ref.name);
    check_router(resource, settings)?;
    let address = address(service, &format!("{namespace}/{name}")).map_err(waits)?;
    let binding = of_resource(resource, settings);
    let (network, zone, domain) = place(resource, routers, &collections.records, &binding.scope).await?;
    let references = (&resource.metadata, "spec.groups", resource.spec.groups.as_slice());
    let groups = references::group_ids(references, local, routers, &collections.groups, settings).await?;
    let wanted = DesiredResource {
        network,
        name: binding.name,
        description: format!("{name}/{namespace}"),
        address: canonical(&address.to_string()).unwrap_or_default(),
        groups,
    };
    let kind = if address.is_ipv4() { "A" } else { "AAAA" };
    let record =
        DesiredRecord { zone, domain, host: format!("{name}.{namespace}"), kind, content: address.to_string() };
    Ok(Wanted { resource: wanted, record })
}

/// The bindings of both items. `record` is the full name of the record, and is not needed to delete it.
pub(crate) fn bindings(resource: &NetworkResource, record: String, settings: &Settings) -> (Binding, Binding) {
    (of_resource(resource, settings), of_record(resource, record, settings))
}

impl Reconcile<NetworkResource> for NetworkResourceReconciler {
    type Error = Error;

    async fn apply(&self, resource: Arc<NetworkResource>, context: Context<NetworkResource>) -> Result<Action, Error> {
        let service = ObjectKey { namespace: resource.namespace(), name: resource.spec.service_ref.name.clone() };
        let service = context.watched::<Service>()?.get(&service);
        let (local, routers) = (context.watched::<Group>()?, context.watched::<NetworkRouter>()?.list());
        let find = |group: &ObjectKey| local.get(group);
        let wanted = wanted(&resource, service.as_deref(), find, &routers, &self.collections, &self.settings);
        let Wanted { resource: desired, record } = wanted.await?;
        let (binding, mut of_record) = bindings(&resource, record.full_name(), &self.settings);
        let applied = context.remote(&self.collections.resources).apply(&binding, &desired).await?;
        context.status(|status| {
            status.network_id = Some(desired.network.clone());
            status.resource_id = Some(applied.item.id().to_owned());
        });

        let records = context.remote(&self.collections.records);
        if let Some(id) = &of_record.id
            && let Some(known) = self.collections.records.look_up(&of_record.scope, id).await?
            && known.zone() != record.zone
        {
            // A record cannot move to another zone.
            let of_old = of_record.clone().with(|binding| binding.is_replaced = true);
            if let Cleanup::Pending { after, message, .. } = records.withdraw(&of_old).await? {
                return Err(Error::after(after, reasons::DELETING, message));
            }
            context.status(|status| status.dns_record_id = None);
            of_record.id = None;
        }
        let applied = records.apply(&of_record, &record).await?;
        context.status(|status| {
            status.dns_zone_id = Some(record.zone);
            status.dns_record_id = Some(applied.item.id().to_owned());
        });
        Ok(Action::Done)
    }

    async fn finalize(
        &self,
        resource: Arc<NetworkResource>,
        context: Context<NetworkResource>,
    ) -> Result<Cleanup, Error> {
        let outcome = self.clear(&resource, &context).await;
        deadline::bounded(&context, &self.settings, outcome).await
    }
}

impl NetworkResourceReconciler {
    /// Deletes the items of a resource in openZro.
    async fn clear(&self, resource: &NetworkResource, context: &Context<NetworkResource>) -> Result<Cleanup, Error> {
        let binding = of_resource(resource, &self.settings);
        let item = context.remote(&self.collections.resources).finalize(&binding).await?;
        let binding = of_record(resource, String::new(), &self.settings);
        let record = match context.remote(&self.collections.records).finalize(&binding).await {
            // A server without zones has no records.
            Err(error) if error.reason() == reasons::UNSUPPORTED => Cleanup::Done,
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
            references::interest(&resource.metadata, references::names(&resource.spec.groups), &of_groups)
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
    use konverge::remote::Remote;
    use serde_json::{Value, json};

    use super::*;
    use crate::remote::RecordItem;

    #[test]
    fn a_router_of_another_namespace_needs_a_rule() {
        let rules = ["*={namespace}/*", "shop=platform/edge"].map(|rule| rule.parse().unwrap());
        let settings = Settings {
            namespace: "openzro".to_owned(),
            accounts: [("tenant".to_owned(), String::new())].into(),
            rules: Some(rules.into()),
            ..Settings::default()
        };
        for (namespace, router, expected) in [
            ("shop", ("shop", "any"), None),
            ("shop", ("platform", "edge"), None),
            ("shop", ("platform", "core"), Some("NotAllowed")),
            ("team", ("platform", "edge"), Some("NotAllowed")),
            ("openzro", ("platform", "core"), None),
            ("shop", ("tenant", "edge"), Some("InvalidSpec")),
        ] {
            let reference = json!({ "namespace": router.0, "name": router.1 });
            let spec = json!({ "networkRouterRef": reference, "serviceRef": { "name": "web" } });
            let mut resource = NetworkResource::new("web", serde_json::from_value(spec).unwrap());
            resource.metadata.namespace = Some(namespace.to_owned());
            let refused = check_router(&resource, &settings).err();
            assert_eq!(refused.as_ref().map(Error::reason), expected, "{namespace} {router:?}");
            assert!(refused.is_none_or(|error| error.to_string().starts_with("spec.networkRouterRef: ")));
        }
        assert!(check_router(&NetworkResource::default(), &Settings::default()).is_ok());
    }

    #[test]
    fn a_record_belongs_to_the_namespace_that_its_name_in_the_zone_has() {
        let settings = Settings { rules: Some(vec!["*={namespace}/*".parse().unwrap()]), ..Settings::default() };
        let mut resource = NetworkResource::default();
        resource.metadata.namespace = Some("shop".to_owned());
        let names = of_record(&resource, String::new(), &settings).names.unwrap();
        for (domain, name, expected) in [
            ("prod.example", "web.shop.prod.example", true),
            ("prod.example.", "web.shop.prod.example", true),
            ("shop.example", "web.shop.shop.example", true),
            ("prod.example", "web.team.prod.example", false),
            ("prod.example", "shop.prod.example", false),
            ("prod.example", "a.web.shop.prod.example", false),
            ("prod.example", "web.shop.other.example", false),
            ("shop.example", "www.shop.example", false),
            ("shop.example", "web.team.shop.example", false),
            ("prod.shop.example", "web.team.prod.shop.example", false),
        ] {
            let record = json!({ "id": "r", "name": name, "type": "A", "content": "10.0.0.1", "ttl": 300 });
            let record = RecordItem::new(serde_json::from_value(record).unwrap(), "z", domain);
            let found = names.iter().any(|names| names.matches(Records::name_for_rules(&record)));
            assert_eq!(found, expected, "{name} in the zone {domain}");
        }
    }

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
