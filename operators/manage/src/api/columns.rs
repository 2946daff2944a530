//! The columns of `kubectl get`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;

fn column(name: &str, type_: &str, json_path: &str) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: type_.to_owned(),
        json_path: json_path.to_owned(),
        ..CustomResourceColumnDefinition::default()
    }
}

/// `Ready` and `Age`, as openzro-operator's v1alpha1 kinds have them.
pub(super) fn ready_and_age() -> Vec<CustomResourceColumnDefinition> {
    vec![ready(), age()]
}

/// The columns of the v1 kinds, for which openzro-operator has none: `Ready`, `Status` with the reason, the column `more`, and `Age`.
pub(super) fn with_status(more: &[(&str, &str)]) -> Vec<CustomResourceColumnDefinition> {
    let reason = column("Status", "string", r#".status.conditions[?(@.type=="Ready")].reason"#);
    let more = more.iter().map(|(name, path)| column(name, "string", path));
    [ready(), reason].into_iter().chain(more).chain([age()]).collect()
}

fn ready() -> CustomResourceColumnDefinition {
    column("Ready", "string", r#".status.conditions[?(@.type=="Ready")].status"#)
}

fn age() -> CustomResourceColumnDefinition {
    column("Age", "date", ".metadata.creationTimestamp")
}
