//! `SetupKey` and `OZSetupKey`: setup keys of the account, each in a Secret.

mod duration;
mod secret;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use konverge::{
    Watch,
    kube::{Api, ResourceExt, api::ObjectMeta},
    prelude::{Action, Cleanup, Context, Controller, Error, ObjectKey, Reconcile},
    remote::{Binding, Interest, Remotes},
};

pub(crate) use self::duration::seconds;
pub(super) use self::secret::{Place, check_place, declare, ensure, finalize, watch};
use super::{
    deadline, references,
    routing::{child_key, children},
};
use crate::{
    api::{
        v1::{OZGroup, OZSetupKey},
        v1alpha1::{Group, NetworkRouter, SetupKey},
    },
    collections::Collections,
    reasons,
    remote::{DesiredSetupKey, Groups, SetupKeys},
    settings::Settings,
};

/// The interval at which the operator checks a Secret that it did not create, and so does not watch.
pub(super) const SECRET_CHECK: Duration = Duration::from_mins(15);

/// The item of an object. The original creates each setup key itself, so an id in the status proves that.
pub(super) fn binding(name: &str, id: Option<String>, object: &ObjectMeta, settings: &Settings) -> Binding {
    Binding::new(name).with(|binding| {
        binding.scope = settings.scope(object.namespace.as_deref());
        binding.id = id;
        binding.id_is_proof = true;
        binding.names = settings.names(object.namespace.as_deref().unwrap_or_default());
        binding.deletion = settings.deletion(object);
    })
}

/// Keeps `SetupKey`s.
pub struct SetupKeyReconciler {
    collections: Collections,
    settings: Arc<Settings>,
}

fn of_setup_key(key: &SetupKey, routers: &[Arc<NetworkRouter>], settings: &Settings) -> Binding {
    let id = key.status.as_ref().and_then(|status| status.setup_key_id.clone());
    let binding = binding(&key.spec.name, id, &key.metadata, settings);
    binding.with(|binding| binding.names = settings.group_names(&key.metadata, routers))
}

async fn desired_of_setup_key(
    key: &SetupKey,
    local: impl Fn(&ObjectKey) -> Option<Arc<Group>> + Send,
    routers: &[Arc<NetworkRouter>],
    groups: &Remotes<Groups>,
    settings: &Settings,
) -> Result<DesiredSetupKey, Error> {
    let (spec, namespace) = (&key.spec, key.namespace().unwrap_or_default());
    let references = (&key.metadata, "spec.autoGroups", spec.auto_groups.as_slice());
    let auto_groups = references::group_ids(references, local, routers, groups, settings).await?;
    let expires_in = spec.duration.as_deref().map(duration::seconds).transpose();
    let expires_in =
        expires_in.map_err(|why| Error::permanent(reasons::INVALID_SPEC, format!("spec.duration {why}")))?;
    let (expires_in, usage_limit) = settings.key_limits(&namespace, expires_in, None);
    Ok(DesiredSetupKey {
        name: spec.name.clone(),
        is_reusable: true,
        usage_limit,
        is_own_limit: false,
        ephemeral: spec.ephemeral,
        expires_in,
        auto_groups,
        allow_extra_dns_labels: spec.allow_extra_dns_labels.unwrap_or_default(),
    })
}

async fn desired_of_oz_setup_key(
    key: &OZSetupKey,
    name: String,
    local: &[Arc<OZGroup>],
    groups: &Remotes<Groups>,
    settings: &Settings,
) -> Result<DesiredSetupKey, Error> {
    let (spec, namespace) = (&key.spec, key.namespace().unwrap_or_default());
    let names: BTreeSet<String> =
        spec.auto_groups.iter().map(|group| references::display_name(group, &namespace, local)).collect();
    for name in &names {
        settings.check(&namespace, "spec.autoGroups", "group", name)?;
    }
    let names: Vec<String> = names.into_iter().collect();
    let groups = groups.resolve(&settings.scope(Some(&namespace)), &names).await?;
    let expires_in = spec.expires_in.as_deref().map(duration::seconds).transpose();
    let expires_in =
        expires_in.map_err(|why| Error::permanent(reasons::INVALID_SPEC, format!("spec.expiresIn {why}")))?;
    let (expires_in, usage_limit) = settings.key_limits(&namespace, expires_in, spec.usage_limit);
    Ok(DesiredSetupKey {
        name,
        is_reusable: spec.type_.as_deref() != Some("one-off"),
        usage_limit,
        is_own_limit: spec.usage_limit.is_some(),
        ephemeral: spec.ephemeral.unwrap_or_default(),
        expires_in,
        auto_groups: groups.iter().map(|group| group.id().to_owned()).collect(),
        allow_extra_dns_labels: spec.allow_extra_dns_labels.unwrap_or_default(),
    })
}

/// A key that an object should have; without a content, or beside the current one, a key that it should lose.
pub(crate) type Planned = Vec<(Binding, Option<DesiredSetupKey>)>;

/// Returns the current key and, if there is one, the key beside it, which goes.
pub(super) async fn planned(
    binding: Binding,
    desired: Option<DesiredSetupKey>,
    keys: &Remotes<SetupKeys>,
    recorded: &[String],
) -> Result<Planned, Error> {
    let (current, beside, has_beside) = secret::bindings(keys, &binding, recorded).await?;
    let beside = has_beside.then_some((beside, None));
    Ok([(current, desired)].into_iter().chain(beside).collect())
}

/// Returns the keys of a `SetupKey`. `recorded` are the parts of its record.
pub(crate) async fn plan_of_setup_key(
    key: &SetupKey,
    (local, routers): (&[Arc<Group>], &[Arc<NetworkRouter>]),
    collections: &Collections,
    recorded: &[String],
    settings: &Settings,
) -> Result<Planned, Error> {
    let find =
        |wanted: &ObjectKey| local.iter().find(|group| ObjectKey::of(&***group).as_ref() == Some(wanted)).cloned();
    let desired = match key.metadata.deletion_timestamp {
        Some(_) => None,
        None => Some(desired_of_setup_key(key, find, routers, &collections.groups, settings).await?),
    };
    planned(of_setup_key(key, routers, settings), desired, &collections.setup_keys, recorded).await
}

/// Returns the keys of an `OZSetupKey`; none if it only checks a Secret of the user.
pub(crate) async fn plan_of_oz_setup_key(
    key: &OZSetupKey,
    local: &[Arc<OZGroup>],
    collections: &Collections,
    recorded: &[String],
    settings: &Settings,
) -> Result<Planned, Error> {
    let Some(name) = key.spec.name.clone().filter(|_| key.spec.secret_key_ref.is_none()) else { return Ok(Vec::new()) };
    let desired = match key.metadata.deletion_timestamp {
        Some(_) => None,
        None => Some(desired_of_oz_setup_key(key, name, local, &collections.groups, settings).await?),
    };
    planned(of_oz_setup_key(key, settings), desired, &collections.setup_keys, recorded).await
}

impl Reconcile<SetupKey> for SetupKeyReconciler {
    type Error = Error;

    async fn apply(&self, key: Arc<SetupKey>, context: Context<SetupKey>) -> Result<Action, Error> {
        let (local, routers) = (context.watched::<Group>()?, context.watched::<NetworkRouter>()?.list());
        let (find, groups) = (|group: &ObjectKey| local.get(group), &self.collections.groups);
        let desired = desired_of_setup_key(&key, find, &routers, groups, &self.settings).await?;
        let place = Place { name: SetupKey::secret_name(&key.name_any()), key: SetupKey::SECRET_KEY.to_owned() };
        let binding = of_setup_key(&key, &routers, &self.settings);
        let keys = &self.collections.setup_keys;
        ensure(&context, keys, &self.settings, binding, &desired, &place, |id| {
            context.status(|status| status.setup_key_id = id);
        })
        .await?;
        Ok(Action::After(SECRET_CHECK))
    }

    async fn finalize(&self, key: Arc<SetupKey>, context: Context<SetupKey>) -> Result<Cleanup, Error> {
        let binding = of_setup_key(&key, &context.watched::<NetworkRouter>()?.list(), &self.settings);
        let outcome = finalize(&context, &self.collections.setup_keys, &binding).await;
        deadline::bounded(&context, &self.settings, outcome).await
    }
}

/// The controller of `SetupKey`s.
pub fn setup_key(collections: &Collections, settings: &Arc<Settings>) -> Controller<SetupKey, SetupKeyReconciler> {
    let (of_interest, of_groups) = (Arc::clone(settings), Arc::clone(settings));
    Controller::new(SetupKeyReconciler { collections: collections.clone(), settings: Arc::clone(settings) })
        .finalizer_on_demand("finalizers.openzro.io/setupkey")
        .access(secret::declare)
        .watches(secret::watch(), |secret, _| children::owner_key::<_, SetupKey>(secret))
        .watches(Watch::<Group>::new(), |group, store| {
            references::users(group, store.list(), |key: &SetupKey| &key.spec.auto_groups)
        })
        .watches(Watch::<NetworkRouter>::new(), |router, _| [child_key(router)])
        .remote(&collections.groups, move |key: &SetupKey| {
            references::interest(&key.metadata, references::names(&key.spec.auto_groups), &of_groups)
        })
        .remote(&collections.setup_keys, move |key: &SetupKey| {
            Interest::default().claims(&of_setup_key(key, &[], &of_interest))
        })
}

/// Keeps `OZSetupKey`s: those with a Secret of the user's are checked, the others have a key created.
pub struct OzSetupKeyReconciler {
    collections: Collections,
    settings: Arc<Settings>,
}

fn of_oz_setup_key(key: &OZSetupKey, settings: &Settings) -> Binding {
    let id = key.status.as_ref().and_then(|status| status.setup_key_id.clone());
    let name = key.spec.name.as_deref().unwrap_or_default();
    binding(name, id, &key.metadata, settings)
}

impl OzSetupKeyReconciler {
    /// Says whether the Secret of the user has a setup key.
    async fn check(&self, key: &OZSetupKey, context: &Context<OZSetupKey>) -> Result<(), Error> {
        let (namespace, reference) = (key.namespace().unwrap_or_default(), key.spec.secret(&key.name_any()));
        let secrets = Api::<Secret>::namespaced(context.client().clone(), &namespace);
        let (name, field) = (&reference.name, &reference.key);
        let Some(secret) = secrets.get_opt(name).await? else {
            let message = format!("there is no Secret {namespace}/{name}; create it, or correct spec.secretKeyRef");
            return Err(Error::refused(reasons::SECRET_NOT_EXISTS, message));
        };
        let Some(value) = secret.data.as_ref().and_then(|data| data.get(field)) else {
            let message =
                format!("the Secret {namespace}/{name} has no key {field}; add it, or correct spec.secretKeyRef");
            return Err(Error::refused(reasons::SECRET_KEY_NOT_EXISTS, message));
        };
        if !std::str::from_utf8(&value.0).is_ok_and(secret::is_setup_key) {
            let message = format!(
                "the key {field} of the Secret {namespace}/{name} is no setup key, which is a UUID; correct it"
            );
            return Err(Error::refused(reasons::INVALID_SETUP_KEY, message));
        }
        Ok(())
    }
}

impl Reconcile<OZSetupKey> for OzSetupKeyReconciler {
    type Error = Error;

    async fn apply(&self, key: Arc<OZSetupKey>, context: Context<OZSetupKey>) -> Result<Action, Error> {
        let spec = &key.spec;
        let Some(name) = spec.name.clone().filter(|_| spec.secret_key_ref.is_none()) else {
            self.check(&key, &context).await?;
            return Ok(Action::After(SECRET_CHECK));
        };
        let local = context.watched::<OZGroup>()?.list();
        let desired = desired_of_oz_setup_key(&key, name, &local, &self.collections.groups, &self.settings).await?;
        let reference = spec.secret(&key.name_any());
        let place = Place { name: reference.name, key: reference.key };
        let binding = of_oz_setup_key(&key, &self.settings);
        let keys = &self.collections.setup_keys;
        ensure(&context, keys, &self.settings, binding, &desired, &place, |id| {
            context.status(|status| status.setup_key_id = id);
        })
        .await?;
        Ok(Action::After(SECRET_CHECK))
    }

    async fn finalize(&self, key: Arc<OZSetupKey>, context: Context<OZSetupKey>) -> Result<Cleanup, Error> {
        let binding = of_oz_setup_key(&key, &self.settings);
        let outcome = finalize(&context, &self.collections.setup_keys, &binding).await;
        deadline::bounded(&context, &self.settings, outcome).await
    }
}

/// The controller of `OZSetupKey`s. It works without a token, too, and then only checks Secrets.
pub fn oz_setup_key(
    collections: &Collections,
    settings: &Arc<Settings>,
) -> Controller<OZSetupKey, OzSetupKeyReconciler> {
    let (of_interest, of_groups) = (Arc::clone(settings), Arc::clone(settings));
    Controller::new(OzSetupKeyReconciler { collections: collections.clone(), settings: Arc::clone(settings) })
        .finalizer_on_demand("openzro.io/setup-key-cleanup")
        .access(secret::declare)
        .watches(secret::watch(), |secret, _| children::owner_key::<_, OZSetupKey>(secret))
        .watches(Watch::<OZGroup>::new(), |group, store| {
            references::users_by_name(group, store.list(), |key: &OZSetupKey| &key.spec.auto_groups)
        })
        .remote(&collections.groups, move |key: &OZSetupKey| {
            references::interest(&key.metadata, key.spec.auto_groups.iter().map(String::as_str), &of_groups)
        })
        .remote(&collections.setup_keys, move |key: &OZSetupKey| {
            let is_managed = key.spec.name.is_some() && key.spec.secret_key_ref.is_none();
            let interest = Interest::default();
            if is_managed { interest.claims(&of_oz_setup_key(key, &of_interest)) } else { interest }
        })
}
