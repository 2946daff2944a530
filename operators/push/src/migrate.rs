//! The migration from danieldonoghue/vault-sync-operator. Pure: `konverge migrate` lists the objects and prints the result.

use konverge_kubectl::{Detail, Kind, Listed, Migrated, Migration};
use kube::core::DynamicObject;

use crate::{
    annotations::{FINALIZER, PATH, SECRET_VERSIONS, parse_spec},
    object::{self, has_finalizer},
};

/// The tools that push replaces.
pub const ALL: [&dyn Migration; 1] = [&VaultSyncOperator];

/// The path that the shipped manifest and the chart allow to a namespace.
const SHIPPED: &str = "secret/data/";

/// Moves users of vault-sync-operator.
pub struct VaultSyncOperator;

impl Migration for VaultSyncOperator {
    fn name(&self) -> &'static str {
        "vault-sync-operator"
    }

    fn page(&self) -> &'static str {
        "docs/migrate/vault-sync-operator.md"
    }

    fn kinds(&self) -> Vec<Kind> {
        // The original knows these kinds.
        [object::Kind::Deployment, object::Kind::Secret]
            .map(|kind| Kind::namespaced(kind.resource(), Detail::Metadata))
            .into()
    }

    fn classify(&self, _: &Kind, object: &DynamicObject, _: &Listed) -> Option<Migrated> {
        let annotations = object.metadata.annotations.clone().unwrap_or_default();
        let spec = parse_spec(&annotations);
        if spec.is_none() && !has_finalizer(&object.metadata) {
            return None;
        }
        let mut migrated = Migrated::default();
        match spec {
            Some(Ok(spec)) => {
                let own = format!("{SHIPPED}{}/", object.metadata.namespace.as_deref().unwrap_or_default());
                migrated.becomes.push(format!("push writes {} for it, with the same annotations", spec.path));
                if !spec.path.starts_with(&own) {
                    migrated.becomes.push(format!(
                        "the chart and the shipped manifest allow only {own}*. Write a rule that allows {}: --allow-path, or push.allowPath in the chart",
                        spec.path
                    ));
                }
                migrated.lost.extend(spec.notes);
            }
            Some(Err(invalid)) => migrated.lost.push(format!("{invalid}. push writes nothing until you correct it")),
            None => migrated.becomes.push(format!(
                "it has the finalizer {FINALIZER} and no {PATH}. push removes the finalizer, and leaves Vault as it is"
            )),
        }
        if annotations.contains_key(SECRET_VERSIONS) {
            let note = format!("{SECRET_VERSIONS} is the original's own note. push neither reads nor writes it");
            migrated.becomes.push(note);
        }
        Some(migrated)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn classify(annotations: &Value, finalizers: &Value) -> Option<Migrated> {
        let metadata =
            json!({ "name": "db", "namespace": "shop", "annotations": annotations, "finalizers": finalizers });
        let object: DynamicObject = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        VaultSyncOperator.classify(&VaultSyncOperator.kinds()[1], &object, &Listed::default())
    }

    #[test]
    fn the_originals_objects_stay_as_they_are() {
        let none = json!([]);
        let cases: [(Value, &[&str], &[&str]); 6] = [
            (json!({ PATH: "secret/data/shop/db" }), &["push writes secret/data/shop/db"], &[]),
            (
                json!({ PATH: "secret/data/app" }),
                &["push writes secret/data/app", "allow only secret/data/shop/*"],
                &[],
            ),
            (
                json!({ PATH: "secret/data/shop/db", SECRET_VERSIONS: "{}" }),
                &["push writes", "the original's own note"],
                &[],
            ),
            (json!({ PATH: "secret/data/shop/db", "vault-sync.io/secrets": "{" }), &[], &["failed to parse"]),
            (
                json!({ PATH: "secret/data/shop/db", "vault-sync.io/reconcile": "often" }),
                &["push writes"],
                &["counts as off"],
            ),
            (
                json!({ PATH: "secret/data/shop/db", "vault-sync.io/rotation-check": "sometimes" }),
                &["push writes"],
                &["has no effect"],
            ),
        ];
        for (annotations, becomes, lost) in cases {
            let migrated = classify(&annotations, &none).unwrap();
            for (found, parts) in [(&migrated.becomes, becomes), (&migrated.lost, lost)] {
                assert_eq!(found.len(), parts.len(), "{annotations}: {found:?}");
                assert!(found.iter().zip(parts).all(|(text, part)| text.contains(part)), "{annotations}: {found:?}");
            }
        }
        for foreign in [json!({}), json!({ PATH: "" }), json!({ "vault-sync.io/reconcile": "5m" })] {
            assert_eq!(classify(&foreign, &none), None, "{foreign}");
        }
        let left = classify(&json!({}), &json!([FINALIZER])).unwrap();
        assert!(left.becomes[0].contains("removes the finalizer") && left.lost.is_empty(), "{left:?}");
    }
}
