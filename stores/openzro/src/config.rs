//! Which server, with which token, and how much of it may be used.

use std::{fmt, sync::Arc, time::Duration};

use http::Method;
use konverge_endpoint::{
    Credential, Limits, TlsSettings,
    address::{self, NoAddress, is_in_the_clear},
};
use url::Url;

/// The configuration of a client.
#[derive(Clone)]
pub struct OpenZroConfig {
    pub(crate) address: Url,
    pub(crate) token: Credential,
    pub(crate) tls: TlsSettings,
    pub(crate) proxy: Option<Url>,
    pub(crate) limits: Limits,
    pub(crate) observer: Option<CallObserver>,
}

/// Receives a record of each call that was sent, for metrics.
pub type CallObserver = Arc<dyn Fn(&CallRecord) + Send + Sync>;

/// One call that was sent.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CallRecord {
    /// The method.
    pub method: Method,
    /// The route without ids, such as `/networks/{id}/resources`.
    pub route: &'static str,
    /// The status of the answer, or `None` if there was no complete one.
    pub status: Option<u16>,
    /// From sending to the end of the answer.
    pub took: Duration,
}

/// A setting that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The address of the server.
    #[error(
        "{address} is not the address of an openZro management server: {why}; use one like https://openzro.example.com"
    )]
    Address {
        /// The address, without user, password and query.
        address: String,
        /// The reason.
        why: String,
    },
    /// The address of the proxy. It is not shown, because it may hold a password.
    #[error("the address of the proxy is not usable; use one like http://proxy.example.com:3128")]
    Proxy,
}

impl OpenZroConfig {
    /// The server at this address, with or without `/api`, and the personal access token to use.
    pub fn new(address: &str, token: Credential) -> Result<Self, ConfigError> {
        Ok(Self {
            address: parse(address)?,
            token,
            tls: TlsSettings::default(),
            proxy: None,
            limits: Limits::default(),
            observer: None,
        })
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

    /// Keeps to these limits. The answer must hold the longest list of the account.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Calls this after each call that was sent.
    #[must_use]
    pub fn observer(mut self, observer: CallObserver) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Whether the token leaves this machine without TLS.
    pub fn is_in_the_clear(&self) -> bool {
        is_in_the_clear(&self.address)
    }
}

impl fmt::Debug for OpenZroConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenZroConfig").field("address", &self.address.as_str()).finish_non_exhaustive()
    }
}

/// The address with `/api/` at its end.
fn parse(address: &str) -> Result<Url, ConfigError> {
    address::api(address, "the server", "api")
        .map_err(|NoAddress { address, why, .. }| ConfigError::Address { address, why })
}

#[cfg(test)]
mod tests {
    use konverge_core::SecretValue;

    use super::*;

    #[test]
    fn addresses() {
        for (address, expected) in [
            ("https://oz.example", Some("https://oz.example/api/")),
            ("https://oz.example/api", Some("https://oz.example/api/")),
            ("https://oz.example/api/", Some("https://oz.example/api/")),
            ("https://proxy/oz/", Some("https://proxy/oz/api/")),
            ("oz.example:443", None),
            ("https://me:hunter2@oz", None),
            ("https://oz/?token=hunter2", None),
            ("", None),
        ] {
            let parsed = parse(address);
            assert_eq!(parsed.as_ref().ok().map(Url::as_str), expected, "{address}");
            assert!(parsed.err().is_none_or(|error| !error.to_string().contains("hunter2")));
        }
    }

    #[test]
    fn the_token_is_not_printed() {
        let token = Credential::value(SecretValue::from("hunter2".to_owned()));
        let config = OpenZroConfig::new("http://oz.example", token).unwrap();
        assert!(!format!("{config:?}").contains("hunter2") && config.is_in_the_clear());
    }
}
