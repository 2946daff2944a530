//! `konverge run`: one Deployment with the arguments of three.

use std::error::Error;

use serde_json::json;

use crate::{
    chart::Chart,
    document::{Labels, NAMED, renamed},
};

pub(crate) const FILE: &str = "konverge.yaml";

pub(crate) const ABOUT: &str = "\
pull, push and roll in one process. It needs rbac/konverge.yaml, an image of the program konverge, the credentials of zopp, and in Vault a
policy (vault-policy.hcl) and a role for the service account:

  kubectl create namespace konverge-system
  zopp principal create operator --service -w acme --credentials-file operator.json
  kubectl create secret generic zopp-operator-credentials -n konverge-system --from-file=config.json=operator.json
  vault policy write vault-sync-operator deploy/vault-policy.hcl
  vault write auth/kubernetes/role/konverge policies=vault-sync-operator ttl=1h \\
    bound_service_account_names=konverge bound_service_account_namespaces=konverge-system
  kubectl apply -f deploy/rbac/konverge.yaml -f deploy/konverge.yaml

Change the image and the addresses. Each --job is the command line of one job, with the flags of its own program. Leave out a job that you
do not want, and what only that job needs. See docs/reference/all-in-one.md, also before you remove push.";

const NAMESPACE: &str = "konverge-system";

const LABELS: Labels =
    Labels { all: &[("app.kubernetes.io/name", "konverge")], selecting: &[("app.kubernetes.io/name", "konverge")] };

/// The jobs in the order of the chart.
const JOBS: [&str; 3] = ["pull", "push", "roll"];

/// Settings of the process. A job of several has none of its own.
const OF_PROCESS: [&str; 3] = ["--health-probe-bind-address=", "--metrics-bind-address=", "--log-format="];

/// The line above the arguments of a container, and the beginning of each argument beneath it.
const ARGUMENTS: (&str, &str) = ("          args:", "            - ");

/// Returns the Deployment: that of pull, whose credentials are mounted, with the arguments of all jobs.
pub(crate) fn document(chart: &Chart) -> Result<String, Box<dyn Error>> {
    let values = json!({
        "fullnameOverride": NAMED,
        "image": { "repository": "konverge" },
        "serviceAccount": { "name": "konverge" },
        "pull": {
            "enabled": true,
            "server": { "address": "https://zopp.example.com" },
            "credentials": { "existingSecret": "zopp-operator-credentials" },
            // For three jobs.
            "resources": { "requests": { "cpu": "10m", "memory": "64Mi" }, "limits": { "memory": "256Mi" } },
        },
        "push": { "enabled": true, "vault": { "address": "https://vault.example.com:8200", "role": "konverge" } },
        // The chart writes this rule only with an address of Vault.
        "roll": { "enabled": true, "extraArgs": ["--allow-path=*=secret/data/{namespace}/*"] },
    });
    let deployments = chart.render("templates/deployments.yaml", NAMESPACE, &values)?;
    let [pull, _, _] = deployments.as_slice() else {
        return Err(format!("the chart has {} Deployments instead of three", deployments.len()).into());
    };
    let mut arguments = vec!["run".to_owned()];
    for (job, deployment) in JOBS.iter().zip(&deployments) {
        arguments.push(format!("--job={job} {}", line(deployment)?));
    }
    arguments.extend(["--bind-address=:8080", "--log-format=json"].map(str::to_owned));
    let renamings =
        [("- name: operator\n", "- name: konverge\n"), ("\"/usr/bin/zopp-operator\"", "\"/usr/bin/konverge\"")];
    renamed(&LABELS.put(&with_arguments(pull, &arguments)), "konverge", &renamings)
}

/// Returns the arguments of a Deployment's container as the command line of a job.
fn line(deployment: &str) -> Result<String, Box<dyn Error>> {
    let deployment: serde_json::Value = serde_saphyr::from_str(deployment)?;
    let arguments = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    let mut arguments: Vec<String> = serde_json::from_value(arguments.clone())?;
    arguments.retain(|argument| !OF_PROCESS.iter().any(|flag| argument.starts_with(flag)));
    // The line is split as a shell would, and is a scalar of YAML without quotes.
    match arguments.iter().find(|argument| argument.contains([' ', '\'', '"', '\\', '#'])) {
        Some(argument) => Err(format!("{argument} needs quotes").into()),
        None => Ok(arguments.join(" ")),
    }
}

/// Returns the Deployment with these arguments.
fn with_arguments(deployment: &str, arguments: &[String]) -> String {
    let (above, beneath) = ARGUMENTS;
    let (mut text, mut is_beneath) = (String::new(), false);
    for line in deployment.lines() {
        is_beneath = is_beneath && line.starts_with(beneath);
        if !is_beneath {
            text.push_str(line);
            text.push('\n');
        }
        if line == above {
            is_beneath = true;
            text.extend(arguments.iter().map(|argument| format!("{beneath}{argument}\n")));
        }
    }
    text
}
