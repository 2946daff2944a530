//! The desired content in Vault: from the spec of an object and the Secrets it names to paths and their content. Pure.

use std::collections::{BTreeMap, BTreeSet};

use konverge_core::SecretValue;
use konverge_workload::{Need, References};
use kube::core::Selector;

use crate::{
    composition::Composition,
    content::{Lack, Making, Sources, Target},
    spec::{BinaryPolicy, Choice, Selection},
};

/// Which Secrets an object takes its values from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Each of these to its own path beneath the object's.
    Each(BTreeMap<String, Need>),
    /// All of this one, at the object's path.
    Whole(String),
    /// Chosen keys of several, merged at the object's path.
    Chosen(Vec<Choice>),
    /// As a `VaultPush` says.
    Composed(Composition),
}

impl Wanted {
    /// The Secrets that a workload requests.
    pub fn of_workload(selection: &Selection, references: &References) -> Self {
        match selection {
            Selection::Chosen(choices) => Self::Chosen(choices.clone()),
            Selection::All { image_pull_secrets } => {
                let used = references.secrets.iter().map(|(name, usage)| (name.clone(), usage.need));
                let mut names: BTreeMap<_, _> = used.collect();
                if *image_pull_secrets {
                    names.extend(references.image_pull_secrets.iter().map(|name| (name.clone(), Need::Required)));
                }
                Self::Each(names)
            }
        }
    }

    /// The Secrets that a Secret requests.
    pub fn of_secret(selection: &Selection, name: &str) -> Self {
        match selection {
            Selection::Chosen(choices) => Self::Chosen(choices.clone()),
            Selection::All { .. } => Self::Whole(name.to_owned()),
        }
    }

    /// The names of the Secrets. Empty if labels select them.
    pub fn names(&self) -> BTreeSet<&str> {
        match self {
            Self::Each(names) => names.keys().map(String::as_str).collect(),
            Self::Whole(name) => BTreeSet::from([&**name]),
            Self::Chosen(choices) => choices.iter().map(|choice| &*choice.name).collect(),
            Self::Composed(composition) => composition.names(),
        }
    }

    /// The paths beneath the object's, "" for its own.
    pub fn targets(&self) -> BTreeSet<&str> {
        match self {
            Self::Each(names) => names.keys().map(String::as_str).collect(),
            Self::Whole(_) | Self::Chosen(_) => BTreeSet::from([""]),
            Self::Composed(composition) => composition.targets(),
        }
    }

    /// Whether each Secret has a path of its own, by its name.
    pub fn is_apart(&self) -> bool {
        match self {
            Self::Each(_) => true,
            Self::Whole(_) | Self::Chosen(_) => false,
            Self::Composed(composition) => composition.apart,
        }
    }

    /// The selector of its Secrets.
    pub fn selector(&self) -> Option<&Selector> {
        if let Self::Composed(composition) = self { composition.selector() } else { None }
    }
}

/// The desired state of each path by target, with "" for the path of the object.
pub fn desired(wanted: &Wanted, sources: &Sources, binary: BinaryPolicy) -> BTreeMap<String, Target> {
    let targets = wanted.targets().into_iter();
    targets.map(|beneath| (beneath.to_owned(), desired_at(beneath, wanted, sources, binary))).collect()
}

/// The desired state of one target.
pub fn desired_at(beneath: &str, wanted: &Wanted, sources: &Sources, binary: BinaryPolicy) -> Target {
    match wanted {
        Wanted::Whole(name) => whole(name, false, sources, binary),
        Wanted::Each(names) => whole(beneath, names.get(beneath) == Some(&Need::Optional), sources, binary),
        Wanted::Chosen(choices) => chosen(choices, sources, binary),
        Wanted::Composed(composition) => composition.compose(beneath, sources, binary),
    }
}

fn whole(name: &str, optional: bool, sources: &Sources, binary: BinaryPolicy) -> Target {
    match sources.get(name) {
        Some(Some(data)) => made(data.iter().map(|(key, value)| (key.clone(), value)), binary),
        _ => Target::Keep(Lack::Secret { name: name.to_owned(), optional }),
    }
}

fn chosen(choices: &[Choice], sources: &Sources, binary: BinaryPolicy) -> Target {
    let mut fields = BTreeMap::new();
    for Choice { name, keys, prefix } in choices {
        let Some(Some(data)) = sources.get(name) else {
            return Target::Keep(Lack::Secret { name: name.clone(), optional: false });
        };
        for key in keys {
            let Some(value) = data.get(key) else {
                let available = data.keys().cloned().collect();
                return Target::Keep(Lack::Key { secret: name.clone(), key: key.clone(), available });
            };
            // As in the original, the later of two with one name counts.
            fields.insert(format!("{prefix}{key}"), value);
        }
    }
    made(fields.into_iter(), binary)
}

fn made<'a>(fields: impl Iterator<Item = (String, &'a SecretValue)>, binary: BinaryPolicy) -> Target {
    let mut making = Making::new(binary);
    for (key, value) in fields {
        if let Err(lack) = making.put(&key, value) {
            return Target::Keep(lack);
        }
    }
    making.done()
}

#[cfg(test)]
mod tests;
