//! PEM: certificates and keys, one block after the other.

use konverge_core::SecretValue;
use zeroize::Zeroizing;

use crate::file::FileError;

/// Joins the values, each of which is one block or several, or a JSON list of such texts, as Vault returns `ca_chain`.
///
/// # Errors
/// A value without a block.
pub(crate) fn join(values: &[(&str, &str)]) -> Result<SecretValue, FileError> {
    let mut parts = Vec::new();
    for (key, value) in values {
        let texts = serde_json::from_str::<Vec<String>>(value).unwrap_or_else(|_| vec![(*value).to_owned()]);
        let texts: Vec<_> = texts.into_iter().map(Zeroizing::new).collect();
        if texts.is_empty() || !texts.iter().all(|text| text.contains("-----BEGIN ")) {
            return Err(FileError::NotPem { key: (*key).to_owned() });
        }
        parts.extend(texts);
    }
    let lines = || parts.iter().flat_map(|text| text.lines()).filter(|line| !line.trim().is_empty());
    // A buffer that grew would leave copies of values behind.
    let mut text = Vec::with_capacity(lines().map(|line| line.len() + 1).sum());
    for line in lines() {
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    }
    Ok(SecretValue::new(text))
}
