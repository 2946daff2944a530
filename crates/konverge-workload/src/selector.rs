//! A selector of labels as it stands in a custom resource.

#![allow(clippy::doc_markdown, reason = "descriptions are read in `kubectl explain`, where backticks are noise")]
#![allow(unreachable_pub, reason = "the derived schema has a copy of each type in a function")]

use std::collections::BTreeMap;

use kube::{
    KubeSchema,
    core::{Expression, Selector},
};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A label selector.
///
/// The field that holds the selector decides, in a rule of its own, whether a selector may match everything.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[schemars(description = "A selector of labels.")]
#[serde(rename_all = "camelCase")]
pub struct SelectorSpec {
    /// Labels that an object must have, with their values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minProperties" = 1, "maxProperties" = 32))]
    pub match_labels: Option<BTreeMap<String, String>>,
    /// Conditions on labels. An object must meet all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub match_expressions: Option<Vec<RequirementSpec>>,
}

/// A condition on a label.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[x_kube(
    validation = Rule::new("self.operator in ['In', 'NotIn'] ? has(self.values) : !has(self.values)")
        .message("In and NotIn need values, Exists and DoesNotExist have none")
)]
pub struct RequirementSpec {
    /// The name of the label.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// The operator: In, NotIn, Exists or DoesNotExist.
    #[schemars(extend("enum" = ["In", "NotIn", "Exists", "DoesNotExist"]))]
    pub operator: String,
    /// The values for In and NotIn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "values")]
    pub values: Option<Vec<String>>,
}

fn values(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 100,
        "items": { "type": "string", "maxLength": 63 }
    })
}

impl SelectorSpec {
    /// Returns the selector, or `None` if it is empty, because a selector that matches everything is more often a mistake than intended. The
    /// error explains an invalid selector, which the schema would have refused.
    pub fn read(&self) -> Result<Option<Selector>, String> {
        let equal = self.match_labels.iter().flatten();
        let mut selector: Selector = equal.map(|(key, value)| (key.clone(), value.clone())).collect();
        for requirement in self.match_expressions.iter().flatten() {
            selector.extend(requirement.read()?);
        }
        Ok(Some(selector).filter(|selector| !selector.selects_all()))
    }
}

impl RequirementSpec {
    fn read(&self) -> Result<Expression, String> {
        let key = self.key.clone();
        let values = self.values.iter().flatten().cloned().collect();
        Ok(match self.operator.as_str() {
            "In" => Expression::In(key, values),
            "NotIn" => Expression::NotIn(key, values),
            "Exists" => Expression::Exists(key),
            "DoesNotExist" => Expression::DoesNotExist(key),
            other => return Err(format!("{other:?} is no operator of a selector")),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: &Value) -> Result<Option<Selector>, String> {
        SelectorSpec::deserialize(spec).unwrap().read()
    }

    #[test]
    fn each_condition_is_read_as_kubectl_writes_it() {
        for (spec, expected) in [
            (json!({ "matchLabels": { "app": "shop", "tier": "web" } }), "app=shop,tier=web"),
            (json!({ "matchExpressions": [{ "key": "a", "operator": "In", "values": ["x", "y"] }] }), "a in (x,y)"),
            (json!({ "matchExpressions": [{ "key": "a", "operator": "NotIn", "values": ["x"] }] }), "a notin (x)"),
            (json!({ "matchExpressions": [{ "key": "a", "operator": "Exists" }] }), "a"),
            (json!({ "matchExpressions": [{ "key": "a", "operator": "DoesNotExist" }] }), "!a"),
            (
                json!({ "matchLabels": { "app": "shop" }, "matchExpressions": [{ "key": "old", "operator": "DoesNotExist" }] }),
                "app=shop,!old",
            ),
        ] {
            let found = read(&spec).unwrap().map(|selector| selector.to_string());
            assert_eq!(found.as_deref(), Some(expected), "{spec}");
        }
    }

    #[test]
    fn an_empty_one_is_none() {
        for spec in [
            json!({}),
            json!({ "matchLabels": {} }),
            json!({ "matchExpressions": [] }),
            json!({ "matchLabels": {}, "matchExpressions": [] }),
        ] {
            assert!(read(&spec).unwrap().is_none(), "{spec}");
        }
    }

    #[test]
    fn an_operator_that_nobody_knows_is_named() {
        let spec = json!({ "matchExpressions": [{ "key": "a", "operator": "Like", "values": ["x"] }] });
        assert_eq!(read(&spec).unwrap_err(), r#""Like" is no operator of a selector"#);
    }
}
