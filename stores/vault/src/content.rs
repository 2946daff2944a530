//! The content of a secret.

use std::collections::BTreeMap;

use konverge_core::SecretValue;
use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap};
use serde_json::value::RawValue;
use zeroize::Zeroizing;

/// Fields by their keys. Nothing of it can be printed.
///
/// Most are text. Others hold any JSON that somebody wrote; they are kept byte by byte as they came, so that writing them back changes
/// nothing.
#[derive(Default, PartialEq, Eq)]
pub struct Content(BTreeMap<String, Field>);

/// One field.
#[derive(PartialEq, Eq)]
pub enum Field {
    /// Text, in UTF-8 if it came from Vault.
    Text(SecretValue),
    /// The JSON of a number, an object and so on.
    Json(SecretValue),
}

impl Content {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a field to a text; what it was before is returned.
    pub fn insert(&mut self, key: impl Into<String>, text: SecretValue) -> Option<Field> {
        self.0.insert(key.into(), Field::Text(text))
    }

    /// Takes a field out.
    pub fn remove(&mut self, key: &str) -> Option<Field> {
        self.0.remove(key)
    }

    /// A field.
    pub fn get(&self, key: &str) -> Option<&Field> {
        self.0.get(key)
    }

    /// The keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The fields in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Field)> {
        self.0.iter().map(|(key, field)| (key.as_str(), field))
    }

    /// Returns the values by their keys: a text, or the JSON of what is none.
    pub fn into_values(self) -> BTreeMap<String, SecretValue> {
        let value = |field| match field {
            Field::Text(value) | Field::Json(value) => value,
        };
        self.0.into_iter().map(|(key, field)| (key, value(field))).collect()
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first key whose value JSON cannot carry, because it is not UTF-8.
    pub fn not_text(&self) -> Option<&str> {
        self.iter().find(|(_, field)| std::str::from_utf8(field.bytes()).is_err()).map(|(key, _)| key)
    }

    /// Whether the text repeats one of the values. Very short ones are in every text and say nothing.
    pub(crate) fn is_told_by(&self, text: &str) -> bool {
        const TELLING: usize = 4;
        let mut values = self.0.values().filter_map(|field| std::str::from_utf8(field.bytes()).ok());
        values.any(|value| value.len() >= TELLING && text.contains(value))
    }

    /// How many bytes keys and values take, and some more for each.
    pub fn size(&self) -> usize {
        self.0.iter().map(|(key, field)| key.len() + field.bytes().len() + 8).sum()
    }

    pub(crate) fn from_raw(raw: BTreeMap<String, &RawValue>) -> Self {
        let field = |raw: &RawValue| match serde_json::from_str::<String>(raw.get()) {
            Ok(text) => Field::Text(SecretValue::from(text)),
            Err(_) => Field::Json(SecretValue::from(raw.get().to_owned())),
        };
        Self(raw.into_iter().map(|(key, value)| (key, field(value))).collect())
    }
}

impl Field {
    /// The text's bytes or the JSON's.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(value) | Self::Json(value) => value.expose(),
        }
    }
}

impl FromIterator<(String, SecretValue)> for Content {
    fn from_iter<I: IntoIterator<Item = (String, SecretValue)>>(fields: I) -> Self {
        Self(fields.into_iter().map(|(key, value)| (key, Field::Text(value))).collect())
    }
}

/// The content as it is sent; private, so that nobody serialises one by accident.
pub(crate) struct Sent<'a>(pub(crate) &'a Content);

impl Serialize for Sent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, field) in self.0.iter() {
            let text = std::str::from_utf8(field.bytes()).map_err(|_| serde::ser::Error::custom("not UTF-8"))?;
            match field {
                Field::Text(_) => map.serialize_entry(key, text)?,
                Field::Json(_) => {
                    let raw: &RawValue =
                        serde_json::from_str(text).map_err(|_| serde::ser::Error::custom("not JSON"))?;
                    map.serialize_entry(key, raw)?;
                }
            }
        }
        map.end()
    }
}

/// JSON that is wiped when it is dropped.
pub(crate) fn to_wiped_json(value: &impl Serialize, size: usize) -> Result<Zeroizing<Vec<u8>>, serde_json::Error> {
    // Room for every byte escaped once, so that growing leaves no copy behind; one that needs more is rare.
    let mut bytes = Zeroizing::new(Vec::with_capacity(2 * size + 256));
    serde_json::to_writer(&mut *bytes, value)?;
    Ok(bytes)
}

/// Fields as they came.
#[derive(Deserialize)]
pub(crate) struct RawContent<'a>(#[serde(borrow)] pub(crate) BTreeMap<String, &'a RawValue>);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(json: &str) -> Content {
        Content::from_raw(serde_json::from_str::<RawContent>(json).unwrap().0)
    }

    fn sent(content: &Content) -> String {
        String::from_utf8(to_wiped_json(&Sent(content), content.size()).unwrap().to_vec()).unwrap()
    }

    #[test]
    fn what_is_no_text_stays_as_it_came() {
        let json = r#"{"big":123456789012345678901234567890.10,"list":[1, {"a":null}],"text":"ä\n"}"#;
        let content = read(json);
        assert_eq!(content.get("text").unwrap().bytes(), "ä\n".as_bytes());
        assert!(matches!(content.get("big"), Some(Field::Json(_))));
        assert_eq!(sent(&content), json);
    }

    #[test]
    fn bytes_that_are_no_text_are_named_by_their_key() {
        let mut content = Content::new();
        content.insert("good", SecretValue::from("é".to_owned()));
        assert_eq!(content.not_text(), None);
        content.insert("keystore", SecretValue::new(vec![0xfe, 0xed]));
        assert_eq!(content.not_text(), Some("keystore"));
        assert!(to_wiped_json(&Sent(&content), 10).is_err());
    }

    #[test]
    fn a_text_that_repeats_a_value_is_noticed() {
        let content = read(r#"{"a":"hunter2","b":"no"}"#);
        assert!(content.is_told_by("bad value hunter2"));
        assert!(!content.is_told_by("no such thing"));
    }

    proptest! {
        #[test]
        fn text_survives_the_way_there_and_back(fields in proptest::collection::btree_map(".{0,8}", ".{0,20}", 0..5)) {
            let content: Content =
                fields.into_iter().map(|(key, value)| (key, SecretValue::from(value))).collect();
            prop_assert!(read(&sent(&content)) == content);
        }
    }
}
