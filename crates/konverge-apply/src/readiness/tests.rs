use serde_json::json;

use super::*;

/// The expected readiness, and a part of its message.
#[track_caller]
fn check(api_version: &str, kind: &str, content: &Value, expected: &str) {
    let mut object = json!({"apiVersion": api_version, "kind": kind});
    for (name, value) in content.as_object().expect("an object") {
        object[name] = value.clone();
    }
    let found = readiness(Some(&object)).to_string();
    assert!(found == expected || (expected.contains(':') && found.starts_with(expected)), "{found}\n{object:#}");
}

fn conditions(conditions: &[(&str, &str, &str)]) -> Value {
    conditions
        .iter()
        .map(|(name, status, reason)| json!({"type": name, "status": status, "reason": reason, "message": ""}))
        .collect()
}

#[test]
fn what_is_absent_or_going_is_not_current() {
    assert_eq!(readiness(None), Readiness::NotFound);
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    check("v1", "ConfigMap", &going, "being deleted");
}

#[test]
fn others_are_judged_by_generation_and_conditions() {
    let of = |list: &[(&str, &str, &str)]| json!({"status": {"conditions": conditions(list)}});
    check("v1", "ConfigMap", &json!({}), "current");
    check("example.io/v1", "Thing", &json!({"status": "odd"}), "current");
    check("example.io/v1", "Thing", &of(&[("Ready", "True", "Synced")]), "current");
    check("example.io/v1", "Thing", &of(&[("Ready", "False", "Waiting")]), "in progress: Waiting");
    check("example.io/v1", "Thing", &of(&[("Ready", "Unknown", "")]), "in progress: no reason is given");
    check(
        "example.io/v1",
        "Thing",
        &of(&[("Reconciling", "True", "Working"), ("Ready", "True", "")]),
        "in progress: Working",
    );
    check("example.io/v1", "Thing", &of(&[("Reconciling", "True", "R"), ("Stalled", "True", "Bad")]), "failed: Bad");
    check("example.io/v1", "Thing", &of(&[("Stalled", "False", ""), ("Ready", "True", "")]), "current");
    let late = json!({"metadata": {"generation": 3}, "status": {"observedGeneration": 2, "conditions": conditions(&[("Ready", "True", "")])}});
    check("example.io/v1", "Thing", &late, "in progress: generation 3 is not observed yet, only 2");
    // Another group's Deployment is not the one of apps.
    check("example.io/v1", "Deployment", &json!({}), "current");
}

#[test]
fn deployments() {
    let of = |spec: Value, status: Value| json!({"spec": spec, "status": status});
    let available = conditions(&[("Available", "True", "")]);
    let full = json!({"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "readyReplicas": 2, "conditions": available});
    let check = |content: Value, expected: &str| check("apps/v1", "Deployment", &content, expected);
    check(of(json!({"replicas": 2}), full.clone()), "current");
    check(of(json!({"replicas": 3}), full.clone()), "in progress: replicas: 2 of 3");
    check(of(json!({"replicas": 1}), full.clone()), "in progress: 1 replicas too many");
    check(of(json!({}), json!({})), "in progress: replicas: 0 of 1");
    check(of(json!({"replicas": 0}), json!({})), "in progress: not looked at yet");
    check(of(json!({"replicas": 0}), json!({"conditions": available})), "current");
    for (field, words) in [
        ("updatedReplicas", "replicas of the wanted revision: 1 of 2"),
        ("availableReplicas", "available replicas: 1 of 2"),
        ("readyReplicas", "ready replicas: 1 of 2"),
    ] {
        let mut fewer = full.clone();
        fewer[field] = json!(1);
        check(of(json!({"replicas": 2}), fewer), &format!("in progress: {words}"));
    }
    let mut away = full.clone();
    away["conditions"] = conditions(&[("Available", "False", "MinimumReplicasUnavailable")]);
    check(of(json!({"replicas": 2}), away), "in progress: MinimumReplicasUnavailable");
    let mut stuck = full;
    stuck["conditions"] = conditions(&[("Progressing", "False", "ProgressDeadlineExceeded")]);
    check(of(json!({"replicas": 2}), stuck), "failed: ProgressDeadlineExceeded");
}

#[test]
fn replica_sets() {
    let full = json!({"observedGeneration": 1, "replicas": 1, "fullyLabeledReplicas": 1, "availableReplicas": 1, "readyReplicas": 1});
    let check = |spec: Value, status: Value, expected: &str| {
        check("apps/v1", "ReplicaSet", &json!({"spec": spec, "status": status}), expected);
    };
    check(json!({}), full.clone(), "current");
    check(json!({"replicas": 2}), full.clone(), "in progress: replicas: 1 of 2");
    check(json!({"replicas": 0}), full.clone(), "in progress: 1 replicas too many");
    check(json!({"replicas": 0}), json!({}), "in progress: not looked at yet");
    let mut failing = full;
    failing["conditions"] = conditions(&[("ReplicaFailure", "True", "FailedCreate")]);
    check(json!({}), failing, "in progress: FailedCreate");
}

#[test]
fn stateful_sets() {
    let full = json!({"observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "updatedReplicas": 1, "currentRevision": "a", "updateRevision": "a"});
    let check = |spec: Value, status: Value, expected: &str| {
        check("apps/v1", "StatefulSet", &json!({"spec": spec, "status": status}), expected);
    };
    let partition = |number: i64| json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": number}}});
    check(json!({"replicas": 3}), full.clone(), "current");
    check(json!({"replicas": 4}), full.clone(), "in progress: replicas: 3 of 4");
    check(json!({"replicas": 2}), full.clone(), "in progress: 1 replicas too many");
    check(json!({"replicas": 3}), json!({}), "in progress: not looked at yet");
    check(json!({"updateStrategy": {"type": "OnDelete"}}), json!({}), "current");
    check(partition(2), full.clone(), "current");
    check(partition(1), full.clone(), "in progress: replicas of the wanted revision: 1 of 2");
    let mut rolling = full;
    rolling["updateRevision"] = json!("b");
    check(partition(0), rolling, "in progress: replicas of the wanted revision are on their way");
}

#[test]
fn daemon_sets() {
    let full = json!({
        "observedGeneration": 1, "desiredNumberScheduled": 2, "currentNumberScheduled": 2, "updatedNumberScheduled": 2,
        "numberAvailable": 2, "numberReady": 2
    });
    let check = |spec: Value, status: Value, expected: &str| {
        check("apps/v1", "DaemonSet", &json!({"spec": spec, "status": status}), expected);
    };
    check(json!({}), full.clone(), "current");
    check(json!({}), json!({}), "in progress: not looked at yet");
    check(json!({}), json!({"observedGeneration": 1}), "current");
    for (field, words) in [
        ("currentNumberScheduled", "scheduled pods: 1 of 2"),
        ("updatedNumberScheduled", "pods of the wanted revision: 1 of 2"),
        ("numberAvailable", "available pods: 1 of 2"),
        ("numberReady", "ready pods: 1 of 2"),
    ] {
        let mut fewer = full.clone();
        fewer[field] = json!(1);
        check(json!({}), fewer, &format!("in progress: {words}"));
    }
    let mut old = full;
    old["updatedNumberScheduled"] = json!(0);
    check(json!({"updateStrategy": {"type": "OnDelete"}}), old, "current");
}

#[test]
fn jobs() {
    let check = |status: Value, expected: &str| check("batch/v1", "Job", &json!({"status": status}), expected);
    check(json!({}), "in progress: the job has not started");
    check(json!({"startTime": "2026-01-01T00:00:00Z"}), "current");
    check(json!({"conditions": conditions(&[("Complete", "True", "")])}), "current");
    check(
        json!({"conditions": conditions(&[("Failed", "True", "BackoffLimitExceeded")])}),
        "failed: BackoffLimitExceeded",
    );
    check(
        json!({"conditions": conditions(&[("FailureTarget", "True", "PodFailurePolicy")])}),
        "failed: PodFailurePolicy",
    );
    check(json!({"conditions": conditions(&[("Suspended", "True", "JobSuspended")])}), "in progress: JobSuspended");
    super::tests::check("batch/v1", "CronJob", &json!({}), "current");
}

#[test]
fn pods() {
    let check = |status: Value, expected: &str| check("v1", "Pod", &json!({"status": status}), expected);
    let waiting = |reason: &str| json!([{"name": "web", "state": {"waiting": {"reason": reason}}}]);
    let unready = conditions(&[("Ready", "False", "ContainersNotReady")]);
    check(json!({}), "in progress: pending");
    check(
        json!({"phase": "Pending", "conditions": conditions(&[("PodScheduled", "False", "Unschedulable")])}),
        "in progress: Unschedulable",
    );
    check(
        json!({"phase": "Pending", "conditions": conditions(&[("PodScheduled", "True", "")])}),
        "in progress: pending",
    );
    check(json!({"phase": "Succeeded"}), "current");
    check(json!({"phase": "Failed"}), "failed: a container failed");
    check(json!({"phase": "Failed", "reason": "Evicted", "message": "no room"}), "failed: Evicted: no room");
    check(json!({"phase": "Running", "conditions": conditions(&[("Ready", "True", "")])}), "current");
    check(json!({"phase": "Running", "conditions": conditions(&[("Ready", "False", "PodCompleted")])}), "current");
    check(json!({"phase": "Running", "conditions": unready}), "in progress: ContainersNotReady");
    check(json!({"phase": "Running"}), "in progress: not ready");
    check(
        json!({"phase": "Running", "conditions": unready, "containerStatuses": waiting("CrashLoopBackOff")}),
        "failed: container web",
    );
    check(
        json!({"phase": "Running", "conditions": unready, "initContainerStatuses": waiting("CrashLoopBackOff")}),
        "failed: container web",
    );
    check(
        json!({"phase": "Running", "conditions": unready, "containerStatuses": waiting("ImagePullBackOff")}),
        "in progress: ContainersNotReady",
    );
}

#[test]
fn claims_services_and_definitions() {
    let claim =
        |status: Value, expected: &str| check("v1", "PersistentVolumeClaim", &json!({"status": status}), expected);
    claim(json!({"phase": "Bound"}), "current");
    claim(json!({"phase": "Pending"}), "in progress: the claim is not bound: Pending");
    claim(json!({}), "in progress: the claim is not bound: not looked at yet");
    claim(json!({"phase": "Lost"}), "failed: the volume is lost");
    let service = |content: Value, expected: &str| check("v1", "Service", &content, expected);
    service(json!({"spec": {"type": "ClusterIP"}}), "current");
    service(json!({"spec": {"type": "LoadBalancer"}}), "in progress: the load balancer has no address yet");
    service(
        json!({"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": []}}}),
        "in progress: the load",
    );
    service(
        json!({"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}}),
        "current",
    );
    let definition = |list: &[(&str, &str, &str)], expected: &str| {
        let content = json!({"status": {"conditions": conditions(list)}});
        check("apiextensions.k8s.io/v1", "CustomResourceDefinition", &content, expected);
    };
    definition(&[], "in progress: the kind is not served yet");
    definition(&[("Established", "True", "")], "current");
    definition(&[("Established", "False", "Installing")], "in progress: the kind is not served yet");
    definition(&[("Established", "False", "NotAccepted")], "failed: NotAccepted");
    definition(&[("NamesAccepted", "False", "MultipleNamesNotAllowed")], "failed: MultipleNamesNotAllowed");
}
