//! A value nobody prints by accident.

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The bytes of a secret, wiped when dropped.
///
/// Guarantees: there is no way to print, serialise or clone it, so it ends up in a log, a status or an error only by a
/// visible call of [`SecretValue::expose`]. Comparison takes the same time wherever two values of one length differ.
///
/// Does not: keep the bytes out of swap or of buffers that other libraries made of them.
///
/// ```compile_fail
/// let value = konverge_core::SecretValue::from("hunter2".to_owned());
/// println!("{value:?}");
/// ```
/// ```compile_fail
/// let value = konverge_core::SecretValue::from("hunter2".to_owned());
/// println!("{value}");
/// ```
/// ```compile_fail
/// let value = konverge_core::SecretValue::from("hunter2".to_owned());
/// let copy = value.clone();
/// ```
/// ```compile_fail
/// fn serialise(_: impl serde::Serialize) {}
/// serialise(konverge_core::SecretValue::from("hunter2".to_owned()));
/// ```
pub struct SecretValue(Zeroizing<Vec<u8>>);

impl SecretValue {
    /// Takes the bytes over; any copy that the caller kept is the caller's to wipe.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes, for the one place that hands them on.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no byte. An empty value is a value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for SecretValue {
    fn from(text: String) -> Self {
        Self::new(text.into_bytes())
    }
}

impl PartialEq for SecretValue {
    fn eq(&self, other: &Self) -> bool {
        self.expose().ct_eq(other.expose()).into()
    }
}

impl Eq for SecretValue {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equality_is_by_content() {
        let value = |text: &str| SecretValue::from(text.to_owned());
        assert!(value("a") == value("a"));
        assert!(value("a") != value("b"));
        assert!(value("a") != value("ab"));
        assert!(value("").is_empty());
        assert_eq!(value("abc").len(), 3);
    }
}
