//! Taking the finalizer off every object, and what is noted of others, for an uninstall. Vault stays as it is.

use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    core::{DynamicObject, PartialObjectMeta},
};

use crate::{
    annotations::{FINALIZER, STATUS},
    journal::{self, JournalError},
    ledger::{Ledger, LedgerError},
    object::{Kind, ObjectRef},
};

/// Objects in one answer.
const PAGE: u32 = 500;

/// An uninstall that is not complete. What was released stays released; it can be repeated.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// The objects of a kind are not known.
    #[error("cannot list {kind}: {source}; nothing of that kind was released")]
    List {
        /// The kind.
        kind: &'static str,
        /// What the client said.
        source: Box<kube::Error>,
    },
    /// An object keeps its finalizer.
    #[error("{object} keeps its finalizer: {source}; run it again")]
    Release {
        /// The object.
        object: ObjectRef,
        /// What went wrong.
        source: LedgerError,
    },
    /// What is noted of objects that bear no record stays.
    #[error("{0}; run it again")]
    Journal(#[from] JournalError),
}

/// Releases all objects of the kinds. The operator has to be stopped before, or it would put the finalizers back.
pub(crate) async fn drain(client: &Client, namespace: Option<&str>, kinds: &[Kind]) -> Result<(), DrainError> {
    let ledger = Ledger::new(client.clone());
    for &kind in kinds {
        let resource = kind.resource();
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let mut released = 0;
        let found = match ours(&api, kind).await {
            // What the cluster does not know has no objects.
            Err(DrainError::List { source, .. }) if is_unknown(&source) => Vec::new(),
            found => found?,
        };
        for object in found {
            let key = ObjectRef { kind, namespace: object.namespace().unwrap_or_default(), name: object.name_any() };
            let uid = object.uid().unwrap_or_default();
            ledger.erase(&key, &uid).await.map_err(|source| DrainError::Release { object: key, source })?;
            released += 1;
        }
        tracing::info!(kind = kind.plural(), released, "released");
    }
    Ok(journal::erase(client).await?)
}

fn is_unknown(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// The objects that carry the finalizer or the record, page by page.
async fn ours(api: &Api<DynamicObject>, kind: Kind) -> Result<Vec<PartialObjectMeta<DynamicObject>>, DrainError> {
    let mut found = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let listed = api.list_metadata(&page).await;
        let listed = listed.map_err(|source| DrainError::List { kind: kind.plural(), source: Box::new(source) })?;
        found.extend(listed.items.into_iter().filter(|object| {
            object.finalizers().iter().any(|known| known == FINALIZER) || object.annotations().contains_key(STATUS)
        }));
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(found),
        }
    }
}
