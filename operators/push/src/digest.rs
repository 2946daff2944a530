//! The digest of what we write, which is text alone.

use konverge_core::digest::{ContentDigest, DigestKey};
use konverge_vault::Field;

/// The digest of these fields; nothing if one of them is no text, because we do not write that.
pub(crate) fn digest<'a>(
    key: &DigestKey,
    fields: impl IntoIterator<Item = (&'a str, &'a Field)>,
) -> Option<ContentDigest> {
    let fields: Vec<_> = fields.into_iter().collect();
    let is_text = fields.iter().all(|(_, field)| matches!(field, Field::Text(_)));
    is_text.then(|| key.digest(fields.iter().map(|(name, field)| (*name, field.bytes()))))
}
