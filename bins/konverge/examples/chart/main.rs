//! Writes the generated files of the chart `deploy/charts/konverge`: its roles, its custom resource definitions, its alerts and
//! dashboards, and the schema of its values. With `--check` it writes nothing, and fails if a file differs. `cargo xtask generate` runs it.

#[expect(dead_code, reason = "its table of metrics is for the reference pages")]
mod manage;
mod rules;
mod schema;
mod uses;
#[expect(dead_code, reason = "its tables are for the reference pages")]
mod watched;

use std::{error::Error, fs};

use clap::Parser;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_gen::{Files, files::Destination, remove_unknown_formats};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let destination = Destination::parse();
    let values: Value = serde_saphyr::from_str(&fs::read_to_string(destination.into.join("values.yaml"))?)?;
    let mut files = Files::default();
    files.objects("Chart.yaml", &[about()])?;
    files.text("templates/_rules.tpl", rules::template()?);
    files.text("values.schema.json", schema::of(&values)?);
    for (name, definition) in [
        ("vaultpushes", konverge_push::vault_push::definition()),
        ("vaultrollouts", konverge_roll::vault_rollout::definition()),
        ("vaultsyncstatus", konverge_roll::vault_sync_status::definition()),
    ] {
        files.objects(format!("files/crds/{name}.yaml"), &[applicable(definition)])?;
    }
    for (name, definition) in konverge_pull::objects::definitions() {
        files.objects(format!("files/crds/{name}.yaml"), &[applicable(definition)])?;
    }
    for definition in konverge_manage::api::definitions() {
        let name = definition.spec.names.plural.clone();
        files.objects(format!("files/crds/{name}.yaml"), &[applicable(definition)])?;
    }
    let of_manage = manage::generated()?;
    files.text("files/webhooks/manage.yaml", manage::file(&of_manage, "others.yaml")?);
    files.text("files/dashboards/manage.json", manage::file(&of_manage, "dashboard.json")?);
    files.objects("files/alerts/manage.yaml", &[manage::alerts(&of_manage)?])?;
    for part in watched::JOBS.iter().chain([&watched::SERVER]) {
        let series = part.series();
        let watching = part.watching(&series)?;
        let groups = json!({ "groups": [{ "name": part.program, "rules": watching.rules() }] });
        files.objects(format!("files/alerts/{}.yaml", part.job), &[groups])?;
        let dashboard = serde_json::to_string_pretty(&watching.dashboard())?;
        files.text(format!("files/dashboards/{}.json", part.job), dashboard + "\n");
    }
    Ok(destination.put(&files)?)
}

fn about() -> Value {
    json!({
        "apiVersion": "v2",
        "name": "konverge",
        "description": "Secrets from zopp into Kubernetes (pull), from Kubernetes into Vault (push), rollouts when they change (roll), \
                        objects of openZro (manage), and the zopp server",
        "type": "application",
        "version": konverge_version::VERSION,
        "appVersion": konverge_version::VERSION,
        "kubeVersion": ">=1.34.0-0",
        "keywords": ["secrets", "vault", "openbao", "zopp", "rollout", "openzro"],
        "annotations": {
            "artifacthub.io/license": "Apache-2.0",
            "artifacthub.io/operator": "true",
            "artifacthub.io/category": "security",
            "artifacthub.io/prerelease": "true",
        },
    })
}

/// The definition without the formats that make the API server warn.
fn applicable(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    remove_unknown_formats(&mut definition);
    definition
}
