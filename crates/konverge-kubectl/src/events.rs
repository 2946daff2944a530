//! The events of an operator about an object.

use std::{cmp::Reverse, collections::BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use kube::{Api, api::ListParams, core::DynamicObject};
use serde::Serialize;

use crate::{Cluster, Failure, cluster::request};

/// The number of events that are shown: the newest ones.
const SHOWN: usize = 10;

/// Events in one answer. An object that has more has had them for long.
const AT_MOST: u32 = 500;

/// Equal events, as one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Said {
    /// The time of the last event.
    pub(crate) last: Timestamp,
    /// The number of events.
    pub(crate) count: i32,
    /// `Normal` or `Warning`.
    pub(crate) kind: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Returns this operator's events about the object without repetitions, the newest first.
pub(crate) async fn of(cluster: &Cluster, operator: &str, object: &DynamicObject) -> Result<Vec<Said>, Failure> {
    // Events about objects without a namespace are in this one.
    let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    let parameters = ListParams::default().fields(&format!("involvedObject.uid={uid}")).limit(AT_MOST);
    let api = Api::<Event>::namespaced(cluster.client.clone(), namespace);
    let act = format!("list events in namespace {namespace}");
    let events = request(act, async { api.list(&parameters).await }).await?;
    let ours = events.items.into_iter().filter(|event| event.reporting_component.as_deref() == Some(operator));
    Ok(once(ours.filter_map(said)))
}

/// An event about an object.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportedEvent {
    /// The object.
    pub object: ObjectReference,
    /// The time of the last event.
    pub last: Timestamp,
    /// The message.
    pub message: String,
}

/// Returns the distinct messages of this operator's events with this reason, each with the object's name. Reads up to 500 events of the namespace or of
/// all.
pub async fn with_reason(
    cluster: &Cluster,
    operator: &str,
    reason: &str,
    namespace: Option<&str>,
) -> Result<Vec<String>, Failure> {
    let about = |ReportedEvent { object, message, .. }| {
        let place = [object.namespace, object.kind, object.name].map(Option::unwrap_or_default).join("/");
        format!("{message} (of {place})")
    };
    let events = reported(cluster, operator, reason, namespace).await?;
    Ok(events.into_iter().map(about).collect::<BTreeSet<_>>().into_iter().collect())
}

/// Returns this operator's events with this reason. Reads up to 500 events of the namespace or of all.
pub async fn reported(
    cluster: &Cluster,
    operator: &str,
    reason: &str,
    namespace: Option<&str>,
) -> Result<Vec<ReportedEvent>, Failure> {
    let parameters =
        ListParams::default().fields(&format!("reason={reason},reportingComponent={operator}")).limit(AT_MOST);
    let api = match namespace {
        Some(namespace) => Api::<Event>::namespaced(cluster.client.clone(), namespace),
        None => Api::all(cluster.client.clone()),
    };
    let events = request("list events".to_owned(), async { api.list(&parameters).await }).await?;
    let event = |event: Event| {
        let object = event.involved_object.clone();
        said(event).map(|Said { last, message, .. }| ReportedEvent { object, last, message })
    };
    Ok(events.items.into_iter().filter_map(event).collect())
}

fn said(event: Event) -> Option<Said> {
    let series = event.series.as_ref();
    let last = series.and_then(|series| series.last_observed_time.as_ref().map(|time| time.0));
    let last = last.or(event.event_time.map(|time| time.0)).or(event.last_timestamp.map(|time| time.0));
    let last = last.or(event.metadata.creation_timestamp.map(|time| time.0))?;
    Some(Said {
        last,
        count: series.and_then(|series| series.count).or(event.count).unwrap_or(1),
        kind: event.type_.unwrap_or_default(),
        reason: event.reason.unwrap_or_default(),
        message: event.message.unwrap_or_default(),
    })
}

/// Events with the same text count as one.
fn once(all: impl Iterator<Item = Said>) -> Vec<Said> {
    let mut found: Vec<Said> = Vec::new();
    for said in all {
        let same = found.iter_mut().find(|known| known.reason == said.reason && known.message == said.message);
        match same {
            Some(known) => {
                known.count = known.count.saturating_add(said.count);
                known.last = known.last.max(said.last);
            }
            None => found.push(said),
        }
    }
    found.sort_by_key(|said| Reverse(said.last));
    found.truncate(SHOWN);
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_same_words_are_one_and_the_newest_come_first() {
        let said = |second, count, reason: &str, message: &str| Said {
            last: Timestamp::from_second(second).unwrap(),
            count,
            kind: "Normal".to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        let all = [
            said(1, 1, "Synced", "a"),
            said(2, 1, "Paused", "p"),
            said(3, 4, "Synced", "a"),
            said(0, 1, "Synced", "b"),
        ];
        let shown = once(all.into_iter());
        assert_eq!(shown, [said(3, 5, "Synced", "a"), said(2, 1, "Paused", "p"), said(0, 1, "Synced", "b")]);
        let many = (0..30).map(|second| said(second, 1, "Synced", &second.to_string()));
        assert_eq!(
            once(many).iter().map(|said| said.last.as_second()).collect::<Vec<_>>(),
            (20..30).rev().collect::<Vec<_>>()
        );
    }
}
