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
    /// Returns `true` if the command is there to change the file of this device: its principals, and decisions about keys that the next
    /// command could not make again. Other commands only learn pins, which the next command learns again.
    fn changes_device(&self) -> bool {
        use principal::PrincipalCommand;
        use workspace::WorkspaceCommand;
        match self {
            Self::Join(_) | Self::User(_) => true,
            Self::Workspace(command) => match command {
                WorkspaceCommand::Create { .. }
                | WorkspaceCommand::Fingerprint { pin: Some(_), .. }
                | WorkspaceCommand::GrantPrincipalAccess { .. }
                | WorkspaceCommand::RotateKey(_)
                | WorkspaceCommand::RemoveMember { .. } => true,
                WorkspaceCommand::List
                | WorkspaceCommand::Fingerprint { pin: None, .. }
                | WorkspaceCommand::Delete { .. }
                | WorkspaceCommand::Transfer { .. } => false,
            },
            Self::Principal(command) => match command {
                PrincipalCommand::Create(_)
                | PrincipalCommand::Use { .. }
                | PrincipalCommand::Rename { .. }
                | PrincipalCommand::Delete { .. }
                | PrincipalCommand::Import(_)
                | PrincipalCommand::EncryptKeys
                | PrincipalCommand::DecryptKeys
                | PrincipalCommand::WorkspaceRemove { .. }
                | PrincipalCommand::Disable { .. }
                | PrincipalCommand::Enable { .. } => true,
                PrincipalCommand::List
                | PrincipalCommand::Current
                | PrincipalCommand::Export(_)
                | PrincipalCommand::ServiceList { .. }
                | PrincipalCommand::Fingerprint { .. }
                | PrincipalCommand::RevokeAll { .. } => false,
            },
            // What an environment may be used for here is in a file of its own.
            Self::Environment(_)
            | Self::Project(_)
            | Self::Secret(_)
            | Self::Invite(_)
            | Self::Permission(_)
            | Self::Group(_)
            | Self::Audit(_)
            | Self::Sync(_)
            | Self::Diff(_)
            | Self::Whoami
            | Self::Status(_)
            | Self::Completions(_)
            | Self::Run(_) => false,
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
    let changes_device = command.changes_device();
    let outcome = dispatch(&context, command, line, kubernetes).await;
    let remembered = if changes_device { context.remember() } else { context.remember_if_writable() };
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

#[cfg(test)]
mod tests {
    use crate::arguments::Arguments;

    fn changes_device(line: &str) -> bool {
        let words = ["zopp"].into_iter().chain(line.split_whitespace());
        <Arguments as clap::Parser>::try_parse_from(words).unwrap().command.changes_device()
    }

    /// A container mounts the file read-only, and writes a Secret or a value.
    #[test]
    fn only_commands_for_this_device_need_its_file_writable() {
        for line in [
            "secret set K v",
            "secret history K",
            "secret list",
            "secret import",
            "sync k8s --namespace n --secret s",
            "diff k8s --namespace n --secret s",
            "workspace list",
            "workspace fingerprint",
            "project list",
            "environment create dev",
            "permission list",
            "invite create",
            "audit list",
            "principal list",
            "run true",
        ] {
            assert!(!changes_device(line), "{line}");
        }
        for line in [
            "join code a@b.c",
            "workspace create acme",
            "workspace rotate-key",
            "workspace remove-member a@b.c",
            "principal disable --principal 1",
            "principal use laptop",
            "user remove a@b.c",
        ] {
            assert!(changes_device(line), "{line}");
        }
    }
}
