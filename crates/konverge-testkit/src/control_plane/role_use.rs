//! Whether a program needs what its role allows, and is allowed what it needs.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::audit::AuditEntry;

/// How a program used its role, read from the audit log. It gets no further field, so that a test can compare it with a literal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleUse {
    /// The refused requests: `verb group/resource`.
    pub refused: BTreeSet<String>,
    /// The permissions that were never used.
    pub unused: BTreeSet<String>,
}

impl RoleUse {
    /// Compares the requests of a program with the rules it runs under. `create` counts as used by a patch that made an object, as a
    /// server-side apply does.
    pub fn of(entries: &[AuditEntry], rules: &[PolicyRule]) -> Self {
        let mut used = Self::default();
        let mut done = BTreeSet::new();
        for entry in entries {
            let object = &entry.object_ref;
            let resource = match object.subresource.as_str() {
                "" => object.resource.clone(),
                subresource => format!("{}/{subresource}", object.resource),
            };
            let name = |verb: &str| action(verb, &object.api_group, &resource);
            match entry.response_status.code {
                403 => drop(used.refused.insert(name(&entry.verb))),
                code => {
                    done.insert(name(&entry.verb));
                    if entry.verb == "patch" && code == 201 {
                        done.insert(name("create"));
                    }
                }
            }
        }
        for rule in rules {
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    used.unused.extend(rule.verbs.iter().map(|verb| action(verb, group, resource)));
                }
            }
        }
        used.unused.retain(|action| !done.contains(action));
        used
    }
}

fn action(verb: &str, group: &str, resource: &str) -> String {
    format!("{verb} {group}/{resource}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(verb: &str, resource: &str, code: u16) -> AuditEntry {
        serde_json::from_value(json!({
            "stage": "ResponseComplete", "verb": verb, "requestURI": "/", "user": {"username": "test"},
            "objectRef": {"resource": resource}, "responseStatus": {"code": code},
            "stageTimestamp": "2026-01-01T00:00:00Z",
        }))
        .unwrap()
    }

    #[test]
    fn refusals_and_spare_verbs_are_found() {
        let rule = PolicyRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec!["configmaps".to_owned()]),
            verbs: ["create", "patch", "delete"].map(ToOwned::to_owned).to_vec(),
            ..PolicyRule::default()
        };
        let entries = [entry("patch", "configmaps", 201), entry("list", "secrets", 403)];
        let used = RoleUse::of(&entries, &[rule]);
        assert_eq!(used.refused, BTreeSet::from(["list /secrets".to_owned()]));
        assert_eq!(used.unused, BTreeSet::from(["delete /configmaps".to_owned()]));
    }
}
