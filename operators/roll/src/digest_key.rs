//! The key of digests: random, made once, and kept in a Secret beside the operator.
//!
//! Whoever may read that Secret may guess at short values from what stands on workloads, and so may whoever may read the values. If it is
//! lost, what stands on workloads is not comparable any more: all is noted anew and nothing is rolled.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use konverge_core::{backoff::Backoff, digest::DIGEST_KEY_LENGTH, error::in_one_line};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::digest::Digester;

/// The key in the Secret.
const DATA_KEY: &str = "key";

/// Between two attempts to get it.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), factor: 2.0, cap: Duration::from_secs(30) };

/// The key, or a place where it will be.
#[derive(Clone)]
pub struct Key(watch::Sender<Option<Arc<Digester>>>);

/// The key cannot be had.
#[derive(Debug, thiserror::Error)]
enum KeyError {
    #[error(
        "cannot read the secret {name} with the key of digests; allow the service account to get and create it: {source}"
    )]
    Request { name: String, source: Box<kube::Error> },
    #[error(
        "the secret {name} holds no key of digests: {DATA_KEY} has to be {DIGEST_KEY_LENGTH} bytes; delete the secret to have one made. Then \
         the content of all workloads is noted anew, and nothing is rolled"
    )]
    Unusable { name: String },
}

impl Default for Key {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Key {
    /// What makes digests, as soon as the key is there. Cancel safe.
    pub async fn digester(&self) -> Arc<Digester> {
        let mut key = self.0.subscribe();
        loop {
            if let Some(digester) = &*key.borrow_and_update() {
                return Arc::clone(digester);
            }
            // The sender lives as long as `self`.
            let _ = key.changed().await;
        }
    }

    /// Whether it is there; for a check.
    pub fn check(&self) -> Result<(), String> {
        self.0.borrow().as_ref().map(|_| ()).ok_or_else(|| "the key of digests is not there yet".to_owned())
    }

    /// Gets it from a Secret of the client's own namespace, and makes that if there is none, for as long as it takes.
    pub async fn load(self, client: Client, name: String) {
        let mut attempt = 0;
        loop {
            match get_or_make(&client, &name).await {
                Ok(key) => {
                    self.0.send_replace(Some(Arc::new(Digester::new(*key))));
                    return;
                }
                Err(error) => {
                    attempt += 1;
                    tracing::warn!("{}", in_one_line(&error));
                    tokio::time::sleep(BACKOFF.delay(attempt, rand::random())).await;
                }
            }
        }
    }
}

async fn get_or_make(client: &Client, name: &str) -> Result<Zeroizing<[u8; DIGEST_KEY_LENGTH]>, KeyError> {
    let failed = |source| KeyError::Request { name: name.to_owned(), source: Box::new(source) };
    let api = Api::<Secret>::default_namespaced(client.clone());
    let found = match api.get_opt(name).await.map_err(failed)? {
        Some(found) => found,
        None => match api.create(&PostParams::default(), &new_secret(name)).await {
            Ok(made) => made,
            // Another replica was quicker.
            Err(kube::Error::Api(status)) if status.code == 409 => api.get(name).await.map_err(failed)?,
            Err(error) => return Err(failed(error)),
        },
    };
    key_of(found).ok_or_else(|| KeyError::Unusable { name: name.to_owned() })
}

/// The key that a Secret holds, if it is one.
pub(crate) fn key_of(secret: Secret) -> Option<Zeroizing<[u8; DIGEST_KEY_LENGTH]>> {
    let key = secret.data.and_then(|mut data| data.remove(DATA_KEY)).map(|bytes| Zeroizing::new(bytes.0))?;
    <[u8; DIGEST_KEY_LENGTH]>::try_from(key.as_slice()).ok().map(Zeroizing::new)
}

fn new_secret(name: &str) -> Secret {
    let key: [u8; DIGEST_KEY_LENGTH] = rand::random();
    Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([(DATA_KEY.to_owned(), ByteString(key.to_vec()))])),
        // Another key would make all digests incomparable.
        immutable: Some(true),
        ..Secret::default()
    }
}
