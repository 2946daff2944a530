//! The variables that Vault's own programs know, as far as they concern a client.
//!
//! With the original they are the only way to set TLS, a namespace or a proxy. What our client does not do is told and never passed
//! over; what cannot be understood and would weaken it if passed over is an error.

mod rate;

use std::num::NonZeroU32;

use konverge_core::SecretValue;
use konverge_vault::{ConfigError, Credential, Limits, Login, SERVICE_ACCOUNT_TOKEN, TlsSettings, VaultConfig};

use self::rate::Rate;
use crate::config::{AuthMethod, Config, boolean};

/// Requests in a second where nothing else is said. The client's own default is for programs that ask less.
const DEFAULT_RATE: u32 = 500;

/// What the environment says about Vault.
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
        /// What it holds.
        value: String,
    },
    /// The limit is none.
    #[error(
        "VAULT_RATE_LIMIT is {value:?}; write requests in a second, and a burst behind a colon if you like, such as 100:200"
    )]
    Rate {
        /// What it holds.
        value: String,
    },
    /// Of certificate and key there is only one.
    #[error("of VAULT_CLIENT_CERT and VAULT_CLIENT_KEY only {given} is set; set both or none")]
    HalfACertificate {
        /// That which is set.
        given: &'static str,
    },
    /// Nothing to log in with.
    #[error("--vault-auth-method={method} needs {what}")]
    NoCredential {
        /// The method.
        method: &'static str,
        /// What it needs.
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
    /// What the client needs to know.
    pub vault: VaultConfig,
    /// What to warn of, once.
    pub warnings: Vec<String>,
    /// Why somebody on the way to Vault can read or change what is sent, if that is so.
    pub exposed: Option<String>,
}

/// How to reach Vault by the flags and the variables of the process, and what to warn of.
pub fn vault_config(config: &Config) -> Result<Access, EnvironmentError> {
    // What is no text is none that Vault's programs could use.
    VaultEnvironment::read(|name| std::env::var(name).ok())?.vault_config(config)
}

impl VaultEnvironment {
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
    pub fn vault_config(mut self, config: &Config) -> Result<Access, EnvironmentError> {
        let limits = self.limits(config);
        let login = self.login(config)?;
        let (variable, address) = match &self.agent {
            Some(agent) => ("VAULT_AGENT_ADDR", agent.as_str()),
            None => ("--vault-addr", config.vault_addr.as_str()),
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
        Ok(Access { vault: vault.tls(self.tls).limits(limits), warnings: self.warnings, exposed })
    }

    fn limits(&mut self, config: &Config) -> Limits {
        let rate = match (config.vault_rate, self.rate) {
            (Some(rate), other) => {
                if other.is_some() {
                    self.warnings.push("VAULT_RATE_LIMIT has no effect, because --vault-rate is given".to_owned());
                }
                Rate::whole(rate)
            }
            (None, Some(rate)) => rate,
            (None, None) => Rate::whole(DEFAULT_RATE),
        };
        Limits {
            rate: NonZeroU32::new(rate.per_second),
            burst: NonZeroU32::new(rate.burst).unwrap_or(NonZeroU32::MIN),
            concurrency: config.vault_concurrency,
            deadline: config.vault_timeout,
            connect: Limits::default().connect.min(config.vault_timeout),
            ..Limits::default()
        }
    }

    fn login(&mut self, config: &Config) -> Result<Login, EnvironmentError> {
        let method = config.vault_auth_method;
        let missing = |what| EnvironmentError::NoCredential { method: method.name(), what };
        let mount = config.auth_path().to_owned();
        let jwt = || Credential::file(config.vault_jwt_file.clone().unwrap_or_else(|| SERVICE_ACCOUNT_TOKEN.into()));
        let (login, uses_token) = match method {
            AuthMethod::Kubernetes => {
                (Login::Kubernetes { mount, role: config.vault_role.clone(), token: jwt() }, false)
            }
            AuthMethod::Jwt => (Login::Jwt { mount, role: Some(config.vault_role.clone()), token: jwt() }, false),
            AuthMethod::AppRole => {
                let id = config.vault_role_id.clone().ok_or_else(|| missing("--vault-role-id"))?;
                let role_id = Credential::value(SecretValue::new(id.into_bytes()));
                let secret_id = config.vault_secret_id_file.as_ref().map(Credential::file);
                (Login::AppRole { mount, role_id, secret_id }, false)
            }
            AuthMethod::Cert => {
                if self.tls.client.is_none() {
                    return Err(missing("the variables VAULT_CLIENT_CERT and VAULT_CLIENT_KEY"));
                }
                (Login::Certificate { mount, role: Some(config.vault_role.clone()) }, false)
            }
            AuthMethod::Token => match (&config.vault_token_file, self.token.take()) {
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
    Ok(TlsSettings {
        authorities: authorities.map(Into::into),
        authorities_text,
        without_system: first.is_some(),
        client,
        server_name: variable("VAULT_TLS_SERVER_NAME"),
        trust_anybody: skip_verify,
    })
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
        "VAULT_SKIP_VERIFY is set: Vault's certificate is not checked, and whoever is on the way can read and change \
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
        "VAULT_MAX_RETRIES" => "what failed is tried again until it succeeds, with growing pauses",
        "VAULT_WRAP_TTL" => "wrapped answers are of no use here",
        _ => "it is for people who log in",
    };
    format!("{name} has no effect: {why}")
}

#[cfg(test)]
mod tests;
