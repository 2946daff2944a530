//! The migration from Stakater Reloader and from wave. Pure: `konverge migrate` lists the objects and prints the result.

mod program;

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Secret},
};
use konverge_kubectl::{Detail, Kind, Listed, Migrated, Migration, annotations};
use konverge_workload::WorkloadKind;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};

use crate::{
    annotations::{Invalid, Others, SourceSpec, WAVE_PREFIX, WorkloadSpec, is_of_reloader},
    config::KINDS,
};

/// The tools that roll replaces.
pub const ALL: [&dyn Migration; 2] = [&Reloader, &Wave];

/// The domain of the annotations of Stakater Reloader.
const RELOADER_DOMAIN: &str = "reloader.stakater.com";

/// The finalizer of older versions of wave.
const WAVE_FINALIZER: &str = "wave.pusher.com/finalizer";

/// wave's hash on a pod template.
const WAVE_HASH: &str = "wave.pusher.com/config-hash";

/// The annotations of Reloader that count are followed.
const FOLLOWED: &str = "its annotations stay as they are, and roll follows them with --reloader-annotations";

/// Moves users of Stakater Reloader.
pub struct Reloader;

/// Moves users of wave.
pub struct Wave;

impl Migration for Reloader {
    fn name(&self) -> &'static str {
        "reloader"
    }

    fn page(&self) -> &'static str {
        "docs/migrate/reloader.md"
    }

    fn kinds(&self) -> Vec<Kind> {
        workloads().into_iter().chain(sources()).collect()
    }

    fn classify(&self, kind: &Kind, object: &DynamicObject, _: &Listed) -> Option<Migrated> {
        let [own, of_pods] = annotations(object);
        let program = program::flags(object);
        let used: Vec<(&str, &str)> = own
            .iter()
            .chain(&of_pods)
            .filter(|(name, _)| is_in_domain(name, RELOADER_DOMAIN))
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        if used.is_empty() && program.is_none() {
            return None;
        }
        let mut migrated = program.unwrap_or_default();
        for (name, value) in &used {
            of_annotation(name, value, &mut migrated);
        }
        if kind.resource.kind == "Secret" || kind.resource.kind == "ConfigMap" {
            let followed = SourceSpec::read(&own, Others::ALL).is_ok_and(|spec| spec.matches || spec.ignored);
            migrated.becomes.extend(followed.then(|| FOLLOWED.to_owned()));
        } else if !used.is_empty() {
            let spec = WorkloadSpec::read(&own, &of_pods, namespace(object), Others::ALL);
            of_workload(kind, spec, (FOLLOWED, "Reloader"), &mut migrated);
        }
        Some(migrated)
    }
}

impl Migration for Wave {
    fn name(&self) -> &'static str {
        "wave"
    }

    fn page(&self) -> &'static str {
        "docs/migrate/wave.md"
    }

    fn kinds(&self) -> Vec<Kind> {
        workloads()
    }

    fn classify(&self, kind: &Kind, object: &DynamicObject, _: &Listed) -> Option<Migrated> {
        let [own, of_pods] = annotations(object);
        let finalizer = object.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == WAVE_FINALIZER);
        if !finalizer && !own.keys().any(|name| name.starts_with(WAVE_PREFIX)) {
            return None;
        }
        let mut migrated = Migrated::default();
        let spec = WorkloadSpec::read(&own, &of_pods, namespace(object), Others { reloader: None, wave: true });
        let followed = "roll restarts it for the same sources, with --wave-annotations";
        of_workload(kind, spec, (followed, "wave"), &mut migrated);
        if of_pods.contains_key(WAVE_HASH) {
            migrated
                .becomes
                .push(format!("{WAVE_HASH} stays in the pod template. It does no harm, and removing it is a rollout"));
        }
        if finalizer {
            migrated
                .becomes
                .push(format!("the finalizer {WAVE_FINALIZER} stays. Remove it, else a deletion waits for ever"));
        }
        Some(migrated)
    }
}

fn namespace(object: &DynamicObject) -> &str {
    object.metadata.namespace.as_deref().unwrap_or_default()
}

/// Says what becomes of a workload whose annotations of a tool are read like this: they are `followed`, or nothing restarts it.
fn of_workload(
    kind: &Kind,
    spec: Result<WorkloadSpec, Invalid>,
    (followed, tool): (&str, &str),
    migrated: &mut Migrated,
) {
    match spec {
        Ok(spec) if spec.requests_rollouts() => {
            migrated.becomes.push(followed.to_owned());
            migrated.lost.extend(lost_of_kind(&kind.resource.kind).map(str::to_owned));
        }
        Ok(_) => migrated.becomes.push(format!("nothing restarts it, as with {tool}")),
        Err(invalid) => migrated.lost.push(format!("{invalid}. roll restarts nothing until you correct it")),
    }
}

/// Whether an annotation is of this domain, or of one beneath it.
fn is_in_domain(annotation: &str, domain: &str) -> bool {
    let before = annotation.split_once('/').and_then(|(of, _)| of.strip_suffix(domain));
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
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

/// The kinds of workloads that either tool can restart. Whole, because annotations of pods count, too.
fn workloads() -> Vec<Kind> {
    let of_openshift = GroupVersionKind::gvk("apps.openshift.io", "v1", "DeploymentConfig");
    let others = [ApiResource::erase::<Job>(&()), ApiResource::from_gvk(&of_openshift)];
    let all = KINDS.into_iter().map(WorkloadKind::resource).chain(others);
    all.map(|resource| Kind::namespaced(resource, Detail::Whole)).collect()
}

/// The kinds of sources, without their content.
fn sources() -> [Kind; 2] {
    [ApiResource::erase::<Secret>(&()), ApiResource::erase::<ConfigMap>(&())]
        .map(|resource| Kind::namespaced(resource, Detail::Metadata))
}

/// The features of a kind of workload that are lost.
fn lost_of_kind(kind: &str) -> Option<&'static str> {
    match kind {
        "Job" => Some(
            "Reloader deletes the Job and creates it again. roll does not, because a Job that ran twice may do harm: it runs to its end with the content \
             that it started with. Create it again by hand, or use a CronJob",
        ),
        "CronJob" => Some(
            "Reloader starts a Job at once. roll changes the template, and the next scheduled run reads the new content. To run it now: \
             kubectl create job --from=cronjob/NAME NEW-NAME",
        ),
        "DeploymentConfig" => {
            Some("roll does not know DeploymentConfigs, which OpenShift has deprecated. Convert it to a Deployment")
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests;
