//! The deadline of an object in a namespace that is being deleted, because the whole namespace waits for the object.

use std::time::Duration;

use k8s_openapi::{api::core::v1::ObjectReference, jiff::Timestamp};
use konverge::{
    Object,
    apply::{
        Writable,
        ledger::{DeletionDeadline, deleting_for},
    },
    core::error::{Classify, ErrorClass},
    generate::Access,
    kube::{Resource, ResourceExt},
    prelude::{Cleanup, Context, Error, EventType, Reason},
    remote::Subject,
};

use crate::{left_behind, reasons, settings::Settings};

/// The time that a namespace waits for a server that does not answer. The server may be back soon and delete its items.
const OUTAGE: Duration = Duration::from_mins(5);
/// How long a namespace waits for the approval of its deletions: the time for a person to read the alert.
const APPROVAL: Duration = Duration::from_mins(15);
/// The delay of the check after the deadline.
const MARGIN: Duration = Duration::from_millis(200);

/// Declares the permission to read a namespace by its name.
pub(super) fn declare(access: &mut Access) {
    access.to_resource("", "namespaces", &["get"]);
}

/// The wait of an object, with its reason.
struct Wait {
    after: Duration,
    reason: Reason,
    message: String,
    limit: Duration,
}

/// Returns the wait of the object and its limit in a namespace that is being deleted. Returns `None` if the object does
/// not wait.
fn wait(outcome: &Result<Cleanup, Error>, deadline: Duration) -> Option<Wait> {
    match outcome {
        Ok(Cleanup::Pending { after, reason, message }) => {
            let is_stopped = *reason == Reason::new(reasons::DELETIONS_STOPPED);
            let limit = if is_stopped { deadline.max(APPROVAL) } else { deadline };
            Some(Wait { after: *after, reason: reason.clone(), message: message.clone(), limit })
        }
        Ok(_) => None,
        Err(error) => {
            let (after, limit) = match error.class() {
                ErrorClass::Unavailable(_) | ErrorClass::Transient => (OUTAGE, deadline.max(OUTAGE)),
                ErrorClass::After(after) => (after, deadline),
                _ => (OUTAGE, deadline),
            };
            let reason = Reason::parse(error.reason()).unwrap_or(Reason::new(reasons::IN_USE));
            Some(Wait { after, reason, message: error.to_string(), limit })
        }
    }
}

/// Ends the wait of an object in a namespace that is being deleted after the deadline. Its items stay in openZro.
pub(super) async fn bounded<K>(
    context: &Context<K>,
    settings: &Settings,
    outcome: Result<Cleanup, Error>,
) -> Result<Cleanup, Error>
where
    K: Object + Writable + Resource<DynamicType = ()>,
{
    let Some(Wait { after, reason, message, limit }) = wait(&outcome, settings.terminating_namespace_deadline) else {
        return outcome;
    };
    let object = context.object();
    let namespace = object.namespace().unwrap_or_default();
    let waited = deleting_for(object.meta().deletion_timestamp.as_ref().map(|time| time.0), Timestamp::now());
    let terminating = DeletionDeadline { limit: Duration::MAX, in_terminating_namespace: Duration::ZERO };
    if !terminating.is_over(context.client(), &namespace, waited).await {
        return outcome;
    }
    if let Some(left) = limit.checked_sub(waited).filter(|left| !left.is_zero()) {
        return Ok(Cleanup::pending(after.min(left + MARGIN), reason, message));
    }
    let note = format!(
        "{} {namespace}/{} is released after {} s, because its namespace is being deleted; what openZro has of it stays: {message}",
        K::kind(&()),
        object.name_any(),
        waited.as_secs()
    );
    tracing::warn!("{note}");
    if !context.applier().is_dry_run() {
        record(context, settings, &namespace, &note).await;
        // A namespace that is being deleted accepts no new events, but there can be events about it.
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Namespace".to_owned()),
            name: Some(namespace),
            ..ObjectReference::default()
        };
        context.event_about(regarding, EventType::Warning, reasons::LEFT_BEHIND, "Finalize", note);
    }
    Ok(Cleanup::Done)
}

/// Adds the item to the list of what is left behind. A failure stops nothing, because the log and the event say the same.
async fn record<K>(context: &Context<K>, settings: &Settings, namespace: &str, note: &str)
where
    K: Object + Resource<DynamicType = ()>,
{
    let subject = Subject {
        kind: K::kind(&()).into_owned(),
        namespace: Some(namespace.to_owned()),
        name: context.object().name_any(),
    };
    if let Err(error) = left_behind::record(context.client(), &settings.namespace, &subject, note).await {
        tracing::warn!(namespace, "the list of what is left behind is not written: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_openzro_from_a_deletion_decides_how_long_a_namespace_waits() {
        let pending = |reason: &'static str| Ok(Cleanup::pending(OUTAGE, Reason::new(reason), "m"));
        let away = || Err(Error::unavailable("openzro", "OpenZroUnreachable", "m"));
        let mins = Duration::from_mins;
        for (outcome, deadline, expected) in [
            (Ok(Cleanup::Done), mins(1), None),
            (pending(reasons::IN_USE), mins(1), Some(mins(1))),
            (pending(reasons::DELETIONS_STOPPED), mins(1), Some(mins(15))),
            (pending(reasons::DELETIONS_STOPPED), mins(60), Some(mins(60))),
            (away(), mins(1), Some(mins(5))),
            (Err(Error::permanent(reasons::INVALID_SPEC, "m")), mins(1), Some(mins(1))),
        ] {
            assert_eq!(wait(&outcome, deadline).map(|wait| wait.limit), expected, "{outcome:?}");
        }
    }
}
