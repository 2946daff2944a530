//! Custom resource definitions that a program installs itself, if it is told to.

mod age;
mod install;

use std::{cmp::Ordering, collections::BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_core::reasons;
use konverge_gen::Access;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::error::Error;

pub(crate) use install::install;

const GROUP: &str = "apiextensions.k8s.io";
const RESOURCE: &str = "customresourcedefinitions";

/// Declares the access that installing these definitions needs. `create` cannot be limited to names.
pub(crate) fn declare(definitions: &[CustomResourceDefinition], access: &mut Access) {
    if definitions.is_empty() {
        return;
    }
    access.to_resource(GROUP, RESOURCE, &["create"]);
    access.rules_of([k8s_openapi::api::rbac::v1::PolicyRule {
        api_groups: Some(vec![GROUP.to_owned()]),
        resources: Some(vec![RESOURCE.to_owned()]),
        resource_names: Some(definitions.iter().map(ResourceExt::name_any).collect()),
        verbs: ["get", "patch"].map(ToOwned::to_owned).to_vec(),
        ..Default::default()
    }]);
}

/// Annotation of a definition: the version of the program that installed it last.
const INSTALLED_BY_VERSION: &str = "konverge.dev/installed-by-version";

/// The decision about a definition that is in the cluster.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// Apply ours.
    Install,
    /// Leave the one in the cluster, for this reason.
    Keep(String),
}

/// Decides whether `wanted`, the definition of a program of `version`, replaces `found`.
///
/// A definition is never downgraded: objects would lose the fields that it does not declare, and the status writes of a newer replica
/// would be refused. A newer one is told by its annotation. Without one, or with the same version, it is told by what it declares.
fn decide(
    found: &CustomResourceDefinition,
    wanted: &CustomResourceDefinition,
    version: &str,
) -> Result<Decision, Error> {
    let name = found.name_any();
    let installed_by = found.annotations().get(INSTALLED_BY_VERSION).map(String::as_str);
    let age = installed_by.and_then(|installed_by| age::compare(installed_by, version));
    if let (Some(Ordering::Greater), Some(newer)) = (age, installed_by) {
        return Ok(Decision::Keep(format!(
            "{name} was installed by version {newer} of the program, and this is {version}; it is kept as it is"
        )));
    }
    let lost = age::lost(found, wanted);
    if !lost.is_empty() && age != Some(Ordering::Less) {
        let lost = lost.join(", ");
        return Ok(Decision::Keep(format!(
            "{name} declares {lost}, which version {version} of the program does not know; it is kept as it is. If the program is the \
             newer one, apply its definition by hand"
        )));
    }
    check(found, wanted).map(|()| Decision::Install)
}

/// Whether `wanted` may take the place of `found`: not if objects may be stored in a version that would not be there any more, since
/// nobody could read them then.
fn check(found: &CustomResourceDefinition, wanted: &CustomResourceDefinition) -> Result<(), Error> {
    let versions: BTreeSet<&str> = wanted.spec.versions.iter().map(|version| version.name.as_str()).collect();
    let stored = found.status.iter().flat_map(|status| status.stored_versions.iter().flatten());
    let lost: Vec<&str> = stored.map(String::as_str).filter(|version| !versions.contains(version)).collect();
    if lost.is_empty() {
        return Ok(());
    }
    let (name, lost) = (found.name_any(), lost.join(", "));
    Err(Error::permanent(
        reasons::STORED_VERSION_MISSING,
        format!(
            "objects of {name} may be stored as {lost}, which this program does not know; go on with a release that does, write each \
             object anew, and take {lost} out of status.storedVersions of the definition"
        ),
    ))
}

/// The merge patch that makes the conversion of `found` call the URL or Service that `wanted` names, if it is now the other of the two.
///
/// An apply cannot remove a Service that belongs to another field manager, and the API server refuses a Service beside a URL.
fn relocation(found: &CustomResourceDefinition, wanted: &CustomResourceDefinition) -> Option<Value> {
    let config = |of: &CustomResourceDefinition| of.spec.conversion.clone()?.webhook?.client_config;
    let (from, to) = (config(found)?, config(wanted)?);
    let is_other = (from.service.is_some() && to.service.is_none()) || (from.url.is_some() && to.url.is_none());
    is_other.then(|| {
        json!({
            "metadata": { "resourceVersion": found.metadata.resource_version },
            "spec": { "conversion": { "webhook": { "clientConfig": { "service": to.service, "url": to.url } } } },
        })
    })
}

/// Whether objects of the kind can be made, or why not.
fn established(definition: &CustomResourceDefinition) -> Result<(), String> {
    let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut why = "the API server says nothing of it".to_owned();
    for condition in conditions {
        match (condition.type_.as_str(), condition.status.as_str()) {
            ("Established", "True") => return Ok(()),
            ("NamesAccepted", "False") => return Err(condition.message.clone().unwrap_or_default()),
            ("Established", _) => why = condition.message.clone().unwrap_or_default(),
            _ => {}
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(versions: &[&str], status: &Value) -> CustomResourceDefinition {
        let versions: Vec<Value> =
            versions.iter().map(|name| json!({"name": name, "served": true, "storage": false})).collect();
        let names = json!({"kind": "Thing", "plural": "things"});
        let spec = json!({"group": "example.io", "scope": "Namespaced", "names": names, "versions": versions});
        serde_json::from_value(json!({"metadata": {"name": "things.example.io"}, "spec": spec, "status": status}))
            .unwrap()
    }

    #[test]
    fn a_version_that_objects_may_be_stored_in_stays() {
        for (stored, wanted, is_fine) in [
            (vec!["v1"], vec!["v1"], true),
            (vec!["v1"], vec!["v1", "v2"], true),
            (vec!["v1", "v2"], vec!["v2"], false),
            (vec!["v2"], vec!["v2"], true),
            (vec!["v2"], vec!["v1"], false),
        ] {
            let found = definition(&["v1", "v2"], &json!({"storedVersions": stored}));
            assert_eq!(check(&found, &definition(&wanted, &Value::Null)).is_ok(), is_fine, "{stored:?} {wanted:?}");
        }
        let found = definition(&["v1"], &json!({"storedVersions": ["v1"]}));
        let refusal = check(&found, &definition(&["v2"], &Value::Null)).unwrap_err().to_string();
        assert!(refusal.contains("things.example.io may be stored as v1"), "{refusal}");
        assert!(check(&definition(&["v1"], &Value::Null), &definition(&["v2"], &Value::Null)).is_ok());
    }

    #[test]
    fn a_definition_is_never_downgraded() {
        let with = |fields: &[&str], installed_by: Option<&str>| {
            let properties: serde_json::Map<String, Value> =
                fields.iter().map(|field| ((*field).to_owned(), json!({"type": "string"}))).collect();
            let mut definition = definition(&["v1"], &Value::Null);
            let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
                "status": {"type": "object", "properties": properties}
            }}});
            definition.spec.versions[0].schema = serde_json::from_value(schema).unwrap();
            if let Some(version) = installed_by {
                definition.annotations_mut().insert(INSTALLED_BY_VERSION.to_owned(), version.to_owned());
            }
            definition
        };
        let (old, new) = (with(&["a"], None), with(&["a", "b"], None));
        let by = |fields: &[&str], version| with(fields, Some(version));
        for (found, wanted, is_installed) in [
            // By hand, or by a release that wrote no annotation.
            (&old, &new, true),
            (&new, &old, false),
            (&old, &old, true),
            (&by(&["a"], "0.9.0"), &new, true),
            (&by(&["a", "b"], "1.0.0"), &old, false),
            // A release may give up a field, and an older one must not bring it back.
            (&by(&["a", "b"], "0.9.0"), &old, true),
            (&by(&["a"], "1.1.0"), &new, false),
            (&by(&["a", "b"], "not a version"), &old, false),
        ] {
            let decision = decide(found, wanted, "1.0.0").unwrap();
            assert_eq!(decision == Decision::Install, is_installed, "{:?} {decision:?}", found.annotations());
        }
        let Decision::Keep(why) = decide(&new, &old, "1.0.0").unwrap() else { panic!("not kept") };
        assert!(why.contains("things.example.io declares v1.status.b"), "{why}");
    }

    #[test]
    fn a_conversion_moves_between_a_service_and_a_url() {
        let with = |config: &Value| {
            let mut definition = definition(&["v1"], &Value::Null);
            definition.metadata.resource_version = Some("7".to_owned());
            let webhook = json!({"clientConfig": config, "conversionReviewVersions": ["v1"]});
            definition.spec.conversion =
                serde_json::from_value(json!({"strategy": "Webhook", "webhook": webhook})).unwrap();
            definition
        };
        let (service, url) = (json!({"namespace": "shop", "name": "hooks"}), json!("https://a"));
        let (at_service, at_url) = (with(&json!({"service": service})), with(&json!({"url": url})));
        let patch = |service: &Value, url: &Value| {
            let config = json!({"service": service, "url": url});
            let conversion = json!({"webhook": {"clientConfig": config}});
            json!({"metadata": {"resourceVersion": "7"}, "spec": {"conversion": conversion}})
        };
        assert_eq!(relocation(&at_service, &at_url), Some(patch(&Value::Null, &url)));
        assert_eq!(relocation(&at_url, &at_service), Some(patch(&service, &Value::Null)));
        assert_eq!(relocation(&at_url, &with(&json!({"url": "https://b"}))), None, "an apply does it");
        assert_eq!(relocation(&at_service, &at_service), None);
        let none = definition(&["v1"], &Value::Null);
        assert_eq!((relocation(&none, &at_url), relocation(&at_service, &none)), (None, None));
    }

    #[test]
    fn a_definition_is_established_once_the_api_server_says_so() {
        let says = |conditions: &Value| established(&definition(&["v1"], &json!({"conditions": conditions})));
        let condition = |name: &str, status: &str| json!({"type": name, "status": status, "message": format!("{name} is {status}"), "reason": "R"});
        assert_eq!(says(&json!([condition("NamesAccepted", "True"), condition("Established", "True")])), Ok(()));
        assert_eq!(says(&json!([condition("Established", "False")])), Err("Established is False".to_owned()));
        let taken = json!([condition("NamesAccepted", "False"), condition("Established", "False")]);
        assert_eq!(says(&taken), Err("NamesAccepted is False".to_owned()));
        assert!(says(&json!([])).is_err());
    }
}
