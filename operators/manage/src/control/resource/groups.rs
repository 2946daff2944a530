//! The `OZGroup`s that resources have made for groups that do not exist yet. Several resources may own one.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use konverge::{
    apply::Owner,
    kube::{
        Api, Resource, ResourceExt,
        api::{DeleteParams, ObjectMeta, Patch, PatchParams, Preconditions},
    },
    prelude::{Context, Error, ObjectKey},
    remote::Remotes,
};
use serde_json::json;

use crate::{
    api::v1::{OZGroup, OZGroupSpec, OZResource},
    config::PROGRAM,
    control::{references, short_digest},
    remote::Groups,
    settings::Settings,
};

/// The longest name of an object of this kind.
const LONGEST_NAME: usize = 63;

/// The display names of the groups that a resource means. A word is a display name if openZro has it or an `OZGroup` of the namespace declares it. Or
/// else it is the name of an `OZGroup` there, as the documentation of the original has it. All others are display names of groups to make.
pub(in crate::control) async fn meant(
    resource: &OZResource,
    local: &[Arc<OZGroup>],
    groups: &Remotes<Groups>,
    settings: &Settings,
) -> Result<Vec<String>, Error> {
    let (namespace, scope) = (&resource.metadata.namespace, settings.scope(resource.metadata.namespace.as_deref()));
    let local: Vec<_> = local.iter().filter(|group| group.metadata.namespace == *namespace).collect();
    let mut names = BTreeSet::new();
    for word in &resource.spec.groups {
        let is_declared = local.iter().any(|group| group.spec.name == *word);
        let of_object = local.iter().find(|group| group.metadata.name.as_ref() == Some(word));
        names.insert(match of_object {
            Some(group) if !is_declared && !references::is_group(&scope, word, groups).await? => {
                group.spec.name.clone()
            }
            _ => word.clone(),
        });
    }
    Ok(names.into_iter().collect())
}

/// Makes an `OZGroup` for each group that openZro lacks. Returns what is waited for.
pub(super) async fn ensure(
    context: &Context<OZResource>,
    groups: &Remotes<Groups>,
    settings: &Settings,
    names: &[String],
) -> Result<Option<String>, Error> {
    let resource = context.object();
    let known = in_namespace(context)?;
    let scope = settings.scope(resource.metadata.namespace.as_deref());
    let api = Api::<OZGroup>::namespaced(context.client().clone(), &resource.namespace().unwrap_or_default());
    let owner = Owner::of(&**resource)?.reference();
    let mut waits = None;
    for name in names {
        let of_name = known.iter().find(|group| group.spec.name == *name);
        match of_name {
            Some(group) if made_for_resources(group) && !has(group, &owner.uid) => {
                set_owners(
                    context,
                    &api,
                    group,
                    group.owner_references().iter().cloned().chain([owner.clone()]).collect(),
                )
                .await?;
            }
            Some(_) => {}
            None if references::is_group(&scope, name, groups).await? => {}
            None => {
                let mut group = OZGroup::new(&object_name(name, &known), OZGroupSpec { name: name.clone() });
                group.metadata = ObjectMeta {
                    namespace: resource.namespace(),
                    labels: Some(settings.default_labels.clone()).filter(|labels| !labels.is_empty()),
                    owner_references: Some(vec![owner.clone()]),
                    ..group.metadata
                };
                let _ = context.applier().create(&group).await?;
                waits = Some(format!("waits for OZGroup {}, which was made for the group {name}", group.name_any()));
            }
        }
    }
    Ok(waits)
}

/// Gives up the `OZGroup`s that the resource no longer names, and deletes those that no other resource owns.
pub(super) async fn release_others(context: &Context<OZResource>, names: &[String]) -> Result<(), Error> {
    let resource = context.object();
    let uid = resource.uid().unwrap_or_default();
    let api = Api::<OZGroup>::namespaced(context.client().clone(), &resource.namespace().unwrap_or_default());
    for group in in_namespace(context)? {
        if !has(&group, &uid) || names.contains(&group.spec.name) || group.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let others: Vec<_> = group.owner_references().iter().filter(|owner| owner.uid != uid).cloned().collect();
        let is_last = others.is_empty();
        set_owners(context, &api, &group, others).await?;
        if is_last {
            let preconditions = Preconditions { uid: group.uid(), resource_version: None };
            let parameters = DeleteParams { dry_run: context.applier().is_dry_run(), ..DeleteParams::default() };
            let parameters = parameters.preconditions(preconditions);
            api.delete(&group.name_any(), &parameters).await?;
        }
    }
    Ok(())
}

/// The resources that own a group.
pub(super) fn owners(group: &OZGroup) -> Vec<ObjectKey> {
    let of_resources = group.owner_references().iter().filter(|owner| owner.kind == OZResource::kind(&()));
    of_resources.map(|owner| ObjectKey { namespace: group.namespace(), name: owner.name.clone() }).collect()
}

fn in_namespace(context: &Context<OZResource>) -> Result<Vec<Arc<OZGroup>>, Error> {
    let namespace = &context.object().metadata.namespace;
    let all = context.watched::<OZGroup>()?.list();
    Ok(all.into_iter().filter(|group| group.metadata.namespace == *namespace).collect())
}

fn made_for_resources(group: &OZGroup) -> bool {
    group.owner_references().iter().any(|owner| owner.kind == OZResource::kind(&()))
}

fn has(group: &OZGroup, uid: &str) -> bool {
    group.owner_references().iter().any(|owner| owner.uid == uid)
}

/// Replaces the owners of a group that is as it was seen.
async fn set_owners(
    context: &Context<OZResource>,
    api: &Api<OZGroup>,
    group: &OZGroup,
    owners: Vec<OwnerReference>,
) -> Result<(), Error> {
    let metadata =
        json!({ "ownerReferences": owners, "resourceVersion": group.resource_version(), "uid": group.uid() });
    let parameters = PatchParams {
        dry_run: context.applier().is_dry_run(),
        field_manager: Some(PROGRAM.to_owned()),
        ..PatchParams::default()
    };
    api.patch(&group.name_any(), &parameters, &Patch::Merge(json!({ "metadata": metadata }))).await?;
    Ok(())
}

/// The name of the object for a group: the original's where it is valid and no other group has it, and else with a short digest.
fn object_name(display: &str, known: &[Arc<OZGroup>]) -> String {
    let plain = display.to_lowercase().replace(' ', "-");
    let is_valid = is_name(&plain) && plain.len() <= LONGEST_NAME;
    let is_free = known.iter().all(|group| group.name_any() != plain || group.spec.name == display);
    if is_valid && is_free {
        return plain;
    }
    let short = short_digest(display);
    let readable: String =
        plain.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).take(40).collect();
    format!("{}-{short}", readable.trim_matches('-')).trim_start_matches('-').to_owned()
}

fn is_name(text: &str) -> bool {
    let is_inner =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-' || letter == '.';
    let is_outer =
        |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit());
    text.chars().all(is_inner)
        && is_outer(text.chars().next())
        && is_outer(text.chars().next_back())
        && !text.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w36_names_are_the_originals_or_have_a_digest() {
        let other = Arc::new(OZGroup::new("dev-team", OZGroupSpec { name: "Dev Team".to_owned() }));
        let known = [other];
        assert_eq!(object_name("Dev Team", &known), "dev-team");
        assert_eq!(object_name("Ops Team", &known), "ops-team");
        let collides = object_name("dev-team", &known);
        assert!(collides.starts_with("dev-team-") && collides.len() == 17, "{collides}");
        for odd in ["Größe", "a/b", "***", "x".repeat(80).as_str(), "-a", "a.-"] {
            let name = object_name(odd, &known);
            assert!(is_name(&name) && name.len() <= LONGEST_NAME && name != odd, "{odd}: {name}");
        }
        assert_ne!(object_name("a/b", &known), object_name("a?b", &known));
    }
}
