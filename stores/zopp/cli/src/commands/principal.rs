//! `zopp principal`: the identities of this device, and those of services in a workspace.

use clap::Subcommand;

use super::workspace::rotate::{DisableKeysArguments, RekeyArguments};
use crate::{context::Context, output::Outcome, scope::WorkspaceArguments};

mod administrators;
mod create;
mod disable;
mod local;
pub(super) mod pending;
mod register;
mod remote;
mod transfer;

const ENCRYPT_EXAMPLES: &str = "\
Examples:
  zopp principal encrypt-keys                   asks for a passphrase, and each command then does
  ZOPP_KEY_PASSPHRASE=… zopp secret get KEY

The file then protects its keys from those who copy it, such as a backup. Published clients and
operators cannot read it. Files of zopp principal create --credentials-file are never encrypted.";

/// `zopp principal`
#[derive(Debug, Subcommand)]
pub enum PrincipalCommand {
    /// List the principals of this device
    List,
    /// Print the name of the principal in use
    Current,
    /// Create a principal: another device of yours, or a service
    #[command(after_help = create::EXAMPLES)]
    Create(create::CreateArguments),
    /// Use another principal of this device
    Use {
        /// Its name
        name: String,
    },
    /// Rename a principal, here and on the server
    Rename {
        /// Its name
        name: String,
        /// The new one
        new_name: String,
    },
    /// Forget a principal of this device; the server still accepts its keys
    Delete {
        /// Its name
        name: String,
    },
    /// Put a principal of this device on the server, encrypted, for another device to import
    #[command(after_help = transfer::EXPORT_EXAMPLES)]
    Export(transfer::ExportArguments),
    /// Take over a principal that another device exported
    #[command(after_help = transfer::IMPORT_EXAMPLES)]
    Import(transfer::ImportArguments),
    /// Encrypt the private keys in this device's file with a passphrase, which each command then needs
    #[command(after_help = ENCRYPT_EXAMPLES)]
    EncryptKeys,
    /// Store the private keys in this device's file as they are
    DecryptKeys,
    /// List the service principals of a workspace with their roles
    ServiceList {
        /// The workspace
        #[command(flatten)]
        workspace: WorkspaceArguments,
    },
    /// Take a workspace from a principal: its key, its roles, and from a person's device the access. Then replace the keys
    WorkspaceRemove {
        /// The workspace
        #[command(flatten)]
        workspace: WorkspaceArguments,
        /// The principal's ID
        #[arg(long, value_name = "UUID")]
        principal: String,
        /// The keys afterwards
        #[command(flatten)]
        keys: RekeyArguments,
    },
    /// Show the fingerprint of a principal's keys, for the one who gives it access to a workspace
    Fingerprint {
        /// A principal of this device [default: the current one]
        name: Option<String>,
    },
    /// Cut a principal off everywhere at once: a lost device of yours, a service
    #[command(
        after_help = "Examples:\n  zopp principal disable --principal 0190…57\n  zopp principal disable --principal 0190…57 --rotate-keys\n\nA device is disabled by another device of the \
                            same user that has no ceiling, a service by an\nadmin of every workspace that it is in. The server's \
                            operator can disable any.\n\nWith --rotate-keys, the command ends with 1 if the key of a workspace that this \
                            device has pinned\nstays on the server's word, which may be a lie. --keep-keys-of names\na workspace whose key the principal never had."
    )]
    Disable {
        /// The principal's ID
        #[arg(long, value_name = "UUID")]
        principal: String,
        /// Also if it holds the last copy of some workspace's key
        #[arg(long)]
        even_if_last_key: bool,
        /// The keys afterwards
        #[command(flatten)]
        keys: DisableKeysArguments,
    },
    /// Let a disabled principal in again
    Enable {
        /// The principal's ID
        #[arg(long, value_name = "UUID")]
        principal: String,
    },
    /// Take all roles in a workspace away from a principal; a person's device then has its user's role
    RevokeAll {
        /// The workspace
        #[command(flatten)]
        workspace: WorkspaceArguments,
        /// The principal's ID
        #[arg(long, value_name = "UUID")]
        principal: String,
    },
}

pub(super) async fn execute(context: &Context, command: PrincipalCommand) -> Outcome {
    match command {
        PrincipalCommand::List => local::list(),
        PrincipalCommand::Current => local::current(),
        PrincipalCommand::Fingerprint { name } => local::fingerprint(name.as_deref()),
        PrincipalCommand::EncryptKeys => local::encrypt_keys(),
        PrincipalCommand::DecryptKeys => local::decrypt_keys(),
        PrincipalCommand::Use { name } => local::switch_to(&name),
        PrincipalCommand::Delete { name } => local::delete(&name),
        PrincipalCommand::Rename { name, new_name } => remote::rename(context, &name, new_name).await,
        PrincipalCommand::Create(arguments) => create::execute(context, arguments).await,
        PrincipalCommand::Export(arguments) => transfer::export(context, arguments).await,
        PrincipalCommand::Import(arguments) => transfer::import(context, arguments).await,
        PrincipalCommand::ServiceList { workspace } => remote::service_list(context, workspace.resolve()?).await,
        PrincipalCommand::WorkspaceRemove { workspace, principal, keys } => {
            remote::workspace_remove(context, workspace.resolve()?, principal, keys).await
        }
        PrincipalCommand::Disable { principal, even_if_last_key, keys } => {
            disable::disable(context, principal, even_if_last_key, keys).await
        }
        PrincipalCommand::Enable { principal } => disable::enable(context, principal).await,
        PrincipalCommand::RevokeAll { workspace, principal } => {
            remote::revoke_all(context, workspace.resolve()?, principal).await
        }
    }
}
