//! Events of objects that are not what their kind says.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::ObjectReference;
use konverge_apply::events::Notice;
use konverge_core::reasons;
use konverge_runtime::{
    object::{Object, ObjectKey},
    watch::Undecodable,
};
use kube::runtime::events::EventType;

/// The reports so far about objects that cannot be decoded.
#[derive(Default)]
pub(super) struct UndecodableReports(Mutex<HashMap<ObjectKey, String>>);

impl UndecodableReports {
    /// Returns the report about an object that cannot be decoded, or `None` if it was made already.
    pub(super) fn notice<K: Object>(
        &self,
        kind: &K::DynamicType,
        key: &ObjectKey,
        undecodable: &Undecodable,
    ) -> Option<Notice> {
        let Undecodable { metadata, error, .. } = undecodable;
        self.is_news(key, error).then(|| {
            let regarding = ObjectReference {
                api_version: Some(K::api_version(kind).into_owned()),
                kind: Some(K::kind(kind).into_owned()),
                namespace: metadata.namespace.clone(),
                name: metadata.name.clone(),
                uid: metadata.uid.clone(),
                ..ObjectReference::default()
            };
            let note = format!("left alone until it is mended: {error}");
            Notice { regarding, kind: EventType::Warning, reason: reasons::NOT_UNDERSTOOD, action: "Decode", note }
        })
    }

    fn is_news(&self, key: &ObjectKey, error: &str) -> bool {
        self.lock().insert(key.clone(), error.to_owned()).is_none_or(|told| told != error)
    }

    pub(super) fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
