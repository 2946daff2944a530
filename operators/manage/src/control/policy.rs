//! `OZPolicy`: access policies, one of the server's for each protocol or rule.

mod lower;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use konverge::{
    Watch,
    core::error::Classify,
    kube::ResourceExt,
    prelude::{Action, Cleanup, Context, Controller, Error, ObjectKey, Reconcile},
    remote::{Binding, Interest, Remotes},
};
use konverge_core::names::few;

use self::lower::{Contribution, Lowered, Part};
use crate::{
    annotations,
    api::v1::{OZGroup, OZPolicy, OZResource},
    collections::Collections,
    control::references,
    reasons::Why,
    remote::{DesiredPolicy, Groups},
    settings::Settings,
};

pub(super) use self::lower::{GENERATED_BY, generated_name, requested_policies};

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
        binding.deletion = annotations::deletion(policy.annotations(), settings.deletes_adopted);
    })
}

/// The desired content of a part.
fn desired(part: &Part, ids: &Ids) -> DesiredPolicy {
    let of = |names: &BTreeSet<String>| names.iter().filter_map(|name| ids.get(name)).cloned().collect();
    DesiredPolicy {
        name: part.name.clone(),
        description: part.description.clone(),
        enabled: part.enabled,
        action: part.action.clone(),
        protocol: part.protocol.clone(),
        ports: part.ports.clone(),
        sources: of(&part.sources),
        destinations: of(&part.destinations),
        bidirectional: part.bidirectional,
    }
}

/// Returns the display names of the groups that the spec means. The words of a rule are display names, or names of `OZGroup`s of the same account if
/// openZro has no group of that name.
async fn display_names(
    policy: &OZPolicy,
    names: &[String],
    groups: &Remotes<Groups>,
    objects: &[Arc<OZGroup>],
    settings: &Settings,
) -> Result<Vec<String>, Error> {
    if policy.spec.rules.is_empty() {
        return Ok(names.to_vec());
    }
    let scope = scope_of(policy);
    let is_own = |group: &Arc<OZGroup>| settings.scope(group.metadata.namespace.as_deref()) == scope;
    let (own, foreign): (Vec<_>, Vec<_>) = objects.iter().cloned().partition(is_own);
    let mut displayed = Vec::new();
    for name in names {
        let is_missing = match groups.resolve(&scope, std::slice::from_ref(name)).await {
            Ok(_) => false,
            Err(failure) if failure.reason() == "WaitingForReference" => true,
            Err(failure) => return Err(failure.into()),
        };
        let by_object = if is_missing {
            references::check_account(name, &foreign)
                .and_then(|()| references::display_name_anywhere(name, &own))
                .map_err(|why| Error::permanent(Why::InvalidSpec, format!("spec.rules: {why}")))?
        } else {
            None
        };
        displayed.push(by_object.unwrap_or_else(|| name.clone()));
    }
    Ok(displayed)
}

/// Resolves the groups of all parts. A group that does not exist is a failure that names it.
async fn resolve(
    policy: &OZPolicy,
    lowered: &Lowered,
    groups: &Remotes<Groups>,
    objects: &[Arc<OZGroup>],
    settings: &Settings,
) -> Result<Ids, Error> {
    let names: BTreeSet<String> =
        lowered.parts.iter().flat_map(|part| part.sources.iter().chain(&part.destinations)).cloned().collect();
    let names: Vec<String> = names.into_iter().collect();
    let displayed = display_names(policy, &names, groups, objects, settings).await?;
    let items = groups.resolve(&scope_of(policy), &displayed).await?;
    Ok(names.into_iter().zip(items.iter().map(|item| item.id().to_owned())).collect())
}

/// The parts that resources have in the policy. A policy never has groups of a resource of another account.
fn contribution(policy: &OZPolicy, resources: &[Arc<OZResource>], settings: &Settings) -> Contribution {
    let scope = scope_of(policy);
    let is_own = |resource: &&Arc<OZResource>| settings.scope(resource.metadata.namespace.as_deref()) == scope;
    Contribution::of(policy, resources.iter().filter(is_own).map(|resource| &**resource))
}

fn lowered(policy: &OZPolicy, contribution: &Contribution) -> Result<Lowered, Error> {
    lower::lower(&policy.spec, contribution).map_err(|invalid| Error::permanent(Why::InvalidSpec, invalid))
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
    let former = lower::former_parts(policy, recorded);
    if policy.metadata.deletion_timestamp.is_some() {
        return Ok(former.iter().map(|part| (binding(policy, part, "", settings), None)).collect());
    }
    let lowered = lowered(policy, &contribution(policy, resources, settings))?;
    let ids = resolve(policy, &lowered, groups, objects, settings).await?;
    let wanted =
        lowered.parts.iter().map(|part| (binding(policy, &part.id, &part.name, settings), Some(desired(part, &ids))));
    let dropped = former.iter().filter(|part| lowered.parts.iter().all(|wanted| wanted.id != **part));
    Ok(wanted.chain(dropped.map(|part| (binding(policy, part, "", settings), None))).collect())
}

impl PolicyReconciler {
    async fn apply_part(&self, context: &Context<OZPolicy>, part: &Part, ids: &Ids) -> Result<(), Error> {
        let binding = binding(context.object(), &part.id, &part.name, &self.settings);
        let desired = desired(part, ids);
        let standing = context.remote(&self.collections.policies).apply(&binding, &desired).await?;
        context.status(|status| lower::set_id(status, part, Some(standing.item.id())));
        Ok(())
    }

    /// Withdraws the parts that the object no longer has, so that no rule outlives its request.
    async fn withdraw_others(&self, context: &Context<OZPolicy>, lowered: &Lowered) -> Result<Option<Cleanup>, Error> {
        let policy = Arc::clone(context.object());
        let remote = context.remote(&self.collections.policies);
        let mut pending = None;
        for part in lower::former_parts(&policy, remote.parts().await?) {
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

/// Ids of groups by name.
type Ids = BTreeMap<String, String>;

impl Reconcile<OZPolicy> for PolicyReconciler {
    type Error = Error;

    async fn apply(&self, policy: Arc<OZPolicy>, context: Context<OZPolicy>) -> Result<Action, Error> {
        let resources = context.watched::<OZResource>()?.list();
        let contribution = contribution(&policy, &resources, &self.settings);
        let lowered = lowered(&policy, &contribution)?;
        context.status(|status| status.managed_service_list.clone_from(&contribution.members));

        let objects = context.watched::<OZGroup>()?.list();
        let ids = resolve(&policy, &lowered, &self.collections.groups, &objects, &self.settings).await?;

        // A part that fails does not keep the others from their place.
        let mut first_error = None;
        for part in &lowered.parts {
            if let Err(error) = self.apply_part(&context, part, &ids).await {
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
            context.progressing(Why::Incomplete, format!("the policy has no effect, because it has no {lacking}"));
        }
        Ok(Action::Done)
    }

    async fn finalize(&self, policy: Arc<OZPolicy>, context: Context<OZPolicy>) -> Result<Cleanup, Error> {
        let remote = context.remote(&self.collections.policies);
        let mut cleanup = Cleanup::Done;
        for part in lower::former_parts(&policy, remote.parts().await?) {
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

/// The controller of `OZPolicy`s.
pub fn oz_policy(collections: &Collections, settings: &Arc<Settings>) -> Controller<OZPolicy, PolicyReconciler> {
    Controller::new(PolicyReconciler { collections: collections.clone(), settings: Arc::clone(settings) })
        .finalizer_on_demand(FINALIZER)
        .reasons::<Why>()
        .watches(Watch::<OZResource>::new(), |resource, _| policies_of(resource))
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
