//! The rules of the chart's roles, from what each operator's code says that it uses.
//!
//! Each job has named templates: `konverge.rules.JOB.all.…` for an operator of all namespaces, and `konverge.rules.JOB.one.…` for an operator of one. The
//! last part is where the rules hold: `cluster`, `watched` (the watched namespace) or `home` (the operator's own).

use std::{collections::BTreeSet, error::Error, fmt::Write};

use konverge_kubectl::Permission;

use crate::{
    manage,
    uses::{self, HOME},
};

/// Stands for the watched namespace.
const WATCHED: &str = "watched";

/// Lets an operator authenticate the readers of its metrics.
const METRICS_AUTH: &str = "--enable-metrics-auth";

/// Where a rule holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Cluster,
    Watched,
    Home,
}

/// Grants that a job has only if an expression of Helm holds.
struct Block {
    when: Option<String>,
    grants: BTreeSet<Permission>,
}

/// The permissions of a job with these arguments.
type Used = fn(&[String]) -> Result<Vec<Permission>, clap::Error>;

/// The template file with all rules.
pub(crate) fn template() -> Result<String, Box<dyn Error>> {
    let mut text = String::from("{{- /* Generated; change the code instead. */ -}}\n");
    for scope in ["all", "one"] {
        let only = (scope == "one").then(|| format!("--namespace={WATCHED}"));
        let only = only.as_deref();
        let mut jobs = vec![("pull", pull(only)?), ("push", push(only)?), ("roll", roll(only)?)];
        if only.is_none() {
            jobs.push(("manage", of_manage()?));
        }
        for (job, blocks) in jobs {
            for (place, name) in [(Place::Cluster, "cluster"), (Place::Watched, "watched"), (Place::Home, "home")] {
                write!(text, "{{{{- define \"konverge.rules.{job}.{scope}.{name}\" }}}}")?;
                for block in &blocks {
                    write(&mut text, block, place)?;
                }
                text.push_str("\n{{- end }}\n");
            }
        }
    }
    Ok(text)
}

fn pull(only: Option<&str>) -> Result<Vec<Block>, clap::Error> {
    let without = ["--leader-elect"];
    let used = grants(uses::pull, only, &without)?;
    Ok(vec![Block { when: None, grants: used }, of_metrics(uses::pull, only, &without)?])
}

fn push(only: Option<&str>) -> Result<Vec<Block>, clap::Error> {
    let kinds = konverge_push::object::Kind::ALL.map(konverge_push::object::Kind::plural);
    let without = ["--leader-elect", "--enable-metrics-auth=false"];
    let mut blocks = by_kind(uses::push, only, &without, &kinds)?;
    blocks.push(of_metrics(uses::push, only, &without)?);
    Ok(blocks)
}

fn roll(only: Option<&str>) -> Result<Vec<Block>, clap::Error> {
    let kinds = konverge_roll::config::KINDS.map(konverge_workload::WorkloadKind::plural);
    let mut blocks = by_kind(uses::roll, only, &["--leader-elect"], &kinds)?;
    let with = grants(uses::roll, only, &["--leader-elect", "--vault-addr=https://vault"])?;
    let extra = &with - &grants(uses::roll, only, &["--leader-elect"])?;
    blocks.push(Block { when: Some(".vault".to_owned()), grants: extra });
    blocks.push(of_metrics(uses::roll, only, &["--leader-elect"])?);
    Ok(blocks)
}

/// Manage works in all namespaces.
fn of_manage() -> Result<Vec<Block>, Box<dyn Error>> {
    let with = |flag: &str| manage::used(&["--openzro-api-key-file=/nowhere", "--enable-webhooks=false", flag]);
    let common = with("--enable-metrics-auth=false")?;
    let mut blocks = Vec::new();
    for (when, flag) in [
        (".webhooks", "--enable-webhooks=true"),
        (".gatewayAPI", "--gateway-api-enabled"),
        (".metricsAuth", METRICS_AUTH),
    ] {
        blocks.push(Block { when: Some(when.to_owned()), grants: &with(flag)? - &common });
    }
    blocks.push(Block { when: None, grants: common });
    Ok(blocks)
}

/// The grants that a job has only where it authenticates the readers of its metrics.
fn of_metrics(used: Used, only: Option<&str>, without: &[&str]) -> Result<Block, clap::Error> {
    let with: Vec<_> = without.iter().copied().filter(|argument| !argument.starts_with(METRICS_AUTH)).collect();
    let with = grants(used, only, &[&with, &[METRICS_AUTH][..]].concat())?;
    Ok(Block { when: Some(".metricsAuth".to_owned()), grants: &with - &grants(used, only, without)? })
}

/// The grants that a job has with every kind, then those that each kind adds.
fn by_kind(used: Used, only: Option<&str>, with: &[&str], kinds: &[&str]) -> Result<Vec<Block>, clap::Error> {
    let mut of_kinds = Vec::new();
    for kind in kinds {
        let choice = format!("--kinds={kind}");
        of_kinds.push((kind, grants(used, only, &[with, &[choice.as_str()]].concat())?));
    }
    let common = of_kinds.iter().map(|(_, grants)| grants.clone()).reduce(|all, next| &all & &next).unwrap_or_default();
    let mut blocks = vec![Block { when: None, grants: common.clone() }];
    blocks.extend(
        of_kinds
            .into_iter()
            .map(|(kind, grants)| Block { when: Some(format!("has {kind:?} .kinds")), grants: &grants - &common }),
    );
    Ok(blocks)
}

fn grants(used: Used, only: Option<&str>, arguments: &[&str]) -> Result<BTreeSet<Permission>, clap::Error> {
    let arguments: Vec<String> = arguments.iter().map(|&one| one.to_owned()).chain(only.map(str::to_owned)).collect();
    Ok(used(&arguments)?.into_iter().collect())
}

fn place_of(permission: &Permission) -> Place {
    match permission.namespace() {
        None => Place::Cluster,
        Some(HOME) => Place::Home,
        Some(_) => Place::Watched,
    }
}

/// Writes the rules of one place.
fn write(text: &mut String, block: &Block, place: Place) -> Result<(), Box<dyn Error>> {
    let rules = Permission::rules(block.grants.iter().filter(|permission| place_of(permission) == place));
    let when = block.when.as_ref().filter(|_| !rules.is_empty());
    if let Some(when) = when {
        write!(text, "\n{{{{- if {when} }}}}")?;
    }
    for rule in rules {
        let (groups, resources) = (serde_json::to_string(&rule.api_groups)?, serde_json::to_string(&rule.resources)?);
        write!(text, "\n- apiGroups: {groups}\n  resources: {resources}")?;
        if let Some(name) = rule.resource_names.iter().flatten().next() {
            let name = if name == WATCHED { "{{ .namespace | quote }}".to_owned() } else { format!("{name:?}") };
            write!(text, "\n  resourceNames: [{name}]")?;
        }
        write!(text, "\n  verbs: {}", serde_json::to_string(&rule.verbs)?)?;
    }
    if when.is_some() {
        text.push_str("\n{{- end }}");
    }
    Ok(())
}
