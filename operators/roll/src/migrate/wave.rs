//! wave: `wave.pusher.com`.

use konverge_kubectl::{Kind, Migrated, Migration, annotations};
use kube::core::DynamicObject;

use crate::declarations::{Others, WAVE_PREFIX, WorkloadSpec};

/// The finalizer of older versions of wave.
const FINALIZER: &str = "wave.pusher.com/finalizer";

/// wave's hash on a pod template.
const HASH: &str = "wave.pusher.com/config-hash";

/// Moves users of wave.
pub struct Wave;

impl Migration for Wave {
    fn name(&self) -> &'static str {
        "wave"
    }

    fn page(&self) -> &'static str {
        "docs/migrate/wave.md"
    }

    fn kinds(&self) -> Vec<Kind> {
        super::workloads()
    }

    fn classify(&self, kind: &Kind, object: &DynamicObject) -> Option<Migrated> {
        let [own, of_pods] = annotations(object);
        let finalizer = object.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
        if !finalizer && !own.keys().any(|name| name.starts_with(WAVE_PREFIX)) {
            return None;
        }
        let mut migrated = Migrated::default();
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        match WorkloadSpec::read(&own, &of_pods, namespace, Others { reloader: None, wave: true }) {
            Ok(spec) if spec.requests_rollouts() => {
                migrated.becomes.push("roll restarts it for the same sources, with --wave-annotations".to_owned());
                migrated.lost.extend(super::lost_of_kind(&kind.resource.kind).map(str::to_owned));
            }
            Ok(_) => migrated.becomes.push("nothing restarts it, as with wave".to_owned()),
            Err(invalid) => migrated.lost.push(format!("{invalid}. roll restarts nothing until you correct it")),
        }
        if of_pods.contains_key(HASH) {
            migrated
                .becomes
                .push(format!("{HASH} stays in the pod template. It does no harm, and removing it is a rollout"));
        }
        if finalizer {
            migrated
                .becomes
                .push(format!("the finalizer {FINALIZER} stays. Remove it, else a deletion waits for ever"));
        }
        Some(migrated)
    }
}
