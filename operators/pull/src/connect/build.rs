//! The client of a store, made of a specification and of the Secrets that it names.

use std::{collections::BTreeMap, error::Error, str::FromStr, sync::Arc, time::Duration};

use futures::FutureExt;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use konverge_core::{SecretValue, error::in_one_line};
use konverge_vault::{ClientText, Credential, Login, TlsSettings, Vault, VaultConfig};
use konverge_zopp_client::{
    Client as ZoppClient, ClientConfig, Connection, Fingerprint, Identity, Trust,
    config::{canonical_address, is_unprotected},
    config_file,
};
use kube::{Api, Client, api::PostParams};
use serde::Serialize;

use crate::{
    config::parse_duration,
    objects::secret_source::{
        AppRoleLogin, CertificateLogin, JwtLogin, KubernetesLogin, LoginSpec, SecretKey, VaultSpec, ZoppSpec,
    },
    source::Source,
    vault::VaultSource,
    zopp::{
        Zopp,
        memory::{Accepted, Memory},
        record::RecordKey,
    },
};

/// The interval between two requests for one path in Vault, unless the object sets another.
const INTERVAL: Duration = Duration::from_secs(30);

/// How long a token of a service account lives. The shortest time that Kubernetes grants.
const TOKEN_SECONDS: i64 = 600;

/// Values of Secrets, by the names of the Secret and of the key.
pub(super) type Materials = BTreeMap<(String, String), Arc<SecretValue>>;

/// The store of an object.
#[derive(Clone, Copy, Serialize)]
pub enum Store<'a> {
    /// Vault or `OpenBao`.
    Vault(&'a VaultSpec),
    /// zopp.
    Zopp(&'a ZoppSpec),
}

impl<'a> Store<'a> {
    /// Returns the one of both that is given. The definition refuses objects with none or two.
    pub(super) fn of(vault: Option<&'a VaultSpec>, zopp: Option<&'a ZoppSpec>) -> Result<Self, String> {
        match (vault, zopp) {
            (Some(vault), None) => Ok(Self::Vault(vault)),
            (None, Some(zopp)) => Ok(Self::Zopp(zopp)),
            _ => Err("give either spec.vault or spec.zopp".to_owned()),
        }
    }

    /// Returns whether everybody on the way to the store can read and change what is sent.
    pub(super) fn is_unprotected(self) -> bool {
        match self {
            Self::Vault(VaultSpec { address, .. }) | Self::Zopp(ZoppSpec { address, .. }) => is_unprotected(address),
        }
    }

    /// Returns the keys of Secrets that the connection is made of.
    pub(super) fn secrets(&self) -> Vec<SecretKey> {
        match self {
            Self::Zopp(ZoppSpec { credentials, ca_secret, .. }) => {
                ca_secret.iter().chain([credentials]).cloned().collect()
            }
            Self::Vault(VaultSpec { ca_secret, login, .. }) => {
                let LoginSpec { app_role, certificate, token, kubernetes: _, jwt: _ } = login;
                let of_certificate = certificate.iter().flat_map(certificate_keys);
                let of_role = app_role.iter().map(|role| role.secret_id.clone());
                ca_secret.iter().chain(token).cloned().chain(of_role).chain(of_certificate).collect()
            }
        }
    }
}

/// The keys of a Secret of type `kubernetes.io/tls`.
fn certificate_keys(login: &CertificateLogin) -> [SecretKey; 2] {
    ["tls.crt", "tls.key"].map(|key| SecretKey { name: login.secret.clone(), key: key.to_owned() })
}

/// Where the credentials are.
pub(super) struct Place<'a> {
    /// Requests tokens of service accounts.
    pub(super) client: &'a Client,
    /// The namespace of Secrets and service accounts.
    pub(super) namespace: &'a str,
    /// The values of the Secrets.
    pub(super) materials: &'a Materials,
}

/// Makes the client of the store. Sends nothing.
pub(super) fn build(store: Store<'_>, place: &Place<'_>, accepted: &Accepted) -> Result<Arc<dyn Source>, String> {
    match store {
        Store::Vault(spec) => Ok(Arc::new(place.vault(spec)?)),
        Store::Zopp(spec) => Ok(Arc::new(place.zopp(spec, accepted)?)),
    }
}

impl Place<'_> {
    fn vault(&self, spec: &VaultSpec) -> Result<VaultSource, String> {
        let VaultSpec { address, namespace, ca_bundle, ca_secret, proxy, interval, login } = spec;
        let interval = interval.as_deref().map_or(Ok(INTERVAL), parse_duration);
        let interval = interval.map_err(|error| format!("spec.vault.interval: {error}"))?;
        let authorities = self.authorities(ca_bundle.as_ref(), ca_secret.as_ref())?;
        let (login, client) = self.login(login)?;
        let tls = TlsSettings::default().with(|tls| (tls.authorities_text, tls.client_text) = (authorities, client));
        let mut config = VaultConfig::new(address, login).map_err(refused)?.tls(tls);
        if let Some(namespace) = namespace {
            config = config.namespace(namespace).map_err(refused)?;
        }
        if let Some(proxy) = proxy {
            config = config.proxy(proxy).map_err(refused)?;
        }
        Ok(VaultSource::new(Vault::new(&config), interval))
    }

    fn zopp(&self, spec: &ZoppSpec, accepted: &Accepted) -> Result<Zopp, String> {
        let ZoppSpec { address, credentials, ca_bundle, ca_secret, .. } = spec;
        let file = self.shown(credentials);
        let content = self.value(credentials)?;
        let content = config_file::parse(content.expose(), file.as_ref()).map_err(refused)?;
        let identity = Identity::from_config(&content, file.as_ref(), None).map_err(refused)?;
        let trust = Trust::new(content.server(&canonical_address(address).map_err(refused)?));
        for (workspace, fingerprint) in &spec.workspace_fingerprints {
            let fingerprint = Fingerprint::from_str(fingerprint);
            let fingerprint =
                fingerprint.map_err(|error| format!("spec.zopp.workspaceFingerprints: {workspace}: {error}"))?;
            trust.pin_workspace(workspace, fingerprint);
        }
        let config = ClientConfig {
            ca_text: self.authorities(ca_bundle.as_ref(), ca_secret.as_ref())?,
            trust_first_key: spec.trust_first_key,
            require_manifest: spec.require_manifest,
            trust: trust.clone(),
            ..ClientConfig::new(address)
        };
        let connection = Connection::new(&config).map_err(refused)?;
        let key = RecordKey::of(&identity).map_err(refused)?;
        Ok(Zopp::new(ZoppClient::new(connection, identity), Memory::new(key, trust, accepted.clone())))
    }

    /// Returns the authorities in PEM, from the object or from a Secret.
    fn authorities(&self, bundle: Option<&String>, secret: Option<&SecretKey>) -> Result<Option<String>, String> {
        secret.map_or_else(|| Ok(bundle.cloned()), |key| self.text(key).map(Some))
    }

    /// Returns a value that was read.
    fn value(&self, key: &SecretKey) -> Result<Arc<SecretValue>, String> {
        let value = self.materials.get(&(key.name.clone(), key.key.clone()));
        value.cloned().ok_or_else(|| format!("{} was not read", self.shown(key)))
    }

    /// Returns a value that is text and no secret.
    fn text(&self, key: &SecretKey) -> Result<String, String> {
        let value = self.value(key)?;
        let text = std::str::from_utf8(value.expose());
        text.map(str::to_owned).map_err(|_| format!("{} is not text", self.shown(key)))
    }

    fn shown(&self, key: &SecretKey) -> String {
        format!("key {} of Secret {}/{}", key.key, self.namespace, key.name)
    }

    /// Returns the login, and the certificate to show.
    fn login(&self, spec: &LoginSpec) -> Result<(Login, Option<ClientText>), String> {
        let mount = |given: &Option<String>, usual: &str| given.clone().unwrap_or_else(|| usual.to_owned());
        let LoginSpec { kubernetes, jwt, app_role, certificate, token } = spec;
        let login = if let Some(KubernetesLogin { service_account, role, mount: given, audiences }) = kubernetes {
            let token = self.service_account_token(service_account, audiences);
            Login::Kubernetes { mount: mount(given, "kubernetes"), role: role.clone(), token }
        } else if let Some(JwtLogin { service_account, role, mount: given, audiences }) = jwt {
            let token = self.service_account_token(service_account, audiences);
            Login::Jwt { mount: mount(given, "jwt"), role: role.clone(), token }
        } else if let Some(AppRoleLogin { role_id, secret_id, mount: given }) = app_role {
            let secret_id = Credential::shared(self.value(secret_id)?);
            let role_id = Credential::value(role_id.clone().into());
            Login::AppRole { mount: mount(given, "approle"), role_id, secret_id: Some(secret_id) }
        } else if let Some(login) = certificate {
            let [certificate, key] = certificate_keys(login);
            let client = ClientText { certificate: self.text(&certificate)?, key: self.value(&key)? };
            let CertificateLogin { role, mount: given, secret: _ } = login;
            return Ok((Login::Certificate { mount: mount(given, "cert"), role: role.clone() }, Some(client)));
        } else if let Some(key) = token {
            Login::Token(Credential::shared(self.value(key)?))
        } else {
            return Err("spec.vault.login: give one of kubernetes, jwt, appRole, certificate and token".to_owned());
        };
        Ok((login, None))
    }

    /// Returns a token of a service account, which is requested at each login.
    fn service_account_token(&self, name: &str, audiences: &[String]) -> Credential {
        let api = Api::<ServiceAccount>::namespaced(self.client.clone(), self.namespace);
        let (name, namespace, audiences) = (name.to_owned(), self.namespace.to_owned(), audiences.to_vec());
        Credential::issued(move || {
            let (api, name, namespace, audiences) = (api.clone(), name.clone(), namespace.clone(), audiences.clone());
            async move {
                let expiration_seconds = Some(TOKEN_SECONDS);
                let spec =
                    TokenRequestSpec { audiences: Some(audiences), expiration_seconds, ..TokenRequestSpec::default() };
                let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
                let issued = api.create_token_request(&name, &PostParams::default(), &request).await;
                let issued = issued.map_err(|error| not_issued(&namespace, &name, &error))?;
                let token = issued.status.and_then(|status| status.token);
                token.map(SecretValue::from).ok_or_else(|| "the API server has issued no token".to_owned())
            }
            .boxed()
        })
    }
}

/// Returns the sentence about a setting that cannot be used.
fn refused(error: impl Error) -> String {
    in_one_line(&error)
}

/// Returns why there is no token of a service account, and what to do.
fn not_issued(namespace: &str, name: &str, error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.is_forbidden() => format!(
            "the operator may not request a token of ServiceAccount {namespace}/{name} ({}); permit it with kubectl create role konverge-{name}-token -n \
             {namespace} --verb=create --resource=serviceaccounts/token --resource-name={name}, and bind the role to the account of the operator",
            status.message
        ),
        kube::Error::Api(status) if status.code == 404 => format!("ServiceAccount {namespace}/{name} does not exist"),
        error => format!("cannot request a token of ServiceAccount {namespace}/{name}: {}", in_one_line(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, key: &str) -> SecretKey {
        SecretKey { name: name.to_owned(), key: key.to_owned() }
    }

    #[test]
    fn the_secrets_of_a_connection_are_those_that_its_specification_names() {
        let vault = |login: &str| -> VaultSpec {
            let login: LoginSpec = serde_json::from_str(login).unwrap();
            let ca_secret = Some(key("ca", "ca.crt"));
            VaultSpec {
                address: "https://vault:8200".to_owned(),
                namespace: None,
                ca_bundle: None,
                ca_secret,
                proxy: None,
                interval: None,
                login,
            }
        };
        for (login, expected) in [
            (r#"{"kubernetes":{"serviceAccount":"a","role":"b"}}"#, &[][..]),
            (r#"{"jwt":{"serviceAccount":"a"}}"#, &[]),
            (r#"{"token":{"name":"t","key":"k"}}"#, &[key("t", "k")]),
            (r#"{"appRole":{"roleId":"r","secretId":{"name":"s","key":"k"}}}"#, &[key("s", "k")]),
            (r#"{"certificate":{"secret":"c"}}"#, &[key("c", "tls.crt"), key("c", "tls.key")]),
        ] {
            let secrets = Store::Vault(&vault(login)).secrets();
            assert_eq!(secrets, [&[key("ca", "ca.crt")], expected].concat(), "{login}");
        }
        assert!(Store::of(None, None).is_err());
        let mut spec = vault(r#"{"token":{"name":"t","key":"k"}}"#);
        for (address, expected) in
            [("https://vault:8200", false), ("http://vault:8200", true), ("http://127.0.0.1:8200", false)]
        {
            spec.address = address.to_owned();
            assert_eq!(Store::Vault(&spec).is_unprotected(), expected, "{address}");
        }
    }

    #[test]
    fn a_token_that_is_not_issued_is_explained() {
        let refused = |code: u16, message: &str| {
            let reason = if code == 403 { "Forbidden" } else { "NotFound" }.to_owned();
            let status =
                kube::core::Status { code, reason, message: message.to_owned(), ..kube::core::Status::default() };
            not_issued("team-a", "app", &kube::Error::Api(Box::new(status)))
        };
        let text = refused(403, "cannot create resource");
        assert!(text.contains("(cannot create resource)") && text.contains("--resource-name=app"), "{text}");
        assert_eq!(refused(404, "not found"), "ServiceAccount team-a/app does not exist");
    }
}
