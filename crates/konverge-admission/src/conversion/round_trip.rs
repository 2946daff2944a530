//! Tests of conversions: nothing may be lost on the way to another version and back.

use std::fmt;

use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{ConversionError, Converter, Spoke, described};

/// An object that does not survive a conversion to another version and back.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RoundTripError {
    /// It cannot be converted.
    #[error(transparent)]
    Conversion(#[from] ConversionError),
    /// It cannot be encoded.
    #[error("cannot encode an example: {0}")]
    Encode(String),
    /// It is not the same afterwards.
    #[error(
        "{object} is not the same after a conversion to {via} and back: {path} was {before} and is {after}; let {via} keep in an \
         annotation what its fields cannot say"
    )]
    Lost {
        /// Kind, namespace and name.
        object: String,
        /// The version that it was converted to.
        via: String,
        /// The first field that differs, as a JSON pointer.
        path: String,
        /// Its JSON before; `null` if there was none.
        before: String,
        /// Its JSON after; `null` if there is none any more.
        after: String,
    },
}

/// Proves with examples that a conversion from the hub `H` to the spoke `S` and back loses nothing. Converts as the webhook does,
/// without a server.
///
/// Give it the examples that a table lists, or one that a strategy of `proptest` makes in each case:
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
/// #     pub struct ParcelSpec { pub weight: String }
/// # }
/// # impl TryFrom<v1::Parcel> for Parcel {
/// #     type Error = String;
/// #     fn try_from(old: v1::Parcel) -> Result<Self, String> {
/// #         let grams = old.spec.weight.strip_suffix(" g").and_then(|number| number.parse().ok());
/// #         let spec = ParcelSpec { grams: grams.ok_or("spec.weight: expected a number and g")? };
/// #         Ok(Self { metadata: old.metadata, spec })
/// #     }
/// # }
/// # impl From<Parcel> for v1::Parcel {
/// #     fn from(new: Parcel) -> Self {
/// #         Self { metadata: new.metadata, spec: v1::ParcelSpec { weight: format!("{} g", new.spec.grams) } }
/// #     }
/// # }
/// use konverge_admission::conversion::round_trips;
///
/// let examples = [0, 1, u32::MAX].map(|grams| Parcel::new("example", ParcelSpec { grams }));
/// round_trips::<Parcel, v1::Parcel>(examples).unwrap();
/// ```
pub fn round_trips<H, S>(examples: impl IntoIterator<Item = H>) -> Result<(), RoundTripError>
where
    H: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    S: Spoke<H>,
    <S as TryInto<H>>::Error: fmt::Display,
    <S as TryFrom<H>>::Error: fmt::Display,
{
    let converter = Converter::<H>::new().spoke::<S>();
    for example in examples {
        let mut object = serde_json::to_value(example).map_err(|error| RoundTripError::Encode(error.to_string()))?;
        if let Some(fields) = object.as_object_mut() {
            // Types of built-in kinds write them, and others need not.
            fields.insert("apiVersion".to_owned(), H::api_version(&()).into());
            fields.insert("kind".to_owned(), H::kind(&()).into());
        }
        converter.round_trip(&object, &S::api_version(&()))?;
    }
    Ok(())
}

impl<H: Resource<DynamicType = ()> + Serialize + DeserializeOwned> Converter<H> {
    /// Proves that this object, in whatever version, is the same after a conversion to `via`, such as `example.com/v1`, and back. See
    /// [`round_trips`]; this is for objects of spokes, and for ways between two of them.
    pub fn round_trip(&self, object: &Value, via: &str) -> Result<(), RoundTripError> {
        let version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let back = self.convert(&self.convert(object, via)?, version)?;
        match difference(object, &back) {
            None => Ok(()),
            Some((path, before, after)) => Err(RoundTripError::Lost {
                object: described(object),
                via: via.to_owned(),
                path,
                before: before.to_string(),
                after: after.to_string(),
            }),
        }
    }
}

/// The first field that differs. A field that is null is none, as the API server sees it.
fn difference(before: &Value, after: &Value) -> Option<(String, Value, Value)> {
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    let below = |key: &str, found: Option<(String, Value, Value)>| {
        found.map(|(path, before, after)| (format!("/{}{path}", escaped(key)), before, after))
    };
    match (before, after) {
        (Value::Object(one), Value::Object(other)) => {
            let added = other.keys().filter(|key| !one.contains_key(*key));
            one.keys().chain(added).find_map(|key| {
                let field = |fields: &serde_json::Map<String, Value>| fields.get(key).cloned().unwrap_or_default();
                below(key, difference(&field(one), &field(other)))
            })
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => one
            .iter()
            .zip(other)
            .enumerate()
            .find_map(|(index, (one, other))| below(&index.to_string(), difference(one, other))),
        _ if before == after => None,
        _ => Some((String::new(), before.clone(), after.clone())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_field_that_differs_is_named() {
        let before = json!({"spec": {"a": 1, "list": [1, {"b/c": true}], "none": null}});
        let table = [
            (before.clone(), None),
            (json!({"spec": {"a": 1, "list": [1, {"b/c": true}]}}), None),
            (json!({"spec": {"a": 2, "list": [1, {"b/c": true}]}}), Some(("/spec/a", json!(1), json!(2)))),
            (json!({"spec": {"a": 1, "list": [1, {}]}}), Some(("/spec/list/1/b~1c", json!(true), Value::Null))),
            (json!({"spec": {"a": 1, "list": [1]}}), Some(("/spec/list", before["spec"]["list"].clone(), json!([1])))),
            (
                json!({"spec": {"a": 1, "list": [1, {"b/c": true}], "new": 3}}),
                Some(("/spec/new", Value::Null, json!(3))),
            ),
        ];
        for (after, expected) in table {
            let expected = expected.map(|(path, before, after)| (path.to_owned(), before, after));
            assert_eq!(difference(&before, &after), expected, "{after}");
        }
    }
}
