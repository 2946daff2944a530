//! The uninstall: removes the finalizer and the record from every object, and the journal. Vault stays as it is.

use konverge_apply::ledger::{Drain, DrainError, DrainedObject};
use konverge_runtime::{
    LeaseOptions,
    lease::{self, PATIENCE},
};
use kube::{Client, ResourceExt};

use crate::{
    annotations::STATUS,
    config::LEASE,
    journal::{self, JournalError, PREFIX},
    ledger::{Ledger, LedgerError},
    object::{Kind, ObjectRef, has_finalizer},
};

/// How often one object is tried that other clients change at the same time.
const ATTEMPTS: u32 = 5;

/// The journal could not be deleted.
#[derive(Debug, thiserror::Error)]
#[error("cannot delete the Secrets {PREFIX}-…: {0}")]
struct JournalLeft(#[from] JournalError);

/// Releases all objects of the kinds, in the place of the operator, whose lease it waits for. A kind that the original does not know need not be
/// there, nor need the role allow to list it.
pub(crate) async fn drain(client: &Client, namespace: Option<&str>, kinds: &[Kind]) -> Result<(), DrainError> {
    let mut drain = Drain::new(client, namespace);
    let release = async |client: Client| {
        let ledger = Ledger::new(client.clone());
        for &kind in kinds {
            release_kind(&mut drain, &ledger, kind).await;
        }
        drain.step(journal::erase(&client).await.map_err(JournalLeft));
    };
    let lease = LeaseOptions::new(client.default_namespace(), LEASE);
    let released = lease::stand_in(client, lease, PATIENCE, release).await;
    drain.step(released);
    drain.end().await
}

async fn release_kind(drain: &mut Drain<'_>, ledger: &Ledger, kind: Kind) {
    let is_ours = |object: &DrainedObject| has_finalizer(&object.metadata) || object.annotations().contains_key(STATUS);
    let release = async |object: DrainedObject| {
        let key = ObjectRef { kind, namespace: object.namespace().unwrap_or_default(), name: object.name_any() };
        let uid = object.uid().unwrap_or_default();
        let mut erased = ledger.erase(&key, &uid).await;
        for _ in 1..ATTEMPTS {
            // Another client has changed the object in between.
            if erased.as_ref().is_err_and(LedgerError::is_outdated) {
                erased = ledger.erase(&key, &uid).await;
            }
        }
        erased
    };
    drain.kind(&kind.resource(), !kind.is_original(), is_ours, release).await;
}
