//! The digest of written content, which is text alone.

use konverge_core::digest::{ContentDigest, DigestKey};
use konverge_vault::Field;

/// Returns the digest of these fields. `None` if one of them is not text, because the operator does not write such fields.
pub(crate) fn digest<'a>(
    key: &DigestKey,
    fields: impl IntoIterator<Item = (&'a str, &'a Field)>,
) -> Option<ContentDigest> {
    let fields: Vec<_> = fields.into_iter().collect();
    let is_text = fields.iter().all(|(_, field)| matches!(field, Field::Text(_)));
    is_text.then(|| key.digest(fields.iter().map(|(name, field)| (*name, field.bytes()))))
}
