//! A setup key and the Secret that has it: the server tells the key once, so both are made together.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use konverge::{
    Object,
    apply::{Owner, Writable},
    generate::Access,
    kube::{
        Api, Resource, ResourceExt,
        api::{Patch, PatchParams},
    },
    prelude::{Cleanup, Context, Error, EventType},
    remote::{Binding, DeletionPolicy, Remotes},
};

use crate::{
    program::PROGRAM,
    remote::{DesiredSetupKey, SetupKeys},
    settings::Settings,
};

/// Where the key is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The name of the Secret.
    pub(crate) name: String,
    /// The key in it.
    pub(crate) key: String,
}

/// Reading a Secret by its name, and writing it. No list and no watch.
pub(crate) fn declare(access: &mut Access) {
    access.to_resource("", "secrets", &["get", "create", "patch"]);
}

/// Whether a text is a setup key of openZro, which is a UUID.
pub(super) fn is_setup_key(text: &str) -> bool {
    let text = text.trim();
    let groups: Vec<_> = text.split('-').collect();
    let lengths: Vec<_> = groups.iter().map(|group| group.len()).collect();
    lengths == [8, 4, 4, 4, 12] && groups.iter().all(|group| group.chars().all(|digit| digit.is_ascii_hexdigit()))
}

/// What to do with a key that is on the server.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// The Secret has it.
    Keep,
    /// It was just made, and goes into the Secret.
    Write,
    /// Nobody can use it any more. Delete it and make another.
    Replace(String),
}

/// Decides. `in_secret` is whether what the Secret has can be this key; `None` if the Secret has none.
fn decide(why_replaced: Option<String>, is_new: bool, in_secret: Option<bool>) -> Step {
    match (why_replaced, is_new, in_secret) {
        (Some(why), ..) => Step::Replace(why),
        (None, true, _) => Step::Write,
        (None, false, Some(true)) => Step::Keep,
        (None, false, Some(false)) => Step::Replace("the Secret has another key".to_owned()),
        (None, false, None) => Step::Replace("no Secret has it, and the server tells it only once".to_owned()),
    }
}

/// Makes the setup key exist, and the Secret have it. A key that nobody can use any more is deleted and made anew. `set_id` gets the id for the
/// status, also if a later step fails.
pub(crate) async fn ensure<K>(
    context: &Context<K>,
    keys: &Remotes<SetupKeys>,
    settings: &Settings,
    mut binding: Binding,
    desired: &DesiredSetupKey,
    place: &Place,
    set_id: impl Fn(Option<String>),
) -> Result<String, Error>
where
    K: Object + Writable + Resource<DynamicType = ()>,
{
    let namespace = context.object().namespace().unwrap_or_default();
    let secrets = Api::<Secret>::namespaced(context.client().clone(), &namespace);
    // Once for the key that is there, and once for the one that replaces it.
    for _ in 0..2 {
        let standing = context.remote(keys).apply(&binding, desired).await?;
        let id = standing.item.id().to_owned();
        set_id(Some(id.clone()));
        let stored = secrets.get_opt(&place.name).await?;
        let in_secret = stored.as_ref().and_then(|secret| secret.data.as_ref()?.get(&place.key)).map(|value| {
            let text = std::str::from_utf8(&value.0).unwrap_or_default();
            standing.item.may_be(text)
        });
        let new = keys.remote().and_then(|keys| keys.take_secret(&id));
        match (decide(standing.item.why_replaced(desired), new.is_some(), in_secret), new) {
            (Step::Keep, _) => return Ok(id),
            (Step::Write, Some(new)) => {
                let value = ByteString(new.expose().to_vec());
                write(context, &secrets, settings, stored.as_ref(), place, value).await?;
                return Ok(id);
            }
            (Step::Write, None) => {}
            (Step::Replace(why), _) => {
                let name = &desired.name;
                context.event(
                    EventType::Normal,
                    "Replaced",
                    "Reconcile",
                    format!("replaces the setup key {name} ({id}): {why}"),
                );
                let of_old = binding.clone().with(|binding| {
                    binding.id = Some(id);
                    binding.deletion = DeletionPolicy::DeleteAdopted;
                });
                if let Cleanup::Pending { after, message, .. } = context.remote(keys).withdraw(&of_old).await? {
                    return Err(Error::after(after, "Deleting", message));
                }
                set_id(None);
                binding.id = None;
            }
        }
    }
    let message = format!("the new setup key {} cannot be used at once; it is replaced again", desired.name);
    Err(Error::transient("KeyUnusable", message))
}

async fn write<K>(
    context: &Context<K>,
    secrets: &Api<Secret>,
    settings: &Settings,
    stored: Option<&Secret>,
    place: &Place,
    value: ByteString,
) -> Result<(), Error>
where
    K: Object + Writable + Resource<DynamicType = ()>,
{
    let owner = Owner::of(&**context.object())?;
    // A Secret of somebody else gets the key, but does not go with the object.
    let is_own = stored.is_none_or(|secret| secret.owner_references().iter().any(|known| known.uid == owner.uid()));
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(place.name.clone()),
            labels: is_own.then(|| settings.default_labels.clone()).filter(|labels| !labels.is_empty()),
            owner_references: is_own.then(|| vec![owner.controller_reference()]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(place.key.clone(), value)])),
        ..Secret::default()
    };
    secrets.patch(&place.name, &PatchParams::apply(PROGRAM).force(), &Patch::Apply(&secret)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w32_a_key_that_no_secret_has_is_replaced_and_never_leaked() {
        let why = || Some("it is revoked".to_owned());
        let replace = |why: &str| Step::Replace(why.to_owned());
        for (why_replaced, is_new, in_secret, expected) in [
            (None, false, Some(true), Step::Keep),
            (None, true, None, Step::Write),
            (None, true, Some(false), Step::Write),
            (None, false, None, replace("no Secret has it, and the server tells it only once")),
            (None, false, Some(false), replace("the Secret has another key")),
            (why(), false, Some(true), replace("it is revoked")),
            (why(), true, None, replace("it is revoked")),
        ] {
            assert_eq!(decide(why_replaced, is_new, in_secret), expected);
        }
    }

    #[test]
    fn a_setup_key_is_a_uuid() {
        for (text, expected) in [
            ("A2C8E62B-38F5-4553-B31E-DD66C696CEBB", true),
            ("a2c8e62b-38f5-4553-b31e-dd66c696cebb\n", true),
            ("A2C8E62B38F54553B31EDD66C696CEBB", false),
            ("A2C8E62B-38F5-4553-B31E-DD66C696CEBG", false),
            ("", false),
        ] {
            assert_eq!(is_setup_key(text), expected, "{text}");
        }
    }
}
