//! An address is understood or refused. No message and no text of it shows its password.

use konverge_zopp_client::config::canonical_address;
use konverge_zopp_server::{address::TrustedProxy, store::Location};

pub(crate) const SEEDS: &[&[u8]] = &[
    b"@127.0.0.1:5432/zopp?sslmode=require",
    b"@/zopp?host=/run/postgresql",
    b"@[::1]:5432/db#x",
    b"%40:x@host/db",
    b"10.0.0.0/8",
    b"fd00::/129",
    b"sqlite:///path/to/zopp.db?mode=rwc",
    b"https://zopp.example.com:443",
];

const PASSWORD: &str = "hunter2-correct-horse";

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for scheme in ["postgres", "postgresql", "sqlite", "mysql"] {
        let shown = match Location::parse(&format!("{scheme}://user:{PASSWORD}{text}")) {
            Ok(location) => format!("{location} {location:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        // Only a password: a file may have any name.
        assert!(scheme == "sqlite" || !text.starts_with('@') || !shown.contains(PASSWORD), "{shown}");
    }
    for scheme in ["http", "https", "grpc"] {
        let refused =
            canonical_address(&format!("{scheme}://user:{PASSWORD}{text}")).map_err(|error| error.to_string());
        let shown = refused.unwrap_or_else(|error| error);
        assert!(!text.starts_with('@') || !shown.contains(PASSWORD), "{shown}");
    }
    let _ = (Location::parse(text), text.parse::<TrustedProxy>());
    if let Ok(canonical) = canonical_address(text) {
        assert_eq!(canonical_address(&canonical).ok(), Some(canonical));
    }
}
