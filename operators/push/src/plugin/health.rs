//! The state of an object, from its record. Pure.

use konverge_apply::Statement;
use konverge_kubectl::{Grade, ObjectHealth, Place};
use kube::{ResourceExt, core::DynamicObject};

use super::spec_of;
use crate::{
    annotations::{PATH, STATUS, SYNC_NOW},
    messages,
    object::{Kind, ObjectRef, has_finalizer},
    reasons,
    record::{PENDING, Record, SYNCED, Written},
    vault_push::VaultPushStatus,
};

/// Returns the record on an object of any kind. `None` if there is none, or if it is another object's.
pub fn record_of(object: &DynamicObject) -> Option<Record> {
    let uid = object.metadata.uid.as_deref()?;
    let is_vault_push = object.types.as_ref().is_some_and(|types| types.kind == Kind::VaultPush.name());
    if let Some(text) = object.annotations().get(STATUS).filter(|_| !is_vault_push) {
        return Record::read(text, uid);
    }
    // The status names the uid of its object.
    let status = serde_json::from_value::<VaultPushStatus>(object.data.get("status")?.clone()).ok()?;
    Some(Record::from(status)).filter(|record| record.uid == uid)
}

/// Returns the state of an object. `None` if it has no request and nothing is left to be cleared.
pub(super) fn health(key: &ObjectRef, object: &DynamicObject) -> Option<ObjectHealth> {
    let metadata = &object.metadata;
    let record = record_of(object);
    let spec = spec_of(key, object);
    if spec.is_none() && record.is_none() && !has_finalizer(metadata) {
        return None;
    }
    let paths = record.iter().flat_map(|record| &record.paths).map(|(path, written)| place(path, written)).collect();
    let since = record.as_ref().map(|record| record.since);
    let message = record.as_ref().and_then(|record| record.message.clone());
    let health =
        |state: &str, grade, message| ObjectHealth { since, paths, ..ObjectHealth::new(state, grade, message) };
    if let Some(deleted) = &metadata.deletion_timestamp {
        let waits = "it is being deleted and waits until its paths in Vault are cleared".to_owned();
        let message = Some(message.unwrap_or(waits));
        return Some(ObjectHealth { since: Some(deleted.0), ..health("Deleting", Grade::Waiting, message) });
    }
    let Some(spec) = spec else {
        return Some(match record.as_ref().map_or("", |record| &record.state) {
            reasons::DELETION_PENDING => health(reasons::DELETION_PENDING, Grade::Waiting, message),
            reasons::DELETIONS_STOPPED => health(reasons::DELETIONS_STOPPED, Grade::Wrong, message),
            _ => {
                let why = format!("{PATH} was removed; the written paths are to be cleared");
                health("Clearing", Grade::Waiting, Some(why))
            }
        });
    };
    let spec = match spec {
        Ok(spec) => spec,
        Err(invalid) => {
            let Statement { reason, text, .. } = messages::invalid(&invalid);
            return Some(health(reason, Grade::Wrong, Some(text)));
        }
    };
    let waits = |why: &str| (PENDING, Grade::Waiting, Some(why.to_owned()));
    let (state, grade, message) = match &record {
        None => waits("the operator has not seen it yet"),
        Some(record) if record.generation.is_some() && record.generation != metadata.generation => {
            waits("it has changed, and the operator has not handled the change yet")
        }
        Some(record) => match (&*record.state, spec.paused) {
            (reasons::PAUSED, true) => (reasons::PAUSED, Grade::Paused, message),
            (reasons::PAUSED, false) => waits("it was resumed, and the operator has not handled that yet"),
            (_, true) => waits("it was paused, and the operator has not handled that yet"),
            (SYNCED, false) if record.answered != spec.sync_now && spec.sync_now.is_some() => {
                waits(&format!("{SYNC_NOW} is set, and the operator has not handled it yet"))
            }
            (SYNCED, false) => (SYNCED, Grade::InSync, message),
            (PENDING, false) => waits("the operator is working on it"),
            (state, false) => (state, Grade::Wrong, message),
        },
    };
    Some(health(state, grade, message))
}

fn place(path: &str, written: &Written) -> Place {
    let kv = written.kv;
    let note = match &written.keys {
        _ if written.left => format!("KV {kv}, left alone"),
        _ if !written.written => format!("KV {kv}, not written yet"),
        Some(keys) => format!("KV {kv}, of which {} keys", keys.len()),
        None => format!("KV {kv}"),
    };
    let note = if written.unwanted.is_some() { format!("{note}, no longer requested") } else { note };
    Place { path: path.to_owned(), version: written.version.filter(|_| written.written), note: Some(note) }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::*;
    use crate::annotations::{FINALIZER, PAUSE};

    fn object(annotations: &[(&str, &str)]) -> DynamicObject {
        let mut object = DynamicObject::new("a", &Kind::Deployment.resource());
        let annotations = annotations.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
        object.metadata.annotations = Some(annotations.collect());
        object.metadata.uid = Some("1".to_owned());
        object
    }

    fn health(object: &DynamicObject) -> Option<ObjectHealth> {
        let kind = object.types.as_ref().and_then(|types| Kind::named(&types.kind));
        super::health(&ObjectRef { kind: kind?, namespace: "shop".to_owned(), name: "a".to_owned() }, object)
    }

    fn recorded(state: &str, uid: &str, answered: Option<&str>) -> String {
        of(state, uid, answered).text()
    }

    fn of(state: &str, uid: &str, answered: Option<&str>) -> Record {
        let mut record = Record::new(uid, Timestamp::UNIX_EPOCH);
        record.say(state, (state != SYNCED).then(|| "why".to_owned()), Timestamp::UNIX_EPOCH);
        record.answered = answered.map(str::to_owned);
        record.paths.insert(
            "secret/data/a".to_owned(),
            Written { mount: "secret".to_owned(), kv: 2, written: true, version: Some(3), ..Written::default() },
        );
        record
    }

    #[test]
    fn what_an_object_says_of_itself() {
        let synced = recorded(SYNCED, "1", None);
        let answered = recorded(SYNCED, "1", Some("x"));
        let paused = recorded("Paused", "1", None);
        let sealed = recorded("VaultSealed", "1", None);
        let copied = recorded(SYNCED, "2", None);
        let asks = (PATH, "secret/a");
        for (annotations, expected) in [
            (&[][..], None),
            (&[(STATUS, "{}")], None),
            (&[(STATUS, &*copied)], None),
            (&[asks], Some(("Pending", Grade::Waiting))),
            (&[asks, (STATUS, "{}")], Some(("Pending", Grade::Waiting))),
            (&[asks, (STATUS, &copied)], Some(("Pending", Grade::Waiting))),
            (&[asks, (STATUS, &synced)], Some((SYNCED, Grade::InSync))),
            (&[asks, (STATUS, &answered)], Some((SYNCED, Grade::InSync))),
            (&[asks, (STATUS, &answered), (SYNC_NOW, "x")], Some((SYNCED, Grade::InSync))),
            (&[asks, (STATUS, &answered), (SYNC_NOW, "y")], Some(("Pending", Grade::Waiting))),
            (&[asks, (STATUS, &synced), (PAUSE, "true")], Some(("Pending", Grade::Waiting))),
            (&[asks, (STATUS, &paused), (PAUSE, "true")], Some(("Paused", Grade::Paused))),
            (&[asks, (STATUS, &paused)], Some(("Pending", Grade::Waiting))),
            (&[asks, (STATUS, &sealed)], Some(("VaultSealed", Grade::Wrong))),
            (&[asks, (STATUS, &sealed), (SYNC_NOW, "y")], Some(("VaultSealed", Grade::Wrong))),
            (
                &[asks, (STATUS, &synced), ("vault-sync.io/secrets", "[")],
                Some(("InvalidSecretsAnnotation", Grade::Wrong)),
            ),
            (&[(STATUS, &synced)], Some(("Clearing", Grade::Waiting))),
        ] {
            let found = health(&object(annotations));
            let found = found.as_ref().map(|health| (&*health.state, health.grade));
            assert_eq!(found, expected, "{annotations:?}");
        }
        let whole = health(&object(&[asks, (STATUS, &sealed)])).unwrap();
        assert_eq!((whole.message.as_deref(), whole.since), (Some("why"), Some(Timestamp::UNIX_EPOCH)));
        assert_eq!(
            whole.paths,
            [Place { path: "secret/data/a".to_owned(), version: Some(3), note: Some("KV 2".to_owned()) }]
        );
    }

    #[test]
    fn what_is_going_waits_for_vault() {
        let mut object = object(&[]);
        object.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
        assert_eq!(health(&object).map(|health| health.state), Some("Clearing".to_owned()));
        object.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let health = health(&object).unwrap();
        assert_eq!((&*health.state, health.since), ("Deleting", Some(Timestamp::UNIX_EPOCH)));
    }

    #[test]
    fn a_vault_push_says_it_in_its_status() {
        let mut record = of(SYNCED, "1", Some("x"));
        record.generation = Some(2);
        let mut object = DynamicObject::new("a", &Kind::VaultPush.resource());
        object.metadata.uid = Some("1".to_owned());
        object.data = json!({
            "spec": { "secrets": { "names": ["db"] }, "mount": "secret", "path": "a" },
            "status": VaultPushStatus::from(&record),
        });
        for (generation, annotations, expected) in [
            (2, &[][..], (SYNCED, Grade::InSync)),
            (3, &[], ("Pending", Grade::Waiting)),
            (2, &[(SYNC_NOW, "x")], (SYNCED, Grade::InSync)),
            (2, &[(SYNC_NOW, "y")], ("Pending", Grade::Waiting)),
            (2, &[(PAUSE, "true")], ("Pending", Grade::Waiting)),
        ] {
            object.metadata.generation = Some(generation);
            let annotations = annotations.iter().map(|&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned()));
            object.metadata.annotations = Some(annotations.collect());
            let found = health(&object).unwrap();
            assert_eq!((&*found.state, found.grade), expected, "{generation} {:?}", object.metadata.annotations);
        }
        object.metadata.generation = Some(2);
        object.data["spec"] = json!({});
        let invalid = health(&object).unwrap();
        assert_eq!((&*invalid.state, invalid.grade), (reasons::INVALID_SPEC, Grade::Wrong));
    }

    #[test]
    fn content_that_is_no_longer_requested_says_when_it_goes_and_what_stops_that() {
        for (state, grade) in [(reasons::DELETION_PENDING, Grade::Waiting), (reasons::DELETIONS_STOPPED, Grade::Wrong)]
        {
            let health = health(&object(&[(STATUS, &recorded(state, "1", None))])).unwrap();
            assert_eq!((&*health.state, health.grade, health.message.as_deref()), (state, grade, Some("why")));
        }
        let written = Written { kv: 2, written: true, unwanted: Some(Timestamp::UNIX_EPOCH), ..Written::default() };
        assert_eq!(place("secret/data/x", &written).note.as_deref(), Some("KV 2, no longer requested"));
    }
}
