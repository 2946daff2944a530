//! The page of custom resources, made of the definitions that are shipped.

use std::{error::Error, fmt::Write, fs, path::Path};

use konverge_gen::reference;
use serde_json::Value;

/// The files with definitions, and which job they are for.
const DEFINITIONS: [(&str, &str); 6] = [
    ("Pull", "deploy/crds/secretpulls.yaml"),
    ("Pull", "deploy/crds/zoppsecretsyncs.yaml"),
    ("Push", "deploy/crds/vaultpushes.yaml"),
    ("Roll", "deploy/crds/vaultrollouts.yaml"),
    ("Roll", "deploy/crds/vaultsyncstatus.yaml"),
    ("Manage", "deploy/openzro/crds.yaml"),
];

/// Each kind with the fields of its spec and of its status.
pub(crate) fn page() -> Result<String, Box<dyn Error>> {
    let mut text = "<!-- Generated; change the code instead. -->\n# Custom resources\n\nThe fields of every kind, from its definition. `[]` is an item \
                    of a list, and `{}` a value of a map. The API server refuses an object that breaks a rule of this page.\n"
        .to_owned();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (job, file) in DEFINITIONS {
        let content = fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"))?;
        let definitions: Vec<Value> = serde_saphyr::from_multiple(&content)?;
        for definition in definitions.iter().filter(|document| !document.is_null()) {
            kind(&mut text, job, file, definition)?;
        }
    }
    Ok(text)
}

/// Adds a kind. A definition that lacks a part is an error.
fn kind(text: &mut String, job: &str, file: &str, definition: &Value) -> Result<(), Box<dyn Error>> {
    let spec = &definition["spec"];
    let word =
        |value: &Value| value.as_str().map(str::to_owned).ok_or_else(|| format!("{file} has no complete definition"));
    let name = word(&spec["names"]["kind"])?;
    let scope = if spec["scope"] == "Cluster" { "cluster-wide" } else { "namespaced" };
    for version in spec["versions"].as_array().into_iter().flatten() {
        let api = format!("{}/{}", word(&spec["group"])?, word(&version["name"])?);
        write!(text, "\n## {name} ({api})\n\n{job}, {scope}, from [{file}](../../{file}).")?;
        let short: Vec<_> =
            spec["names"]["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !short.is_empty() {
            write!(text, " Short name: `{}`.", short.join("`, `"))?;
        }
        let schema = &version["schema"]["openAPIV3Schema"];
        let description = schema["description"].as_str().unwrap_or_default().trim();
        writeln!(text, "{}{description}", if description.is_empty() { "" } else { " " })?;
        for part in ["spec", "status"] {
            let schema = &schema["properties"][part];
            if schema.is_object() {
                write!(text, "\n{}", reference::fields(part, schema))?;
            }
        }
    }
    Ok(())
}
