//! How the operator reaches Vault.

use std::{fmt, num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use konverge_runtime::open_files;
use konverge_vault::environment::{self, AuthMethod, Flags};

use crate::config::{PROGRAM, parse_duration};

/// Requests to Vault at the same time.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::new(32).unwrap();

/// Vault, if there is one. Variables of Vault's own programs set the rest, such as `VAULT_CACERT`, `VAULT_NAMESPACE`, `VAULT_PROXY_ADDR` and
/// `VAULT_RATE_LIMIT`.
#[derive(Clone, Args)]
#[allow(clippy::struct_field_names, reason = "a flag has the name of its field")]
pub struct VaultFlags {
    /// Address of Vault or `OpenBao`; without it, no Secret is filled from there
    #[arg(long, env = "VAULT_ADDR", value_name = "URL")]
    pub vault_addr: Option<String>,
    /// How to log in [default: token if there is one, else kubernetes]
    #[arg(long, env = "ZOPP_VAULT_AUTH_METHOD", value_parser = auth_method(), value_name = "METHOD")]
    pub vault_auth_method: Option<AuthMethod>,
    /// Role to log in as
    #[arg(long, env = "VAULT_ROLE", default_value = PROGRAM)]
    pub vault_role: String,
    /// Mount of the login method, without auth/ [default: what the method is called]
    #[arg(long, env = "VAULT_AUTH_PATH", value_name = "MOUNT")]
    pub vault_auth_path: Option<String>,
    /// File with a token, for the method token [default: the variable `VAULT_TOKEN`]
    #[arg(long, env = "ZOPP_VAULT_TOKEN_FILE", value_name = "FILE")]
    pub vault_token_file: Option<PathBuf>,
    /// Id of the role, for the method approle
    #[arg(long, env = "ZOPP_VAULT_ROLE_ID", hide_env_values = true, value_name = "ID")]
    pub vault_role_id: Option<String>,
    /// File with the secret id, for the method approle
    #[arg(long, env = "ZOPP_VAULT_SECRET_ID_FILE", value_name = "FILE")]
    pub vault_secret_id_file: Option<PathBuf>,
    /// File with the token to log in with, for the methods kubernetes and jwt [default: that of the pod's service account]
    #[arg(long, env = "ZOPP_VAULT_JWT_FILE", value_name = "FILE")]
    pub vault_jwt_file: Option<PathBuf>,
    /// The longest time for one request to Vault
    #[arg(long, env = "VAULT_CLIENT_TIMEOUT", default_value = "60s", value_parser = parse_duration, value_name = "TIME")]
    pub vault_timeout: Duration,
    /// How often Vault is asked for each path; a change is in the Secret within this time and a second
    #[arg(long, env = "ZOPP_VAULT_INTERVAL", default_value = "30s", value_parser = parse_duration, value_name = "TIME")]
    pub vault_interval: Duration,
}

impl VaultFlags {
    /// Returns the settings of the client, or `None` without an address.
    pub fn flags(&self) -> Option<Flags> {
        let address = given(self.vault_addr.as_ref())?;
        let mount = given(self.vault_auth_path.as_ref()).unwrap_or(self.method().name());
        Some(Flags {
            address: address.to_owned(),
            address_from: "--vault-addr",
            method: self.method(),
            mount: mount.to_owned(),
            role: self.vault_role.clone(),
            token_file: self.vault_token_file.clone(),
            role_id: self.vault_role_id.clone(),
            secret_id_file: self.vault_secret_id_file.clone(),
            jwt_file: self.vault_jwt_file.clone(),
            timeout: self.vault_timeout,
            rate: None,
            concurrency: CONCURRENCY.min(open_files::for_one_server()),
            follow_redirects: false,
        })
    }

    fn method(&self) -> AuthMethod {
        let is_set = |variable| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
        let has_token = self.vault_token_file.is_some() || is_set("VAULT_TOKEN");
        self.vault_auth_method.unwrap_or(if has_token { AuthMethod::Token } else { AuthMethod::Kubernetes })
    }
}

/// Shows no credential. An address may have one in it.
impl fmt::Display for VaultFlags {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(flags) = self.flags() else { return formatter.write_str("vault=none") };
        let interval = self.vault_interval.as_secs_f64();
        write!(formatter, "vault-addr={} ", environment::without_user(&flags.address))?;
        write!(formatter, "vault-auth-method={} vault-auth-path={} ", flags.method.name(), flags.mount)?;
        write!(formatter, "vault-role={} vault-interval={interval}s", flags.role)
    }
}

impl fmt::Debug for VaultFlags {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

fn given(text: Option<&String>) -> Option<&str> {
    text.map(|text| text.trim()).filter(|text| !text.is_empty())
}

fn auth_method() -> impl TypedValueParser<Value = AuthMethod> {
    let methods = AuthMethod::ALL.map(|method| PossibleValue::new(method.name()).help(method.about()));
    PossibleValuesParser::new(methods).try_map(|name| name.parse())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::config::Config;

    fn shown(arguments: &[&str]) -> String {
        Config::try_parse_from([&["zopp-operator"], arguments].concat()).unwrap().to_string()
    }

    #[test]
    fn without_an_address_vault_takes_no_part() {
        assert!(shown(&["--vault-role", "x"]).contains(" vault=none "));
        assert!(shown(&["--vault-addr= "]).contains(" vault=none "));
    }

    #[test]
    fn the_settings_are_shown_without_credentials() {
        let text = shown(&[
            "--vault-addr",
            "https://me:secret@vault:8200",
            "--vault-auth-method",
            "approle",
            "--vault-role-id",
            "id",
            "--vault-interval",
            "10s",
        ]);
        let expected = " vault-addr=https://vault:8200 vault-auth-method=approle vault-auth-path=approle vault-role=zopp-operator vault-interval=10s ";
        assert!(text.contains(expected), "{text}");
    }
}
