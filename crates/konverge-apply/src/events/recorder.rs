//! Writing one event, or raising the count of one that is there.
//!
//! Our own instead of kube's: that one scans all it remembers for every event, sends the whole event for each repetition, and makes
//! names that the API server refuses for objects with long names.

use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    runtime::events::{EventType, Reporter},
};
use serde_json::json;

use super::{
    Notice,
    series::{Key, Series},
};
use crate::object::shortened;

/// The API server's limit for a note, in bytes.
pub(super) const NOTE_LIMIT: usize = 1024;
/// The API server's limit for a name.
const NAME_LIMIT: usize = 253;
/// Where events of objects without a namespace go.
const NAMESPACE_OF_OTHERS: &str = "default";

pub(super) struct Recorder {
    client: Client,
    controller: String,
    instance: String,
    series: Series,
}

impl Recorder {
    pub(super) fn new(client: Client, controller: &str) -> Self {
        let instance = Reporter::from(controller).instance.unwrap_or_else(|| controller.to_owned());
        Self { client, controller: controller.to_owned(), instance, series: Series::default() }
    }

    /// A repetition with the same note within some minutes makes a series of the event that is there.
    pub(super) async fn publish(&mut self, notice: &Notice) -> Result<(), kube::Error> {
        let namespace = notice.regarding.namespace.as_deref().unwrap_or(NAMESPACE_OF_OTHERS);
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let (now, key) = (Timestamp::now(), Key::of(notice));
        if let Some((name, count)) = self.series.repeated(&key, now) {
            let patch = json!({"series": {"count": count, "lastObservedTime": MicroTime(now)}});
            match api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                // It has expired or somebody deleted it: it begins anew.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
                Ok(_) => {
                    self.series.counted(key, name, count, now);
                    return Ok(());
                }
            }
        }
        let event = self.event(notice, namespace, now);
        let name = event.metadata.name.clone().unwrap_or_default();
        api.create(&PostParams::default(), &event).await?;
        self.series.counted(key, name, 1, now);
        Ok(())
    }

    fn event(&self, notice: &Notice, namespace: &str, now: Timestamp) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(name(&notice.regarding, now)),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            action: Some(notice.action.to_owned()),
            event_time: Some(MicroTime(now)),
            note: Some(shortened(&notice.note, NOTE_LIMIT).into_owned()),
            reason: Some(notice.reason.to_owned()),
            regarding: Some(notice.regarding.clone()),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(shortened(&self.instance, 128).into_owned()),
            type_: Some(match notice.kind {
                EventType::Normal => "Normal".to_owned(),
                EventType::Warning => "Warning".to_owned(),
            }),
            ..Event::default()
        }
    }
}

/// Name of the object and the time in hexadecimal nanoseconds. Names of some kinds have characters that those of events may not.
fn name(regarding: &ObjectReference, now: Timestamp) -> String {
    let time = format!("{:x}", now.as_nanosecond());
    let object: String = regarding.name.as_deref().unwrap_or_default().chars().map(allowed).collect();
    let end = konverge_core::names::floor_char_boundary(&object, NAME_LIMIT - 1 - time.len());
    let object = object[..end].trim_matches(['.', '-']);
    // A dot must have a letter or a digit on both sides.
    let object = object.split(['.']).map(|label| label.trim_matches('-')).filter(|label| !label.is_empty());
    object.chain([time.as_str()]).collect::<Vec<_>>().join(".")
}

fn allowed(character: char) -> char {
    match character {
        'a'..='z' | '0'..='9' | '.' => character,
        'A'..='Z' => character.to_ascii_lowercase(),
        _ => '-',
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object(name: &str) -> ObjectReference {
        ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn names_begin_with_the_object() {
        assert_eq!(name(&object("app"), at(1_700_000_000)), "app.17979cfe362a0000");
        assert!(name(&object("system:node"), at(1)).starts_with("system-node."));
        assert_eq!(name(&object(":"), at(1)), "3b9aca00");
    }

    proptest! {
        #[test]
        fn every_name_is_one_that_the_api_server_takes(text in "[a-zA-Z0-9:._ä-]{0,300}", second in 0..4_000_000_000_i64) {
            let name = name(&object(&text), at(second));
            prop_assert!(name.len() <= NAME_LIMIT);
            for label in name.split('.') {
                prop_assert!(!label.is_empty() && !label.starts_with('-') && !label.ends_with('-'), "{}", name);
                prop_assert!(label.chars().all(|character| matches!(character, 'a'..='z' | '0'..='9' | '-')), "{}", name);
            }
        }
    }
}
