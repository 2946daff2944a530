//! The key of the proofs that children carry: random, made once, and kept in a Secret beside the operator.
//!
//! All replicas share it, and so do later releases. A client that may read that Secret may make children that count as the operator's. If
//! the Secret is lost, a new one is made: wanted children get a new proof with the next write, and no other child is deleted.
//!
//! Annotations of the Secret record which kinds each controller owns; see [`inventory`](crate::inventory).

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::{core::v1::Secret, rbac::v1::PolicyRule};
use konverge_apply::{
    OwnerKey,
    stored_key::{self, DATA_KEY, StoredKeyError},
};
use konverge_core::{
    digest::{DIGEST_KEY_LENGTH, DigestKey},
    reasons,
};
use konverge_gen::Access;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::error::Error;

/// The annotations of the Secret with the kinds that a controller owns: this, and the name of the controller.
const OWNED_KINDS: &str = "owned-kinds.konverge.dev";

/// The key, once it is loaded. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct OwnerKeys(Option<Arc<Stored>>);

/// The kinds that the last leader recorded for a controller.
pub(crate) struct RecordedKinds {
    pub(crate) kinds: BTreeSet<String>,
    /// The version of the Secret in which they were read.
    version: Option<String>,
}

struct Stored {
    client: Client,
    namespace: String,
    name: String,
    may_write: bool,
    key: OnceCell<Option<OwnerKey>>,
}

impl OwnerKeys {
    /// The key of a program that runs in `namespace`. Nothing is sent before it is loaded.
    pub(crate) fn stored(client: Client, namespace: &str, program: &str, is_dry_run: bool) -> Self {
        let (namespace, name) = (namespace.to_owned(), secret_name(program));
        Self(Some(Arc::new(Stored { client, namespace, name, may_write: !is_dry_run, key: OnceCell::new() })))
    }

    /// Loads the key, and makes it if there is none. Sends nothing if it is loaded already.
    pub(crate) async fn load(&self) -> Result<(), Error> {
        let Some(stored) = &self.0 else { return Ok(()) };
        stored.key.get_or_try_init(|| stored.get_or_make()).await.map(|_key| ())
    }

    /// The kinds that a controller owns and owned, as the last leader recorded them; `None` where nothing is recorded: in a unit test, and
    /// in a dry run of a program that has never run.
    pub(crate) async fn recorded_kinds(&self, controller: &str) -> Result<Option<RecordedKinds>, Error> {
        self.load().await?;
        let Some(stored) = self.0.as_ref().filter(|_| self.get().is_some()) else { return Ok(None) };
        let secret = stored.api().get_metadata(&stored.name).await.map_err(|error| stored.failed(error))?;
        let recorded = secret.metadata.annotations.unwrap_or_default().remove(&annotation(controller));
        let kinds = recorded.as_deref().unwrap_or_default().split(',').filter(|kind| !kind.is_empty());
        let kinds = kinds.map(ToOwned::to_owned).collect();
        Ok(Some(RecordedKinds { kinds, version: secret.metadata.resource_version }))
    }

    /// Records the kinds that a controller owns and owned. A dry run records nothing. False if the record has changed since `seen`, so that
    /// a leader that was held up does not undo the record of its successor. The records of other controllers in the same Secret may change
    /// meanwhile: then the Secret is read and written again.
    pub(crate) async fn record_kinds(
        &self,
        controller: &str,
        mut seen: RecordedKinds,
        kinds: &BTreeSet<String>,
    ) -> Result<bool, Error> {
        let Some(stored) = self.0.as_ref().filter(|stored| stored.may_write) else { return Ok(true) };
        let annotations =
            json!({annotation(controller): kinds.iter().map(String::as_str).collect::<Vec<_>>().join(",")});
        loop {
            let patch = json!({"metadata": {"resourceVersion": seen.version, "annotations": annotations}});
            match stored.api().patch_metadata(&stored.name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(_) => return Ok(true),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(stored.not_recorded(controller, error)),
            }
            match self.recorded_kinds(controller).await? {
                Some(now) if now.kinds == seen.kinds => seen = now,
                _ => return Ok(false),
            }
        }
    }

    /// The key, if it is loaded. Without one, owners are known by their labels alone: in a unit test, and in a dry run of a program that
    /// has never run.
    pub(crate) fn get(&self) -> Option<&OwnerKey> {
        self.0.as_ref()?.key.get()?.as_ref()
    }
}

impl Stored {
    fn api(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn get_or_make(&self) -> Result<Option<OwnerKey>, Error> {
        let made = self.may_write.then(|| rand::random::<[u8; DIGEST_KEY_LENGTH]>().into());
        match stored_key::get_or_create(&self.api(), &self.name, made).await {
            Ok(key) => Ok(key.map(|key| OwnerKey::new(DigestKey::new(*key)))),
            Err(StoredKeyError::Request(error)) => Err(self.failed(*error)),
            Err(_) => Err(Error::transient(
                reasons::OWNER_KEY_UNAVAILABLE,
                format!(
                    "Secret {}/{} holds no key of {DIGEST_KEY_LENGTH} bytes under {DATA_KEY:?}; delete it to have a new one made",
                    self.namespace, self.name
                ),
            )),
        }
    }

    fn failed(&self, error: kube::Error) -> Error {
        let message = format!(
            "cannot read Secret {}/{}, whose key proves which children are the operator's; let the operator's role get and create it, as \
             the generated role does",
            self.namespace, self.name
        );
        Error::transient(reasons::OWNER_KEY_UNAVAILABLE, message).caused_by(error)
    }

    fn not_recorded(&self, controller: &str, error: kube::Error) -> Error {
        let message = format!(
            "cannot record in Secret {}/{} which kinds the controller {controller} owns, so a later release cannot delete the children of \
             kinds that it drops; let the operator's role patch the Secret, as the generated role does",
            self.namespace, self.name
        );
        Error::transient(reasons::OWNER_KEY_UNAVAILABLE, message).caused_by(error)
    }
}

/// The annotation of a controller. Names of controllers may have letters that those of annotations may not.
fn annotation(controller: &str) -> String {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let name: String =
        controller.chars().map(|letter| if is_allowed(letter) { letter } else { '-' }).take(63).collect();
    format!("{OWNED_KINDS}/{}", name.trim_matches(|letter: char| !letter.is_ascii_alphanumeric()))
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
        verbs: vec!["get".to_owned(), "patch".to_owned()],
        ..PolicyRule::default()
    };
    // Every controller with children declares it.
    if !at_home.rules().contains(&rule) {
        at_home.to_resource("", "secrets", &["create"]).rules_of([rule]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_controller_has_an_annotation_that_kubernetes_allows() {
        for (controller, expected) in
            [("sites", "sites"), ("my sites/", "my-sites"), ("-a_b.c", "a_b.c"), (&*"x".repeat(80), &*"x".repeat(63))]
        {
            assert_eq!(annotation(controller), format!("owned-kinds.konverge.dev/{expected}"));
        }
    }
}
