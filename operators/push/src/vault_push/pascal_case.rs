//! The policies of a `VaultPush`, which custom resources write in Pascal case, and flags and annotations in lower case.
//!
//! Objects that an earlier definition accepted have them in lower case. They are read, too.

use std::fmt::Display;

use serde::{Deserialize, Deserializer, Serializer, de::IntoDeserializer};

use crate::spec::pascal_case;

#[expect(clippy::ref_option, reason = "the signature is serde's")]
pub(super) fn serialize<P: Display, S: Serializer>(policy: &Option<P>, serializer: S) -> Result<S::Ok, S::Error> {
    match policy {
        None => serializer.serialize_none(),
        Some(policy) => serializer.collect_str(&pascal_case(policy)),
    }
}

pub(super) fn deserialize<'de, P: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<P>, D::Error> {
    let word = Option::<String>::deserialize(deserializer)?;
    word.map(|word| P::deserialize(word.to_ascii_lowercase().into_deserializer())).transpose()
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde_json::json;

    use super::*;
    use crate::spec::{BinaryPolicy, DeletionPolicy, ExistingPolicy};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Policies {
        #[serde(default, with = "super")]
        deletion: Option<DeletionPolicy>,
        #[serde(default, with = "super")]
        existing: Option<ExistingPolicy>,
        #[serde(default, with = "super")]
        binary: Option<BinaryPolicy>,
    }

    #[test]
    fn policies_are_written_in_pascal_case_and_read_in_both() {
        let policies = Policies {
            deletion: Some(DeletionPolicy::Metadata),
            existing: Some(ExistingPolicy::Refuse),
            binary: Some(BinaryPolicy::Base64),
        };
        let written = json!({ "deletion": "Metadata", "existing": "Refuse", "binary": "Base64" });
        assert_eq!(serde_json::to_value(&policies).unwrap(), written);
        let former = json!({ "deletion": "metadata", "existing": "refuse", "binary": "base64" });
        for text in [written, former] {
            assert_eq!(serde_json::from_value::<Policies>(text.clone()).unwrap(), policies, "{text}");
        }
        let none = Policies { deletion: None, existing: None, binary: None };
        assert_eq!(serde_json::from_value::<Policies>(json!({})).unwrap(), none);
        assert!(serde_json::from_value::<Policies>(json!({ "deletion": "Gently" })).is_err());
    }
}
