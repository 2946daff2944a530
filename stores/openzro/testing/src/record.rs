//! The record of the last run of the suite on the real server.

use sha2::{Digest, Sha256};

/// The sources that make a transcript. Another text of them is another suite.
const SOURCES: [(&str, &str); 8] = [
    ("contract.rs", include_str!("contract.rs")),
    ("contract/account.rs", include_str!("contract/account.rs")),
    ("contract/auth.rs", include_str!("contract/auth.rs")),
    ("contract/dns.rs", include_str!("contract/dns.rs")),
    ("contract/groups.rs", include_str!("contract/groups.rs")),
    ("contract/networks.rs", include_str!("contract/networks.rs")),
    ("contract/policies.rs", include_str!("contract/policies.rs")),
    ("target.rs", include_str!("target.rs")),
];

/// Returns the digest of the suite's sources.
pub fn digest() -> String {
    let mut digest = Sha256::new();
    for (name, source) in SOURCES {
        for part in [name, source] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
    }
    hex::encode(digest.finalize())
}

/// Returns the names of the sources that [`digest`] covers.
pub fn sources() -> impl Iterator<Item = &'static str> {
    SOURCES.into_iter().map(|(name, _)| name)
}
