use super::*;

const ROLLOUT: WorkloadKind = WorkloadKind::Rollout;

/// A Rollout that runs this many pods of the template of a Deployment.
fn rollout(of: &str, replicas: u32, annotations: &Value) -> Workload {
    let named = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": of });
    let metadata = json!({ "namespace": "shop", "name": "canary", "uid": "r", "annotations": annotations });
    serde_json::from_value(json!({ "metadata": metadata, "spec": { "replicas": replicas, "workloadRef": named } }))
        .unwrap()
}

/// A Deployment with a template and without pods.
fn template_owner(name: &str) -> Workload {
    let object = workload(name, 1, &json!({ ON_CHANGE: "true" }), &["db"]);
    let rollout = konverge_workload::Rollout { empty: true, ..konverge_workload::Rollout::SETTLED };
    Workload { rollout, ..object }
}

#[test]
fn the_deployment_whose_template_it_is_stands_as_the_rollout_does() {
    for rollout_first in [true, false] {
        let index = index();
        let show = |kind, workload| shown(index.apply_workload(Shows::Event, kind, workload, now()).1).0;
        let is_empty = || index.view(&key("web"), &digester(), now()).unwrap().snapshot.pods.rollout.empty;
        if rollout_first {
            show(ROLLOUT, rollout("web", 1, &json!({})));
            show(WorkloadKind::Deployment, template_owner("web"));
        } else {
            show(WorkloadKind::Deployment, template_owner("web"));
            assert!(is_empty(), "nobody runs it");
            assert_eq!(show(ROLLOUT, rollout("web", 1, &json!({}))), ["web"], "it is looked at again");
        }
        assert!(!is_empty(), "{rollout_first}");
        show(ROLLOUT, rollout("web", 0, &json!({})));
        assert!(is_empty(), "nor has the Rollout any pods");
        show(ROLLOUT, rollout("other", 1, &json!({})));
        assert!(is_empty(), "it runs another's");
        show(ROLLOUT, rollout("web", 1, &json!({})));
        let canary = WorkloadRef { namespace: "shop".to_owned(), kind: ROLLOUT, name: "canary".to_owned() };
        assert!(index.forget(&canary).workloads.contains(&key("web")));
        assert!(is_empty() && !index.lock().workloads.has_template_refs(), "it is gone");
    }
}

#[test]
fn a_rollout_without_a_template_is_rolled_for_nothing_and_says_so_if_it_asks() {
    let index = index();
    let canary = WorkloadRef { namespace: "shop".to_owned(), kind: ROLLOUT, name: "canary".to_owned() };
    let view = || index.view(&canary, &digester(), now());
    drop(index.apply_workload(Shows::Event, ROLLOUT, rollout("web", 1, &json!({})), now()));
    assert!(view().is_none(), "it asks for nothing");
    for spec in ["true", "secret/db"] {
        let work = index.apply_workload(Shows::Event, ROLLOUT, rollout("web", 1, &json!({ ON_CHANGE: spec })), now()).1;
        assert!(work.workloads.contains(&canary), "{spec}");
        let view = view().unwrap();
        assert_eq!(
            (view.uses().len(), view.observed().template_of.clone().unwrap().name),
            (0, "web".to_owned()),
            "{spec}"
        );
    }
}
