//! Content that is made of values from Secrets: its encoding as text, its size and its digest. Pure.

use std::{borrow::Borrow, collections::BTreeMap};

use base64::{Engine, engine::general_purpose::STANDARD};
use konverge_core::{
    SecretValue,
    digest::{ContentDigest, DigestKey},
};
use konverge_text::{Placeholder, Template};
use konverge_vault::{Content, Field};
use zeroize::Zeroizing;

use crate::{secrets::Data, spec::BinaryPolicy};

/// The most bytes of keys and values that the operator writes to a path. The content of any Kubernetes Secret fits, also in base64.
///
/// Vault stores a secret in one entry of its storage, of 1 MiB by default and half of that with Consul, and refuses a larger one itself. The
/// operator never renders more than this limit, because a template of some thousand characters can request gigabytes.
pub const LARGEST: usize = 2 << 20;

/// The data of the Secrets that were read. `None` for a Secret that does not exist.
pub type Sources = BTreeMap<String, Option<Data>>;

/// The desired state of one path.
pub enum Target {
    /// This content.
    Content(Made),
    /// The current content, because the sources are incomplete.
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
    /// The content.
    pub content: Content,
    /// Keys whose values are not UTF-8, so they are base64-encoded.
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
    /// There is no value at all, which is more often a mistake than intended.
    Empty,
    /// A value is not UTF-8, and the object does not allow its encoding.
    Binary {
        /// The key.
        key: String,
    },
    /// It would be larger than [`LARGEST`].
    Large {
        /// At least this many bytes.
        size: usize,
    },
    /// The Secrets that it is made of are too large to be held together.
    LargeSecrets {
        /// At least this many bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
}

/// Returns the digest of these fields. `None` if one of them is not text, because the operator does not write such fields.
pub(crate) fn digest<'a>(
    key: &DigestKey,
    fields: impl IntoIterator<Item = (&'a str, &'a Field)>,
) -> Option<ContentDigest> {
    let fields: Vec<_> = fields.into_iter().collect();
    let is_text = fields.iter().all(|(_, field)| matches!(field, Field::Text(_)));
    is_text.then(|| key.digest(fields.iter().map(|(name, field)| (*name, field.bytes()))))
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
