//! The permissions that an operator needs, and those that its service account lacks.

use std::{borrow::Cow, fmt};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    rbac::v1::PolicyRule,
};
use konverge_jobs::Settings;
use kube::{Api, api::PostParams};

use crate::{Cluster, Failure, Finding, Installation, cluster::of_namespace, cluster::request};

/// The order of the verbs of a rule.
const VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

/// Questions at the same time.
const AT_ONCE: usize = 8;

/// A permission for one verb on one resource. Without restrictions, it is for all namespaces and all objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    group: Cow<'static, str>,
    resource: Cow<'static, str>,
    subresource: Option<Cow<'static, str>>,
    verb: Cow<'static, str>,
    namespace: Option<String>,
    name: Option<String>,
}

impl Permission {
    /// The verb on a resource of an API group.
    pub fn new(group: &'static str, resource: &'static str, verb: &'static str) -> Self {
        let (group, resource, verb) = (group.into(), resource.into(), verb.into());
        Self { group, resource, subresource: None, verb, namespace: None, name: None }
    }

    /// Several verbs on a resource of an API group.
    pub fn verbs<const N: usize>(group: &'static str, resource: &'static str, verbs: [&'static str; N]) -> [Self; N] {
        verbs.map(|verb| Self::new(group, resource, verb))
    }

    /// Returns the permissions that the rule of a role grants: one for each group, resource, verb and name.
    pub fn all_of(rule: &PolicyRule) -> Vec<Self> {
        let names: Vec<_> = rule.resource_names.iter().flatten().cloned().map(Some).collect();
        let names = if names.is_empty() { vec![None] } else { names };
        let mut all = Vec::new();
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                let (resource, part) = match resource.split_once('/') {
                    Some((resource, part)) => (resource, Some(part.to_owned())),
                    None => (resource.as_str(), None),
                };
                for (verb, name) in rule.verbs.iter().flat_map(|verb| names.iter().map(move |name| (verb, name))) {
                    all.push(Self {
                        group: group.clone().into(),
                        resource: resource.to_owned().into(),
                        subresource: part.clone().map(Into::into),
                        verb: verb.clone().into(),
                        namespace: None,
                        name: name.clone(),
                    });
                }
            }
        }
        all
    }

    /// Returns the permissions that every operator with these settings uses. These are for events where it watches, for its lease, and for asking the API
    /// server about the readers of its metrics. `home` is its own namespace.
    pub fn of_program(settings: &impl Settings, home: &str) -> Vec<Self> {
        let program = settings.program();
        let event = |verb| Self::new("events.k8s.io", "events", verb).within(settings.namespace());
        let mut used = vec![event("create"), event("patch")];
        if let Some(name) = program.lease {
            let lease = |verb| Self::new("coordination.k8s.io", "leases", verb).within(Some(home));
            used.extend([lease("create"), lease("get").on(name), lease("patch").on(name)]);
        }
        if program.metrics.authenticates() {
            used.push(Self::new("authentication.k8s.io", "tokenreviews", "create"));
            used.push(Self::new("authorization.k8s.io", "subjectaccessreviews", "create"));
        }
        used
    }

    /// Restricts the permission to a subresource, such as `status`.
    #[must_use]
    pub fn part(self, subresource: &'static str) -> Self {
        Self { subresource: Some(subresource.into()), ..self }
    }

    /// Restricts the permission to a namespace, if there is one.
    #[must_use]
    pub fn within(self, namespace: Option<&str>) -> Self {
        Self { namespace: namespace.map(str::to_owned), ..self }
    }

    /// Restricts the permission to the object of this name.
    #[must_use]
    pub fn on(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    /// Returns the namespace that it is confined to, if any.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the rules of a role that grants these permissions and nothing else. The verbs on one resource are in one rule, and so are the
    /// resources of a group with the same verbs. The order is that of the permissions.
    pub fn rules<'a>(permissions: impl IntoIterator<Item = &'a Self>) -> Vec<PolicyRule> {
        let mut of_resources: Vec<PolicyRule> = Vec::new();
        for permission in permissions {
            let rule = permission.rule();
            let is_same = |known: &&mut PolicyRule| {
                (&known.api_groups, &known.resources, &known.resource_names)
                    == (&rule.api_groups, &rule.resources, &rule.resource_names)
            };
            match of_resources.iter_mut().find(is_same) {
                Some(known) => known.verbs.extend(rule.verbs),
                None => of_resources.push(rule),
            }
        }
        let mut rules: Vec<PolicyRule> = Vec::new();
        for mut rule in of_resources {
            rule.verbs.sort_by_key(|verb| VERBS.iter().position(|known| known == verb));
            rule.verbs.dedup();
            let is_same = |known: &&mut PolicyRule| {
                (&known.api_groups, &known.resource_names, &known.verbs)
                    == (&rule.api_groups, &rule.resource_names, &rule.verbs)
            };
            match rules.iter_mut().find(is_same).filter(|known| known.resource_names.is_none()) {
                Some(known) => known.resources.get_or_insert_default().extend(rule.resources.unwrap_or_default()),
                None => rules.push(rule),
            }
        }
        rules
    }

    /// Returns the rule of a role that grants it.
    pub fn rule(&self) -> PolicyRule {
        let resource = match &self.subresource {
            Some(part) => format!("{}/{part}", self.resource),
            None => self.resource.to_string(),
        };
        PolicyRule {
            api_groups: Some(vec![self.group.to_string()]),
            resources: Some(vec![resource]),
            resource_names: self.name.clone().map(|name| vec![name]),
            verbs: vec![self.verb.to_string()],
            ..PolicyRule::default()
        }
    }

    /// Returns the attributes of the access review.
    fn attributes(&self) -> ResourceAttributes {
        ResourceAttributes {
            group: Some(self.group.to_string()),
            resource: Some(self.resource.to_string()),
            subresource: self.subresource.as_ref().map(ToString::to_string),
            verb: Some(self.verb.to_string()),
            // A namespace is an object of its own.
            namespace: if self.resource == "namespaces" { self.name.clone() } else { self.namespace.clone() },
            name: self.name.clone(),
            ..ResourceAttributes::default()
        }
    }
}

/// `get leases vault-sync-operator.io in namespace home`.
impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, verb, .. } = self;
        write!(f, "{verb} {resource}")?;
        if let Some(part) = &self.subresource {
            write!(f, "/{part}")?;
        }
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        f.write_str(&of_namespace(self.namespace.as_deref()))
    }
}

impl Cluster {
    /// Returns the finding about these permissions of an installation's service account. It names each missing one. `next` is the next step.
    pub async fn permissions_finding(
        &self,
        installation: &Installation,
        needed: Vec<Permission>,
        next: String,
    ) -> Finding {
        let account = format!("{}/{}", installation.namespace, installation.account);
        match self.lacking(installation, needed).await {
            Err(failure) => Finding::unknown("permissions", &failure),
            Ok(lacking) if lacking.is_empty() => {
                Finding::fine("permissions", format!("service account {account} has all permissions that it needs"))
            }
            Ok(lacking) => {
                let words: Vec<String> = lacking.iter().map(Permission::to_string).collect();
                let text = format!("service account {account} may not {}", words.join(", "));
                Finding::wrong("permissions", text, next)
            }
        }
    }

    /// Returns the permissions that the service account lacks.
    pub async fn lacking(
        &self,
        installation: &Installation,
        needed: Vec<Permission>,
    ) -> Result<Vec<Permission>, Failure> {
        let answers = needed.into_iter().map(|permission| async move {
            let allowed = self.allows(installation, &permission).await?;
            Ok::<_, Failure>((!allowed).then_some(permission))
        });
        let lacking: Vec<_> = stream::iter(answers).buffered(AT_ONCE).try_collect().await?;
        Ok(lacking.into_iter().flatten().collect())
    }

    async fn allows(&self, installation: &Installation, permission: &Permission) -> Result<bool, Failure> {
        let Installation { namespace, account, .. } = installation;
        let user = format!("system:serviceaccount:{namespace}:{account}");
        let groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ];
        let spec = SubjectAccessReviewSpec {
            user: Some(user.clone()),
            groups: Some(groups),
            resource_attributes: Some(permission.attributes()),
            ..SubjectAccessReviewSpec::default()
        };
        let api = Api::<SubjectAccessReview>::all(self.client.clone());
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let act = format!("ask what {user} may do");
        let answer = request(act, async { api.create(&PostParams::default(), &review).await }).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_and_resources_that_belong_together_share_a_rule_in_the_order_of_the_permissions() {
        let of = |resource, verb| Permission::new("apps", resource, verb);
        let lease = || Permission::new("", "configmaps", "patch").on("one");
        let permissions = [
            of("deployments", "watch"),
            of("daemonsets", "watch"),
            of("jobs", "get"),
            of("deployments", "get"),
            of("daemonsets", "get"),
            lease(),
            Permission::new("", "secrets", "patch"),
            Permission::new("", "configmaps", "get").on("one"),
            lease(),
            Permission::new("", "secrets", "patch").on("two"),
        ];
        let rules = Permission::rules(&permissions).into_iter().map(|rule| {
            let names = rule.resource_names.unwrap_or_default();
            (rule.resources.unwrap_or_default().join(" "), names.join(" "), rule.verbs.join(" "))
        });
        let rules: Vec<_> = rules.collect();
        let expected = [
            ("deployments daemonsets", "", "get watch"),
            ("jobs", "", "get"),
            ("configmaps", "one", "get patch"),
            ("secrets", "", "patch"),
            ("secrets", "two", "patch"),
        ];
        assert_eq!(rules, expected.map(|(resources, names, verbs)| (resources.into(), names.into(), verbs.into())));
    }

    #[test]
    fn how_a_permission_is_told_and_asked_for() {
        let leases = || Permission::new("coordination.k8s.io", "leases", "get");
        let one = leases().on("leader").within(Some("home"));
        assert_eq!(leases().to_string(), "get leases");
        assert_eq!(one.to_string(), "get leases leader in namespace home");
        let asked = one.attributes();
        assert_eq!((asked.namespace.as_deref(), asked.name.as_deref()), (Some("home"), Some("leader")));
        let status = Permission::new("konverge.dev", "vaultpushes", "patch").part("status");
        assert_eq!(status.to_string(), "patch vaultpushes/status");
        assert_eq!(status.attributes().subresource.as_deref(), Some("status"));
        let rule = status.rule();
        assert_eq!(rule.resources, Some(vec!["vaultpushes/status".to_owned()]));
        assert_eq!((rule.verbs, rule.resource_names), (vec!["patch".to_owned()], None));
        assert_eq!((one.namespace(), one.rule().resource_names), (Some("home"), Some(vec!["leader".to_owned()])));
        assert_eq!(Permission::all_of(&one.rule()), [leases().on("leader")]);
        let words = |all: &[&str]| Some(all.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let rule = PolicyRule {
            api_groups: words(&["openzro.io"]),
            resources: words(&["groups", "groups/status"]),
            verbs: vec!["get".to_owned(), "patch".to_owned()],
            ..PolicyRule::default()
        };
        let all: Vec<_> = Permission::all_of(&rule).iter().map(Permission::to_string).collect();
        assert_eq!(all, ["get groups", "patch groups", "get groups/status", "patch groups/status"]);
        let namespace = Permission::new("", "namespaces", "get").on("shop");
        assert_eq!(namespace.to_string(), "get namespaces shop");
        assert_eq!(
            namespace.attributes().namespace.as_deref(),
            Some("shop"),
            "a role of the namespace itself allows it"
        );
    }
}
