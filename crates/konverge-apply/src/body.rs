//! The request body of a Secret, built so that values have as few copies as possible.

use std::{borrow::Borrow, collections::BTreeMap, fmt::Write};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use konverge_core::SecretValue;
use serde_json::{Value, json};
use zeroize::Zeroizing;

/// The apply configuration of a Secret as JSON. The buffer is allocated once at its final size, since a growing one leaves unwiped copies
/// behind, and it is wiped when the last handle to it goes.
pub(crate) fn apply_configuration<Key: AsRef<str>, Content: Borrow<SecretValue>>(
    metadata: &Value,
    secret_type: Option<&str>,
    data: &BTreeMap<Key, Content>,
) -> Bytes {
    let metadata = escaped(metadata);
    let secret_type = secret_type.map(|name| format!(r#""type":{},"#, escaped(&json!(name)))).unwrap_or_default();
    let head = format!(r#"{{"apiVersion":"v1","kind":"Secret",{secret_type}"metadata":{metadata},"data":{{"#);
    let names: Vec<String> = data.keys().map(|name| format!("{}:", json!(name.as_ref()))).collect();
    let quoted: usize = data.values().map(|value| quoted_length(value.borrow())).sum();
    let length = head.len() + names.iter().map(String::len).sum::<usize>() + quoted;
    // One comma per value, one too many, and two closing braces.
    let mut body = Zeroizing::new(Vec::with_capacity(length + data.len() + 2));
    let allocated = body.capacity();
    body.extend_from_slice(head.as_bytes());
    for (position, (name, value)) in names.iter().zip(data.values()).enumerate() {
        if position > 0 {
            body.push(b',');
        }
        body.extend_from_slice(name.as_bytes());
        push_quoted(&mut body, value.borrow());
    }
    body.extend_from_slice(b"}}");
    debug_assert_eq!(body.capacity(), allocated, "the buffer of a secret must not move");
    Bytes::from_owner(body)
}

/// JSON that is YAML too, which is what the API server reads here: YAML refuses some characters and takes others for ends of
/// lines, unless they are escaped.
pub(crate) fn escaped(value: &Value) -> String {
    let mut text = String::new();
    for character in value.to_string().chars() {
        match character {
            '\u{7f}'..='\u{a0}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                // Writing to a string cannot fail.
                let _ = write!(text, "\\u{:04x}", u32::from(character));
            }
            other => text.push(other),
        }
    }
    text
}

fn quoted_length(value: &SecretValue) -> usize {
    value.len().div_ceil(3) * 4 + 2
}

/// Appends the value in base64 between quotes, encoded in place.
fn push_quoted(body: &mut Vec<u8>, value: &SecretValue) {
    body.push(b'"');
    let start = body.len();
    body.resize(start + value.len().div_ceil(3) * 4, 0);
    #[expect(clippy::expect_used, reason = "the slice has exactly the length of the encoding")]
    STANDARD.encode_slice(value.expose(), &mut body[start..]).expect("the slice has the length of the encoding");
    body.push(b'"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(metadata: &Value, data: &BTreeMap<String, SecretValue>) -> Value {
        serde_json::from_slice(&apply_configuration(metadata, None, data)).expect("the body is JSON")
    }

    #[test]
    fn no_keys_make_an_empty_map() {
        let metadata = json!({ "name": "db", "namespace": "shop" });
        assert_eq!(
            decoded(&metadata, &BTreeMap::new()),
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {} })
        );
    }

    #[test]
    fn a_type_is_named() {
        let body = apply_configuration(&json!({}), Some("kubernetes.io/tls"), &BTreeMap::<String, SecretValue>::new());
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["type"], "kubernetes.io/tls");
    }

    #[test]
    fn annotations_are_escaped() {
        let metadata = json!({ "annotations": { "a/b": "say \"hi\"\n\u{7f}\u{2028}ä" } });
        assert_eq!(decoded(&metadata, &BTreeMap::new())["metadata"], metadata);
    }

    proptest! {
        #[test]
        fn every_value_comes_back(data in proptest::collection::btree_map("[-._a-zA-Z0-9]{1,12}", proptest::collection::vec(any::<u8>(), 0..50), 0..8)) {
            let expected: BTreeMap<_, _> = data.iter().map(|(name, value)| (name.clone(), json!(STANDARD.encode(value)))).collect();
            let secrets = data.into_iter().map(|(name, value)| (name, SecretValue::new(value))).collect();
            prop_assert_eq!(&decoded(&json!({}), &secrets)["data"], &json!(expected));
        }
    }
}
