//! The HTTP client, built again when the certificates in its files have changed.

mod verify;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use konverge_core::SecretValue;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::time::Instant;
use url::Url;
use zeroize::Zeroizing;

use self::verify::Verifier;
use crate::{Limits, address::shown, credential::read_file, unusable::Unusable};

/// How often the files are looked at while all goes well. A rotation leaves hours; a failed connection looks at once.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// A file of this size holds no certificates.
const LARGEST: u64 = 1024 * 1024;

/// The content of the files.
#[derive(Default, PartialEq)]
struct Content {
    authorities: Option<Vec<u8>>,
    client: Option<(Vec<u8>, Zeroizing<Vec<u8>>)>,
}

struct Current {
    client: reqwest::Client,
    content: Arc<Content>,
    looked: Instant,
}

/// How an endpoint is known, and how it knows us. Certificates and keys are in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsSettings {
    /// Authorities to trust besides the system's: a file, or a folder whose files are read but for hidden ones.
    pub authorities: Option<PathBuf>,
    /// More of them, as text.
    pub authorities_text: Option<String>,
    /// Trusts these authorities alone and not the system's.
    pub without_system: bool,
    /// Certificate and key to show, for servers that ask for them and for logins by certificate.
    pub client: Option<(PathBuf, PathBuf)>,
    /// The same as text in PEM. It precedes the files.
    pub client_text: Option<ClientText>,
    /// The name that the server's certificate is for, if it is not that of the address.
    pub server_name: Option<String>,
    /// Talks to any server. Then everybody on the way can read and change everything; there is a warning each time a client is made.
    pub trust_anybody: bool,
}

konverge_core::with!(TlsSettings);

/// A client certificate with its key, in PEM. The key cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientText {
    /// The certificate, and those of its issuers.
    pub certificate: String,
    /// Its key.
    pub key: Arc<SecretValue>,
}

impl fmt::Debug for ClientText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientText").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// The settings of an HTTP client.
#[derive(Clone)]
#[non_exhaustive]
pub struct ClientSettings {
    /// The system at the endpoint, as warnings name it.
    pub system: &'static str,
    /// The `User-Agent` header.
    pub user_agent: &'static str,
    /// TLS.
    pub tls: TlsSettings,
    /// An HTTP proxy, instead of that of the environment's variables.
    pub proxy: Option<Url>,
    /// For making a connection, TLS included.
    pub connect: Duration,
}

konverge_core::with!(ClientSettings);

impl ClientSettings {
    /// The usual TLS, the environment's proxy, and the usual time for a connection.
    pub fn new(system: &'static str, user_agent: &'static str) -> Self {
        Self { system, user_agent, tls: TlsSettings::default(), proxy: None, connect: Limits::default().connect }
    }
}

impl fmt::Debug for ClientSettings {
    /// Shows the proxy without its user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { system, user_agent, tls, proxy, connect } = self;
        f.debug_struct("ClientSettings")
            .field("system", system)
            .field("user_agent", user_agent)
            .field("tls", tls)
            .field("proxy", &proxy.as_ref().map(shown))
            .field("connect", connect)
            .finish()
    }
}

/// Builds HTTP clients from files, and a new one when their content has changed.
pub struct Clients {
    settings: ClientSettings,
    current: Mutex<Option<Current>>,
}

impl Clients {
    /// Clients of these settings. No file is read before the first is requested.
    pub fn new(settings: ClientSettings) -> Self {
        Self { settings, current: Mutex::new(None) }
    }

    /// Returns the client to send with. Files that have become unusable give a warning and the last client stays in use, because a rotation
    /// may be under way. Without a last client they are an error.
    pub async fn get(&self) -> Result<reqwest::Client, Unusable> {
        let now = Instant::now();
        let known = self.with(|current| {
            current.as_ref().map(|known| (known.client.clone(), Arc::clone(&known.content), known.looked))
        });
        let changing = self.settings.tls.authorities.is_some() || self.settings.tls.client.is_some();
        if let Some((client, _, looked)) = &known
            && (!changing || now < *looked + LOOK_EVERY)
        {
            return Ok(client.clone());
        }
        match (self.renewed(known.as_ref().map(|(_, content, _)| &**content)).await, known) {
            (Ok(Some((client, content))), _) => {
                let current = Current { client: client.clone(), content: Arc::new(content), looked: now };
                self.with(|slot| *slot = Some(current));
                Ok(client)
            }
            (outcome, Some((client, ..))) => {
                if let Err(error) = outcome {
                    let system = self.settings.system;
                    tracing::warn!(%error, "the certificates for {system} cannot be read again; those from before are used");
                }
                self.with(|slot| slot.as_mut().map(|current| current.looked = now));
                Ok(client)
            }
            (Ok(None), None) => Err(unusable("TLS configuration", None, "there is none")),
            (Err(error), None) => Err(error),
        }
    }

    /// The next request looks at the files at once, because a connection failed.
    pub fn doubt(&self) {
        self.with(|slot| {
            if let Some(current) = slot.as_mut()
                && let Some(before) = current.looked.checked_sub(LOOK_EVERY)
            {
                current.looked = before;
            }
        });
    }

    /// A client of what the files hold, unless they hold what is known.
    async fn renewed(&self, known: Option<&Content>) -> Result<Option<(reqwest::Client, Content)>, Unusable> {
        let mut content = Content::default();
        if let Some(path) = &self.settings.tls.authorities {
            content.authorities = Some(read_authorities(path).await?);
        }
        if let Some(ClientText { certificate, key }) = &self.settings.tls.client_text {
            content.client = Some((certificate.clone().into_bytes(), Zeroizing::new(key.expose().to_vec())));
        } else if let Some((certificate, key)) = &self.settings.tls.client {
            content.client = Some((read(CERTIFICATE, certificate).await?.to_vec(), read(KEY, key).await?));
        }
        if known == Some(&content) {
            return Ok(None);
        }
        let client = self.build(&content)?;
        Ok(Some((client, content)))
    }

    /// The authorities that are trusted.
    fn roots(&self, content: &Content) -> Result<RootCertStore, Unusable> {
        let mut roots = if self.settings.tls.without_system { RootCertStore::empty() } else { system_roots() };
        let text = self.settings.tls.authorities_text.as_ref().map(|text| (text.as_bytes(), None));
        let file = content.authorities.as_ref().map(|pem| (pem.as_slice(), self.settings.tls.authorities.as_deref()));
        for (pem, path) in text.into_iter().chain(file) {
            if add_certificates(&mut roots, pem).map_err(|cause| unusable(AUTHORITIES, path, &cause))? == 0 {
                return Err(unusable(AUTHORITIES, path, "there is no certificate in it"));
            }
        }
        Ok(roots)
    }

    fn build(&self, content: &Content) -> Result<reqwest::Client, Unusable> {
        let roots = self.roots(content)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let fault = |error: &dyn std::fmt::Display| unusable("TLS configuration", None, &error.to_string());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| fault(&error))?;
        let TlsSettings { server_name, trust_anybody, .. } = &self.settings.tls;
        let builder = if server_name.is_some() || *trust_anybody {
            if *trust_anybody {
                let system = self.settings.system;
                tracing::warn!(
                    "the certificate of {system} is not checked: anybody on the way can read and change everything"
                );
            }
            let verifier = Verifier::new(roots, provider, server_name.as_deref(), *trust_anybody);
            let verifier = verifier.map_err(|error| fault(&error))?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        } else {
            builder.with_root_certificates(roots)
        };
        let tls = match &content.client {
            Some((certificate, key)) => {
                let files = self.settings.tls.client.as_ref().filter(|_| self.settings.tls.client_text.is_none());
                let (certificate_path, key_path) = (files.map(|files| &*files.0), files.map(|files| &*files.1));
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
                let chain = chain.map_err(|error| unusable(CERTIFICATE, certificate_path, &error.to_string()))?;
                // The error of a key says nothing of the key.
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|_| unusable(KEY, key_path, "it is no private key in PEM"))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| unusable(CERTIFICATE, certificate_path, &error.to_string()))?
            }
            None => builder.with_no_client_auth(),
        };
        let mut client = client_builder(tls, self.settings.connect, self.settings.user_agent);
        if let Some(proxy) = &self.settings.proxy {
            let proxy = reqwest::Proxy::all(proxy.clone());
            // Its words could repeat the proxy's password.
            client = client.proxy(proxy.map_err(|_| unusable("proxy", None, "it is not understood"))?);
        }
        client.build().map_err(|error| unusable("HTTP client", None, &error.to_string()))
    }

    fn with<T>(&self, use_it: impl FnOnce(&mut Option<Current>) -> T) -> T {
        use_it(&mut self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the certificate authorities that the system trusts. Certificates that cannot be parsed are left out, because only the system's owner can correct them.
pub fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Adds all certificates of a text in PEM, and returns their number. The error is the cause.
pub fn add_certificates(roots: &mut RootCertStore, pem: &[u8]) -> Result<usize, String> {
    let mut count = 0;
    for authority in CertificateDer::pem_slice_iter(pem) {
        roots.add(authority.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
        count += 1;
    }
    Ok(count)
}

/// Returns a builder of HTTP clients that follow no redirects by themselves, because headers with credentials would follow them.
pub fn client_builder(mut tls: ClientConfig, connect: Duration, user_agent: &str) -> reqwest::ClientBuilder {
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .connect_timeout(connect)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(user_agent)
}

const AUTHORITIES: &str = "collection of certificate authorities";
const CERTIFICATE: &str = "client certificate";
const KEY: &str = "key of the client certificate";

/// The file, or the files of the folder one after another. Hidden ones are what a mounted volume is made of and no certificates.
async fn read_authorities(path: &Path) -> Result<Vec<u8>, Unusable> {
    let fault = |error| Unusable::read(AUTHORITIES, path.to_owned(), error);
    if !tokio::fs::metadata(path).await.map_err(fault)?.is_dir() {
        return Ok(read(AUTHORITIES, path).await?.to_vec());
    }
    let mut folder = tokio::fs::read_dir(path).await.map_err(fault)?;
    let mut files = Vec::new();
    while let Some(entry) = folder.next_entry().await.map_err(fault)? {
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !hidden && tokio::fs::metadata(entry.path()).await.map_err(fault)?.is_file() {
            files.push(entry.path());
        }
    }
    // Always in the same order, so that only another content is another one.
    files.sort();
    let mut content = Vec::new();
    for file in files {
        content.extend_from_slice(&read(AUTHORITIES, &file).await?);
        content.push(b'\n');
    }
    Ok(content)
}

async fn read(what: &'static str, path: &Path) -> Result<Zeroizing<Vec<u8>>, Unusable> {
    read_file(what, path, LARGEST).await
}

fn unusable(what: &'static str, path: Option<&Path>, cause: &str) -> Unusable {
    Unusable::content(what, path.map(Path::to_owned), cause.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(tls: TlsSettings) -> Clients {
        Clients::new(ClientSettings { system: "a test", user_agent: "test", tls, proxy: None, connect: LOOK_EVERY })
    }

    async fn failure(files: TlsSettings) -> String {
        clients(files).get().await.err().unwrap().to_string()
    }

    #[test]
    fn debug_output_hides_the_proxys_password() {
        let proxy = Some(Url::parse("http://alice:hunter2@proxy.example:3128").unwrap());
        let (system, user_agent, tls) = ("a test", "test", TlsSettings::default());
        let shown = format!("{:?}", ClientSettings { system, user_agent, tls, proxy, connect: LOOK_EVERY });
        assert!(shown.contains("http://proxy.example:3128/"), "{shown}");
        assert!(!shown.contains("hunter2") && !shown.contains("alice"), "{shown}");
    }

    #[tokio::test]
    async fn files_that_cannot_be_used_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        let files = TlsSettings { authorities: Some(path.clone()), ..TlsSettings::default() };
        assert!(failure(files.clone()).await.contains("ca.crt"));
        std::fs::write(&path, "not a certificate").unwrap();
        assert!(failure(files.clone()).await.contains("no certificate"));
        let empty = tempfile::tempdir().unwrap();
        let files = TlsSettings { authorities: Some(empty.path().to_owned()), ..TlsSettings::default() };
        assert!(failure(files).await.contains("no certificate"));
        let text = TlsSettings { authorities_text: Some("nonsense".to_owned()), ..TlsSettings::default() };
        assert!(failure(text).await.contains("no certificate"));
        let pair = TlsSettings { client: Some((path.clone(), path)), ..TlsSettings::default() };
        assert!(failure(pair).await.contains("no private key"));
        let pair = ClientText { certificate: "nonsense".to_owned(), key: Arc::new("hunter2".to_owned().into()) };
        assert!(!format!("{pair:?}").contains("hunter2"));
        let error = failure(TlsSettings { client_text: Some(pair), ..TlsSettings::default() }).await;
        assert!(error.contains("no private key") && !error.contains("hunter2"), "{error}");
    }

    #[tokio::test]
    async fn the_systems_authorities_can_be_left_out() {
        let key = rcgen::KeyPair::generate().unwrap();
        let own = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap().pem();
        let systems = rustls_native_certs::load_native_certs().certs;
        let mut usual = RootCertStore::empty();
        let (systems, _) = usual.add_parsable_certificates(systems);
        for (without_system, expected) in [(false, systems + 1), (true, 1)] {
            let settings =
                TlsSettings { authorities_text: Some(own.clone()), without_system, ..TlsSettings::default() };
            let roots = clients(settings).roots(&Content::default()).unwrap();
            assert_eq!(roots.len(), expected);
        }
    }
}
