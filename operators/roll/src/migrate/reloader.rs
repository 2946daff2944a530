//! Stakater Reloader: `reloader.stakater.com`.

use konverge_kubectl::{Kind, Migrated, Migration, annotations};
use kube::core::DynamicObject;

use crate::declarations::{Others, SourceSpec, WorkloadSpec, is_of_reloader};

/// Moves users of Stakater Reloader.
pub struct Reloader;

/// The domain of Reloader's annotations.
const DOMAIN: &str = "reloader.stakater.com";

impl Migration for Reloader {
    fn name(&self) -> &'static str {
        "reloader"
    }

    fn page(&self) -> &'static str {
        "docs/migrate/reloader.md"
    }

    fn kinds(&self) -> Vec<Kind> {
        super::workloads().into_iter().chain(super::sources()).collect()
    }

    fn classify(&self, kind: &Kind, object: &DynamicObject) -> Option<Migrated> {
        let [own, of_pods] = annotations(object);
        let program = super::program::flags(object);
        let used: Vec<(&str, &str)> = own
            .iter()
            .chain(&of_pods)
            .filter(|(name, _)| {
                domain(name).is_some_and(|domain| domain == DOMAIN || domain.ends_with(&format!(".{DOMAIN}")))
            })
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        if used.is_empty() && program.is_none() {
            return None;
        }
        let mut migrated = program.unwrap_or_default();
        for (name, value) in &used {
            of_annotation(name, value, &mut migrated);
        }
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        if kind.resource.kind == "Secret" || kind.resource.kind == "ConfigMap" {
            let followed = SourceSpec::read(&own, Others::ALL).is_ok_and(|spec| spec.matches || spec.ignored);
            migrated.becomes.extend(followed.then(|| FOLLOWED.to_owned()));
        } else if !used.is_empty() {
            match WorkloadSpec::read(&own, &of_pods, namespace, Others::ALL) {
                Ok(spec) if spec.requests_rollouts() => {
                    migrated.becomes.push(FOLLOWED.to_owned());
                    migrated.lost.extend(super::lost_of_kind(&kind.resource.kind).map(str::to_owned));
                }
                Ok(_) => migrated.becomes.push("nothing restarts it, as with Reloader".to_owned()),
                Err(invalid) => migrated.lost.push(format!("{invalid}. roll restarts nothing until you correct it")),
            }
        }
        Some(migrated)
    }
}

/// The annotations that count are followed.
const FOLLOWED: &str = "its annotations stay as they are, and roll follows them with --reloader-annotations";

/// The part of an annotation's name before the slash.
fn domain(name: &str) -> Option<&str> {
    name.split_once('/').map(|(domain, _)| domain)
}

/// The effect on an annotation that roll follows in another way, or not at all.
fn of_annotation(name: &str, value: &str, migrated: &mut Migrated) {
    match name {
        "deployment.reloader.stakater.com/pause-period" => migrated.lost.push(format!(
            "{name}: {value} sets the minimum interval between two restarts. The Deployment itself is not paused, so other changes of it are rolled out"
        )),
        "reloader.stakater.com/rollout-strategy" if value == "restart" => migrated.lost.push(format!(
            "{name}: restart restarts the pods of an Argo Rollout without a new revision. roll changes the pod template, which runs its steps"
        )),
        "reloader.stakater.com/rollout-strategy" => {}
        "reloader.stakater.com/last-reloaded-from" | "deployment.reloader.stakater.com/paused-at" => {
            migrated.becomes.push(format!("{name} is Reloader's own note. It does no harm, and in a pod template its removal is a rollout"));
        }
        _ if name.starts_with("secretproviderclass.") || name.starts_with("secretproviderclasses.") => {
            migrated.lost.push(format!(
                "{name}: roll does not watch what the Secrets Store CSI driver only mounts, because no Secret holds it. With secretObjects in the class \
                 it watches the Secret"
            ));
        }
        _ if is_of_reloader(name) => {}
        _ => migrated.lost.push(format!("{name} is not known, and has no effect")),
    }
}
