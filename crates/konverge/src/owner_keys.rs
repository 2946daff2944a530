//! The key of the proofs that children carry: random, made once, and kept in a Secret beside the operator.
//!
//! All replicas share it, and so do later releases. A client that may read that Secret may make children that count as the operator's. If
//! the Secret is lost, a new one is made: wanted children get a new proof with the next write, and no other child is deleted.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    ByteString,
    api::{core::v1::Secret, rbac::v1::PolicyRule},
};
use konverge_apply::OwnerKey;
use konverge_core::{
    SecretValue,
    digest::{DIGEST_KEY_LENGTH, DigestKey},
    reasons,
};
use konverge_gen::Access;
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::sync::OnceCell;

use crate::error::Error;

/// The key in the Secret.
const DATA_KEY: &str = "key";

/// The key, once it is loaded. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct OwnerKeys(Option<Arc<Stored>>);

struct Stored {
    client: Client,
    namespace: String,
    name: String,
    may_create: bool,
    key: OnceCell<Option<OwnerKey>>,
}

impl OwnerKeys {
    /// The key of a program that runs in `namespace`. Nothing is sent before it is loaded.
    pub(crate) fn stored(client: Client, namespace: &str, program: &str, is_dry_run: bool) -> Self {
        let (namespace, name) = (namespace.to_owned(), secret_name(program));
        Self(Some(Arc::new(Stored { client, namespace, name, may_create: !is_dry_run, key: OnceCell::new() })))
    }

    /// Loads the key, and makes it if there is none. Sends nothing if it is loaded already.
    pub(crate) async fn load(&self) -> Result<(), Error> {
        let Some(stored) = &self.0 else { return Ok(()) };
        stored.key.get_or_try_init(|| stored.get_or_make()).await.map(|_key| ())
    }

    /// The key, if it is loaded. Without one, owners are known by their labels alone: in a unit test, and in a dry run of a program that
    /// has never run.
    pub(crate) fn get(&self) -> Option<&OwnerKey> {
        self.0.as_ref()?.key.get()?.as_ref()
    }
}

impl Stored {
    async fn get_or_make(&self) -> Result<Option<OwnerKey>, Error> {
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let found = match api.get_opt(&self.name).await.map_err(|error| self.failed(error))? {
            Some(found) => found,
            None if !self.may_create => return Ok(None),
            None => match api.create(&PostParams::default(), &new_secret(&self.name)).await {
                Ok(made) => made,
                // Another replica was quicker.
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    api.get(&self.name).await.map_err(|error| self.failed(error))?
                }
                Err(error) => return Err(self.failed(error)),
            },
        };
        let key = found.data.and_then(|mut data| data.remove(DATA_KEY)).map(|bytes| SecretValue::new(bytes.0));
        let key = key.and_then(|key| <[u8; DIGEST_KEY_LENGTH]>::try_from(key.expose()).ok());
        let key = key.ok_or_else(|| {
            Error::transient(
                reasons::OWNER_KEY_UNAVAILABLE,
                format!(
                    "Secret {}/{} holds no key of {DIGEST_KEY_LENGTH} bytes under {DATA_KEY:?}; delete it to have a new one made",
                    self.namespace, self.name
                ),
            )
        })?;
        Ok(Some(OwnerKey::new(DigestKey::new(key))))
    }

    fn failed(&self, error: kube::Error) -> Error {
        let message = format!(
            "cannot read Secret {}/{}, whose key proves which children are the operator's; let the operator's role get and create it, as \
             the generated role does",
            self.namespace, self.name
        );
        Error::transient(reasons::OWNER_KEY_UNAVAILABLE, message).caused_by(error)
    }
}

fn secret_name(program: &str) -> String {
    format!("{program}-owner-key")
}

/// Declares the access that loading the key needs in the operator's own namespace. The creation of a Secret cannot be limited to a name.
pub(crate) fn declare(program: &str, at_home: &mut Access) {
    let rule = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["secrets".to_owned()]),
        resource_names: Some(vec![secret_name(program)]),
        verbs: vec!["get".to_owned()],
        ..PolicyRule::default()
    };
    // Every controller with children declares it.
    if !at_home.rules().contains(&rule) {
        at_home.to_resource("", "secrets", &["create"]).rules_of([rule]);
    }
}

fn new_secret(name: &str) -> Secret {
    let key: [u8; DIGEST_KEY_LENGTH] = rand::random();
    Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([(DATA_KEY.to_owned(), ByteString(key.to_vec()))])),
        // With another key, nothing would prove which children there are.
        immutable: Some(true),
        ..Secret::default()
    }
}
