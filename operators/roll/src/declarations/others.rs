//! The annotations of Stakater Reloader and of wave, as far as they say what ours can say. Sources are those of their documentation.

use super::{Annotations, Invalid, Named, Rule, WorkloadSpec, values};
use crate::object::{SourceKind, SourceName};

/// For all that the pods use.
const RELOADER_AUTO: &str = "reloader.stakater.com/auto";
const RELOADER_AUTO_SECRET: &str = "secret.reloader.stakater.com/auto";
const RELOADER_AUTO_CONFIG_MAP: &str = "configmap.reloader.stakater.com/auto";
/// For named ones, whether the pods use them or not.
const RELOADER_SECRETS: &str = "secret.reloader.stakater.com/reload";
const RELOADER_CONFIG_MAPS: &str = "configmap.reloader.stakater.com/reload";
/// None of these, whether for `auto`, `search` or by name.
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

/// Adds what Reloader would do, which reads words in ways of its own: what is neither yes nor no is no, and a name may be missing in a list.
pub(super) fn reloader(spec: &mut WorkloadSpec, own: &Annotations, of_pods: &Annotations) -> Result<(), Invalid> {
    for (kind, auto, named, except) in [
        (SourceKind::Secret, RELOADER_AUTO_SECRET, RELOADER_SECRETS, RELOADER_EXCEPT_SECRETS),
        (SourceKind::ConfigMap, RELOADER_AUTO_CONFIG_MAP, RELOADER_CONFIG_MAPS, RELOADER_EXCEPT_CONFIG_MAPS),
    ] {
        // The pods' count for a kind of which the workload says nothing at all. Only the workload says which sources are left out.
        let says = [RELOADER_AUTO, auto, named, RELOADER_SEARCH].iter().any(|annotation| own.contains_key(*annotation));
        let words = if says { own } else { of_pods };
        spec.except.extend(names(own, except)?.into_iter().map(|name| SourceName { kind, name }));
        if let Some(rule) =
            [RELOADER_AUTO, auto].into_iter().find(|rule| words.get(*rule).is_some_and(|word| is_yes(word)))
        {
            spec.all.entry(kind).or_insert(rule);
        }
        for name in names(words, named)? {
            let source = SourceName { kind, name };
            if !spec.except.contains(&source) {
                add(spec, source, named);
            }
        }
        if values::is_true(words, RELOADER_SEARCH) {
            spec.matching.insert(kind, RELOADER_SEARCH);
        }
    }
    let period =
        own.get(RELOADER_PAUSE_PERIOD).map(|text| values::duration(RELOADER_PAUSE_PERIOD, text)).transpose()?;
    spec.min_interval = spec.min_interval.or(period);
    Ok(())
}

/// Adds what wave would do.
pub(super) fn wave(spec: &mut WorkloadSpec, own: &Annotations, namespace: &str) -> Result<(), Invalid> {
    if !values::is_true(own, WAVE_UPDATE) {
        return Ok(());
    }
    for kind in [SourceKind::Secret, SourceKind::ConfigMap] {
        spec.all.entry(kind).or_insert(WAVE_UPDATE);
    }
    for (annotation, kind) in [(WAVE_SECRETS, SourceKind::Secret), (WAVE_CONFIG_MAPS, SourceKind::ConfigMap)] {
        let Some(text) = own.get(annotation) else { continue };
        for item in items(text) {
            let (of, name) = item.split_once('/').unwrap_or((namespace, item));
            if of != namespace {
                let cause = format!("{item:?} is in another namespace, where this one has no say");
                return Err(values::invalid(annotation, text, cause));
            }
            let name = values::object_name(name).map_err(|cause| values::invalid(annotation, text, cause))?;
            add(spec, SourceName { kind, name }, annotation);
        }
    }
    Ok(())
}

/// Whether it means yes to Go's `strconv.ParseBool`.
fn is_yes(word: &str) -> bool {
    ["1", "t", "T", "TRUE", "true", "True"].contains(&word)
}

/// The entries of a list.
fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// The names in a list.
fn names(annotations: &Annotations, annotation: &'static str) -> Result<Vec<String>, Invalid> {
    let Some(text) = annotations.get(annotation) else { return Ok(Vec::new()) };
    let name = |item| values::object_name(item).map_err(|cause| values::invalid(annotation, text, cause));
    items(text).map(name).collect()
}

fn add(spec: &mut WorkloadSpec, source: SourceName, rule: Rule) {
    spec.named.entry(source).or_insert(Named { keys: None, rule });
}
