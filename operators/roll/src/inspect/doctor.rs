//! The doctor's checks of roll: its settings, the key of digests, and whether an operator watches each object.

use k8s_openapi::api::core::v1::Secret;
use konverge_apply::stored_key;
use konverge_core::names::few;
use konverge_kubectl::{Cluster, Failure, Finding, Installation, Installed, Objects, named};
use kube::{Api, core::DynamicObject};

use super::{What, standing};
use crate::config::Config;

/// The flags of the operator that decide which workloads are rolled, and when.
pub(super) fn settings(config: &Config) -> String {
    let budget = match (config.pace.max_rollouts_per_minute, config.pace.max_concurrent_rollouts) {
        (0, 0) => "no budget over all workloads".to_owned(),
        (rate, 0) => format!("at most {rate} rollouts per minute"),
        (0, concurrent) => format!("at most {concurrent} concurrent rollouts"),
        (rate, concurrent) => format!("at most {rate} rollouts per minute, {concurrent} concurrent rollouts"),
    };
    let others = [(config.tools.reloader_annotations, "Stakater Reloader"), (config.tools.wave_annotations, "wave")];
    let others: Vec<_> = others.into_iter().filter(|(given, _)| *given).map(|(_, whose)| whose).collect();
    let others = if others.is_empty() { String::new() } else { format!(", annotations of {}", others.join(" and ")) };
    format!("each workload at most once in {:#}, {budget}{others}", config.pace.min_interval)
}

/// The Secret with the key of digests.
pub(super) async fn key(cluster: &Cluster, installation: &Installation, config: &Config) -> Finding {
    let (home, name) = (&installation.namespace, &config.digest_key);
    let api = Api::<Secret>::namespaced(cluster.client.clone(), home);
    match api.get_opt(name).await {
        Err(error) => Finding::unknown("key", &Failure::of(&format!("get secret {home}/{name}"), &error)),
        Ok(None) => Finding::note(
            "key",
            format!("there is no secret {home}/{name} yet"),
            Some(
                "the operator creates it at its start; if one was deleted, all baselines are recorded anew, and nothing restarts",
            ),
        ),
        Ok(Some(secret)) => match stored_key::of(secret) {
            Some(_) => Finding::fine("key", format!("the key of digests is in the secret {home}/{name}")),
            None => Finding::wrong(
                "key",
                format!("the secret {home}/{name} holds no key of digests, so the operator does nothing"),
                format!(
                    "kubectl delete secret {name} -n {home}; then all baselines are recorded anew, and nothing restarts"
                ),
            ),
        },
    }
}

/// Whether somebody watches what asks.
pub(super) fn watched(objects: &[Objects], operators: &[Installed<Config>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let configs = || operators.iter().map(|operator| &operator.config);
    if operators.is_empty() {
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
    let listens = |config: &Config| config.tools.reloader_annotations || config.tools.wave_annotations;
    for Objects { kind, found } in objects {
        let Some(what) = What::of(kind) else { continue };
        for object in found.iter().flatten() {
            if !configs().any(|config| sees(config, what, object)) {
                unseen.push(named(kind, object));
            }
            if matches!(what, What::Workload(_)) && standing::asks_otherwise(object) && !configs().any(listens) {
                unheard.push(named(kind, object));
            }
        }
    }
    let kinds: Vec<_> = configs().flat_map(|config| &config.kinds).map(|kind| kind.plural()).collect();
    findings.push(if unseen.is_empty() {
        Finding::fine("watches", format!("secrets, configmaps, {}", kinds.join(", ")))
    } else {
        let text = format!("the operator does not watch these objects, which have opted in: {}", few(&unseen));
        Finding::wrong("watches", text, "see --kinds, --namespace and --vault-addr of the operator")
    });
    if !unheard.is_empty() {
        findings.push(Finding::note(
            "settings",
            format!(
                "these have annotations of Stakater Reloader or wave, which the operator does not follow: {}",
                few(&unheard)
            ),
            Some("give the operator --reloader-annotations or --wave-annotations"),
        ));
    }
    findings
}
