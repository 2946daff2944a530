//! The uninstall: removes the finalizer and the record from every object, and the journal. Vault stays as it is.

use konverge_apply::read::pick;
use konverge_core::{error::in_one_line, names::few};
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    core::{DynamicObject, PartialObjectMeta},
};

use crate::{
    annotations::{FINALIZER, STATUS},
    journal::{self, JournalError, PREFIX},
    ledger::{Ledger, LedgerError},
    object::{Kind, ObjectRef},
};

/// How often one object is tried that other clients change at the same time.
const ATTEMPTS: u32 = 5;

/// An incomplete uninstall. Released objects stay released, and the uninstall can be repeated.
#[derive(Debug, thiserror::Error)]
#[error("{}; run it again", listed(.0))]
pub struct DrainError(Vec<Left>);

/// A thing that an uninstall could not remove.
#[derive(Debug, thiserror::Error)]
enum Left {
    /// The objects of a kind are not known; those of the others are released.
    #[error("cannot list {kind}: {source}; nothing of that kind was released")]
    List {
        /// The kind.
        kind: &'static str,
        /// The error of the client.
        source: Box<kube::Error>,
    },
    /// An object keeps its finalizer.
    #[error("{object} keeps its finalizer: {source}")]
    Release {
        /// The object.
        object: ObjectRef,
        /// The cause.
        source: LedgerError,
    },
    /// The journal could not be deleted.
    #[error("cannot delete the Secrets {PREFIX}-…: {0}")]
    Journal(#[from] JournalError),
}

/// Releases all objects of the kinds. The operator has to be stopped before, or it would put the finalizers back.
///
/// An object that cannot be released, or a kind that cannot be listed, keeps no other object from being released. It causes an error at the end.
/// A kind that the original does not know and that may not be listed causes only a warning. Under this role the operator leaves such a kind
/// out, too, so it has written on none of its objects.
pub(crate) async fn drain(client: &Client, namespace: Option<&str>, kinds: &[Kind]) -> Result<(), DrainError> {
    let ledger = Ledger::new(client.clone());
    let (mut left_out, mut left) = (Vec::new(), Vec::new());
    let mut remains = |what: Left| {
        tracing::error!("{}", in_one_line(&what));
        left.push(what);
    };
    for &kind in kinds {
        let resource = kind.resource();
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let mut released = 0;
        let found = match ours(&api).await {
            Ok(found) => found,
            // A kind that the cluster does not know has no objects.
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(kube::Error::Api(status)) if status.code == 403 && !kind.is_original() => {
                left_out.push(kind.plural());
                continue;
            }
            Err(source) => {
                remains(Left::List { kind: kind.plural(), source: Box::new(source) });
                continue;
            }
        };
        for object in found {
            let key = ObjectRef { kind, namespace: object.namespace().unwrap_or_default(), name: object.name_any() };
            let uid = object.uid().unwrap_or_default();
            let mut erased = ledger.erase(&key, &uid).await;
            for _ in 1..ATTEMPTS {
                // Another client has changed the object in between.
                if erased.as_ref().is_err_and(LedgerError::is_outdated) {
                    erased = ledger.erase(&key, &uid).await;
                }
            }
            match erased {
                Ok(()) => released += 1,
                Err(source) => remains(Left::Release { object: key, source }),
            }
        }
        tracing::info!(kind = kind.plural(), released, "released");
    }
    if let Err(error) = journal::erase(client).await {
        remains(error.into());
    }
    if !left_out.is_empty() {
        tracing::warn!(
            "not looked at, because they may not be listed: {}. Under this role the operator has written on none of them; if it had \
             a wider one before, run this again with that",
            left_out.join(", ")
        );
    }
    if left.is_empty() { Ok(()) } else { Err(DrainError(left)) }
}

/// Each of them is a line in the log.
fn listed(left: &[Left]) -> String {
    few(left.iter().map(|left| in_one_line(left)))
}

/// The objects that carry the finalizer or the record.
async fn ours(api: &Api<DynamicObject>) -> kube::Result<Vec<PartialObjectMeta<DynamicObject>>> {
    let is_ours = |object: &PartialObjectMeta<DynamicObject>| {
        object.finalizers().iter().any(|known| known == FINALIZER) || object.annotations().contains_key(STATUS)
    };
    pick(api, &ListParams::default(), |object| Some(object).filter(is_ours)).await
}
