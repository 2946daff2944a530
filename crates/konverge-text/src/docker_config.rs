//! The credentials of container registries, as kubelets read them from `.dockerconfigjson`.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use konverge_core::SecretValue;
use serde::Serialize;
use zeroize::Zeroizing;

use crate::json;

/// The key of a Secret of type `kubernetes.io/dockerconfigjson`.
pub const KEY: &str = ".dockerconfigjson";

/// The credentials of one registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registry<'a> {
    /// Its host, such as `ghcr.io`, with a port or a path where images have one.
    pub server: &'a str,
    /// The name of the account. HTTP's basic authentication ends it at a colon.
    pub username: &'a str,
    /// The password or token.
    pub password: &'a str,
}

/// Writes the file. Of two registries with one server, the last counts.
pub fn format(registries: &[Registry<'_>]) -> SecretValue {
    #[derive(Serialize)]
    struct Config<'a> {
        auths: BTreeMap<&'a str, Auth<'a>>,
    }

    #[derive(Serialize)]
    struct Auth<'a> {
        username: &'a str,
        password: &'a str,
        #[serde(rename = "auth")]
        encoded: &'a str,
    }

    let encoded: Vec<_> = registries.iter().map(encode).collect();
    let auths = registries
        .iter()
        .zip(&encoded)
        .map(|(Registry { server, username, password }, encoded)| (*server, Auth { username, password, encoded }));
    json::write(&Config { auths: auths.collect() })
}

/// Returns the name and the password as HTTP's basic authentication has them.
fn encode(Registry { username, password, .. }: &Registry<'_>) -> Zeroizing<String> {
    let mut pair = Zeroizing::new(Vec::with_capacity(username.len() + 1 + password.len()));
    pair.extend_from_slice(username.as_bytes());
    pair.push(b':');
    pair.extend_from_slice(password.as_bytes());
    Zeroizing::new(STANDARD.encode(&*pair))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_finds_each_registry() {
        let ghcr = Registry { server: "ghcr.io", username: "bot", password: "p\"w" };
        let local = Registry { server: "registry.local:5000", username: "u", password: "é" };
        let expected = concat!(
            r#"{"auths":{"ghcr.io":{"username":"bot","password":"p\"w","auth":"Ym90OnAidw=="},"#,
            r#""registry.local:5000":{"username":"u","password":"é","auth":"dTrDqQ=="}}}"#
        );
        assert_eq!(format(&[local, ghcr]).expose(), expected.as_bytes());
        assert_eq!(format(&[]).expose(), br#"{"auths":{}}"#);
    }
}
