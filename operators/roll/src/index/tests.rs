mod bad_sources;
mod classes;
mod outcomes;
mod records;
mod reverted_records;
mod sources;
mod template_refs;
mod triggers;
mod unacknowledged;
mod waiting;
mod waves;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::{
    annotations::{IGNORE, ON_CHANGE, RECORD, ROLL_SELECTOR, ROLL_USERS},
    messages,
    plan::{Deferral, Verdict},
    trigger_status::TargetState,
};

const BREAKER: breaker::Settings =
    breaker::Settings { changes: 3, within: SignedDuration::from_secs(60), quiet: SignedDuration::from_secs(60) };

fn index() -> Index {
    Index::new(Others::default(), breaker::Settings { changes: 0, ..BREAKER })
}

/// One for which three changes within a minute are too many.
fn wary() -> Index {
    Index::new(Others::default(), BREAKER)
}

fn now() -> Time {
    Time::at(1000)
}

fn digester() -> Digester {
    Digester::new([7; 32])
}

fn key(name: &str) -> WorkloadRef {
    WorkloadRef { namespace: "shop".to_owned(), kind: WorkloadKind::Deployment, name: name.to_owned() }
}

fn secret(name: &str) -> SourceRef {
    SourceName::secret(name).of("shop")
}

/// A Deployment whose pods use these Secrets.
fn workload(name: &str, version: u64, annotations: &Value, secrets: &[&str]) -> Workload {
    let sources: Vec<_> = secrets.iter().map(|name| json!({ "secretRef": { "name": name } })).collect();
    let object = json!({
        "metadata": {
            "namespace": "shop", "name": name, "uid": format!("uid of {name}"), "resourceVersion": version.to_string(),
            "labels": { "app": name }, "annotations": annotations,
        },
        "spec": { "template": { "spec": { "containers": [{ "envFrom": sources }] } } },
    });
    serde_json::from_value(object).unwrap()
}

fn show(index: &Index, name: &str, annotations: &Value, secrets: &[&str]) -> (Vec<String>, Vec<String>) {
    shown(
        index.apply_workload(Shows::Event, WorkloadKind::Deployment, workload(name, 1, annotations, secrets), now()).1,
    )
}

fn show_secret(index: &Index, name: &str, version: &str, annotations: &Value) -> (Vec<String>, Vec<String>) {
    let metadata = json!({
        "namespace": "shop", "name": name, "uid": "s", "resourceVersion": version, "annotations": annotations,
    });
    let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
    shown(index.apply_source(SourceKind::Secret, metadata).1)
}

fn shown(work: Work) -> (Vec<String>, Vec<String>) {
    let workloads = work.workloads.into_iter().map(|key| key.name).collect();
    (workloads, work.sources.into_iter().map(|source| source.name.name).collect())
}

fn learn(index: &Index, name: &str, version: &str, value: &str) -> (Vec<String>, bool) {
    index.reading(&secret(name));
    answered(index, name, version, value)
}

/// The answer to a read that began before.
fn answered(index: &Index, name: &str, version: &str, value: &str) -> (Vec<String>, bool) {
    let content = digester().of_content([("k", value.as_bytes())]);
    let learned = index.learn(&secret(name), Some(version.to_owned()), Some(content), now());
    (learned.users.into_iter().map(|key| key.name).collect(), learned.ran_away.is_some())
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn who_takes_no_part_leaves_no_trace() {
    let index = index();
    assert_eq!(show(&index, "web", &json!({}), &["db"]), (vec![], vec![]));
    assert_eq!(show_secret(&index, "db", "1", &json!({ "example.com/x": "y" })), (vec![], vec![]));
    assert!(index.view(&key("web"), &digester(), now()).is_none());
    let inner = index.lock();
    assert!(inner.sources.is_empty());
}

#[test]
fn a_workload_is_read_for_once_and_woken_by_other_content_alone() {
    let index = index();
    let all = json!({ ON_CHANGE: "true" });
    assert_eq!(show(&index, "web", &all, &["db"]), (strings(&["web"]), strings(&["db"])));
    assert_eq!(index.view(&key("web"), &digester(), now()).unwrap().plan.verdict().cloned(), None, "not read yet");
    assert_eq!(show(&index, "web", &all, &["db"]).1, ["db"], "asked for until it was read");
    assert_eq!(learn(&index, "db", "5", "x"), (strings(&["web"]), false));
    assert_eq!(show(&index, "web", &all, &["db"]).1, [""; 0]);
    assert_eq!(show(&index, "cart", &all, &["db"]), (strings(&["cart"]), strings(&["db"])), "it came after the read");
    assert_eq!(
        index.view(&key("cart"), &digester(), now()).unwrap().plan.verdict().cloned(),
        None,
        "what was read may be outdated"
    );
    assert_eq!(answered(&index, "db", "5", "x"), (vec![], false), "it may have come after that, too");
    assert_eq!(learn(&index, "db", "5", "x"), (strings(&["cart", "web"]), false));
    assert_eq!(show(&index, "cart", &all, &["db"]).1, [""; 0]);
    assert_eq!(show_secret(&index, "db", "5", &json!({})), (vec![], vec![]), "in that version");
    assert_eq!(show_secret(&index, "db", "6", &json!({})), (vec![], strings(&["db"])));
    assert_eq!(learn(&index, "db", "6", "x"), (vec![], false), "only its metadata changed");
    assert_eq!(learn(&index, "db", "7", "y"), (strings(&["cart", "web"]), false));
    assert!(matches!(
        index.view(&key("web"), &digester(), now()).unwrap().plan.verdict().cloned(),
        Some(Verdict::Note(_))
    ));
}

#[test]
fn a_source_asks_for_its_users_and_for_labels_whichever_comes_first() {
    for first in [true, false] {
        let index = index();
        let spec = json!({ ROLL_USERS: "true", ROLL_SELECTOR: "app=chosen" });
        if first {
            show_secret(&index, "db", "1", &spec);
        }
        show(&index, "web", &json!({}), &["db"]);
        show(&index, "chosen", &json!({}), &[]);
        show(&index, "left-alone", &json!({ ON_CHANGE: "false" }), &["db"]);
        show(&index, "other", &json!({}), &["api"]);
        if !first {
            assert_eq!(show_secret(&index, "db", "1", &spec), (strings(&["chosen", "web"]), strings(&["db"])));
        }
        assert_eq!(index.counts(), (2, 1));
        // It asks no more.
        show_secret(&index, "db", "2", &json!({}));
        assert_eq!(index.counts(), (0, 0));
        assert!(index.lock().sources.is_empty(), "and is forgotten");
    }
}

#[test]
fn what_is_gone_is_forgotten_and_another_of_its_name_is_another() {
    let index = index();
    let all = json!({ ON_CHANGE: "true" });
    show(&index, "web", &all, &["db"]);
    learn(&index, "db", "1", "x");
    let mut other = workload("web", 2, &all, &["db"]);
    other.metadata.uid = Some("other".to_owned());
    index.apply_workload(Shows::Event, WorkloadKind::Deployment, other, now());
    assert_eq!(index.view(&key("web"), &digester(), now()).unwrap().uid(), "other");
    let (gone, _) = index.retain(WorkloadKind::Deployment, &HashSet::new());
    assert_eq!(gone, [key("web")]);
    let inner = index.lock();
    assert!(inner.workloads.is_empty() && inner.sources.is_empty() && !inner.sources.has_named());
}

/// The text of a record that says that the pods run with this value of `db`.
fn record_of(value: &str) -> String {
    let elsewhere = index();
    show(&elsewhere, "web", &json!({ ON_CHANGE: "true" }), &["db"]);
    learn(&elsewhere, "db", "1", value);
    let view = elsewhere.view(&key("web"), &digester(), now()).unwrap();
    let Some(Verdict::Note(content)) = view.plan.verdict().cloned() else {
        panic!("{:?}", view.plan.verdict().cloned())
    };
    Record::of_content(digester().tag(view.uid()), content, None).text()
}

#[test]
fn one_that_takes_no_part_any_more_is_looked_at_once_more() {
    let index = index();
    let woken = |version, annotations: &Value| {
        let (_, work) = index.apply_workload(
            Shows::Event,
            WorkloadKind::Deployment,
            workload("web", version, annotations, &["db"]),
            now(),
        );
        shown(work).0
    };
    assert_eq!(woken(1, &json!({ ON_CHANGE: "true" })), ["web"]);
    assert_eq!(woken(2, &json!({})), ["web"], "it may have to leave a place");
    assert_eq!(woken(3, &json!({})), [""; 0]);
}

#[test]
fn one_that_left_waits_no_more() {
    let index = index();
    show(&index, "web", &json!({ ON_CHANGE: "true" }), &["db"]);
    index.wait(&key("web"), "uid of web", Some((now(), None)));
    assert_eq!(index.waiting(), (Some(now()), 1));
    index.apply_workload(Shows::Event, WorkloadKind::Deployment, workload("web", 2, &json!({}), &["db"]), now());
    index.opt_out(&key("web"));
    assert_eq!(index.waiting(), (None, 0));
}
