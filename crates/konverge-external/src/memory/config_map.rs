//! Remembering in the cluster.

use futures::future::BoxFuture;
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{Entries, Memory, MemoryError, Remembered};
use crate::FingerprintKey;

/// Where the entries are in the `ConfigMap`, and the key in the Secret.
const ENTRIES_KEY: &str = "remembered.json";
const KEY_KEY: &str = "fingerprint-key";

/// The API server refuses a `ConfigMap` of more than 1 MiB; the rest is for names and metadata.
const LIMIT: usize = 1_000_000;

/// Remembers in a `ConfigMap`; the key of the fingerprints is in a Secret of the same name, which is made once.
///
/// Needs `get` and `patch` on the `ConfigMap`, `create` on `ConfigMaps`, `get` on the Secret and `create` on Secrets.
/// Written by server-side apply under a field manager of its own, and only when the entries changed. If several
/// replicas of an operator watch, only the one whose changes lead to work may have this memory.
pub struct ConfigMapMemory {
    config_maps: Api<ConfigMap>,
    secrets: Api<Secret>,
    place: String,
    name: String,
    field_manager: String,
    saved: Option<Entries>,
}

impl ConfigMapMemory {
    /// The objects need not exist, the namespace must.
    pub fn new(client: Client, namespace: &str, name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            config_maps: Api::namespaced(client.clone(), namespace),
            secrets: Api::namespaced(client, namespace),
            place: format!("{namespace}/{name}"),
            field_manager: "konverge-external".to_owned(),
            name,
            saved: None,
        }
    }

    /// Writes under another field manager than `konverge-external`.
    #[must_use]
    pub fn field_manager(mut self, name: impl Into<String>) -> Self {
        self.field_manager = name.into();
        self
    }

    async fn load_entries(&self) -> Result<Option<Entries>, MemoryError> {
        let place = format!("ConfigMap {}", self.place);
        let found = self.config_maps.get_opt(&self.name).await;
        let found = found.map_err(|source| api_error("read", &place, source))?;
        let Some(text) = found.and_then(|found| found.data).and_then(|mut data| data.remove(ENTRIES_KEY)) else {
            return Ok(None);
        };
        let entries = serde_json::from_str(&text);
        entries.map(Some).map_err(|error| MemoryError::Unreadable { place, why: error.to_string() })
    }

    async fn load_key(&self) -> Result<FingerprintKey, MemoryError> {
        let place = format!("Secret {}", self.place);
        loop {
            let found = self.secrets.get_opt(&self.name).await.map_err(|source| api_error("read", &place, source))?;
            if let Some(secret) = found {
                let bytes = secret.data.as_ref().and_then(|data| data.get(KEY_KEY));
                let key = bytes.and_then(|bytes| FingerprintKey::from_slice(&bytes.0));
                let why = format!("it has no 32 bytes under {KEY_KEY}");
                return key.ok_or(MemoryError::Unreadable { place, why });
            }
            let key = FingerprintKey::random()?;
            let secret = Secret {
                metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                data: Some([(KEY_KEY.to_owned(), ByteString(key.expose().to_vec()))].into()),
                ..Secret::default()
            };
            let parameters = PostParams { field_manager: Some(self.field_manager.clone()), ..PostParams::default() };
            match self.secrets.create(&parameters, &secret).await {
                Ok(_) => return Ok(key),
                // Another one made it between the two requests; it is read now.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(source) => return Err(api_error("create", &place, source)),
            }
        }
    }
}

impl Memory for ConfigMapMemory {
    fn load(&mut self) -> BoxFuture<'_, Result<Remembered, MemoryError>> {
        Box::pin(async {
            let key = self.load_key().await?;
            self.saved = self.load_entries().await?;
            Ok(Remembered { key, entries: self.saved.clone().unwrap_or_default() })
        })
    }

    fn save<'a>(&'a mut self, entries: &'a Entries) -> BoxFuture<'a, Result<(), MemoryError>> {
        Box::pin(async move {
            if self.saved.as_ref() == Some(entries) {
                return Ok(());
            }
            let place = format!("ConfigMap {}", self.place);
            let text = encode(&place, entries, LIMIT)?;
            let object = json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": { "name": self.name },
                "data": { ENTRIES_KEY: text },
            });
            let parameters = PatchParams::apply(&self.field_manager).force();
            let written = self.config_maps.patch(&self.name, &parameters, &Patch::Apply(&object)).await;
            written.map_err(|source| api_error("write", &place, source))?;
            self.saved = Some(entries.clone());
            Ok(())
        })
    }
}

fn api_error(act: &'static str, place: &str, source: kube::Error) -> MemoryError {
    MemoryError::Api { act, place: place.to_owned(), source: Box::new(source) }
}

fn encode(place: &str, entries: &Entries, limit: usize) -> Result<String, MemoryError> {
    let text = serde_json::to_string(entries)
        .map_err(|error| MemoryError::Unreadable { place: place.to_owned(), why: error.to_string() })?;
    if text.len() > limit {
        return Err(MemoryError::TooLarge { place: place.to_owned(), entries: entries.len(), size: text.len(), limit });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_is_refused_with_the_figures() {
        let entries = Entries::from([("abc".to_owned(), "def".to_owned())]);
        assert_eq!(encode("ConfigMap a/b", &entries, 13).unwrap(), r#"{"abc":"def"}"#);
        let error = encode("ConfigMap a/b", &entries, 12).unwrap_err().to_string();
        assert!(error.contains("1 entries make 13 bytes") && error.contains("12 that ConfigMap a/b"), "{error}");
    }
}
