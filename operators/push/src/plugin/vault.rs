//! A person's own way to Vault, as Vault's command line has it.

use std::{ffi::OsString, path::PathBuf};

use konverge_kubectl::Failure;
use konverge_vault::{Vault, environment};
use konverge_version::variables;

use crate::config::Config;

/// The file in which `vault login` leaves the token.
const TOKEN_FILE: &str = ".vault-token";

/// Whether the person has named a Vault.
pub(super) fn is_named() -> bool {
    is_set("VAULT_ADDR")
}

/// Vault at `VAULT_ADDR`, with the token of `VAULT_TOKEN` or of `~/.vault-token`; the rest as in the variables of Vault's own programs.
pub(super) fn own() -> Result<Vault, Failure> {
    let address = std::env::var("VAULT_ADDR").ok().filter(|address| !address.trim().is_empty());
    let Some(address) = address else {
        return Err(Failure::Failed(
            "cannot ask Vault: set VAULT_ADDR to its address, and log in with: vault login".to_owned(),
        ));
    };
    let mut arguments =
        vec!["kubectl-konverge".into(), flag("--vault-addr", address), "--vault-auth-method=token".into()];
    if !is_set("VAULT_TOKEN") {
        let file = std::env::home_dir().map(|home| home.join(TOKEN_FILE)).filter(|file| file.is_file());
        let Some(file) = file else {
            return Err(Failure::Failed(format!(
                "cannot ask Vault: there is neither VAULT_TOKEN nor ~/{TOKEN_FILE}; log in with: vault login"
            )));
        };
        arguments.push(flag("--vault-token-file", PathBuf::into_os_string(file)));
    }
    let config: Config =
        variables::parse_from(arguments).map_err(|error: clap::Error| Failure::Usage(error.to_string()))?;
    let access = environment::access(&config.vault.flags())
        .map_err(|error| Failure::Failed(format!("cannot ask Vault: {}", konverge_core::error::in_one_line(&error))))?;
    for warning in access.warnings {
        eprintln!("warning: {}", warning.replace("--vault-addr", "VAULT_ADDR"));
    }
    Ok(Vault::new(&access.vault))
}

fn is_set(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| !value.trim().is_empty())
}

fn flag(name: &str, value: impl Into<OsString>) -> OsString {
    let mut flag = OsString::from(name);
    flag.push("=");
    flag.push(value.into());
    flag
}
