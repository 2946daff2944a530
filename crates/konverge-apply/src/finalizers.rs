//! Finalizers: adding and removing our own entry, and nobody else's.

use std::collections::BTreeMap;

use http::StatusCode;
use konverge_core::names::{is_domain, is_name_segment};
use kube::{
    Resource,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    applier::{Applier, as_seen},
    call::send,
    error::ApplyError,
    object::{Target, Writable},
    object_name::ObjectName,
    write_observer::Writing,
};

impl Applier {
    /// Adds the finalizer, so that the object stays until [`remove_finalizer`](Self::remove_finalizer). `object` is the object as the caller
    /// saw it last. Returns the object as it is now, or `None` if it had the finalizer and no request was needed.
    ///
    /// # Errors
    ///
    /// Returns [`ApplyError::OutOfDate`] if another client has changed the finalizers since, [`ApplyError::Terminating`] if the object is
    /// being deleted without the finalizer, and else the refusal or the failure of the request.
    pub async fn add_finalizer<K>(&self, object: &K, finalizer: &str) -> Result<Option<K>, ApplyError>
    where
        K: Writable + Resource<DynamicType: Default>,
    {
        self.add_finalizer_with(object, finalizer, &K::DynamicType::default()).await
    }

    /// [`add_finalizer`](Self::add_finalizer) for kinds that are known at run time only.
    pub async fn add_finalizer_with<K: Writable>(
        &self,
        object: &K,
        finalizer: &str,
        kind: &K::DynamicType,
    ) -> Result<Option<K>, ApplyError> {
        let target = Target::of(object, kind)?;
        check(finalizer, &target.object)?;
        let metadata = object.meta();
        let Some(patch) = addition(metadata.finalizers.as_deref(), finalizer) else { return Ok(None) };
        if metadata.deletion_timestamp.is_some() {
            return Err(ApplyError::Terminating { object: Box::new(target.object) });
        }
        self.patch_finalizers(&target, metadata.uid.as_deref(), patch).await
    }

    /// [`add_finalizer_with`](Self::add_finalizer_with) that also sets an annotation, in the same request: either both are there afterwards or
    /// neither. Sends nothing if the object has both.
    pub async fn add_finalizer_and_annotation_with<K: Writable>(
        &self,
        object: &K,
        finalizer: &str,
        (name, value): (&str, &str),
        kind: &K::DynamicType,
    ) -> Result<Option<K>, ApplyError> {
        let target = Target::of(object, kind)?;
        check(finalizer, &target.object)?;
        let metadata = object.meta();
        let added = addition(metadata.finalizers.as_deref(), finalizer);
        if added.is_some() && metadata.deletion_timestamp.is_some() {
            return Err(ApplyError::Terminating { object: Box::new(target.object) });
        }
        let annotated = annotation(metadata.annotations.as_ref(), name, value);
        let patch: Vec<_> = added.into_iter().chain(annotated).flatten().collect();
        if patch.is_empty() {
            return Ok(None);
        }
        self.patch_finalizers(&target, metadata.uid.as_deref(), patch).await
    }

    /// Removes the finalizer and leaves those of others. `object` is the object as the caller saw it last. Returns the object without the
    /// finalizer, also if it went with it, or `None` if the object did not have the finalizer or is gone.
    ///
    /// # Errors
    ///
    /// Returns [`ApplyError::OutOfDate`] if another client has changed the finalizers since, and else the refusal or the failure of the request.
    pub async fn remove_finalizer<K>(&self, object: &K, finalizer: &str) -> Result<Option<K>, ApplyError>
    where
        K: Writable + Resource<DynamicType: Default>,
    {
        self.remove_finalizer_with(object, finalizer, &K::DynamicType::default()).await
    }

    /// [`remove_finalizer`](Self::remove_finalizer) for kinds that are known at run time only.
    pub async fn remove_finalizer_with<K: Writable>(
        &self,
        object: &K,
        finalizer: &str,
        kind: &K::DynamicType,
    ) -> Result<Option<K>, ApplyError> {
        let target = Target::of(object, kind)?;
        let metadata = object.meta();
        let Some(patch) = removal(metadata.finalizers.as_deref(), finalizer) else { return Ok(None) };
        match self.patch_finalizers(&target, metadata.uid.as_deref(), patch).await {
            // The finalizer was removed, so the object is gone.
            Err(ApplyError::Gone { .. }) => Ok(None),
            patched => patched,
        }
    }

    async fn patch_finalizers<K: Writable>(
        &self,
        target: &Target,
        uid: Option<&str>,
        mut patch: Vec<Value>,
    ) -> Result<Option<K>, ApplyError> {
        if let Some(uid) = uid {
            patch.insert(0, json!({"op": "test", "path": "/metadata/uid", "value": uid}));
        }
        let patch = serde_json::from_value(json!(patch)).map_err(|source| ApplyError::Encode {
            kind: target.object.kind.clone(),
            name: target.object.name.clone(),
            source,
        })?;
        let parameters = PatchParams {
            dry_run: self.is_dry_run(),
            field_manager: Some(self.manager().to_owned()),
            ..PatchParams::default()
        };
        let writing = self.begin(target);
        let request = target.requests().patch(target.name(), &parameters, &Patch::<()>::Json(patch));
        let answer = send(self.client(), &target.object, target.asking(request)).await?;
        match answer.code {
            // Somebody else deleted it, which the watch is to show.
            StatusCode::NOT_FOUND => Err(target.gone()),
            // Of all that the API server could find wrong with such a patch, only a failed test is left.
            StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY => Err(target.out_of_date()),
            _ => {
                let after =
                    as_seen::<K>(&answer.success(&target.object)?.body).map_err(|source| target.unreadable(source))?;
                if let Some(writing) = writing {
                    report_write(writing, &after, uid);
                }
                serde_json::from_value(after).map(Some).map_err(|source| target.unreadable(source))
            }
        }
    }
}

/// Tells the write observer of the write. An object that only the finalizer kept is gone when the answer comes, which shows its last state.
fn report_write(writing: Box<dyn Writing>, after: &Value, uid: Option<&str>) {
    let metadata = |field: &str| after.get("metadata").and_then(|metadata| metadata.get(field));
    let is_kept = metadata("finalizers").and_then(Value::as_array).is_some_and(|finalizers| !finalizers.is_empty())
        || metadata("deletionGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|grace| grace > 0);
    if metadata("deletionTimestamp").is_some() && !is_kept {
        writing.deleted(uid);
    } else {
        writing.wrote(after);
    }
}

/// Returns the operations that add an entry, or `None` if it is there.
fn addition(finalizers: Option<&[String]>, finalizer: &str) -> Option<Vec<Value>> {
    let known = finalizers.unwrap_or_default();
    if known.iter().any(|known| known == finalizer) {
        return None;
    }
    Some(if known.is_empty() {
        vec![
            json!({"op": "test", "path": "/metadata/finalizers", "value": null}),
            json!({"op": "add", "path": "/metadata/finalizers", "value": [finalizer]}),
        ]
    } else {
        // The whole list is compared, or our entry could get into it twice.
        vec![
            json!({"op": "test", "path": "/metadata/finalizers", "value": known}),
            json!({"op": "add", "path": "/metadata/finalizers/-", "value": finalizer}),
        ]
    })
}

/// Returns the operations that set an annotation if its value is as it was seen, or `None` if it is so.
fn annotation(annotations: Option<&BTreeMap<String, String>>, name: &str, value: &str) -> Option<Vec<Value>> {
    let known = annotations.and_then(|annotations| annotations.get(name));
    if known.is_some_and(|known| known == value) {
        return None;
    }
    Some(if annotations.is_none_or(BTreeMap::is_empty) {
        vec![
            json!({"op": "test", "path": "/metadata/annotations", "value": null}),
            json!({"op": "add", "path": "/metadata/annotations", "value": {name: value}}),
        ]
    } else {
        // An annotation of somebody else may have gone meanwhile, which matters to nobody here.
        let path = format!("/metadata/annotations/{}", name.replace('~', "~0").replace('/', "~1"));
        vec![json!({"op": "test", "path": path, "value": known}), json!({"op": "add", "path": path, "value": value})]
    })
}

/// Returns the operations that remove an entry, or `None` if it is not there.
fn removal(finalizers: Option<&[String]>, finalizer: &str) -> Option<Vec<Value>> {
    let position = finalizers.unwrap_or_default().iter().position(|known| known == finalizer)?;
    let path = format!("/metadata/finalizers/{position}");
    Some(vec![json!({"op": "test", "path": path, "value": finalizer}), json!({"op": "remove", "path": path})])
}

/// A prefix that is a domain, and a word. Anything else the API server refuses, and could not be told from a failed test.
fn check(finalizer: &str, object: &ObjectName) -> Result<(), ApplyError> {
    match finalizer.split_once('/') {
        Some((domain, word)) if is_domain(domain) && is_name_segment(word) => Ok(()),
        _ => Err(ApplyError::InvalidFinalizer { object: Box::new(object.clone()), finalizer: finalizer.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(finalizers: &[&str]) -> Vec<String> {
        finalizers.iter().map(|finalizer| (*finalizer).to_owned()).collect()
    }

    #[test]
    fn nothing_is_sent_when_there_is_nothing_to_do() {
        assert_eq!(addition(Some(&list(&["a/b", "c/d"])), "c/d"), None);
        assert_eq!(removal(Some(&list(&["a/b"])), "c/d"), None);
        assert_eq!(removal(None, "c/d"), None);
    }

    #[test]
    fn every_patch_tests_what_it_stands_on() {
        for (known, expected) in
            [(None, Value::Null), (Some(vec![]), Value::Null), (Some(list(&["a/b"])), json!(["a/b"]))]
        {
            let patch = addition(known.as_deref(), "c/d").expect("a patch");
            assert_eq!(patch[0], json!({"op": "test", "path": "/metadata/finalizers", "value": expected}));
        }
        assert_eq!(
            removal(Some(&list(&["a/b", "c/d"])), "c/d").expect("a patch"),
            [
                json!({"op": "test", "path": "/metadata/finalizers/1", "value": "c/d"}),
                json!({"op": "remove", "path": "/metadata/finalizers/1"}),
            ]
        );
    }

    #[test]
    fn an_annotation_is_set_beside_others_and_only_if_it_differs() {
        let known = |entries: &[(&str, &str)]| {
            entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(annotation(Some(&known(&[("a/b", "1")])), "a/b", "1"), None);
        for others in [None, Some(known(&[]))] {
            let patch = annotation(others.as_ref(), "a/b", "1").expect("a patch");
            assert_eq!(patch[0], json!({"op": "test", "path": "/metadata/annotations", "value": null}));
            assert_eq!(patch[1], json!({"op": "add", "path": "/metadata/annotations", "value": {"a/b": "1"}}));
        }
        for (seen, before) in [(known(&[("c", "2")]), json!(null)), (known(&[("a/b", "0")]), json!("0"))] {
            let path = "/metadata/annotations/a~1b";
            assert_eq!(
                annotation(Some(&seen), "a/b", "1").expect("a patch"),
                [
                    json!({"op": "test", "path": path, "value": before}),
                    json!({"op": "add", "path": path, "value": "1"})
                ]
            );
        }
    }

    #[test]
    fn names_have_a_domain_and_a_word() {
        let object = ObjectName { kind: "A".to_owned(), namespace: None, name: "b".to_owned() };
        for good in ["example.com/cleanup", "a/b", "konverge.dev/Clean_up.1"] {
            assert!(check(good, &object).is_ok(), "{good}");
        }
        for bad in ["", "cleanup", "/cleanup", "example.com/", "Example.com/a", "a..b/c", "a/b/c", "a/-b", "a b/c"] {
            assert!(check(bad, &object).is_err(), "{bad}");
        }
    }
}
