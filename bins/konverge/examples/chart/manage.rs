//! Parts of the manifests and pages that the program of manage generates of itself: permissions, alerts, metrics.

use std::{collections::BTreeSet, error::Error};

use clap::Parser;
use k8s_openapi::api::rbac::v1::PolicyRule;
use konverge_gen::{Files, chart};
use konverge_kubectl::Permission;
use konverge_manage::{config::Config, metrics::Metrics, program};
use serde_json::Value;

use crate::{uses::HOME, watched::RUNBOOKS};

/// The files that the program generates.
pub(crate) fn generated() -> Result<Files, Box<dyn Error>> {
    Ok(program::for_manifests()?.generate(chart::NAMESPACE)?)
}

/// A file among them.
pub(crate) fn file<'a>(generated: &'a Files, name: &str) -> Result<&'a str, String> {
    generated.get(name).ok_or_else(|| format!("manage generates no {name}"))
}

/// The groups of alerts. Each alert leads to its section on the page of alerts.
pub(crate) fn alerts(generated: &Files) -> Result<Value, Box<dyn Error>> {
    let mut object: Value = serde_saphyr::from_str(file(generated, "alerts.yaml")?)?;
    let mut groups = object["spec"].take();
    for rule in groups["groups"][0]["rules"].as_array_mut().into_iter().flatten() {
        let anchor = rule["alert"].as_str().unwrap_or_default().to_lowercase();
        rule["annotations"]["runbook_url"] = format!("{RUNBOOKS}#{anchor}").into();
    }
    Ok(groups)
}

/// The table of the metrics that not every job has. `common` is the table of those.
pub(crate) fn own_metrics(generated: &Files, common: &str) -> Result<String, String> {
    let reference = file(generated, "reference.md")?;
    let (_, table) = reference.split_once("\n## Metrics\n\n").ok_or("manage has no metrics")?;
    let is_common = |row: &str| row.starts_with("| `") && common.contains(row);
    Ok(table.lines().filter(|row| !is_common(row)).fold(String::new(), |text, row| text + row + "\n"))
}

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
