//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::store::{Location, LocationError};

/// Keeps end-to-end encrypted secrets and tells clients of changes.
#[derive(Debug, Parser)]
#[command(name = "zopp-server", version)]
pub struct Arguments {
    /// Where the data is kept, such as `sqlite:///path/to/zopp.db?mode=rwc` [default: zopp.db in the working directory, made when
    /// missing]
    #[arg(long, global = true, env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,

    /// The same as a path (older spelling)
    #[arg(long, global = true, env = "ZOPP_DB_PATH", value_name = "PATH")]
    db: Option<String>,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve clients until SIGTERM or SIGINT
    Serve(ServeArguments),
    /// Let people in: invites to this server
    Invite {
        /// What to do with invites.
        #[command(subcommand)]
        command: InviteCommand,
    },
}

/// How to serve.
#[derive(Debug, Args)]
pub struct ServeArguments {
    /// Where clients connect (gRPC)
    #[arg(long, default_value = "0.0.0.0:50051", value_name = "HOST:PORT")]
    pub addr: String,

    /// Where /healthz and /readyz are (plain HTTP)
    #[arg(long, default_value = "0.0.0.0:8080", value_name = "HOST:PORT")]
    pub health_addr: String,

    /// Certificate chain (PEM); with --tls-key, turns TLS on
    #[arg(long, env = "ZOPP_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// Private key of the certificate (PEM)
    #[arg(long, env = "ZOPP_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Only clients with a certificate from this authority (PEM) are let in
    #[arg(long, env = "ZOPP_TLS_CLIENT_CA", value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,

    /// How changes are told between servers; this build has one server and its memory
    #[arg(long, env = "ZOPP_EVENTS_BACKEND", value_enum, default_value_t = EventsBackend::Auto)]
    pub events_backend: EventsBackend,
}

/// How changes are told between servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EventsBackend {
    /// What fits the database.
    Auto,
    /// Within this process.
    Memory,
    /// Through PostgreSQL.
    Postgres,
}

/// What to do with invites.
#[derive(Debug, Subcommand)]
pub enum InviteCommand {
    /// Make an invite and print its token
    Create {
        /// How long it can be used
        #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=87_600))]
        expires_hours: u32,
        /// Print the token and nothing else
        #[arg(long)]
        plain: bool,
    },
    /// List the invites made here
    List,
    /// Revoke an invite
    Revoke {
        /// Its token, or what `list` prints
        token: String,
    },
}

impl Arguments {
    /// Where the data is: the URL before the path before `zopp.db` in the working directory.
    pub fn location(&self) -> Result<Location, LocationError> {
        let text = self.database_url.as_deref().or(self.db.as_deref());
        Location::parse(text.unwrap_or("sqlite://zopp.db?mode=rwc"))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_database_may_be_named_before_and_after_the_command() {
        for line in [["zopp-server", "--db", "x.db", "serve"], ["zopp-server", "serve", "--db", "x.db"]] {
            let arguments = Arguments::try_parse_from(line).unwrap();
            assert_eq!(arguments.location().unwrap().path, PathBuf::from("x.db"));
        }
    }
}
