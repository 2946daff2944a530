//! `OZGroup` and `Group`: groups of the account.

use std::sync::Arc;

use konverge::{
    CustomStatus, Object, Watch,
    apply::Writable,
    core::error::Classify,
    kube::{CustomResourceExt, Resource, ResourceExt, core::object::HasStatus},
    prelude::{Action, Cleanup, Context, Controller, Error, Reason, Reconcile},
    remote::{Adoption, Binding, DeletionPolicy, Interest, Remotes},
};

use crate::{
    annotations,
    api::{
        v1::OZGroup,
        v1alpha1::{Group, NetworkRouter},
    },
    collections::Collections,
    control::{deadline, routing::child_key},
    reasons,
    remote::Groups,
    settings::Settings,
};

/// A kind whose objects stand for groups.
pub trait GroupObject:
    Object + Writable + Resource<DynamicType = ()> + CustomResourceExt + HasStatus<Status: CustomStatus>
{
    /// Whether several objects may mean one group, as the original lets `OZGroup`s of several namespaces do.
    const IS_SHARED: bool;

    /// The name of the group on the server.
    fn group_name(&self) -> &str;

    /// The id in the status.
    fn id(&self) -> Option<&str>;

    /// Sets the id in a status.
    fn set_id(status: &mut Self::Status, id: &str);

    /// Returns the routers that can own objects of this kind.
    fn routers(context: &Context<Self>) -> Result<Vec<Arc<NetworkRouter>>, Error>;
}

impl GroupObject for OZGroup {
    const IS_SHARED: bool = true;

    fn group_name(&self) -> &str {
        &self.spec.name
    }

    fn id(&self) -> Option<&str> {
        self.status.as_ref()?.group_id.as_deref()
    }

    fn set_id(status: &mut Self::Status, id: &str) {
        status.group_id = Some(id.to_owned());
    }

    fn routers(_: &Context<Self>) -> Result<Vec<Arc<NetworkRouter>>, Error> {
        Ok(Vec::new())
    }
}

impl GroupObject for Group {
    const IS_SHARED: bool = false;

    fn group_name(&self) -> &str {
        &self.spec.name
    }

    fn id(&self) -> Option<&str> {
        self.status.as_ref()?.group_id.as_deref()
    }

    fn set_id(status: &mut Self::Status, id: &str) {
        status.group_id = Some(id.to_owned());
    }

    fn routers(context: &Context<Self>) -> Result<Vec<Arc<NetworkRouter>>, Error> {
        Ok(context.watched::<NetworkRouter>()?.list())
    }
}

/// Kinds whose pods join a group that was made for them. Their peers do not keep such a group from deletion.
const OWNERS_WITH_PEERS: [&str; 2] = ["NetworkRouter", "OZRoutingPeer"];

/// Returns the group that an object stands for.
///
/// An `OZGroup` adopts a group of its name and changes nothing in it, as in the original, but the group survives it. A `Group` adopts on request.
/// The original creates the group of each `Group` itself, so an id in its status proves that.
pub(crate) fn binding<K: GroupObject>(object: &K, routers: &[Arc<NetworkRouter>], settings: &Settings) -> Binding {
    let unless_said = if K::IS_SHARED { Adoption::ByName } else { Adoption::Never };
    let adoption = annotations::adoption(object.annotations(), unless_said);
    let of_peers = |owner: &str| OWNERS_WITH_PEERS.contains(&owner);
    Binding::new(object.group_name()).with(|binding| {
        binding.scope = settings.scope(object.meta().namespace.as_deref());
        binding.id = object.id().map(str::to_owned);
        binding.id_is_proof = !K::IS_SHARED && adoption == Adoption::Never;
        binding.adoption = adoption;
        binding.observe_adopted = K::IS_SHARED;
        binding.deletion = settings.deletion(object.meta());
        binding.names = settings.group_names(object.meta(), routers);
        binding.deletes_foreign_content = object.owner_references().iter().any(|owner| of_peers(&owner.kind));
    })
}

/// Keeps groups.
pub struct GroupReconciler {
    groups: Remotes<Groups>,
    settings: Arc<Settings>,
}

impl<K: GroupObject> Reconcile<K> for GroupReconciler {
    type Error = Error;

    async fn apply(&self, object: Arc<K>, context: Context<K>) -> Result<Action, Error> {
        let routers = K::routers(&context)?;
        let binding = binding(&*object, &routers, &self.settings);
        self.settings.check_group(object.meta(), &routers, "spec.name", &binding.name)?;
        let applied = context.remote(&self.groups).apply(&binding, &binding.name).await;
        let item = match applied {
            Ok(applied) => applied.item,
            Err(error) if K::IS_SHARED && error.reason() == reasons::CLAIMED => {
                let found = self.groups.resolve(&binding.scope, std::slice::from_ref(&binding.name)).await?;
                context.ready(Reason::new(reasons::SHARED), error.to_string());
                let Some(item) = found.into_iter().next() else { return Err(error) };
                item
            }
            Err(error) => return Err(error),
        };
        context.status(|status| K::set_id(status, item.id()));
        Ok(Action::Done)
    }

    async fn finalize(&self, object: Arc<K>, context: Context<K>) -> Result<Cleanup, Error> {
        let binding = binding(&*object, &K::routers(&context)?, &self.settings);
        let shares = |other: &Arc<K>| {
            other.meta().uid != object.meta().uid
                && other.meta().deletion_timestamp.is_none()
                && other.group_name() == binding.name
                && self.settings.scope(other.meta().namespace.as_deref()) == binding.scope
                // An object that may not use the group has no share in it.
                && self.settings.allows(other.meta().namespace.as_deref().unwrap_or_default(), &binding.name)
        };
        let is_left_to_others = K::IS_SHARED && context.store().list().iter().any(shares);
        let binding =
            if is_left_to_others { binding.with(|binding| binding.deletion = DeletionPolicy::Orphan) } else { binding };
        let outcome = context.remote(&self.groups).finalize(&binding).await;
        deadline::bounded(&context, &self.settings, outcome).await
    }
}

fn controller<K: GroupObject>(
    collections: &Collections,
    settings: &Arc<Settings>,
    finalizer: &'static str,
) -> Controller<K, GroupReconciler> {
    let (groups, of_interest) = (collections.groups.clone(), Arc::clone(settings));
    Controller::new(GroupReconciler { groups, settings: Arc::clone(settings) })
        .finalizer_on_demand(finalizer)
        .access(deadline::declare)
        .remote(&collections.groups, move |object: &K| Interest::default().claims(&binding(object, &[], &of_interest)))
}

/// The controller of `OZGroup`s. Its finalizer is the original's, so the way back is open.
pub fn oz_group(collections: &Collections, settings: &Arc<Settings>) -> Controller<OZGroup, GroupReconciler> {
    controller(collections, settings, "openzro.io/group-cleanup")
        .former_finalizer("openzro.io/routing-peer-cleanup")
        .former_finalizer("openzro.io/resource-cleanup")
}

/// The controller of `Group`s.
pub fn group(collections: &Collections, settings: &Arc<Settings>) -> Controller<Group, GroupReconciler> {
    controller(collections, settings, "finalizers.openzro.io/group")
        .watches(Watch::<NetworkRouter>::new(), |router, _| [child_key(router)])
}
