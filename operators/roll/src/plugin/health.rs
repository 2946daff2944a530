//! The health of an object, by its annotations alone. Pure.
//!
//! The current content is not read: `why` and `diff` do that.

use std::collections::BTreeSet;

use konverge_apply::Statement;
use konverge_kubectl::{Grade, ObjectHealth, Place};
use konverge_workload::{Progress, Workload};
use kube::{ResourceExt, core::DynamicObject};

use crate::{
    annotations::{Annotations, Invalid, ON_CHANGE, Others, PAUSE, RECORD, SourceSpec, WorkloadSpec},
    messages,
    record::{Content, Record},
};

/// Returns the record on an object, even if another object owns it. Only the key of digests tells whether it is its own.
pub(super) fn recorded(annotations: &Annotations) -> Option<Record> {
    Record::of_any(annotations.get(RECORD)?)
}

/// Returns whether a workload requests rollouts only by annotations of other tools, which the operator follows if its flags say so.
pub(super) fn requests_by_others(object: &DynamicObject) -> bool {
    let requests = |others| read(object, others).is_ok_and(|spec| spec.requests_rollouts());
    !requests(Others::default()) && requests(Others::ALL)
}

fn read(object: &DynamicObject, others: Others) -> Result<WorkloadSpec, Invalid> {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    WorkloadSpec::read(object.annotations(), &Annotations::new(), namespace, others)
}

/// Returns the health of a workload. Returns `None` if it requests nothing and has no record.
pub(super) fn of_workload(object: &DynamicObject) -> Option<ObjectHealth> {
    let record = recorded(object.annotations());
    let paths = record.iter().flat_map(|record| &record.content);
    let paths = paths.map(|(source, entry)| Place {
        path: source.clone(),
        version: None,
        note: Some(match &entry.content {
            Content::Absent => "not there".to_owned(),
            Content::Digest(digest) => format!("digest {}", short(digest)),
        }),
    });
    let paths = paths.collect();
    let health = |state: &str, grade, message: &str| ObjectHealth {
        paths,
        ..ObjectHealth::new(state, grade, message.to_owned())
    };
    let spec = match read(object, Others::default()) {
        Ok(spec) => spec,
        Err(invalid) => {
            let Statement { reason, text, .. } = messages::invalid(&invalid);
            return Some(health(reason, Grade::Wrong, &text));
        }
    };
    if spec.never {
        let text = format!("{ON_CHANGE} is false: nothing restarts it");
        return Some(health("Never", Grade::InSync, &text));
    }
    Some(match record {
        None if requests_by_others(object) => health(
            "Pending",
            Grade::Waiting,
            "it has annotations of Stakater Reloader or wave, which the operator follows only with --reloader-annotations or \
             --wave-annotations",
        ),
        None if !spec.requests_rollouts() => return None,
        None => health("Pending", Grade::Waiting, "the operator has not seen it yet"),
        Some(_) if spec.paused => {
            let text = format!("{PAUSE} is set; changes meanwhile cause one rollout once it is removed");
            health("Paused", Grade::Paused, &text)
        }
        Some(Record { failed: Some(failed), rolled: Some(rolled), because, .. }) => {
            let because = because.as_deref().unwrap_or("the cause is not recorded");
            let Statement { reason, text, .. } = messages::rollout_failed(rolled, because);
            ObjectHealth { since: Some(failed), ..health(reason, Grade::Wrong, &text) }
        }
        Some(Record { rolled: Some(rolled), because, .. }) if is_under_way(object) => {
            let because = because.unwrap_or_else(|| "the cause is not recorded".to_owned());
            let text = format!("{because}; its new pods are not all available yet");
            ObjectHealth { since: Some(rolled), ..health("RollingOut", Grade::Waiting, &text) }
        }
        Some(Record { rolled: Some(rolled), because, .. }) => {
            let because = because.unwrap_or_else(|| "the cause is not recorded".to_owned());
            ObjectHealth { since: Some(rolled), ..health("RolledOut", Grade::InSync, &because) }
        }
        Some(_) => health(
            "Noted",
            Grade::InSync,
            "the baseline is recorded: the content that its pods use; it has never been restarted",
        ),
    })
}

/// Returns `true` unless all pods of a workload are available and of its newest template.
fn is_under_way(object: &DynamicObject) -> bool {
    let workload = serde_json::to_value(object).ok().and_then(|object| serde_json::from_value::<Workload>(object).ok());
    workload.is_some_and(|workload| {
        !workload.rollout.empty && !matches!(workload.rollout.progress, Progress::Ready | Progress::Unknown)
    })
}

/// Returns the state of a source. Returns `None` if it has no spec.
pub(super) fn of_source(object: &DynamicObject) -> Option<ObjectHealth> {
    let spec = match SourceSpec::read(object.annotations(), Others::default()) {
        Ok(spec) => spec,
        Err(invalid) => {
            let Statement { reason, text, .. } = messages::invalid(&invalid);
            return Some(ObjectHealth::new(reason, Grade::Wrong, text));
        }
    };
    if spec.ignored {
        let text = "no workload restarts for it";
        return Some(ObjectHealth::new("Ignored", Grade::InSync, text.to_owned()));
    }
    let whom = match (spec.users, &spec.selector) {
        (false, None) => return None,
        (true, None) => "workloads that use it restart when its content changes",
        (false, Some(_)) => "workloads with the labels that it names restart when its content changes",
        (true, Some(_)) => {
            "workloads that use it, and those with the labels that it names, restart when its content changes"
        }
    };
    Some(ObjectHealth::new("Asks", Grade::InSync, whom.to_owned()))
}

/// Names some keys of a source.
pub(super) fn named(keys: &BTreeSet<String>) -> String {
    let noun = if keys.len() == 1 { "key" } else { "keys" };
    format!("{noun} {}", keys.iter().cloned().collect::<Vec<_>>().join(", "))
}

/// The beginning of a digest: enough to tell it from another.
pub(super) fn short(digest: &str) -> String {
    digest.chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use konverge_workload::WorkloadKind;
    use kube::core::ApiResource;

    use super::*;
    use crate::annotations::{IGNORE, ROLL_SELECTOR, ROLL_USERS};

    fn object(resource: &ApiResource, annotations: &[(&str, &str)]) -> DynamicObject {
        let mut object = DynamicObject::new("a", resource);
        let annotations = annotations.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
        object.metadata.annotations = Some(annotations.collect());
        object
    }

    fn record(rolled: Option<Timestamp>) -> String {
        let entry = crate::record::Entry {
            selection: "a".to_owned(),
            content: Content::Digest("0123456789abcdef".to_owned()),
            version: None,
        };
        let because = rolled.map(|_| "Secret/db changed (x)".to_owned());
        let content = [("Secret/db".to_owned(), entry)].into();
        Record { tag: "t".to_owned(), content, rolled, because, also: Vec::new(), failed: None }.text()
    }

    #[test]
    fn what_a_workload_says_of_itself() {
        let (noted, rolled) = (record(None), record(Some(Timestamp::UNIX_EPOCH)));
        let (asks, paused) = ((ON_CHANGE, "true"), (PAUSE, "true"));
        let reloader = ("reloader.stakater.com/auto", "true");
        for (annotations, expected) in [
            (&[][..], None),
            (&[paused], None),
            (&[(RECORD, "{}")], None),
            (&[asks], Some(("Pending", Grade::Waiting))),
            (&[asks, (RECORD, "{}")], Some(("Pending", Grade::Waiting))),
            (&[reloader], Some(("Pending", Grade::Waiting))),
            (&[reloader, (RECORD, &noted)], Some(("Noted", Grade::InSync))),
            (&[asks, (RECORD, &noted)], Some(("Noted", Grade::InSync))),
            // A source asks for it.
            (&[(RECORD, &noted)], Some(("Noted", Grade::InSync))),
            (&[asks, (RECORD, &rolled)], Some(("RolledOut", Grade::InSync))),
            (&[asks, paused, (RECORD, &rolled)], Some(("Paused", Grade::Paused))),
            (&[asks, paused], Some(("Pending", Grade::Waiting))),
            (&[(ON_CHANGE, "db")], Some(("InvalidAnnotation", Grade::Wrong))),
            (&[asks, (PAUSE, "yes"), (RECORD, &rolled)], Some(("InvalidAnnotation", Grade::Wrong))),
            (&[(ON_CHANGE, "false")], Some(("Never", Grade::InSync))),
        ] {
            let found = of_workload(&object(&WorkloadKind::Deployment.resource(), annotations));
            assert_eq!(found.as_ref().map(|found| (&*found.state, found.grade)), expected, "{annotations:?}");
        }
        let failed = serde_json::from_str::<Record>(&rolled).unwrap();
        let failed = Record { failed: Some(Timestamp::UNIX_EPOCH), ..failed }.text();
        for (record, available, expected) in [
            (&rolled, 1, ("RolledOut", Grade::InSync)),
            (&rolled, 0, ("RollingOut", Grade::Waiting)),
            (&failed, 0, ("RolloutFailed", Grade::Wrong)),
        ] {
            let mut object = object(&WorkloadKind::Deployment.resource(), &[asks, (RECORD, record)]);
            let status = serde_json::json!({ "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": available });
            object.data = serde_json::json!({ "spec": { "replicas": 1 }, "status": status });
            let found = of_workload(&object).unwrap();
            assert_eq!((&*found.state, found.grade), expected);
        }
        let whole = of_workload(&object(&WorkloadKind::Deployment.resource(), &[asks, (RECORD, &rolled)])).unwrap();
        assert_eq!(whole.since, Some(Timestamp::UNIX_EPOCH));
        assert_eq!(whole.message.as_deref(), Some("Secret/db changed (x)"));
        let note = Some("digest 0123456789ab".to_owned());
        assert_eq!(whole.paths, [Place { path: "Secret/db".to_owned(), version: None, note }]);
    }

    #[test]
    fn what_a_source_says_of_itself() {
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&());
        for (annotations, expected) in [
            (&[][..], None),
            (&[(ROLL_USERS, "false")], None),
            (&[(ROLL_USERS, "true")], Some(("Asks", Grade::InSync))),
            (&[(ROLL_SELECTOR, "app=web")], Some(("Asks", Grade::InSync))),
            (&[(ROLL_SELECTOR, "app in web")], Some(("InvalidAnnotation", Grade::Wrong))),
            (&[(ROLL_USERS, "true"), (IGNORE, "true")], Some(("Ignored", Grade::InSync))),
        ] {
            let found = of_source(&object(&resource, annotations));
            assert_eq!(found.as_ref().map(|found| (&*found.state, found.grade)), expected, "{annotations:?}");
        }
    }
}
