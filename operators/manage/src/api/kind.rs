//! The type of a kind, and what kube has to know of it.
//!
//! kube's derive is not used here. It cannot express an optional spec, which openzro-operator's v1 kinds have, and the schemas have to be those of
//! openzro-operator, so they are written down and not derived.

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
        CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceStatus,
        CustomResourceSubresources, CustomResourceValidation, JSONSchemaProps,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use konverge::{kube::Resource, runtime::object::Scope};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Declares a kind: its root type, its place in the API, and its definition.
macro_rules! kind {
    (
        $(#[$doc:meta])*
        $kind:ident($spec:ident, $status:ident),
        $version:literal, $plural:literal, $scope:ident, $schema:path, $columns:expr
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, ::serde::Deserialize)]
        #[serde(default)]
        pub struct $kind {
            /// Name, namespace, labels and annotations.
            pub metadata: ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// The desired state.
            #[serde(deserialize_with = "crate::api::kind::or_default")]
            pub spec: $spec,
            /// The observed state.
            pub status: Option<$status>,
        }

        impl $kind {
            /// Returns an object with this name and spec.
            pub fn new(name: &str, spec: $spec) -> Self {
                let mut object = Self { spec, ..Self::default() };
                object.metadata.name = Some(name.to_owned());
                object
            }
        }

        impl ::serde::Serialize for $kind {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use ::konverge::kube::Resource as _;
                use ::serde::ser::SerializeStruct as _;
                let mut object = serializer.serialize_struct(stringify!($kind), 4 + usize::from(self.status.is_some()))?;
                object.serialize_field("apiVersion", &Self::api_version(&()))?;
                object.serialize_field("kind", stringify!($kind))?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field("spec", &self.spec)?;
                match &self.status {
                    Some(status) => object.serialize_field("status", status)?,
                    None => object.skip_field("status")?,
                }
                object.end()
            }
        }

        impl ::konverge::kube::Resource for $kind {
            type DynamicType = ();
            type Scope = ::konverge::kube::core::$scope;

            fn kind((): &()) -> ::std::borrow::Cow<'_, str> {
                stringify!($kind).into()
            }

            fn group((): &()) -> ::std::borrow::Cow<'_, str> {
                crate::api::GROUP.into()
            }

            fn version((): &()) -> ::std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> ::std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }

        impl ::konverge::kube::core::object::HasSpec for $kind {
            type Spec = $spec;

            fn spec(&self) -> &$spec {
                &self.spec
            }

            fn spec_mut(&mut self) -> &mut $spec {
                &mut self.spec
            }
        }

        impl ::konverge::kube::core::object::HasStatus for $kind {
            type Status = $status;

            fn status(&self) -> Option<&$status> {
                self.status.as_ref()
            }

            fn status_mut(&mut self) -> &mut Option<$status> {
                &mut self.status
            }
        }

        impl ::konverge::kube::CustomResourceExt for $kind {
            fn crd() -> ::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition {
                crate::api::kind::definition::<Self>($schema(), $columns)
            }

            fn crd_name() -> &'static str {
                concat!($plural, ".openzro.io")
            }

            fn api_resource() -> ::konverge::kube::core::ApiResource {
                ::konverge::kube::core::ApiResource::erase::<Self>(&())
            }

            fn shortnames() -> &'static [&'static str] {
                &[]
            }
        }
    };
}

pub(super) use kind;

/// Reads `null` as the default value.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The definition of a kind with one version, which has a status.
#[expect(clippy::expect_used, reason = "the schemas are constants of this crate, and a test reads each of them")]
pub(super) fn definition<K>(schema: Value, columns: Vec<CustomResourceColumnDefinition>) -> CustomResourceDefinition
where
    K: Resource<DynamicType = (), Scope: Scope>,
{
    let (kind, plural) = (K::kind(&()).into_owned(), K::plural(&()).into_owned());
    let schema: JSONSchemaProps = serde_json::from_value(schema).expect("a schema that this crate wrote");
    let status = CustomResourceSubresourceStatus(Value::Object(serde_json::Map::new()));
    let version = CustomResourceDefinitionVersion {
        name: K::version(&()).into_owned(),
        served: true,
        storage: true,
        additional_printer_columns: (!columns.is_empty()).then_some(columns),
        schema: Some(CustomResourceValidation { open_api_v3_schema: Some(schema) }),
        subresources: Some(CustomResourceSubresources { scale: None, status: Some(status) }),
        ..CustomResourceDefinitionVersion::default()
    };
    CustomResourceDefinition {
        metadata: ObjectMeta { name: Some(format!("{plural}.{}", K::group(&()))), ..ObjectMeta::default() },
        spec: CustomResourceDefinitionSpec {
            group: K::group(&()).into_owned(),
            names: CustomResourceDefinitionNames {
                list_kind: Some(format!("{kind}List")),
                singular: Some(kind.to_lowercase()),
                kind,
                plural,
                ..CustomResourceDefinitionNames::default()
            },
            scope: if <K::Scope as Scope>::IS_NAMESPACED { "Namespaced" } else { "Cluster" }.to_owned(),
            versions: vec![version],
            ..CustomResourceDefinitionSpec::default()
        },
        ..CustomResourceDefinition::default()
    }
}
