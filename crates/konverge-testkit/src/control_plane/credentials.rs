//! The certificate authority of one run, and the kubeconfig files that trust it.

use std::{fs, io, path::Path};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
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

/// Makes the certificate and key, in PEM, of a server on this machine.
pub(crate) fn server(authority: &CertifiedIssuer<'static, KeyPair>) -> Result<(String, String), rcgen::Error> {
    let mut server = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
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
