//! The migrations from other tools. Pure: `konverge migrate` lists the objects and prints the result.

mod external_secrets;
mod parts;
mod vault_secrets_operator;
mod zopp;

use konverge_kubectl::Migration;

pub use self::{external_secrets::ExternalSecrets, vault_secrets_operator::VaultSecretsOperator, zopp::Zopp};

/// The tools that pull replaces.
pub const ALL: [&dyn Migration; 3] = [&Zopp, &ExternalSecrets, &VaultSecretsOperator];
