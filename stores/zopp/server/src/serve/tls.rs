//! Certificate, key and client authority: read at start, and again when their files change.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use sha2::{Digest, Sha256};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig, crypto,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        server::WebPkiClientVerifier,
    },
};

use crate::metrics::Metrics;

/// How often the files are looked at. A rotation leaves hours; a withdrawn authority counts for this long at most.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The name of HTTP/2 in a handshake.
const ALPN_H2: &[u8] = b"h2";

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
    /// A file is not what it should be.
    #[error("{} ({flag}) cannot be used: {cause}; check that it is PEM and that certificate and key belong together", path.display())]
    Invalid {
        /// Where it was given.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The fault.
        cause: String,
    },
    /// A file cannot be read.
    #[error("cannot read {} ({flag}): {source}; check the path and that this user may read it", path.display())]
    Read {
        /// Where it was given.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The files that are given, which go together.
#[derive(Debug)]
struct Paths {
    certificate: PathBuf,
    key: PathBuf,
    client_authority: Option<PathBuf>,
}

/// The configuration for handshakes, as the files were read last.
#[derive(Debug)]
struct Current {
    config: Arc<ServerConfig>,
    /// Of what the files held.
    digest: [u8; 32],
}

/// The files with what they held last, when they could be used.
#[derive(Debug)]
pub(crate) struct Tls {
    paths: Paths,
    current: RwLock<Current>,
}

impl TlsFiles {
    /// Reads the files. `None` means plain text.
    pub(crate) fn read(&self) -> Result<Option<Tls>, TlsError> {
        let paths = match (&self.certificate, &self.key, &self.client_authority) {
            (None, None, None) => return Ok(None),
            (None, None, Some(_)) => return Err(TlsError::OnlyClients),
            (Some(_), None, _) => return Err(TlsError::Half("--tls-cert")),
            (None, Some(_), _) => return Err(TlsError::Half("--tls-key")),
            (Some(certificate), Some(key), authority) => {
                Paths { certificate: certificate.clone(), key: key.clone(), client_authority: authority.clone() }
            }
        };
        let current = paths.read(None)?;
        Ok(current.map(|current| Tls { paths, current: RwLock::new(current) }))
    }
}

impl Tls {
    /// For one handshake, with the files as they are known now.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).config))
    }

    /// Looks at the files for ever. Files that have become unusable change nothing but the log and a metric, because a rotation may be
    /// under way.
    pub(super) async fn follow(&self, metrics: &Metrics) {
        let mut last_error = None;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            match self.renew() {
                Ok(changed) => {
                    last_error = None;
                    if changed {
                        tracing::info!("certificate files have changed and are used for new connections");
                        metrics.certificate_reload(true);
                    }
                }
                Err(error) => {
                    let text = error.to_string();
                    // Once for each error, not at each look.
                    if last_error.as_ref() != Some(&text) {
                        tracing::error!("{text}; new connections get the certificate from before");
                        metrics.certificate_reload(false);
                    }
                    last_error = Some(text);
                }
            }
        }
    }

    /// Reads the files again. Were they others?
    fn renew(&self) -> Result<bool, TlsError> {
        let known = self.current.read().unwrap_or_else(PoisonError::into_inner).digest;
        let Some(renewed) = self.paths.read(Some(known))? else { return Ok(false) };
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = renewed;
        Ok(true)
    }

    /// When the certificate ends, in Unix seconds.
    pub(crate) fn expires_at(&self) -> Result<i64, TlsError> {
        let path = &self.paths.certificate;
        let invalid = |cause: String| TlsError::Invalid { flag: CERTIFICATE, path: path.clone(), cause };
        let chain = certificates(&read(path, CERTIFICATE)?).map_err(invalid)?;
        let first = chain.first().ok_or_else(|| invalid(NO_CERTIFICATE.to_owned()))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(first).map_err(|error| invalid(error.to_string()))?;
        Ok(parsed.validity().not_after.timestamp())
    }
}

const CERTIFICATE: &str = "--tls-cert";
const KEY: &str = "--tls-key";
const CLIENT_AUTHORITY: &str = "--tls-client-ca";
const NO_CERTIFICATE: &str = "there is no certificate in it";

impl Paths {
    /// Reads the files. `None` if their content is the known one.
    fn read(&self, known: Option<[u8; 32]>) -> Result<Option<Current>, TlsError> {
        let certificate = read(&self.certificate, CERTIFICATE)?;
        let key = read(&self.key, KEY)?;
        let authority = self.client_authority.as_deref().map(|path| read(path, CLIENT_AUTHORITY)).transpose()?;
        let mut digest = Sha256::new();
        for file in [Some(&certificate), Some(&key), authority.as_ref()].into_iter().flatten() {
            digest.update(Sha256::digest(file));
        }
        let digest = digest.finalize().into();
        if known == Some(digest) {
            return Ok(None);
        }
        let invalid = |flag, path: &Path| {
            let path = path.to_owned();
            move |cause| TlsError::Invalid { flag, path, cause }
        };
        let chain = certificates(&certificate).map_err(invalid(CERTIFICATE, &self.certificate))?;
        // The error of a key says nothing of the key.
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| "there is no private key in it".to_owned());
        let key = key.map_err(invalid(KEY, &self.key))?;
        let authorities = authority.as_deref().map(certificates).transpose();
        let authority_path = self.client_authority.as_deref().unwrap_or_else(|| Path::new(""));
        let authorities = authorities.map_err(invalid(CLIENT_AUTHORITY, authority_path))?;

        let provider = Arc::new(crypto::ring::default_provider());
        let verifier = authorities
            .map(|authorities| {
                let mut roots = RootCertStore::empty();
                for authority in authorities {
                    roots.add(authority).map_err(|error| error.to_string())?;
                }
                let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
                builder.build().map_err(|error| error.to_string())
            })
            .transpose()
            .map_err(invalid(CLIENT_AUTHORITY, authority_path))?;
        let unusable = invalid(CERTIFICATE, &self.certificate);
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = match (builder, verifier) {
            (Err(error), _) => return Err(unusable(error.to_string())),
            (Ok(builder), None) => builder.with_no_client_auth(),
            (Ok(builder), Some(verifier)) => builder.with_client_cert_verifier(verifier),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| unusable(error.to_string()))?;
        config.alpn_protocols = vec![ALPN_H2.to_vec()];
        Ok(Some(Current { config: Arc::new(config), digest }))
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match chain {
        Ok(chain) if chain.is_empty() => Err(NO_CERTIFICATE.to_owned()),
        Ok(chain) => Ok(chain),
        Err(error) => Err(error.to_string()),
    }
}

fn read(path: &Path, flag: &'static str) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read { flag, path: path.to_owned(), source })
}
