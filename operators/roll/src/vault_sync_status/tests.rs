use std::time::Duration;

use konverge_runtime::watch::Guarded;
use serde_json::{Value, json};

use super::*;
use crate::{
    object::SourceKind,
    reasons,
    trigger::WatchedTrigger,
    vault::{Version, location},
};

const SETTINGS: Settings =
    Settings { every: Duration::from_mins(1), restart_on_first_seen: false, allow_path: Vec::new() };

fn read(object: &Value, settings: &Settings) -> WatchedTrigger {
    let object: Guarded<VaultSyncStatus> = serde_json::from_value(object.clone()).unwrap();
    convert::watched(object, settings).unwrap().1
}

fn object(spec: &Value) -> Value {
    json!({
        "apiVersion": "stable.example.com/v1", "kind": "VaultSyncStatus",
        "metadata": { "namespace": "shop", "name": "web", "uid": "u", "generation": 1, "resourceVersion": "1" },
        "spec": spec,
    })
}

fn sample() -> Value {
    json!({
        "deployName": "web", "deployNamespace": "shop", "secretEngine": "secret", "secretPath": "app/db",
        "timeStamp": "0000-00-00T00:00:00.000000000Z",
    })
}

fn asked(spec: &Value) -> Result<Arc<TriggerSpec>, Arc<str>> {
    read(&object(spec), &SETTINGS).spec.map_err(|refusal| refusal.text)
}

fn with(field: &str, value: Value) -> Value {
    let mut spec = sample();
    spec[field] = value;
    spec
}

#[test]
fn the_originals_sample_is_understood() {
    let spec = asked(&sample()).unwrap();
    let targets: Vec<_> = spec.targets.iter().map(ToString::to_string).collect();
    assert_eq!(targets, ["Deployment shop/web"]);
    let sources: Vec<_> = spec.sources.keys().map(|source| location(source).unwrap().to_string()).collect();
    assert_eq!(sources, ["secret/data/app/db"]);
    assert_eq!((spec.before, spec.every), (Before::Adopted, SETTINGS.every));
    assert!(spec.notes.is_empty());
}

#[test]
fn a18_what_is_missing_or_wrong_is_named() {
    let null = || Value::Null;
    for (field, value, part) in [
        ("deployName", null(), "spec.deployName is missing"),
        ("deployName", json!(" "), "spec.deployName is missing"),
        ("deployNamespace", null(), "spec.deployNamespace is missing"),
        ("secretEngine", null(), "spec.secretEngine is missing"),
        ("secretPath", json!(""), "spec.secretPath is missing"),
        ("deployName", json!("Web"), "spec.deployName"),
        ("deployNamespace", json!("a/b"), "spec.deployNamespace"),
        ("secretPath", json!("../../sys/raw"), "`..`"),
        ("secretPath", json!("a//b"), "empty segment"),
        ("secretEngine", json!("sys"), "nothing beneath sys"),
        ("deployKind", json!("Job"), "spec.deployKind"),
        ("mode", json!("loud"), "spec.mode"),
        ("keys", json!(["a"]), "spec.keys"),
        ("engineVersion", json!(3), "spec.engineVersion"),
        ("interval", json!("0s"), "spec.interval"),
        ("interval", json!("soon"), "spec.interval"),
    ] {
        let cause = asked(&with(field, value.clone())).unwrap_err();
        assert!(cause.contains(part), "{field} {value}: {cause}");
    }
    let mut bare = object(&sample());
    bare.as_object_mut().unwrap().remove("spec");
    assert!(read(&bare, &SETTINGS).spec.is_err(), "no spec at all");
    assert!(asked(&with("deployName", json!(5))).is_err(), "not decodable, and there all the same");
}

#[test]
fn the_extension_fields() {
    let kind = |spec: &TriggerSpec| spec.sources.keys().map(|source| source.kind).collect::<Vec<_>>();
    assert_eq!(kind(&asked(&with("mode", json!("content"))).unwrap()), [SourceKind::VaultContent]);
    assert_eq!(kind(&asked(&with("mode", json!("version"))).unwrap()), [SourceKind::Vault]);
    assert_eq!(kind(&asked(&with("engineVersion", json!(1))).unwrap()), [SourceKind::VaultV1]);
    let mut spec = with("mode", json!("content"));
    spec["keys"] = json!(["a", "b"]);
    let spec = asked(&spec).unwrap();
    assert!(spec.sources.values().all(|keys| keys.contains("a") && !keys.contains("c")));
    assert_eq!(asked(&with("interval", json!("90s"))).unwrap().every, Duration::from_secs(90));
    let spec = asked(&with("deployKind", json!("StatefulSet"))).unwrap();
    assert_eq!(spec.targets.first().unwrap().kind, WorkloadKind::StatefulSet);
}

#[test]
fn what_the_original_and_kopf_leave_is_seen_and_the_rest_is_not_touched() {
    let mut object = object(&sample());
    object["metadata"]["finalizers"] = json!([KOPF_FINALIZER, "other/finalizer"]);
    object["metadata"]["annotations"] = json!({ "kopf.zalando.org/last-handled-configuration": "{}", "a": "b" });
    object["status"] = json!({ "vault_sync": { "SyncStatus": "Synced" }, "kopf": { "progress": {} } });
    let shown = read(&object, &SETTINGS);
    assert_eq!(shown.leftovers.finalizers, [KOPF_FINALIZER]);
    assert_eq!(shown.leftovers.annotations, ["kopf.zalando.org/last-handled-configuration"]);
    assert_eq!(shown.status.vault_sync.as_ref().unwrap().sync_status, "Synced");
}

#[test]
fn a_status_that_came_along_with_a_copy_counts_for_nothing() {
    let mut object = object(&sample());
    object["status"] = json!({ "uid": "other", "baseline": [{ "workload": "w" }] });
    assert_eq!(*read(&object, &SETTINGS).status, Status::default());
}

/// Pods of which nothing is recorded: whether what is in Vault is news to them.
#[test]
fn a17_what_pods_are_taken_to_run_with() {
    let now = Version { number: 3, created: "2026-01-02T00:00:00.5Z".to_owned() };
    let noted = |version: u64, created: &str, uid: &str| {
        json!([{
            "workload": "Deployment shop/web", "uid": uid, "source": "Vault/secret:app/db", "version": version,
            "created": created,
        }])
    };
    let first_seen = Settings { restart_on_first_seen: true, ..SETTINGS };
    let same = noted(3, "2026-01-02T00:00:00.5Z", "w");
    let mut of_other = same.clone();
    of_other[0]["workload"] = json!("Deployment shop/before");
    for (what, time, baseline, settings, expected) in [
        ("the dummy", "0000-00-00T00:00:00.000000000Z", None, &SETTINGS, false),
        ("the dummy, as with the original", "0000-00-00T00:00:00.000000000Z", None, &first_seen, true),
        ("nothing", "", None, &SETTINGS, false),
        ("no time", "yesterday", None, &first_seen, false),
        ("the same", "2026-01-02T00:00:00.500000000Z", None, &SETTINGS, false),
        ("older", "2026-01-01T00:00:00Z", None, &SETTINGS, true),
        ("newer, after an edit of metadata", "2026-01-03T00:00:00Z", None, &SETTINGS, false),
        ("set back by somebody, and noted", "2026-01-01T00:00:00Z", Some(same.clone()), &SETTINGS, false),
        ("noted, as with the original", "0000-00-00T00:00:00Z", Some(same), &first_seen, false),
        ("noted, and changed", "", Some(noted(2, "2026-01-01T00:00:00Z", "w")), &SETTINGS, true),
        ("made again as the same number", "", Some(noted(3, "2026-01-01T00:00:00Z", "w")), &SETTINGS, true),
        ("noted of another workload", "", Some(noted(2, "2026-01-01T00:00:00Z", "x")), &first_seen, false),
        ("an old time, and another target since", "2026-01-01T00:00:00Z", Some(of_other.clone()), &SETTINGS, false),
        ("another target since, as with the original", "", Some(of_other), &first_seen, false),
    ] {
        let mut object = object(&with("timeStamp", json!(time)));
        if let Some(baseline) = baseline {
            object["status"] = json!({ "uid": "u", "baseline": baseline });
        }
        let shown = read(&object, settings);
        let spec = shown.spec.clone().unwrap();
        let (target, source) = (spec.targets.first().unwrap(), spec.sources.keys().next().unwrap());
        assert_eq!(shown.is_news(target, "w", source, &now), expected, "{what}");
        assert_eq!(spec.notes.is_empty(), time != "yesterday", "{what}");
    }
}

#[test]
fn which_secrets_may_be_named_is_up_to_the_platform() {
    let rule = |text: &str| vec![text.parse().unwrap()];
    for (what, rules, path, version, is_allowed) in [
        ("no rule", Vec::new(), "app/db", 2, true),
        ("its own folder", rule("*=secret/data/{namespace}/*"), "shop/db", 2, true),
        ("another's folder", rule("*=secret/data/{namespace}/*"), "app/db", 2, false),
        ("by its name", rule("*=secret/data/{name}"), "web", 2, true),
        ("a rule of another namespace", rule("other=secret/data/app/*"), "app/db", 2, false),
        ("an engine without versions", rule("shop=secret/app/*"), "app/db", 1, true),
        ("with versions it is elsewhere", rule("shop=secret/app/*"), "app/db", 2, false),
    ] {
        let mut spec = with("secretPath", json!(path));
        spec["engineVersion"] = version.into();
        let spec = read(&object(&spec), &Settings { allow_path: rules, ..SETTINGS }).spec;
        assert_eq!(spec.is_ok(), is_allowed, "{what}");
        if let Err(refusal) = spec {
            assert_eq!(refusal.reason, reasons::PATH_NOT_ALLOWED, "{what}");
            assert!(refusal.text.contains("shop=secret/data/app/db would"), "{}", refusal.text);
        }
    }
    // An invalid spec stays invalid.
    let settings = Settings { allow_path: rule("a=b"), ..SETTINGS };
    let shown = read(&object(&with("deployName", Value::Null)), &settings);
    assert_eq!(shown.spec.unwrap_err().reason, reasons::INVALID_SPEC);
}
