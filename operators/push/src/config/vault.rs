//! How Vault is reached.

use std::{fmt, num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::Args;
use konverge_runtime::open_files;
use konverge_vault::environment::{self, AuthMethod, Flags};

use super::values::file;

/// How Vault is reached. Variables of Vault's own programs set the rest.
#[derive(Debug, Clone, Args)]
#[allow(clippy::struct_field_names, reason = "a flag has the name of its field")]
pub struct VaultOptions {
    /// Address of Vault or OpenBao
    #[arg(long, env = "VAULT_ADDR", default_value = "http://vault:8200", value_name = "URL")]
    pub vault_addr: String,
    /// Role to log in as
    #[arg(long, env = "VAULT_ROLE", default_value = "vault-sync-operator")]
    pub vault_role: String,
    /// Mount of the login method, without auth/ [default: kubernetes, or what the method is called]
    #[arg(long, env = "VAULT_AUTH_PATH", value_name = "MOUNT")]
    pub vault_auth_path: Option<String>,
    /// How to log in
    #[arg(long, env = "VAULT_SYNC_VAULT_AUTH_METHOD", default_value = "kubernetes", value_parser = super::values::auth_method(), value_name = "METHOD")]
    pub vault_auth_method: AuthMethod,
    /// File with a token, for the method token [default: the variable `VAULT_TOKEN`]
    #[arg(long, env = "VAULT_SYNC_VAULT_TOKEN_FILE", value_name = "FILE")]
    pub vault_token_file: Option<PathBuf>,
    /// Id of the role, for the method approle
    #[arg(long, env = "VAULT_SYNC_VAULT_ROLE_ID", hide_env_values = true, value_name = "ID")]
    pub vault_role_id: Option<String>,
    /// File with the secret id, for the method approle
    #[arg(long, env = "VAULT_SYNC_VAULT_SECRET_ID_FILE", value_name = "FILE")]
    pub vault_secret_id_file: Option<PathBuf>,
    /// File with the token to log in with, for the methods kubernetes and jwt [default: that of the pod's service account]
    #[arg(long, env = "VAULT_SYNC_VAULT_JWT_FILE", value_name = "FILE")]
    pub vault_jwt_file: Option<PathBuf>,
    /// The longest time for one request to Vault, limits of ours included
    #[arg(long, env = "VAULT_CLIENT_TIMEOUT", default_value = "60s", value_parser = super::values::timeout, value_name = "TIME")]
    pub vault_timeout: Duration,
    /// Requests to Vault in a second; 0 is no limit [default: that of `VAULT_RATE_LIMIT`, else 500]
    #[arg(long, env = "VAULT_SYNC_VAULT_RATE", value_name = "NUMBER")]
    pub vault_rate: Option<u32>,
    /// Requests to Vault at the same time
    #[arg(long, env = "VAULT_SYNC_VAULT_CONCURRENCY", default_value = "32", value_name = "NUMBER")]
    pub vault_concurrency: NonZeroUsize,
    /// Follow redirects of Vault to other hosts, and send the token and the body there; needed for a standby that does not forward requests
    #[arg(long, env = "VAULT_SYNC_VAULT_FOLLOW_REDIRECTS")]
    pub vault_follow_redirects: bool,
}

impl VaultOptions {
    /// Returns an error if the login method lacks a setting.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.vault_auth_method {
            AuthMethod::AppRole if self.vault_role_id.is_none() => {
                Err("--vault-auth-method=approle needs --vault-role-id".to_owned())
            }
            AuthMethod::Token
                if self.vault_token_file.is_none()
                    && std::env::var_os("VAULT_TOKEN").is_none_or(|token| token.is_empty()) =>
            {
                Err("--vault-auth-method=token needs --vault-token-file or the variable VAULT_TOKEN".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Where the login method is mounted, without `auth/`.
    pub fn auth_path(&self) -> &str {
        let given = self.vault_auth_path.as_deref().filter(|path| !path.is_empty());
        given.unwrap_or(self.vault_auth_method.name())
    }

    /// The settings of the client of Vault.
    pub fn flags(&self) -> Flags {
        Flags {
            address: self.vault_addr.clone(),
            address_from: "--vault-addr",
            method: self.vault_auth_method,
            mount: self.auth_path().to_owned(),
            role: self.vault_role.clone(),
            token_file: self.vault_token_file.clone(),
            role_id: self.vault_role_id.clone(),
            secret_id_file: self.vault_secret_id_file.clone(),
            jwt_file: self.vault_jwt_file.clone(),
            timeout: self.vault_timeout,
            rate: self.vault_rate,
            concurrency: self.vault_concurrency.min(open_files::for_one_server()),
            follow_redirects: self.vault_follow_redirects,
        }
    }
}

/// Shows no secret: credentials are names of files or are not shown.
impl fmt::Display for VaultOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Taken apart so that a new setting is not forgotten here.
        let Self {
            vault_addr,
            vault_role,
            vault_auth_path: _,
            vault_auth_method,
            vault_token_file,
            vault_role_id: _,
            vault_secret_id_file,
            vault_jwt_file,
            vault_timeout,
            vault_rate,
            vault_concurrency,
            vault_follow_redirects,
        } = self;
        write!(formatter, "vault-addr={} ", environment::without_user(vault_addr))?;
        write!(formatter, "vault-auth-method={} ", vault_auth_method.name())?;
        match vault_auth_method {
            AuthMethod::Token => write!(formatter, "vault-token-file={} ", file(vault_token_file.as_ref()))?,
            AuthMethod::AppRole => {
                let file = file(vault_secret_id_file.as_ref());
                write!(formatter, "vault-auth-path={} vault-secret-id-file={file} ", self.auth_path())?;
            }
            AuthMethod::Kubernetes | AuthMethod::Jwt | AuthMethod::Cert => {
                let (path, file) = (self.auth_path(), file(vault_jwt_file.as_ref()));
                write!(formatter, "vault-auth-path={path} vault-role={vault_role} vault-jwt-file={file} ")?;
            }
        }
        let rate = vault_rate.map_or("default".to_owned(), |rate| rate.to_string());
        write!(formatter, "vault-timeout={}s vault-rate={rate} ", vault_timeout.as_secs_f64())?;
        write!(formatter, "vault-concurrency={vault_concurrency} vault-follow-redirects={vault_follow_redirects}")
    }
}
