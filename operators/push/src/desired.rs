//! The desired content in Vault: from the spec of an object and the Secrets it names to paths and their content. Pure.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use konverge_core::SecretValue;
use konverge_vault::Content;
use konverge_workload::{Need, References};
use kube::core::Selector;
use zeroize::Zeroizing;

use crate::{
    annotations::Choice,
    composition::Composition,
    secrets::Data,
    spec::{BinaryPolicy, Selection},
    template::{Placeholder, Template},
};

/// So many bytes of keys and values are written to a path at most. Vault keeps a secret in one entry of its storage, of 1 MiB unless that is
/// set otherwise and half of it with Consul, and says so itself where it is less than this. All that a Secret of Kubernetes can hold fits in
/// also in base64. The operator never renders more, because a template of some thousand characters can request gigabytes.
pub const LARGEST: usize = 2 << 20;

/// The data of the Secrets that were read; nothing where there is no such Secret.
pub type Sources = BTreeMap<String, Option<Data>>;

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
    pub fn of_workload(selection: &Selection, references: &References, image_pull_secrets: bool) -> Self {
        match selection {
            Selection::Chosen(choices) => Self::Chosen(choices.clone()),
            Selection::All => {
                let used = references.secrets.iter().map(|(name, usage)| (name.clone(), usage.need));
                let mut names: BTreeMap<_, _> = used.collect();
                if image_pull_secrets {
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
            Selection::All => Self::Whole(name.to_owned()),
        }
    }

    /// The names of the Secrets; none where they are told by labels.
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

/// The desired state of one path.
pub enum Target {
    /// This.
    Content(Made),
    /// The current content: the sources are not complete, and a part is not taken for the whole.
    Keep(Lack),
}

impl Target {
    /// How many bytes it takes, about.
    pub fn size(&self) -> usize {
        match self {
            Self::Content(made) => made.content.size(),
            Self::Keep(Lack::Key { available, .. }) => available.iter().map(String::len).sum(),
            Self::Keep(_) => 0,
        }
    }
}

/// Content that was made.
pub struct Made {
    /// It.
    pub content: Content,
    /// Keys whose values are no text and stand there in base64.
    pub encoded: Vec<String>,
}

/// Why a path cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// There is no such Secret.
    Secret {
        /// Its name.
        name: String,
        /// Whether the pods can start without.
        optional: bool,
    },
    /// The Secret has no such key.
    Key {
        /// The Secret.
        secret: String,
        /// The key.
        key: String,
        /// The keys of the Secret.
        available: Vec<String>,
    },
    /// There is no value at all, which is more often a slip than meant.
    Empty,
    /// A value is no text, and the object refuses to have it encoded.
    Binary {
        /// The key.
        key: String,
    },
    /// It would be larger than [`LARGEST`].
    Large {
        /// So many bytes, or more.
        size: usize,
    },
    /// The Secrets that it is made of are too large to be held together.
    LargeSecrets {
        /// So many bytes, or more.
        size: usize,
        /// So many are allowed.
        limit: usize,
    },
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

/// Content that is being made. How large it would be is known before anything is copied.
pub(crate) struct Making {
    made: Made,
    binary: BinaryPolicy,
    size: usize,
}

impl Making {
    pub(crate) fn new(binary: BinaryPolicy) -> Self {
        Self { made: Made { content: Content::new(), encoded: Vec::new() }, binary, size: 0 }
    }

    /// Sets a key; the later of two values counts.
    pub(crate) fn put(&mut self, key: &str, value: &SecretValue) -> Result<(), Lack> {
        self.clear(key);
        // As text it is not shorter.
        self.room(key, value.len())?;
        let text = self.text(key, value)?.into_value();
        self.insert(key, text)
    }

    /// Sets a key to a template with its values.
    pub(crate) fn fill<'a>(
        &mut self,
        key: &str,
        template: &Template,
        value: impl Fn(&Placeholder) -> Result<&'a SecretValue, Lack>,
    ) -> Result<(), Lack> {
        self.clear(key);
        self.room(key, template.length(|placeholder| value(placeholder).map(SecretValue::len))?)?;
        // So it is not too long to have each value looked at.
        let length = template.length(|placeholder| value(placeholder).map(length_as_text))?;
        self.room(key, length)?;
        let text = template.fill(length, |placeholder| self.text(key, value(placeholder)?))?;
        self.insert(key, text)
    }

    fn clear(&mut self, key: &str) {
        if let Some(before) = self.made.content.remove(key) {
            self.size -= key.len() + before.bytes().len();
            self.made.encoded.retain(|encoded| encoded != key);
        }
    }

    /// Whether a value of this length fits in.
    fn room(&self, key: &str, length: usize) -> Result<(), Lack> {
        let size = self.size.saturating_add(key.len()).saturating_add(length);
        if size > LARGEST { Err(Lack::Large { size }) } else { Ok(()) }
    }

    fn insert(&mut self, key: &str, text: SecretValue) -> Result<(), Lack> {
        self.room(key, text.len())?;
        self.size += key.len() + text.len();
        self.made.content.insert(key, text);
        Ok(())
    }

    /// The value as text, which is noted for the key if it is none.
    fn text<'a>(&mut self, key: &str, value: &'a SecretValue) -> Result<Text<'a>, Lack> {
        match (is_text(value), self.binary) {
            (true, _) => Ok(Text::Same(value)),
            (false, BinaryPolicy::Base64) => {
                if self.made.encoded.last().is_none_or(|last| last != key) {
                    self.made.encoded.push(key.to_owned());
                }
                Ok(Text::Encoded(encoded(value)))
            }
            (false, BinaryPolicy::Refuse) => Err(Lack::Binary { key: key.to_owned() }),
        }
    }

    pub(crate) fn done(self) -> Target {
        if self.made.content.is_empty() { Target::Keep(Lack::Empty) } else { Target::Content(self.made) }
    }
}

/// A value as text.
enum Text<'a> {
    Same(&'a SecretValue),
    Encoded(SecretValue),
}

impl Text<'_> {
    fn into_value(self) -> SecretValue {
        match self {
            Self::Same(value) => SecretValue::new(value.expose().to_vec()),
            Self::Encoded(value) => value,
        }
    }
}

impl Borrow<SecretValue> for Text<'_> {
    fn borrow(&self) -> &SecretValue {
        match self {
            Self::Same(value) => value,
            Self::Encoded(value) => value,
        }
    }
}

fn is_text(value: &SecretValue) -> bool {
    std::str::from_utf8(value.expose()).is_ok()
}

fn length_as_text(value: &SecretValue) -> usize {
    if is_text(value) { value.len() } else { length_encoded(value) }
}

fn length_encoded(value: &SecretValue) -> usize {
    value.len().div_ceil(3) * 4
}

fn encoded(value: &SecretValue) -> SecretValue {
    // At its final size from the beginning, so that growing leaves no copy behind.
    let mut text = Zeroizing::new(vec![0; length_encoded(value)]);
    let length = STANDARD.encode_slice(value.expose(), &mut text).unwrap_or_default();
    SecretValue::new(text[..length].to_vec())
}

#[cfg(test)]
mod tests;
