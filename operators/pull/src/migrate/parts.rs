//! The parts of our objects that take the place of another tool's.

use std::collections::BTreeMap;

use konverge_kubectl::{Detail, Kind, Migrated};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{plan::is_valid_key, source::Reference, vault};

/// A kind of another tool.
pub(super) fn kind(group: &str, version: &str, kind: &str, is_namespaced: bool) -> Kind {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Kind { is_namespaced, ..Kind::namespaced(resource, Detail::Whole) }
}

/// Reads the spec of an object. Says what is wrong with one that has another form.
pub(super) fn spec<T: DeserializeOwned>(object: &DynamicObject) -> Result<T, String> {
    serde_json::from_value(object.data["spec"].clone())
        .map_err(|error| format!("its spec has a form that this command does not know: {error}"))
}

/// An object that cannot be read.
pub(super) fn unread(cause: String) -> Migrated {
    Migrated { lost: vec![cause], ..Migrated::default() }
}

/// Returns the reference to a path in Vault.
pub(super) fn reference(mount: &str, path: &str, version: Option<&str>) -> String {
    let segments = mount.split('/').chain(path.split('/')).filter(|segment| !segment.is_empty());
    let version = version.map(|version| format!("?version={version}")).unwrap_or_default();
    format!("{}{version}", Reference::new(vault::SCHEME, segments))
}

/// Converts a Go template with nothing but values into one of ours. `prefix` stands before the name of a key, such as `.Secrets.`.
///
/// # Errors
/// The action that is not a value.
pub(super) fn template(text: &str, prefix: &str) -> Result<String, String> {
    let (mut converted, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("{{") {
        let (action, after) = after.split_once("}}").ok_or("a {{ without }}")?;
        let action = action.trim();
        let key = action.strip_prefix(prefix).filter(|key| is_valid_key(key) && !key.contains('.'));
        let key = key.ok_or_else(|| format!("{{{{ {action} }}}}: templates of pull have values and nothing else"))?;
        converted.push_str(&before.replace('$', "$$"));
        converted.extend(["${", key, "}"]);
        rest = after;
    }
    converted.push_str(&rest.replace('$', "$$"));
    Ok(converted)
}

/// An object of ours with this name.
pub(super) fn manifest(kind: &str, namespace: Option<&str>, name: &str, spec: Value) -> Value {
    let mut metadata = json!({ "name": name });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    json!({ "apiVersion": "konverge.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": without_empty(spec) })
}

/// Removes members that are null, empty or false, at all depths.
fn without_empty(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, value)| (name, without_empty(value)));
            let is_there = |value: &Value| match value {
                Value::Null | Value::Bool(false) => false,
                Value::Object(members) => !members.is_empty(),
                Value::Array(items) => !items.is_empty(),
                Value::String(text) => !text.is_empty(),
                _ => true,
            };
            Value::Object(members.filter(|(_, value)| is_there(value)).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_empty).collect()),
        other => other,
    }
}

/// A map of texts, such as labels.
pub(super) type Texts = BTreeMap<String, String>;

#[cfg(test)]
pub(super) mod tests {
    use kube::ResourceExt;

    use super::*;
    use crate::objects::{
        Requests,
        secret_pull::SecretPull,
        secret_source::{ClusterSecretSource, SecretSource},
    };

    /// Checks that the operator understands the objects, and returns them by their kind and name.
    pub(in super::super) fn understood(manifests: &[Value]) -> BTreeMap<String, Value> {
        for manifest in manifests {
            match manifest["kind"].as_str().unwrap() {
                "SecretPull" => {
                    let object: SecretPull = serde_json::from_value(manifest.clone()).unwrap();
                    object.request().map(drop).unwrap();
                }
                "SecretSource" => drop(serde_json::from_value::<SecretSource>(manifest.clone()).unwrap()),
                "ClusterSecretSource" => drop(serde_json::from_value::<ClusterSecretSource>(manifest.clone()).unwrap()),
                other => panic!("{other}"),
            }
        }
        let name = |manifest: &Value| {
            let object: DynamicObject = serde_json::from_value(manifest.clone()).unwrap();
            format!("{}/{}", manifest["kind"].as_str().unwrap(), object.name_any())
        };
        manifests.iter().map(|manifest| (name(manifest), manifest["spec"].clone())).collect()
    }

    #[test]
    fn a_template_of_values_is_converted_and_any_other_is_not() {
        for (text, prefix, expected) in [
            ("postgres://{{ .user }}:{{.password}}@db/$", ".", Ok("postgres://${user}:${password}@db/$$")),
            ("{{ .Secrets.user }}", ".Secrets.", Ok("${user}")),
            ("plain }}", ".", Ok("plain }}")),
            ("{{ .user | b64enc }}", ".", Err("b64enc")),
            ("{{ if .user }}x{{ end }}", ".", Err("if .user")),
            ("{{ get .Secrets \"user\" }}", ".Secrets.", Err("get .Secrets")),
            ("{{ .user", ".", Err("without }}")),
        ] {
            match (template(text, prefix), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(found), Err(part)) => assert!(found.contains(part), "{found}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_reference_is_one_of_the_operator() {
        for (mount, path, version, expected) in [
            ("secret", "team-a/db", None, "vault://secret/team-a/db"),
            ("team/kv/", "/a b/c?d", Some("3"), "vault://team/kv/a%20b/c%3Fd?version=3"),
        ] {
            let found = reference(mount, path, version);
            assert_eq!(found, expected);
            found.parse::<crate::source::Reference>().unwrap();
        }
    }
}
