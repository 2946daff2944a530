//! Reloader's own Deployment: what its flags and variables become.

use konverge_kubectl::Migrated;
use kube::core::DynamicObject;
use serde_json::Value;

/// The effect of a flag on a migration.
enum Effect {
    /// A flag of roll does it. The text is the flag, with `VALUE` for the value.
    Flag(&'static str),
    /// roll does it in any case, for the reason.
    Always(&'static str),
    /// Nothing does it, for the reason.
    Lost(&'static str),
}

use Effect::{Always, Flag, Lost};

const NOT_ONLY_MOUNTED: Effect =
    Lost("roll watches the Secrets that the Secrets Store CSI driver makes, not what it only mounts");
const ALL_OR_ONE_NAMESPACE: Effect = Lost(
    "roll watches all namespaces, or one with --namespace. Workloads without an annotation are left alone in each of them",
);

/// Each flag of Reloader that changes whom it restarts, when, or how.
const FLAGS: [(&str, Effect); 27] = [
    ("auto-reload-all", Flag("--reloader-auto-reload-all")),
    ("auto-annotation", Flag("--reloader-annotation=reloader.stakater.com/auto=VALUE")),
    ("secret-auto-annotation", Flag("--reloader-annotation=secret.reloader.stakater.com/auto=VALUE")),
    ("configmap-auto-annotation", Flag("--reloader-annotation=configmap.reloader.stakater.com/auto=VALUE")),
    ("secret-annotation", Flag("--reloader-annotation=secret.reloader.stakater.com/reload=VALUE")),
    ("configmap-annotation", Flag("--reloader-annotation=configmap.reloader.stakater.com/reload=VALUE")),
    ("auto-search-annotation", Flag("--reloader-annotation=reloader.stakater.com/search=VALUE")),
    ("search-match-annotation", Flag("--reloader-annotation=reloader.stakater.com/match=VALUE")),
    ("pause-deployment-annotation", Flag("--reloader-annotation=deployment.reloader.stakater.com/pause-period=VALUE")),
    ("enable-ha", Flag("--leader-elect")),
    ("log-format", Flag("--log-format=VALUE, where text and json are known")),
    (
        "ignored-workload-types",
        Flag(
            "--kinds with the others: deployments,statefulsets,daemonsets,cronjobs,rollouts are all of them. Reloader ignores VALUE",
        ),
    ),
    ("is-Argo-Rollouts", Always("roll restarts Argo Rollouts wherever they are installed")),
    (
        "reload-strategy",
        Always("roll writes one annotation on the pod template, which Argo CD does not revert, and never a variable"),
    ),
    (
        "reload-on-create",
        Always(
            "roll restarts a workload for a source that appears, if its pods could start without it. Pods that need it have not started before",
        ),
    ),
    (
        "sync-after-restart",
        Always("roll compares with the recorded content at each start, and restarts only for a difference"),
    ),
    (
        "reload-on-delete",
        Lost(
            "a deletion restarts nothing, because new pods could not start without the source. The content that comes next restarts the workload",
        ),
    ),
    (
        "is-openshift",
        Lost("roll does not know DeploymentConfigs, which OpenShift has deprecated. Convert them to Deployments"),
    ),
    (
        "resources-to-ignore",
        Lost(
            "roll watches Secrets and ConfigMaps. Use secret.reloader.stakater.com/auto or configmap.reloader.stakater.com/auto for one of them",
        ),
    ),
    ("namespaces-to-ignore", ALL_OR_ONE_NAMESPACE),
    ("namespace-selector", ALL_OR_ONE_NAMESPACE),
    ("resource-label-selector", Lost("roll.konverge.dev/ignore: \"true\" on a source leaves it out")),
    ("pause-deployment-time-annotation", Lost("roll pauses no Deployment")),
    ("secret-provider-class-annotation", NOT_ONLY_MOUNTED),
    ("secret-provider-class-auto-annotation", NOT_ONLY_MOUNTED),
    ("enable-csi-integration", NOT_ONLY_MOUNTED),
    (
        "webhook-url",
        Lost(
            "roll calls no webhook instead of a restart. Its events and its metric konverge_roll_rollouts_total tell of each rollout",
        ),
    ),
];

/// The variable that makes Reloader send messages.
const ALERT: &str = "ALERT_ON_RELOAD";

/// Returns the effect of the flags, if the object runs Reloader.
pub(super) fn flags(object: &DynamicObject) -> Option<Migrated> {
    let containers = object.data.pointer("/spec/template/spec/containers").and_then(Value::as_array)?;
    let container = containers.iter().find(|container| is_reloader(container["image"].as_str().unwrap_or_default()))?;
    let mut migrated = Migrated::default();
    migrated.becomes.push("it runs Reloader. Scale it to 0 when roll runs".to_owned());
    let arguments = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for argument in arguments.filter_map(|argument| argument.strip_prefix("--")) {
        let (name, value) = argument.split_once('=').unwrap_or((argument, "true"));
        if value == "false" {
            continue;
        }
        match FLAGS.iter().find(|(flag, _)| *flag == name).map(|(_, effect)| effect) {
            Some(Flag(ours)) => migrated.becomes.push(format!("--{argument}: {}", ours.replace("VALUE", value))),
            Some(Always(reason)) => migrated.becomes.push(format!("--{argument}: {reason}")),
            Some(Lost(reason)) => migrated.lost.push(format!("--{argument}: {reason}")),
            None => migrated.lost.push(format!("--{argument} is not known. Look at the flags of roll")),
        }
    }
    let variables = container["env"].as_array().into_iter().flatten();
    let alerts = variables.filter(|variable| variable["name"] == ALERT && variable["value"] == "true").count();
    if alerts > 0 {
        migrated.lost.push(format!(
            "{ALERT}: roll sends no messages. Its events and its alerts for Prometheus do; Alertmanager sends them to Slack, Teams or a webhook"
        ));
    }
    Some(migrated)
}

/// Whether an image is Reloader's: `ghcr.io/stakater/reloader:v1.4.12`, or a mirror of it.
fn is_reloader(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or_default();
    let end = name.find([':', '@']).unwrap_or(name.len());
    name[..end].eq_ignore_ascii_case("reloader")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::config::Config;

    #[test]
    fn each_flag_that_is_named_exists_in_roll() {
        for (flag, effect) in &FLAGS {
            let Flag(ours) = effect else { continue };
            let line = ours.split([' ', ',']).next().unwrap().replace("VALUE", "json");
            let line = if line == "--kinds" { "--kinds=deployments" } else { &line };
            let known = ["roll", "--reloader-annotations", line];
            assert!(Config::try_parse_from(known).is_ok(), "--{flag} becomes {line}");
        }
    }

    #[test]
    fn the_image_is_reloaders_or_a_mirror_of_it() {
        for (image, expected) in [
            ("ghcr.io/stakater/reloader:v1.4.12", true),
            ("registry:5000/mirror/Reloader@sha256:0", true),
            ("reloader", true),
            ("config-reloader:v1", false),
            ("nginx", false),
            ("", false),
        ] {
            assert_eq!(is_reloader(image), expected, "{image}");
        }
    }
}
