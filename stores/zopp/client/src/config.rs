//! How to reach a server: address, trust, deadlines.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use http::Uri;
use konverge_zopp_crypto::Profile;

use crate::{server_record::ClientCertificate, trust::Trust};

/// Where a server listens when nothing else is said.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:50051";

/// How to reach a server. [`ClientConfig::new`] has a good value for everything but the address.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// `http://host:port`, or `https://host:port` for TLS.
    pub server: String,
    /// PEM file whose certificates replace the system's trust roots; only with `https`.
    pub ca_certificate: Option<PathBuf>,
    /// The same as text in PEM. It precedes the file.
    pub ca_text: Option<String>,
    /// The client certificate, for a server that requires one; only with `https`. `None` is what [`ClientConfig::trust`] remembers.
    pub client_certificate: Option<ClientCertificate>,
    /// How long the TCP and TLS handshakes may take together.
    pub connect_timeout: Duration,
    /// How long one call may take, connecting included. An open watch is not bounded by it, opening one is.
    pub call_timeout: Duration,
    /// How long a connection may be silent before the peer is asked whether it is still there.
    pub keepalive_interval: Duration,
    /// How long the peer has to answer that.
    pub keepalive_timeout: Duration,
    /// The server's generation. `None` is what is remembered of the server, else the second; [`Profile::V1`] must be requested.
    pub profile: Option<Profile>,
    /// Whether a workspace's key must be signed: one that is not pinned by this principal or by one whose keys are pinned, and one that replaces the pinned
    /// key by an administrator of that key. `None`: where the record of the server names the administrators of the workspace.
    pub require_signed_keys: Option<bool>,
    /// Whether the first key of a workspace is trusted and pinned, if it has no pin and no known principal signed it.
    pub trust_first_key: bool,
    /// Whether an environment without a manifest is refused. Otherwise it is refused only if one was seen before.
    pub require_manifest: bool,
    /// The pins of the server. The default remembers nothing, and pins what it sees first.
    pub trust: Trust,
}

impl ClientConfig {
    /// Five seconds to connect, ten for a call, and a dead peer is noticed within fifteen.
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            ca_certificate: None,
            ca_text: None,
            client_certificate: None,
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10),
            keepalive_interval: Duration::from_secs(10),
            keepalive_timeout: Duration::from_secs(5),
            profile: None,
            require_signed_keys: None,
            trust_first_key: true,
            require_manifest: false,
            trust: Trust::default(),
        }
    }
}

/// Returns the address in the form under which a server is remembered: scheme and host in lower case, without a slash at the end.
pub fn canonical_address(address: &str) -> Result<String, ConfigError> {
    Ok(parse_address(address)?.to_string().trim_end_matches('/').to_ascii_lowercase())
}

/// Whether everybody on the way to the server can read and change what is sent: no TLS, and another machine.
pub fn is_unprotected(address: &str) -> bool {
    parse_address(address).is_ok_and(|uri| {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let is_here = host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        uri.scheme_str() != Some("https") && !is_here
    })
}

/// The configuration cannot work, whatever the server does.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// `host:port` alone.
    #[error(
        "server address {address:?} has no scheme: write \"http://{address}\", or \"https://{address}\" if the server \
         uses TLS"
    )]
    NoScheme {
        /// The address as given.
        address: String,
    },
    /// Neither `http` nor `https`.
    #[error("server address {address:?} has scheme {scheme:?}: write \"http://…\", or \"https://…\" for TLS")]
    Scheme {
        /// The address as given.
        address: String,
        /// Its scheme.
        scheme: String,
    },
    /// Not an address at all. Not quoted when it may hold a password.
    #[error("server address {address:?} is not of the form \"http://host:port\"")]
    Malformed {
        /// The address as given.
        address: String,
    },
    /// `user:password@host`, of which the server would see nothing.
    #[error("server address holds a user name or password, which zopp does not use: write \"{scheme}://{host}\"")]
    UserInformation {
        /// The address's scheme.
        scheme: String,
        /// The address without it.
        host: String,
    },
    /// A path, query or fragment, of which the server would see nothing.
    #[error("server address {address:?} has a path: write \"{corrected}\"")]
    Path {
        /// The address as given.
        address: String,
        /// The address without it.
        corrected: String,
    },
    /// A certificate file for a connection without TLS.
    #[error(
        "{what} {} is given but server address {address:?} does not use TLS: write \"https://…\" or leave the {what} out",
        file.display()
    )]
    CertificateWithoutTls {
        /// Which of the files.
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// The address as given.
        address: String,
    },
    /// A certificate or key file cannot be read.
    #[error("{what} {} cannot be read", file.display())]
    CertificateUnreadable {
        /// Which of the files.
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A text holds no certificate.
    #[error("the text of the {what} holds no PEM certificate (\"-----BEGIN CERTIFICATE-----\")")]
    TextNotPem {
        /// Which certificate.
        what: &'static str,
    },
    /// A text of certificates is given for a connection without TLS.
    #[error(
        "a {what} is given but server address {address:?} does not use TLS: write \"https://…\" or leave the {what} out"
    )]
    TextWithoutTls {
        /// Which certificate.
        what: &'static str,
        /// The address as given.
        address: String,
    },
    /// A certificate file holds no certificate.
    #[error("{what} {} holds no PEM certificate (\"-----BEGIN CERTIFICATE-----\")", file.display())]
    CertificateNotPem {
        /// Which of the files.
        what: &'static str,
        /// The file.
        file: PathBuf,
    },
    /// A key file holds no private key.
    #[error("key of the client certificate {} holds no PEM private key (\"-----BEGIN PRIVATE KEY-----\")", file.display())]
    KeyNotPem {
        /// The file.
        file: PathBuf,
    },
    /// The first generation is requested of a server that was of the second.
    #[error(
        "server {address} was of generation v2, and v1 is requested: a v1 signature would let everybody who sees it make any call. \
         Leave --generation and ZOPP_GENERATION out; if the server was really replaced, first remove \"generation\" from its entry \
         under \"servers\" in the configuration file"
    )]
    Downgrade {
        /// The server's address.
        address: String,
    },
    /// TLS could not be set up, for instance because the system has no trust roots.
    #[error(
        "TLS for {address:?} cannot be set up; a CA certificate file replaces the system's trust roots, and a client certificate and its key \
         belong together"
    )]
    Tls {
        /// The address as given.
        address: String,
        /// Why.
        source: tonic::transport::Error,
    },
    /// `HTTPS_PROXY` names a proxy that is not supported.
    #[error("{address:?} cannot be reached through HTTPS_PROXY; correct the variable, or name the server in NO_PROXY")]
    Proxy {
        /// The address as given.
        address: String,
        /// Why.
        source: konverge_endpoint::UnsupportedProxy,
    },
}

/// Checks the address and gives it in the form that is dialled and shown.
pub(crate) fn parse_address(address: &str) -> Result<Uri, ConfigError> {
    let owned = || address.to_owned();
    if !address.contains("://") {
        let is_host = address.parse::<http::uri::Authority>().is_ok() && !address.contains('@');
        return Err(if is_host { ConfigError::NoScheme { address: owned() } } else { malformed(address) });
    }
    let uri: Uri = address.parse().map_err(|_| malformed(address))?;
    let scheme = uri.scheme_str().unwrap_or_default().to_owned();
    let Some(authority) = uri.authority() else {
        return Err(malformed(address));
    };
    let host = authority.as_str();
    if let Some((_, host)) = host.rsplit_once('@') {
        return Err(ConfigError::UserInformation { scheme, host: host.to_owned() });
    }
    if scheme != "http" && scheme != "https" {
        return Err(ConfigError::Scheme { address: owned(), scheme });
    }
    let has_port_text = host.len() > authority.host().len();
    if authority.host().is_empty() || (has_port_text && authority.port_u16().is_none()) {
        return Err(malformed(address));
    }
    let corrected = format!("{scheme}://{host}");
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() || address.contains('#') {
        return Err(ConfigError::Path { address: owned(), corrected });
    }
    corrected.parse().map_err(|_| malformed(address))
}

fn malformed(address: &str) -> ConfigError {
    // The part before an at sign may be a password.
    let shown = address.rsplit_once('@').map_or_else(|| address.to_owned(), |(_, host)| format!("…@{host}"));
    ConfigError::Malformed { address: shown }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(address: &str, expected: Result<&str, &str>) {
        let got = parse_address(address).map(|uri| uri.to_string()).map_err(|error| error.to_string());
        assert_eq!(got.as_deref().map_err(String::as_str), expected, "{address}");
    }

    #[test]
    fn good_addresses() {
        check("http://127.0.0.1:50051", Ok("http://127.0.0.1:50051/"));
        check("https://zopp.example.com", Ok("https://zopp.example.com/"));
        check("http://[::1]:50051/", Ok("http://[::1]:50051/"));
        check("HTTP://localhost:1", Ok("http://localhost:1/"));
    }

    #[test]
    fn an_address_without_scheme_is_corrected() {
        check(
            "localhost:50051",
            Err("server address \"localhost:50051\" has no scheme: write \"http://localhost:50051\", or \
                 \"https://localhost:50051\" if the server uses TLS"),
        );
        assert!(matches!(parse_address("zopp-server"), Err(ConfigError::NoScheme { .. })));
        assert!(matches!(parse_address("10.0.0.1:50051"), Err(ConfigError::NoScheme { .. })));
    }

    #[test]
    fn other_forms_are_refused() {
        assert!(matches!(parse_address("grpc://host:1"), Err(ConfigError::Scheme { .. })));
        assert!(matches!(parse_address("http://host:1/api"), Err(ConfigError::Path { .. })));
        assert!(matches!(parse_address("http://host:1?x=1"), Err(ConfigError::Path { .. })));
        assert!(matches!(parse_address(""), Err(ConfigError::Malformed { .. })));
        assert!(matches!(parse_address("http://"), Err(ConfigError::Malformed { .. })));
        assert!(matches!(parse_address("http://host:99999"), Err(ConfigError::Malformed { .. })));
        assert!(matches!(parse_address("http://a b"), Err(ConfigError::Malformed { .. })));
    }

    #[test]
    fn a_password_is_not_shown() {
        for address in ["http://user:hunter2@host:1", "user:hunter2@host:1", "http://user:hunter2@ho st"] {
            let text = parse_address(address).unwrap_err().to_string();
            assert!(!text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn a_server_has_one_name() {
        assert_eq!(canonical_address("HTTPS://Zopp.Example.com/").unwrap(), "https://zopp.example.com");
        assert_eq!(canonical_address("http://[::1]:50051").unwrap(), "http://[::1]:50051");
    }

    #[test]
    fn plain_text_beyond_the_machine_is_unprotected() {
        for (address, expected) in [
            ("http://127.0.0.1:50051", false),
            ("http://[::1]:50051", false),
            ("http://LOCALHOST:1", false),
            ("https://zopp.example.com", false),
            ("http://zopp.example.com", true),
            ("http://10.0.0.1:50051", true),
            ("http://localhost.example.com", true),
            ("http://0.0.0.0:50051", true),
        ] {
            assert_eq!(is_unprotected(address), expected, "{address}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_answer_not_a_panic(address in "(https?://)?.*") {
            let _ = parse_address(&address);
        }
    }
}
