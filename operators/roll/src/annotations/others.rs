//! The annotations of Stakater Reloader and of wave that have an equivalent among those of Konverge, by the documentation of these tools.

use std::str::FromStr;

use super::{Annotations, Invalid, Named, Rule, WorkloadSpec, values};
use crate::object::{SourceKind, SourceName};

/// Requests rollouts for all sources that the pods use.
const RELOADER_AUTO: &str = "reloader.stakater.com/auto";
const RELOADER_AUTO_SECRET: &str = "secret.reloader.stakater.com/auto";
const RELOADER_AUTO_CONFIG_MAP: &str = "configmap.reloader.stakater.com/auto";
/// Requests rollouts for named sources, even if the pods do not use them.
const RELOADER_SECRETS: &str = "secret.reloader.stakater.com/reload";
const RELOADER_CONFIG_MAPS: &str = "configmap.reloader.stakater.com/reload";
/// Excludes these sources from `auto`, `search` and names.
const RELOADER_EXCEPT_SECRETS: &str = "secrets.exclude.reloader.stakater.com/reload";
const RELOADER_EXCEPT_CONFIG_MAPS: &str = "configmaps.exclude.reloader.stakater.com/reload";
/// Requests rollouts for sources that the pods use and that have [`RELOADER_MATCH`].
const RELOADER_SEARCH: &str = "reloader.stakater.com/search";
/// Marks a Secret or `ConfigMap` for workloads with [`RELOADER_SEARCH`].
pub(super) const RELOADER_MATCH: &str = "reloader.stakater.com/match";
/// Excludes a Secret or `ConfigMap`.
pub(super) const RELOADER_IGNORE: &str = "reloader.stakater.com/ignore";
/// Reloader pauses a Deployment for this time after a rollout. Konverge delays only the next rollout, so the Deployment can be changed.
const RELOADER_PAUSE_PERIOD: &str = "deployment.reloader.stakater.com/pause-period";

/// The prefix of all annotations of wave.
pub(crate) const WAVE_PREFIX: &str = "wave.pusher.com/";
/// Requests rollouts for all sources that the pods use.
const WAVE_UPDATE: &str = "wave.pusher.com/update-on-config-change";
/// Requests rollouts for further sources, as `NAMESPACE/NAME`.
const WAVE_CONFIG_MAPS: &str = "wave.pusher.com/extra-configmaps";
const WAVE_SECRETS: &str = "wave.pusher.com/extra-secrets";

/// The followed annotations of Reloader. Each may have another name in a cluster.
const RELOADER: [Rule; 11] = [
    RELOADER_AUTO,
    RELOADER_AUTO_SECRET,
    RELOADER_AUTO_CONFIG_MAP,
    RELOADER_SECRETS,
    RELOADER_CONFIG_MAPS,
    RELOADER_EXCEPT_SECRETS,
    RELOADER_EXCEPT_CONFIG_MAPS,
    RELOADER_SEARCH,
    RELOADER_MATCH,
    RELOADER_IGNORE,
    RELOADER_PAUSE_PERIOD,
];

/// Returns `true` if this is the standard name of a followed annotation of Reloader.
pub(crate) fn is_of_reloader(annotation: &str) -> bool {
    RELOADER.contains(&annotation)
}

/// The rule for workloads without annotations in a cluster in which all workloads are followed.
const RELOADER_AUTO_ALL: Rule = "--reloader-auto-reload-all";

/// The settings of Reloader in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reloader {
    /// Whether workloads without an annotation have opted in.
    pub auto_reload_all: bool,
    /// The names of the annotations, in the order of [`RELOADER`].
    pub(crate) names: [Rule; RELOADER.len()],
}

impl Reloader {
    /// The settings of Reloader without flags.
    pub const DEFAULT: Self = Self { auto_reload_all: false, names: RELOADER };

    /// Returns these settings with another name of an annotation.
    #[must_use]
    pub fn rename(mut self, renamed: Renamed) -> Self {
        for (name, standard) in self.names.iter_mut().zip(RELOADER) {
            if standard == renamed.standard {
                *name = renamed.name;
            }
        }
        self
    }

    /// Returns the name that an annotation of Reloader has in this cluster.
    pub(super) fn name_of(&self, standard: Rule) -> Rule {
        RELOADER.iter().position(|known| *known == standard).map_or(standard, |place| self.names[place])
    }
}

/// An annotation of Reloader with another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renamed {
    standard: Rule,
    name: Rule,
}

impl FromStr for Renamed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (standard, name) =
            text.split_once('=').ok_or("write NAME=YOURS, such as reloader.stakater.com/auto=example.com/auto")?;
        let known = RELOADER.into_iter().find(|known| *known == standard);
        let standard =
            known.ok_or_else(|| format!("{standard:?} is not followed; these are: {}", RELOADER.join(", ")))?;
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(format!("{name:?} cannot be the name of an annotation"));
        }
        // The name lives as long as the process, as the names in the code do.
        Ok(Self { standard, name: String::leak(name.to_owned()) })
    }
}

/// Adds the requests of Reloader's annotations. Reloader takes a value that is neither true nor false for false, and allows empty names in a list.
pub(super) fn reloader(
    spec: &mut WorkloadSpec,
    settings: Reloader,
    own: &Annotations,
    of_pods: &Annotations,
) -> Result<(), Invalid> {
    let of = |standard| settings.name_of(standard);
    let (auto_all, search) = (of(RELOADER_AUTO), of(RELOADER_SEARCH));
    for (kind, auto, named, except) in [
        (SourceKind::Secret, of(RELOADER_AUTO_SECRET), of(RELOADER_SECRETS), of(RELOADER_EXCEPT_SECRETS)),
        (
            SourceKind::ConfigMap,
            of(RELOADER_AUTO_CONFIG_MAP),
            of(RELOADER_CONFIG_MAPS),
            of(RELOADER_EXCEPT_CONFIG_MAPS),
        ),
    ] {
        // The annotations of the pods count for a kind that no annotation of the workload names. Only the workload can exclude sources.
        let says = [auto_all, auto, named, search].iter().any(|annotation| own.contains_key(*annotation));
        let words = if says { own } else { of_pods };
        spec.except.extend(names(own, except)?.into_iter().map(|name| SourceName { kind, name }));
        if let Some(rule) = [auto_all, auto].into_iter().find(|rule| words.get(*rule).is_some_and(|word| is_yes(word)))
        {
            spec.all.entry(kind).or_insert(rule);
        }
        // A workload with any of these annotations decides for itself.
        let decides = [auto_all, auto].iter().any(|rule| words.get(*rule).is_some_and(|word| !word.is_empty()));
        if settings.auto_reload_all && !decides {
            spec.all.entry(kind).or_insert(RELOADER_AUTO_ALL);
        }
        for name in names(words, named)? {
            let source = SourceName { kind, name };
            if !spec.except.contains(&source) {
                add(spec, source, named);
            }
        }
        if values::is_true(words, search) {
            spec.matching.insert(kind, search);
        }
    }
    let pause_period = of(RELOADER_PAUSE_PERIOD);
    let period = own.get(pause_period).map(|text| values::duration(pause_period, text)).transpose()?;
    spec.min_interval = spec.min_interval.or(period);
    Ok(())
}

/// Adds the requests of wave's annotations.
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

/// Returns `true` if Go's `strconv.ParseBool` takes the value for true.
fn is_yes(word: &str) -> bool {
    ["1", "t", "T", "TRUE", "true", "True"].contains(&word)
}

/// Returns the entries of a list.
fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// Returns the names in a list.
fn names(annotations: &Annotations, annotation: &'static str) -> Result<Vec<String>, Invalid> {
    let Some(text) = annotations.get(annotation) else { return Ok(Vec::new()) };
    let name = |item| values::object_name(item).map_err(|cause| values::invalid(annotation, text, cause));
    items(text).map(name).collect()
}

fn add(spec: &mut WorkloadSpec, source: SourceName, rule: Rule) {
    spec.named.entry(source).or_insert(Named { keys: None, rule });
}
