//! Objects of the API as raw JSON.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{
    error::{Cause, Effect, OpenZroError},
    place::{Collection, Place},
};

/// The keys of a request's body.
pub type Fields = Map<String, Value>;

/// An object as the server sent it, with all its content. `Debug` shows its place alone.
#[derive(Clone, PartialEq)]
pub struct Object {
    collection: Collection,
    raw: Fields,
}

impl Object {
    /// An object with this content.
    pub fn new(collection: Collection, raw: Fields) -> Self {
        Self { collection, raw }
    }

    /// Its collection, as it was requested.
    pub fn collection(&self) -> &Collection {
        &self.collection
    }

    /// Its id, or an empty text if it has none, as an audit event of an older server.
    pub fn id(&self) -> &str {
        self.raw.get("id").and_then(Value::as_str).unwrap_or_default()
    }

    /// Its place.
    pub fn place(&self) -> Place {
        self.collection.place(self.id())
    }

    /// All that the server sent.
    pub fn raw(&self) -> &Fields {
        &self.raw
    }

    /// Reads it as one of [`types`](crate::types). Unknown keys are ignored, and `null` is an empty list.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, OpenZroError> {
        T::deserialize(&self.raw).map_err(|error| unreadable(&self.place(), error))
    }

    /// Returns the body of a PUT that changes nothing: what the server sent, in the form in which it accepts it.
    ///
    /// Requests take ids where answers have objects, and a list where answers may have `null`. Unknown keys stay.
    pub fn writable(&self) -> Fields {
        let mut body = self.raw.clone();
        match &self.collection {
            Collection::Groups => {
                ids(&mut body, "peers");
                list(&mut body, "resources");
            }
            Collection::Policies => {
                list(&mut body, "source_posture_checks");
                for rule in body.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten() {
                    if let Some(rule) = rule.as_object_mut() {
                        ids(rule, "sources");
                        ids(rule, "destinations");
                    }
                }
            }
            Collection::SetupKeys => {
                list(&mut body, "auto_groups");
                // The server masks it, and a PUT must not look as if it set it.
                body.remove("key");
            }
            Collection::Resources { .. } | Collection::AllResources => ids(&mut body, "groups"),
            _ => {}
        }
        body
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({})", self.place())
    }
}

/// The error for an object that has another form than the caller knows.
pub(crate) fn unreadable(place: &Place, error: serde_json::Error) -> OpenZroError {
    OpenZroError { what: format!("read {place}"), effect: Effect::None, cause: Cause::Unreadable(error) }
}

/// Turns a list of objects with an `id` into a list of ids.
fn ids(body: &mut Fields, key: &str) {
    list(body, key);
    for entry in body.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(id) = entry.get_mut("id") {
            *entry = id.take();
        }
    }
}

/// Turns `null` into an empty list. A missing key stays missing.
fn list(body: &mut Fields, key: &str) {
    if let Some(value @ Value::Null) = body.get_mut(key) {
        *value = Value::Array(Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn object(collection: Collection, raw: Value) -> Object {
        let Value::Object(raw) = raw else { panic!("an object") };
        Object::new(collection, raw)
    }

    #[test]
    fn what_is_sent_back_has_ids_for_objects_and_keeps_what_is_unknown() {
        let group = json!({ "id": "g", "name": "n", "peers": [{ "id": "p", "name": "x" }], "resources": null, "new": { "a": null } });
        let expected = json!({ "id": "g", "name": "n", "peers": ["p"], "resources": [], "new": { "a": null } });
        assert_eq!(Value::from(object(Collection::Groups, group).writable()), expected);
        let rule =
            json!({ "sources": null, "destinations": [{ "id": "g" }], "destinationResource": { "id": "r" }, "new": 1 });
        let policy = json!({ "id": "p", "source_posture_checks": null, "rules": [rule] });
        let rule = json!({ "sources": [], "destinations": ["g"], "destinationResource": { "id": "r" }, "new": 1 });
        let expected = json!({ "id": "p", "source_posture_checks": [], "rules": [rule] });
        assert_eq!(Value::from(object(Collection::Policies, policy).writable()), expected);
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z_]{1,8}", inner, 0..4).prop_map(Value::from_iter)
            ]
        })
    }

    proptest! {
        #[test]
        fn unknown_content_survives_at_each_level(top in json_value(), in_rule in json_value()) {
            let rule = json!({ "id": "r", "sources": [], "x_unknown": in_rule });
            let policy = object(Collection::Policies, json!({ "id": "p", "x_unknown": top, "rules": [rule] }));
            let body = policy.writable();
            prop_assert_eq!(&body["x_unknown"], &top);
            prop_assert_eq!(&body["rules"][0]["x_unknown"], &in_rule);
            // No content of any kind makes it panic.
            for collection in [Collection::Groups, Collection::AllResources, Collection::SetupKeys, Collection::Policies] {
                let raw = json!({ "peers": top, "groups": top, "rules": top, "auto_groups": in_rule });
                object(collection, raw).writable();
            }
        }
    }
}
