//! The permissions that manage uses with given arguments.

use std::{collections::BTreeSet, error::Error};

use clap::Parser;
use k8s_openapi::api::rbac::v1::PolicyRule;
use konverge_kubectl::Permission;
use konverge_manage::{config::Config, metrics::Metrics, program};
use serde_json::Value;

use crate::uses::HOME;

/// The permissions of manage, from the role that its program generates.
pub(crate) fn used(arguments: &[&str]) -> Result<BTreeSet<Permission>, Box<dyn Error>> {
    let config = Config::try_parse_from([program::PROGRAM].iter().chain(arguments))?;
    let metrics = Metrics::default();
    let account = config.account(&metrics)?;
    let files = program::operator(&config, account, metrics).generate(HOME)?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(files.get("role.yaml").unwrap_or_default())?;
    let mut permissions = BTreeSet::new();
    for mut object in objects {
        let namespace = match object["kind"].as_str() {
            Some("ClusterRole") => None,
            Some("Role") => Some(HOME),
            _ => continue,
        };
        let rules: Vec<PolicyRule> = serde_json::from_value(object["rules"].take())?;
        for rule in rules {
            permissions.extend(each(rule).map(|permission| permission.within(namespace)));
        }
    }
    Ok(permissions)
}

/// The permissions of a rule, one for each verb on each resource.
fn each(rule: PolicyRule) -> impl Iterator<Item = Permission> {
    let names: Vec<_> = rule.resource_names.unwrap_or_default().into_iter().map(Some).collect();
    let names = if names.is_empty() { vec![None] } else { names };
    let (groups, resources) = (rule.api_groups.unwrap_or_default(), rule.resources.unwrap_or_default());
    let mut permissions = Vec::new();
    for (group, resource) in groups.iter().flat_map(|group| resources.iter().map(move |resource| (group, resource))) {
        for (name, verb) in names.iter().flat_map(|name| rule.verbs.iter().map(move |verb| (name, verb))) {
            let (resource, part) = resource.split_once('/').map_or((&**resource, None), |(of, part)| (of, Some(part)));
            let mut permission = Permission::new(forever(group), forever(resource), forever(verb));
            if let Some(part) = part {
                permission = permission.part(forever(part));
            }
            permissions.push(match name {
                Some(name) => permission.on(name),
                None => permission,
            });
        }
    }
    permissions.into_iter()
}

/// Keeps a text until the generator ends: a permission holds texts of the program.
fn forever(text: &str) -> &'static str {
    text.to_owned().leak()
}
