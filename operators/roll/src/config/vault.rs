//! How Vault is reached: the original's variables, and flags in the names that they have with all programs of ours.

use std::{fmt, num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use konverge_runtime::open_files;
use konverge_vault::{
    boundaries::Rule,
    environment::{AuthMethod, Flags},
};

use crate::{convert::Settings, time::span};

/// Where the original reads its token.
const ORIGINAL_TOKEN: &str = "/etc/config/VAULT_TOKEN";

/// The part of the original's address between that of Vault and the path of a request.
const ROUTES: &str = "/v1/";

/// Vault, if there is one. TLS, the namespace in Vault and the way there are set by the variables of Vault's own programs, such as
/// `VAULT_CACERT`, `VAULT_NAMESPACE` and `VAULT_HTTP_PROXY`.
#[derive(Clone, Args)]
pub struct VaultFlags {
    /// Address of Vault or `OpenBao` as the original takes it, such as `https://vault:8200/v1/`; a namespace in Vault may follow
    #[arg(long, env = "VAULT_URL", value_name = "URL")]
    pub vault_url: Option<String>,
    /// The same without /v1/; without either, the operator does not follow Vault
    #[arg(long, env = "VAULT_ADDR", value_name = "URL")]
    pub vault_addr: Option<String>,
    /// How to log in
    #[command(flatten)]
    pub login: VaultLogin,
    /// The longest time for one request to Vault, limits of ours included
    #[arg(long, env = "VAULT_CLIENT_TIMEOUT", default_value = "60s", value_parser = above_zero, value_name = "TIME")]
    pub vault_timeout: Duration,
    /// Requests to Vault in a second; 0 is no limit [default: that of `VAULT_RATE_LIMIT`, else 500]
    #[arg(long, env = "ROLLOUT_VAULT_RATE", value_name = "NUMBER")]
    pub vault_rate: Option<u32>,
    /// Requests to Vault at the same time
    #[arg(long, env = "ROLLOUT_VAULT_CONCURRENCY", default_value = "32", value_name = "NUMBER")]
    pub vault_concurrency: NonZeroUsize,
    /// Follow redirects of Vault to other hosts, and send the token and the body there; needed for a standby that does not forward requests
    #[arg(long, env = "ROLLOUT_VAULT_FOLLOW_REDIRECTS")]
    pub vault_follow_redirects: bool,
    /// How often Vault is asked for each secret, where the object does not say
    #[arg(long, env = "ROLLOUT_VAULT_INTERVAL", default_value = "60s", value_parser = above_zero, value_name = "TIME")]
    pub vault_interval: Duration,
    /// Which namespaces' objects may name which secrets; may be repeated [default: no restriction]
    ///
    /// The path is that in Vault's API, such as secret/data/{namespace}/*, where {namespace} and {name} are those of the object and * is one
    /// segment, at the end one or more. The namespace may be * for all.
    #[arg(long, env = "ROLLOUT_ALLOW_PATH", value_delimiter = ',', value_name = "NAMESPACE=PATH")]
    pub allow_path: Vec<Rule>,
    /// As with the original: roll a workload once when a `VaultSyncStatus` is first seen whose `timeStamp` is no time
    #[arg(long, env = "ROLLOUT_RESTART_ON_FIRST_SEEN")]
    pub restart_on_first_seen: bool,
    /// As with the original: write in spec.timeStamp when the version was written that the pods run with
    #[arg(long, env = "ROLLOUT_WRITE_SPEC_TIMESTAMP")]
    pub write_spec_timestamp: bool,
}

/// How to log in to Vault.
#[derive(Clone, Args)]
#[command(about = None, long_about = None)]
pub struct VaultLogin {
    /// How to log in [default: token if there is one, else kubernetes]
    #[arg(long, env = "ROLLOUT_VAULT_AUTH_METHOD", value_parser = auth_method(), value_name = "METHOD")]
    pub vault_auth_method: Option<AuthMethod>,
    /// Role to log in as
    #[arg(long, env = "VAULT_ROLE", default_value = "vault-rollout-operator")]
    pub vault_role: String,
    /// Mount of the login method, without auth/ [default: what the method is called]
    #[arg(long, env = "VAULT_AUTH_PATH", value_name = "MOUNT")]
    pub vault_auth_path: Option<String>,
    /// File with a token, for the method token [default: `/etc/config/VAULT_TOKEN` if it is there, else the variable `VAULT_TOKEN`]
    #[arg(long, env = "ROLLOUT_VAULT_TOKEN_FILE", value_name = "FILE")]
    pub vault_token_file: Option<PathBuf>,
    /// Id of the role, for the method approle
    #[arg(long, env = "ROLLOUT_VAULT_ROLE_ID", hide_env_values = true, value_name = "ID")]
    pub vault_role_id: Option<String>,
    /// File with the secret id, for the method approle
    #[arg(long, env = "ROLLOUT_VAULT_SECRET_ID_FILE", value_name = "FILE")]
    pub vault_secret_id_file: Option<PathBuf>,
    /// File with the token to log in with, for the methods kubernetes and jwt [default: that of the pod's service account]
    #[arg(long, env = "ROLLOUT_VAULT_JWT_FILE", value_name = "FILE")]
    pub vault_jwt_file: Option<PathBuf>,
}

impl VaultFlags {
    /// How Vault is reached; nothing if none is named.
    pub fn flags(&self) -> Option<Flags> {
        let (address, address_from) = match (given(self.vault_url.as_ref()), given(self.vault_addr.as_ref())) {
            (Some(url), _) => (split(url).0, "VAULT_URL"),
            (None, Some(address)) => (address, "--vault-addr"),
            (None, None) => return None,
        };
        let of_original = Some(PathBuf::from(ORIGINAL_TOKEN)).filter(|file| file.is_file());
        let token_file = self.login.vault_token_file.clone().or(of_original);
        let has_token = token_file.is_some() || std::env::var_os("VAULT_TOKEN").is_some_and(|token| !token.is_empty());
        let method =
            self.login.vault_auth_method.unwrap_or(if has_token { AuthMethod::Token } else { AuthMethod::Kubernetes });
        let mount = given(self.login.vault_auth_path.as_ref()).unwrap_or(method.name());
        Some(Flags {
            address: address.to_owned(),
            address_from,
            method,
            mount: mount.to_owned(),
            role: self.login.vault_role.clone(),
            token_file,
            role_id: self.login.vault_role_id.clone(),
            secret_id_file: self.login.vault_secret_id_file.clone(),
            jwt_file: self.login.vault_jwt_file.clone(),
            timeout: self.vault_timeout,
            rate: self.vault_rate,
            concurrency: self.vault_concurrency.min(open_files::for_one_server()),
            follow_redirects: self.vault_follow_redirects,
        })
    }

    /// The namespace in Vault that the original's address names: what it asks for stands behind that.
    pub fn namespace_of_url(&self) -> Option<&str> {
        split(given(self.vault_url.as_ref())?).1
    }

    /// How the specs of objects are read.
    pub fn settings(&self) -> Settings {
        Settings {
            every: self.vault_interval,
            restart_on_first_seen: self.restart_on_first_seen,
            allow_path: self.allow_path.clone(),
        }
    }
}

/// Credentials are not shown, and an address may have one in it.
impl fmt::Debug for VaultFlags {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(flags) = self.flags() else { return formatter.write_str("none") };
        formatter
            .debug_struct("VaultFlags")
            .field("address_from", &flags.address_from)
            .field("method", &flags.method)
            .field("mount", &flags.mount)
            .field("role", &flags.role)
            .field("token_file", &flags.token_file)
            .field("interval", &self.vault_interval)
            .field("allow_path", &self.allow_path.iter().map(ToString::to_string).collect::<Vec<_>>())
            .field("restart_on_first_seen", &self.restart_on_first_seen)
            .field("write_spec_timestamp", &self.write_spec_timestamp)
            .finish_non_exhaustive()
    }
}

fn given(text: Option<&String>) -> Option<&str> {
    text.map(|text| text.trim()).filter(|text| !text.is_empty())
}

/// Vault's own address, and the namespace after it.
fn split(url: &str) -> (&str, Option<&str>) {
    let Some((address, rest)) = url.split_once(ROUTES) else { return (url, None) };
    (address, Some(rest.trim_matches('/')).filter(|namespace| !namespace.is_empty()))
}

fn auth_method() -> impl TypedValueParser<Value = AuthMethod> {
    let methods = AuthMethod::ALL.map(|method| PossibleValue::new(method.name()).help(method.about()));
    PossibleValuesParser::new(methods).try_map(|name| name.parse())
}

fn above_zero(text: &str) -> Result<Duration, String> {
    let span = span(text).ok().and_then(|span| Duration::try_from(span).ok()).filter(|span| !span.is_zero());
    span.ok_or_else(|| "write a span of time above zero, such as 90s, 5m or 1h30m".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::config::Config;

    fn parse(arguments: &[&str]) -> VaultFlags {
        Config::try_parse_from(["x"].iter().chain(arguments)).unwrap().vault
    }

    #[test]
    fn without_an_address_vault_takes_no_part() {
        assert!(parse(&[]).flags().is_none());
        assert!(parse(&["--vault-url=", "--vault-addr= "]).flags().is_none());
    }

    #[test]
    fn addresses_as_the_original_takes_them() {
        for (url, address, namespace) in [
            ("https://vault/v1/", "https://vault", None),
            ("https://vault:8200/v1/team/a/", "https://vault:8200", Some("team/a")),
            ("https://proxy/vault/v1/", "https://proxy/vault", None),
            ("https://vault", "https://vault", None),
        ] {
            let flags = parse(&["--vault-addr=https://other", &format!("--vault-url={url}")]);
            let reached = flags.flags().unwrap();
            assert_eq!((&*reached.address, reached.address_from), (address, "VAULT_URL"), "{url}");
            assert_eq!(flags.namespace_of_url(), namespace, "{url}");
        }
    }

    #[test]
    fn logins() {
        let method = |arguments: &[&str]| {
            let flags = parse(&[&["--vault-addr=https://vault"], arguments].concat()).flags().unwrap();
            (flags.method, flags.mount)
        };
        assert_eq!(method(&["--vault-token-file=/t"]), (AuthMethod::Token, "token".to_owned()));
        let jwt = ["--vault-auth-method=jwt", "--vault-auth-path=oidc"];
        assert_eq!(method(&jwt), (AuthMethod::Jwt, "oidc".to_owned()));
        assert!(Config::try_parse_from(["x", "--vault-auth-method=magic"]).is_err());
        assert!(Config::try_parse_from(["x", "--vault-interval=0s"]).is_err());
    }

    #[test]
    fn nothing_secret_is_shown() {
        let flags = parse(&["--vault-addr=https://me:hunter2@vault", "--vault-role-id=hunter2"]);
        assert!(!format!("{flags:?}").contains("hunter2"));
    }
}
