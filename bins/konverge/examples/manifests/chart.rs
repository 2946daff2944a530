//! The chart as Helm renders it.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

pub(crate) struct Chart {
    helm: PathBuf,
    folder: PathBuf,
}

impl Chart {
    pub(crate) fn new(helm: PathBuf) -> Self {
        Self { helm, folder: Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/charts/konverge") }
    }

    /// Returns the documents of one template, without Helm's comments.
    pub(crate) fn render(
        &self,
        template: &str,
        namespace: &str,
        values: &Value,
    ) -> Result<Vec<String>, Box<dyn Error>> {
        // Helm keeps settings and a cache in the home folder; those of the developer are not used.
        let home = tempfile::tempdir()?;
        let file = home.path().join("values.json");
        fs::write(&file, values.to_string())?;
        let mut helm = Command::new(&self.helm);
        helm.env_clear().env("HOME", home.path()).args(["template", "release"]).arg(&self.folder);
        helm.args(["--namespace", namespace, "--show-only", template, "--values"]).arg(&file);
        // Users of these files have no monitor that is set up for TLS.
        helm.args(["--set", "metricsTLS.selfSigned=false"]);
        let output = helm.output()?;
        if !output.status.success() {
            return Err(format!("helm cannot render {template}: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        let text = String::from_utf8(output.stdout)?;
        let documents = text.split("---\n").filter(|document| !document.trim().is_empty());
        Ok(documents.map(without_source).collect())
    }
}

/// Returns a document without the line in which Helm names the template, and without empty lines at its end.
fn without_source(document: &str) -> String {
    let lines = document.trim_end().lines().filter(|line| !line.starts_with("# Source: "));
    lines.fold(String::new(), |text, line| text + line + "\n")
}
