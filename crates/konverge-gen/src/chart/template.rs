//! Objects as templates of Helm.

use std::path::Path;

use serde::Serialize;

use super::NAMESPACE;
use crate::files::{FilesError, documents};

/// A template that renders as these objects, in the namespace of the release.
pub(super) fn of(path: &str, objects: &[impl Serialize]) -> Result<String, FilesError> {
    let text = documents(Path::new(path), objects)?;
    let lines: Vec<String> = text.lines().map(line).collect();
    Ok(lines.join("\n") + "\n")
}

fn line(line: &str) -> String {
    // Text that looks like an action of a template stays text, such as the labels in the texts of alerts.
    let line = line.replace("{{", "{{ \"{{\" }}");
    // A namespace may look like a number, so it is quoted where it is a whole value.
    match line.strip_suffix(NAMESPACE) {
        Some(key) if key.ends_with(": ") => format!("{key}{{{{ .Release.Namespace | quote }}}}"),
        _ => line.replace(NAMESPACE, "{{ .Release.Namespace }}"),
    }
}

/// A template that renders as nothing unless the condition holds.
pub(super) fn when(condition: &str, template: &str) -> String {
    format!("{{{{- if {condition} }}}}\n{template}{{{{- end }}}}\n")
}

/// Whether an object names the namespace of the release.
pub(super) fn names_namespace(object: &impl Serialize) -> bool {
    // A value that cannot be serialised is reported where it is written.
    serde_json::to_string(object).is_ok_and(|text| text.contains(NAMESPACE))
}
