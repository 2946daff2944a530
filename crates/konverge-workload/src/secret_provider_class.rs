//! The configuration of a mount by the Secrets Store CSI driver.

use std::{borrow::Cow, collections::BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, core::NamespaceResourceScope};
use serde::Deserialize;

/// A `SecretProviderClass`, as far as it names Secrets: those in which the driver puts what it mounts, for pods of the same namespace.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "Wire")]
pub struct SecretProviderClass {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// The Secrets, by their names.
    pub secrets: BTreeSet<String>,
}

impl Resource for SecretProviderClass {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Cow::Borrowed("SecretProviderClass")
    }

    fn group((): &()) -> Cow<'_, str> {
        Cow::Borrowed("secrets-store.csi.x-k8s.io")
    }

    fn version((): &()) -> Cow<'_, str> {
        Cow::Borrowed("v1")
    }

    fn plural((): &()) -> Cow<'_, str> {
        Cow::Borrowed("secretproviderclasses")
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    secret_objects: Option<Vec<SecretObject>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecretObject {
    secret_name: Option<String>,
}

impl From<Wire> for SecretProviderClass {
    fn from(Wire { metadata, spec }: Wire) -> Self {
        let names = spec.secret_objects.into_iter().flatten().filter_map(|object| object.secret_name);
        Self { metadata, secrets: names.filter(|name| !name.is_empty()).collect() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_names_the_secrets_that_the_driver_makes() {
        for (spec, expected) in [
            (json!({ "provider": "vault", "parameters": { "objects": "- a" } }), &[][..]),
            (json!({ "secretObjects": null }), &[]),
            (
                json!({ "secretObjects": [
                    { "secretName": "db", "type": "Opaque", "data": [{ "objectName": "a", "key": "k" }] },
                    { "secretName": "api" }, { "secretName": "" }, {},
                ] }),
                &["api", "db"],
            ),
        ] {
            let object = json!({ "metadata": { "name": "vault" }, "spec": spec });
            let class: SecretProviderClass = serde_json::from_value(object).unwrap();
            assert!(class.secrets.iter().eq(expected), "{spec}");
        }
    }
}
