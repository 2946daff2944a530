//! Resource versions as numbers.
//!
//! Versions of one kind are numbers that grow with each write (Kubernetes, "API concepts", resource versions), so they tell which of two
//! states is older. A version that is not a number can only be equal to another one.

/// Returns the version as a number, or `None` if it is not one. Zero is no version: the API server takes it for "any".
pub fn number(version: &str) -> Option<u64> {
    version.parse().ok().filter(|version| *version > 0)
}

/// Returns whether one version is older than another. Versions that are no numbers are never older.
pub fn is_older(version: &str, than: &str) -> bool {
    matches!((number(version), number(than)), (Some(version), Some(than)) if version < than)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_have_an_order() {
        for (version, than, expected) in [
            ("9", "10", true),
            ("10", "9", false),
            ("9", "9", false),
            ("", "9", false),
            ("a", "b", false),
            ("0", "9", false),
        ] {
            assert_eq!(is_older(version, than), expected, "{version} and {than}");
        }
    }
}
