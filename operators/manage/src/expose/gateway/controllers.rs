//! The controllers of the Gateway API. Its definitions may be missing, and may come later.
//!
//! Nothing here asks openZro, so each deletion completes. The finalizers of openzro-operator on classes and Gateways have no purpose and are removed.

use std::sync::Arc;

use k8s_openapi::{api::core::v1::Service, jiff::Timestamp};
use konverge::{
    Watch,
    apply::{ConditionStatus, Conditions, Moment, StatusWriter},
    kube::{
        Api,
        api::{ApiResource, Patch, PatchParams, PostParams},
    },
    prelude::*,
    runtime::cache::{Caching, Store},
};
use serde_json::{Value, json};

use super::{CONTROLLER, Class, GROUP, Gateway, Lowered, ParentState, Release, class, gateway, lower, release, take};
use crate::{
    api::v1alpha1::{NetworkResource, NetworkRouter},
    reasons::{self, ACCEPTED, BACKEND_NOT_FOUND, INVALID_PARAMETERS, PENDING, PROGRAMMED, RESOLVED_REFS},
};

/// The finalizers of openzro-operator.
const CLASS_FINALIZER: &str = "finalizers.openzro.io/gatewayclass";
const GATEWAY_FINALIZER: &str = "finalizers.openzro.io/gateway";
const HTTP_ROUTE_FINALIZER: &str = "finalizers.openzro.io/httproute";
const TCP_ROUTE_FINALIZER: &str = "finalizers.openzro.io/tcproute";

fn kind(version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: version.to_owned(),
        api_version: format!("{GROUP}/{version}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

pub(super) fn class_kind() -> ApiResource {
    kind("v1", "GatewayClass", "gatewayclasses")
}

fn gateway_kind() -> ApiResource {
    kind("v1", "Gateway", "gateways")
}

/// The controller of `GatewayClass` objects.
pub fn gateway_classes() -> Controller<DynamicObject, impl Reconcile<DynamicObject>> {
    Controller::dynamic(class_kind(), Classes)
        .named("gateway-classes")
        .caching(Caching::optional)
        .finalizer_on_demand(CLASS_FINALIZER)
        .access(|access| {
            access.to_resource(GROUP, "gatewayclasses/status", &["patch"]);
        })
}

/// The controller of `Gateway` objects.
pub fn gateways() -> Controller<DynamicObject, impl Reconcile<DynamicObject>> {
    Controller::dynamic(gateway_kind(), Gateways)
        .named("gateways")
        .caching(Caching::optional)
        .finalizer_on_demand(GATEWAY_FINALIZER)
        .watches(Watch::<DynamicObject>::of(class_kind()).optional(), |class: &DynamicObject, gateways| {
            let name = class.name_any();
            keys(gateways, |gateway| gateway.data["spec"]["gatewayClassName"] == name.as_str())
        })
        .watches(Watch::<NetworkRouter>::new(), |router: &NetworkRouter, gateways| {
            let (namespace, name) = (router.namespace(), router.name_any());
            keys(gateways, |gateway| gateway.namespace() == namespace && names_router(gateway, &name))
        })
        .access(|access| {
            access.to_resource(GROUP, "gateways/status", &["patch"]);
        })
}

/// The controller of `HTTPRoute` objects.
pub fn http_routes() -> Controller<DynamicObject, impl Reconcile<DynamicObject>> {
    routes(kind("v1", "HTTPRoute", "httproutes"), HTTP_ROUTE_FINALIZER)
}

/// The controller of `TCPRoute` objects.
pub fn tcp_routes() -> Controller<DynamicObject, impl Reconcile<DynamicObject>> {
    routes(kind("v1alpha2", "TCPRoute", "tcproutes"), TCP_ROUTE_FINALIZER)
}

fn routes(kind: ApiResource, finalizer: &'static str) -> Controller<DynamicObject, impl Reconcile<DynamicObject>> {
    let status = format!("{}/status", kind.plural);
    // A change of a class, a Gateway or a router is rare and concerns many routes.
    let all = |routes: &Store<DynamicObject>| keys(routes, |_| true);
    Controller::dynamic(kind.clone(), Routes(kind.clone()))
        .named(kind.plural)
        .caching(Caching::optional)
        .finalizer_on_demand(finalizer)
        .watches(Watch::<DynamicObject>::of(class_kind()).optional(), move |_: &DynamicObject, routes| all(routes))
        .watches(Watch::<DynamicObject>::of(gateway_kind()).optional(), move |_: &DynamicObject, routes| all(routes))
        .watches(Watch::<NetworkRouter>::new(), move |_: &NetworkRouter, routes| all(routes))
        .watches(Watch::<NetworkResource>::new(), |resource: &NetworkResource, routes| {
            let (namespace, name) = (resource.namespace(), resource.name_any());
            keys(routes, |route| route.namespace() == namespace && names_service(route, &name))
        })
        .watches(Watch::<Service>::new(), |service: &Service, routes| {
            let (namespace, name) = (service.namespace(), service.name_any());
            keys(routes, |route| route.namespace() == namespace && names_service(route, &name))
        })
        .access(|access| {
            access.to_resource(GROUP, &status, &["patch"]);
            access.to::<NetworkResource>(&(), &["create", "delete", "patch", "update"]);
        })
}

fn keys(store: &Store<DynamicObject>, concerns: impl Fn(&DynamicObject) -> bool) -> Vec<ObjectKey> {
    store.list().iter().filter(|object| concerns(object)).filter_map(|object| ObjectKey::of(&**object)).collect()
}

fn names_router(gateway: &DynamicObject, name: &str) -> bool {
    gateway.data["spec"]["listeners"].as_array().into_iter().flatten().any(|listener| listener["name"] == name)
}

fn names_service(route: &DynamicObject, name: &str) -> bool {
    let rules = route.data["spec"]["rules"].as_array().into_iter().flatten();
    rules.flat_map(|rule| rule["backendRefs"].as_array().into_iter().flatten()).any(|backend| backend["name"] == name)
}

struct Classes;

impl Reconcile<DynamicObject> for Classes {
    type Error = Error;

    async fn apply(&self, object: Arc<DynamicObject>, context: Context<DynamicObject>) -> Result<Action, Error> {
        let (status, reason, message) = match class(&object) {
            Class::NotOurs => return Ok(Action::Done),
            Class::Accepted => (ConditionStatus::True, ACCEPTED, String::new()),
            Class::Invalid(why) => (ConditionStatus::False, INVALID_PARAMETERS, why),
        };
        write_conditions(&context, &class_kind(), &object, &[("Accepted", status, reason, &message)]).await?;
        context.applier().remove_finalizer_with(&*object, CLASS_FINALIZER, &class_kind()).await?;
        Ok(Action::Done)
    }
}

struct Gateways;

impl Reconcile<DynamicObject> for Gateways {
    type Error = Error;

    async fn apply(&self, object: Arc<DynamicObject>, context: Context<DynamicObject>) -> Result<Action, Error> {
        use ConditionStatus::{False, True};
        let (accepted, programmed) = match state(&object, &context)? {
            Gateway::NotOurs | Gateway::Missing => return Ok(Action::Done),
            Gateway::Invalid(why) => ((False, INVALID_PARAMETERS, why.clone()), (False, INVALID_PARAMETERS, why)),
            Gateway::Waiting(why) => ((True, ACCEPTED, String::new()), (False, PENDING, why)),
            Gateway::Programmed(_) => ((True, ACCEPTED, String::new()), (True, PROGRAMMED, String::new())),
        };
        let conditions = [
            ("Accepted", accepted.0, accepted.1, accepted.2.as_str()),
            ("Programmed", programmed.0, programmed.1, programmed.2.as_str()),
        ];
        write_conditions(&context, &gateway_kind(), &object, &conditions).await?;
        context.applier().remove_finalizer_with(&*object, GATEWAY_FINALIZER, &gateway_kind()).await?;
        Ok(Action::Done)
    }
}

/// The state of a Gateway, from the caches of a controller that watches classes and routers.
fn state(object: &DynamicObject, context: &Context<DynamicObject>) -> Result<Gateway, Error> {
    let classes = context.watched_kind::<DynamicObject>(&class_kind())?;
    let routers = context.watched::<NetworkRouter>()?;
    let name = object.data["spec"]["gatewayClassName"].as_str().unwrap_or_default();
    let class = classes.get(&ObjectKey::cluster(name)).map(|found| class(&found));
    Ok(gateway(object, class.as_ref(), |key| routers.get(key)))
}

struct Routes(ApiResource);

impl Reconcile<DynamicObject> for Routes {
    type Error = Error;

    async fn apply(&self, object: Arc<DynamicObject>, context: Context<DynamicObject>) -> Result<Action, Error> {
        let lowered = lowered(&object, &context)?;
        let resources = context.watched::<NetworkResource>()?;
        let namespace = object.namespace().unwrap_or_default();
        let mut taken = Vec::new();
        for (service, target) in &lowered.targets {
            let existing = resources.get(&ObjectKey::namespaced(namespace.as_str(), service.as_str()));
            let desired = take(&object, service, target, existing.as_deref()).map_err(|why| {
                let route = format!("{} {namespace}/{}", self.0.kind, object.name_any());
                Error::permanent(reasons::RESOURCE_NOT_OURS, format!("{route} cannot be served: {why}"))
            })?;
            taken.extend(desired.map(|desired| (existing, desired)));
        }
        if !lowered.targets.is_empty() {
            context.ensure_finalizer().await?;
        }
        for (existing, desired) in taken {
            match existing {
                None => drop(context.applier().create(&desired).await?),
                Some(_) => replace(&context, &namespace, desired).await?,
            }
        }
        if lowered.is_complete() {
            let is_needed = |resource: &NetworkResource| lowered.targets.contains_key(&resource.name_any());
            release_all(&object, &context, is_needed).await?;
        }
        for part in &lowered.unsupported {
            context.event(EventType::Warning, reasons::UNSUPPORTED_VALUE, "Expose", part);
        }
        self.write_parents(&context, &object, &lowered).await?;
        Ok(Action::Done)
    }

    async fn cleanup(&self, object: Arc<DynamicObject>, context: Context<DynamicObject>) -> Result<(), Error> {
        release_all(&object, &context, |_| false).await
    }
}

fn lowered(object: &DynamicObject, context: &Context<DynamicObject>) -> Result<Lowered, Error> {
    let gateways = context.watched_kind::<DynamicObject>(&gateway_kind())?;
    let services = context.watched::<Service>()?;
    let mut states = std::collections::HashMap::new();
    for key in gateways.keys() {
        if let Some(found) = gateways.get(&key) {
            states.insert(key, state(&found, context)?);
        }
    }
    let namespace = object.namespace().unwrap_or_default();
    let service = |name: &str| services.get(&ObjectKey::namespaced(namespace.as_str(), name))?.uid();
    Ok(lower(object, |key| states.get(key).cloned().unwrap_or(Gateway::Missing), service))
}

/// Releases the resources that the route owns and that are not needed.
async fn release_all(
    object: &DynamicObject,
    context: &Context<DynamicObject>,
    is_needed: impl Fn(&NetworkResource) -> bool,
) -> Result<(), Error> {
    let namespace = object.namespace().unwrap_or_default();
    let uid = object.uid().unwrap_or_default();
    for resource in context.watched::<NetworkResource>()?.list() {
        if resource.namespace().as_deref() != Some(namespace.as_str()) || is_needed(&resource) {
            continue;
        }
        match release(&uid, &resource) {
            None => {}
            Some(Release::Delete) => {
                context.applier().delete(&*resource).await?;
            }
            Some(Release::Keep(kept)) => replace(context, &namespace, *kept).await?,
        }
    }
    Ok(())
}

/// Writes the whole object, if nobody changed it since it was read.
async fn replace(
    context: &Context<DynamicObject>,
    namespace: &str,
    mut resource: NetworkResource,
) -> Result<(), Error> {
    // The cache keeps a part of them, and the API server takes what is sent.
    resource.metadata.managed_fields = None;
    resource.status = None;
    let applier = context.applier();
    let parameters = PostParams { dry_run: applier.is_dry_run(), field_manager: Some(applier.manager().to_owned()) };
    let api: Api<NetworkResource> = Api::namespaced(context.client().clone(), namespace);
    api.replace(&resource.name_any(), &parameters, &resource).await?;
    Ok(())
}

impl Routes {
    /// Writes our entries into `status.parents`. Those of other controllers stay: the list is written as a whole, for the version that was read.
    async fn write_parents(
        &self,
        context: &Context<DynamicObject>,
        object: &DynamicObject,
        lowered: &Lowered,
    ) -> Result<(), Error> {
        let before = object.data["status"]["parents"].as_array().cloned().unwrap_or_default();
        let is_ours = |entry: &Value| entry["controllerName"] == CONTROLLER;
        let mut after: Vec<Value> = before.iter().filter(|entry| !is_ours(entry)).cloned().collect();
        for (place, state) in &lowered.parents {
            let parent = &object.data["spec"]["parentRefs"][*place];
            let known = before.iter().find(|entry| is_ours(entry) && entry["parentRef"] == *parent);
            let conditions = known.map_or(Value::Null, |entry| entry["conditions"].clone());
            let conditions = with_conditions(&conditions, &parent_conditions(state), object)?;
            after.push(json!({ "parentRef": parent, "controllerName": CONTROLLER, "conditions": conditions }));
        }
        if before.len() == after.len() && after.iter().all(|entry| before.contains(entry)) {
            return Ok(());
        }
        let patch =
            json!({ "metadata": { "resourceVersion": object.resource_version() }, "status": { "parents": after } });
        let parameters = PatchParams { dry_run: context.applier().is_dry_run(), ..PatchParams::default() };
        let namespace = object.namespace().unwrap_or_default();
        let api: Api<DynamicObject> = Api::namespaced_with(context.client().clone(), &namespace, &self.0);
        api.patch_status(&object.name_any(), &parameters, &Patch::Merge(patch)).await?;
        Ok(())
    }
}

type Condition<'a> = (&'static str, ConditionStatus, &'static str, &'a str);

fn parent_conditions(state: &ParentState) -> [Condition<'_>; 2] {
    use ConditionStatus::{False, True};
    match state {
        ParentState::Accepted(_) => [("Accepted", True, ACCEPTED, ""), ("ResolvedRefs", True, RESOLVED_REFS, "")],
        ParentState::Waiting(why) => [("Accepted", False, PENDING, why), ("ResolvedRefs", False, PENDING, why)],
        ParentState::Refused(why) => {
            [("Accepted", False, BACKEND_NOT_FOUND, why), ("ResolvedRefs", False, BACKEND_NOT_FOUND, why)]
        }
    }
}

/// `before` with these conditions. Times change with the status only.
fn with_conditions(before: &Value, wanted: &[Condition<'_>], object: &DynamicObject) -> Result<Value, Error> {
    let mut conditions: Conditions =
        if before.is_null() { Conditions::default() } else { serde_json::from_value(before.clone())? };
    let moment = Moment { generation: object.metadata.generation, now: Timestamp::now() };
    for (type_, status, reason, message) in wanted {
        conditions.set(type_, *status, &Reason::new(reason), message, moment);
    }
    Ok(serde_json::to_value(conditions)?)
}

/// Writes conditions of ours into the status. Nothing is sent if they are there.
async fn write_conditions(
    context: &Context<DynamicObject>,
    kind: &ApiResource,
    object: &DynamicObject,
    wanted: &[Condition<'_>],
) -> Result<(), Error> {
    let is_wanted = |condition: &&Value| wanted.iter().any(|(type_, ..)| condition["type"] == *type_);
    let before = object.data["status"]["conditions"].as_array().into_iter().flatten();
    let before = Value::Array(before.filter(is_wanted).cloned().collect());
    let after = with_conditions(&before, wanted, object)?;
    if before == after {
        return Ok(());
    }
    // For the version that was seen: a late write must not bring older conditions back.
    let writer = StatusWriter::new(context.applier().clone());
    writer.write_with(object, &json!({ "conditions": after }), kind).await?;
    Ok(())
}
