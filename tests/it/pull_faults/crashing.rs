//! The operator, crashed at every write, and told nothing of the success of every one (F01, F02; I1, I3, I5, I6).

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Secret;
use konverge_e2e::{Stage, annotated_secret, binary};
use konverge_testkit::{
    ControlPlane, ProcessSpec,
    crash::{CrashTest, Scenario, snapshot},
    free_port,
};
use kube::{
    Api, Client,
    api::{ApiResource, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::shared_stage::on_stage;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Values come, change and go, and the binding does too.
struct Life(&'static Stage);

/// The content of the Secret after each step.
const HELD: [&[(&str, &str)]; 7] = [
    // Bound, changed, a key deleted.
    &[("A", "1"), ("B", "2")],
    &[("A", "3"), ("B", "2")],
    &[("A", "3")],
    // The binding taken away, a value changed that nobody asks for, and the binding put back.
    &[("A", "3")],
    &[("A", "3")],
    &[("A", "4")],
    // The last key deleted.
    &[],
];

impl Scenario for Life {
    fn name(&self) -> &'static str {
        "life"
    }

    fn steps(&self) -> usize {
        HELD.len()
    }

    async fn prepare(&self, _: &ControlPlane, namespace: &str) -> Result<PathBuf> {
        // Named like the namespace, so that it is masked like it.
        self.0.environment(namespace).await?;
        Ok(self.0.operator_kubeconfig().to_owned())
    }

    fn operator(&self, kubeconfig: &Path, namespace: &str) -> ProcessSpec {
        let health = format!("127.0.0.1:{}", free_port().unwrap());
        ProcessSpec::new("operator", binary("zopp-operator").unwrap())
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--credentials")
            .arg(self.0.credentials())
            .args(["--server", &self.0.server.url(), "--namespace", namespace, "--health-addr", &health])
    }

    async fn change(&self, step: usize, client: &Client, namespace: &str) -> Result<()> {
        let (user, environment) = (&self.0.user, format!("acme/backend/{namespace}"));
        match step {
            0 => {
                user.set(&environment, "A", b"1").await?;
                user.set(&environment, "B", b"2").await?;
                apply(client, namespace, &annotated_secret("backend", &environment)).await?;
            }
            1 => user.set(&environment, "A", b"3").await?,
            2 => user.delete(&environment, "B").await?,
            3 => {
                let bare = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "backend" } });
                apply(client, namespace, &bare).await?;
            }
            4 => user.set(&environment, "A", b"4").await?,
            5 => {
                apply(client, namespace, &annotated_secret("backend", &environment)).await?;
            }
            _ => user.delete(&environment, "A").await?,
        }
        Ok(())
    }

    async fn is_converged(&self, step: usize, client: &Client, namespace: &str) -> Result<bool> {
        let secret = Api::<Secret>::namespaced(client.clone(), namespace).get("backend").await?;
        let data = secret.data.unwrap_or_default();
        let held = data.iter().map(|(key, value)| (key.as_str(), value.0.as_slice()));
        Ok(held.eq(HELD[step].iter().map(|(key, value)| (*key, value.as_bytes()))))
    }

    async fn end_state(&self, client: &Client, namespace: &str) -> Result<Value> {
        let mut state = snapshot(client, namespace, &[ApiResource::erase::<Secret>(&())]).await?;
        // The record names the environment by its ID, which differs in each run.
        for secret in state["secrets"].as_array_mut().into_iter().flatten() {
            if let Some(record) = secret.pointer_mut("/metadata/annotations/konverge.dev~1zopp-record") {
                *record = "present".into();
            }
        }
        Ok(state)
    }
}

async fn apply(client: &Client, namespace: &str, secret: &Value) -> Result<()> {
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    secrets.patch("backend", &PatchParams::apply("user").force(), &Patch::Apply(secret)).await?;
    Ok(())
}

#[test]
fn it_survives_a_crash_at_every_write() {
    on_stage(async |stage| {
        let life = Life(stage);
        let test = CrashTest::new(&stage.control_plane, &life);
        let report = test.run().await.unwrap();
        assert!(report.writes.len() >= 5, "each change of what is bound is a write: {:?}", report.writes);
        report.verdict().unwrap();
    });
}
