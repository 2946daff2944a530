//! How much one caller, and one environment, may use. Nobody can stop the server for others.

use clap::Args;

/// How much one caller, and one environment, may use. Each limit is named in the refusal that it causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
pub struct Limits {
    /// Bytes of a value
    #[arg(long = "max-value-bytes", env = "ZOPP_MAX_VALUE_BYTES", value_name = "BYTES", default_value_t = 2 * 1024 * 1024,
          value_parser = clap::value_parser!(u32).range(1..=MAXIMUM_VALUE))]
    pub value_bytes: u32,

    /// Keys of an environment
    #[arg(
        long = "max-environment-keys",
        env = "ZOPP_MAX_ENVIRONMENT_KEYS",
        value_name = "NUMBER",
        default_value_t = 20_000
    )]
    pub environment_keys: u32,

    /// Bytes of all encrypted values of an environment; a list of it takes as much memory, and that of one value more
    #[arg(long = "max-environment-bytes", env = "ZOPP_MAX_ENVIRONMENT_BYTES", value_name = "BYTES",
          default_value_t = 8 * 1024 * 1024)]
    pub environment_bytes: u32,

    /// Earlier values that are kept of each key, also of a deleted one; 0 keeps none and erases those that were kept
    #[arg(
        long = "max-history-versions",
        env = "ZOPP_MAX_HISTORY_VERSIONS",
        value_name = "NUMBER",
        default_value_t = 10
    )]
    pub history_versions: u32,

    /// Bytes of all earlier values of an environment, each counted with 256 bytes more; the oldest ones are erased beyond it
    #[arg(long = "max-history-bytes", env = "ZOPP_MAX_HISTORY_BYTES", value_name = "BYTES",
          default_value_t = 32 * 1024 * 1024)]
    pub history_bytes: u32,

    /// Projects of a workspace
    #[arg(long = "max-projects", env = "ZOPP_MAX_PROJECTS", value_name = "NUMBER", default_value_t = 1000)]
    pub projects: u32,

    /// Environments of a workspace
    #[arg(long = "max-environments", env = "ZOPP_MAX_ENVIRONMENTS", value_name = "NUMBER", default_value_t = 2000)]
    pub environments: u32,

    /// Workspaces that a user owns
    #[arg(long = "max-workspaces", env = "ZOPP_MAX_WORKSPACES", value_name = "NUMBER", default_value_t = 100)]
    pub workspaces: u32,

    /// Invites of a user that are open
    #[arg(long = "max-invites", env = "ZOPP_MAX_INVITES", value_name = "NUMBER", default_value_t = 1000)]
    pub invites: u32,

    /// Principals of a user, and service principals of a workspace
    #[arg(long = "max-principals", env = "ZOPP_MAX_PRINCIPALS", value_name = "NUMBER", default_value_t = 1000)]
    pub principals: u32,

    /// Watches that a principal has open
    #[arg(long = "max-watches", env = "ZOPP_MAX_WATCHES", value_name = "NUMBER", default_value_t = 2000)]
    pub watches: u32,

    /// Groups of a workspace
    #[arg(long = "max-groups", env = "ZOPP_MAX_GROUPS", value_name = "NUMBER", default_value_t = 1000)]
    pub groups: u32,

    /// Exports of a user's principals that are open
    #[arg(long = "max-exports", env = "ZOPP_MAX_EXPORTS", value_name = "NUMBER", default_value_t = 100)]
    pub exports: u32,

    /// Requests of a principal that are under way
    #[arg(long = "max-requests", env = "ZOPP_MAX_REQUESTS", value_name = "NUMBER", default_value_t = 256)]
    pub requests: u32,

    /// Bytes that all requests take together until their clients took the answers, each counted with 8 KiB more
    #[arg(long = "max-request-bytes", env = "ZOPP_MAX_REQUEST_BYTES", value_name = "BYTES",
          default_value_t = 16 * 1024 * 1024, value_parser = clap::value_parser!(u32).range(MINIMUM_INTAKE..))]
    pub request_bytes: u32,

    /// Bytes that the requests from one address take, counted in the same way
    #[arg(long = "max-request-bytes-per-address", env = "ZOPP_MAX_REQUEST_BYTES_PER_ADDRESS", value_name = "BYTES",
          default_value_t = 10 * 1024 * 1024, value_parser = clap::value_parser!(u32).range(MINIMUM_INTAKE..))]
    pub request_bytes_per_address: u32,

    /// Bytes that all large answers take together until their clients took them, of which an address gets half; answers wait for room
    #[arg(long = "max-answer-bytes", env = "ZOPP_MAX_ANSWER_BYTES", value_name = "BYTES",
          default_value_t = 20 * 1024 * 1024, value_parser = clap::value_parser!(u32).range(MINIMUM_ANSWER..))]
    pub answer_bytes: u32,

    /// Calls without a signature (joining, looking an invite up) from one address within a minute
    #[arg(long = "max-open-calls", env = "ZOPP_MAX_OPEN_CALLS", value_name = "NUMBER", default_value_t = 600,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub open_calls: u32,

    /// Connections of all clients
    #[arg(long = "max-connections", env = "ZOPP_MAX_CONNECTIONS", value_name = "NUMBER", default_value_t = 800)]
    pub connections: u32,

    /// Connections from one address that is no --trusted-proxy
    #[arg(
        long = "max-connections-per-address",
        env = "ZOPP_MAX_CONNECTIONS_PER_ADDRESS",
        value_name = "NUMBER",
        default_value_t = 200
    )]
    pub connections_per_address: u32,

    /// Changes that a principal makes, or tries to make, within 91 seconds: so long signatures are remembered
    #[arg(long = "max-changes", env = "ZOPP_MAX_CHANGES", value_name = "NUMBER", default_value_t = 32_768)]
    pub changes: u32,

    /// Calls of a principal that only read, within a minute
    #[arg(long = "max-reads", env = "ZOPP_MAX_READS", value_name = "NUMBER", default_value_t = 60_000,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub reads: u32,
}

/// A request with a larger value does not arrive: 4 MiB are read at most.
const MAXIMUM_VALUE: i64 = 4 * 1024 * 1024 - 128 * 1024;

/// The largest request, which has many keys and a manifest, fits in with its base.
const MINIMUM_INTAKE: i64 = 8 * 1024 * 1024 + 64 * 1024;

/// The largest value fits into the half of an address, in both forms that an answer has.
const MINIMUM_ANSWER: i64 = 4 * MAXIMUM_VALUE;

impl Default for Limits {
    fn default() -> Self {
        Self {
            value_bytes: 2 * 1024 * 1024,
            environment_keys: 20_000,
            environment_bytes: 8 * 1024 * 1024,
            history_versions: 10,
            history_bytes: 32 * 1024 * 1024,
            projects: 1000,
            environments: 2000,
            workspaces: 100,
            invites: 1000,
            principals: 1000,
            groups: 1000,
            exports: 100,
            watches: 2000,
            requests: 256,
            request_bytes: 16 * 1024 * 1024,
            request_bytes_per_address: 10 * 1024 * 1024,
            answer_bytes: 20 * 1024 * 1024,
            open_calls: 600,
            connections: 800,
            connections_per_address: 200,
            changes: 32_768,
            reads: 60_000,
        }
    }
}

/// A limit that a caller reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the limit of {limit} {what} is reached ({flag})")]
pub struct Reached {
    /// The exceeded quantity, with its place.
    pub what: &'static str,
    /// How much there may be.
    pub limit: u32,
    /// The flag of the server that sets it.
    pub flag: &'static str,
}

impl Reached {
    /// The name of the limit in metrics: its flag, or `built-in` if no flag sets it.
    pub(crate) fn name(&self) -> &'static str {
        if self.flag.starts_with("--") { self.flag } else { "built-in" }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        limits: Limits,
    }

    #[test]
    fn the_command_line_and_the_program_have_the_same_defaults() {
        assert_eq!(Line::try_parse_from(["x"]).unwrap().limits, Limits::default());
        assert!(Line::try_parse_from(["x", "--max-value-bytes", "4194304"]).is_err());
    }
}
