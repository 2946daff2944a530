//! A policy on the names of `ConfigMaps`. Its first version had one prefix, its second has several.

use konverge::{
    WebhookSetup,
    admission::{FailurePolicy, Operation, Review, Verdict, Webhook, Webhooks, crd_versions, handler},
    prelude::*,
};

/// The prefixes that names of `ConfigMaps` may have in the namespace of this object.
#[konverge::resource(group = "example.io", version = "v1", kind = "NamePolicy", namespaced)]
#[serde(rename_all = "camelCase")]
pub struct NamePolicySpec {
    /// Names that begin with one of these are allowed. Without any, each name is.
    pub allowed_prefixes: Vec<String>,
}

/// The version of the first release.
pub mod v1alpha1 {
    /// The prefix that names of `ConfigMaps` must have in the namespace of this object.
    #[konverge::resource(group = "example.io", version = "v1alpha1", kind = "NamePolicy", namespaced)]
    pub struct NamePolicySpec {
        /// Names that begin with this are allowed.
        pub prefix: String,
    }
}

/// Keeps the prefixes that `v1alpha1` has no field for: all but the first, separated by spaces.
const MORE_PREFIXES: &str = "example.io/more-prefixes";

impl From<v1alpha1::NamePolicy> for NamePolicy {
    fn from(mut old: v1alpha1::NamePolicy) -> Self {
        let more = old.annotations_mut().remove(MORE_PREFIXES).unwrap_or_default();
        old.metadata.annotations = old.metadata.annotations.filter(|annotations| !annotations.is_empty());
        let prefixes = [old.spec.prefix.as_str()].into_iter().chain(more.split_whitespace());
        let allowed_prefixes = prefixes.filter(|prefix| !prefix.is_empty()).map(ToOwned::to_owned).collect();
        Self { metadata: old.metadata, spec: NamePolicySpec { allowed_prefixes } }
    }
}

impl From<NamePolicy> for v1alpha1::NamePolicy {
    fn from(mut new: NamePolicy) -> Self {
        let mut prefixes = std::mem::take(&mut new.spec.allowed_prefixes).into_iter();
        let prefix = prefixes.next().unwrap_or_default();
        let more = prefixes.collect::<Vec<_>>().join(" ");
        if !more.is_empty() {
            new.annotations_mut().insert(MORE_PREFIXES.to_owned(), more);
        }
        Self { metadata: new.metadata, spec: v1alpha1::NamePolicySpec { prefix } }
    }
}

/// Returns what is wrong with a name under these policies.
pub fn fault<'a>(name: &str, policies: impl IntoIterator<Item = &'a NamePolicy>) -> Option<String> {
    let forbids = |policy: &&NamePolicy| {
        let prefixes = &policy.spec.allowed_prefixes;
        !prefixes.is_empty() && !prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    let policy = policies.into_iter().find(forbids)?;
    let prefixes = policy.spec.allowed_prefixes.join(", ");
    Some(format!("NamePolicy {} allows names that begin with one of: {prefixes}", policy.name_any()))
}

/// The operator. It has no controller: each replica answers the API server.
pub fn operator() -> Operator {
    let webhooks = WebhookSetup::reading(|caches| {
        let policies = caches.of::<NamePolicy>();
        let rules = handler::validator(move |review: &Review<ConfigMap>| {
            let Some(object) = &review.object else { return Verdict::allow() };
            let policies: Vec<_> =
                policies.list().into_iter().filter(|policy| policy.namespace() == object.namespace()).collect();
            let fault = fault(&object.name_any(), policies.iter().map(AsRef::as_ref));
            Verdict::unless(fault.map(|fault| ("metadata.name", fault)))
        });
        // Names are not worth a cluster in which nobody can create ConfigMaps while no replica answers.
        let names = Webhook::of::<ConfigMap>().operations([Operation::Create]).failure_policy(FailurePolicy::Ignore);
        Webhooks::new()
            .validate(names, rules)
            .versions(crd_versions::<NamePolicy>().and::<v1alpha1::NamePolicy>().migrate_storage())
    });
    Operator::new("policy-operator", env!("CARGO_PKG_VERSION")).webhooks(webhooks)
}

#[cfg(test)]
mod tests {
    use konverge::admission::conversion::round_trips;

    use super::*;

    fn policy(prefixes: &[&str]) -> NamePolicy {
        let allowed_prefixes = prefixes.iter().map(|prefix| (*prefix).to_owned()).collect();
        NamePolicy::new("teams", NamePolicySpec { allowed_prefixes })
    }

    #[test]
    fn a_name_needs_a_prefix_of_each_policy() {
        let (teams, environments, open) = (policy(&["shop-", "data-"]), policy(&["shop-prod"]), policy(&[]));
        for (name, policies, is_allowed) in [
            ("anything", vec![], true),
            ("anything", vec![&open], true),
            ("shop-app", vec![&teams], true),
            ("data-app", vec![&teams, &open], true),
            ("app", vec![&teams], false),
            ("shop-app", vec![&teams, &environments], false),
            ("shop-prod-app", vec![&teams, &environments], true),
        ] {
            assert_eq!(fault(name, policies.iter().copied()).is_none(), is_allowed, "{name} under {policies:?}");
        }
    }

    #[test]
    fn a_conversion_to_the_first_version_and_back_loses_nothing() {
        let examples = [policy(&[]), policy(&["shop-"]), policy(&["shop-", "data-", "web-"])];
        round_trips::<NamePolicy, v1alpha1::NamePolicy>(examples).unwrap();
    }
}
