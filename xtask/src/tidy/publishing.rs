//! Whether each published crate says what its page in a registry needs.
//!
//! No `repository` is asked for: the repository has no public address yet.

use crate::published::Package;

/// Returns the fields that the manifests of the published crates lack.
pub(super) fn faults(packages: &[Package]) -> Vec<String> {
    let lacks = |package: &Package| {
        let is_there = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.trim().is_empty());
        // The docs of a crate that does not choose a version of Kubernetes are built with one.
        let needs_version = package.dependencies.iter().any(|dependency| dependency.name == "k8s-openapi");
        [
            ("description", is_there(&package.description)),
            ("readme", is_there(&package.readme)),
            ("license", is_there(&package.license)),
            ("documentation", is_there(&package.documentation)),
            ("rust-version", is_there(&package.rust_version)),
            ("keywords (one to five)", (1..=5).contains(&package.keywords.len())),
            ("categories (one to five)", (1..=5).contains(&package.categories.len())),
            (
                "package.metadata.docs.rs",
                !needs_version || package.metadata.pointer("/docs/rs").is_some_and(has_version),
            ),
        ]
        .into_iter()
        .filter(|(_, is_there)| !is_there)
        .map(|(field, _)| format!("{} is published and lacks {field}", package.name))
        .collect::<Vec<_>>()
    };
    packages.iter().flat_map(lacks).collect()
}

/// Whether these settings of docs.rs choose a version of Kubernetes.
fn has_version(settings: &serde_json::Value) -> bool {
    settings["cargo-args"].to_string().contains("K8S_OPENAPI_ENABLED_VERSION")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::published::Dependency;

    #[test]
    fn each_missing_field_is_named() {
        let text = || Some("text".to_owned());
        let whole = || Package {
            name: "whole".to_owned(),
            description: text(),
            readme: text(),
            license: text(),
            documentation: text(),
            rust_version: text(),
            keywords: vec!["operator".to_owned()],
            categories: vec!["asynchronous".to_owned()],
            ..Package::default()
        };
        assert!(faults(&[whole()]).is_empty());
        let bare = Package { name: "bare".to_owned(), description: Some(" ".to_owned()), ..Package::default() };
        let fields = ["description", "readme", "license", "documentation", "rust-version", "keywords (one to five)"];
        let fields = fields.iter().chain(&["categories (one to five)"]);
        let expected: Vec<_> = fields.map(|field| format!("bare is published and lacks {field}")).collect();
        assert_eq!(faults(&[whole(), bare]), expected);

        let of_kubernetes = |metadata| Package {
            dependencies: vec![Dependency { name: "k8s-openapi".to_owned() }],
            metadata,
            ..whole()
        };
        let version =
            json!({ "docs": { "rs": { "cargo-args": ["--config", "env.K8S_OPENAPI_ENABLED_VERSION='1.36'"] } } });
        assert!(faults(&[of_kubernetes(version)]).is_empty());
        for metadata in [json!(null), json!({ "docs": { "rs": { "features": ["all"] } } })] {
            assert_eq!(faults(&[of_kubernetes(metadata)]), ["whole is published and lacks package.metadata.docs.rs"]);
        }
        let many = Package { keywords: vec!["word".to_owned(); 6], ..whole() };
        assert_eq!(faults(&[many]), ["whole is published and lacks keywords (one to five)"]);
    }
}
