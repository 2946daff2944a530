//! The chart of a program, as Helm renders it.

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, Output},
};

use k8s_openapi::api::core::v1::{Namespace, Pod};
use konverge::{Controller, Operator, generate::Files};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    helm::helm,
    stage::{Place, Prober, control_plane},
    versions,
};

/// A chart in a folder that is deleted at the end.
struct Written(tempfile::TempDir);

impl Written {
    fn new(program: &Operator) -> Self {
        let folder = tempfile::tempdir().unwrap();
        program.helm_chart().unwrap().write(folder.path()).unwrap();
        Self(folder)
    }

    fn run(&self, before: &[&str], after: &[&str]) -> Output {
        let home = self.0.path().join(".helm");
        let mut helm = Command::new(helm().unwrap());
        helm.args(before).arg(self.0.path()).args(after);
        // Settings of the person who tests do not count.
        helm.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin");
        helm.output().unwrap()
    }

    fn rendered(&self, values: &[&str]) -> Vec<Value> {
        let values: Vec<_> = values.iter().flat_map(|value| ["--set", value]).collect();
        let options = [&["--namespace", "home", "--include-crds"], &values[..]].concat();
        let output = self.run(&["template", "release"], &options);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let documents: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap();
        documents.into_iter().filter(|document| !document.is_null()).collect()
    }
}

fn plain_program() -> Operator {
    Operator::new("konverge-charting", "0.1.0").controller(Controller::new(Prober::default()))
}

type Named = BTreeMap<(String, String), Value>;

fn named(objects: Vec<Value>) -> Named {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    objects.into_iter().map(|object| ((text(&object["kind"]), text(&object["metadata"]["name"])), object)).collect()
}

/// All objects of the plain manifests, also those that only some clusters take.
fn plain_objects(files: &Files) -> Named {
    let manifests = [files.manifest(), files.get("alerts.yaml").unwrap().to_owned()];
    named(manifests.iter().flat_map(|text| serde_saphyr::from_multiple::<Value>(text).unwrap()).collect())
}

fn kinds_and_names(objects: &Named) -> Vec<(&str, &str)> {
    objects.keys().map(|(kind, name)| (kind.as_str(), name.as_str())).collect()
}

#[test]
fn a_rendered_chart_is_the_plain_manifests_and_what_runs_the_program() {
    for program in [plain_program(), versions::program()] {
        let chart = Written::new(&program);
        let mut rendered = named(chart.rendered(&["alerts.enabled=true", "serviceMonitor.enabled=true"]));
        for (name, plain) in plain_objects(&program.generate("home").unwrap()) {
            let mut object = rendered.remove(&name).unwrap_or_else(|| panic!("the chart lacks {name:?}"));
            if name.0 == "CustomResourceDefinition"
                && let Some(metadata) = object["metadata"].as_object_mut()
                && plain["metadata"]["annotations"].is_null()
            {
                metadata.remove("annotations");
            }
            assert_eq!(object, plain, "{name:?}");
        }
        let name = rendered.keys().find(|(kind, _)| kind == "Deployment").unwrap().1.clone();
        let metrics = format!("{name}-metrics");
        let expected = [
            ("Deployment", name.as_str()),
            ("PodDisruptionBudget", &name),
            ("Service", &metrics),
            ("ServiceMonitor", &name),
        ];
        assert_eq!(kinds_and_names(&rendered), expected);
    }
}

#[test]
fn switches_and_values_are_heeded_and_unknown_ones_refused() {
    let chart = Written::new(&plain_program());
    let rendered = named(chart.rendered(&["replicas=1"]));
    let kinds: Vec<_> = rendered.keys().map(|(kind, _)| kind.as_str()).collect();
    assert!(!kinds.contains(&"PodDisruptionBudget"), "a budget would keep the only replica's node: {kinds:?}");
    assert!(!kinds.contains(&"ServiceMonitor") && !kinds.contains(&"PrometheusRule"), "{kinds:?}");

    let digest = format!("image.digest=sha256:{}", "0".repeat(64));
    let rendered = chart.rendered(&["replicas=3", "args={--dry-run,--namespace=a}", &digest, "podLabels.team=one"]);
    let deployment = rendered.into_iter().find(|object| object["kind"] == "Deployment").unwrap();
    assert_eq!(deployment["spec"]["replicas"], 3);
    let template = &deployment["spec"]["template"];
    assert_eq!(template["metadata"]["labels"], json!({ "app.kubernetes.io/name": "konverge-charting", "team": "one" }));
    let container = &template["spec"]["containers"][0];
    assert_eq!(container["args"], json!(["--leader-election", "--log-format=json", "--dry-run", "--namespace=a"]));
    assert_eq!(container["image"], format!("konverge-charting@sha256:{}", "0".repeat(64)));

    let refused = chart.run(&["template", "release"], &["--set", "replcas=3"]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("replcas"), "{why}");
}

#[test]
fn helm_finds_no_fault_with_a_chart() {
    let output = Written::new(&plain_program()).run(&["lint", "--strict"], &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_the_chart_is_let_into_a_restricted_namespace() {
    let (place, cluster) = (Place::new().await, control_plane().await);
    let chart = Written::new(&plain_program());
    let rendered = chart.rendered(&[]);
    let template = rendered.iter().find(|object| object["kind"] == "Deployment").unwrap()["spec"]["template"].clone();
    let mut pod: Pod = serde_json::from_value(template).unwrap();
    pod.metadata.generate_name = Some("konverge-charting-".to_owned());
    let account = plain_program().generate(&place.namespace).unwrap().manifest();
    cluster.apply(&account).await.unwrap();
    let restricted = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let namespaces = Api::<Namespace>::all(place.client.clone());
    namespaces.patch(&place.namespace, &PatchParams::default(), &Patch::Merge(restricted)).await.unwrap();

    let pods = place.api::<Pod>();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    // The API server does look: without its security context, the same pod is refused.
    pod.spec.as_mut().unwrap().containers[0].security_context = None;
    let refused = pods.create(&PostParams::default(), &pod).await.unwrap_err().to_string();
    assert!(refused.contains("violates PodSecurity \"restricted"), "{refused}");
}

#[test]
fn the_chart_that_is_committed_is_what_the_code_says_where_it_is_checked() {
    let (program, folder) = (plain_program(), tempfile::tempdir().unwrap());
    let folder = folder.path().to_str().unwrap();
    let generate = |more: &[&str]| {
        let arguments = [&["konverge-charting", "generate", "--helm", "--into", folder], more].concat();
        format!("{:?}", plain_program().main_with(arguments))
    };
    let success = format!("{:?}", std::process::ExitCode::SUCCESS);
    assert_ne!(generate(&["--check"]), success, "nothing is there yet");
    assert_eq!(generate(&[]), success);
    assert_eq!(generate(&["--check"]), success);
    program.helm_chart().unwrap().check(Path::new(folder)).unwrap();
}
