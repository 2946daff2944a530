//! `OZPolicy`: access policies, one of the server's for each protocol or rule.

mod lower;
mod meaning;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use konverge::{
    Watch,
    kube::ResourceExt,
    prelude::{Action, Cleanup, Context, Controller, Error, ObjectKey, Reason, Reconcile},
    remote::{Binding, Interest, Remotes},
};
use konverge_core::names::few;

use self::{
    lower::{Contribution, Lowered, Part},
    meaning::{Meaning, Named},
};
use crate::{
    annotations::{self, GENERATED_BY},
    api::v1::{OZGroup, OZPolicy, OZResource},
    collections::Collections,
    control::{pause::LOOK_AGAIN, references, resource::groups},
    reasons,
    remote::{DesiredPolicy, Destination, Groups, address_type, canonical},
    settings::Settings,
};

pub(super) use self::lower::{generated_name, requested_policies};

/// The finalizer, which is the original's.
const FINALIZER: &str = "openzro.io/cleanup";

/// Keeps policies.
pub struct PolicyReconciler {
    collections: Collections,
    settings: Arc<Settings>,
}

/// The item of a part. The original creates each policy itself, so an id in the status proves that.
fn binding(policy: &OZPolicy, part: &str, name: &str, settings: &Settings) -> Binding {
    Binding::new(name).with(|binding| {
        part.clone_into(&mut binding.part);
        binding.scope = scope_of(policy);
        binding.id = lower::id(policy, part);
        binding.id_is_proof = true;
        binding.deletion = settings.deletion(&policy.metadata);
    })
}

/// The ids of what the words of a policy mean.
#[derive(Default)]
struct Resolved {
    /// Those of groups, by the words.
    groups: BTreeMap<String, String>,
    /// Those of network resources, by the words.
    resources: BTreeMap<String, Target>,
}

/// A network resource to which a policy leads.
struct Target {
    /// The namespace and name of its object.
    key: String,
    destination: Destination,
}

impl Target {
    fn of(resource: &OZResource) -> Result<Self, Error> {
        let key = ObjectKey::of(resource).map(|key| key.to_string()).unwrap_or_default();
        let id = resource.status.as_ref().and_then(|status| status.network_resource_id.clone());
        let address = canonical(&resource.spec.address);
        let (Some(id), Some(address)) = (id.filter(|id| !id.is_empty()), address) else {
            let message = format!("waits for OZResource {key}, which openZro does not have yet");
            return Err(Error::after(LOOK_AGAIN, reasons::DEPENDENCY, message));
        };
        Ok(Self { key, destination: Destination::Resource { id, kind: address_type(&address).to_owned() } })
    }
}

/// The desired content of a part.
fn desired(part: &Part, resolved: &Resolved) -> DesiredPolicy {
    let of = |names: &BTreeSet<String>| names.iter().filter_map(|name| resolved.groups.get(name)).cloned().collect();
    let resource = part.destinations.iter().find_map(|name| resolved.resources.get(name));
    DesiredPolicy {
        name: part.name.clone(),
        description: part.description.clone(),
        enabled: part.enabled,
        action: part.action.clone(),
        protocol: part.protocol.clone(),
        ports: part.ports.clone(),
        sources: of(&part.sources),
        destination: resource
            .map_or_else(|| Destination::Groups(of(&part.destinations)), |target| target.destination.clone()),
        bidirectional: part.bidirectional,
    }
}

/// Resolves the groups and resources of all parts, and splits the parts accordingly. A group that does not exist is a failure that names it.
///
/// The words of a rule are display names. If openZro has no group of that name, they are names of objects of the same account.
async fn resolve(
    policy: &OZPolicy,
    lowered: Lowered,
    groups: &Remotes<Groups>,
    named: &Named,
) -> Result<(Lowered, Resolved), Error> {
    let scope = scope_of(policy);
    let sources: BTreeSet<&String> = lowered.parts.iter().flat_map(|part| &part.sources).collect();
    let destinations = lowered.parts.iter().flat_map(|part| &part.destinations);
    let words: BTreeSet<&String> = destinations.chain(sources.iter().copied()).collect();
    let (mut displayed, mut resolved) = (BTreeMap::new(), Resolved::default());
    for word in words {
        let mut display = word.clone();
        if !policy.spec.rules.is_empty() && !references::is_group(&scope, word, groups).await? {
            let meaning = named
                .meaning(word, !sources.contains(word))
                .map_err(|why| Error::permanent(reasons::INVALID_SPEC, format!("spec.rules: {why}")))?;
            match meaning {
                Some(Meaning::Group(name)) => display = name,
                Some(Meaning::Resource(resource)) => {
                    resolved.resources.insert(word.clone(), Target::of(&resource)?);
                    continue;
                }
                None => {}
            }
        }
        displayed.insert(word.clone(), display);
    }
    let items = groups.resolve(&scope, &displayed.values().cloned().collect::<Vec<_>>()).await?;
    resolved.groups = displayed.into_keys().zip(items.iter().map(|item| item.id().to_owned())).collect();
    let keys = resolved.resources.iter().map(|(word, target)| (word.clone(), target.key.clone())).collect();
    let lowered = lower::split(lowered, &keys).map_err(|why| Error::permanent(reasons::INVALID_SPEC, why))?;
    Ok((lowered, resolved))
}

/// The resources with the display names of their groups.
async fn with_display_names(
    resources: Vec<Arc<OZResource>>,
    objects: &[Arc<OZGroup>],
    groups: &Remotes<Groups>,
    settings: &Settings,
) -> Result<Vec<Arc<OZResource>>, Error> {
    let mut meant = Vec::with_capacity(resources.len());
    for mut resource in resources {
        // Those of other resources do not count.
        if !resource.spec.policy_name.is_empty() {
            let names = groups::meant(&resource, objects, groups, settings).await?;
            if !names.iter().eq(&resource.spec.groups) {
                Arc::make_mut(&mut resource).spec.groups = names;
            }
        }
        meant.push(resource);
    }
    Ok(meant)
}

/// Returns the parts of the policy that come from resources. A policy never has groups of a resource of another account, or of one whose namespace
/// may not use the policy or the groups.
fn contribution(policy: &OZPolicy, resources: &[Arc<OZResource>], settings: &Settings) -> Contribution {
    let scope = scope_of(policy);
    let is_own = |resource: &&Arc<OZResource>| settings.scope(resource.metadata.namespace.as_deref()) == scope;
    let is_allowed = |resource: &&Arc<OZResource>| {
        let namespace = resource.metadata.namespace.as_deref().unwrap_or_default();
        let generated = policy.annotations().get(GENERATED_BY);
        let is_of_policy = generated == Some(&format!("{namespace}/{}", resource.name_any()))
            || settings.allows(namespace, &policy.name_any());
        is_of_policy && resource.spec.groups.iter().all(|group| settings.allows(namespace, group))
    };
    Contribution::of(policy, resources.iter().filter(is_own).filter(is_allowed).map(|resource| &**resource))
}

fn lowered(policy: &OZPolicy, contribution: &Contribution) -> Result<Lowered, Error> {
    lower::lower(&policy.spec, contribution).map_err(|invalid| Error::permanent(reasons::INVALID_SPEC, invalid))
}

/// Returns each item that the policy should have, and without a content each that it should lose. `recorded` are the parts of its record.
pub(crate) async fn plan(
    policy: &OZPolicy,
    resources: &[Arc<OZResource>],
    objects: &[Arc<OZGroup>],
    groups: &Remotes<Groups>,
    recorded: Vec<String>,
    settings: &Settings,
) -> Result<Vec<(Binding, Option<DesiredPolicy>)>, Error> {
    let existing = lower::existing_parts(policy, recorded);
    if policy.metadata.deletion_timestamp.is_some() {
        return Ok(existing.iter().map(|part| (binding(policy, part, "", settings), None)).collect());
    }
    let resources = &with_display_names(resources.to_vec(), objects, groups, settings).await?;
    let lowered = lowered(policy, &contribution(policy, resources, settings))?;
    let named = Named::new(policy, objects, resources, settings);
    let (lowered, resolved) = resolve(policy, lowered, groups, &named).await?;
    let wanted = lowered
        .parts
        .iter()
        .map(|part| (binding(policy, &part.id, &part.name, settings), Some(desired(part, &resolved))));
    let dropped = existing.iter().filter(|part| lowered.parts.iter().all(|wanted| wanted.id != **part));
    Ok(wanted.chain(dropped.map(|part| (binding(policy, part, "", settings), None))).collect())
}

impl PolicyReconciler {
    async fn apply_part(&self, context: &Context<OZPolicy>, part: &Part, resolved: &Resolved) -> Result<(), Error> {
        let binding = binding(context.object(), &part.id, &part.name, &self.settings);
        let desired = desired(part, resolved);
        let applied = context.remote(&self.collections.policies).apply(&binding, &desired).await?;
        context.status(|status| lower::set_id(status, part, Some(applied.item.id())));
        Ok(())
    }

    /// Withdraws the parts that the object no longer has, so that no rule outlives its request.
    async fn withdraw_others(&self, context: &Context<OZPolicy>, lowered: &Lowered) -> Result<Option<Cleanup>, Error> {
        let policy = Arc::clone(context.object());
        let remote = context.remote(&self.collections.policies);
        let mut pending = None;
        for part in lower::existing_parts(&policy, remote.parts().await?) {
            if lowered.parts.iter().any(|wanted| wanted.id == part) {
                continue;
            }
            match remote.withdraw(&binding(&policy, &part, "", &self.settings)).await? {
                Cleanup::Done => context.status(|status| lower::forget_id(status, &part)),
                waits => pending = Some(waits),
            }
        }
        Ok(pending)
    }
}

/// The scope of a policy, which has no namespace: what its annotation says, and else that of the operator.
pub(super) fn scope_of(policy: &OZPolicy) -> String {
    policy.annotations().get(annotations::ACCOUNT).cloned().unwrap_or_default()
}

impl Reconcile<OZPolicy> for PolicyReconciler {
    type Error = Error;

    async fn apply(&self, policy: Arc<OZPolicy>, context: Context<OZPolicy>) -> Result<Action, Error> {
        let (resources, objects) = (context.watched::<OZResource>()?.list(), context.watched::<OZGroup>()?.list());
        let resources = with_display_names(resources, &objects, &self.collections.groups, &self.settings).await?;
        let contribution = contribution(&policy, &resources, &self.settings);
        let lowered = lowered(&policy, &contribution)?;
        context.status(|status| status.managed_service_list.clone_from(&contribution.members));

        let named = Named::new(&policy, &objects, &resources, &self.settings);
        let (lowered, resolved) = resolve(&policy, lowered, &self.collections.groups, &named).await?;

        // A part that fails does not keep the others from their place.
        let mut first_error = None;
        for part in &lowered.parts {
            if let Err(error) = self.apply_part(&context, part, &resolved).await {
                first_error.get_or_insert(error);
            }
        }
        let pending = self.withdraw_others(&context, &lowered).await?;
        if let Some(error) = first_error {
            return Err(error);
        }
        if let Some(Cleanup::Pending { after, reason, message, .. }) = pending {
            context.progressing(reason, message);
            return Ok(Action::After(after));
        }
        if lowered.parts.is_empty() {
            let lacking = few(&lowered.lacking);
            context.progressing(
                Reason::new(reasons::INCOMPLETE),
                format!("the policy has no effect, because it has no {lacking}"),
            );
        }
        Ok(Action::Done)
    }

    async fn finalize(&self, policy: Arc<OZPolicy>, context: Context<OZPolicy>) -> Result<Cleanup, Error> {
        let remote = context.remote(&self.collections.policies);
        let mut cleanup = Cleanup::Done;
        for part in lower::existing_parts(&policy, remote.parts().await?) {
            let of_part = remote.finalize(&binding(&policy, &part, "", &self.settings)).await?;
            if of_part != Cleanup::Done {
                cleanup = of_part;
            }
        }
        Ok(cleanup)
    }
}

/// The policies that a resource concerns.
fn policies_of(resource: &OZResource) -> Vec<ObjectKey> {
    let (namespace, name) = (resource.namespace().unwrap_or_default(), resource.name_any());
    let requested = requested_policies(&resource.spec);
    let generated = requested.iter().map(|policy| generated_name(policy, &namespace, &name)).collect::<Vec<_>>();
    requested.into_iter().chain(generated).map(|name| ObjectKey { namespace: None, name }).collect()
}

/// Whether a rule of the policy may lead to the resource.
fn names_resource(policy: &OZPolicy, resource: &OZResource) -> bool {
    policy.spec.rules.iter().flat_map(|rule| &rule.destinations).any(|name| references::is_named(resource, name))
}

/// The controller of `OZPolicy`s.
pub fn oz_policy(collections: &Collections, settings: &Arc<Settings>) -> Controller<OZPolicy, PolicyReconciler> {
    Controller::new(PolicyReconciler { collections: collections.clone(), settings: Arc::clone(settings) })
        .finalizer_on_demand(FINALIZER)
        .watches(Watch::<OZResource>::new(), |resource, policies| {
            let users = policies.list().into_iter().filter(|policy| names_resource(policy, resource));
            policies_of(resource)
                .into_iter()
                .chain(users.filter_map(|policy| ObjectKey::of(&*policy)))
                .collect::<Vec<_>>()
        })
        .watches(Watch::<OZGroup>::new(), |group, policies| {
            let is_user = |policy: &Arc<OZPolicy>| {
                !policy.spec.rules.is_empty()
                    && lower::group_names(&policy.spec).iter().any(|name| references::is_named(group, name))
            };
            let users = policies.list().into_iter().filter(is_user);
            users.filter_map(|policy| ObjectKey::of(&*policy)).collect::<Vec<_>>()
        })
        .remote(&collections.groups, |policy: &OZPolicy| {
            lower::group_names(&policy.spec)
                .iter()
                .fold(Interest::default(), |interest, name| interest.refers_to(&scope_of(policy), name))
        })
        .remote(&collections.policies, |policy: &OZPolicy| {
            lower::policy_names(&policy.spec).iter().fold(Interest::default(), |interest, name| {
                let scope = scope_of(policy);
                interest.claims(&Binding::new(name).with(|binding| binding.scope = scope))
            })
        })
}
