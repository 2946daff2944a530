//! The crash driver, on an operator that survives every crash and on one that does not.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_testkit::{
    ProcessSpec,
    crash::{CrashError, CrashTest, Fault, Scenario, snapshot},
    fault_proxy::Plan,
};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tower::BoxError;

use crate::fault_proxy::{control_plane, kills::three_config_maps};

/// A user wishes for a colour, for another one, and for nothing.
struct Wishes {
    name: &'static str,
    arguments: &'static [&'static str],
    program: PathBuf,
    steps: usize,
    /// Counts end states, to make each of them different; usually not.
    unsteady: Option<AtomicUsize>,
}

impl Wishes {
    fn new(name: &'static str, arguments: &'static [&'static str], steps: usize) -> Self {
        Self { name, arguments, program: three_config_maps(), steps, unsteady: None }
    }
}

fn maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

impl Scenario for Wishes {
    fn name(&self) -> &str {
        self.name
    }

    fn steps(&self) -> usize {
        self.steps
    }

    fn operator(&self, kubeconfig: &Path, namespace: &str) -> ProcessSpec {
        ProcessSpec::new("wishes", &self.program).arg(kubeconfig).arg(namespace).args(self.arguments)
    }

    async fn change(&self, step: usize, client: &Client, namespace: &str) -> Result<(), BoxError> {
        let maps = maps(client, namespace);
        let Some(colour) = ["blue", "green"].get(step) else {
            maps.delete("wish", &DeleteParams::default()).await?;
            return Ok(());
        };
        let wish = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "wish" }, "data": { "sky": colour } });
        maps.patch("wish", &PatchParams::apply("user"), &Patch::Apply(wish)).await?;
        Ok(())
    }

    async fn is_converged(&self, step: usize, client: &Client, namespace: &str) -> Result<bool, BoxError> {
        let colour = ["blue", "green"].get(step);
        for name in ["one", "two", "three"] {
            let data = maps(client, namespace).get_opt(name).await?.and_then(|copy| copy.data);
            if data.as_ref().and_then(|data| data.get("sky")).map(String::as_str) != colour.copied() {
                return Ok(false);
            }
        }
        let wish = maps(client, namespace).get_opt("wish").await?;
        Ok(!self.arguments.contains(&"careless") || wish.is_some_and(|wish| wish.metadata.annotations.is_some()))
    }

    async fn end_state(&self, client: &Client, namespace: &str) -> Result<Value, BoxError> {
        let mut state = snapshot(client, namespace, &[ApiResource::erase::<ConfigMap>(&())]).await?;
        // The careless operator writes a name into it that the server chose.
        for wish in state["configmaps"].as_array_mut().into_iter().flatten() {
            wish["metadata"].as_object_mut().map(|metadata| metadata.remove("annotations"));
        }
        if let Some(count) = &self.unsteady {
            state["count"] = count.fetch_add(1, Ordering::Relaxed).into();
        }
        Ok(state)
    }
}

async fn test(scenario: &Wishes) -> CrashTest<'_, Wishes> {
    let mut test = CrashTest::new(control_plane().await, scenario);
    test.quiet = Duration::from_millis(150);
    test
}

#[tokio::test]
async fn who_applies_survives_every_crash() {
    let scenario = Wishes::new("applies", &[], 3);
    let report = test(&scenario).await.run().await.unwrap().verdict().unwrap();
    // Three copies are made, changed and deleted.
    assert_eq!((report.writes.len(), report.runs), (9, 27));
    assert_eq!(report.writes[0], "patch configmaps one");
    assert_eq!(report.writes[8], "delete configmaps three");
}

#[tokio::test]
async fn row_38_who_creates_before_it_writes_down_is_found_out() {
    let scenario = Wishes::new("careless", &["careless"], 1);
    let folder = tempfile::tempdir().unwrap();
    let mut test = test(&scenario).await;
    (test.plans, test.at_once) = (folder.path().to_owned(), 4);
    let report = test.run().await.unwrap().verdict().unwrap_err().0;
    // The fourth write is the creation, the fifth its record: between them nobody knows of the copy.
    let found: Vec<_> = report.findings.iter().map(|finding| (finding.point.fault, finding.point.nth)).collect();
    assert_eq!(found, [(Fault::KillBefore, 5), (Fault::KillAfter, 4), (Fault::ReplyLost, 4)], "{report}");
    let said = report.to_string();
    assert!(said.contains("configmaps created 5 times instead of 4") && said.contains("fourth-<generated>"), "{said}");

    let plan = Plan::read(&report.findings[1].plan).unwrap();
    let faults = test.replay(&test.reference().await.unwrap(), &plan).await.unwrap();
    assert_eq!(faults, report.findings[1].faults);
}

#[tokio::test]
async fn what_cannot_be_crashed_is_said() {
    let ends = Wishes { program: "false".into(), ..Wishes::new("ends", &[], 1) };
    let error = test(&ends).await.run().await.unwrap_err();
    assert!(matches!(&error, CrashError::Reference(why) if why.contains("it ended by itself")), "{error}");

    let idle = Wishes::new("idle", &[], 0);
    let error = test(&idle).await.run().await.unwrap_err();
    assert!(matches!(error, CrashError::NoWrites), "{error}");

    let unsteady = Wishes { unsteady: Some(AtomicUsize::default()), ..Wishes::new("unsteady", &[], 1) };
    let error = test(&unsteady).await.run().await.unwrap_err().to_string();
    assert!(error.contains("the end state.count is 1 instead of 0"), "{error}");

    let sleeps = Wishes { program: "tail".into(), arguments: &["-f"], ..Wishes::new("sleeps", &[], 1) };
    let mut test = test(&sleeps).await;
    test.limit = Duration::from_millis(400);
    let error = test.run().await.unwrap_err().to_string();
    assert!(error.contains("it did not converge within 0.4 s after step 0"), "{error}");
}
