//! The variables that Vault's own programs know, as far as they concern a client.
//!
//! With some programs they are the only way to set TLS, a namespace or a proxy. A variable that our client does not support is reported, never
//! ignored. A variable that cannot be parsed is an error if ignoring it would weaken the client.

mod rate;

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use konverge_core::SecretValue;
use konverge_endpoint::{Credential, Limits, TlsSettings};

use self::rate::Rate;
use crate::{
    config::{ConfigError, VaultConfig},
    login::{Login, SERVICE_ACCOUNT_TOKEN},
};

/// Requests in a second where nothing else is said. The client's own default is for programs that ask less.
const DEFAULT_RATE: u32 = 500;

/// How to log in to Vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMethod {
    /// By the pod's service account.
    Kubernetes,
    /// With a token that is there.
    Token,
    /// With the id of a role and a secret id.
    AppRole,
    /// With a JWT of an issuer that Vault trusts.
    Jwt,
    /// With the certificate of `VAULT_CLIENT_CERT` and `VAULT_CLIENT_KEY`.
    Cert,
}

/// The values of a program's own flags, which have the same names in all our programs: `--vault-role`, `--vault-token-file` and so on.
#[derive(Debug, Clone)]
pub struct Flags {
    /// The address of Vault or `OpenBao`.
    pub address: String,
    /// The flag or variable that the address is from.
    pub address_from: &'static str,
    /// How to log in.
    pub method: AuthMethod,
    /// Where the method is mounted, without `auth/`.
    pub mount: String,
    /// Role to log in as.
    pub role: String,
    /// A file with a token, for [`AuthMethod::Token`].
    pub token_file: Option<PathBuf>,
    /// The role's id, for [`AuthMethod::AppRole`].
    pub role_id: Option<String>,
    /// A file with the secret id, for [`AuthMethod::AppRole`].
    pub secret_id_file: Option<PathBuf>,
    /// A file with a JWT, if it is not to be that of the pod's service account.
    pub jwt_file: Option<PathBuf>,
    /// The longest time for one request.
    pub timeout: Duration,
    /// Requests in a second; 0 is no limit.
    pub rate: Option<u32>,
    /// Requests at the same time.
    pub concurrency: NonZeroUsize,
    /// Whether redirects to other hosts are followed.
    pub follow_redirects: bool,
}

/// The variables about Vault.
pub struct VaultEnvironment {
    /// An agent to be asked instead of Vault itself.
    agent: Option<String>,
    tls: TlsSettings,
    namespace: Option<String>,
    proxy: Option<String>,
    rate: Option<Rate>,
    token: Option<SecretValue>,
    warnings: Vec<String>,
}

/// A variable that cannot be followed. The text names it and the next step, and no value that may be secret.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// A switch is neither on nor off.
    #[error("{variable} is {value:?}; write true or false, or leave it out")]
    Switch {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// The limit is none.
    #[error(
        "VAULT_RATE_LIMIT is {value:?}; write requests in a second, and a burst behind a colon if you like, such as 100:200"
    )]
    Rate {
        /// Its value.
        value: String,
    },
    /// Of certificate and key there is only one.
    #[error("of VAULT_CLIENT_CERT and VAULT_CLIENT_KEY only {given} is set; set both or none")]
    HalfACertificate {
        /// The variables that are set.
        given: &'static str,
    },
    /// Nothing to log in with.
    #[error("--vault-auth-method={method} needs {what}")]
    NoCredential {
        /// The method.
        method: &'static str,
        /// The other variable that it needs.
        what: &'static str,
    },
    /// The client does not take it.
    #[error("cannot use {variable}")]
    Refused {
        /// Where it comes from.
        variable: &'static str,
        /// Why.
        #[source]
        source: ConfigError,
    },
}

/// How Vault is reached.
pub struct Access {
    /// The configuration of the client.
    pub vault: VaultConfig,
    /// The warnings, to be logged once.
    pub warnings: Vec<String>,
    /// Why somebody on the way to Vault can read or change what is sent, if that is so.
    pub exposed: Option<String>,
}

/// How to reach Vault by the flags and the variables of the process, and what to warn of.
pub fn access(flags: &Flags) -> Result<Access, EnvironmentError> {
    VaultEnvironment::of_process()?.access(flags)
}

/// Returns an address without the user and the password, to show it.
pub fn without_user(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").map_or(("", address), |(scheme, rest)| (scheme, rest));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = rest[..end].rfind('@').map_or(rest, |at| &rest[at + 1..]);
    if scheme.is_empty() { host.to_owned() } else { format!("{scheme}://{host}") }
}

/// A switch as Vault's programs read it, which is as Go's `strconv.ParseBool` does.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

impl AuthMethod {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Kubernetes, Self::Token, Self::AppRole, Self::Jwt, Self::Cert];

    /// Its name, which is also its usual mount.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
            Self::Token => "token",
            Self::AppRole => "approle",
            Self::Jwt => "jwt",
            Self::Cert => "cert",
        }
    }

    /// The credential that it logs in with, as help texts describe it.
    pub fn about(self) -> &'static str {
        match self {
            Self::Kubernetes => "By the pod's service account",
            Self::Token => "With a token that is there",
            Self::AppRole => "With the id of a role and a secret id",
            Self::Jwt => "With a JWT of an issuer that Vault trusts",
            Self::Cert => "With the certificate of `VAULT_CLIENT_CERT` and `VAULT_CLIENT_KEY`",
        }
    }
}

/// By its name.
impl FromStr for AuthMethod {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|method| method.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.into_iter().map(Self::name).collect();
            format!("write one of {}", names.join(", "))
        })
    }
}

impl VaultEnvironment {
    /// Reads the variables of the process.
    pub fn of_process() -> Result<Self, EnvironmentError> {
        // Vault's own programs could not use a value that is not UTF-8 either.
        Self::read(|name| std::env::var(name).ok())
    }

    /// Works in this namespace of Vault if no variable names one.
    #[must_use]
    pub fn default_namespace(mut self, namespace: &str) -> Self {
        self.namespace.get_or_insert_with(|| namespace.to_owned());
        self
    }

    /// Reads the variables; empty ones are as if they were not there.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let switch = |name: &'static str| match variable(name) {
            None => Ok(false),
            Some(value) => boolean(&value).map_err(|_| EnvironmentError::Switch { variable: name, value }),
        };
        let mut warnings = Vec::new();
        let agent = variable("VAULT_AGENT_ADDR");
        if agent.is_some() {
            warnings.push("VAULT_AGENT_ADDR is set, so requests go there and not to --vault-addr".to_owned());
        }
        // The original takes the newer name where both are set.
        let proxy = variable("VAULT_PROXY_ADDR").or_else(|| variable("VAULT_HTTP_PROXY"));
        let rate = variable("VAULT_RATE_LIMIT");
        let rate = rate.map(|value| rate::parse(&value).ok_or(EnvironmentError::Rate { value })).transpose()?;
        if rate.is_some_and(|rate| rate.rounded) {
            warnings.push("VAULT_RATE_LIMIT is rounded to whole requests in a second, at least one".to_owned());
        }
        let tls = tls(&variable, switch("VAULT_SKIP_VERIFY")?, &mut warnings)?;
        for name in ["VAULT_SRV_LOOKUP", "VAULT_DISABLE_REDIRECTS"] {
            if switch(name)? {
                warnings.push(without_effect(name));
            }
        }
        let unknown = ["VAULT_MAX_RETRIES", "VAULT_WRAP_TTL", "VAULT_MFA"].into_iter();
        warnings.extend(unknown.filter(|name| variable(name).is_some()).map(without_effect));
        Ok(Self {
            agent,
            tls,
            namespace: variable("VAULT_NAMESPACE").filter(|namespace| !namespace.trim_matches('/').is_empty()),
            proxy,
            rate,
            token: variable("VAULT_TOKEN").map(|token| SecretValue::new(token.into_bytes())),
            warnings,
        })
    }

    /// With the flags: what the client needs to know, and what to warn of. One login serves all that use the client.
    pub fn access(mut self, flags: &Flags) -> Result<Access, EnvironmentError> {
        let limits = self.limits(flags);
        let login = self.login(flags)?;
        let (variable, address) = match &self.agent {
            Some(agent) => ("VAULT_AGENT_ADDR", agent.as_str()),
            None => (flags.address_from, flags.address.as_str()),
        };
        let refused = |variable| move |source| EnvironmentError::Refused { variable, source };
        // The mount of the login method is all that can be wrong beside the address.
        let mut vault = VaultConfig::new(address, login).map_err(|error| match error {
            ConfigError::Address { .. } => EnvironmentError::Refused { variable, source: error },
            other => EnvironmentError::Refused { variable: "--vault-auth-path", source: other },
        })?;
        if let Some(namespace) = &self.namespace {
            vault = vault.namespace(namespace).map_err(refused("VAULT_NAMESPACE"))?;
        }
        if let Some(proxy) = &self.proxy {
            vault = vault.proxy(proxy).map_err(refused("VAULT_PROXY_ADDR or VAULT_HTTP_PROXY"))?;
        }
        let exposed = exposed(variable, &vault, &self.tls);
        self.warnings.extend(exposed.clone());
        let vault = vault.tls(self.tls).limits(limits).follow_redirects(flags.follow_redirects);
        Ok(Access { vault, warnings: self.warnings, exposed })
    }

    fn limits(&mut self, flags: &Flags) -> Limits {
        let rate = match (flags.rate, self.rate) {
            (Some(rate), other) => {
                if other.is_some() {
                    self.warnings.push("VAULT_RATE_LIMIT has no effect, because --vault-rate is given".to_owned());
                }
                Rate::whole(rate)
            }
            (None, Some(rate)) => rate,
            (None, None) => Rate::whole(DEFAULT_RATE),
        };
        Limits::default().with(|limits| {
            limits.rate = NonZeroU32::new(rate.per_second);
            limits.burst = NonZeroU32::new(rate.burst).unwrap_or(NonZeroU32::MIN);
            limits.concurrency = flags.concurrency;
            limits.deadline = flags.timeout;
            limits.connect = Limits::default().connect.min(flags.timeout);
        })
    }

    fn login(&mut self, flags: &Flags) -> Result<Login, EnvironmentError> {
        let method = flags.method;
        let missing = |what| EnvironmentError::NoCredential { method: method.name(), what };
        let mount = flags.mount.clone();
        let jwt = || Credential::file(flags.jwt_file.clone().unwrap_or_else(|| SERVICE_ACCOUNT_TOKEN.into()));
        let (login, uses_token) = match method {
            AuthMethod::Kubernetes => (Login::Kubernetes { mount, role: flags.role.clone(), token: jwt() }, false),
            AuthMethod::Jwt => (Login::Jwt { mount, role: Some(flags.role.clone()), token: jwt() }, false),
            AuthMethod::AppRole => {
                let id = flags.role_id.clone().ok_or_else(|| missing("--vault-role-id"))?;
                let role_id = Credential::value(SecretValue::new(id.into_bytes()));
                let secret_id = flags.secret_id_file.as_ref().map(Credential::file);
                (Login::AppRole { mount, role_id, secret_id }, false)
            }
            AuthMethod::Cert => {
                if self.tls.client.is_none() {
                    return Err(missing("the variables VAULT_CLIENT_CERT and VAULT_CLIENT_KEY"));
                }
                (Login::Certificate { mount, role: Some(flags.role.clone()) }, false)
            }
            AuthMethod::Token => match (&flags.token_file, self.token.take()) {
                (Some(file), token) => {
                    // Put back, so that it is told below.
                    self.token = token;
                    (Login::Token(Credential::file(file)), false)
                }
                (None, Some(token)) => (Login::Token(Credential::value(token)), true),
                (None, None) => return Err(missing("--vault-token-file or the variable VAULT_TOKEN")),
            },
        };
        if !uses_token && self.token.is_some() {
            self.warnings.push("VAULT_TOKEN has no effect with this login; remove it from where it is set".to_owned());
        }
        Ok(login)
    }
}

fn tls(
    variable: &impl Fn(&str) -> Option<String>,
    skip_verify: bool,
    warnings: &mut Vec<String>,
) -> Result<TlsSettings, EnvironmentError> {
    // The first that is set counts, as with the original, and the system's authorities do not count beside it.
    let file = variable("VAULT_CACERT");
    let text = variable("VAULT_CACERT_BYTES");
    let folder = variable("VAULT_CAPATH");
    let given = [("VAULT_CACERT", &file), ("VAULT_CACERT_BYTES", &text), ("VAULT_CAPATH", &folder)];
    let mut given = given.into_iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name);
    let first = given.next();
    for ignored in given {
        warnings.push(format!("{ignored} has no effect, because {} is set", first.unwrap_or_default()));
    }
    let (authorities, authorities_text) = match (file, text) {
        (Some(file), _) => (Some(file), None),
        (None, Some(text)) => (None, Some(text)),
        (None, None) => (folder, None),
    };
    let client = match (variable("VAULT_CLIENT_CERT"), variable("VAULT_CLIENT_KEY")) {
        (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
        (None, None) => None,
        (Some(_), None) => return Err(EnvironmentError::HalfACertificate { given: "VAULT_CLIENT_CERT" }),
        (None, Some(_)) => return Err(EnvironmentError::HalfACertificate { given: "VAULT_CLIENT_KEY" }),
    };
    Ok(TlsSettings::default().with(|tls| {
        tls.authorities = authorities.map(Into::into);
        tls.authorities_text = authorities_text;
        tls.without_system = first.is_some();
        tls.client = client;
        tls.server_name = variable("VAULT_TLS_SERVER_NAME");
        tls.trust_anybody = skip_verify;
    }))
}

/// Why somebody on the way can read or change what is sent, and what to do about it.
fn exposed(variable: &str, vault: &VaultConfig, tls: &TlsSettings) -> Option<String> {
    if vault.is_in_the_clear() {
        return Some(format!(
            "{variable} is an address without TLS, so tokens and values can be read on the way to Vault; give Vault a listener with a \
             certificate, write https:// there, and name its authority in VAULT_CACERT"
        ));
    }
    tls.trust_anybody.then(|| {
        "VAULT_SKIP_VERIFY is set: Vault's certificate is not checked, and anybody on the way can read and change \
         every secret; set VAULT_CACERT instead"
            .to_owned()
    })
}

fn without_effect(name: &str) -> String {
    let why = match name {
        "VAULT_SRV_LOOKUP" => "write the host and port into --vault-addr",
        "VAULT_DISABLE_REDIRECTS" => {
            "only a standby's redirect to its leader is followed, and never one that gives up TLS"
        }
        "VAULT_MAX_RETRIES" => "a failed request is repeated until it succeeds, with growing pauses",
        "VAULT_WRAP_TTL" => "wrapped answers are of no use here",
        _ => "it is for people who log in",
    };
    format!("{name} has no effect: {why}")
}

#[cfg(test)]
mod tests;
