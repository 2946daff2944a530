//! Which pods a profile selects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use konverge::kube::core::{Selector, SelectorExt};
use serde_json::Value;

/// Whether a selector selects the pod. A selector that is absent or empty selects each pod. The error says what is wrong with the selector.
pub(super) fn matches(selector: Option<&LabelSelector>, pod: &Value) -> Result<bool, String> {
    let Some(selector) = selector else { return Ok(true) };
    for expression in selector.match_expressions.iter().flatten() {
        let (key, operator) = (&expression.key, expression.operator.as_str());
        let has_values = expression.values.as_ref().is_some_and(|values| !values.is_empty());
        match operator {
            "In" | "NotIn" if !has_values => {
                return Err(format!("the expression on {key} with {operator} has no values"));
            }
            "Exists" | "DoesNotExist" if has_values => {
                return Err(format!("the expression on {key} with {operator} cannot have values"));
            }
            _ => {}
        }
    }
    let selector = Selector::try_from(selector.clone())
        .map_err(|error| format!("the selector has an operator that Kubernetes does not know ({error})"))?;
    let labels = pod["metadata"]["labels"].as_object().into_iter().flatten();
    let labels: BTreeMap<_, _> =
        labels.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect();
    Ok(selector.matches(&labels))
}
