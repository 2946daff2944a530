//! The health of an object, by its own conditions and record. Pure.

use konverge::{
    PAUSED, RECORD,
    kube::{ResourceExt, core::DynamicObject},
    remote::{DeletionPolicy, Origin, Record},
};
use konverge_kubectl::{Fact, Grade, ObjectHealth, Place};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    annotations,
    api::status::{Stored, conditions},
    reasons,
};

/// Returns the health of an object.
pub(super) fn health(object: &DynamicObject) -> ObjectHealth {
    let conditions = conditions(&object.data);
    let is =
        |kind: &str| conditions.iter().find(|known| known.type_ == kind && known.status.as_deref() == Some("True"));
    let of = |known: &Stored, grade| {
        let state = known.reason.clone().filter(|reason| !reason.is_empty()).unwrap_or_else(|| known.type_.clone());
        let message = known.message.clone().filter(|message| !message.is_empty());
        let since = known.last_transition_time.as_ref().map(|time| time.0);
        ObjectHealth { since, paths: places(object), ..ObjectHealth::new(state, grade, message) }
    };
    let waiting = |state: &str, message: &str| ObjectHealth {
        paths: places(object),
        ..ObjectHealth::new(state, Grade::Waiting, message.to_owned())
    };
    if let Some(deleted) = &object.metadata.deletion_timestamp {
        let stopped = is("Reconciling").filter(|known| known.reason.as_deref() == Some(reasons::DELETIONS_STOPPED));
        let stalled = is("Stalled").or(stopped).map(|known| of(known, Grade::Wrong));
        let message = is("Reconciling").and_then(|known| known.message.clone());
        let message = message.unwrap_or_else(|| "it is being deleted".to_owned());
        return stalled.unwrap_or_else(|| ObjectHealth { since: Some(deleted.0), ..waiting("Deleting", &message) });
    }
    if object.annotations().get(PAUSED).is_some_and(|paused| paused == "true") {
        let message = format!("the annotation {PAUSED} pauses it");
        return ObjectHealth { paths: places(object), ..ObjectHealth::new("Paused", Grade::Paused, message) };
    }
    if conditions.is_empty() {
        return waiting("Pending", "the operator has not seen it yet");
    }
    let observed = conditions.iter().filter_map(|known| known.observed_generation).max();
    if observed.is_none_or(|observed| Some(observed) < object.metadata.generation) {
        return waiting("Pending", "it has changed, and the operator has not handled the change yet");
    }
    let stalled = is("Stalled").map(|known| of(known, Grade::Wrong));
    let reconciling = is("Reconciling").map(|known| of(known, Grade::Waiting));
    let ready = is("Ready").map(|known| of(known, Grade::InSync));
    let not_ready = || conditions.iter().find(|known| known.type_ == "Ready").map(|known| of(known, Grade::Wrong));
    let unknown = || waiting("Pending", "its status has no condition Ready");
    stalled.or(reconciling).or(ready).or_else(not_ready).unwrap_or_else(unknown)
}

/// The ids in the status.
fn places(object: &DynamicObject) -> Vec<Place> {
    let status = object.data.get("status").and_then(Value::as_object);
    let ids = status.into_iter().flatten().filter(|(field, _)| field.ends_with("ID"));
    let named = ids.filter_map(|(field, id)| Some(format!("{field} {}", id.as_str().filter(|id| !id.is_empty())?)));
    named.map(|path| Place { path, version: None, note: None }).collect()
}

/// Returns the record on an object, which counts only on that object.
pub(super) fn record(object: &DynamicObject) -> Option<Record> {
    #[derive(Deserialize)]
    struct Bound {
        cluster: String,
    }
    let text = object.annotations().get(RECORD)?;
    let Bound { cluster } = serde_json::from_str(text).ok()?;
    Record::read(Some(text), &cluster, object.metadata.uid.as_deref()?).ok()
}

/// Returns the items that the object stands for, and their fate.
pub(super) fn facts(object: &DynamicObject) -> Vec<Fact> {
    let record = record(object);
    let mut facts = Vec::new();
    for part in record.iter().flat_map(Record::parts) {
        let Some(entry) = record.as_ref().and_then(|record| record.part(part)) else { continue };
        let origin = match entry.origin {
            Origin::Made => "made for it",
            _ => "adopted",
        };
        let id = entry.id.as_deref().map(|id| format!(" ({id})")).unwrap_or_default();
        let account = match entry.scope.as_str() {
            "" => String::new(),
            namespace => format!(", in the account of namespace {namespace}"),
        };
        facts.push(Fact::new("item", format!("the {part} {}{id}, {origin}{account}", entry.name)));
    }
    if object.annotations().contains_key(RECORD) && record.is_none() {
        facts.push(Fact::new("record", "it belongs to another object, so it is ignored"));
    }
    let fate = match annotations::deletion(object.annotations(), false, true) {
        DeletionPolicy::Orphan => "its items stay in openZro, by its annotation",
        DeletionPolicy::DeleteAdopted => {
            "its items are deleted by its annotation, and adopted ones where the operator's settings let it"
        }
        _ => "items that were made for it are deleted, and adopted ones stay unless the operator has --delete-adopted",
    };
    facts.push(Fact::new("in the end", fate));
    facts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value, reason = "the rows of tables are made in place")]

    use serde_json::json;

    use super::*;

    fn object(metadata: Value, status: Value) -> DynamicObject {
        let mut object =
            json!({ "apiVersion": "openzro.io/v1", "kind": "OZGroup", "metadata": metadata, "status": status });
        object["metadata"]["generation"] = json!(2);
        object["metadata"]["uid"] = json!("u");
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn the_conditions_of_an_object_decide_its_health() {
        let condition = |kind: &str, status: &str, reason: &str, generation: i64| {
            json!({ "type": kind, "status": status, "reason": reason, "message": "m", "observedGeneration": generation,
                "lastTransitionTime": "2026-11-23T10:00:00Z" })
        };
        let with = |conditions: Vec<Value>| json!({ "conditions": conditions });
        let none = || json!({});
        for (metadata, status, expected) in [
            (none(), json!({}), ("Pending", Grade::Waiting)),
            (none(), with(vec![condition("Ready", "True", "Reconciled", 2)]), ("Reconciled", Grade::InSync)),
            (none(), with(vec![condition("Ready", "True", "Reconciled", 1)]), ("Pending", Grade::Waiting)),
            (
                none(),
                with(vec![condition("Ready", "False", "InUse", 2), condition("Reconciling", "True", "InUse", 2)]),
                ("InUse", Grade::Waiting),
            ),
            (
                none(),
                with(vec![condition("Ready", "False", "X", 2), condition("Stalled", "True", "NameTaken", 2)]),
                ("NameTaken", Grade::Wrong),
            ),
            (none(), with(vec![condition("Ready", "False", "Gone", 2)]), ("Gone", Grade::Wrong)),
            // openzro-operator writes no generation.
            (none(), with(vec![json!({ "type": "Ready", "status": "True" })]), ("Pending", Grade::Waiting)),
            (
                json!({ "annotations": { "konverge.dev/paused": "true" } }),
                with(vec![condition("Ready", "True", "Reconciled", 2)]),
                ("Paused", Grade::Paused),
            ),
            (
                json!({ "deletionTimestamp": "2026-11-23T10:00:00Z" }),
                with(vec![condition("Reconciling", "True", "InUse", 2)]),
                ("Deleting", Grade::Waiting),
            ),
            (
                json!({ "deletionTimestamp": "2026-11-23T10:00:00Z" }),
                with(vec![condition("Reconciling", "True", "DeletionsStopped", 2)]),
                ("DeletionsStopped", Grade::Wrong),
            ),
        ] {
            let found = health(&object(metadata.clone(), status.clone()));
            assert_eq!((found.state.as_str(), found.grade), expected, "{metadata} {status}");
        }
        let found = health(&object(json!({}), json!({ "groupID": "g1", "routerID": "", "conditions": null })));
        assert_eq!(found.paths.iter().map(|place| place.path.as_str()).collect::<Vec<_>>(), ["groupID g1"]);
    }

    #[test]
    fn a_record_tells_the_items_of_its_own_object_alone() {
        let text = |uid: &str| {
            let parts = json!({ "group": { "origin": "adopted", "scope": "shop", "name": "devs", "id": "g1" } });
            json!({ "cluster": "c", "uid": uid, "parts": parts }).to_string()
        };
        let said = |annotations: Value| {
            let facts = facts(&object(json!({ "annotations": annotations }), json!({})));
            facts.into_iter().map(|fact| format!("{}: {}", fact.about, fact.text)).collect::<Vec<_>>().join("\n")
        };
        let own = said(json!({ RECORD: text("u"), "konverge.dev/deletion": "orphan" }));
        assert_eq!(
            own,
            "item: the group devs (g1), adopted, in the account of namespace shop\nin the end: its items stay in openZro, by its annotation"
        );
        assert!(said(json!({ RECORD: text("copy") })).starts_with("record: it belongs to another object"));
        assert!(said(json!({})).starts_with("in the end: items that were made for it are deleted"));
    }
}
