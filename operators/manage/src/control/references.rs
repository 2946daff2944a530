//! Groups that objects refer to: their ids, or what is waited for.

use std::{collections::BTreeSet, sync::Arc};

use konverge::{
    Object,
    kube::{Resource, api::ObjectMeta},
    prelude::{Error, ObjectKey},
    remote::{Interest, Remote, Remotes},
};
use konverge_core::{error::Classify, names::few};

use crate::{
    api::{
        v1::OZGroup,
        v1alpha1::{Group, GroupReference, NetworkRouter},
    },
    control::pause::LOOK_AGAIN,
    reasons,
    remote::{GroupItem, Groups},
    settings::Settings,
};

/// Returns the ids of the groups that the references of an object mean. No id is returned of which the server does not know the group, and none of a
/// group that the namespace of the object may not use. `field` is where the object has the references. `local` finds a `Group` by its key, and
/// `routers` are those of the cluster.
pub(super) async fn group_ids(
    (object, field, references): (&ObjectMeta, &str, &[GroupReference]),
    local: impl Fn(&ObjectKey) -> Option<Arc<Group>> + Send,
    routers: &[Arc<NetworkRouter>],
    groups: &Remotes<Groups>,
    settings: &Settings,
) -> Result<BTreeSet<String>, Error> {
    let namespace = object.namespace.as_deref().unwrap_or_default();
    let scope = &settings.scope(Some(namespace));
    let (mut ids, mut names) = (BTreeSet::new(), Vec::new());
    for reference in references {
        match meaning(reference) {
            Some(Meaning::Name(name)) => {
                settings.check_group(object, routers, field, name)?;
                names.push(name.to_owned());
            }
            Some(Meaning::Id(id)) => {
                let found = look_up(scope, id, groups).await?;
                settings.check_group(object, routers, field, Groups::name(&found))?;
                ids.insert(found.id().to_owned());
            }
            Some(Meaning::Local(name)) => {
                let key = ObjectKey { namespace: Some(namespace.to_owned()), name: name.to_owned() };
                let missing = || {
                    waits(format!(
                        "waits for Group {namespace}/{name}, which is not in openZro yet; create it, or correct the reference"
                    ))
                };
                let group = local(&key).filter(|group| group.metadata.deletion_timestamp.is_none());
                let group = group.ok_or_else(missing)?;
                settings.check_group(&group.metadata, routers, field, &group.spec.name)?;
                let id = group.status.as_ref().and_then(|status| status.group_id.clone()).ok_or_else(missing)?;
                // A user can write a status.
                let found = look_up(scope, &id, groups).await?;
                settings.check_group(&group.metadata, routers, field, Groups::name(&found))?;
                ids.insert(id);
            }
            None => {
                let message = "a reference to a group needs exactly one of name, id and localRef";
                return Err(Error::permanent(reasons::INVALID_SPEC, message));
            }
        }
    }
    ids.extend(groups.resolve(scope, &names).await?.iter().map(|group| group.id().to_owned()));
    Ok(ids)
}

/// Returns the group with this id.
async fn look_up(scope: &str, id: &str, groups: &Remotes<Groups>) -> Result<Arc<GroupItem>, Error> {
    let missing = || {
        waits(format!(
            "waits for the group with the id {id}, which openZro does not have; correct the id, or use the name of a group"
        ))
    };
    groups.look_up(scope, id).await?.ok_or_else(missing)
}

/// Refuses a group, known by the id in a status, that the object may not use. Other clients may write statuses.
pub(super) async fn check_id(
    object: &ObjectMeta,
    routers: &[Arc<NetworkRouter>],
    id: &str,
    groups: &Remotes<Groups>,
    settings: &Settings,
) -> Result<(), Error> {
    let namespace = object.namespace.as_deref();
    if settings.names(namespace.unwrap_or_default()).is_none() {
        return Ok(());
    }
    let found = groups.look_up(&settings.scope(namespace), id).await?;
    found.map_or(Ok(()), |found| settings.check_group(object, routers, "its group", Groups::name(&found)))
}

/// Like [`check_id`], but returns `None` for a group that the object may not use.
pub(super) async fn permitted_id(
    object: &ObjectMeta,
    routers: &[Arc<NetworkRouter>],
    id: Option<String>,
    groups: &Remotes<Groups>,
    settings: &Settings,
) -> Result<Option<String>, Error> {
    let Some(id) = id else { return Ok(None) };
    match check_id(object, routers, &id, groups, settings).await {
        Ok(()) => Ok(Some(id)),
        Err(error) if error.reason() == reasons::NOT_ALLOWED => Ok(None),
        Err(error) => Err(error),
    }
}

fn waits(message: String) -> Error {
    Error::after(LOOK_AGAIN, reasons::DEPENDENCY, message)
}

/// The one way in which a reference names its group.
#[derive(Debug, PartialEq, Eq)]
enum Meaning<'a> {
    Name(&'a str),
    Id(&'a str),
    Local(&'a str),
}

fn meaning(reference: &GroupReference) -> Option<Meaning<'_>> {
    let local = reference.local_ref.as_ref().map(|local| local.name.as_str());
    match (reference.name.as_deref(), reference.id.as_deref(), local) {
        (Some(name), None, None) if !name.is_empty() => Some(Meaning::Name(name)),
        (None, Some(id), None) if !id.is_empty() => Some(Meaning::Id(id)),
        (None, None, Some(local)) if !local.is_empty() => Some(Meaning::Local(local)),
        _ => None,
    }
}

/// The names of groups among the references.
pub(super) fn names(references: &[GroupReference]) -> impl Iterator<Item = &str> {
    references.iter().filter_map(|reference| match meaning(reference) {
        Some(Meaning::Name(name)) => Some(name),
        _ => None,
    })
}

/// Returns the interest of an object in the groups of these names. A name that its namespace may not use is no reason to keep a group of another team.
pub(super) fn interest<'a>(
    object: &ObjectMeta,
    names: impl IntoIterator<Item = &'a str>,
    settings: &Settings,
) -> Interest {
    let (namespace, scope) =
        (object.namespace.as_deref().unwrap_or_default(), settings.scope(object.namespace.as_deref()));
    let names = names.into_iter().filter(|name| settings.allows(namespace, name));
    names.fold(Interest::default(), |interest, name| interest.refers_to(&scope, name))
}

/// Whether one of the references is to this `Group` of the same namespace.
pub(super) fn refer_to(references: &[GroupReference], group: &str) -> bool {
    references.iter().any(|reference| meaning(reference) == Some(Meaning::Local(group)))
}

/// The keys of those objects in the namespace of `group` whose references mean it.
pub(super) fn users<K: Object>(
    group: &Group,
    objects: Vec<Arc<K>>,
    references: impl Fn(&K) -> &[GroupReference],
) -> Vec<ObjectKey> {
    let name = group.metadata.name.as_deref().unwrap_or_default();
    let is_user =
        |object: &Arc<K>| object.meta().namespace == group.metadata.namespace && refer_to(references(object), name);
    objects.into_iter().filter(is_user).filter_map(|object| ObjectKey::of(&*object)).collect()
}

/// Whether openZro has a group of this display name. A failure to read the groups is no absence.
pub(super) async fn is_group(scope: &str, name: &str, groups: &Remotes<Groups>) -> Result<bool, Error> {
    match groups.resolve(scope, &[name.to_owned()]).await {
        Ok(_) => Ok(true),
        Err(failure) if failure.reason() == reasons::WAITING_FOR_REFERENCE => Ok(false),
        Err(failure) => Err(failure.into()),
    }
}

/// The display name of a group that is given by the name of an `OZGroup` of the namespace or by its display name.
pub(super) fn display_name(reference: &str, namespace: &str, groups: &[Arc<OZGroup>]) -> String {
    let is_meant = |group: &&Arc<OZGroup>| {
        group.metadata.namespace.as_deref() == Some(namespace) && group.metadata.name.as_deref() == Some(reference)
    };
    groups.iter().find(is_meant).map_or_else(|| reference.to_owned(), |group| group.spec.name.clone())
}

/// The keys of those objects in the namespace of `group` whose references are its name.
pub(super) fn users_by_name<K: Object>(
    group: &OZGroup,
    objects: Vec<Arc<K>>,
    references: impl Fn(&K) -> &[String],
) -> Vec<ObjectKey> {
    let is_user = |object: &Arc<K>| {
        object.meta().namespace == group.metadata.namespace
            && references(object).iter().any(|name| Some(name) == group.metadata.name.as_ref())
    };
    objects.into_iter().filter(is_user).filter_map(|object| ObjectKey::of(&*object)).collect()
}

/// Whether an object without a namespace means this one: by its name, or by its namespace and name.
pub(super) fn is_named<K: Resource>(object: &K, reference: &str) -> bool {
    let (namespace, name) = (object.meta().namespace.as_deref(), object.meta().name.as_deref());
    match reference.split_once('/') {
        Some((of, reference)) => namespace == Some(of) && name == Some(reference),
        None => name == Some(reference),
    }
}

/// The display name of the group that the `OZGroup`s of this name stand for; `None` if there is none. The error names those that stand for different
/// groups.
pub(super) fn display_name_anywhere(reference: &str, groups: &[Arc<OZGroup>]) -> Result<Option<String>, String> {
    let is_meant =
        |group: &&Arc<OZGroup>| group.metadata.deletion_timestamp.is_none() && is_named(&***group, reference);
    let meant: Vec<_> = groups.iter().filter(is_meant).collect();
    let names: BTreeSet<&str> = meant.iter().map(|group| group.spec.name.as_str()).collect();
    if names.len() > 1 {
        let keys: BTreeSet<String> =
            meant.iter().filter_map(|group| ObjectKey::of(&***group)).map(|key| key.to_string()).collect();
        return Err(format!("{reference:?} is the name of OZGroup {}, which differ; write namespace/name", few(keys)));
    }
    Ok(names.first().map(|name| (*name).to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reference_has_one_meaning_or_none() {
        for (reference, expected) in [
            (json!({ "name": "devs" }), Some(Meaning::Name("devs"))),
            (json!({ "id": "g1" }), Some(Meaning::Id("g1"))),
            (json!({ "localRef": { "name": "devs" } }), Some(Meaning::Local("devs"))),
            (json!({ "name": "devs", "id": "g1" }), None),
            (json!({ "name": "" }), None),
            (json!({}), None),
        ] {
            let reference: GroupReference = serde_json::from_value(reference).unwrap();
            assert_eq!(meaning(&reference), expected, "{reference:?}");
        }
    }
    fn group(namespace: &str, name: &str, display: &str) -> Arc<OZGroup> {
        let mut group = OZGroup::new(name, crate::api::v1::OZGroupSpec { name: display.to_owned() });
        group.metadata.namespace = Some(namespace.to_owned());
        Arc::new(group)
    }

    #[test]
    fn a_group_is_meant_by_the_name_of_its_object_unless_that_is_ambiguous() {
        let groups = [
            group("a", "web", "Web of A"),
            group("b", "web", "Web of B"),
            group("a", "db", "DB"),
            group("b", "db", "DB"),
        ];
        for (reference, namespace, expected) in
            [("web", "a", "Web of A"), ("web", "c", "web"), ("db", "b", "DB"), ("a/web", "a", "a/web")]
        {
            assert_eq!(display_name(reference, namespace, &groups), expected, "{reference} in {namespace}");
        }
        for (reference, expected) in
            [("db", Some("DB")), ("a/web", Some("Web of A")), ("b/web", Some("Web of B")), ("c/web", None), ("x", None)]
        {
            assert_eq!(display_name_anywhere(reference, &groups).unwrap().as_deref(), expected, "{reference}");
        }
        let ambiguous = display_name_anywhere("web", &groups).unwrap_err();
        assert!(ambiguous.contains("a/web") && ambiguous.contains("b/web"), "{ambiguous}");
    }
}
