//! The sources that count for a workload: by its spec, by what its pods use and by the specs of the sources. Pure.

use std::collections::{BTreeMap, BTreeSet};

use konverge_workload::{Keys, Need, References, Usage};
use litemap::LiteMap;

use crate::{
    annotations::{ROLL_SELECTOR, ROLL_USERS, Rule, SourceSpec, WorkloadSpec},
    object::SourceName,
};

/// A source that a workload is rolled for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// Which keys count.
    pub keys: Keys,
    /// Whether its pods can start without it.
    pub need: Need,
    /// The keys without which pods cannot start, including keys that do not count.
    pub required: BTreeSet<String>,
    /// The annotation that requested it first.
    pub rule: Rule,
    /// Whether it is rolled for it, and does not only wait for it.
    pub counts: bool,
    /// The keys that a trigger waits for, if one does.
    pub awaited: Option<Keys>,
}

/// The sources that a workload is rolled for, now and before.
#[derive(Debug, Clone, Default)]
pub struct Uses {
    /// The sources that count now.
    pub current: LiteMap<SourceName, Use>,
    /// The key selections that counted before, by source. A record says that there was another one, and not which keys that were.
    pub previous_selections: BTreeMap<SourceName, Vec<Keys>>,
}

/// The number of earlier key selections that the index remembers for each source.
const REMEMBERED: usize = 4;

/// How pods use a Secret that the Secrets Store CSI driver makes of what it mounts for them. It is there from when the first of them has started,
/// so none has started without it; and they see all of it, whichever keys they name beside.
pub(crate) const MADE: Usage = Usage { need: Need::Required, keys: Keys::All, required: BTreeSet::new() };

/// All that a workload's pods name, in one map: what containers see, and what nodes mount their volumes with.
pub fn referenced(references: &References) -> LiteMap<SourceName, Usage> {
    let secrets = references.secrets.iter().map(|(name, usage)| (SourceName::secret(name), usage.clone()));
    let maps = references.config_maps.iter().map(|(name, usage)| (SourceName::config_map(name), usage.clone()));
    let mut all: LiteMap<_, _> = secrets.chain(maps).collect();
    for name in &references.storage_secrets {
        // The drivers that mount with it read keys of their own choice.
        all.insert(
            SourceName::secret(name),
            Usage { need: Need::Required, keys: Keys::All, required: BTreeSet::new() },
        );
    }
    all
}

/// Returns the sources that a workload is rolled for. `spec_of` returns the spec of a source, and `selecting` are the sources that select the workload by its labels.
pub fn uses<'a>(
    spec: &WorkloadSpec,
    referenced: &LiteMap<SourceName, Usage>,
    selecting: impl IntoIterator<Item = &'a SourceName>,
    spec_of: impl Fn(&SourceName) -> Option<&'a SourceSpec>,
) -> BTreeMap<SourceName, Use> {
    let mut found = BTreeMap::new();
    if spec.never {
        return found;
    }
    let usage = |source: &SourceName| {
        // Pods may read a source that they do not name in ways that nobody sees, and they have started without it.
        let unseen = || Usage { need: Need::Optional, keys: Keys::All, required: BTreeSet::new() };
        referenced.get(source).cloned().unwrap_or_else(unseen)
    };
    for (source, named) in &spec.named {
        let usage = usage(source);
        let keys = named.keys.clone().unwrap_or(usage.keys);
        add(&mut found, source, Usage { keys, ..usage }, named.rule);
    }
    for (source, usage) in referenced {
        let of_source = spec_of(source);
        let except = spec.except.contains(source);
        let rule = spec.all.get(&source.kind).copied().filter(|_| !except);
        let matching =
            spec.matching.get(&source.kind).copied().filter(|_| !except && of_source.is_some_and(|spec| spec.matches));
        let users = of_source.filter(|spec| spec.users).map(|_| ROLL_USERS);
        if let Some(rule) = rule.or(matching).or(users) {
            add(&mut found, source, usage.clone(), rule);
        }
    }
    for source in selecting {
        add(&mut found, source, usage(source), ROLL_SELECTOR);
    }
    found.retain(|source, _| !spec_of(source).is_some_and(|spec| spec.ignored));
    found
}

/// Adds a source, or another reason to be rolled for it.
pub(crate) fn add(found: &mut BTreeMap<SourceName, Use>, source: &SourceName, usage: Usage, rule: Rule) {
    let Usage { need, keys, required } = usage;
    if let Some(known) = found.get_mut(source) {
        let before = std::mem::replace(&mut known.keys, Keys::All);
        known.keys = before.and(keys);
        known.required.extend(required);
    } else {
        found.insert(source.clone(), Use { keys, need, required, rule, counts: true, awaited: None });
    }
}

/// Adds that it is waited for.
pub(crate) fn add_awaited(found: &mut BTreeMap<SourceName, Use>, source: SourceName, keys: Keys, rule: Rule) {
    let (need, required) = (Need::Required, BTreeSet::new());
    let new = || Use { keys: keys.clone(), need, required, rule, counts: false, awaited: None };
    let used = found.entry(source).or_insert_with(new);
    used.awaited = Some(match used.awaited.take() {
        Some(known) => known.and(keys),
        None => keys,
    });
}

impl Uses {
    /// Replaces the sources that count. Key selections that count no more are remembered.
    pub(crate) fn replace(&mut self, now: LiteMap<SourceName, Use>, record: Option<&str>) {
        for (name, used) in std::mem::replace(&mut self.current, now) {
            if self.current.get(&name).is_none_or(|now| now.keys != used.keys) {
                self.remember(name, used.keys, record);
            }
        }
    }

    fn remember(&mut self, name: SourceName, keys: Keys, record: Option<&str>) {
        let is_recorded = |name: &SourceName| record.is_some_and(|record| record.contains(&name.to_string()));
        self.previous_selections.retain(|name, _| is_recorded(name));
        if !is_recorded(&name) {
            return;
        }
        let selections = self.previous_selections.entry(name).or_default();
        selections.retain(|known| *known != keys);
        if selections.len() == REMEMBERED {
            selections.remove(0);
        }
        selections.push(keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::{Annotations, Others};

    fn annotations(pairs: &[(&str, &str)]) -> Annotations {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    const OTHERS: Others = Others::ALL;

    /// The pods use all of the Secret `db`, the key `a` of the Secret `api`, and the `ConfigMap` `app`.
    fn found(own: &[(&str, &str)], sources: &[(&str, SourceName)], chosen: &[SourceName]) -> Vec<String> {
        let usage = |keys| Usage { need: Need::Required, keys, required: BTreeSet::new() };
        let referenced = LiteMap::from_iter([
            (SourceName::secret("db"), usage(Keys::All)),
            (SourceName::secret("api"), usage(Keys::one("a"))),
            (SourceName::config_map("app"), usage(Keys::All)),
        ]);
        let spec = WorkloadSpec::read(&annotations(own), &Annotations::new(), "shop", OTHERS).unwrap();
        let of_sources: BTreeMap<_, _> = sources
            .iter()
            .map(|(word, name)| (name.clone(), SourceSpec::read(&annotations(&[(*word, "true")]), OTHERS).unwrap()))
            .collect();
        let uses = uses(&spec, &referenced, chosen, |source| of_sources.get(source));
        let keys = |keys: Keys| match keys {
            Keys::All => "*".to_owned(),
            Keys::Some(keys) => keys.into_iter().collect::<Vec<_>>().join("+"),
        };
        uses.into_iter().map(|(source, used)| format!("{source}:{} {}", keys(used.keys), used.rule)).collect()
    }

    #[test]
    fn who_asks_for_what() {
        let (db, api) = (SourceName::secret("db"), SourceName::secret("api"));
        let all = "roll.konverge.dev/on-change";
        assert!(found(&[], &[], &[]).is_empty());
        assert_eq!(
            found(&[(all, "true")], &[], &[]),
            [format!("Secret/api:a {all}"), format!("Secret/db:* {all}"), format!("ConfigMap/app:* {all}")]
        );
        assert_eq!(
            found(&[(all, "secret/db:x,secret/api,secret/unseen")], &[], &[]),
            [format!("Secret/api:a {all}"), format!("Secret/db:x {all}"), format!("Secret/unseen:* {all}")]
        );
        assert_eq!(found(&[], &[(ROLL_USERS, db.clone())], &[]), [format!("Secret/db:* {ROLL_USERS}")]);
        let unseen = SourceName::secret("unseen");
        assert!(found(&[], &[(ROLL_USERS, unseen.clone())], &[]).is_empty(), "not used");
        assert_eq!(found(&[], &[], &[unseen]), [format!("Secret/unseen:* {ROLL_SELECTOR}")]);
        // A named key and the one that its pods use.
        assert_eq!(found(&[(all, "secret/api:b")], &[(ROLL_USERS, api)], &[]), [format!("Secret/api:a+b {all}")]);
        assert_eq!(
            found(&[("zopp.dev/reload", "true")], &[], &[]),
            ["Secret/api:a zopp.dev/reload", "Secret/db:* zopp.dev/reload"]
        );
        let search = "reloader.stakater.com/search";
        let matched = [("reloader.stakater.com/match", db)];
        assert_eq!(found(&[(search, "true")], &matched, &[]), [format!("Secret/db:* {search}")]);
        assert!(found(&[], &matched, &[]).is_empty(), "nobody looks for it");
    }

    #[test]
    fn what_is_named_and_not_used_can_be_done_without() {
        let used = Usage { need: Need::Required, keys: Keys::All, required: BTreeSet::new() };
        let referenced = LiteMap::from_iter([(SourceName::secret("db"), used)]);
        let own = annotations(&[("roll.konverge.dev/on-change", "secret/db,secret/unseen")]);
        let spec = WorkloadSpec::read(&own, &Annotations::new(), "shop", OTHERS).unwrap();
        let chosen = SourceName::config_map("chosen");
        let all = uses(&spec, &referenced, [&chosen], |_| None);
        let needs: Vec<_> = all.iter().map(|(source, used)| (source.name.as_str(), used.need)).collect();
        assert_eq!(needs, [("db", Need::Required), ("unseen", Need::Optional), ("chosen", Need::Optional)]);
    }

    #[test]
    fn who_says_no_is_heard() {
        let db = SourceName::secret("db");
        let all = "roll.konverge.dev/on-change";
        assert!(found(&[(all, "false")], &[(ROLL_USERS, db.clone())], std::slice::from_ref(&db)).is_empty());
        let rest = found(&[(all, "true")], &[("roll.konverge.dev/ignore", db.clone())], std::slice::from_ref(&db));
        assert_eq!(rest.len(), 2, "{rest:?}");
        let auto = [("reloader.stakater.com/auto", "true"), ("secrets.exclude.reloader.stakater.com/reload", "db")];
        assert_eq!(found(&auto, &[], &[]).len(), 2);
        assert_eq!(found(&auto, &[(ROLL_USERS, db)], &[]).len(), 3, "the source asks by itself");
    }
}
