//! The channel to a server, built again when its TLS files have changed.
//!
//! Certificates rotate while an operator runs. The files are looked at when a call begins, at most every [`LOOK_EVERY`]. A changed file
//! gives a new channel for the calls from then on; open streams end on the old one.
//!
//! A server, or a proxy before it, lets a connection carry some hundred calls at once, and lets further ones wait without a word. Streams last for
//! hours, so they have channels of their own: no number of them keeps a call waiting.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use konverge_endpoint::Connector;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::time::Instant;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use zeroize::Zeroizing;

use crate::{
    config::{ClientConfig, ConfigError},
    server_record::ClientCertificate,
};

/// A rotation leaves hours.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Streams of a channel. Half of what nginx lets a connection carry, which lets it carry least.
const STREAMS_OF_A_CHANNEL: usize = 64;

/// A channel for streams. It is full when as many streams hold it as it may carry, and gone with the last one.
pub(crate) struct StreamChannel(Channel);

impl StreamChannel {
    /// The channel.
    pub(crate) fn get(&self) -> Channel {
        self.0.clone()
    }
}

/// The channel to one server.
pub(crate) struct ServerChannel {
    settings: Settings,
    current: Mutex<Current>,
}

/// From what the channel is made.
struct Settings {
    address: String,
    endpoint: Endpoint,
    uses_tls: bool,
    authority: Option<PathBuf>,
    authority_text: Option<String>,
    client: Option<ClientCertificate>,
}

struct Current {
    channel: Channel,
    streams: Vec<Weak<StreamChannel>>,
    files: Files,
    looked: Instant,
}

/// The content of the files.
#[derive(PartialEq)]
struct Files {
    authority: Option<Vec<u8>>,
    client: Option<(Vec<u8>, Zeroizing<Vec<u8>>)>,
}

impl ServerChannel {
    /// Reads the files and dials nothing. Must be called within a tokio runtime.
    pub(crate) fn new(config: &ClientConfig, uri: Uri) -> Result<Self, ConfigError> {
        let uses_tls = uri.scheme_str() == Some("https");
        let endpoint = Endpoint::from(uri)
            .connect_timeout(config.connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(config.keepalive_interval)
            .keep_alive_timeout(config.keepalive_timeout)
            // A watch that is quiet for hours is the normal case, and its death must be noticed.
            .keep_alive_while_idle(true);
        let client = config.client_certificate.clone().or_else(|| config.trust.client_certificate());
        let settings = Settings {
            address: config.server.clone(),
            endpoint,
            uses_tls,
            authority: config.ca_certificate.clone().filter(|_| config.ca_text.is_none()),
            authority_text: config.ca_text.clone(),
            client,
        };
        settings.refuse_files_without_tls()?;
        let files = settings.read()?;
        let channel = settings.channel(&files)?;
        let current = Current { channel, streams: Vec::new(), files, looked: Instant::now() };
        Ok(Self { settings, current: Mutex::new(current) })
    }

    /// The channel for the next call. Files that have become unusable give a warning, and the channel stays as it is: a rotation may be
    /// under way.
    pub(crate) fn get(&self) -> Channel {
        self.current().channel.clone()
    }

    /// A channel for the next stream, which holds it for as long as it lasts.
    pub(crate) fn for_stream(&self) -> Result<Arc<StreamChannel>, ConfigError> {
        let mut current = self.current();
        current.streams.retain(|channel| channel.strong_count() > 0);
        let has_room = |channel: &&Weak<StreamChannel>| channel.strong_count() < STREAMS_OF_A_CHANNEL;
        if let Some(channel) = current.streams.iter().find(has_room).and_then(Weak::upgrade) {
            return Ok(channel);
        }
        let channel = Arc::new(StreamChannel(self.settings.channel(&current.files)?));
        current.streams.push(Arc::downgrade(&channel));
        Ok(channel)
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if self.settings.has_files() && now.duration_since(current.looked) >= LOOK_EVERY {
            current.looked = now;
            match self.settings.renewed(&current.files) {
                Ok(None) => {}
                Ok(Some((channel, files))) => {
                    tracing::info!(
                        server = self.settings.address,
                        "certificate files have changed and are used from now on"
                    );
                    (current.channel, current.files) = (channel, files);
                    current.streams.clear();
                }
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the certificate files cannot be used; those from before are"
                ),
            }
        }
        current
    }
}

impl fmt::Debug for ServerChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerChannel").field("address", &self.settings.address).finish_non_exhaustive()
    }
}

impl Settings {
    fn has_files(&self) -> bool {
        self.authority.is_some() || self.client.is_some()
    }

    fn refuse_files_without_tls(&self) -> Result<(), ConfigError> {
        let (what, file) = match (&self.authority, &self.client) {
            _ if self.uses_tls => return Ok(()),
            _ if self.authority_text.is_some() => {
                return Err(ConfigError::TextWithoutTls { what: CA, address: self.address.clone() });
            }
            (Some(file), _) => (CA, file),
            (None, Some(client)) => (CLIENT, &client.certificate),
            (None, None) => return Ok(()),
        };
        Err(ConfigError::CertificateWithoutTls { what, file: file.clone(), address: self.address.clone() })
    }

    fn renewed(&self, known: &Files) -> Result<Option<(Channel, Files)>, ConfigError> {
        let files = self.read()?;
        if files == *known { Ok(None) } else { Ok(Some((self.channel(&files)?, files))) }
    }

    fn read(&self) -> Result<Files, ConfigError> {
        let authority = match (&self.authority_text, &self.authority) {
            (Some(text), _) if is_pem(text.as_bytes()) => Some(text.clone().into_bytes()),
            (Some(_), _) => return Err(ConfigError::TextNotPem { what: CA }),
            (None, file) => file.as_deref().map(|file| certificates(CA, file)).transpose()?,
        };
        let client = self.client.as_ref().map(|ClientCertificate { certificate, key }| {
            let certificate = certificates(CLIENT, certificate)?;
            let content = Zeroizing::new(read(CLIENT_KEY, key)?);
            if PrivateKeyDer::from_pem_slice(&content).is_err() {
                return Err(ConfigError::KeyNotPem { file: key.clone() });
            }
            Ok((certificate, content))
        });
        Ok(Files { authority, client: client.transpose()? })
    }

    fn channel(&self, files: &Files) -> Result<Channel, ConfigError> {
        if !self.uses_tls {
            return Ok(self.endpoint.connect_lazy());
        }
        let mut tls = match &files.authority {
            Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        if let Some((certificate, key)) = &files.client {
            tls = tls.identity(Identity::from_pem(certificate, key.as_slice()));
        }
        let failed = |source| ConfigError::Tls { address: self.address.clone(), source };
        let endpoint = self.endpoint.clone().tls_config(tls).map_err(failed)?;
        let connector = self.connector()?;
        Ok(if connector.is_proxied() {
            endpoint.connect_with_connector_lazy(connector)
        } else {
            endpoint.connect_lazy()
        })
    }

    fn connector(&self) -> Result<Connector, ConfigError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let connector = Connector::from_environment(self.endpoint.uri(), tcp);
        connector.map_err(|source| ConfigError::Proxy { address: self.address.clone(), source })
    }
}

const CA: &str = "CA certificate";
const CLIENT: &str = "client certificate";
const CLIENT_KEY: &str = "key of the client certificate";

fn certificates(what: &'static str, file: &Path) -> Result<Vec<u8>, ConfigError> {
    let pem = read(what, file)?;
    if is_pem(&pem) { Ok(pem) } else { Err(ConfigError::CertificateNotPem { what, file: file.to_owned() }) }
}

/// Whether there are certificates in a text, and nothing of it is broken.
fn is_pem(text: &[u8]) -> bool {
    let mut certificates = CertificateDer::pem_slice_iter(text).peekable();
    certificates.peek().is_some() && certificates.all(|certificate| certificate.is_ok())
}

fn read(what: &'static str, file: &Path) -> Result<Vec<u8>, ConfigError> {
    fs::read(file).map_err(|source| ConfigError::CertificateUnreadable { what, file: file.to_owned(), source })
}
