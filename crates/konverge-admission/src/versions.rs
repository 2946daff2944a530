//! Custom resource definitions of several versions, made from the types of the versions.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResourceExt, Resource, ResourceExt};
use serde::{Serialize, de::DeserializeOwned};

use crate::conversion::{Converter, Spoke};

/// The versions of one kind: its definition and its conversions. See [`crd_versions`].
#[derive(Debug)]
#[must_use = "versions count only when they are registered with Webhooks::versions"]
pub struct CrdVersions<H> {
    pub(crate) converter: Converter<H>,
    pub(crate) definition: VersionedDefinition,
}

/// A definition of several versions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct VersionedDefinition {
    pub(crate) definition: CustomResourceDefinition,
    pub(crate) migrates: bool,
    /// Why the API server would refuse it.
    pub(crate) mistake: Option<String>,
}

/// The versions of one kind, beginning with the hub: the version that all others become and come from. Unless
/// [`stored_as`](CrdVersions::stored_as) says otherwise, objects are stored in it.
///
/// ```
/// # use kube::CustomResource;
/// # use serde::{Deserialize, Serialize};
/// # use schemars::JsonSchema;
/// # #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// # #[kube(group = "example.io", version = "v2", kind = "Parcel", namespaced)]
/// # struct ParcelSpec { grams: u32 }
/// # mod v1 {
/// #     use kube::CustomResource;
/// #     use serde::{Deserialize, Serialize};
/// #     use schemars::JsonSchema;
/// #     #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #     #[kube(group = "example.io", version = "v1", kind = "Parcel", namespaced)]
/// #     pub struct ParcelSpec { pub kilos: u32 }
/// # }
/// # impl From<v1::Parcel> for Parcel {
/// #     fn from(old: v1::Parcel) -> Self {
/// #         Self { metadata: old.metadata, spec: ParcelSpec { grams: old.spec.kilos * 1000 } }
/// #     }
/// # }
/// # impl From<Parcel> for v1::Parcel {
/// #     fn from(new: Parcel) -> Self {
/// #         Self { metadata: new.metadata, spec: v1::ParcelSpec { kilos: new.spec.grams / 1000 } }
/// #     }
/// # }
/// use konverge_admission::{Webhooks, crd_versions};
///
/// let webhooks = Webhooks::new().versions(crd_versions::<Parcel>().and::<v1::Parcel>());
/// let definition = webhooks.definitions().next().unwrap();
/// let stored: Vec<_> = definition.spec.versions.iter().map(|version| (version.name.as_str(), version.storage)).collect();
/// assert_eq!(stored, [("v2", true), ("v1", false)]);
/// ```
pub fn crd_versions<H>() -> CrdVersions<H>
where
    H: CustomResourceExt + Resource<DynamicType = ()> + Serialize + DeserializeOwned,
{
    let mut definition = H::crd();
    for version in &mut definition.spec.versions {
        version.storage = true;
    }
    CrdVersions {
        converter: Converter::new(),
        definition: VersionedDefinition { definition, migrates: false, mistake: None },
    }
}

impl<H: Resource<DynamicType = ()> + Serialize + DeserializeOwned> CrdVersions<H> {
    /// Adds a version. Its schema, its columns, and whether it is served or deprecated are those of its type.
    pub fn and<S: Spoke<H> + CustomResourceExt>(mut self) -> Self
    where
        <S as TryInto<H>>::Error: fmt::Display,
        <S as TryFrom<H>>::Error: fmt::Display,
    {
        self.converter = self.converter.spoke::<S>();
        self.definition.add(S::crd());
        self
    }

    /// Stores objects in this version, such as `v1`, instead of the hub. For a release that serves a new version and can still be
    /// rolled back: the one before could not read what is stored in a version that it does not know.
    pub fn stored_as(mut self, version: &str) -> Self {
        self.definition.store_as(version);
        self
    }

    /// Lets the leader write each object anew after the stored version has changed, and then drop the old one from
    /// `status.storedVersions`, so that a later release may leave it out. Needs to list and patch the kind in all namespaces, and to
    /// patch the status of the definition; the generated role allows it.
    pub fn migrate_storage(mut self) -> Self {
        self.definition.migrates = true;
        self
    }
}

impl VersionedDefinition {
    fn add(&mut self, other: CustomResourceDefinition) {
        let about = |definition: &CustomResourceDefinition| {
            let spec = &definition.spec;
            format!("{} {} ({})", spec.scope, spec.names.kind, definition.name_any())
        };
        if about(&self.definition) != about(&other) {
            self.mistake = Some(format!("{} is no version of {}", about(&other), about(&self.definition)));
        }
        for mut version in other.spec.versions {
            version.storage = false;
            self.definition.spec.versions.push(version);
        }
    }

    fn store_as(&mut self, name: &str) {
        let versions = &mut self.definition.spec.versions;
        if !versions.iter().any(|version| version.name == name) {
            self.mistake = Some(format!("{} has no version {name} to store objects in", self.definition.name_any()));
            return;
        }
        for version in versions {
            version.storage = version.name == name;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(version: &str, kind: &str, scope: &str) -> CustomResourceDefinition {
        serde_json::from_value(json!({
            "metadata": {"name": "parcels.example.io"},
            "spec": {
                "group": "example.io", "scope": scope, "names": {"kind": kind, "plural": "parcels"},
                "versions": [{"name": version, "served": true, "storage": true}],
            },
        }))
        .unwrap()
    }

    fn of(version: &str) -> VersionedDefinition {
        VersionedDefinition { definition: definition(version, "Parcel", "Namespaced"), migrates: false, mistake: None }
    }

    fn stored(definition: &VersionedDefinition) -> Vec<(&str, bool)> {
        definition.definition.spec.versions.iter().map(|version| (version.name.as_str(), version.storage)).collect()
    }

    #[test]
    fn one_version_is_stored_whatever_the_types_say() {
        let mut versions = of("v2");
        versions.add(definition("v1", "Parcel", "Namespaced"));
        assert_eq!(stored(&versions), [("v2", true), ("v1", false)]);
        versions.store_as("v1");
        assert_eq!((stored(&versions), &versions.mistake), (vec![("v2", false), ("v1", true)], &None));
    }

    #[test]
    fn what_is_no_version_of_the_kind_is_a_mistake() {
        for other in [definition("v1", "Letter", "Namespaced"), definition("v1", "Parcel", "Cluster")] {
            let mut versions = of("v2");
            versions.add(other);
            assert!(versions.mistake.is_some_and(|mistake| mistake.contains("is no version of Namespaced Parcel")));
        }
        let mut versions = of("v2");
        versions.store_as("v3");
        assert_eq!(versions.mistake.as_deref(), Some("parcels.example.io has no version v3 to store objects in"));
        assert_eq!(stored(&versions), [("v2", true)]);
    }
}
