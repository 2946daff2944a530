//! The rules of the chart's roles, from what each operator's code says that it uses.
//!
//! Each job has named templates: `konverge.rules.JOB.all.…` for an operator of all namespaces, and `konverge.rules.JOB.one.…` for an operator of one. The
//! last part is where the rules hold: `cluster`, `watched` (the watched namespace) or `home` (the operator's own).

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt::Write,
};

use konverge_kubectl::Permission;

/// Stands for the operator's own namespace.
const HOME: &str = "home";

/// Stands for the watched namespace.
const WATCHED: &str = "watched";

/// Where a rule holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Cluster,
    Watched,
    Home,
}

/// One verb on one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Grant {
    place: Place,
    group: String,
    resource: String,
    name: Option<String>,
    verb: String,
}

/// Grants that a job has only if an expression of Helm holds.
struct Block {
    when: Option<String>,
    grants: BTreeSet<Grant>,
}

/// The permissions of a job with these arguments.
type Used = fn(&[String]) -> Result<Vec<Permission>, clap::Error>;

/// The template file with all rules.
pub(crate) fn template() -> Result<String, Box<dyn Error>> {
    let mut text = String::from("{{- /* Generated; change the code instead. */ -}}\n");
    for scope in ["all", "one"] {
        let only = (scope == "one").then(|| format!("--namespace={WATCHED}"));
        let only = only.as_deref();
        for (job, blocks) in [("pull", pull(only)?), ("push", push(only)?), ("roll", roll(only)?)] {
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
    let used = grants(pull_uses, only, &["--leader-election"])?;
    Ok(vec![Block { when: None, grants: used }])
}

fn pull_uses(arguments: &[String]) -> Result<Vec<Permission>, clap::Error> {
    let config = konverge_pull::config::Config::of_container(arguments, &BTreeMap::new())?;
    Ok(konverge_pull::inspect::needed(&config, HOME))
}

fn push(only: Option<&str>) -> Result<Vec<Block>, clap::Error> {
    let kinds = konverge_push::object::Kind::ALL.map(konverge_push::object::Kind::plural);
    let without = ["--leader-elect", "--enable-metrics-auth=false"];
    let mut blocks = by_kind(push_uses, only, &without, &kinds)?;
    let with = grants(push_uses, only, &["--leader-elect", "--enable-metrics-auth=true"])?;
    let extra = &with - &grants(push_uses, only, &without)?;
    blocks.push(Block { when: Some(".metricsAuth".to_owned()), grants: extra });
    Ok(blocks)
}

fn push_uses(arguments: &[String]) -> Result<Vec<Permission>, clap::Error> {
    let config = konverge_push::config::Config::of_container(arguments, &BTreeMap::new())?;
    Ok(konverge_push::inspect::needed(&config, HOME))
}

fn roll(only: Option<&str>) -> Result<Vec<Block>, clap::Error> {
    let kinds = konverge_roll::config::KINDS.map(konverge_workload::WorkloadKind::plural);
    let mut blocks = by_kind(roll_uses, only, &["--leader-elect"], &kinds)?;
    let with = grants(roll_uses, only, &["--leader-elect", "--vault-addr=https://vault"])?;
    let extra = &with - &grants(roll_uses, only, &["--leader-elect"])?;
    blocks.push(Block { when: Some(".vault".to_owned()), grants: extra });
    Ok(blocks)
}

fn roll_uses(arguments: &[String]) -> Result<Vec<Permission>, clap::Error> {
    let config = konverge_roll::config::Config::of_container(arguments, &BTreeMap::new())?;
    Ok(konverge_roll::inspect::used(&config, HOME))
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

fn grants(used: Used, only: Option<&str>, arguments: &[&str]) -> Result<BTreeSet<Grant>, clap::Error> {
    let arguments: Vec<String> = arguments.iter().map(|&one| one.to_owned()).chain(only.map(str::to_owned)).collect();
    Ok(used(&arguments)?.iter().map(grant).collect())
}

fn grant(permission: &Permission) -> Grant {
    let rule = permission.rule();
    let one = |texts: Option<Vec<String>>| texts.into_iter().flatten().next();
    Grant {
        place: match permission.namespace() {
            None => Place::Cluster,
            Some(HOME) => Place::Home,
            Some(_) => Place::Watched,
        },
        group: one(rule.api_groups).unwrap_or_default(),
        resource: one(rule.resources).unwrap_or_default(),
        name: one(rule.resource_names),
        verb: rule.verbs.concat(),
    }
}

/// The group, the name and the verbs that the resources of one rule share.
type Alike<'a> = (&'a str, Option<&'a str>, BTreeSet<&'a str>);

/// Writes the rules of one place: verbs of one resource are together, and so are resources with the same verbs.
fn write(text: &mut String, block: &Block, place: Place) -> Result<(), Box<dyn Error>> {
    let mut verbs: BTreeMap<(&str, Option<&str>, &str), BTreeSet<&str>> = BTreeMap::new();
    for grant in block.grants.iter().filter(|grant| grant.place == place) {
        let key = (grant.group.as_str(), grant.name.as_deref(), grant.resource.as_str());
        verbs.entry(key).or_default().insert(&grant.verb);
    }
    let mut resources: BTreeMap<Alike<'_>, Vec<&str>> = BTreeMap::new();
    for ((group, name, resource), verbs) in verbs {
        resources.entry((group, name, verbs)).or_default().push(resource);
    }
    let when = block.when.as_ref().filter(|_| !resources.is_empty());
    if let Some(when) = when {
        write!(text, "\n{{{{- if {when} }}}}")?;
    }
    for ((group, name, verbs), resources) in resources {
        write!(text, "\n- apiGroups: [{group:?}]\n  resources: {}", serde_json::to_string(&resources)?)?;
        if let Some(name) = name {
            let name = if name == WATCHED { "{{ .namespace | quote }}".to_owned() } else { format!("{name:?}") };
            write!(text, "\n  resourceNames: [{name}]")?;
        }
        write!(text, "\n  verbs: {}", serde_json::to_string(&verbs)?)?;
    }
    if when.is_some() {
        text.push_str("\n{{- end }}");
    }
    Ok(())
}
