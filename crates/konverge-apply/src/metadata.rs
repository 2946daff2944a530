//! Building metadata, and changing labels and annotations without touching those of others.

use std::collections::BTreeMap;

use http::StatusCode;
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Resource,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Map, Value, json};

use crate::{
    altered::altered_metadata,
    applier::{Applier, AsSeen, altered_error, as_seen},
    call::send,
    error::ApplyError,
    object::{Target, Writable},
};

/// Metadata of an object to be made. A name that is given again replaces the first.
///
/// ```
/// use konverge_apply::metadata::Metadata;
///
/// let metadata = Metadata::named("app").in_namespace("shop").label("tier", "web").build();
/// assert_eq!(metadata.namespace.as_deref(), Some("shop"));
/// assert!(metadata.annotations.is_none());
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Metadata(ObjectMeta);

impl Metadata {
    /// Of an object with this name.
    pub fn named(name: impl Into<String>) -> Self {
        Self(ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() })
    }

    /// In this namespace.
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.0.namespace = Some(namespace.into());
        self
    }

    /// With this label.
    pub fn label(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels([(name, value)])
    }

    /// With these labels.
    pub fn labels(mut self, labels: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Self {
        let labels = labels.into_iter().map(|(name, value)| (name.into(), value.into()));
        self.0.labels.get_or_insert_default().extend(labels);
        self
    }

    /// With this annotation.
    pub fn annotation(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations([(name, value)])
    }

    /// With these annotations.
    pub fn annotations(
        mut self,
        annotations: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
    ) -> Self {
        let annotations = annotations.into_iter().map(|(name, value)| (name.into(), value.into()));
        self.0.annotations.get_or_insert_default().extend(annotations);
        self
    }

    /// With this owner; see [`controller_ref`](crate::controller_ref).
    pub fn owner(mut self, owner: OwnerReference) -> Self {
        self.0.owner_references.get_or_insert_default().push(owner);
        self
    }

    /// With this finalizer.
    pub fn finalizer(mut self, finalizer: impl Into<String>) -> Self {
        self.0.finalizers.get_or_insert_default().push(finalizer.into());
        self
    }

    /// The metadata. An empty value counts as absent.
    pub fn build(self) -> ObjectMeta {
        let mut metadata = self.0;
        metadata.labels.take_if(|labels| labels.is_empty());
        metadata.annotations.take_if(|annotations| annotations.is_empty());
        metadata
    }
}

/// Labels and annotations to set or to remove. All others stay as they are.
///
/// For an object that we apply as a whole, they belong into the desired object instead: then they go when they are no longer
/// wanted. This is for objects of others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "nothing is written before `Applier::change_metadata`"]
pub struct MetadataChange {
    labels: BTreeMap<String, Option<String>>,
    annotations: BTreeMap<String, Option<String>>,
}

impl MetadataChange {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a label.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), Some(value.into()));
        self
    }

    /// Removes a label.
    pub fn without_label(mut self, name: impl Into<String>) -> Self {
        self.labels.insert(name.into(), None);
        self
    }

    /// Sets an annotation.
    pub fn annotation(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.insert(name.into(), Some(value.into()));
        self
    }

    /// Removes an annotation.
    pub fn without_annotation(mut self, name: impl Into<String>) -> Self {
        self.annotations.insert(name.into(), None);
        self
    }

    /// Whether the members that it changes have the same values in both.
    fn is_about_the_same(&self, seen: &ObjectMeta, current: &ObjectMeta) -> bool {
        values(&self.labels, seen.labels.as_ref()).eq(values(&self.labels, current.labels.as_ref()))
            && values(&self.annotations, seen.annotations.as_ref())
                .eq(values(&self.annotations, current.annotations.as_ref()))
    }

    /// Returns the merge patch that makes the metadata so, or `None` if it is.
    fn patch(&self, metadata: &ObjectMeta) -> Option<Value> {
        let labels = missing(&self.labels, metadata.labels.as_ref());
        let annotations = missing(&self.annotations, metadata.annotations.as_ref());
        let parts = [("labels", labels), ("annotations", annotations)];
        let parts: Map<_, _> = parts
            .into_iter()
            .filter(|(_, members)| !members.is_empty())
            .map(|(name, members)| (name.to_owned(), Value::Object(members)))
            .collect();
        (!parts.is_empty()).then(|| json!({ "metadata": parts }))
    }
}

/// The values of the named members.
fn values<'a>(
    names: &'a BTreeMap<String, Option<String>>,
    there: Option<&'a BTreeMap<String, String>>,
) -> impl Iterator<Item = Option<&'a String>> {
    names.keys().map(move |name| there?.get(name))
}

/// The members that are not as they should be. `null` removes one in a merge patch.
fn missing(wanted: &BTreeMap<String, Option<String>>, there: Option<&BTreeMap<String, String>>) -> Map<String, Value> {
    wanted
        .iter()
        .filter(|(name, value)| there.and_then(|there| there.get(*name)) != value.as_ref())
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect()
}

impl Applier {
    /// Changes labels and annotations of an object that others manage. `object` is the object as the caller saw it last. Returns the object as it is
    /// now, or `None` if it was so and no request was needed. A change of anything else does not stop it.
    ///
    /// # Errors
    ///
    /// Returns [`ApplyError::Altered`] if admission changed the values. Returns [`ApplyError::OutOfDate`] if one of these labels and
    /// annotations has changed since the object was seen, or anything, if the applier writes [for the version
    /// seen](Self::for_the_version_seen). Else returns the refusal or the failure of the request.
    pub async fn change_metadata<K>(&self, object: &K, change: &MetadataChange) -> Result<Option<K>, ApplyError>
    where
        K: Writable + Resource<DynamicType: Default>,
    {
        self.change_metadata_with(object, change, &K::DynamicType::default()).await
    }

    /// [`change_metadata`](Self::change_metadata) for kinds that are known at run time only.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`change_metadata`](Self::change_metadata).
    pub async fn change_metadata_with<K: Writable>(
        &self,
        object: &K,
        change: &MetadataChange,
        kind: &K::DynamicType,
    ) -> Result<Option<K>, ApplyError> {
        let target = Target::of(object, kind)?;
        let metadata = object.meta();
        let Some(patch) = change.patch(metadata) else { return Ok(None) };
        let after = match self.send_metadata(&target, metadata, patch.clone(), as_seen::<K>).await? {
            Some(after) => after,
            None if self.is_exact() => return Err(target.out_of_date()),
            // Somebody else wrote since, so one look tells whether the values that the decision rests on are still there.
            None => {
                let current = self.read(&target, metadata.uid.as_deref(), as_seen::<K>).await?;
                let now: K = serde_json::from_value(current).map_err(|source| target.unreadable(source))?;
                let Some(patch) = change.patch(now.meta()) else { return Ok(Some(now)) };
                if !change.is_about_the_same(metadata, now.meta()) {
                    return Err(target.out_of_date());
                }
                self.send_metadata(&target, now.meta(), patch, as_seen::<K>)
                    .await?
                    .ok_or_else(|| target.out_of_date())?
            }
        };
        if !self.is_dry_run()
            && let Some(altered) = altered_error(&target, &after, altered_metadata(&patch, &after, self.manager()))
        {
            return Err(altered);
        }
        serde_json::from_value(after).map(Some).map_err(|source| target.unreadable(source))
    }

    /// Sends a merge patch for the version that was seen. Returns `None` if the object has another version.
    async fn send_metadata(
        &self,
        target: &Target,
        seen: &ObjectMeta,
        mut patch: Value,
        as_seen: AsSeen,
    ) -> Result<Option<Value>, ApplyError> {
        if let Some(uid) = &seen.uid {
            patch["metadata"]["uid"] = json!(uid);
        }
        // A dry run changes nothing, so it need not be for the newest version.
        let version = seen.resource_version.as_ref().filter(|_| self.is_exact() || !self.is_dry_run());
        if let Some(version) = version {
            patch["metadata"]["resourceVersion"] = json!(version);
        }
        let parameters = PatchParams {
            dry_run: self.is_dry_run(),
            field_manager: Some(self.manager().to_owned()),
            ..PatchParams::default()
        };
        let writing = self.begin(target);
        let request = target.requests().patch(target.name(), &parameters, &Patch::Merge(json!({})));
        let answer = match self.exchange(target, request, &patch, seen.uid.as_deref()).await {
            Err(ApplyError::Refused { code: 409, .. }) if version.is_some() => return Ok(None),
            answer => answer?,
        };
        let after = as_seen(&answer.body).map_err(|source| target.unreadable(source))?;
        if let Some(writing) = writing {
            writing.wrote(&after);
        }
        Ok(Some(after))
    }

    /// Creates a namespace unless it exists, and never changes one that does. Returns whether it was created.
    pub async fn ensure_namespace(&self, name: &str) -> Result<bool, ApplyError> {
        let target = Target::named::<Namespace>(&(), None, name.to_owned());
        let parameters = PostParams { dry_run: self.is_dry_run(), field_manager: Some(self.manager().to_owned()) };
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string();
        let writing = self.begin(&target);
        let request = target.requests().create(&parameters, body.into_bytes());
        let answer = send(self.client(), &target.object, request).await?;
        if answer.code == StatusCode::CONFLICT {
            return Ok(false);
        }
        let after: Value = answer.success(&target.object)?.decode(&target.object)?;
        if let Some(writing) = writing {
            writing.wrote(&after);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_has_what_was_given_and_nothing_empty() {
        let owner = OwnerReference { name: "owner".to_owned(), ..OwnerReference::default() };
        let built = Metadata::named("app")
            .labels([("a", "1"), ("a", "2")])
            .annotations(Vec::<(String, String)>::new())
            .owner(owner.clone())
            .finalizer("a/b")
            .build();
        assert_eq!(built.labels, Some(BTreeMap::from([("a".to_owned(), "2".to_owned())])));
        assert_eq!((built.annotations, built.owner_references), (None, Some(vec![owner])));
        assert_eq!(built.finalizers, Some(vec!["a/b".to_owned()]));
    }

    #[test]
    fn only_what_differs_is_sent_and_null_removes() {
        let there = Metadata::named("app").label("a", "1").label("old", "x").annotation("n", "1").build();
        let change = MetadataChange::new().label("a", "1").without_label("gone").annotation("n", "1");
        assert_eq!(change.patch(&there), None);
        let change = change.label("a", "2").without_label("old").without_annotation("n");
        assert_eq!(
            change.patch(&there),
            Some(json!({"metadata": {"labels": {"a": "2", "old": null}, "annotations": {"n": null}}}))
        );
    }
}
