//! A kind of the tests' own, in two versions and in any group.

use std::{borrow::Cow, fmt::Debug, marker::PhantomData};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Resource,
    api::ObjectMeta,
    core::{NamespaceResourceScope, TypeMeta},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;

/// An API group, so that each test has one that no other touches.
pub(crate) trait Group: Clone + Debug + Default + PartialEq + Send + Sync + 'static {
    const NAME: &'static str;
}

macro_rules! groups {
    ($($group:ident $name:literal),* $(,)?) => {$(
        #[derive(Debug, Clone, Default, PartialEq)]
        pub(crate) struct $group;

        impl Group for $group {
            const NAME: &'static str = $name;
        }
    )*};
}

groups! {
    Shop "shop.example.com",
    Converted "converted.example.com",
    Rotated "rotated.example.com",
    Refused "refused.example.com",
}

pub(crate) trait Spec:
    Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
    const VERSION: &'static str;
}

/// A size in words: `3 cm`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct V1 {
    pub(crate) size: String,
}

/// The hub.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct V2 {
    pub(crate) size: i64,
    #[serde(default)]
    pub(crate) unit: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) colour: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<String>,
}

impl Spec for V1 {
    const VERSION: &'static str = "v1";
}

impl Spec for V2 {
    const VERSION: &'static str = "v2";
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Thing<G: Group, S: Spec> {
    #[serde(flatten)]
    types: TypeMeta,
    #[serde(default)]
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: S,
    #[serde(skip)]
    group: PhantomData<G>,
}

impl<G: Group, S: Spec> Thing<G, S> {
    pub(crate) fn new(name: &str, spec: S) -> Self {
        let types = TypeMeta { api_version: Self::api_version(&()).into_owned(), kind: "Thing".to_owned() };
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        Self { types, metadata, spec, group: PhantomData }
    }
}

impl<G: Group, S: Spec> Resource for Thing<G, S> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Thing".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        G::NAME.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        S::VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "things".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Where v1 keeps the colour, which it has no field for.
const COLOUR: &str = "example.com/colour";

impl<G: Group> TryFrom<Thing<G, V1>> for Thing<G, V2> {
    type Error = String;

    fn try_from(thing: Thing<G, V1>) -> Result<Self, String> {
        assert!(thing.spec.size != "panic", "asked to");
        let (size, unit) = thing.spec.size.split_once(' ').ok_or("spec.size: expected a number, a blank and a unit")?;
        let size = size.parse().map_err(|_| "spec.size: expected a number first")?;
        let mut metadata = thing.metadata;
        let colour = metadata.annotations.as_mut().and_then(|annotations| annotations.remove(COLOUR));
        let spec = V2 { size, unit: unit.to_owned(), colour, payload: None };
        Ok(Self { metadata, ..Self::new("", spec) })
    }
}

impl<G: Group> From<Thing<G, V2>> for Thing<G, V1> {
    fn from(thing: Thing<G, V2>) -> Self {
        let mut metadata = thing.metadata;
        if let Some(colour) = thing.spec.colour {
            metadata.annotations.get_or_insert_default().insert(COLOUR.to_owned(), colour);
        }
        let spec = V1 { size: format!("{} {}", thing.spec.size, thing.spec.unit) };
        Self { metadata, ..Self::new("", spec) }
    }
}

/// The definition with the versions, of which the last is stored. Any field is taken, as by a sender who knows more.
pub(crate) fn definition<G: Group>(versions: &[&str]) -> CustomResourceDefinition {
    let versions: Vec<_> = versions
        .iter()
        .enumerate()
        .map(|(index, version)| {
            json!({
                "name": version,
                "served": true,
                "storage": index + 1 == versions.len(),
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            })
        })
        .collect();
    serde_json::from_value(json!({
        "metadata": { "name": format!("things.{}", G::NAME) },
        "spec": {
            "group": G::NAME,
            "scope": "Namespaced",
            "names": { "kind": "Thing", "plural": "things", "singular": "thing" },
            "versions": versions,
        },
    }))
    .unwrap()
}
