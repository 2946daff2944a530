//! Whether all is well with the operator, with what it needs, and with the objects that ask it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use konverge_apply::stored_key;
use konverge_core::names::few;
use konverge_kubectl::{Cluster, Failure, Finding, Grade, Installation, Job, Verdict};
use konverge_workload::WorkloadKind;
use kube::{Api, core::DynamicObject};

use super::{
    Roll, What,
    operator::{Operator, understood},
    permissions, standing, what,
};
use crate::{config::Config, run::PROGRAM};

/// All that is looked at, in the order in which one thing explains the next.
pub(super) async fn findings(roll: &Roll, cluster: &Cluster, namespace: Option<&str>) -> Vec<Finding> {
    let installations = cluster.installations(roll).await;
    let objects = objects(roll, cluster, namespace).await;
    let asking = objects.iter().flat_map(|(_, found)| found).flatten().count();
    let mut findings = Vec::new();
    match &installations {
        Err(failure) => findings.push(Finding::unknown("operator", failure)),
        Ok(found) if found.is_empty() && asking == 0 => {
            return vec![Finding::note("operator", "it is not installed, and nothing asks for it", None)];
        }
        Ok(found) if found.is_empty() => findings.push(Finding::note(
            "operator",
            Installation::missing(roll),
            Some("install it as docs/install.md says, unless it runs outside of the cluster"),
        )),
        Ok(found) => {
            for installation in found {
                findings.extend(of_operator(cluster, installation).await);
            }
        }
    }
    let installed: Vec<_> = understood(installations.as_deref().unwrap_or_default()).collect();
    let elects = installed.iter().any(|operator| operator.config.leader_elect);
    findings.push(cluster.leader_finding(PROGRAM, elects).await);
    findings.extend(watched(&objects, &installed));
    findings.extend(in_step(roll, &objects));
    findings
}

type Objects = Vec<(What, Result<Vec<DynamicObject>, Failure>)>;

/// The objects of each kind that concern us.
async fn objects(roll: &Roll, cluster: &Cluster, namespace: Option<&str>) -> Objects {
    let mut objects = Vec::new();
    for shown in roll.kinds() {
        let Some(kind) = what(&shown) else { continue };
        let found = cluster.list(&shown, namespace).await;
        let found = found.map(|mut found| {
            found.retain(|object| roll.standing(&shown, object).is_some());
            found
        });
        objects.push((kind, found));
    }
    objects
}

async fn of_operator(cluster: &Cluster, installation: &Installation) -> Vec<Finding> {
    let Installation { wanted, .. } = installation;
    let mut findings = vec![installation.finding()];
    let config = match Config::of_container(&installation.arguments, &installation.variables) {
        Ok(config) => config,
        Err(error) => {
            findings.push(installation.does_not_start(&error));
            return findings;
        }
    };
    findings.push(Finding::fine("settings", settings(&config)));
    if !config.leader_elect && *wanted > 1 {
        findings.push(Finding::note(
            "settings",
            format!("{wanted} processes work at the same time; that rolls nothing twice, and costs each request twice"),
            Some("give it --leader-elect"),
        ));
    }
    findings.push(permissions::finding(cluster, installation, &config).await);
    findings.push(key(cluster, installation, &config).await);
    findings
}

/// The flags of the operator that decide which workloads are rolled, and when.
fn settings(config: &Config) -> String {
    let budget = match (config.in_a_minute, config.at_once) {
        (0, 0) => "no budget over all workloads".to_owned(),
        (rate, 0) => format!("at most {rate} rollouts in a minute"),
        (0, once) => format!("at most {once} rollouts at once"),
        (rate, once) => format!("at most {rate} rollouts in a minute and {once} at once"),
    };
    let others = [(config.reloader_annotations, "Stakater Reloader"), (config.wave_annotations, "wave")];
    let others: Vec<_> = others.into_iter().filter(|(given, _)| *given).map(|(_, whose)| whose).collect();
    let others = if others.is_empty() { String::new() } else { format!(", the words of {}", others.join(" and ")) };
    format!("each workload once in {:#} at most, {budget}{others}", config.min_interval)
}

/// The Secret with the key of digests.
async fn key(cluster: &Cluster, installation: &Installation, config: &Config) -> Finding {
    let (home, name) = (&installation.namespace, &config.digest_key);
    let api = Api::<Secret>::namespaced(cluster.client.clone(), home);
    match api.get_opt(name).await {
        Err(error) => Finding::unknown("key", &Failure::of(&format!("get secret {home}/{name}"), &error)),
        Ok(None) => Finding::note(
            "key",
            format!("there is no secret {home}/{name} yet"),
            Some(
                "the operator makes it when it starts; if one was deleted, all content is noted anew and nothing is rolled",
            ),
        ),
        Ok(Some(secret)) => match stored_key::of(secret) {
            Some(_) => Finding::fine("key", format!("digests are made with that in the secret {home}/{name}")),
            None => Finding::wrong(
                "key",
                format!("the secret {home}/{name} holds no key of digests, so the operator does nothing"),
                format!(
                    "kubectl delete secret {name} -n {home}; then all content is noted anew, and nothing is rolled for that"
                ),
            ),
        },
    }
}

/// Whether somebody watches what asks.
fn watched(objects: &Objects, installed: &[Operator]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let configs = || installed.iter().map(|operator| &operator.config);
    if installed.is_empty() {
        return findings;
    }
    let sees = |config: &Config, kind: What, object: &DynamicObject| {
        let is_kind = match kind {
            What::Workload(kind) => config.kinds.contains(&kind),
            What::Source(_) => true,
            What::Trigger(_) => config.vault.flags().is_some(),
        };
        is_kind && config.namespace.as_ref().is_none_or(|only| object.metadata.namespace.as_ref() == Some(only))
    };
    let mut unseen = Vec::new();
    let mut unheard = Vec::new();
    for (kind, object) in objects.iter().flat_map(|(kind, found)| found.iter().flatten().map(|object| (*kind, object)))
    {
        if !configs().any(|config| sees(config, kind, object)) {
            unseen.push(named(kind, object));
        }
        let listens = |config: &Config| config.reloader_annotations || config.wave_annotations;
        if matches!(kind, What::Workload(_)) && standing::asks_otherwise(object) && !configs().any(listens) {
            unheard.push(named(kind, object));
        }
    }
    let kinds: Vec<_> = configs().flat_map(|config| &config.kinds).map(|kind| kind.plural()).collect();
    findings.push(if unseen.is_empty() {
        Finding::fine("watches", format!("secrets, configmaps, {}", kinds.join(", ")))
    } else {
        let text = format!("nobody watches these, which ask: {}", few(&unseen));
        Finding::wrong("watches", text, "see --kinds, --namespace and --vault-addr of the operator")
    });
    if !unheard.is_empty() {
        findings.push(Finding::note(
            "settings",
            format!("these ask in the words of Stakater Reloader or wave, to which nobody listens: {}", few(&unheard)),
            Some("give the operator --reloader-annotations or --wave-annotations"),
        ));
    }
    findings
}

/// How many objects are in step, and why the others are not.
fn in_step(roll: &Roll, objects: &Objects) -> Vec<Finding> {
    let mut findings: Vec<_> = objects
        .iter()
        .filter_map(|(_, found)| found.as_ref().err().map(|failure| Finding::unknown("objects", failure)))
        .collect();
    let (mut good, mut all) = (0, 0);
    let mut others: BTreeMap<String, (Grade, Vec<String>)> = BTreeMap::new();
    for ((kind, found), shown) in objects.iter().zip(roll.kinds()) {
        for object in found.iter().flatten() {
            let Some(standing) = roll.standing(&shown, object) else { continue };
            all += 1;
            if standing.grade == Grade::InStep {
                good += 1;
                continue;
            }
            let (worst, names) = others.entry(standing.state).or_insert((standing.grade, Vec::new()));
            *worst = (*worst).max(standing.grade);
            names.push(named(*kind, object));
        }
    }
    findings.push(Finding::fine("objects", format!("{good} of {all} in step")));
    for (state, (grade, objects)) in others {
        let next = format!("kubectl konverge why {}", objects.first().cloned().unwrap_or_default());
        let text = format!("{state}: {}", few(&objects));
        let verdict = if grade == Grade::Wrong { Verdict::Wrong } else { Verdict::Note };
        findings.push(Finding { about: "objects", verdict, text, next: Some(next) });
    }
    findings
}

fn named(kind: What, object: &DynamicObject) -> String {
    let kind = match kind {
        What::Workload(kind) => WorkloadKind::name(kind),
        What::Source(kind) => kind.name(),
        What::Trigger(kind) => kind.name(),
    };
    let metadata = &object.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    format!("{}/{name} -n {namespace}", kind.to_ascii_lowercase())
}
