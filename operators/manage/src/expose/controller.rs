//! Keeps the `OZResource` of each exposed Service.
//!
//! The resource has the name of the Service, as openzro-operator names it. A resource of that name which was made by somebody else is never changed
//! or deleted. The resource is owned by the Service, so it goes with the Service, also while the operator is away. The finalizer that
//! openzro-operator put on the Service is therefore removed.

use std::sync::Arc;

use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::OwnerReference};
use konverge::{
    Watch,
    kube::{Api, api::PostParams},
    prelude::*,
};

use super::service::{Exposed, Exposure, ORIGINAL_FINALIZER, ROUTER, exposure, is_of_original};
use crate::{
    annotations::EXPOSE,
    api::v1::{OZResource, OZRoutingPeer, OZRoutingPeerSpec},
    reasons,
    settings::Settings,
};

/// The next step for a Service.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    /// Everything is as it should be.
    Nothing,
    /// The routing peer whose network would have the resource is missing.
    CreateRouter(Box<OZRoutingPeer>),
    /// The routing peer has no network yet.
    AwaitNetwork,
    Create(Box<OZResource>),
    /// The object as it should be, with the version that it replaces.
    Replace(Box<OZResource>),
    Delete,
    /// A resource that somebody else made has the name.
    NotOurs,
}

/// The controller of exposed Services.
pub fn services(settings: &Arc<Settings>) -> Controller<Service, impl Reconcile<Service>> {
    Controller::<Service, _>::watching(Services(Arc::clone(settings)))
        .named("exposed-services")
        .finalizer_on_demand(ORIGINAL_FINALIZER)
        .watches(Watch::<OZResource>::new(), |resource: &OZResource, _| ObjectKey::of(resource))
        .watches(Watch::<OZRoutingPeer>::new(), |router: &OZRoutingPeer, services| {
            let is_router = router.name_any() == ROUTER;
            let exposed = |service: &Arc<Service>| is_router && service.annotations().contains_key(EXPOSE);
            let keys = services.list().into_iter().filter(exposed).filter_map(|service| ObjectKey::of(&*service));
            keys.collect::<Vec<_>>()
        })
        .access(|access| {
            access.to::<OZResource>(&(), &["create", "delete", "patch", "update"]);
            access.to::<OZRoutingPeer>(&(), &["create", "patch"]);
        })
}

struct Services(Arc<Settings>);

impl Reconcile<Service> for Services {
    type Error = Error;

    async fn apply(&self, service: Arc<Service>, context: Context<Service>) -> Result<Action, Error> {
        let name = format!("Service {}/{}", service.namespace().unwrap_or_default(), service.name_any());
        let exposure = exposure(&service, &self.0).map_err(|error| {
            let message = format!("{name} is not exposed as its annotations ask: {error}");
            Error::permanent(reasons::INVALID_ANNOTATION, message)
        })?;
        if let Exposure::Exposed(exposed) = &exposure {
            for warning in &exposed.warnings {
                let note = format!("{name}: {warning}");
                context.event(EventType::Warning, reasons::UNUSED_ANNOTATION, "Expose", note);
            }
        }
        self.carry_out(&service, &context, &exposure).await?;
        Ok(Action::Done)
    }

    async fn cleanup(&self, service: Arc<Service>, context: Context<Service>) -> Result<(), Error> {
        self.carry_out(&service, &context, &Exposure::Hidden).await
    }
}

impl Services {
    async fn carry_out(&self, service: &Service, context: &Context<Service>, exposure: &Exposure) -> Result<(), Error> {
        let Some(key) = ObjectKey::of(service) else { return Ok(()) };
        let resource = context.watched::<OZResource>()?.get(&key);
        let router = match exposure {
            Exposure::Exposed(exposed) => context.watched::<OZRoutingPeer>()?.get(&exposed.router),
            Exposure::Ignored | Exposure::Hidden => None,
        };
        let applier = context.applier();
        match plan(service, exposure, resource.as_deref(), router.as_deref(), &self.0) {
            Step::Nothing => {}
            // Both wake the Service when they are there.
            Step::AwaitNetwork => return Ok(()),
            Step::CreateRouter(router) => {
                drop(applier.create(&*router).await?);
                return Ok(());
            }
            Step::Create(resource) => drop(applier.create(&*resource).await?),
            Step::Replace(resource) => {
                let api: Api<OZResource> =
                    Api::namespaced(context.client().clone(), key.namespace.as_deref().unwrap_or_default());
                let parameters =
                    PostParams { dry_run: applier.is_dry_run(), field_manager: Some(applier.manager().to_owned()) };
                api.replace(&key.name, &parameters, &resource).await?;
            }
            Step::Delete => {
                if let Some(resource) = &resource {
                    applier.delete(&**resource).await?;
                }
            }
            Step::NotOurs => {
                let message = format!(
                    "Service {key} is not exposed: somebody else made OZResource {key}; rename or delete it, or remove annotation {EXPOSE}"
                );
                return Err(Error::permanent(reasons::RESOURCE_NOT_OURS, message));
            }
        }
        // The framework removes it from an object that is being deleted.
        if service.meta().deletion_timestamp.is_none() {
            applier.remove_finalizer(service, ORIGINAL_FINALIZER).await?;
        }
        Ok(())
    }
}

/// Decides the next step. The resource is written as a whole, so ports and policies that the Service no longer has do not stay.
fn plan(
    service: &Service,
    exposure: &Exposure,
    resource: Option<&OZResource>,
    router: Option<&OZRoutingPeer>,
    settings: &Settings,
) -> Step {
    let is_going = |resource: &OZResource| resource.meta().deletion_timestamp.is_some();
    let is_ours = |resource: &OZResource| is_owned(resource, service) || is_of_original(resource, service, settings);
    let exposed = match (exposure, resource) {
        (Exposure::Exposed(exposed), _) => exposed,
        (Exposure::Hidden, Some(resource)) if is_ours(resource) && !is_going(resource) => return Step::Delete,
        (Exposure::Hidden | Exposure::Ignored, _) => return Step::Nothing,
    };
    let Exposed { spec, router: router_key, .. } = &**exposed;
    let Some(router) = router else {
        let mut router = OZRoutingPeer::new(&router_key.name, OZRoutingPeerSpec::default());
        router.metadata.namespace.clone_from(&router_key.namespace);
        router.metadata.labels = Some(settings.default_labels.clone()).filter(|labels| !labels.is_empty());
        return Step::CreateRouter(Box::new(router));
    };
    let network = router.status.as_ref().and_then(|status| status.network_id.clone()).filter(|id| !id.is_empty());
    let Some(network_id) = network else { return Step::AwaitNetwork };
    let Some(resource) = resource else {
        let mut resource = OZResource { spec: spec.clone(), ..OZResource::default() };
        resource.spec.network_id = network_id;
        resource.metadata.name = Some(service.name_any());
        resource.metadata.namespace = service.namespace();
        own(&mut resource, service, settings);
        return Step::Create(Box::new(resource));
    };
    if is_going(resource) {
        // Its deletion wakes the Service.
        return Step::Nothing;
    }
    if !is_ours(resource) {
        return Step::NotOurs;
    }
    if resource.spec.network_id != network_id {
        // The network of a resource cannot change, so another resource takes its place once it is gone.
        return Step::Delete;
    }
    let mut desired = resource.clone();
    desired.spec.clone_from(spec);
    desired.spec.network_id = network_id;
    own(&mut desired, service, settings);
    if desired == *resource {
        return Step::Nothing;
    }
    // The cache keeps a part of them, and the API server takes what is sent.
    desired.metadata.managed_fields = None;
    desired.status = None;
    Step::Replace(Box::new(desired))
}

fn is_owned(resource: &OZResource, service: &Service) -> bool {
    let uid = service.meta().uid.as_deref();
    resource.owner_references().iter().any(|owner| owner.kind == "Service" && Some(owner.uid.as_str()) == uid)
}

/// Makes the Service the owner, and adds the labels of all objects that the operator creates. Labels and owners of others stay.
fn own(resource: &mut OZResource, service: &Service, settings: &Settings) {
    if !settings.default_labels.is_empty() {
        resource.labels_mut().extend(settings.default_labels.clone());
    }
    if !is_owned(resource, service) {
        resource.owner_references_mut().push(OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Service".to_owned(),
            name: service.name_any(),
            uid: service.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: None,
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value, reason = "the rows of tables are made in place")]

    use serde_json::{Value, from_value, json};

    use super::*;

    fn settings() -> Settings {
        Settings {
            cluster_name: "prod".to_owned(),
            cluster_dns: "svc.cluster.local".to_owned(),
            default_labels: [("team".to_owned(), "net".to_owned())].into(),
            namespace: "openzro".to_owned(),
            ..Settings::default()
        }
    }

    fn service(annotations: Value) -> Service {
        from_value(json!({
            "metadata": { "name": "web", "namespace": "shop", "uid": "s1", "annotations": annotations },
            "spec": { "ports": [{ "port": 80 }, { "port": 443 }] },
        }))
        .unwrap()
    }

    fn router(network: Value) -> OZRoutingPeer {
        from_value(
            json!({ "metadata": { "name": "router", "namespace": "openzro" }, "status": { "networkID": network } }),
        )
        .unwrap()
    }

    fn step(service: &Service, resource: Option<&OZResource>, router: Option<&OZRoutingPeer>) -> Step {
        let settings = settings();
        plan(service, &exposure(service, &settings).unwrap(), resource, router, &settings)
    }

    fn exposed() -> Service {
        service(json!({ "openzro.io/expose": "true", "openzro.io/policy": "web", "openzro.io/policy-ports": "443" }))
    }

    /// The resource that the controller creates for [`exposed`].
    fn created() -> OZResource {
        match step(&exposed(), None, Some(&router(json!("n1")))) {
            Step::Create(resource) => *resource,
            other => panic!("{other:?}"),
        }
    }

    /// The resource as openzro-operator left it: with a port that the Service lost, its finalizer, and no owner.
    fn of_original() -> OZResource {
        let mut resource = created();
        resource.spec.tcp_ports = vec![443, 8443];
        resource.metadata.owner_references = None;
        resource.metadata.finalizers = Some(vec!["openzro.io/cleanup".to_owned()]);
        resource.metadata.resource_version = Some("7".to_owned());
        resource
    }

    #[test]
    fn an_exposed_service_gets_a_routing_peer_and_then_a_resource_of_its_own_name() {
        let Step::CreateRouter(peer) = step(&exposed(), None, None) else { panic!() };
        assert_eq!((peer.namespace().as_deref(), peer.name_any().as_str()), (Some("openzro"), "router"));
        assert_eq!(peer.labels().get("team").map(String::as_str), Some("net"));
        for network in [Value::Null, json!("")] {
            assert_eq!(step(&exposed(), None, Some(&router(network))), Step::AwaitNetwork);
        }
        assert_eq!(
            serde_json::to_value(created()).unwrap(),
            json!({
                "apiVersion": "openzro.io/v1",
                "kind": "OZResource",
                "metadata": {
                    "name": "web",
                    "namespace": "shop",
                    "labels": { "team": "net" },
                    "ownerReferences": [{ "apiVersion": "v1", "kind": "Service", "name": "web", "uid": "s1", "controller": true }],
                },
                "spec": {
                    "name": "shop-web",
                    "networkID": "n1",
                    "address": "web.shop.svc.cluster.local",
                    "groups": ["prod-shop-web"],
                    "policyName": "web",
                    "tcpPorts": [443],
                },
            })
        );
        assert_eq!(step(&exposed(), Some(&created()), Some(&router(json!("n1")))), Step::Nothing);
    }

    #[test]
    fn w7_a_resource_becomes_exactly_what_the_service_says_and_keeps_what_others_put_on_it() {
        let mut resource = of_original();
        resource.labels_mut().insert("theirs".to_owned(), "kept".to_owned());
        let Step::Replace(after) = step(&exposed(), Some(&resource), Some(&router(json!("n1")))) else { panic!() };
        assert_eq!(after.spec, created().spec);
        assert_eq!(after.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(after.finalizers(), ["openzro.io/cleanup"]);
        assert_eq!(after.labels().get("theirs").map(String::as_str), Some("kept"));
        assert_eq!(step(&exposed(), Some(&after), Some(&router(json!("n1")))), Step::Nothing);
        // The policy and its ports go with the annotation.
        let without_policy = service(json!({ "openzro.io/expose": "true" }));
        let Step::Replace(after) = step(&without_policy, Some(&created()), Some(&router(json!("n1")))) else {
            panic!()
        };
        assert_eq!((after.spec.policy_name.as_str(), after.spec.tcp_ports.len()), ("", 0));
    }

    #[test]
    fn w6_a_resource_that_somebody_else_made_is_neither_changed_nor_deleted() {
        let mut foreign = created();
        foreign.metadata.owner_references = None;
        let mut of_another = created();
        of_another.owner_references_mut()[0].uid = "s0".to_owned();
        for resource in [foreign, of_another] {
            assert_eq!(step(&exposed(), Some(&resource), Some(&router(json!("n1")))), Step::NotOurs);
            assert_eq!(step(&service(json!({})), Some(&resource), None), Step::Nothing);
        }
    }

    #[test]
    fn a_service_that_is_not_exposed_has_no_resource() {
        let mut going = created();
        going.metadata.deletion_timestamp = Some(from_value(json!("2026-01-02T03:04:05Z")).unwrap());
        for (annotations, resource, expected) in [
            (json!({}), None, Step::Nothing),
            (json!({}), Some(created()), Step::Delete),
            (json!({ "openzro.io/expose": "false" }), Some(created()), Step::Delete),
            (json!({}), Some(of_original()), Step::Delete),
            (json!({}), Some(going.clone()), Step::Nothing),
            (json!({ "openzro.io/expose": "true" }), Some(going), Step::Nothing),
        ] {
            let is = step(&service(annotations.clone()), resource.as_ref(), Some(&router(json!("n1"))));
            assert_eq!(is, expected, "{annotations} {resource:?}");
        }
        let mut api_server = service(json!({}));
        (api_server.metadata.name, api_server.metadata.namespace) =
            (Some("kubernetes".to_owned()), Some("default".to_owned()));
        assert_eq!(step(&api_server, Some(&created()), None), Step::Nothing);
    }

    #[test]
    fn w16_a_network_that_was_made_anew_gets_a_new_resource() {
        assert_eq!(step(&exposed(), Some(&created()), Some(&router(json!("n2")))), Step::Delete);
    }
}
