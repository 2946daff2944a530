//! Where webhooks are answered.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use crate::flags::Args;

/// Where the pods of a program answer unless `--webhook-address` says otherwise.
pub(crate) const PORT: u16 = 9443;

/// Where webhooks are answered. Only a program that has webhooks shows these flags, whatever features it is built with.
#[derive(Clone, Args)]
#[non_exhaustive]
pub struct WebhookOptions {
    /// Where the API server's webhooks are answered
    #[arg(
        id = "webhook-address",
        long,
        env = "KONVERGE_WEBHOOK_ADDRESS",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:9443",
        hide = true
    )]
    pub address: SocketAddr,
    /// How the API server reaches them where that is not through a Service: a URL that begins with https
    #[arg(id = "webhook-url", long, env = "KONVERGE_WEBHOOK_URL", value_name = "URL", hide = true)]
    pub url: Option<String>,
    /// PEM file with the certificate and its chain [default: made and renewed by the program]
    #[arg(
        id = "webhook-certificate",
        long,
        env = "KONVERGE_WEBHOOK_CERTIFICATE",
        value_name = "FILE",
        requires = "webhook-key",
        hide = true
    )]
    pub certificate: Option<PathBuf>,
    /// PEM file with the key of the certificate
    #[arg(
        id = "webhook-key",
        long,
        env = "KONVERGE_WEBHOOK_KEY",
        value_name = "FILE",
        requires = "webhook-certificate",
        hide = true
    )]
    pub key: Option<PathBuf>,
    /// PEM file with the CAs of the API server's client certificate; the webhooks then answer no other caller [default: every caller]
    #[arg(id = "webhook-client-ca", long, env = "KONVERGE_WEBHOOK_CLIENT_CA", value_name = "FILE", hide = true)]
    pub client_ca: Option<PathBuf>,
    /// How long the port stays open after a signal, in seconds, while the API server learns of another replica; at most half of
    /// the grace period
    #[arg(
        id = "webhook-drain",
        long,
        env = "KONVERGE_WEBHOOK_DRAIN",
        value_name = "SECONDS",
        default_value = "8",
        hide = true
    )]
    pub drain: u64,
}

impl Default for WebhookOptions {
    fn default() -> Self {
        let address = (Ipv4Addr::UNSPECIFIED, PORT).into();
        Self { address, url: None, certificate: None, key: None, client_ca: None, drain: 8 }
    }
}

impl WebhookOptions {
    /// The URL as logs may show it.
    pub(crate) fn shown_url(&self) -> Option<String> {
        self.url.as_deref().map(shown)
    }
}

/// Shows the URL without user, password and query.
impl fmt::Debug for WebhookOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, url: _, certificate, key, client_ca, drain } = self;
        f.debug_struct("WebhookOptions")
            .field("address", address)
            .field("url", &self.shown_url())
            .field("certificate", certificate)
            .field("key", key)
            .field("client_ca", client_ca)
            .field("drain", drain)
            .finish()
    }
}

/// Returns the URL without user, password, query and fragment, any of which may be a secret.
fn shown(url: &str) -> String {
    let uri: Option<http::Uri> = url.parse().ok();
    match uri.as_ref().and_then(|uri| Some((uri.scheme_str()?, uri.authority()?.as_str(), uri.path()))) {
        Some((scheme, authority, path)) => {
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            format!("{scheme}://{host}{path}")
        }
        // Nothing tells a password in it from the rest.
        None => "(not shown)".to_owned(),
    }
}
