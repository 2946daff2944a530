//! A manifest with a service account and its roles, with the purpose of each rule as a comment.

use std::fmt::{self, Write};

use k8s_openapi::api::rbac::v1::PolicyRule;
use konverge_kubectl::Permission;

use crate::uses::HOME;

const GROUP: &str = "rbac.authorization.k8s.io";

/// API groups whose permissions have a role of their own, because they are cluster-wide by nature.
const OF_TOKENS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// Where a rule holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Everywhere,
    Tokens,
    Home,
}

/// The purpose of a rule.
#[derive(Debug)]
pub(crate) struct Purpose {
    pub(crate) place: Place,
    /// The first resource of the rule.
    pub(crate) resource: &'static str,
    /// The name to which the rule is confined.
    pub(crate) name: Option<&'static str>,
    pub(crate) text: &'static str,
}

/// The names and the comments of a manifest. Lines of comments are at most 150 characters long.
pub(crate) struct Names {
    pub(crate) program: &'static str,
    pub(crate) about: &'static str,
    /// How to confine the program to one namespace.
    pub(crate) confined: &'static str,
    pub(crate) namespace: &'static str,
    pub(crate) account: &'static str,
    pub(crate) everywhere: &'static str,
    pub(crate) tokens: Option<&'static str>,
    pub(crate) metrics: Option<Metrics>,
    pub(crate) at_home: &'static str,
    /// The use of the role in the program's own namespace.
    pub(crate) home: &'static str,
}

/// A role for clients that read the metrics.
pub(crate) struct Metrics {
    pub(crate) role: &'static str,
    pub(crate) url: &'static str,
}

/// The rules of one job.
pub(crate) struct Grants<'a> {
    /// The comment above its rules.
    heading: Option<String>,
    permissions: &'a [Permission],
    purposes: &'a [Purpose],
}

/// A manifest.
pub(crate) struct Manifest<'a> {
    pub(crate) names: Names,
    pub(crate) grants: Vec<Grants<'a>>,
}

/// A purpose explains no rule.
#[derive(Debug)]
pub(crate) struct Unused(String);

impl fmt::Display for Unused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no rule has this purpose, delete it or correct its place: {}", self.0)
    }
}

impl std::error::Error for Unused {}

impl<'a> Grants<'a> {
    /// The rules of an operator, each with its purpose.
    pub(crate) fn new(permissions: &'a [Permission], purposes: &'a [Purpose]) -> Self {
        Self { heading: None, permissions, purposes }
    }

    /// The rules of one job of several, which the manifest of its own program explains.
    pub(crate) fn of_job(job: &str, program: &str, permissions: &'a [Permission]) -> Self {
        let heading = format!("{job}; rbac/{program}.yaml explains each rule.");
        Self { heading: Some(heading), permissions, purposes: &[] }
    }

    /// Returns the rules at a place.
    fn rules(&self, place: Place) -> Vec<PolicyRule> {
        Permission::rules(self.permissions.iter().filter(|permission| place_of(permission) == place))
    }

    fn purpose(&self, place: Place, rule: &PolicyRule) -> Option<&Purpose> {
        let (first, name) = (rule.resources.iter().flatten().next(), rule.resource_names.iter().flatten().next());
        self.purposes.iter().find(|purpose| {
            purpose.place == place
                && first.is_some_and(|first| first == purpose.resource)
                && name.map(String::as_str) == purpose.name
        })
    }

    fn unused(&self) -> Option<Unused> {
        let explains = |purpose: &&Purpose| {
            let rules = self.rules(purpose.place);
            rules.iter().filter_map(|rule| self.purpose(purpose.place, rule)).any(|found| std::ptr::eq(found, *purpose))
        };
        self.purposes.iter().find(|purpose| !explains(purpose)).map(|purpose| Unused(format!("{purpose:?}")))
    }
}

fn place_of(permission: &Permission) -> Place {
    let groups = permission.rule().api_groups.unwrap_or_default();
    if permission.namespace() == Some(HOME) {
        Place::Home
    } else if groups.iter().any(|group| OF_TOKENS.contains(&group.as_str())) {
        Place::Tokens
    } else {
        Place::Everywhere
    }
}

impl Manifest<'_> {
    /// Returns the YAML.
    pub(crate) fn text(&self) -> Result<String, Box<dyn std::error::Error>> {
        if let Some(unused) = self.grants.iter().find_map(Grants::unused) {
            return Err(unused.into());
        }
        let Names { program, about, confined, namespace, account, everywhere, tokens, metrics, at_home, home } =
            &self.names;
        let mut text = String::new();
        comment(&mut text, "", about)?;
        write!(
            text,
            "#\n#   kubectl create namespace {namespace}\n#   kubectl apply -f deploy/rbac/{program}.yaml\n#\n"
        )?;
        comment(&mut text, "", confined)?;
        comment(
            &mut text,
            "",
            "\nGenerated from the permissions that the code names. Change the code and run `cargo xtask generate`.",
        )?;
        head(&mut text, "v1", "ServiceAccount", account, Some(namespace))?;
        self.granted(&mut text, None, ("ClusterRole", everywhere), Place::Everywhere)?;
        if let Some(tokens) = tokens {
            let about = "With --enable-metrics-auth the operator asks the API server who reads its metrics and whether they may. Vault asks with the same\n\
                         permission about the token that it was given, if its login method has no token_reviewer_jwt of its own. Cluster-wide by nature.";
            self.granted(&mut text, Some(about), ("ClusterRole", tokens), Place::Tokens)?;
        }
        if let Some(Metrics { role, url }) = metrics {
            text.push_str("---\n");
            comment(
                &mut text,
                "",
                "For clients that read the metrics, such as the service account of Prometheus. You bind it.",
            )?;
            head(&mut text, &format!("{GROUP}/v1"), "ClusterRole", role, None)?;
            write!(text, "rules:\n  - nonResourceURLs: [{url}]\n    verbs: [get]\n")?;
        }
        self.granted(&mut text, Some(home), ("Role", at_home), Place::Home)?;
        Ok(text)
    }

    /// Writes a role with the rules of a place, and its binding to the service account.
    fn granted(&self, text: &mut String, about: Option<&str>, (kind, role): (&str, &str), place: Place) -> fmt::Result {
        let Names { namespace, account, .. } = &self.names;
        let of = (place == Place::Home).then_some(*namespace);
        let version = format!("{GROUP}/v1");
        text.push_str("---\n");
        comment(text, "", about.unwrap_or_default())?;
        head(text, &version, kind, role, of)?;
        text.push_str("rules:\n");
        // The jobs of one process ask the API server about readers with the same permission.
        let mut about_tokens = Vec::new();
        for grants in &self.grants {
            let rules = grants.rules(place);
            comment(
                text,
                "  ",
                grants.heading.as_deref().filter(|_| place != Place::Tokens && !rules.is_empty()).unwrap_or_default(),
            )?;
            for rule in rules {
                if place == Place::Tokens && about_tokens.contains(&rule) {
                    continue;
                }
                comment(text, "  ", grants.purpose(place, &rule).map(|purpose| purpose.text).unwrap_or_default())?;
                write_rule(text, &rule)?;
                about_tokens.push(rule);
            }
        }
        text.push_str("---\n");
        head(text, &version, &format!("{kind}Binding"), &bound(role), of)?;
        write!(text, "roleRef:\n  apiGroup: {GROUP}\n  kind: {kind}\n  name: {role}\n")?;
        write!(text, "subjects:\n  - kind: ServiceAccount\n    name: {account}\n    namespace: {namespace}\n")
    }
}

/// Returns the name of the binding of a role.
fn bound(role: &str) -> String {
    role.strip_suffix("-role").map_or_else(|| role.to_owned(), |stem| format!("{stem}-rolebinding"))
}

fn comment(text: &mut String, indent: &str, lines: &str) -> fmt::Result {
    lines.lines().try_for_each(|line| writeln!(text, "{}", format!("{indent}# {line}").trim_end()))
}

fn head(text: &mut String, version: &str, kind: &str, name: &str, namespace: Option<&str>) -> fmt::Result {
    write!(text, "apiVersion: {version}\nkind: {kind}\nmetadata:\n  name: {name}\n")?;
    namespace.map_or(Ok(()), |namespace| writeln!(text, "  namespace: {namespace}"))
}

fn write_rule(text: &mut String, rule: &PolicyRule) -> fmt::Result {
    let list = |items: &Option<Vec<String>>| {
        let items = items.iter().flatten().map(|item| if item.is_empty() { "\"\"" } else { item });
        items.collect::<Vec<_>>().join(", ")
    };
    write!(text, "  - apiGroups: [{}]\n    resources: [{}]\n", list(&rule.api_groups), list(&rule.resources))?;
    if rule.resource_names.is_some() {
        writeln!(text, "    resourceNames: [{}]", list(&rule.resource_names))?;
    }
    writeln!(text, "    verbs: [{}]", rule.verbs.join(", "))
}
