//! Request bodies, decoded as the server decodes them: a missing key and `null` are the zero value, another type is an error.

use serde_json::{Map, Value};

use super::Refusal;

pub(super) struct Body(Map<String, Value>);

fn wrong<T>() -> Result<T, Refusal> {
    Err(Refusal::Api(400, "couldn't parse JSON request".to_owned()))
}

impl Body {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(map)) => Ok(Self(map)),
            Ok(Value::Null) => Ok(Self(Map::new())),
            _ => wrong(),
        }
    }

    pub(super) fn of(value: &Value) -> Result<Self, Refusal> {
        match value {
            Value::Object(map) => Ok(Self(map.clone())),
            _ => wrong(),
        }
    }

    /// Fails for keys that no property has sent. Only keys that begin with `konverge_unknown` are proven to be ignored.
    pub(super) fn only(&self, known: &[&str]) -> Result<&Self, Refusal> {
        let unproven = self.0.keys().find(|key| !known.contains(&key.as_str()) && !key.starts_with("konverge_unknown"));
        unproven.map_or(Ok(self), |key| Err(Refusal::Unproven(format!("the key {key}"))))
    }

    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, key: &str) -> Result<String, Refusal> {
        match self.value(key) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => wrong(),
        }
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, Refusal> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => wrong(),
        }
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<i64>, Refusal> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => value.as_i64().map_or_else(wrong, |number| Ok(Some(number))),
        }
    }

    pub(super) fn list(&self, key: &str) -> Result<Option<Vec<Value>>, Refusal> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Array(values)) => Ok(Some(values.clone())),
            Some(_) => wrong(),
        }
    }

    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<String>>, Refusal> {
        let Some(values) = self.list(key)? else { return Ok(None) };
        let texts: Option<Vec<_>> = values.iter().map(|value| value.as_str().map(str::to_owned)).collect();
        texts.map_or_else(wrong, |texts| Ok(Some(texts)))
    }
}

/// A list as answers have it: `null` if it is empty.
pub(super) fn null_if_empty(values: Vec<Value>) -> Value {
    if values.is_empty() { Value::Null } else { Value::Array(values) }
}
