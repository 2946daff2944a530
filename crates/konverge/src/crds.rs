//! Custom resource definitions that a program brings into the cluster itself, where it is asked to.

mod install;

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_core::reasons;
use konverge_gen::Access;
use kube::ResourceExt;

use crate::error::Error;

pub(crate) use install::install;

const GROUP: &str = "apiextensions.k8s.io";
const RESOURCE: &str = "customresourcedefinitions";

/// What bringing these definitions takes. Making one cannot be limited to names.
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
    use serde_json::{Value, json};

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
