//! The HTTP client, made anew when the certificates in its files have changed.

mod verify;

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::time::Instant;
use url::Url;
use zeroize::Zeroizing;

use self::verify::Verifier;
use crate::{config::TlsSettings, error::VaultError};

/// How often the files are looked at while all goes well. A rotation leaves hours; a failed connection looks at once.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// A file that large is none of certificates.
const LARGEST: u64 = 1024 * 1024;

/// What the files held.
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

/// Makes clients out of files.
pub(crate) struct Clients {
    settings: TlsSettings,
    proxy: Option<Url>,
    connect: Duration,
    current: Mutex<Option<Current>>,
}

impl Clients {
    pub(crate) fn new(settings: TlsSettings, proxy: Option<Url>, connect: Duration) -> Self {
        Self { settings, proxy, connect, current: Mutex::new(None) }
    }

    /// The client to ask with. Files that have become unusable are told and the last client is kept, since a rotation may be under
    /// way; without a client it is an error.
    pub(crate) async fn get(&self) -> Result<reqwest::Client, VaultError> {
        let now = Instant::now();
        let known = self.with(|current| {
            current.as_ref().map(|known| (known.client.clone(), Arc::clone(&known.content), known.looked))
        });
        let changing = self.settings.authorities.is_some() || self.settings.client.is_some();
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
                    tracing::warn!(%error, "the certificates for Vault cannot be read again; those from before are used");
                }
                self.with(|slot| slot.as_mut().map(|current| current.looked = now));
                Ok(client)
            }
            (Ok(None), None) => Err(unusable("TLS configuration", None, "there is none")),
            (Err(error), None) => Err(error),
        }
    }

    /// The next request looks at the files, because a connection failed.
    pub(crate) fn doubt(&self) {
        self.with(|slot| {
            if let Some(current) = slot.as_mut()
                && let Some(before) = current.looked.checked_sub(LOOK_EVERY)
            {
                current.looked = before;
            }
        });
    }

    /// A client of what the files hold, unless they hold what is known.
    async fn renewed(&self, known: Option<&Content>) -> Result<Option<(reqwest::Client, Content)>, VaultError> {
        let mut content = Content::default();
        if let Some(path) = &self.settings.authorities {
            content.authorities = Some(read_authorities(path).await?);
        }
        if let Some((certificate, key)) = &self.settings.client {
            content.client = Some((read(CERTIFICATE, certificate).await?.to_vec(), read(KEY, key).await?));
        }
        if known == Some(&content) {
            return Ok(None);
        }
        let client = self.build(&content)?;
        Ok(Some((client, content)))
    }

    /// The authorities that are trusted.
    fn roots(&self, content: &Content) -> Result<RootCertStore, VaultError> {
        let mut roots = RootCertStore::empty();
        if !self.settings.without_system {
            // What cannot be parsed among the system's own is not ours to mend.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        let text = self.settings.authorities_text.as_ref().map(|text| (text.as_bytes(), None));
        let file = content.authorities.as_ref().map(|pem| (pem.as_slice(), self.settings.authorities.as_deref()));
        for (pem, path) in text.into_iter().chain(file) {
            let mut count = 0;
            for authority in CertificateDer::pem_slice_iter(pem) {
                let authority = authority.map_err(|error| unusable(AUTHORITIES, path, &error.to_string()))?;
                roots.add(authority).map_err(|error| unusable(AUTHORITIES, path, &error.to_string()))?;
                count += 1;
            }
            if count == 0 {
                return Err(unusable(AUTHORITIES, path, "there is no certificate in it"));
            }
        }
        Ok(roots)
    }

    fn build(&self, content: &Content) -> Result<reqwest::Client, VaultError> {
        let roots = self.roots(content)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let fault = |error: &dyn std::fmt::Display| unusable("TLS configuration", None, &error.to_string());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| fault(&error))?;
        let TlsSettings { server_name, trust_anybody, .. } = &self.settings;
        let builder = if server_name.is_some() || *trust_anybody {
            if *trust_anybody {
                tracing::warn!(
                    "Vault's certificate is not checked: whoever is on the way can read and change everything"
                );
            }
            let verifier = Verifier::new(roots, provider, server_name.as_deref(), *trust_anybody);
            let verifier = verifier.map_err(|error| fault(&error))?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        } else {
            builder.with_root_certificates(roots)
        };
        let mut tls = match (&content.client, &self.settings.client) {
            (Some((certificate, key)), Some((certificate_path, key_path))) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
                let chain = chain.map_err(|error| unusable(CERTIFICATE, Some(certificate_path), &error.to_string()))?;
                // The error of a key says nothing of the key.
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|_| unusable(KEY, Some(key_path), "it is no private key in PEM"))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| unusable(CERTIFICATE, Some(certificate_path), &error.to_string()))?
            }
            _ => builder.with_no_client_auth(),
        };
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .connect_timeout(self.connect)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("konverge-vault/", env!("CARGO_PKG_VERSION")));
        if let Some(proxy) = &self.proxy {
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

const AUTHORITIES: &str = "collection of certificate authorities";
const CERTIFICATE: &str = "client certificate";
const KEY: &str = "key of the client certificate";

/// The file, or the files of the folder one after another. Hidden ones are what a mounted volume is made of and no certificates.
async fn read_authorities(path: &Path) -> Result<Vec<u8>, VaultError> {
    let fault = |error: std::io::Error| unusable(AUTHORITIES, Some(path), &error.to_string());
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

async fn read(what: &'static str, path: &Path) -> Result<Zeroizing<Vec<u8>>, VaultError> {
    read_small(what, path, LARGEST).await
}

/// Reads a file that is short if it is the right one.
pub(crate) async fn read_small(what: &'static str, path: &Path, limit: u64) -> Result<Zeroizing<Vec<u8>>, VaultError> {
    use tokio::io::AsyncReadExt;

    let fault = |error: std::io::Error| unusable(what, Some(path), &error.to_string());
    let mut content = Zeroizing::new(Vec::new());
    let file = tokio::fs::File::open(path).await.map_err(fault)?;
    file.take(limit + 1).read_to_end(&mut content).await.map_err(fault)?;
    if content.len() as u64 > limit {
        return Err(unusable(what, Some(path), "it is too large"));
    }
    Ok(content)
}

fn unusable(what: &'static str, path: Option<&Path>, cause: &str) -> VaultError {
    VaultError::Credential { what, path: path.map(Path::to_owned), cause: cause.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn failure(files: TlsSettings) -> String {
        Clients::new(files, None, LOOK_EVERY).get().await.err().unwrap().to_string()
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
            let roots = Clients::new(settings, None, LOOK_EVERY).roots(&Content::default()).unwrap();
            assert_eq!(roots.len(), expected);
        }
    }
}
