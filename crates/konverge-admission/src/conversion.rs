//! Conversion between the versions of a custom resource: a hub that all versions lead to and come from.
//!
//! One version is the hub, usually the stored one. Every other version, a spoke, says with `TryFrom` how it becomes the hub and how
//! the hub becomes it; from one spoke to another the way leads through the hub. A version that cannot say all that the hub says
//! keeps the rest in an annotation, else it is lost when somebody writes in that version.

mod metadata;
mod review;
mod round_trip;

use std::{any::type_name, fmt};

use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub(crate) use review::Conversion;
pub use round_trip::{RoundTripError, round_trips};

use crate::review::decode;

/// A version of a kind that becomes the hub and comes from it. Every type with the two `TryFrom`s is one.
pub trait Spoke<H>: Resource<DynamicType = ()> + Serialize + DeserializeOwned + TryInto<H> + TryFrom<H> {}

impl<H, S> Spoke<H> for S where S: Resource<DynamicType = ()> + Serialize + DeserializeOwned + TryInto<H> + TryFrom<H> {}

/// The versions of one kind.
///
/// Labels and annotations that a conversion does not carry over are kept; one that carries the metadata over may change and
/// remove them. The rest of the metadata is always that of the original, because the API server accepts nothing else. Fields that
/// the types do not know do not survive a conversion; an object that has the wanted version already is returned as it came.
pub struct Converter<H> {
    spokes: Vec<Version<H>>,
}

/// How one version becomes the hub and comes from it.
struct Version<H> {
    name: String,
    to_hub: fn(&Value) -> Result<H, String>,
    from_hub: fn(H) -> Result<Value, String>,
}

/// An object that cannot be converted. Names the object and the field, and never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot convert {object} from {from} to {to}: {why}")]
#[non_exhaustive]
pub struct ConversionError {
    /// Kind, namespace and name.
    pub object: String,
    /// The version that it has.
    pub from: String,
    /// The version that is wanted.
    pub to: String,
    /// The obstacle.
    pub why: String,
}

impl<H> fmt::Debug for Converter<H> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Converter").field(&type_name::<H>()).field(&self.versions()).finish()
    }
}

impl<H: Resource<DynamicType = ()> + Serialize + DeserializeOwned> Default for Converter<H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<H> Converter<H> {
    /// Every version that it knows, the hub first.
    pub fn versions(&self) -> Vec<&str> {
        self.spokes.iter().map(|version| version.name.as_str()).collect()
    }
}

impl<H: Resource<DynamicType = ()> + Serialize + DeserializeOwned> Converter<H> {
    /// Only the hub.
    pub fn new() -> Self {
        let hub = Version {
            name: H::api_version(&()).into_owned(),
            to_hub: |value| decode("object", value).map_err(|error| error.to_string()),
            from_hub: |hub| serde_json::to_value(hub).map_err(|error| error.to_string()),
        };
        Self { spokes: vec![hub] }
    }

    /// Adds a version.
    #[must_use]
    pub fn spoke<S: Spoke<H>>(mut self) -> Self
    where
        <S as TryInto<H>>::Error: fmt::Display,
        <S as TryFrom<H>>::Error: fmt::Display,
    {
        self.spokes.push(Version {
            name: S::api_version(&()).into_owned(),
            to_hub: |value| {
                let spoke: S = decode("object", value).map_err(|error| error.to_string())?;
                spoke.try_into().map_err(|error| error.to_string())
            },
            from_hub: |hub| {
                let spoke = S::try_from(hub).map_err(|error| error.to_string())?;
                serde_json::to_value(spoke).map_err(|error| error.to_string())
            },
        });
        self
    }

    /// The object in the version `api_version`, such as `example.com/v1`.
    ///
    /// It is what the webhook does with each object. [`round_trips`] tests with it that nothing is lost.
    pub fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ConversionError> {
        let from = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        if from == api_version {
            return Ok(object.clone());
        }
        self.converted(object, from, api_version).map_err(|why| ConversionError {
            object: described(object),
            from: from.to_owned(),
            to: api_version.to_owned(),
            why,
        })
    }

    fn converted(&self, object: &Value, from: &str, to: &str) -> Result<Value, String> {
        let kind = H::kind(&());
        if object.get("kind").and_then(Value::as_str) != Some(&*kind) {
            return Err(format!("this webhook converts {kind}"));
        }
        let hub = (self.version(from)?.to_hub)(object)?;
        let mut converted = (self.version(to)?.from_hub)(hub)?;
        let original = object.get("metadata").cloned().unwrap_or_default();
        if let Some(fields) = converted.as_object_mut() {
            let metadata = metadata::kept(original, fields.remove("metadata").unwrap_or_default());
            fields.insert("apiVersion".to_owned(), to.into());
            fields.insert("kind".to_owned(), (*kind).into());
            fields.insert("metadata".to_owned(), metadata);
        }
        Ok(converted)
    }

    fn version(&self, api_version: &str) -> Result<&Version<H>, String> {
        let found = self.spokes.iter().find(|version| version.name == api_version);
        found.ok_or_else(|| format!("version {api_version} is not known, only {}", self.versions().join(", ")))
    }
}

/// `Widget shop/db`.
fn described(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").unwrap_or("an object without a kind");
    let name = text("/metadata/name").or_else(|| text("/metadata/generateName")).unwrap_or("without a name");
    match text("/metadata/namespace") {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}
