//! The ways to get a token.

use std::time::Duration;

use http::{HeaderValue, Method};
use konverge_endpoint::Credential;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use zeroize::Zeroizing;

use crate::{call::Call, content::to_wiped_json, error::VaultError, lifetime::Lifetime, path::escaped};

/// The identity that logs in. Mounts are named without `auth/`.
#[derive(Clone)]
pub enum Login {
    /// A pod, by its service account.
    Kubernetes {
        /// Where the method is mounted, usually `kubernetes`.
        mount: String,
        /// The role.
        role: String,
        /// The service account's token.
        token: Credential,
    },
    /// The bearer of a JWT from a trusted issuer.
    Jwt {
        /// Where the method is mounted, usually `jwt`.
        mount: String,
        /// The role; the method's default if there is none.
        role: Option<String>,
        /// The JWT.
        token: Credential,
    },
    /// A program with an id and a secret of its own.
    AppRole {
        /// Where the method is mounted, usually `approle`.
        mount: String,
        /// The role's id.
        role_id: Credential,
        /// The secret, unless the role needs none.
        secret_id: Option<Credential>,
    },
    /// The owner of a trusted client certificate, set by [`TlsSettings::client`](crate::TlsSettings::client).
    Certificate {
        /// Where the method is mounted, usually `cert`.
        mount: String,
        /// The role; any that the certificate fits if there is none.
        role: Option<String>,
    },
    /// The owner of a token that exists already. It is looked up first, and renewed if it can be; its file is read again before that, and whenever the
    /// token is refused.
    Token(Credential),
}

/// Where the token of a pod's service account is.
pub const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

impl Login {
    /// A pod by its own service account, with the method at `kubernetes`.
    pub fn kubernetes(role: impl Into<String>) -> Self {
        let (mount, token) = ("kubernetes".to_owned(), Credential::file(SERVICE_ACCOUNT_TOKEN));
        Self::Kubernetes { mount, role: role.into(), token }
    }

    /// In words: method, mount and role.
    pub(crate) fn how(&self) -> String {
        let with_role = |method: &str, mount: &str, role: Option<&String>| match role {
            Some(role) => format!("{method} at auth/{mount} as role {role}"),
            None => format!("{method} at auth/{mount}"),
        };
        match self {
            Self::Kubernetes { mount, role, .. } => with_role("Kubernetes service account", mount, Some(role)),
            Self::Jwt { mount, role, .. } => with_role("JWT", mount, role.as_ref()),
            Self::AppRole { mount, .. } => with_role("AppRole", mount, None),
            Self::Certificate { mount, role } => with_role("certificate", mount, role.as_ref()),
            Self::Token(_) => "token".to_owned(),
        }
    }

    /// A name that becomes part of an address.
    pub(crate) fn mount_name(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Kubernetes { mount, .. }
            | Self::Jwt { mount, .. }
            | Self::AppRole { mount, .. }
            | Self::Certificate { mount, .. } => Some(("mount of a login method", mount)),
            Self::Token(_) => None,
        }
    }

    /// The request that logs in.
    pub(crate) async fn attempt(&self) -> Result<Attempt, VaultError> {
        match self {
            Self::Kubernetes { mount, role, token } => {
                let jwt = token.read("service account token").await?;
                Ok(ask(mount, &Body { role: Some(role), jwt: Some(&jwt), ..Body::default() }))
            }
            Self::Jwt { mount, role, token } => {
                let jwt = token.read("JWT").await?;
                Ok(ask(mount, &Body { role: role.as_deref(), jwt: Some(&jwt), ..Body::default() }))
            }
            Self::AppRole { mount, role_id, secret_id } => {
                let role_id = role_id.read("AppRole role id").await?;
                let secret_id = match secret_id {
                    Some(secret_id) => Some(secret_id.read("AppRole secret id").await?),
                    None => None,
                };
                let secret_id = secret_id.as_deref().map(String::as_str);
                Ok(ask(mount, &Body { role_id: Some(&role_id), secret_id, ..Body::default() }))
            }
            Self::Certificate { mount, role } => Ok(ask(mount, &Body { name: role.as_deref(), ..Body::default() })),
            Self::Token(token) => {
                let token = header(&token.read("Vault token").await?)?;
                let route = "auth/token/lookup-self".to_owned();
                Ok(Attempt::LookUp(Call::new(Method::GET, route, "look up the token".to_owned(), "read"), token))
            }
        }
    }
}

fn ask(mount: &str, body: &Body<'_>) -> Attempt {
    let route = format!("auth/{}/login", escaped(mount));
    Attempt::Ask(Call::new(Method::POST, route, "log in".to_owned(), "a login").body(body.bytes()))
}

/// The body of a login request.
pub(crate) enum Attempt {
    /// A token is there; what it is good for is asked.
    LookUp(Call, HeaderValue),
    /// A token is asked for.
    Ask(Call),
}

#[derive(Default, Serialize)]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jwt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_id: Option<&'a str>,
}

impl Body<'_> {
    fn bytes(&self) -> Zeroizing<Vec<u8>> {
        let parts = [self.role, self.name, self.jwt, self.role_id, self.secret_id];
        // Strings in a struct always become JSON in memory.
        to_wiped_json(self, parts.into_iter().flatten().map(str::len).sum()).unwrap_or_default()
    }
}

/// The result of a login or a renewal. Vault always sends the token and its lifetime. Without them, the answer is not Vault's.
#[derive(Deserialize)]
pub(crate) struct Granted<'a> {
    #[serde(borrow)]
    pub(crate) auth: Auth<'a>,
}

#[derive(Deserialize)]
pub(crate) struct Auth<'a> {
    /// Beneath the answer's body, which is wiped.
    #[serde(borrow)]
    pub(crate) client_token: &'a str,
    pub(crate) lease_duration: u64,
    #[serde(default)]
    pub(crate) renewable: bool,
    /// The number of requests that Vault accepts with the token; zero means unlimited.
    #[serde(default)]
    pub(crate) num_uses: u64,
}

impl Auth<'_> {
    /// Returns the lifetime of the token. One with a use limit is not renewable, because a renewal is a use.
    pub(crate) fn lifetime(&self) -> Lifetime {
        Lifetime { ttl: Duration::from_secs(self.lease_duration), renewable: self.renewable && self.num_uses == 0 }
    }
}

/// The properties of a token, by `lookup-self`.
#[derive(Deserialize)]
pub(crate) struct LookedUp {
    pub(crate) data: TokenState,
}

#[derive(Deserialize)]
pub(crate) struct TokenState {
    /// In seconds; zero for a token that does not expire. Vault always sends it.
    ttl: u64,
    /// Null for a token that does not expire.
    #[serde(default)]
    expire_time: Option<IgnoredAny>,
    #[serde(default)]
    renewable: bool,
}

impl TokenState {
    pub(crate) fn lifetime(&self) -> Lifetime {
        // In its last second its time seems to be zero, which would be for ever.
        let seconds = if self.expire_time.is_some() { self.ttl.max(1) } else { self.ttl };
        Lifetime { ttl: Duration::from_secs(seconds), renewable: self.renewable }
    }
}

/// The assumed lifetime of a token that may not look itself up, for lack of the default policy. After two thirds of it, the client checks the token
/// and reads its file again.
pub(crate) const WITHOUT_LOOK_UP: Lifetime = Lifetime { ttl: Duration::from_secs(45), renewable: false };

/// The token as it is sent. It is not printed; the copies that the HTTP client makes are not wiped.
pub(crate) fn header(token: &str) -> Result<HeaderValue, VaultError> {
    let mut value = HeaderValue::from_str(token).map_err(|_| VaultError::Credential {
        what: "Vault token",
        path: None,
        cause: "it has characters that no header can carry".to_owned(),
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use konverge_core::SecretValue;

    use super::*;

    async fn body(login: Login) -> (String, String) {
        let Attempt::Ask(call) = login.attempt().await.unwrap() else { panic!("a login asks") };
        (call.route, String::from_utf8(call.body.to_vec()).unwrap())
    }

    fn secret(text: &str) -> Credential {
        Credential::value(SecretValue::from(text.to_owned()))
    }

    #[tokio::test]
    async fn what_is_sent() {
        let login = Login::Kubernetes { mount: "k8s/one".into(), role: "r".into(), token: secret(" abc\n") };
        assert_eq!(login.how(), "Kubernetes service account at auth/k8s/one as role r");
        let expected = ("auth/k8s/one/login".to_owned(), r#"{"role":"r","jwt":"abc"}"#.to_owned());
        assert_eq!(body(login).await, expected);
        let login = Login::AppRole { mount: "approle".into(), role_id: secret("id"), secret_id: None };
        assert_eq!(body(login).await.1, r#"{"role_id":"id"}"#);
        let login = Login::Certificate { mount: "cert".into(), role: Some("web".into()) };
        assert_eq!(body(login).await.1, r#"{"name":"web"}"#);
        let login = Login::Jwt { mount: "jwt".into(), role: None, token: secret("j") };
        assert_eq!(body(login).await.1, r#"{"jwt":"j"}"#);
    }

    #[tokio::test]
    async fn a_credential_that_is_missing_is_named_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let login = Login::Token(Credential::file(&path));
        let failure = async || login.attempt().await.err().unwrap().to_string();
        assert!(failure().await.contains("Vault token") && failure().await.contains("token"));
        for (content, why) in [("\n", "empty"), ("hunter2\nx", "characters")] {
            std::fs::write(&path, content).unwrap();
            let text = failure().await;
            assert!(text.contains(why) && !text.contains("hunter2"), "{text}");
        }
    }
}
