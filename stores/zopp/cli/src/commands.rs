//! One module per noun. Each reads its arguments, makes its calls and gives back one answer.

use clap::Subcommand;

use crate::{context::Context, output::Outcome, scope::EnvironmentArguments, server::ServerArguments};

pub mod audit;
pub mod completions;
mod device;
pub mod environment;
pub mod group;
pub mod invite;
pub mod join;
pub mod k8s;
pub mod permission;
pub mod principal;
pub mod project;
pub mod run;
pub mod secret;
pub mod status;
pub mod user;
pub mod workspace;
mod wrapped;

/// The nouns.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Join a server or a workspace with an invite
    Join(join::JoinArguments),
    /// Workspaces: people and projects that share keys
    #[command(subcommand)]
    Workspace(workspace::WorkspaceCommand),
    /// Principals: the identities of this device and of services
    #[command(subcommand)]
    Principal(principal::PrincipalCommand),
    /// Your user on the server
    #[command(subcommand)]
    User(user::UserCommand),
    /// Projects of a workspace
    #[command(subcommand)]
    Project(project::ProjectCommand),
    /// Environments of a project
    #[command(subcommand)]
    Environment(environment::EnvironmentCommand),
    /// Secrets of an environment
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Invites to a workspace
    #[command(subcommand)]
    Invite(invite::InviteCommand),
    /// Roles of principals and users
    #[command(subcommand)]
    Permission(permission::PermissionCommand),
    /// Groups of users, and their roles
    #[command(subcommand)]
    Group(group::GroupCommand),
    /// Read the audit log of a workspace
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Write an environment into something else, once
    #[command(subcommand)]
    Sync(k8s::SyncCommand),
    /// Compare an environment with something else
    #[command(subcommand)]
    Diff(k8s::DiffCommand),
    /// Ask the server who you are
    Whoami,
    /// Show which server, principal and environment commands are about, and whether they work; exit code 1 if not
    Status(EnvironmentArguments),
    /// Print a script by which a shell completes the command line
    #[command(after_help = completions::EXAMPLES)]
    Completions(completions::CompletionsArguments),
    /// Run a command with an environment's secrets in its environment
    Run(run::RunArguments),
}

impl Command {
    /// Returns `true` if the command only reads values or state, and changes neither the server nor this device.
    fn only_reads(&self) -> bool {
        use secret::SecretCommand;
        match self {
            Self::Run(_) | Self::Whoami | Self::Status(_) | Self::Diff(_) => true,
            Self::Secret(command) => {
                matches!(command, SecretCommand::Get(_) | SecretCommand::List(_) | SecretCommand::Export(_))
            }
            _ => false,
        }
    }
}

/// Runs one command, and saves the facts that it learnt about the server. `line` is the whole command line, for the completions of a shell.
pub async fn execute(
    server: ServerArguments,
    command: Command,
    line: clap::Command,
    kubernetes: &impl k8s::Kubernetes,
) -> Outcome {
    let context = Context::new(server);
    context.check_file_mode()?;
    let only_reads = command.only_reads();
    let outcome = dispatch(&context, command, line, kubernetes).await;
    let remembered = if only_reads { context.remember_if_writable() } else { context.remember() };
    match (remembered, outcome) {
        (Ok(()), outcome) => outcome,
        (Err(failure), Ok(_)) => Err(failure),
        (Err(also), Err(failure)) => {
            eprintln!("Warning: {}", also.text());
            Err(failure)
        }
    }
}

async fn dispatch(
    context: &Context,
    command: Command,
    line: clap::Command,
    kubernetes: &impl k8s::Kubernetes,
) -> Outcome {
    match command {
        Command::Join(arguments) => join::execute(context, arguments).await,
        Command::Workspace(command) => workspace::execute(context, command).await,
        Command::Principal(command) => principal::execute(context, command).await,
        Command::User(command) => user::execute(context, command).await,
        Command::Project(command) => project::execute(context, command).await,
        Command::Environment(command) => environment::execute(context, command).await,
        Command::Secret(command) => secret::execute(context, command).await,
        Command::Invite(command) => invite::execute(context, command).await,
        Command::Permission(command) => permission::execute(context, command).await,
        Command::Group(command) => group::execute(context, command).await,
        Command::Audit(command) => audit::execute(context, command).await,
        Command::Sync(command) => k8s::sync(kubernetes, context, command).await,
        Command::Diff(command) => k8s::diff(kubernetes, context, command).await,
        Command::Whoami => status::whoami(context).await,
        Command::Status(environment) => status::status(context, environment).await,
        Command::Completions(arguments) => completions::execute(&arguments, line),
        Command::Run(arguments) => run::execute(context, arguments).await,
    }
}
