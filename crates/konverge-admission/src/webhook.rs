//! The declaration of one webhook for the API server: when to call it, and what to do when it does not answer.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::admissionregistration::v1::{MatchCondition, RuleWithOperations},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{Resource, core::GroupVersionKind};

use crate::Operation;

/// The API server's action if a webhook does not answer, or answers with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// The request is refused. Needed for objects that must never be stored unchecked. It makes the webhook part of the API's availability.
    #[default]
    Fail,
    /// The request goes on unchecked.
    Ignore,
}

/// The action for an object that the handler's type cannot decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnUndecodable {
    /// The request is refused with 400, and the message names the field.
    ///
    /// This also holds an old object fast that was stored in a form that is no longer known: it can neither be mended nor, if the
    /// webhook is called for deletes, be deleted.
    #[default]
    Deny,
    /// The call fails with 500, so that the failure policy decides.
    Fail,
    /// The request goes on unchecked, with a warning that says so.
    Admit,
}

/// Whether an answer leaves something behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SideEffects {
    /// It does not.
    #[default]
    None,
    /// It does, but not in a dry run.
    NoneOnDryRun,
}

/// One webhook: its name, what it is called for, and under which path.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use konverge_admission::{Operation, Webhook};
///
/// let webhook = Webhook::of::<ConfigMap>()
///     .name("settings.shop.example.com")
///     .operations([Operation::Create, Operation::Update, Operation::Delete])
///     .namespace_labels([("shop", "yes")])
///     .condition("not-the-kubelet", "!('system:nodes' in request.userInfo.groups)")
///     .timeout_seconds(5);
/// # let _ = webhook;
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a webhook is called only when it is registered"]
pub struct Webhook {
    name: Option<String>,
    kind: GroupVersionKind,
    plural: String,
    pub(crate) requests: Requests,
    path: Option<String>,
    pub(crate) failure_policy: FailurePolicy,
    pub(crate) on_undecodable: OnUndecodable,
    pub(crate) side_effects: SideEffects,
    pub(crate) timeout_seconds: i32,
    pub(crate) reinvoke: bool,
}

/// The requests for which a webhook is called. Each field narrows them further.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Requests {
    pub(crate) rules: Vec<RuleWithOperations>,
    pub(crate) namespace_selector: Option<LabelSelector>,
    pub(crate) object_selector: Option<LabelSelector>,
    pub(crate) match_conditions: Vec<MatchCondition>,
    pub(crate) exact_version: bool,
}

impl Webhook {
    /// For creates and updates of a kind, in whatever version they come.
    ///
    /// Without further words: refuse when the webhook does not answer within 10 seconds, and when an object cannot be read.
    pub fn of<K: Resource<DynamicType = ()>>() -> Self {
        let kind = GroupVersionKind::gvk(&K::group(&()), &K::version(&()), &K::kind(&()));
        Self::for_resource(kind, K::plural(&()))
    }

    /// For creates and updates of a resource that has no type here; `plural` is its name in the URL. See [`of`](Self::of).
    pub fn for_resource(kind: GroupVersionKind, plural: impl Into<String>) -> Self {
        let plural = plural.into();
        let rule = RuleWithOperations {
            api_groups: Some(vec![kind.group.clone()]),
            api_versions: Some(vec![kind.version.clone()]),
            operations: Some(operation_names([Operation::Create, Operation::Update])),
            resources: Some(vec![plural.clone()]),
            scope: None,
        };
        Self {
            name: None,
            kind,
            plural,
            requests: Requests {
                rules: vec![rule],
                namespace_selector: None,
                object_selector: None,
                match_conditions: Vec::new(),
                exact_version: false,
            },
            path: None,
            failure_policy: FailurePolicy::default(),
            on_undecodable: OnUndecodable::default(),
            side_effects: SideEffects::default(),
            timeout_seconds: 10,
            reinvoke: false,
        }
    }

    /// Its name, instead of `validate.<plural>.<group>`, `mutate.…` or `default.…`. A domain of three parts at least, and unique in
    /// a configuration: it is what people read in a refusal.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Sets the operations that call it, instead of creates and updates.
    pub fn operations(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        let operations = operation_names(operations);
        for rule in &mut self.requests.rules {
            rule.operations = Some(operations.clone());
        }
        self
    }

    /// Called for this subresource, such as `status` or `scale`, instead of the object itself. May be given several times.
    pub fn subresource(mut self, subresource: &str) -> Self {
        for rule in &mut self.requests.rules {
            let resources = rule.resources.get_or_insert_default();
            resources.retain(|resource| resource.contains('/'));
            resources.push(format!("{}/{subresource}", self.plural));
        }
        self
    }

    /// Called for these rules, instead of those made so far.
    pub fn rules(mut self, rules: Vec<RuleWithOperations>) -> Self {
        self.requests.rules = rules;
        self
    }

    /// Where it is called, instead of `/validate-<group>-<version>-<kind>`, `/mutate-…` or `/default-…`.
    pub fn path(self, path: impl Into<String>) -> Self {
        Self { path: Some(path.into()), ..self }
    }

    /// Sets the API server's action if it does not answer.
    pub fn failure_policy(self, failure_policy: FailurePolicy) -> Self {
        Self { failure_policy, ..self }
    }

    /// Sets the action for an object that cannot be decoded.
    pub fn on_undecodable(self, on_undecodable: OnUndecodable) -> Self {
        Self { on_undecodable, ..self }
    }

    /// Whether an answer leaves something behind.
    pub fn side_effects(self, side_effects: SideEffects) -> Self {
        Self { side_effects, ..self }
    }

    /// How long the API server waits, from 1 to 30 seconds; what is beyond is brought to the nearest.
    pub fn timeout_seconds(self, seconds: u8) -> Self {
        Self { timeout_seconds: i32::from(seconds).clamp(1, 30), ..self }
    }

    /// Called only for objects in namespaces with these labels.
    pub fn namespace_labels<K: Into<String>, V: Into<String>>(self, labels: impl IntoIterator<Item = (K, V)>) -> Self {
        self.namespace_selector(selector(labels))
    }

    /// Called only for objects in namespaces that the selector chooses.
    pub fn namespace_selector(mut self, selector: LabelSelector) -> Self {
        self.requests.namespace_selector = Some(selector);
        self
    }

    /// Called only for objects with these labels, before or after the change. Their sender decides about them, so this is for
    /// opting in, not for enforcing.
    pub fn object_labels<K: Into<String>, V: Into<String>>(self, labels: impl IntoIterator<Item = (K, V)>) -> Self {
        self.object_selector(selector(labels))
    }

    /// Called only for objects that the selector chooses. See [`object_labels`](Self::object_labels).
    pub fn object_selector(mut self, selector: LabelSelector) -> Self {
        self.requests.object_selector = Some(selector);
        self
    }

    /// Called only when this CEL expression is true. May be given several times; all must be.
    pub fn condition(mut self, name: impl Into<String>, expression: impl Into<String>) -> Self {
        self.requests.match_conditions.push(MatchCondition { name: name.into(), expression: expression.into() });
        self
    }

    /// Not called for other versions of the resource, which the API server would convert to the declared one.
    pub fn exact_version(mut self) -> Self {
        self.requests.exact_version = true;
        self
    }

    /// Called again when another webhook changed the object afterwards. Only for mutation.
    pub fn reinvoke(self) -> Self {
        Self { reinvoke: true, ..self }
    }

    /// Its name: the one that the author set, or one made of the resource.
    pub(crate) fn name_for(&self, purpose: &str) -> String {
        self.name.clone().unwrap_or_else(|| {
            // The group of the oldest kinds has no name of its own.
            let group = if self.kind.group.is_empty() { "core" } else { &self.kind.group };
            format!("{purpose}.{}.{group}", self.plural)
        })
    }

    /// Its path: the one that the author set, or one made of the kind.
    pub(crate) fn path_for(&self, purpose: &str) -> String {
        self.path.clone().unwrap_or_else(|| {
            let GroupVersionKind { group, version, kind } = &self.kind;
            format!("/{purpose}-{}-{version}-{}", group.replace('.', "-"), kind.to_lowercase())
        })
    }
}

fn operation_names(operations: impl IntoIterator<Item = Operation>) -> Vec<String> {
    operations.into_iter().map(|operation| operation.to_string()).collect()
}

fn selector<K: Into<String>, V: Into<String>>(labels: impl IntoIterator<Item = (K, V)>) -> LabelSelector {
    let labels: BTreeMap<_, _> = labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
    LabelSelector { match_labels: Some(labels), match_expressions: None }
}
