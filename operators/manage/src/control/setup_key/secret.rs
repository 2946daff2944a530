//! A setup key and the Secret that has it: the server tells the key once, so both are made together.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use konverge::{
    Object, Watch,
    apply::{MetadataChange, Owner, Writable},
    generate::Access,
    kube::{Api, Resource, ResourceExt, core::PartialObjectMeta},
    prelude::{Cleanup, Context, Error, EventType},
    remote::{Binding, DeletionPolicy, Mark, Remote, Remotes},
    runtime::cache::Predicate,
};

use crate::{
    config::PROGRAM,
    reasons,
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

/// The label of the Secrets that the operator creates and watches.
const LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", PROGRAM);

/// Returns the source of the Secrets that the operator created, without their data.
pub(crate) fn watch() -> Watch<PartialObjectMeta<Secret>> {
    Watch::new().label_selector(format!("{}={}", LABEL.0, LABEL.1)).predicate(Predicate::annotations())
}

/// Declares the permissions to read a Secret by its name, and to write it.
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

/// The next step for a key that is on the server.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// The Secret has it.
    Keep,
    /// It was just made, and goes into the Secret.
    Write,
    /// Nobody can use it any more. Make another, and then delete it.
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

/// The parts of an object that has a setup key. The key is in one of them. A new key is made in the other one while the previous one still exists.
const PARTS: [&str; 2] = ["", "next"];

/// The part that the key of an object is not in.
fn other_than(part: &str) -> &'static str {
    if part == PARTS[0] { PARTS[1] } else { PARTS[0] }
}

/// The part of the key with the id of the status. `marked` is the part that the key on the server bears, and `recorded` are the parts in the record.
/// A key that is gone, or that openzro-operator made, has no mark.
fn part_of(marked: Option<&str>, recorded: &[String]) -> &'static str {
    let only_next = recorded.iter().any(|part| part == PARTS[1]) && !recorded.iter().any(|part| part == PARTS[0]);
    if marked == Some(PARTS[1]) || (marked.is_none() && only_next) { PARTS[1] } else { PARTS[0] }
}

/// The binding of the current key, the binding without an id of the one beside it, and whether the record has that one. `recorded` are the parts of
/// the record.
pub(super) async fn bindings(
    keys: &Remotes<SetupKeys>,
    binding: &Binding,
    recorded: &[String],
) -> Result<(Binding, Binding, bool), Error> {
    let shown = match &binding.id {
        Some(id) => keys.look_up(&binding.scope, id).await?,
        None => None,
    };
    let mark = shown.as_ref().and_then(|key| SetupKeys::mark(key));
    let part = part_of(mark.as_ref().map(Mark::part), recorded);
    let current = binding.clone().with(|binding| part.clone_into(&mut binding.part));
    let beside = binding.clone().with(|binding| {
        other_than(part).clone_into(&mut binding.part);
        binding.id = None;
    });
    let has_beside = recorded.contains(&beside.part);
    Ok((current, beside, has_beside))
}

/// The Secret of a setup key as it is now.
struct Stored<'a, K: Object> {
    context: &'a Context<K>,
    keys: &'a Remotes<SetupKeys>,
    settings: &'a Settings,
    desired: &'a DesiredSetupKey,
    place: &'a Place,
    secrets: Api<Secret>,
}

/// The outcome for one key.
enum Outcome {
    /// The Secret has the key with this id.
    InPlace(String),
    /// Nobody can use the key with this id any more, for this reason.
    Useless(String, String),
}

impl<K: Object + Writable + Resource<DynamicType = ()>> Stored<'_, K> {
    /// Makes the key of a binding exist, and puts it into the Secret if it is new.
    async fn put(&self, binding: &Binding) -> Result<Outcome, Error> {
        check_place(self.context, self.settings, self.place).await?;
        let applied = self.context.remote(self.keys).apply(binding, self.desired).await?;
        let id = applied.item.id().to_owned();
        let stored = self.secrets.get_opt(&self.place.name).await?;
        let value = stored.as_ref().and_then(|secret| secret.data.as_ref()?.get(&self.place.key));
        let in_secret = value.map(|value| applied.item.may_be(std::str::from_utf8(&value.0).unwrap_or_default()));
        let new = self.keys.remote().and_then(|keys| keys.take_secret(&binding.scope, &id));
        match (decide(applied.item.why_replaced(self.desired), new.is_some(), in_secret), new) {
            (Step::Write, Some(new)) => {
                let value = ByteString(new.expose().to_vec());
                write(self.context, self.settings, stored.as_ref(), self.place, value).await?;
                Ok(Outcome::InPlace(id))
            }
            (Step::Keep | Step::Write, _) => {
                if let Some(stored) = stored.as_ref().filter(|stored| is_own(self.context, stored)) {
                    // A Secret of an earlier version has no label yet.
                    let change = MetadataChange::new().label(LABEL.0, LABEL.1);
                    self.context.applier().change_metadata_with(stored, &change, &()).await?;
                }
                Ok(Outcome::InPlace(id))
            }
            (Step::Replace(why), _) => Ok(Outcome::Useless(id, why)),
        }
    }

    /// Deletes the key of a binding.
    async fn withdraw(&self, binding: &Binding, id: Option<String>) -> Result<(), Error> {
        let of_old = binding.clone().with(|binding| {
            binding.id = id;
            binding.deletion = DeletionPolicy::DeleteAdopted;
            binding.is_replaced = true;
        });
        if let Cleanup::Pending { after, message, .. } = self.context.remote(self.keys).withdraw(&of_old).await? {
            return Err(Error::after(after, reasons::DELETING, message));
        }
        Ok(())
    }
}

/// Refuses a Secret that another client created or that the API server would reject, before anything is created in openZro.
pub(crate) async fn check_place<K>(context: &Context<K>, settings: &Settings, place: &Place) -> Result<(), Error>
where
    K: Object + Writable + Resource<DynamicType = ()>,
{
    let (name, namespace) = (&place.name, context.object().namespace().unwrap_or_default());
    let Some(stored) = Api::<Secret>::namespaced(context.client().clone(), &namespace).get_opt(name).await? else {
        let applier = context.applier().clone().with_manager(PROGRAM).with_dry_run(true);
        drop(applier.create(&secret(context, settings, place, None)?).await?);
        return Ok(());
    };
    if is_own(context, &stored) {
        return Ok(());
    }
    let message = format!(
        "Secret {namespace}/{name} exists and does not belong to this object, so it was not changed; delete or rename it"
    );
    Err(Error::refused(reasons::NOT_OURS, message))
}

/// Makes the setup key exist, and the Secret have it. For a key that nobody can use any more, another is made and put into the Secret, and then the
/// previous one is deleted. So the Secret has the best key that there is at all times. `set_id` gets the id for the status, also if a later step fails.
pub(crate) async fn ensure<K>(
    context: &Context<K>,
    keys: &Remotes<SetupKeys>,
    settings: &Settings,
    binding: Binding,
    desired: &DesiredSetupKey,
    place: &Place,
    set_id: impl Fn(Option<String>),
) -> Result<(), Error>
where
    K: Object + Writable + Resource<DynamicType = ()>,
{
    let namespace = context.object().namespace().unwrap_or_default();
    let secrets = Api::<Secret>::namespaced(context.client().clone(), &namespace);
    let stored = Stored { context, keys, settings, desired, place, secrets };
    let (current, beside, has_beside) = bindings(keys, &binding, &context.remote(keys).parts().await?).await?;
    let (previous, why) = match stored.put(&current).await? {
        Outcome::InPlace(id) => {
            set_id(Some(id));
            // A key beside it is the previous one, or one that never reached the Secret.
            return if has_beside { stored.withdraw(&beside, None).await } else { Ok(()) };
        }
        Outcome::Useless(id, why) => (id, why),
    };
    set_id(Some(previous.clone()));
    let name = &desired.name;
    let message = format!("replaces the setup key {name} ({previous}): {why}");
    context.event(EventType::Normal, reasons::REPLACED, "Reconcile", message);
    // Once for a key that an earlier run has made, and once for the one that replaces it if nobody knows it.
    for _ in 0..2 {
        match stored.put(&beside).await? {
            Outcome::InPlace(id) => {
                set_id(Some(id));
                return stored.withdraw(&current, Some(previous)).await;
            }
            Outcome::Useless(id, _) => stored.withdraw(&beside, Some(id)).await?,
        }
    }
    let message = format!("the new setup key {name} cannot be used at once; it is replaced again");
    Err(Error::transient(reasons::KEY_UNUSABLE, message))
}

/// Deletes the setup key of an object, and one that was to replace it.
pub(crate) async fn finalize<K>(
    context: &Context<K>,
    keys: &Remotes<SetupKeys>,
    binding: &Binding,
) -> Result<Cleanup, Error>
where
    K: Object + Writable,
{
    if binding.deletion == DeletionPolicy::Orphan {
        return Ok(Cleanup::Done);
    }
    let (current, beside, has_beside) = bindings(keys, binding, &context.remote(keys).parts().await?).await?;
    let remote = context.remote(keys);
    let of_current = remote.finalize(&current).await?;
    let of_beside = if has_beside { remote.finalize(&beside).await? } else { Cleanup::Done };
    Ok(if of_current == Cleanup::Done { of_beside } else { of_current })
}

/// Returns `true` if the Secret was created for the object.
fn is_own<K: Object>(context: &Context<K>, secret: &Secret) -> bool {
    let uid = context.object().meta().uid.as_ref();
    secret.owner_references().iter().any(|owner| Some(&owner.uid) == uid)
}

/// Returns the Secret of the object, with a key.
fn secret<K>(
    context: &Context<K>,
    settings: &Settings,
    place: &Place,
    value: Option<ByteString>,
) -> Result<Secret, Error>
where
    K: Object + Writable + Resource<DynamicType = ()>,
{
    let labels = settings.default_labels.clone().into_iter().chain([(LABEL.0.to_owned(), LABEL.1.to_owned())]);
    Ok(Secret {
        metadata: ObjectMeta {
            name: Some(place.name.clone()),
            namespace: context.object().namespace(),
            labels: Some(labels.collect()),
            owner_references: Some(vec![Owner::of(&**context.object())?.controller_reference()]),
            ..ObjectMeta::default()
        },
        data: value.map(|value| BTreeMap::from([(place.key.clone(), value)])),
        ..Secret::default()
    })
}

async fn write<K>(
    context: &Context<K>,
    settings: &Settings,
    stored: Option<&Secret>,
    place: &Place,
    value: ByteString,
) -> Result<(), Error>
where
    K: Object + Writable + Resource<DynamicType = ()>,
{
    let secret = secret(context, settings, place, Some(value))?;
    let applier = context.applier().clone().with_manager(PROGRAM);
    // Neither a Secret that another client has made since the look is touched, nor one that a successor has written since.
    let _ = match stored {
        Some(stored) => applier.apply(&secret, Some(stored)).await?,
        None => applier.create(&secret).await?,
    };
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
    fn w32_the_part_of_a_key_is_told_by_its_mark_or_else_by_the_record() {
        for (marked, recorded, expected) in [
            (Some(""), &["", "next"][..], ""),
            (Some("next"), &["", "next"], "next"),
            (Some("next"), &[], "next"),
            (None, &[], ""),
            (None, &[""], ""),
            (None, &["next"], "next"),
            (None, &["", "next"], ""),
        ] {
            let recorded: Vec<_> = recorded.iter().map(|part| (*part).to_owned()).collect();
            assert_eq!(part_of(marked, &recorded), expected, "{marked:?} {recorded:?}");
        }
        assert_eq!((other_than(""), other_than("next")), ("next", ""));
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
