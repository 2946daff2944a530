//! Where the API server asks for the decisions.

use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};
use konverge::{
    WebhookCaches, WebhookSetup,
    admission::{FailurePolicy, Mutation, Operation, Review, Verdict, Webhook, Webhooks, handler},
    kube::{Resource, ResourceExt},
    runtime::{
        cache::{Index, Store},
        object::{Object, ObjectKey},
    },
};
use serde_json::Value;

use super::{
    group::blocker,
    sidecar::{ENFORCE, Injection, Neighbours, inject},
};
use crate::{
    api::{
        v1::{OZGroup, OZResource, OZRoutingPeer, OZSetupKey},
        v1alpha1::{SetupKey, SidecarProfile},
    },
    settings::Settings,
};

/// The path at which openzro-operator's configuration asks for sidecars.
pub const POD_PATH: &str = "/mutate--v1-pod";
/// The label of a namespace whose pods are refused if a profile selects them and cannot be applied.
pub const PROFILES_LABEL: &str = "konverge.dev/sidecar-profiles";
/// The value of [`PROFILES_LABEL`].
pub const REQUIRED: &str = "required";

/// The annotation is there and is not blank.
const IS_ANNOTATED: &str = "has(object.metadata.annotations) && 'openzro.io/setup-key' in object.metadata.annotations && \
                            object.metadata.annotations['openzro.io/setup-key'] != ''";

/// Namespaces of the cluster itself. A profile there cannot stop a pod that the cluster needs.
const SYSTEM_NAMESPACES: [&str; 3] = ["kube-node-lease", "kube-public", "kube-system"];

/// Whether a pod may start without the sidecar of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Profiles {
    Optional,
    Required,
}

/// The namespaces of a webhook, by the level that Pod Security enforces there. The API server evaluates the label, so the operator needs no
/// permission to read namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PodSecurity {
    /// Pod Security refuses no sidecar, or the webhook is for all namespaces, as in the configuration of the original.
    Open,
    /// Pod Security refuses `NET_ADMIN`.
    Confined,
}

impl PodSecurity {
    /// Returns the suffix of the names and paths of its webhooks.
    fn suffix(self) -> &'static str {
        match self {
            Self::Open => "",
            Self::Confined => "-confined",
        }
    }

    fn namespaces(self) -> LabelSelectorRequirement {
        let operator = match self {
            Self::Open => "NotIn",
            Self::Confined => "In",
        };
        requirement(ENFORCE, operator, &["baseline", "restricted"])
    }
}

/// The callers that the webhooks answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callers {
    /// The API server alone, by its client certificate. It passes messages on to the user who creates the pod.
    ApiServer,
    /// Every client that reaches the port. Messages omit the names of other objects, which are in the log.
    Anybody,
}

/// The webhooks of the job.
///
/// - An annotated pod is refused if it cannot be served, also while no replica answers. No other pod reaches that webhook.
/// - A pod that a profile selects starts without a sidecar if the profile cannot be applied or no replica answers. It is refused if its
///   namespace has the label `konverge.dev/sidecar-profiles: required`.
/// - Where Pod Security refuses `NET_ADMIN`, the pod gets no sidecar with it, because the API server would refuse the pod for the sidecar.
/// - An `OZGroup` that a resource or a routing peer uses cannot be deleted. While no replica answers, it can: finalizers protect the group in
///   openZro all the same, and a deletion must not wait for an operator that is gone.
pub fn webhooks(settings: Arc<Settings>, callers: Callers) -> WebhookSetup {
    WebhookSetup::reading(move |caches| {
        let neighbours = NeighbourCaches::new(caches);
        let pods = |profiles, security| {
            let (neighbours, settings) = (neighbours.clone(), Arc::clone(&settings));
            handler::mutator(move |pod: Value, review: &Review<Value>| {
                let namespace = review.namespace.as_deref().unwrap_or_default();
                let injection = inject(&pod, namespace, &neighbours.of(namespace, security), &settings);
                decided(for_callers(injection, callers, &pod, namespace), profiles)
            })
        };
        let groups = {
            let (resources, peers) = (caches.of::<OZResource>(), caches.of::<OZRoutingPeer>());
            handler::validator(move |review: &Review<OZGroup>| {
                let namespace = review.namespace.clone().unwrap_or_default();
                let key = |name: &str| ObjectKey::namespaced(namespace.as_str(), name);
                let why = review
                    .old_object
                    .as_ref()
                    .and_then(|group| blocker(group, |name| resources.get(&key(name)), |name| peers.get(&key(name))));
                why.map_or_else(Verdict::allow, Verdict::deny)
            })
        };
        let mut webhooks = Webhooks::new();
        for security in [PodSecurity::Open, PodSecurity::Confined] {
            webhooks = webhooks.mutate(annotated_pods(security), pods(Profiles::Optional, security));
            for profiles in [Profiles::Optional, Profiles::Required] {
                webhooks = webhooks.mutate(profile_pods(profiles, security), pods(profiles, security));
            }
        }
        webhooks.validate(deleted_groups(), groups)
    })
}

/// Asked at the path of openzro-operator, whose configuration sends all pods here. So the handler applies profiles, too.
fn annotated_pods(security: PodSecurity) -> Webhook {
    let suffix = security.suffix();
    let namespaces = LabelSelector { match_labels: None, match_expressions: Some(vec![security.namespaces()]) };
    pods()
        .name(format!("mpod{suffix}-v1.openzro.io"))
        .path(format!("{POD_PATH}{suffix}"))
        .namespace_selector(namespaces)
        .condition("annotated", IS_ANNOTATED)
}

fn profile_pods(profiles: Profiles, security: PodSecurity) -> Webhook {
    let (name, path, policy, operator) = match profiles {
        Profiles::Optional => ("mpod-profile", "/mutate--v1-pod-profile", FailurePolicy::Ignore, "NotIn"),
        Profiles::Required => ("mpod-profile-required", "/mutate--v1-pod-profile-required", FailurePolicy::Fail, "In"),
    };
    let namespaces = LabelSelector {
        match_labels: None,
        match_expressions: Some(vec![
            requirement(PROFILES_LABEL, operator, &[REQUIRED]),
            requirement("kubernetes.io/metadata.name", "NotIn", &SYSTEM_NAMESPACES),
            security.namespaces(),
        ]),
    };
    let suffix = security.suffix();
    pods()
        .name(format!("{name}{suffix}-v1.openzro.io"))
        .path(format!("{path}{suffix}"))
        .failure_policy(policy)
        .namespace_selector(namespaces)
        .condition("not-annotated", format!("!({IS_ANNOTATED})"))
}

fn pods() -> Webhook {
    Webhook::of::<Pod>().operations([Operation::Create])
}

fn deleted_groups() -> Webhook {
    Webhook::of::<OZGroup>()
        .name("vnbgroup-v1.openzro.io")
        .path("/validate-openzro-io-v1-ozgroup")
        .operations([Operation::Delete])
        .failure_policy(FailurePolicy::Ignore)
}

fn requirement(key: &str, operator: &str, values: &[&str]) -> LabelSelectorRequirement {
    LabelSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: Some(values.iter().map(|value| (*value).to_owned()).collect()),
    }
}

/// Returns the decision with the messages for these callers.
fn for_callers(injection: Injection, callers: Callers, pod: &Value, namespace: &str) -> Injection {
    if callers == Callers::ApiServer {
        return injection;
    }
    for text in injection.warnings.iter().chain(injection.unserved.iter().map(|unserved| &unserved.why)) {
        tracing::info!(namespace, "a pod was reviewed: {text}");
    }
    injection.without_names(pod, namespace)
}

/// The answer to a pod.
fn decided(injection: Injection, profiles: Profiles) -> Mutation<Value> {
    let Injection { pod, warnings, unserved } = injection;
    let mutation = match (unserved, pod) {
        (Some(unserved), _) if unserved.is_requested || profiles == Profiles::Required => {
            Mutation::none(Verdict::deny(unserved.why))
        }
        (Some(unserved), _) => Mutation::none(Verdict::allow().warning(unserved.why)),
        (None, Some(pod)) => Mutation::to(pod),
        (None, None) => Mutation::none(Verdict::allow()),
    };
    warnings.into_iter().fold(mutation, Mutation::warning)
}

/// The caches from which [`Neighbours`] come.
#[derive(Clone)]
struct NeighbourCaches {
    annotated_keys: Index<OZSetupKey, String>,
    profiles: Index<SidecarProfile, String>,
    profile_keys: Index<SetupKey, String>,
}

impl NeighbourCaches {
    fn new(caches: &mut WebhookCaches<'_>) -> Self {
        Self {
            annotated_keys: by_namespace(&caches.of()),
            profiles: by_namespace(&caches.of()),
            profile_keys: by_namespace(&caches.of()),
        }
    }

    fn of(&self, namespace: &str, security: PodSecurity) -> Neighbours {
        let namespace = namespace.to_owned();
        Neighbours {
            annotated_keys: self.annotated_keys.get(&namespace),
            profiles: self.profiles.get(&namespace),
            profile_keys: self.profile_keys.get(&namespace),
            is_confined: security == PodSecurity::Confined,
        }
    }
}

fn by_namespace<K: Object + Resource<DynamicType = ()>>(store: &Store<K>) -> Index<K, String> {
    store.index(|object: &K| object.namespace().into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::sidecar::Unserved;

    #[test]
    fn w29_only_pods_that_ask_for_a_sidecar_are_refused() {
        let unserved = |is_requested| Injection {
            unserved: Some(Unserved { why: "no key".to_owned(), is_requested }),
            ..Injection::default()
        };
        let pod =
            || Injection { pod: Some(serde_json::json!({})), warnings: vec!["w".to_owned()], ..Injection::default() };
        let allowed =
            |warning: Option<&str>| Mutation::none(warning.into_iter().fold(Verdict::allow(), Verdict::warning));
        for (injection, profiles, expected) in [
            (unserved(true), Profiles::Optional, Mutation::none(Verdict::deny("no key"))),
            (unserved(true), Profiles::Required, Mutation::none(Verdict::deny("no key"))),
            (unserved(false), Profiles::Required, Mutation::none(Verdict::deny("no key"))),
            (unserved(false), Profiles::Optional, allowed(Some("no key"))),
            (Injection::default(), Profiles::Required, allowed(None)),
            (pod(), Profiles::Optional, Mutation::to(serde_json::json!({})).warning("w")),
        ] {
            assert_eq!(decided(injection.clone(), profiles), expected, "{injection:?} {profiles:?}");
        }
    }
}
