//! The migration from the original zopp operator.

use std::collections::BTreeMap;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use konverge_kubectl::{Detail, Kind, Listed, Migrated, Migration};
use kube::core::{ApiResource, DynamicObject};

use crate::{
    annotations::{Declaration, declaration},
    objects::zopp_secret_sync::ZoppSecretSync,
    zopp,
};

/// The annotation of Deployments that the original restarts.
const RELOAD: &str = "zopp.dev/reload";

/// Moves users of the zopp operator.
pub struct Zopp;

impl Migration for Zopp {
    fn name(&self) -> &'static str {
        "zopp"
    }

    fn page(&self) -> &'static str {
        "docs/migrate/zopp-operator.md"
    }

    fn kinds(&self) -> Vec<Kind> {
        [
            ApiResource::erase::<Secret>(&()),
            ApiResource::erase::<ZoppSecretSync>(&()),
            ApiResource::erase::<Deployment>(&()),
        ]
        .map(|resource| Kind::namespaced(resource, Detail::Metadata))
        .into()
    }

    fn classify(&self, kind: &Kind, object: &DynamicObject, _: &Listed) -> Option<Migrated> {
        let annotations = object.metadata.annotations.clone().unwrap_or_default();
        let mut migrated = Migrated::default();
        match kind.resource.kind.as_str() {
            "Secret" => return of_secret(&annotations, object.metadata.namespace.as_deref().unwrap_or_default()),
            "ZoppSecretSync" => migrated.becomes.push(
                "pull keeps its Secret equal to the environment, in the namespace of the object, and takes over the Secret that the original made"
                    .to_owned(),
            ),
            _ if annotations.get(RELOAD).is_some_and(|word| word == "true") => migrated.becomes.push(format!(
                "roll restarts it for {RELOAD}, without a flag. pull alone does not, so install roll, too"
            )),
            _ => return None,
        }
        Some(migrated)
    }
}

/// The effect on a Secret, or `None` if it is not annotated.
fn of_secret(annotations: &BTreeMap<String, String>, namespace: &str) -> Option<Migrated> {
    let mut migrated = Migrated::default();
    match declaration(annotations)? {
        Declaration::Incomplete(missing) => {
            migrated.lost.push(format!("it lacks {}. pull writes nothing until you add that", missing.join(", ")));
        }
        Declaration::Invalid(cause) => {
            migrated.lost.push(format!("{cause}. pull writes nothing until you change that"));
        }
        Declaration::Paused => migrated.lost.push("it is paused, so pull writes nothing".to_owned()),
        Declaration::Bound(wanted) => {
            let [source] = &wanted.sources[..] else { return None };
            let environment = zopp::environment(&source.reference)?;
            let keys = source.selection.keys.join(", ");
            let keys = if keys.is_empty() {
                keys
            } else {
                format!(". It gets only the keys {keys}, where the original gave all")
            };
            migrated.becomes.push(format!("pull keeps it equal to {environment}, with the same annotations{keys}"));
            if environment.project != namespace {
                migrated.becomes.push(format!(
                    "the chart and the shipped manifest allow only the projects of its own name to a namespace. Write a rule: \
                     --allow={namespace}={environment}, or pull.allow in the chart"
                ));
            }
        }
    }
    Some(migrated)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn classify(kind: usize, annotations: &Value) -> Option<Migrated> {
        let metadata = json!({ "name": "db", "namespace": "shop", "annotations": annotations });
        let object: DynamicObject = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        Zopp.classify(&Zopp.kinds()[kind], &object, &Listed::default())
    }

    #[test]
    fn secrets_and_the_objects_of_the_original_are_kept() {
        let bound = |project: &str| json!({ "zopp.dev/sync": "true", "zopp.dev/workspace": "acme", "zopp.dev/project": project, "zopp.dev/environment": "dev" });
        let mut with_keys = bound("shop");
        with_keys["zopp.dev/keys"] = json!("a,b");
        let cases: [(usize, Value, &[&str], &[&str]); 6] = [
            (0, bound("shop"), &["equal to acme/shop/dev"], &[]),
            (0, bound("other"), &["equal to acme/other/dev", "--allow=shop=acme/other/dev"], &[]),
            (0, with_keys, &["only the keys a, b"], &[]),
            (0, json!({ "zopp.dev/sync": "true" }), &[], &["it lacks zopp.dev/workspace"]),
            (1, json!({}), &["takes over the Secret"], &[]),
            (2, json!({ RELOAD: "true" }), &["install roll, too"], &[]),
        ];
        for (kind, annotations, becomes, lost) in cases {
            let migrated = classify(kind, &annotations).unwrap();
            for (found, parts) in [(&migrated.becomes, becomes), (&migrated.lost, lost)] {
                assert_eq!(found.len(), parts.len(), "{annotations}: {found:?}");
                assert!(found.iter().zip(parts).all(|(text, part)| text.contains(part)), "{annotations}: {found:?}");
            }
        }
        for (kind, foreign) in [(0, json!({})), (0, json!({ "zopp.dev/sync": "false" })), (2, json!({ RELOAD: "yes" }))]
        {
            assert_eq!(classify(kind, &foreign), None, "{foreign}");
        }
    }
}
