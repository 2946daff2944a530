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

/// How often a write is tried if others keep changing their labels or keys of the `ConfigMap` meanwhile.
const ATTEMPTS: usize = 3;

/// Remembers in a `ConfigMap`; the key of the fingerprints is in a Secret of the same name, which is made once.
///
/// Needs `get` and `patch` on the `ConfigMap`, `create` on `ConfigMaps`, `get` on the Secret and `create` on Secrets.
/// Written by server-side apply under a field manager of its own, and only when the entries changed.
///
/// Several replicas may have it: each write names the version that was read, so a replica that has lost its lease cannot overwrite
/// the entries of the next leader. Its write fails with [`MemoryError::Changed`], and the entries are loaded again. Only the leader
/// should watch all the same, as `Controller::watches_outside` of the crate `konverge` does: entries that a standby writes say that a
/// change was handled, although no controller has seen it.
pub struct ConfigMapMemory {
    config_maps: Api<ConfigMap>,
    secrets: Api<Secret>,
    place: String,
    name: String,
    field_manager: String,
    saved: Option<Entries>,
    /// The version of the `ConfigMap` that `saved` is of; nothing if there is none.
    version: Option<String>,
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
            version: None,
        }
    }

    /// Writes under another field manager than `konverge-external`.
    #[must_use]
    pub fn field_manager(mut self, name: impl Into<String>) -> Self {
        self.field_manager = name.into();
        self
    }

    /// The entries that are there, and the version of the object.
    async fn load_entries(&self) -> Result<(Option<Entries>, Option<String>), MemoryError> {
        let place = format!("ConfigMap {}", self.place);
        let found = self.config_maps.get_opt(&self.name).await;
        let Some(found) = found.map_err(|source| api_error("read", &place, source))? else { return Ok((None, None)) };
        let version = found.metadata.resource_version;
        let Some(text) = found.data.and_then(|mut data| data.remove(ENTRIES_KEY)) else { return Ok((None, version)) };
        let entries = serde_json::from_str(&text);
        let entries = entries.map_err(|error| MemoryError::Unreadable { place, why: error.to_string() })?;
        Ok((Some(entries), version))
    }

    /// Writes, unless the object is another than that of the version that was read.
    async fn write(&self, text: &str) -> Result<ConfigMap, kube::Error> {
        let data = json!({ ENTRIES_KEY: text });
        let Some(version) = &self.version else {
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            let data = Some([(ENTRIES_KEY.to_owned(), text.to_owned())].into());
            let parameters = PostParams { field_manager: Some(self.field_manager.clone()), ..PostParams::default() };
            return self.config_maps.create(&parameters, &ConfigMap { metadata, data, ..ConfigMap::default() }).await;
        };
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": self.name, "resourceVersion": version },
            "data": data,
        });
        let parameters = PatchParams::apply(&self.field_manager).force();
        self.config_maps.patch(&self.name, &parameters, &Patch::Apply(&object)).await
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
            (self.saved, self.version) = self.load_entries().await?;
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
            for _ in 0..ATTEMPTS {
                match self.write(&text).await {
                    Ok(written) => {
                        (self.saved, self.version) = (Some(entries.clone()), written.metadata.resource_version);
                        return Ok(());
                    }
                    // It has changed: in its entries, or only in what others have in it, or it is gone.
                    Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
                    Err(source) => return Err(api_error("write", &place, source)),
                }
                let (found, version) = self.load_entries().await?;
                if found.is_some() && found != self.saved {
                    return Err(MemoryError::Changed { place });
                }
                self.version = version;
            }
            Err(MemoryError::Changed { place })
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
