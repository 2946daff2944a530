//! The certificate authority of one run, and the kubeconfig files that trust it.

use std::{fs, io, path::Path};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

use super::StartError;
use crate::ELSEWHERE;

/// Members of this group may do everything, whatever RBAC says.
const ADMINISTRATORS: &str = "system:masters";

/// The name in the API server's client certificate.
pub(super) const FRONT_PROXY_CLIENT: &str = "front-proxy-client";

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

        // The API server shows this certificate to its aggregated API servers and, by its admission configuration, to webhooks.
        let front_proxy = self::authority("konverge-testkit-front-proxy")?;
        let mut api_server = named(FRONT_PROXY_CLIENT);
        api_server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let api_server_key = KeyPair::generate()?;
        let api_server = (api_server.signed_by(&api_server_key, &front_proxy)?.pem(), api_server_key.serialize_pem());

        let service_accounts = KeyPair::generate()?;
        for (name, content) in [
            ("ca.crt", authority.pem()),
            ("front-proxy-ca.crt", front_proxy.pem()),
            ("front-proxy-client.crt", api_server.0.clone()),
            ("front-proxy-client.key", api_server.1.clone()),
            ("server.crt", server),
            ("server.key", server_key),
            ("service-accounts.key", service_accounts.serialize_pem()),
            ("service-accounts.pub", service_accounts.public_key_pem()),
        ] {
            fs::write(folder.join(name), content)?;
        }
        write_admission_configuration(folder, &api_server)?;
        Ok(Self { authority: authority.pem(), administrator: (administrator.pem(), administrator_key.serialize_pem()) })
    }

    /// Writes a kubeconfig for the administrator.
    pub(super) fn write_administrator(&self, path: &Path, server: &str) -> Result<(), StartError> {
        let (certificate, key) = &self.administrator;
        let user = json!({ "client-certificate-data": encoded(certificate), "client-key-data": encoded(key) });
        Ok(write_kubeconfig(path, server, &self.authority, "default", &user)?)
    }
}

/// Writes the file that makes the API server show its certificate to every admission webhook.
fn write_admission_configuration(folder: &Path, (certificate, key): &(String, String)) -> io::Result<()> {
    let kubeconfig = folder.join("webhooks.kubeconfig");
    let user = json!({ "client-certificate-data": encoded(certificate), "client-key-data": encoded(key) });
    let users = json!({ "apiVersion": "v1", "kind": "Config", "users": [{ "name": "*", "user": user }] });
    fs::write(&kubeconfig, users.to_string())?;
    let plugins = ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"].map(|name| {
        let configuration = json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": kubeconfig,
        });
        json!({ "name": name, "configuration": configuration })
    });
    let configuration =
        json!({ "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins });
    fs::write(folder.join("admission.json"), configuration.to_string())
}

/// A new authority.
pub(crate) fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut parameters = named(name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)
}

/// Creates the certificate and key, in PEM, of a server on this machine, which is also [`ELSEWHERE`].
pub(crate) fn server(authority: &CertifiedIssuer<'static, KeyPair>) -> Result<(String, String), rcgen::Error> {
    let mut server = CertificateParams::new(["localhost", "127.0.0.1", ELSEWHERE].map(str::to_owned))?;
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
