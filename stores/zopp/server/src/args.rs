//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use konverge_version::variables;

use crate::{
    address::TrustedProxy,
    limits::Limits,
    policy::{MemberRole, Policy},
    serve::TlsFiles,
    store::{Location, LocationError},
};

/// Keeps end-to-end encrypted secrets and tells clients of changes.
#[derive(Debug, Parser)]
#[command(name = "zopp-server", version = konverge_version::line())]
pub struct Arguments {
    /// Where the data is kept, such as `sqlite:///path/to/zopp.db?mode=rwc` or `postgres://user@host/database` [default: zopp.db in the working directory, made when
    /// missing]
    #[arg(long, global = true, env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,

    /// The same as a path (older spelling)
    #[arg(long, global = true, env = "ZOPP_DB_PATH", value_name = "PATH")]
    db: Option<String>,

    /// Form of the log lines on standard error; how many there are is up to `RUST_LOG`
    #[arg(long, global = true, env = "ZOPP_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Form of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// The commands of the server.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve clients until SIGTERM or SIGINT
    Serve(Box<ServeArguments>),
    /// Print the command by which the first user joins; makes the database if there is none
    Init(InitArguments),
    /// Look for what would keep the server from serving well, with the arguments of serve; exit code 1 if there is something
    Doctor(Box<ServeArguments>),
    /// Write a copy of the whole database into a new file, while servers go on
    Backup {
        /// The file to make; only this user can read it
        file: PathBuf,
    },
    /// Read a backup into a new database, whose kind may be another; the server must be stopped
    Restore(RestoreArguments),
    /// Read a database of the original zopp-server into a new one; the original's is not changed
    Import {
        /// The original's database, such as `sqlite:///path/to/zopp.db` or `postgres://user@host/database`
        #[arg(long, env = "ZOPP_IMPORT_FROM", hide_env_values = true, value_name = "URL")]
        from: String,
    },
    /// Let people in: invites to this server
    Invite {
        /// The command about invites.
        #[command(subcommand)]
        command: InviteCommand,
    },
    /// Cut a principal off, or let it in again; a running server notices within half a minute
    Principal {
        /// The command about principals.
        #[command(subcommand)]
        command: PrincipalCommand,
    },
    /// Remove users
    User {
        /// The command about users.
        #[command(subcommand)]
        command: UserCommand,
    },
    /// Read what was done and attempted, in all workspaces and outside of them
    Audit {
        /// The command about the audit log.
        #[command(subcommand)]
        command: AuditCommand,
    },
}

/// For the first user.
#[derive(Debug, Args)]
pub struct InitArguments {
    /// Address of this server as the user's machine reaches it
    #[arg(long, env = "ZOPP_SERVER", value_name = "URL", default_value = "http://127.0.0.1:50051")]
    pub server: String,
    /// The user's e-mail address
    #[arg(long, default_value = "<your e-mail address>")]
    pub email: String,
    /// How long the command can be used
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=87_600))]
    pub expires_hours: u32,
}

/// The source and the target of a restore.
#[derive(Debug, Args)]
pub struct RestoreArguments {
    /// The file that backup wrote
    #[arg(required_unless_present = "in_place", conflicts_with = "in_place")]
    pub file: Option<PathBuf>,
    /// The database was restored by other means, or lost commits in a fail-over: only move the versions of its environments past all that clients may
    /// have seen
    #[arg(long)]
    pub in_place: bool,
}

/// The commands about the audit log.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Print entries as JSON lines, oldest first
    Export {
        /// Only from this time on (RFC 3339)
        #[arg(long, value_name = "TIME")]
        from: Option<jiff::Timestamp>,
        /// Only before this time (RFC 3339)
        #[arg(long, value_name = "TIME")]
        to: Option<jiff::Timestamp>,
    },
}

/// How to serve.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
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

    /// Let anybody who reaches this server become a user without an invite (dangerous)
    #[arg(long, env = "ZOPP_OPEN_REGISTRATION")]
    pub open_registration: bool,

    /// Take only keys whose possession is proven; stock clients cannot prove it and are refused
    #[arg(long, env = "ZOPP_REQUIRE_KEY_PROOF")]
    pub require_key_proof: bool,

    /// For how many hours an invite to a workspace can be good at most
    #[arg(long, env = "ZOPP_INVITE_MAX_HOURS", value_name = "HOURS", default_value_t = Policy::INVITE_MAX_HOURS,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub invite_max_hours: u32,

    /// Serve clients of the first generation (zopp 0.1.1), whose signatures cover nothing but the time (dangerous)
    #[arg(long, env = "ZOPP_ALLOW_V1")]
    pub allow_v1: bool,

    /// With --allow-v1: the role that each member of a workspace has without any grant, because 0.1.1 knows no roles. The database keeps it for
    /// all replicas [default: as kept, else write]
    #[arg(long, env = "ZOPP_V1_MEMBER_ROLE", value_enum)]
    pub v1_member_role: Option<MemberRole>,

    /// Proxy, or network of proxies, whose word about the address of a client is taken (X-Forwarded-For); may be given repeatedly
    #[arg(long = "trusted-proxy", env = "ZOPP_TRUSTED_PROXIES", value_name = "ADDRESS[/BITS]", value_delimiter = ',')]
    pub trusted_proxies: Vec<TrustedProxy>,

    /// How much one caller, and one environment, may use.
    #[command(flatten, next_help_heading = "Limits")]
    pub limits: Limits,

    /// Fail a read whose audit row cannot be written; each read then waits for the disk
    #[arg(long, env = "ZOPP_AUDIT_REQUIRED")]
    pub audit_required: bool,

    /// For how many minutes equal reads of a service share one audit row, which counts them; 0 gives each its own
    #[arg(long, env = "ZOPP_AUDIT_FOLD_MINUTES", value_name = "MINUTES", default_value_t = 60)]
    pub audit_fold_minutes: u32,

    /// Delete audit rows after so many days [default: never]
    #[arg(long, env = "ZOPP_AUDIT_RETENTION_DAYS", value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    pub audit_retention_days: Option<u32>,

    /// How replicas tell each other of changes; auto takes PostgreSQL where an address of one is given
    #[arg(long, env = "ZOPP_EVENTS_BACKEND", value_enum, default_value_t = EventsBackend::Auto)]
    pub events_backend: EventsBackend,

    /// PostgreSQL by which replicas tell each other of changes [default: the database, if it is PostgreSQL]
    #[arg(long, env = "ZOPP_EVENTS_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub events_database_url: Option<String>,
}

/// How changes are told between servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EventsBackend {
    /// The backend that fits the database.
    Auto,
    /// Within this process.
    Memory,
    /// Through PostgreSQL.
    Postgres,
}

/// How many may join by an invite; `None` without a limit.
type MaxUses = Option<u32>;

fn parse_uses(text: &str) -> Result<MaxUses, &'static str> {
    match text.parse() {
        Ok(number @ 1..) => Ok(Some(number)),
        _ if text == "unlimited" => Ok(None),
        _ => Err("a number from 1, or \"unlimited\", is expected"),
    }
}

/// The commands about invites.
#[derive(Debug, Subcommand)]
pub enum InviteCommand {
    /// Make an invite and print its token
    Create {
        /// How long it can be used
        #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=87_600))]
        expires_hours: u32,
        /// How many may join by it, or "unlimited"
        #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = parse_uses)]
        uses: MaxUses,
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

/// The commands about principals.
#[derive(Debug, Subcommand)]
pub enum PrincipalCommand {
    /// Accept nothing from it any more
    Disable {
        /// Its id
        id: String,
        /// Also if it holds the last copy of some workspace's key
        #[arg(long)]
        even_if_last_key: bool,
    },
    /// Accept requests from it again
    Enable {
        /// Its id
        id: String,
    },
}

/// The commands about users.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Remove a user with all its principals; one who owns a workspace is refused
    Remove {
        /// The e-mail address
        email: String,
    },
}

impl ServeArguments {
    /// With what to speak TLS.
    pub fn tls(&self) -> TlsFiles {
        TlsFiles {
            certificate: self.tls_cert.clone(),
            key: self.tls_key.clone(),
            client_authority: self.tls_client_ca.clone(),
        }
    }
}

impl Arguments {
    /// Parses the arguments of this process. Prints help, the version or an error, and exits, like `clap::Parser::parse`.
    pub fn of_process() -> Self {
        variables::parse_from(std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

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
            assert_eq!(arguments.location(), Ok(Location::file("x.db")));
        }
    }
}
