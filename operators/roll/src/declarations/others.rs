//! The annotations of Stakater Reloader and of wave, as far as they say what ours can say. Sources are those of their documentation.

use super::{Annotations, Invalid, Named, Rule, WorkloadAsks, values};
use crate::object::{SourceKind, SourceName};

/// For all that the pods use.
const RELOADER_AUTO: &str = "reloader.stakater.com/auto";
const RELOADER_AUTO_SECRET: &str = "secret.reloader.stakater.com/auto";
const RELOADER_AUTO_CONFIG_MAP: &str = "configmap.reloader.stakater.com/auto";
/// For named ones, whether the pods use them or not.
const RELOADER_SECRETS: &str = "secret.reloader.stakater.com/reload";
const RELOADER_CONFIG_MAPS: &str = "configmap.reloader.stakater.com/reload";
/// None of these for `auto`.
const RELOADER_EXCEPT_SECRETS: &str = "secrets.exclude.reloader.stakater.com/reload";
const RELOADER_EXCEPT_CONFIG_MAPS: &str = "configmaps.exclude.reloader.stakater.com/reload";
/// For what the pods use and what has [`RELOADER_MATCH`].
const RELOADER_SEARCH: &str = "reloader.stakater.com/search";
/// On a Secret or a `ConfigMap`.
pub(super) const RELOADER_MATCH: &str = "reloader.stakater.com/match";
/// On a Secret or a `ConfigMap`.
pub(super) const RELOADER_IGNORE: &str = "reloader.stakater.com/ignore";
/// There a Deployment is paused for so long after a rollout; here the next rollout waits, and the Deployment can be changed.
const RELOADER_PAUSE_PERIOD: &str = "deployment.reloader.stakater.com/pause-period";

/// For all that the pods use.
const WAVE_UPDATE: &str = "wave.pusher.com/update-on-config-change";
/// For more, as `NAMESPACE/NAME`.
const WAVE_CONFIG_MAPS: &str = "wave.pusher.com/extra-configmaps";
const WAVE_SECRETS: &str = "wave.pusher.com/extra-secrets";

/// Adds what Reloader would do. It looks at the pods' annotations for what the workload does not say.
pub(super) fn reloader(asks: &mut WorkloadAsks, own: &Annotations, of_pods: &Annotations) -> Result<(), Invalid> {
    let all = |annotation| match values::boolean(own, annotation)? {
        Some(said) => Ok(said),
        None => values::boolean(of_pods, annotation).map(|said| said == Some(true)),
    };
    let list = |annotation: &'static str| {
        let text = own.get(annotation).or_else(|| of_pods.get(annotation)).filter(|text| !text.trim().is_empty());
        text.map_or(Ok(Vec::new()), |text| values::names(annotation, text))
    };
    for (annotation, kinds) in [
        (RELOADER_AUTO, [SourceKind::Secret, SourceKind::ConfigMap].as_slice()),
        (RELOADER_AUTO_SECRET, &[SourceKind::Secret]),
        (RELOADER_AUTO_CONFIG_MAP, &[SourceKind::ConfigMap]),
    ] {
        if all(annotation)? {
            for kind in kinds {
                asks.all.entry(*kind).or_insert(annotation);
            }
        }
    }
    for (annotation, kind) in [(RELOADER_SECRETS, SourceKind::Secret), (RELOADER_CONFIG_MAPS, SourceKind::ConfigMap)] {
        list(annotation)?.into_iter().for_each(|name| add(asks, SourceName { kind, name }, annotation));
    }
    for (annotation, kind) in
        [(RELOADER_EXCEPT_SECRETS, SourceKind::Secret), (RELOADER_EXCEPT_CONFIG_MAPS, SourceKind::ConfigMap)]
    {
        asks.except.extend(list(annotation)?.into_iter().map(|name| SourceName { kind, name }));
    }
    if all(RELOADER_SEARCH)? {
        asks.matching = Some(RELOADER_SEARCH);
    }
    let period =
        own.get(RELOADER_PAUSE_PERIOD).map(|text| values::duration(RELOADER_PAUSE_PERIOD, text)).transpose()?;
    asks.min_interval = asks.min_interval.or(period);
    Ok(())
}

/// Adds what wave would do.
pub(super) fn wave(asks: &mut WorkloadAsks, own: &Annotations, namespace: &str) -> Result<(), Invalid> {
    if values::boolean(own, WAVE_UPDATE)? != Some(true) {
        return Ok(());
    }
    for kind in [SourceKind::Secret, SourceKind::ConfigMap] {
        asks.all.entry(kind).or_insert(WAVE_UPDATE);
    }
    for (annotation, kind) in [(WAVE_SECRETS, SourceKind::Secret), (WAVE_CONFIG_MAPS, SourceKind::ConfigMap)] {
        let Some(text) = own.get(annotation).filter(|text| !text.trim().is_empty()) else { continue };
        for item in text.split(',').map(str::trim) {
            let (of, name) = item.split_once('/').unwrap_or((namespace, item));
            if of != namespace {
                let cause = format!("{item:?} is in another namespace, where this one has no say");
                return Err(values::invalid(annotation, text, cause));
            }
            let name = values::object_name(name).map_err(|cause| values::invalid(annotation, text, cause))?;
            add(asks, SourceName { kind, name }, annotation);
        }
    }
    Ok(())
}

fn add(asks: &mut WorkloadAsks, source: SourceName, rule: Rule) {
    asks.named.entry(source).or_insert(Named { keys: None, rule });
}
