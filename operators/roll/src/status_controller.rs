//! Writes the status of triggers, and removes what the original operator has left on them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::SignedDuration;
use konverge_apply::{Applier, ApplyError, MetadataChange, Statement, StatusWriter, error::class_of};
use konverge_core::error::{Classify, ErrorClass, in_one_line};
use konverge_runtime::{Action, Reconciler, Request};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::{DynamicObject, ObjectMeta, PartialObjectMeta},
};
use serde_json::json;

use crate::{
    definition::Status,
    messages,
    parts::Parts,
    reasons,
    time::Time,
    trigger::{Leftovers, TriggerKind, TriggerRef, WatchedTrigger},
    trigger_status::{self, StatusUpdate},
    writer::FIELD_MANAGER,
};

/// How long the operator leaves a finalizer that the original has added again. After that, the original may have been
/// stopped.
const FREE_AGAIN: SignedDuration = SignedDuration::from_mins(10);

/// A definition is installed by hand.
const DEFINITION_AGAIN: Duration = Duration::from_mins(5);

/// The pause after another writer was faster. The watch shows what it wrote, and mostly wakes the object before.
const OUTDATED_AGAIN: Duration = Duration::from_secs(1);

/// Writes the status of triggers.
pub struct StatusController {
    client: Client,
    applier: Applier,
    writer: StatusWriter,
    parts: Arc<Parts>,
    /// Whether the time of the version is written in `spec.timeStamp`, as the original does.
    write_spec_timestamp: bool,
    /// The triggers from which the leftovers of the original were removed: their uids, and when.
    freed: Mutex<HashMap<TriggerRef, (String, Time)>>,
}

/// A status could not be written.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The API server did not take it.
    #[error("cannot write on {object}: {source}")]
    Request {
        /// The object.
        object: TriggerRef,
        /// The error of the client.
        source: Box<kube::Error>,
    },
    /// The same for the small writes.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The definition is still that of the original.
    #[error(
        "cannot write the status of {object}: its definition is that of the original, without a subresource status; apply \
         deploy/crds/vaultsyncstatus.yaml. Rollouts go on without it"
    )]
    OldDefinition {
        /// The object.
        object: TriggerRef,
    },
}

impl Classify for StatusError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Request { source, .. } => class_of(source),
            Self::Apply(error) => error.class(),
            Self::OldDefinition { .. } => ErrorClass::After(DEFINITION_AGAIN),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Request { .. } | Self::Apply(ApplyError::Refused { .. } | ApplyError::Transport { .. }) => {
                reasons::OBJECT_NOT_WRITABLE
            }
            Self::Apply(error) => error.reason(),
            Self::OldDefinition { .. } => reasons::OLD_DEFINITION,
        }
    }
}

impl StatusError {
    /// Whether the object is of another version than the one that was decided upon, so that nothing was written.
    fn is_outdated(&self) -> bool {
        match self {
            Self::Apply(error) => matches!(error, ApplyError::OutOfDate { .. }),
            Self::Request { source, .. } => matches!(&**source, kube::Error::Api(status) if status.code == 409),
            Self::OldDefinition { .. } => false,
        }
    }
}

impl Reconciler for StatusController {
    type Key = TriggerRef;
    type Error = StatusError;

    async fn reconcile(&self, request: Request<TriggerRef>) -> Result<Action, StatusError> {
        match self.report(&request.key).await {
            // No failure: the next run decides with what the other writer has written.
            Err(error) if error.is_outdated() => {
                tracing::debug!(object = %request.key, "{}", in_one_line(&error));
                Ok(Action::AfterAtSamePriority(OUTDATED_AGAIN))
            }
            reported => reported,
        }
    }
}

impl StatusController {
    /// Writes through this client.
    pub fn new(client: Client, parts: Arc<Parts>, write_spec_timestamp: bool) -> Self {
        let applier = Applier::new(client.clone(), FIELD_MANAGER);
        let writer = StatusWriter::new(applier.clone());
        Self { client, applier, writer, parts, write_spec_timestamp, freed: Mutex::default() }
    }

    /// Writes the status of one trigger.
    async fn report(&self, key: &TriggerRef) -> Result<Action, StatusError> {
        let Some(found) = self.parts.index.trigger(key) else {
            self.freed().remove(key);
            return Ok(Action::Done);
        };
        let free_again = self.free(key, &found).await?;
        // To free it changes its version.
        let Some(shown) = self.parts.index.trigger(key).filter(|shown| shown.uid == found.uid && !shown.deleting)
        else {
            return Ok(Action::Done);
        };
        let free_again = free_again.map_or(Action::Done, Action::After);
        let digester = self.parts.key.digester().await;
        let now = Time::now();
        let target_statuses = self.parts.index.target_statuses(key, &digester, now);
        let update = trigger_status::status_update(key, &shown, &target_statuses, now);
        let Some(StatusUpdate { status, news, again }) = update else { return Ok(free_again) };
        if status != *shown.status {
            self.write(key, &shown, status).await?;
        }
        self.say(key, &shown, &news);
        Ok(again.map_or(free_again, Action::After))
    }

    /// Takes off what the original has left. While that still runs it puts it on again, and is left to it for some time, or until the object is
    /// to go. Returns after what time it is to be tried again.
    async fn free(&self, key: &TriggerRef, shown: &WatchedTrigger) -> Result<Option<Duration>, StatusError> {
        if shown.leftovers.is_empty() {
            return Ok(None);
        }
        let rest = rest(self.freed().get(key), &shown.uid, Time::now()).filter(|_| !shown.deleting);
        if rest.is_some() {
            self.say(key, shown, &[messages::original_runs()]);
            return Ok(rest);
        }
        let kind = key.kind.resource();
        let api = self.api(key);
        let found = api.get_metadata_opt(&key.name).await.map_err(|source| failed(key, source))?;
        let Some(mut object) = found.filter(|object| object.metadata.uid.as_deref() == Some(&*shown.uid)) else {
            return Ok(None);
        };
        let mut change = MetadataChange::new();
        for annotation in &shown.leftovers.annotations {
            change = change.without_annotation(annotation);
        }
        object = self.applier.change_metadata_with(&object, &change, &kind).await?.unwrap_or(object);
        for finalizer in &shown.leftovers.finalizers {
            let removed =
                self.applier.remove_finalizer_with::<PartialObjectMeta<DynamicObject>>(&object, finalizer, &kind);
            object = removed.await?.unwrap_or(object);
        }
        // Not before: what was done by half and not answered is no sign of the original.
        self.freed().insert(key.clone(), (shown.uid.clone(), Time::now()));
        let version = object.metadata.resource_version.unwrap_or_default();
        self.parts.index.update_trigger(key, &shown.uid, |shown| {
            shown.leftovers = Leftovers::default();
            shown.version = version;
        });
        Ok(None)
    }

    /// Writes the status on the version for which it was made.
    async fn write(&self, key: &TriggerRef, shown: &WatchedTrigger, status: Status) -> Result<(), StatusError> {
        let mut version = shown.version.clone();
        // Before the status, which tells afterwards that it was done.
        if status.baseline != shown.status.baseline
            && let Some(after) = self.write_time(key, shown, &status).await?
        {
            version = after;
        }
        let seen = DynamicObject {
            types: None,
            metadata: ObjectMeta {
                name: Some(key.name.clone()),
                namespace: Some(key.namespace.clone()),
                uid: Some(shown.uid.clone()),
                resource_version: Some(version.clone()),
                ..ObjectMeta::default()
            },
            data: json!({ "status": *shown.status }),
        };
        match self.writer.write_with(&seen, &status, &key.kind.resource()).await {
            Ok(Some(written)) => version = written.metadata.resource_version.unwrap_or_default(),
            Ok(None) => {}
            Err(ApplyError::Gone { .. }) => return Ok(()),
            // Ours has had that subresource ever since.
            Err(ApplyError::Refused { code: 404, .. }) if key.kind == TriggerKind::VaultSyncStatus => {
                return Err(StatusError::OldDefinition { object: key.clone() });
            }
            Err(error) => {
                if matches!(error, ApplyError::Altered { .. }) {
                    self.say(key, shown, &[messages::failed(&error)]);
                }
                return Err(error.into());
            }
        }
        self.parts.index.update_trigger(key, &shown.uid, |shown| {
            shown.status = Arc::new(status);
            shown.version = version;
        });
        Ok(())
    }

    /// As the original does, if it is wanted: when the version was written that the pods run with. Returns the version of the object afterwards,
    /// if anything was written.
    async fn write_time(
        &self,
        key: &TriggerRef,
        shown: &WatchedTrigger,
        status: &Status,
    ) -> Result<Option<String>, StatusError> {
        let Some(noted) = status.baseline.first().filter(|_| self.write_spec_timestamp) else { return Ok(None) };
        let metadata = json!({ "uid": shown.uid, "resourceVersion": shown.version });
        let time = json!({ "metadata": metadata, "spec": { "timeStamp": noted.created } });
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match self.api(key).patch_metadata(&key.name, &parameters, &Patch::Merge(&time)).await {
            Ok(after) => Ok(after.metadata.resource_version),
            // It is gone.
            Err(kube::Error::Api(error)) if error.code == 404 => Ok(None),
            Err(source) => Err(failed(key, source)),
        }
    }

    fn say(&self, key: &TriggerRef, shown: &WatchedTrigger, news: &[Statement]) {
        for statement in news {
            self.parts.announcer.announce(key, key.reference(&shown.uid), statement);
        }
    }

    fn freed(&self) -> MutexGuard<'_, HashMap<TriggerRef, (String, Time)>> {
        self.freed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn api(&self, key: &TriggerRef) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &key.namespace, &key.kind.resource())
    }
}

/// How long what is on an object again is left to the original; nothing if it is to be taken off now.
fn rest(freed: Option<&(String, Time)>, uid: &str, now: Time) -> Option<Duration> {
    let (_, before) = freed.filter(|(of, _)| of == uid)?;
    // Less than nothing is no duration.
    Duration::try_from(FREE_AGAIN - now.since(*before)).ok().filter(|rest| !rest.is_zero())
}

fn failed(key: &TriggerRef, source: kube::Error) -> StatusError {
    StatusError::Request { object: key.clone(), source: Box::new(source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_on_again_is_left_for_a_while_and_then_taken_off() {
        let at = |second| Time::at(second);
        let freed = ("u".to_owned(), at(1000));
        let minutes = |minutes| Some(Duration::from_mins(minutes));
        for (what, freed, uid, now, expected) in [
            ("the first time", None, "u", 1000, None),
            ("at once", Some(&freed), "u", 1000, minutes(10)),
            ("a little later", Some(&freed), "u", 1240, minutes(6)),
            ("long after", Some(&freed), "u", 1600, None),
            ("another of that name", Some(&freed), "v", 1001, None),
        ] {
            assert_eq!(rest(freed, uid, at(now)), expected, "{what}");
        }
    }
}
