//! The key of digests: random, made once, and kept in a Secret beside the operator.
//!
//! A client that may read that Secret can guess short values from the annotations of workloads. If it is
//! lost, what stands on workloads is not comparable any more: all is noted anew and nothing is rolled.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use konverge_apply::stored_key::{self, DATA_KEY, StoredKey, StoredKeyError};
use konverge_core::{backoff::Backoff, digest::DIGEST_KEY_LENGTH, error::in_one_line};
use kube::{Api, Client};
use tokio::sync::watch;

use crate::digest::Digester;

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
    /// Returns the digester, as soon as the key is loaded. Cancel safe.
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

async fn get_or_make(client: &Client, name: &str) -> Result<StoredKey, KeyError> {
    let unusable = || KeyError::Unusable { name: name.to_owned() };
    let api = Api::<Secret>::default_namespaced(client.clone());
    let made = rand::random::<[u8; DIGEST_KEY_LENGTH]>().into();
    match stored_key::get_or_create(&api, name, Some(made)).await {
        Ok(key) => key.ok_or_else(unusable),
        Err(StoredKeyError::Request(source)) => Err(KeyError::Request { name: name.to_owned(), source }),
        Err(_) => Err(unusable()),
    }
}
