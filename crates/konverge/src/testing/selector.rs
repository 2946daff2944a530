//! Which objects a selector of a list or a watch chooses. Pure.

use serde_json::Value;

/// Whether the labels of an object satisfy a selector in the syntax of `kubectl --selector`.
pub(super) fn labels(selector: &str, object: &Value) -> bool {
    let label = |name: &str| object.pointer("/metadata/labels")?.get(name.trim())?.as_str();
    requirements(selector).iter().all(|requirement| {
        if let Some((name, values)) = requirement.split_once(" notin ") {
            return label(name).is_none_or(|value| !is_in(value, values));
        }
        if let Some((name, values)) = requirement.split_once(" in ") {
            return label(name).is_some_and(|value| is_in(value, values));
        }
        if let Some((name, value)) = requirement.split_once("!=") {
            return label(name) != Some(value.trim());
        }
        if let Some((name, value)) = requirement.split_once('=') {
            return label(name) == Some(value.trim_start_matches('=').trim());
        }
        match requirement.strip_prefix('!') {
            Some(name) => label(name).is_none(),
            None => label(requirement).is_some(),
        }
    })
}

/// Whether the fields of an object satisfy a selector in the syntax of `kubectl --field-selector`. Every field can be chosen by, whereas
/// the API server knows a few of each kind.
pub(super) fn fields(selector: &str, object: &Value) -> bool {
    let field = |path: &str| {
        let found = object.pointer(&format!("/{}", path.trim().replace('.', "/")));
        found.map(|value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)).unwrap_or_default()
    };
    requirements(selector).iter().all(|requirement| match requirement.split_once("!=") {
        Some((path, value)) => field(path) != value.trim(),
        None => {
            requirement.split_once('=').is_some_and(|(path, value)| field(path) == value.trim_start_matches('=').trim())
        }
    })
}

/// Splits at the commas that are not between parentheses.
fn requirements(selector: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let parts = selector.split(|letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn is_in(value: &str, values: &str) -> bool {
    values.trim().trim_matches(['(', ')']).split(',').any(|other| other.trim() == value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_are_chosen_as_kubectl_does() {
        let object = json!({"metadata": {"labels": {"team": "a", "tier": "web"}}});
        for (selector, expected) in [
            ("", true),
            ("team=a", true),
            ("team==a,tier=web", true),
            ("team=b", false),
            ("team!=b", true),
            ("area!=x", true),
            ("team", true),
            ("!team", false),
            ("!area", true),
            ("team in (b, a),tier=web", true),
            ("team in (b,c)", false),
            ("team notin (b,c)", true),
            ("area notin (b)", true),
        ] {
            assert_eq!(labels(selector, &object), expected, "{selector}");
        }
    }

    #[test]
    fn fields_are_chosen_by_their_path() {
        let object = json!({"metadata": {"name": "x"}, "spec": {"replicas": 3}});
        for (selector, expected) in [
            ("", true),
            ("metadata.name=x", true),
            ("metadata.name!=x", false),
            ("spec.replicas=3,metadata.name==x", true),
            ("status.phase=Running", false),
        ] {
            assert_eq!(fields(selector, &object), expected, "{selector}");
        }
    }
}
