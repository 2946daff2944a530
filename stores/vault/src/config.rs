//! Which Vault, who logs in, and how much of it may be used.

use http::HeaderValue;
use konverge_endpoint::{
    Limits, TlsSettings,
    address::{self, NoAddress, is_in_the_clear},
};
use url::Url;

use crate::{login::Login, path};

/// The configuration of a client.
///
/// Files are read when they are needed and again when they may have changed, so that a rotation needs no restart.
#[derive(Clone)]
pub struct VaultConfig {
    pub(crate) address: Url,
    pub(crate) login: Login,
    pub(crate) namespace: Option<HeaderValue>,
    pub(crate) tls: TlsSettings,
    pub(crate) proxy: Option<Url>,
    pub(crate) follow_redirects: bool,
    pub(crate) limits: Limits,
}

/// A setting that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is no address of a Vault.
    #[error("{address:?} is no address of a Vault: {why}; it is like https://vault.example:8200")]
    Address {
        /// The address, without user and password.
        address: String,
        /// The reason.
        why: String,
    },
    /// It is no address of a proxy.
    #[error("the address of the proxy is none; it is like http://proxy.example:3128")]
    Proxy,
    /// It is no name of a mount, a namespace or a role.
    #[error("{name:?} is no {what}: it needs segments without `.`, `..`, empty ones and control characters")]
    Name {
        /// The expected form.
        what: &'static str,
        /// The given value.
        name: String,
    },
}

impl VaultConfig {
    /// A Vault, such as `https://vault.example:8200`, and how to log in to it; the rest as [`Limits::default`] and the system have it.
    pub fn new(address: &str, login: Login) -> Result<Self, ConfigError> {
        if let Some((what, name)) = login.mount_name() {
            check(what, name)?;
        }
        Ok(Self {
            address: parse(address)?,
            login,
            namespace: None,
            tls: TlsSettings::default(),
            proxy: None,
            follow_redirects: false,
            limits: Limits::default(),
        })
    }

    /// Works in this namespace of Vault Enterprise or OpenBao, and logs in there too.
    pub fn namespace(mut self, namespace: &str) -> Result<Self, ConfigError> {
        self.namespace = Some(namespace_header(namespace)?);
        Ok(self)
    }

    /// Uses these settings of TLS.
    #[must_use]
    pub fn tls(mut self, settings: TlsSettings) -> Self {
        self.tls = settings;
        self
    }

    /// Sets the HTTP or SOCKS 5 proxy. The default is the proxy of the environment variables, if any.
    pub fn proxy(mut self, address: &str) -> Result<Self, ConfigError> {
        self.proxy = Some(address::proxy(address).ok_or(ConfigError::Proxy)?);
        Ok(self)
    }

    /// Follows redirects to other hosts too, and sends the token and the body there. A standby that does not forward requests
    /// redirects to the active node that way. By default, only redirects to the same origin are followed.
    #[must_use]
    pub fn follow_redirects(mut self, follow: bool) -> Self {
        self.follow_redirects = follow;
        self
    }

    /// Whether tokens and values leave this machine without TLS, so that anybody on the network path can read them.
    pub fn is_in_the_clear(&self) -> bool {
        is_in_the_clear(&self.address)
    }

    /// Keeps to these limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}

pub(crate) fn namespace_header(namespace: &str) -> Result<HeaderValue, ConfigError> {
    let name = namespace.trim_matches('/');
    check("namespace", name)?;
    HeaderValue::from_str(name).map_err(|_| ConfigError::Name { what: "namespace", name: name.to_owned() })
}

fn check(what: &'static str, name: &str) -> Result<(), ConfigError> {
    if path::is_name(name) { Ok(()) } else { Err(ConfigError::Name { what, name: name.to_owned() }) }
}

fn parse(address: &str) -> Result<Url, ConfigError> {
    address::api(address, "Vault", "v1").map_err(|NoAddress { address, why, .. }| ConfigError::Address { address, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (address, expected) in [
            ("http://vault:8200", Some("http://vault:8200/v1/")),
            ("https://vault.example/", Some("https://vault.example/v1/")),
            ("https://proxy/vault/v1/", Some("https://proxy/vault/v1/")),
            ("vault:8200", None),
            ("ftp://vault", None),
            ("https://me:hunter2@vault", None),
            ("https://vault/?a=b", None),
            ("", None),
        ] {
            let parsed = parse(address);
            assert_eq!(parsed.as_ref().ok().map(Url::as_str), expected, "{address}");
            assert!(parsed.err().is_none_or(|error| !error.to_string().contains("hunter2")));
        }
    }

    #[test]
    fn addresses_that_can_be_read_on_the_way() {
        for (address, readable) in [
            ("http://vault:8200", true),
            ("HTTP://vault:8200", true),
            ("http:vault:8200", true),
            ("http://10.0.0.1", true),
            ("http://0.0.0.0:8200", true),
            ("http://127.0.0.1.example.com", true),
            ("http://127.example.com:8200", true),
            ("http://localhost.example.com", true),
            ("http://[fd00::1]:8200", true),
            ("http://127.0.0.1:8200/v1", false),
            ("http://127.1.2.3", false),
            ("http://localhost", false),
            ("http://LOCALHOST:8200", false),
            ("http://vault.localhost", false),
            ("http://[::1]:8200", false),
            ("http://[::ffff:127.0.0.1]", false),
            ("https://vault", false),
        ] {
            let config = VaultConfig::new(address, Login::kubernetes("a")).unwrap();
            assert_eq!(config.is_in_the_clear(), readable, "{address}");
        }
    }

    #[test]
    fn proxies() {
        let config = VaultConfig::new("http://vault:8200", Login::kubernetes("a")).unwrap();
        for (address, fine) in [
            ("http://proxy:3128", true),
            ("https://me:hunter2@proxy", true),
            ("proxy:3128", false),
            ("socks5://proxy:1080", true),
            ("socks5h://me:hunter2@proxy", true),
            ("socks4://proxy", false),
            ("", false),
        ] {
            assert_eq!(config.clone().proxy(address).is_ok(), fine, "{address}");
        }
    }

    #[test]
    fn namespaces() {
        assert_eq!(namespace_header("/team/a/").unwrap(), "team/a");
        for name in ["", "/", "a/../b", "a\nb", "a//b"] {
            assert!(namespace_header(name).is_err(), "{name:?}");
        }
    }
}
