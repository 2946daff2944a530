//! `NetworkRouter`: a network of its own, and its routing peers.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use konverge::{
    Watch,
    apply::Owner,
    kube::{ResourceExt, api::ObjectMeta},
    prelude::{Action, Cleanup, Context, Controller, Error, ObjectKey, Reason, Reconcile},
    remote::{Adoption, Binding, DeletionPolicy, Interest},
};
use konverge_core::{allow::Pattern, names::few};

use super::{
    children, removal,
    workload::{self, PodSettings, Workload},
};
use crate::{
    annotations,
    api::v1alpha1::{Group, GroupReference, GroupSpec, NetworkResource, NetworkRouter, SetupKey, SetupKeySpec},
    collections::Collections,
    control::{
        deadline, label_value,
        network_resource::check_router,
        pause::LOOK_AGAIN,
        references,
        router_group::display_name,
        setup_key::{self, Place},
    },
    reasons,
    remote::{DesiredNetwork, DesiredRouter},
    settings::Settings,
};

/// The finalizer, which is the original's.
const FINALIZER: &str = "finalizers.openzro.io/networkrouter";

/// Keeps `NetworkRouter`s.
pub struct NetworkRouterReconciler {
    collections: Collections,
    settings: Arc<Settings>,
}

fn deletion(router: &NetworkRouter, settings: &Settings) -> DeletionPolicy {
    settings.deletion(&router.metadata)
}

/// Returns the name of the network: the original's where a rule permits it, or else one with the namespace, because objects of other namespaces may
/// have the same name.
fn network_name(router: &NetworkRouter, settings: &Settings) -> String {
    let (namespace, name) = (router.namespace().unwrap_or_default(), router.name_any());
    if settings.allows(&namespace, &name) { name } else { format!("{namespace}/{name}") }
}

/// The network. The original creates each itself, so an id in the status proves that.
fn network(router: &NetworkRouter, settings: &Settings) -> Binding {
    let adoption = annotations::adoption(router.annotations(), Adoption::Never);
    Binding::new(network_name(router, settings)).with(|binding| {
        binding.scope = settings.scope(router.metadata.namespace.as_deref());
        binding.id = router.status.as_ref().and_then(|status| status.network_id.clone());
        binding.id_is_proof = adoption == Adoption::Never;
        binding.adoption = adoption;
        binding.names = settings.names(router.metadata.namespace.as_deref().unwrap_or_default());
        binding.deletion = deletion(router, settings);
    })
}

fn item(router: &NetworkRouter, group: &str, settings: &Settings) -> Binding {
    Binding::new(group).with(|binding| {
        binding.scope = settings.scope(router.metadata.namespace.as_deref());
        binding.id = router.status.as_ref().and_then(|status| status.routing_peer_id.clone());
        binding.id_is_proof = true;
        // A router has no mark, and its name is the id of its group.
        let names = settings.names(router.metadata.namespace.as_deref().unwrap_or_default());
        binding.names = names.map(|_| vec![Pattern::new(group)]);
        binding.deletion = deletion(router, settings);
    })
}

/// Refuses a router whose network no rule permits in its namespace.
fn check(router: &NetworkRouter, settings: &Settings) -> Result<(), Error> {
    let namespace = router.namespace().unwrap_or_default();
    settings.check(&namespace, "metadata.name", "network", &network_name(router, settings))
}

/// The name of the objects that belong to a router, as the original has it.
fn child_name(router: &NetworkRouter) -> String {
    format!("networkrouter-{}", router.name_any())
}

/// Returns the key of the objects that belong to a router.
pub(in crate::control) fn child_key(router: &NetworkRouter) -> ObjectKey {
    ObjectKey { namespace: router.namespace(), name: child_name(router) }
}

fn pod_settings(router: &NetworkRouter) -> PodSettings {
    let wanted = router.spec.workload_override.clone().unwrap_or_default();
    PodSettings {
        replicas: wanted.replicas,
        labels: wanted.labels,
        annotations: wanted.annotations,
        pod_template: wanted.pod_template,
        ..PodSettings::default()
    }
}

/// A network and its router. Those without a content are to be deleted.
pub(crate) type RouterPlan = ((Binding, Option<DesiredNetwork>), (Binding, Option<DesiredRouter>));

/// Returns the items of a router.
pub(crate) fn plan(router: &NetworkRouter, local: &[Arc<Group>], settings: &Settings) -> RouterPlan {
    let (binding, is_going) = (network(router, settings), router.metadata.deletion_timestamp.is_some());
    let is_child = |group: &&Arc<Group>| {
        group.metadata.namespace == router.metadata.namespace && group.name_any() == child_name(router)
    };
    let group =
        local.iter().find(is_child).and_then(|group| group.status.as_ref()?.group_id.clone()).unwrap_or_default();
    let id = router.status.as_ref().and_then(|status| status.network_id.clone()).unwrap_or_default();
    let of_network = (!is_going).then(|| DesiredNetwork { name: binding.name.clone() });
    let of_router = (!is_going).then(|| DesiredRouter { network: id, group: group.clone() });
    ((binding, of_network), (item(router, &group, settings), of_router))
}

impl NetworkRouterReconciler {
    fn metadata(&self, router: &NetworkRouter) -> Result<ObjectMeta, Error> {
        let labels = self.settings.default_labels.clone();
        Ok(ObjectMeta {
            name: Some(child_name(router)),
            namespace: router.namespace(),
            labels: Some(labels).filter(|labels| !labels.is_empty()),
            owner_references: Some(vec![Owner::of(router)?.controller_reference()]),
            annotations: annotations::inherited(router.annotations()),
            ..ObjectMeta::default()
        })
    }

    /// Returns the `Group` of the peers of a network.
    fn group(&self, router: &NetworkRouter, network: &str) -> Result<Group, Error> {
        let name = display_name(network, router.metadata.uid.as_deref().unwrap_or_default());
        let mut group = Group::new(&child_name(router), GroupSpec { name });
        group.metadata = self.metadata(router)?;
        Ok(group)
    }

    /// Returns the `SetupKey` of the peers of a network. `group` is the id of their group.
    fn setup_key(&self, router: &NetworkRouter, network: &str, group: &str) -> Result<SetupKey, Error> {
        let name = display_name(network, router.metadata.uid.as_deref().unwrap_or_default());
        let reference = GroupReference { id: Some(group.to_owned()), ..GroupReference::default() };
        let spec = SetupKeySpec { name, ephemeral: true, auto_groups: vec![reference], ..SetupKeySpec::default() };
        let mut key = SetupKey::new(&child_name(router), spec);
        key.metadata = self.metadata(router)?;
        Ok(key)
    }

    /// Fails if the API server would not accept an object that belongs to the router. Writes nothing.
    async fn try_children(&self, router: &NetworkRouter, context: &Context<NetworkRouter>) -> Result<(), Error> {
        // Neither the network nor its group has an id yet.
        children::check(context, &self.group(router, "new")?).await?;
        let key = self.setup_key(router, "new", "new")?;
        children::check(context, &key).await?;
        let is_there = ObjectKey::of(&key).and_then(|key| context.watched::<SetupKey>().ok()?.get(&key)).is_some();
        // From then on, the `SetupKey` looks after its Secret.
        let place = Place { name: SetupKey::secret_name(&child_name(router)), key: SetupKey::SECRET_KEY.to_owned() };
        if is_there { Ok(()) } else { setup_key::check_place(context, &self.settings, &place).await }
    }

    /// Makes the `Group` and the `SetupKey` exist. Returns the id of the group once the key is there, or what is waited for.
    async fn children(
        &self,
        router: &NetworkRouter,
        context: &Context<NetworkRouter>,
        network: &str,
    ) -> Result<Result<String, String>, Error> {
        let (name, namespace) = (child_name(router), router.namespace().unwrap_or_default());
        let group = children::apply(context, &self.group(router, network)?).await?;
        let Some(id) = group.and_then(|group| group.status.as_ref()?.group_id.clone()) else {
            return Ok(Err(format!(
                "waits for its Group {namespace}/{name}, which is not in openZro yet; see its status for the cause"
            )));
        };
        let (child, owner) = (self.metadata(router)?, std::slice::from_ref(context.object()));
        references::check_id(&child, owner, &id, &self.collections.groups, &self.settings).await?;
        let key = children::apply(context, &self.setup_key(router, network, &id)?).await?;
        if key.is_none_or(|key| key.status.as_ref().is_none_or(|status| status.setup_key_id.is_none())) {
            return Ok(Err(format!(
                "waits for its SetupKey {namespace}/{name}, which is not in openZro yet; see its status for the cause"
            )));
        }
        Ok(Ok(id))
    }
}

impl Reconcile<NetworkRouter> for NetworkRouterReconciler {
    type Error = Error;

    async fn apply(&self, router: Arc<NetworkRouter>, context: Context<NetworkRouter>) -> Result<Action, Error> {
        check(&router, &self.settings)?;
        let (owner, name) = (Owner::of(&*router)?, child_name(&router));
        let instance = label_value(&router.name_any());
        let selector = [("app.kubernetes.io/name", "networkrouter"), ("app.kubernetes.io/instance", &instance)];
        let (secret, pod_settings) = (SetupKey::secret_name(&name), pod_settings(&router));
        let workload = Workload {
            name: &name,
            namespace: &router.namespace().unwrap_or_default(),
            owner: &owner,
            selector: selector.map(|(label, value)| (label.to_owned(), value.to_owned())).into(),
            secret: (&secret, SetupKey::SECRET_KEY),
            pod_settings: &pod_settings,
        };
        // Before the first write: an invalid spec makes nothing.
        let pods = workload::desired(&context, &workload, &self.settings).await?;
        self.try_children(&router, &context).await?;

        let binding = network(&router, &self.settings);
        let desired = DesiredNetwork { name: binding.name.clone() };
        let applied = context.remote(&self.collections.networks).apply(&binding, &desired).await?;
        let network = applied.item.id().to_owned();
        context.status(|status| status.network_id = Some(network.clone()));

        let group = match self.children(&router, &context, &network).await? {
            Ok(group) => group,
            Err(waits) => {
                context.progressing(Reason::new(reasons::DEPENDENCY), waits);
                return Ok(Action::After(LOOK_AGAIN));
            }
        };
        let binding = item(&router, &group, &self.settings);
        let desired = DesiredRouter { network, group };
        let applied = context.remote(&self.collections.routers).apply(&binding, &desired).await?;
        context.status(|status| status.routing_peer_id = Some(applied.item.id().to_owned()));

        if let Some(waits) = workload::apply(&context, &workload, &pods).await? {
            context.progressing(Reason::new(reasons::WAITING_FOR_PODS), waits);
        }
        Ok(Action::Done)
    }

    async fn finalize(&self, router: Arc<NetworkRouter>, context: Context<NetworkRouter>) -> Result<Cleanup, Error> {
        let outcome = self.clear(&router, &context).await;
        deadline::bounded(&context, &self.settings, outcome).await
    }
}

impl NetworkRouterReconciler {
    /// Deletes the items of a router in openZro.
    async fn clear(&self, router: &NetworkRouter, context: &Context<NetworkRouter>) -> Result<Cleanup, Error> {
        if deletion(router, &self.settings) == DeletionPolicy::Orphan {
            children::orphan_item::<_, Group>(context, &child_name(router)).await?;
            children::orphan_item::<_, SetupKey>(context, &child_name(router)).await?;
            return Ok(Cleanup::Done);
        }
        let name = network_name(router, &self.settings);
        let resources = context.watched::<NetworkResource>()?.list();
        let users: Vec<_> = resources
            .iter()
            .filter(|user| refers_to(user, router, &self.settings))
            .filter_map(|user| ObjectKey::of(&**user))
            .collect();
        if !users.is_empty() {
            let message = format!("the network {name} is in use by NetworkResource {}", few(users));
            return Ok(Cleanup::pending(LOOK_AGAIN, Reason::new(reasons::IN_USE), message));
        }
        let network = network(router, &self.settings);
        let children = child_key(router);
        let group =
            context.watched::<Group>()?.get(&children).and_then(|group| group.status.as_ref()?.group_id.clone());
        let (child, owner) = (self.metadata(router)?, std::slice::from_ref(context.object()));
        let group = references::permitted_id(&child, owner, group, &self.collections.groups, &self.settings).await?;
        let item = item(router, group.as_deref().unwrap_or_default(), &self.settings);
        let others = removal::others_inside(context, &self.collections, &network, &item, group.as_deref());
        if let Some(waits) = others.await? {
            return Ok(waits);
        }
        let router = context.remote(&self.collections.routers).finalize(&item).await?;
        let network = context.remote(&self.collections.networks).finalize(&network).await?;
        if let Some(waits) = [router, network].into_iter().find(|cleanup| *cleanup != Cleanup::Done) {
            return Ok(waits);
        }
        // Before the router goes, because only a router that exists lets them use its group.
        let is_waiting = [
            children::delete::<_, SetupKey>(context, &children).await?,
            children::delete::<_, Group>(context, &children).await?,
        ];
        if is_waiting == [false; 2] {
            return Ok(Cleanup::Done);
        }
        let message = format!("waits until its Group and SetupKey {children} are gone; see their status for the cause");
        Ok(Cleanup::pending(LOOK_AGAIN, Reason::new(reasons::DELETING), message))
    }
}

/// Whether a resource may be in the network of a router. One of another account never is.
fn refers_to(resource: &NetworkResource, router: &NetworkRouter, settings: &Settings) -> bool {
    let reference = &resource.spec.network_router_ref;
    check_router(resource, settings).is_ok()
        && reference.name == router.name_any()
        && Some(&reference.namespace) == router.metadata.namespace.as_ref()
}

/// The controller of `NetworkRouter`s.
pub fn network_router(
    collections: &Collections,
    settings: &Arc<Settings>,
) -> Controller<NetworkRouter, NetworkRouterReconciler> {
    let (of_networks, of_routers) = (Arc::clone(settings), Arc::clone(settings));
    Controller::new(NetworkRouterReconciler { collections: collections.clone(), settings: Arc::clone(settings) })
        .finalizer_on_demand(FINALIZER)
        .access(setup_key::declare)
        .access(|access| {
            access.to::<Group>(&(), &["create", "delete", "patch"]);
            access.to::<SetupKey>(&(), &["create", "delete", "patch"]);
            workload::declare(access);
        })
        .watches(Watch::<Group>::new(), |group, _| children::owner_key::<_, NetworkRouter>(group))
        .watches(Watch::<SetupKey>::new(), |key, _| children::owner_key::<_, NetworkRouter>(key))
        .watches(Watch::<Deployment>::new(), |deployment, _| children::owner_key::<_, NetworkRouter>(deployment))
        .watches(Watch::<NetworkResource>::new(), |resource, _| {
            let reference = &resource.spec.network_router_ref;
            Some(ObjectKey { namespace: Some(reference.namespace.clone()), name: reference.name.clone() })
        })
        .remote(&collections.networks, move |router: &NetworkRouter| {
            Interest::default().claims(&network(router, &of_networks))
        })
        .remote(&collections.routers, move |router: &NetworkRouter| {
            let id = router.status.as_ref().and_then(|status| status.routing_peer_id.clone()).unwrap_or_default();
            Interest::default().refers_to(&of_routers.scope(router.metadata.namespace.as_deref()), &id)
        })
}
