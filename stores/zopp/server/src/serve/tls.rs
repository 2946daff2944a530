//! Certificate, key and client authority, read once at start.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

/// With what to speak TLS; nothing means plain text.
#[derive(Debug, Clone, Default)]
pub struct TlsFiles {
    /// Certificate chain, PEM.
    pub certificate: Option<PathBuf>,
    /// Its private key, PEM.
    pub key: Option<PathBuf>,
    /// The authority that clients' certificates must come from, PEM.
    pub client_authority: Option<PathBuf>,
}

/// TLS options that do not go together, or files that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// One of a pair is missing.
    #[error("--tls-cert and --tls-key go together, but only {0} was given; give both, or neither to serve plain text")]
    Half(&'static str),
    /// Clients are to prove themselves to a server that does not.
    #[error("--tls-client-ca needs --tls-cert and --tls-key as well")]
    OnlyClients,
    /// The files are not what they should be.
    #[error(
        "--tls-cert, --tls-key or --tls-client-ca cannot be used ({}); check that they are PEM and that certificate and key \
         belong together", cause(.0)
    )]
    Invalid(#[source] tonic::transport::Error),
    /// A file cannot be read.
    #[error("cannot read {} ({flag}): {source}; check the path and that this user may read it", path.display())]
    Read {
        /// Where it was given.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A peer that has not finished its handshake by then is let go.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

impl TlsFiles {
    /// Reads the files and sets the server up with them.
    pub(super) fn apply(&self, server: Server) -> Result<Server, TlsError> {
        let (certificate, key) = match (&self.certificate, &self.key, &self.client_authority) {
            (None, None, None) => return Ok(server),
            (None, None, Some(_)) => return Err(TlsError::OnlyClients),
            (Some(_), None, _) => return Err(TlsError::Half("--tls-cert")),
            (None, Some(_), _) => return Err(TlsError::Half("--tls-key")),
            (Some(certificate), Some(key), _) => (certificate, key),
        };
        let identity = Identity::from_pem(read(certificate, "--tls-cert")?, read(key, "--tls-key")?);
        let mut config = ServerTlsConfig::new().identity(identity).timeout(HANDSHAKE_TIMEOUT);
        if let Some(authority) = &self.client_authority {
            config = config.client_ca_root(Certificate::from_pem(read(authority, "--tls-client-ca")?));
        }
        server.tls_config(config).map_err(TlsError::Invalid)
    }
}

/// The innermost reason: the outer ones only say that it is about transport.
fn cause(error: &tonic::transport::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

fn read(path: &Path, flag: &'static str) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read { flag, path: path.to_owned(), source })
}
