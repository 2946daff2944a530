//! The certificate authority of one run, and the kubeconfig files that trust it.

use std::{fs, io, path::Path};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use serde_json::json;

use super::StartError;

/// Members of this group may do everything, whatever RBAC says.
const ADMINISTRATORS: &str = "system:masters";

/// The files that the servers and the administrator need.
pub(super) struct Credentials {
    pub(super) authority: String,
    administrator: (String, String),
}

impl Credentials {
    /// Makes an authority and all that it has to sign, and writes the servers' part into the folder.
    pub(super) fn create(folder: &Path) -> Result<Self, StartError> {
        let authority = authority("konverge-testkit")?;
        let (server, server_key) = server(&authority)?;

        let mut administrator = named("konverge-administrator");
        administrator.distinguished_name.push(DnType::OrganizationName, ADMINISTRATORS);
        administrator.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let administrator_key = KeyPair::generate()?;
        let administrator = administrator.signed_by(&administrator_key, &authority)?;

        let service_accounts = KeyPair::generate()?;
        for (name, content) in [
            ("ca.crt", authority.pem()),
            ("server.crt", server),
            ("server.key", server_key),
            ("service-accounts.key", service_accounts.serialize_pem()),
            ("service-accounts.pub", service_accounts.public_key_pem()),
        ] {
            fs::write(folder.join(name), content)?;
        }
        Ok(Self { authority: authority.pem(), administrator: (administrator.pem(), administrator_key.serialize_pem()) })
    }

    /// Writes a kubeconfig for the administrator.
    pub(super) fn write_administrator(&self, path: &Path, server: &str) -> Result<(), StartError> {
        let (certificate, key) = &self.administrator;
        let user = json!({ "client-certificate-data": encoded(certificate), "client-key-data": encoded(key) });
        Ok(write_kubeconfig(path, server, &self.authority, "default", &user)?)
    }
}

/// A new authority.
pub(crate) fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut parameters = named(name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)
}

/// What a server's certificate says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certificate {
    /// Nothing that is wrong.
    Good,
    /// That it ended years ago.
    Expired,
    /// The name of another server.
    OfAnother,
}

/// Certificate and key, in PEM, of a server on this machine.
pub(crate) fn server(authority: &CertifiedIssuer<'static, KeyPair>) -> Result<(String, String), rcgen::Error> {
    server_that(authority, Certificate::Good)
}

/// The same, where something may be wrong with the certificate.
pub(crate) fn server_that(
    authority: &CertifiedIssuer<'static, KeyPair>,
    says: Certificate,
) -> Result<(String, String), rcgen::Error> {
    let names = match says {
        Certificate::Good | Certificate::Expired => vec!["localhost".to_owned(), "127.0.0.1".to_owned()],
        Certificate::OfAnother => vec!["another.example".to_owned()],
    };
    let mut server = CertificateParams::new(names)?;
    if says == Certificate::Expired {
        server.not_after = date_time_ymd(2020, 1, 1);
    }
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    Ok((server.signed_by(&key, authority)?.pem(), key.serialize_pem()))
}

/// Writes a kubeconfig whose only context leads to the server with the user's credentials.
pub(crate) fn write_kubeconfig(
    path: &Path,
    server: &str,
    authority: &str,
    namespace: &str,
    user: &serde_json::Value,
) -> io::Result<()> {
    // JSON is YAML, and kubectl reads it as such.
    let content = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{ "name": "test", "cluster": { "server": server, "certificate-authority-data": encoded(authority) } }],
        "users": [{ "name": "test", "user": user }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test", "namespace": namespace } }],
    });
    fs::write(path, serde_json::to_vec_pretty(&content).map_err(io::Error::from)?)
}

fn named(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters
}

fn encoded(text: &str) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.encode(text)
}
