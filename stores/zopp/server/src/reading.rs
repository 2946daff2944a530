//! The memory that it takes to read secrets, by what is known before. A list is in memory as rows, of which one after the other is encoded (module
//! `pieces`). All else is in memory as rows, and as the message that is made of them.

use konverge_zopp_crypto::envelope::TAG_LENGTH;

use crate::{limits::Limits, store::ContentSize};

/// The keys of so many secrets are not worth a question.
pub(crate) const FEW_KEYS: i64 = 64;
/// The memory of a secret besides its key and its ciphertext.
const BASE: u64 = 192;
/// Rows, and the message.
const FORMS: u64 = 2;

/// The memory of a list, whose keys have so many bytes.
pub(crate) fn of_list(content: &ContentSize, key_bytes: i64, limits: &Limits) -> u64 {
    let bytes = unsigned(content.bytes) + unsigned(key_bytes) + FORMS * unsigned(content.manifest_bytes);
    bytes + largest(content.bytes, limits) + BASE * unsigned(content.keys)
}

/// The memory of one secret and the manifest.
pub(crate) fn of_value(content: &ContentSize, limits: &Limits) -> u64 {
    FORMS * (largest(content.bytes, limits) + unsigned(content.manifest_bytes))
}

/// The memory of a secret with its earlier values.
pub(crate) fn of_history(content: &ContentSize, limits: &Limits) -> u64 {
    let earlier = u64::from(limits.history_versions) * u64::from(limits.value_bytes);
    let rows = largest(content.bytes, limits) + earlier.min(unsigned(content.history_bytes));
    rows + rows.min(limits.value_bytes.into())
}

/// The largest ciphertext that there can be.
pub(crate) fn largest(bytes: i64, limits: &Limits) -> u64 {
    (u64::from(limits.value_bytes) + TAG_LENGTH as u64).min(unsigned(bytes))
}

fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_that_of_what_can_be_there() {
        let limits = Limits { value_bytes: 100, history_versions: 3, ..Limits::default() };
        let size = |keys, bytes, manifest_bytes, history_bytes| ContentSize {
            tag: String::new(),
            keys,
            bytes,
            manifest_bytes,
            history_bytes,
        };
        let empty = size(0, 0, 0, 0);
        let (small, large) = (size(2, 50, 10, 40), size(1000, 50_000, 10, 40_000));
        assert_eq!([of_list(&empty, 0, &limits), of_value(&empty, &limits), of_history(&empty, &limits)], [0; 3]);
        assert_eq!(of_list(&small, 7, &limits), 50 + 7 + 20 + 50 + 2 * BASE);
        assert_eq!(of_list(&large, 7, &limits), 50_000 + 7 + 20 + 116 + 1000 * BASE);
        assert_eq!([of_value(&small, &limits), of_value(&large, &limits)], [120, 252]);
        assert_eq!([of_history(&small, &limits), of_history(&large, &limits)], [180, 516]);
    }
}
