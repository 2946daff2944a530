//! Decides about a Secret, without IO, clock or client.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use konverge_core::{
    SecretValue,
    digest::{ContentDigest, DigestKey},
};

use crate::{
    select::{Collision, Selection},
    source::{Revision, Snapshot, Succession},
    template::{Held, Rendered, SecretTemplate, SourceKeys, Unmade},
    wanted::lacking,
};

/// A Secret's data may be this many bytes in all: `MaxSecretSize` of the Kubernetes API.
pub const SECRET_SIZE_LIMIT: usize = 1 << 20;

/// A key of a Secret's data is at most this long: the API's rule for config map keys.
const KEY_LENGTH_LIMIT: usize = 253;

/// The content of the Secret when this process last verified it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The revision of each source that it came from. `None` for a source that gave nothing then.
    pub revisions: Vec<Option<Revision>>,
    /// Digest of our keys and their values.
    pub digest: ContentDigest,
}

impl Verified {
    fn revision(&self, source: usize) -> Option<&Revision> {
        self.revisions.get(source)?.as_ref()
    }
}

/// The content of the Secret now.
pub enum Observed<'a> {
    /// Nobody wrote to it since it was verified, so it holds what it held then.
    Unchanged(&'a Verified),
    /// It was read.
    Read(&'a Contents, Option<&'a Verified>),
}

/// A Secret's data and whose it is.
#[derive(Default)]
pub struct Contents {
    /// All keys with their values.
    pub data: BTreeMap<String, SecretValue>,
    /// The keys that our field manager owns.
    pub owned: BTreeSet<String>,
    /// Whether the API server refuses any change of the data.
    pub immutable: bool,
    /// Whether the Secret has to be created.
    pub is_absent: bool,
    /// Whether labels, annotations or the owner differ from what is wanted.
    pub has_other_metadata: bool,
    /// Its type, if it is not the wanted one.
    pub other_type: Option<String>,
}

/// An action.
pub enum Action<'a> {
    /// The Secret is right.
    Nothing,
    /// Make exactly these keys ours, with these values.
    Apply(BTreeMap<Cow<'a, str>, Held<'a>>),
    /// Leave the Secret as it is; the problem says why.
    Keep,
    /// Read the sources once more before their emptiness is believed.
    ConfirmEmpty,
    /// The Secret has to be read before this can be decided.
    ReadFirst,
}

/// Something that its owner should know, whatever was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// Keys that no Secret may have; they were left out.
    InvalidKeys(Vec<String>),
    /// Keys that could not be decrypted; they keep what the Secret has.
    Undecryptable(Vec<String>),
    /// Keys that are selected by name and that the source does not have; they keep what the Secret has.
    MissingKeys(Vec<String>),
    /// Two keys would have one name in the Secret. The source counts as one that gives nothing.
    Collision(Collision),
    /// All the data together is larger than a Secret may be.
    TooLarge {
        /// Bytes of all values.
        size: usize,
    },
    /// The Secret is marked immutable and holds something else.
    Immutable,
    /// The Secret has another type than the wanted one, which the API server does not change.
    OtherType {
        /// Its type.
        found: String,
    },
    /// The type of the Secret demands keys that no source has.
    LacksKeys(Vec<&'static str>),
    /// The template cannot make a key. The key keeps what the Secret has; without that, nothing is written.
    Unmade {
        /// The key.
        key: String,
        /// The reason.
        cause: Unmade,
    },
    /// The environment has never held a key, so nothing is removed for its sake.
    NeverFilled,
    /// The server states another environment under this name than was applied before, and nothing proves that it is a newer one.
    Replaced {
        /// The ID of the environment that was applied.
        applied: String,
        /// The ID that the server states now.
        stated: String,
    },
    /// The server states an older version than was applied before.
    WentBack {
        /// The version that was applied.
        applied: i64,
        /// The version that the server states now.
        stated: i64,
    },
}

/// One source of the Secret, as far as it is known now.
pub struct Part<'a> {
    /// The keys that the Secret gets of it.
    pub selection: &'a Selection,
    /// Whether the store may lack the content.
    pub is_optional: bool,
    /// The content. `None` if the store gave none.
    pub snapshot: Option<&'a Snapshot>,
    /// The newest revision that any Secret has held, if one has.
    pub accepted: Option<Revision>,
    /// The names of the keys that it gave the Secret when that was written. `None` if no record says so.
    pub given: Option<&'a BTreeSet<String>>,
}

/// The contribution of a source to a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Given {
    /// The names of the keys in the Secret.
    pub keys: BTreeSet<String>,
    /// Whether the source gave nothing, so that the keys keep their values.
    pub is_kept: bool,
}

/// The decision: an action, what is verified by it, and the problems to report.
pub struct Plan<'a> {
    /// The action.
    pub action: Action<'a>,
    /// True of the Secret once the action is done; `None` where nothing was established.
    pub verified: Option<Verified>,
    /// The problems to report, each with the number of the source.
    pub problems: Vec<(usize, Problem)>,
    /// The record of the Secret once the action is done.
    pub record: Option<String>,
}

/// The circumstances of a decision.
#[derive(Debug, Clone, Copy, Default)]
pub struct Circumstances<'a> {
    /// The record that the Secret has.
    pub recorded: Option<&'a str>,
    /// Whether two separate reads agree that a source is empty.
    pub is_confirmed: bool,
    /// Whether a source that fails stops all others.
    pub is_strict: bool,
    /// The type that the Secret is to have, unless that does not matter.
    pub secret_type: Option<&'a str>,
    /// The keys that are made of the sources' keys. Without a template, the Secret has those of the sources.
    pub template: Option<&'a SecretTemplate>,
}

/// Decides what to write to a Secret. `record` returns the text of the record for the contributions of the sources.
pub fn plan<'a>(
    parts: &[Part<'a>],
    observed: &Observed<'a>,
    key: &DigestKey,
    circumstances: Circumstances<'a>,
    record: impl FnOnce(&[Given]) -> Option<String>,
) -> Plan<'a> {
    let before = match observed {
        Observed::Unchanged(verified) => Some(*verified),
        Observed::Read(_, verified) => *verified,
    };
    let contents = match observed {
        Observed::Unchanged(_) => None,
        Observed::Read(contents, _) => Some(*contents),
    };
    let mut draft = Draft { contents, template: circumstances.template, ..Draft::default() };
    for (number, part) in parts.iter().enumerate() {
        let used = usable(part, before.and_then(|before| before.revision(number)));
        let used = used
            .and_then(|snapshot| draft.add(number, part.selection, snapshot).map_err(Problem::Collision).map_err(Some));
        match used {
            Ok(()) if part.has_ended(&draft.given[number]) => draft.has_emptied = true,
            Ok(()) => {}
            Err(problem) => {
                draft.problems.extend(problem.map(|problem| (number, problem)));
                if circumstances.is_strict || !draft.keep(part) {
                    return keep(draft.problems);
                }
            }
        }
    }
    let (data, is_incomplete) = draft.render();
    let Draft { given, problems, needs_contents, has_emptied, .. } = draft;
    if needs_contents && contents.is_none() {
        return Plan { action: Action::ReadFirst, verified: None, problems: Vec::new(), record: None };
    }
    if is_incomplete {
        return keep(problems);
    }
    let is_emptied = has_emptied || (data.is_empty() && holds_ours(observed, key));
    if is_emptied && !circumstances.is_confirmed {
        return Plan { action: Action::ConfirmEmpty, verified: None, problems, record: None };
    }
    finish(Desired { data, given, problems }, parts, observed, key, circumstances, record)
}

/// The keys that the Secret is to hold.
struct Desired<'a> {
    data: BTreeMap<Cow<'a, str>, Held<'a>>,
    given: Vec<Given>,
    problems: Vec<(usize, Problem)>,
}

/// Compares the Secret with what it is to hold.
fn finish<'a>(
    desired: Desired<'a>,
    parts: &[Part<'_>],
    observed: &Observed<'a>,
    key: &DigestKey,
    circumstances: Circumstances<'_>,
    record: impl FnOnce(&[Given]) -> Option<String>,
) -> Plan<'a> {
    let Desired { data, given, mut problems } = desired;
    let values = || data.iter().map(|(name, value)| (&**name, value.value()));
    let size = values().map(|(_, value)| value.len()).sum();
    if size > SECRET_SIZE_LIMIT {
        problems.push((0, Problem::TooLarge { size }));
        return keep(problems);
    }
    let lacking = lacking(circumstances.secret_type, |key| data.contains_key(key));
    if !lacking.is_empty() {
        problems.push((0, Problem::LacksKeys(lacking)));
        return keep(problems);
    }
    if let Observed::Read(Contents { other_type: Some(found), .. }, _) = observed {
        problems.push((0, Problem::OtherType { found: found.clone() }));
        return keep(problems);
    }
    let digest = key.digest(values().map(|(name, value)| (name, value.expose())));
    let of_part = |(part, given): (&Part<'_>, &Given)| {
        part.snapshot.filter(|_| !given.is_kept).map(|snapshot| snapshot.revision.clone())
    };
    let revisions = parts.iter().zip(&given).map(of_part).collect();
    let verified = Some(Verified { revisions, digest });
    let has_data = match observed {
        Observed::Unchanged(before) => before.digest == digest,
        Observed::Read(contents, _) => contents.hold_exactly(&data),
    };
    let has_metadata = !matches!(observed, Observed::Read(Contents { has_other_metadata: true, .. }, _));
    let record = record(&given);
    if has_data && has_metadata && record.as_deref() == circumstances.recorded {
        return Plan { action: Action::Nothing, verified, problems, record };
    }
    if !has_data && matches!(observed, Observed::Read(Contents { immutable: true, .. }, _)) {
        problems.push((0, Problem::Immutable));
        return keep(problems);
    }
    Plan { action: Action::Apply(data), verified, problems, record }
}

/// Returns the content of a source, or `None` or a problem if it gives nothing.
fn usable<'a>(part: &Part<'a>, before: Option<&Revision>) -> Result<&'a Snapshot, Option<Problem>> {
    let snapshot = part.snapshot.ok_or(None)?;
    if let Some(problem) = rollback(snapshot, before, part.accepted.as_ref()) {
        return Err(Some(problem));
    }
    if snapshot.revision.number == 0 && snapshot.values.is_empty() && snapshot.failed.is_empty() {
        return Err(Some(Problem::NeverFilled));
    }
    Ok(snapshot)
}

impl Part<'_> {
    /// Returns whether the source gave keys before and gives none now.
    fn has_ended(&self, now: &Given) -> bool {
        now.keys.is_empty() && self.given.is_some_and(|given| !given.is_empty())
    }
}

/// A plan that is being made, source by source.
#[derive(Default)]
struct Draft<'a> {
    contents: Option<&'a Contents>,
    template: Option<&'a SecretTemplate>,
    keys: SourceKeys<'a>,
    given: Vec<Given>,
    problems: Vec<(usize, Problem)>,
    /// Whether a key keeps the value that the Secret has.
    needs_contents: bool,
    /// Whether a source that gave keys gives none any more.
    has_emptied: bool,
}

impl<'a> Draft<'a> {
    /// Adds the keys of a source. Earlier sources precede it. Nothing is added if two keys have one name.
    fn add(&mut self, number: usize, selection: &'a Selection, snapshot: &'a Snapshot) -> Result<(), Collision> {
        let keys = snapshot.values.keys().chain(&snapshot.failed).map(String::as_str);
        let selected = selection.select(keys)?;
        let mut problems = [Vec::new(), Vec::new()];
        let [invalid, undecryptable] = &mut problems;
        let mut given = Given::default();
        let mut kept = Vec::new();
        for (name, key) in selected.names {
            let is_valid = is_valid_key(&name);
            match snapshot.values.get(key) {
                None => {
                    undecryptable.push(key.to_owned());
                    kept.push(name);
                }
                Some(_) if !is_valid => invalid.push(name.into_owned()),
                Some(value) => self.insert(&mut given, name, value),
            }
        }
        let missing: Vec<_> = selected.missing.iter().map(|name| name.clone().into_owned()).collect();
        kept.extend(selected.missing);
        self.carry(&mut given, kept);
        let [invalid, undecryptable] = problems;
        for (problem, keys) in [
            (Problem::InvalidKeys as fn(_) -> _, invalid),
            (Problem::Undecryptable, undecryptable),
            (Problem::MissingKeys, missing),
        ] {
            if !keys.is_empty() {
                self.problems.push((number, problem(keys)));
            }
        }
        self.given.push(given);
        Ok(())
    }

    /// Keeps the keys that a source has given the Secret before. Returns `false` if they are unknown or gone, so that nothing may be written.
    fn keep(&mut self, part: &Part<'_>) -> bool {
        let mut given = Given { is_kept: true, ..Given::default() };
        let names: Vec<_> = part.given.into_iter().flatten().map(|name| Cow::Owned(name.clone())).collect();
        let has_given = !names.is_empty();
        self.carry(&mut given, names);
        let is_there = self.contents.is_none() || !given.keys.is_empty();
        self.given.push(given);
        if has_given { is_there } else { part.is_optional }
    }

    /// Keeps the values that the Secret has, if the operator wrote them. With a template, they are withheld, and the keys that need them keep their values.
    fn carry(&mut self, given: &mut Given, names: Vec<Cow<'a, str>>) {
        if self.template.is_some() {
            let new = names.into_iter().filter(|name| !self.keys.values.contains_key(name));
            let new: Vec<_> = new.map(Cow::into_owned).filter(|name| !self.keys.withheld.contains(name)).collect();
            given.keys.extend(new.iter().cloned());
            self.keys.withheld.extend(new);
            return;
        }
        self.needs_contents |= !names.is_empty();
        for name in names {
            if let Some(value) = self.held(&name) {
                self.insert(given, name, value);
            }
        }
    }

    fn insert(&mut self, given: &mut Given, name: Cow<'a, str>, value: &'a SecretValue) {
        if self.keys.withheld.contains(&*name) {
            return;
        }
        if let std::collections::btree_map::Entry::Vacant(free) = self.keys.values.entry(name) {
            given.keys.insert(free.key().clone().into_owned());
            free.insert(value);
        }
    }

    /// Returns the value that the Secret has, if the operator wrote it.
    fn held(&self, name: &str) -> Option<&'a SecretValue> {
        let contents = self.contents?;
        contents.data.get(name).filter(|_| contents.owned.contains(name))
    }

    /// Returns the keys of the Secret, and whether one is lacking without which nothing may be written.
    fn render(&mut self) -> (BTreeMap<Cow<'a, str>, Held<'a>>, bool) {
        let keys = std::mem::take(&mut self.keys);
        let Some(template) = self.template else {
            return (keys.values.into_iter().map(|(name, value)| (name, Held::Found(value))).collect(), false);
        };
        self.needs_contents |= template.keeps_source_keys && !keys.withheld.is_empty();
        let Rendered { data, unmade, is_incomplete } = template.render(keys, SECRET_SIZE_LIMIT, |key| self.held(key));
        self.needs_contents |= !unmade.is_empty();
        // The source's own failure is reported already.
        let told = unmade.into_iter().filter(|(_, cause)| !matches!(cause, Unmade::Withheld(_)));
        self.problems.extend(told.map(|(key, cause)| (0, Problem::Unmade { key, cause })));
        (data, is_incomplete)
    }
}

/// Returns the problem with a snapshot that does not follow the revisions that were applied.
pub fn rollback(upstream: &Snapshot, before: Option<&Revision>, accepted: Option<&Revision>) -> Option<Problem> {
    let last = before.into_iter().chain(accepted).max()?;
    let stated = &upstream.revision;
    if last.identity == stated.identity {
        let (applied, stated) = (last.number, stated.number);
        return (applied > stated).then_some(Problem::WentBack { applied, stated });
    }
    let follows = match upstream.succession {
        Succession::Unproven => false,
        Succession::Proven(_) => stated.identity > last.identity,
        Succession::NotEarlier if stated.identity < last.identity && stated.number < last.number => {
            return Some(Problem::WentBack { applied: last.number, stated: stated.number });
        }
        Succession::NotEarlier => true,
    };
    (!follows).then(|| Problem::Replaced { applied: last.identity.clone(), stated: stated.identity.clone() })
}

fn keep<'a>(problems: Vec<(usize, Problem)>) -> Plan<'a> {
    Plan { action: Action::Keep, verified: None, problems, record: None }
}

/// Whether the Secret holds keys of ours that sources without any would take away.
fn holds_ours(observed: &Observed<'_>, key: &DigestKey) -> bool {
    match observed {
        Observed::Unchanged(before) => before.digest != key.digest([]),
        Observed::Read(contents, _) => !contents.owned.is_empty(),
    }
}

impl Contents {
    /// Whether our keys hold what this process last saw in them, or none is there. Other content is from another writer, which may know
    /// a newer state of the environment.
    pub fn is_as_verified(&self, verified: Option<&Verified>, key: &DigestKey) -> bool {
        let ours = self.owned.iter().filter_map(|name| Some((name.as_str(), self.data.get(name)?.expose())));
        self.owned.is_empty() || verified.is_some_and(|verified| verified.digest == key.digest(ours))
    }

    /// Whether our keys are exactly these, and hold these values.
    fn hold_exactly(&self, desired: &BTreeMap<Cow<'_, str>, Held<'_>>) -> bool {
        !self.is_absent
            && self.owned.iter().map(String::as_str).eq(desired.keys().map(|name| &**name))
            && desired.iter().all(|(name, value)| self.data.get(&**name) == Some(value.value()))
    }
}

/// Whether Kubernetes allows the key in a Secret's data: `[-._a-zA-Z0-9]{1,253}`, not `.`, and not beginning with `..`.
pub fn is_valid_key(key: &str) -> bool {
    (1..=KEY_LENGTH_LIMIT).contains(&key.len())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        && key != "."
        && !key.starts_with("..")
}

#[cfg(test)]
mod tests;
