//! The largest annotations of an object. The API server takes 256 KiB of all of them together, and its refusal does not say which are large.

use std::{cmp::Reverse, collections::BTreeMap};

use kube::api::ObjectMeta;
use serde_json::Value;

use crate::error::ApplyError;

/// The words of the API server.
const TOO_LONG: &str = "metadata.annotations: Too long";

/// The number of annotations that a message names, the largest first.
const NAMED: usize = 3;

/// Adds the largest annotations to a refusal because of their size. The object has them `now`, and `body` would have changed some.
pub(crate) fn explained(refusal: ApplyError, now: &ObjectMeta, body: &Value) -> ApplyError {
    match refusal {
        ApplyError::Refused { object, code, status_reason, message, retry_after } if message.contains(TOO_LONG) => {
            let message = format!("{message}; {}", largest(now, &body["metadata"]["annotations"]));
            ApplyError::Refused { object, code, status_reason, message, retry_after }
        }
        other => other,
    }
}

fn largest(now: &ObjectMeta, written: &Value) -> String {
    let mut sizes: BTreeMap<&str, usize> =
        now.annotations.iter().flatten().map(|(name, value)| (name.as_str(), name.len() + value.len())).collect();
    for (name, value) in written.as_object().into_iter().flatten() {
        match value.as_str() {
            Some(value) => sizes.insert(name, name.len() + value.len()),
            None => sizes.remove(name.as_str()),
        };
    }
    let total: usize = sizes.values().sum();
    let mut sizes: Vec<_> = sizes.into_iter().collect();
    sizes.sort_by_key(|(_, size)| Reverse(*size));
    let named: Vec<_> = sizes.iter().take(NAMED).map(|(name, size)| format!("{name} with {size} bytes")).collect();
    format!(
        "they would have {total} bytes, of which the largest are {}; remove or shorten one of them",
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object_name::ObjectName;

    fn refused(message: &str) -> ApplyError {
        let object =
            ObjectName { kind: "Secret".to_owned(), namespace: Some("shop".to_owned()), name: "db".to_owned() };
        ApplyError::Refused {
            object: Box::new(object),
            code: 422,
            status_reason: "Invalid".to_owned(),
            message: message.to_owned(),
            retry_after: None,
        }
    }

    #[test]
    fn the_largest_are_named_as_they_would_be_after_the_write() {
        let text = |length| "x".repeat(length);
        let annotations = [("a", 10), ("b", 40), ("c", 30), ("d", 20), ("gone", 90)];
        let annotations = annotations.map(|(name, length)| (name.to_owned(), text(length)));
        let now = ObjectMeta { annotations: Some(annotations.into()), ..ObjectMeta::default() };
        let body = json!({ "metadata": { "annotations": { "a": text(50), "gone": null } } });
        let said = "Secret \"db\" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes";
        let text = explained(refused(said), &now, &body).to_string();
        assert!(
            text.ends_with(
                "may not be more than 262144 bytes; they would have 144 bytes, of which the largest are a with 51 bytes, b with 41 bytes, \
                 c with 31 bytes; remove or shorten one of them"
            ),
            "{text}"
        );
    }

    #[test]
    fn any_other_refusal_stays_as_it_is() {
        let now = ObjectMeta { annotations: Some([("a".to_owned(), "1".to_owned())].into()), ..ObjectMeta::default() };
        let text = explained(refused("metadata.labels: Invalid value"), &now, &json!({})).to_string();
        assert!(text.ends_with("metadata.labels: Invalid value"), "{text}");
    }
}
