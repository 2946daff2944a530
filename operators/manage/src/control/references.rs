//! Groups that objects refer to: their ids, or what is waited for.

use std::{collections::BTreeSet, time::Duration};

use konverge::{
    Object, Watched,
    prelude::{Error, ObjectKey},
    remote::Remotes,
};

use crate::{
    api::v1alpha1::{Group, GroupReference},
    reasons::Why,
    remote::Groups,
};

/// How soon an object is looked at that waits for another one, which mostly wakes it before.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// Returns the ids of the groups that references mean. No id is returned of which the server does not know the group.
pub(super) async fn group_ids(
    references: &[GroupReference],
    namespace: &str,
    local: &Watched<'_, Group>,
    groups: &Remotes<Groups>,
) -> Result<BTreeSet<String>, Error> {
    let (mut ids, mut names) = (BTreeSet::new(), Vec::new());
    for reference in references {
        match meaning(reference) {
            Some(Meaning::Name(name)) => names.push(name.to_owned()),
            Some(Meaning::Id(id)) => {
                let found = groups.look_up("", id).await?;
                let missing = || waits(format!("waits for the group with the id {id}"));
                ids.insert(found.ok_or_else(missing)?.id().to_owned());
            }
            Some(Meaning::Local(name)) => {
                let key = ObjectKey { namespace: Some(namespace.to_owned()), name: name.to_owned() };
                let group = local.get(&key).filter(|group| group.metadata.deletion_timestamp.is_none());
                let id = group.and_then(|group| group.status.as_ref()?.group_id.clone());
                ids.insert(id.ok_or_else(|| waits(format!("waits for Group {namespace}/{name}")))?);
            }
            None => {
                let message = "a reference to a group needs exactly one of name, id and localRef";
                return Err(Error::permanent(Why::InvalidSpec, message));
            }
        }
    }
    ids.extend(groups.resolve("", &names).await?.iter().map(|group| group.id().to_owned()));
    Ok(ids)
}

fn waits(message: String) -> Error {
    Error::after(LOOK_AGAIN, Why::Dependency, message)
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

/// Whether one of the references is to this `Group` of the same namespace.
pub(super) fn refer_to(references: &[GroupReference], group: &str) -> bool {
    references.iter().any(|reference| meaning(reference) == Some(Meaning::Local(group)))
}

/// The keys of those objects in the namespace of `group` whose references mean it.
pub(super) fn users<K: Object>(
    group: &Group,
    objects: Vec<std::sync::Arc<K>>,
    references: impl Fn(&K) -> &[GroupReference],
) -> Vec<ObjectKey> {
    let name = group.metadata.name.as_deref().unwrap_or_default();
    let is_user = |object: &std::sync::Arc<K>| {
        object.meta().namespace == group.metadata.namespace && refer_to(references(object), name)
    };
    objects.into_iter().filter(is_user).filter_map(|object| ObjectKey::of(&*object)).collect()
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
}
