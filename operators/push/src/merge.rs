//! Keys of ours among keys of others at one path: from what should be there and what is there to one write. Pure.
//!
//! The custom metadata of the path names the owner of each key by a mark. A key without a mark is ours if the object's record says that it was
//! written. Otherwise it has no owner.

use std::collections::{BTreeMap, BTreeSet};

use konverge_core::SecretValue;
use konverge_vault::{Content, Expected, Field, Found, Owner, Ownership};

use crate::{record::Written, spec::ExistingPolicy};

/// The reason why a path is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The path belongs to another owner, who is named.
    Foreign(String),
    /// The path has content without a mark, and the object does not adopt it.
    Existing,
    /// One of the keys belongs to another owner.
    ForeignKey {
        /// The key.
        key: String,
        /// The owner.
        owner: String,
    },
    /// One of the keys has content without a mark, and the object does not adopt it.
    ExistingKey(String),
}

/// Changes of the custom metadata. `None` removes a mark.
pub type Marks = BTreeMap<String, Option<String>>;

/// The longest name of a mark in Vault. A key whose mark has a longer one is not marked.
const LONGEST_NAME: usize = 128;

/// The owner of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Keeper {
    Nobody,
    Us,
    /// An earlier object with our name.
    Predecessor,
    Another(String),
}

/// The plan for a path with merged keys.
pub struct Merge {
    /// The content to write, if it differs.
    pub content: Option<Content>,
    /// The precondition of the write.
    pub expected: Expected,
    /// The marks to set after it.
    pub marks: Marks,
    /// Keys without an owner whose values are replaced.
    pub adopted: Vec<String>,
}

/// Plans the write that puts `own` among the other keys of the path.
pub fn merge(
    own: &Content,
    found: Found,
    owner: &Owner,
    recorded: &Written,
    existing: ExistingPolicy,
) -> Result<Merge, Refusal> {
    let notes = found.custom_metadata().cloned().unwrap_or_default();
    let was_whole = match owner.ownership(&notes) {
        Ownership::Foreign(name) => return Err(Refusal::Foreign(name)),
        Ownership::Ours | Ownership::Predecessor => true,
        Ownership::Unowned => recorded.written && recorded.keys.is_none(),
    };
    let expected = found.expected();
    let mut content = contained(found);
    let mut adopted = Vec::new();
    for (key, field) in own.iter() {
        let keeper = keeper(&notes, owner, key);
        if let Keeper::Another(owner) = keeper {
            return Err(Refusal::ForeignKey { key: key.to_owned(), owner });
        }
        let is_ours = was_whole || keeper != Keeper::Nobody || is_written(recorded, key);
        if !is_ours && content.get(key).is_some_and(|there| there != field) {
            if existing == ExistingPolicy::Refuse {
                return Err(Refusal::ExistingKey(key.to_owned()));
            }
            adopted.push(key.to_owned());
        }
    }
    let mut marks = if was_whole { owner.unmark() } else { Marks::new() };
    marks.retain(|name, _| notes.contains_key(name));
    let mut changed = false;
    for key in ours(&content, &notes, owner, recorded, was_whole) {
        if own.get(&key).is_none() {
            changed |= content.remove(&key).is_some();
            marks.extend(notes.contains_key(&name(owner, &key)).then(|| (name(owner, &key), None)));
        }
    }
    for (key, field) in own.iter() {
        if content.get(key) != Some(field) {
            content.insert(key, SecretValue::new(field.bytes().to_vec()));
            changed = true;
        }
        let mark = (name(owner, key), mark(owner));
        if mark.0.len() <= LONGEST_NAME && notes.get(&mark.0) != Some(&mark.1) {
            marks.insert(mark.0, Some(mark.1));
        }
    }
    Ok(Merge { content: changed.then_some(content), expected, marks, adopted })
}

/// The plan for a path at which none of our keys is desired.
pub struct KeyRemoval {
    /// The content to write. `None` if the path has it already. If that is empty, the path is to be deleted.
    pub content: Option<Content>,
    /// The precondition of the write.
    pub expected: Expected,
    /// Which marks go.
    pub marks: Marks,
}

/// Plans the removal of our keys from the path. `own` is what an unfinished write would have made, if that is known. Where the
/// object's `heir` may be, keys of one that came after it under its name stay. Keys that `heirs` request stay, too, and get their marks.
pub fn remove_keys(
    found: Found,
    owner: &Owner,
    recorded: &Written,
    own: Option<&Content>,
    heir: bool,
    heirs: &BTreeMap<String, Owner>,
) -> KeyRemoval {
    let notes = found.custom_metadata().cloned().unwrap_or_default();
    let expected = found.expected();
    let mut content = contained(found);
    let mut removal = KeyRemoval { content: None, expected, marks: Marks::new() };
    if matches!(owner.ownership(&notes), Ownership::Foreign(_)) {
        return removal;
    }
    let known = recorded.keys.iter().flatten().chain(&recorded.pending).cloned();
    let keys: BTreeSet<String> = known.chain(marked(&notes, owner)).collect();
    let mut changed = false;
    for key in keys {
        let goes = match keeper(&notes, owner, &key) {
            Keeper::Us => true,
            Keeper::Predecessor => !heir,
            Keeper::Another(_) => false,
            Keeper::Nobody => is_written(recorded, &key) || own.is_some_and(|own| own.get(&key) == content.get(&key)),
        };
        if let Some(heir) = heirs.get(&key).filter(|_| goes) {
            removal.marks.insert(name(owner, &key), Some(mark(heir)));
        } else if goes {
            changed |= content.remove(&key).is_some();
            removal.marks.extend(notes.contains_key(&name(owner, &key)).then(|| (name(owner, &key), None)));
        }
    }
    removal.content = changed.then_some(content);
    removal
}

/// The marks of our keys, to be taken away.
pub fn unmark(found: &Found, owner: &Owner) -> Marks {
    let notes = found.custom_metadata().into_iter().flat_map(|notes| marked(notes, owner));
    notes
        .filter(|key| found.custom_metadata().is_some_and(|notes| keeper(notes, owner, key) == Keeper::Us))
        .map(|key| (name(owner, &key), None))
        .collect()
}

/// The other owners of keys there.
pub fn other_keeper(notes: &BTreeMap<String, String>, owner: &Owner) -> Option<String> {
    marked(notes, owner).find_map(|key| match keeper(notes, owner, &key) {
        Keeper::Another(name) => Some(name),
        _ => None,
    })
}

/// Returns the owners whose marks have this prefix: the owner of the whole path, and the owners of keys, each with its keys.
pub(crate) fn owners(notes: &BTreeMap<String, String>, prefix: &str) -> Vec<(Owner, Option<BTreeSet<String>>)> {
    let mut of_keys = BTreeMap::<_, BTreeSet<String>>::new();
    let before = format!("{prefix}/key/");
    for (name, mark) in notes {
        if let Some(key) = name.strip_prefix(&before)
            && let [name, uid, instance] = mark.splitn(3, ' ').collect::<Vec<_>>()[..]
        {
            of_keys.entry((name, uid, instance)).or_default().insert(key.to_owned());
        }
    }
    let owner = |(name, uid, instance): (&str, &str, &str)| Owner {
        prefix: prefix.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        instance: instance.to_owned(),
    };
    let whole = Owner::noted(prefix, notes).map(|owner| (owner, None));
    whole.into_iter().chain(of_keys.into_iter().map(|(parts, keys)| (owner(parts), Some(keys)))).collect()
}

/// Keys that were written for us, as far as that is marked or recorded.
fn ours(
    content: &Content,
    notes: &BTreeMap<String, String>,
    owner: &Owner,
    recorded: &Written,
    was_whole: bool,
) -> BTreeSet<String> {
    let known = content.keys().map(str::to_owned).chain(marked(notes, owner));
    let is_ours = |key: &String| match keeper(notes, owner, key) {
        Keeper::Us | Keeper::Predecessor => true,
        Keeper::Another(_) => false,
        Keeper::Nobody => was_whole || is_written(recorded, key),
    };
    known.filter(is_ours).collect()
}

fn is_written(recorded: &Written, key: &str) -> bool {
    recorded.written && recorded.keys.as_ref().is_some_and(|keys| keys.contains(key))
}

fn contained(found: Found) -> Content {
    match found {
        Found::Live(secret) => secret.content,
        Found::Deleted(_) | Found::Absent => Content::new(),
    }
}

fn name(owner: &Owner, key: &str) -> String {
    format!("{}/key/{key}", owner.prefix)
}

/// No part of it has a blank in it.
fn mark(owner: &Owner) -> String {
    format!("{} {} {}", owner.name, owner.uid, owner.instance)
}

/// The keys that carry a mark.
fn marked(notes: &BTreeMap<String, String>, owner: &Owner) -> impl Iterator<Item = String> {
    let prefix = name(owner, "");
    notes.keys().filter_map(move |name| name.strip_prefix(&prefix).map(str::to_owned))
}

fn keeper(notes: &BTreeMap<String, String>, owner: &Owner, key: &str) -> Keeper {
    let Some(mark) = notes.get(&name(owner, key)) else { return Keeper::Nobody };
    let mut parts = mark.splitn(3, ' ');
    let (name, uid, instance) = (parts.next(), parts.next(), parts.next());
    let one_of_us = instance.is_some_and(|instance| instance == owner.instance || instance == Owner::SOME_INSTANCE);
    match (name, uid) {
        (Some(name), Some(uid)) if name == owner.name && one_of_us => {
            if uid == owner.uid {
                Keeper::Us
            } else {
                Keeper::Predecessor
            }
        }
        (Some(name), _) if name == owner.name => {
            Keeper::Another(format!("{name} of the installation {}", instance.unwrap_or_default()))
        }
        _ => Keeper::Another(name.unwrap_or_default().to_owned()),
    }
}

/// Only the keys that were written for us.
pub fn own<'a>(content: &'a Content, written: &Written) -> impl Iterator<Item = (&'a str, &'a Field)> {
    let keys = written.keys.clone();
    content.iter().filter(move |(key, _)| keys.as_ref().is_none_or(|keys| keys.contains(*key)))
}

#[cfg(test)]
mod tests;
