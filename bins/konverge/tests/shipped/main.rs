//! Everything that users install: the programs by their version, the alerts as Prometheus evaluates them, and the
//! chart `deploy/charts/konverge` as Helm renders and installs it.
//!
//! A test program of its own, so that `cargo test --workspace --test shipped` builds nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod alerts;
mod guides;
#[path = "../../../../crates/konverge/tests/helm/mod.rs"]
mod helm;
mod installed;
mod node;
mod outages;
#[path = "../../../../crates/konverge-new/tests/page/mod.rs"]
mod page;
mod reader;
mod rendered;
mod rules;
mod switches;
mod tutorials;
mod values;
mod versions;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

use crate::helm::helm;

/// The parts with all that they need.
const EVERYTHING: [&str; 7] = [
    "pull.enabled=true",
    "push.enabled=true",
    "server.enabled=true",
    "manage.enabled=true",
    "manage.managementURL=https://openzro.example.com",
    "push.vault.address=https://vault.example.com:8200",
    "roll.vault.address=https://vault.example.com:8200",
];

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/charts/konverge")
}

/// Runs Helm without the settings of the person who tests.
fn run(arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(helm().unwrap());
    command.env_clear().env("HOME", home.path()).env("PATH", "/usr/bin:/bin").args(arguments);
    command.output().unwrap()
}

/// The output of Helm, or the reason of its failure.
fn said(arguments: &[&str]) -> Result<String, String> {
    let output = run(arguments);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// Renders the chart as the release `release` of the namespace `home`.
fn render(sets: &[&str], files: &[&str]) -> Result<String, String> {
    let chart = chart();
    let mut arguments = vec!["template", "release", chart.to_str().unwrap(), "--namespace", "home"];
    arguments.extend(files.iter().flat_map(|file| ["--values", file]));
    arguments.extend(sets.iter().flat_map(|set| ["--set", set]));
    said(&arguments)
}

/// Rendered objects by their kind and name.
type Objects = BTreeMap<(String, String), Value>;

fn objects(text: &str) -> Objects {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let documents = documents.into_iter().filter(|document| !document.is_null());
    documents.map(|object| ((text(&object["kind"]), text(&object["metadata"]["name"])), object)).collect()
}

fn object<'a>(objects: &'a Objects, kind: &str, name: &str) -> &'a Value {
    let key = (kind.to_owned(), name.to_owned());
    objects.get(&key).unwrap_or_else(|| panic!("no {kind} {name} among {:?}", objects.keys()))
}

fn container<'a>(objects: &'a Objects, name: &str) -> &'a Value {
    &object(objects, "Deployment", name)["spec"]["template"]["spec"]["containers"][0]
}

fn arguments(container: &Value) -> Vec<String> {
    serde_json::from_value(container["args"].clone()).unwrap()
}
