//! Taking the finalizer off every object, and what is noted of others, for an uninstall. Vault stays as it is.

use konverge_apply::read::pick;
use konverge_core::error::in_one_line;
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

/// An uninstall that is not complete. What was released stays released; it can be repeated.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// The objects of a kind are not known; those of the others are released.
    #[error("cannot list {kind}: {source}; nothing of that kind was released; run it again")]
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
///
/// A kind whose objects cannot be listed keeps no other from being released, and makes an error at the end: something may be left. One that
/// the original does not know and that may not be listed is only told of, because the operator leaves such a kind out, too, and so has
/// written on none of its objects under the role that it has.
pub(crate) async fn drain(client: &Client, namespace: Option<&str>, kinds: &[Kind]) -> Result<(), DrainError> {
    let ledger = Ledger::new(client.clone());
    let (mut left_out, mut failed) = (Vec::new(), None);
    for &kind in kinds {
        let resource = kind.resource();
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let mut released = 0;
        let found = match ours(&api).await {
            Ok(found) => found,
            // What the cluster does not know has no objects.
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(kube::Error::Api(status)) if status.code == 403 && !kind.is_original() => {
                left_out.push(kind.plural());
                continue;
            }
            Err(source) => {
                let error = DrainError::List { kind: kind.plural(), source: Box::new(source) };
                tracing::error!("{}", in_one_line(&error));
                failed.get_or_insert(error);
                continue;
            }
        };
        for object in found {
            let key = ObjectRef { kind, namespace: object.namespace().unwrap_or_default(), name: object.name_any() };
            let uid = object.uid().unwrap_or_default();
            ledger.erase(&key, &uid).await.map_err(|source| DrainError::Release { object: key, source })?;
            released += 1;
        }
        tracing::info!(kind = kind.plural(), released, "released");
    }
    journal::erase(client).await?;
    if !left_out.is_empty() {
        tracing::warn!(
            "not looked at, because they may not be listed: {}. Under this role the operator has written on none of them; if it had \
             a wider one before, run this again with that",
            left_out.join(", ")
        );
    }
    failed.map_or(Ok(()), Err)
}

/// The objects that carry the finalizer or the record.
async fn ours(api: &Api<DynamicObject>) -> kube::Result<Vec<PartialObjectMeta<DynamicObject>>> {
    let is_ours = |object: &PartialObjectMeta<DynamicObject>| {
        object.finalizers().iter().any(|known| known == FINALIZER) || object.annotations().contains_key(STATUS)
    };
    pick(api, &ListParams::default(), |object| Some(object).filter(is_ours)).await
}
