//! A Helm chart of a program, made of the same objects as its plain manifests.
//!
//! A chart is installed once per cluster, because the program names its lease, its Secrets and its webhook configurations after itself. So all
//! objects of the chart have fixed names, and only the namespace is that of the release.

mod deployment;
mod template;
mod values;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use crate::{Files, files::FilesError};

/// The parts of a chart. Each object that names the namespace of the program names [`NAMESPACE`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Chart<'a> {
    /// Name of the program; the chart and all objects are named after it.
    pub program: &'a str,
    /// Version of the program, which is also that of the chart.
    pub version: &'a str,
    /// The custom resource definitions.
    pub crds: Vec<CustomResourceDefinition>,
    /// Service account and roles.
    pub rbac: Vec<Value>,
    /// Further objects, such as webhook configurations and their Service.
    pub others: Vec<Value>,
    /// Objects that only clusters with the Prometheus operator take.
    pub alerts: Vec<Value>,
}

/// Stands for the namespace of the release in the objects of a [`Chart`].
pub const NAMESPACE: &str = "namespace-of-the-release";

impl Chart<'_> {
    /// The files of the chart.
    pub fn files(&self) -> Result<Files, FilesError> {
        let mut files = Files::default();
        files.objects("Chart.yaml", &[self.about()])?;
        files.text("values.yaml", values::text(self.program));
        files.text("values.schema.json", values::schema());
        files.text("templates/deployment.yaml", deployment::template(self.program, &self.others));
        files.text("templates/service.yaml", deployment::service(self.program));
        files.text("templates/poddisruptionbudget.yaml", deployment::disruption_budget(self.program));
        files.text("templates/servicemonitor.yaml", deployment::service_monitor(self.program));
        files.text("templates/rbac.yaml", template::of("templates/rbac.yaml", &self.rbac)?);
        if !self.others.is_empty() {
            files.text("templates/others.yaml", template::of("templates/others.yaml", &self.others)?);
        }
        if !self.alerts.is_empty() {
            let alerts = template::of("templates/alerts.yaml", &self.alerts)?;
            files.text("templates/alerts.yaml", template::when(".Values.alerts.enabled", &alerts));
        }
        // Helm takes what is in crds/ as it is. A definition that names the namespace (its conversions are answered there) has to be a template.
        let (templates, plain): (Vec<_>, Vec<_>) = self.crds.iter().partition(template::names_namespace);
        files.text("templates/NOTES.txt", notes(self.program, !plain.is_empty()));
        if !plain.is_empty() {
            files.objects("crds/crds.yaml", &plain)?;
        }
        if !templates.is_empty() {
            let templates: Vec<_> = templates.into_iter().map(kept).collect();
            files.text("templates/crds.yaml", template::of("templates/crds.yaml", &templates)?);
        }
        Ok(files)
    }

    fn about(&self) -> Value {
        json!({
            "apiVersion": "v2",
            "name": self.program,
            "description": format!("The operator {}", self.program),
            "type": "application",
            "version": self.version,
            "appVersion": self.version,
        })
    }
}

/// The text that Helm prints after an installation.
fn notes(program: &str, has_crds: bool) -> String {
    let crds = if has_crds {
        "\nHelm installs the definitions in crds/ once and never changes them. Before an upgrade, apply those of the new chart:\n\
         \n  helm show crds CHART | kubectl apply --server-side -f -\n"
    } else {
        ""
    };
    format!(
        "{program} {{{{ .Chart.AppVersion }}}} runs in the namespace {{{{ .Release.Namespace }}}}. To see whether it is ready:\n\
         \n  kubectl -n {{{{ .Release.Namespace }}}} rollout status deployment/{program}\n{crds}"
    )
}

/// A definition that stays when the release is removed, and with it all objects of its kind.
fn kept(crd: &CustomResourceDefinition) -> CustomResourceDefinition {
    let mut crd = crd.clone();
    let annotations = crd.metadata.annotations.get_or_insert_default();
    annotations.insert("helm.sh/resource-policy".to_owned(), "keep".to_owned());
    crd
}

#[cfg(test)]
mod tests;
