//! Every developer command. `cargo xtask help` lists them; CI calls the same ones.

// The test kit's, so that the demo's servers are built while cargo builds our programs, into the same cache.
#[path = "../../crates/konverge-testkit/src/assets.rs"]
#[expect(dead_code, unreachable_pub, reason = "a library has these, and only the build is used here")]
mod assets;
#[path = "../../crates/konverge-testkit/src/build.rs"]
#[expect(dead_code, unreachable_pub, reason = "a library has these, and only the build is used here")]
mod build;
mod ci;
mod cluster;
mod commit;
mod dist;
mod docs;
// The test kit's, so that there is one rule for the cache and one name for each variable; depending on the kit would have every
// command compile a Kubernetes client first.
#[path = "../../crates/konverge-testkit/src/environment.rs"]
mod environment;
mod generate;
mod image;
mod kubernetes;
mod metadata;
mod openbao;
mod openzro;
mod outside;
mod paths;
mod postgres;
// The test kit's, so that setup looks where tests look.
#[path = "../../stores/zopp/testing/src/postgres/programs.rs"]
mod postgres_programs;
mod published;
mod recipes;
mod semver;
mod space;
mod step;
mod testing;
mod tidy;
mod tools;
// The test kit's.
#[cfg(test)]
#[path = "../../crates/konverge-testkit/src/written_program.rs"]
#[expect(unreachable_pub, reason = "a library has it")]
mod written_program;
mod zopp;

use std::{num::NonZero, process::ExitCode};

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

/// Every developer command of Konverge.
#[derive(Parser)]
#[command(name = "cargo xtask", max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the main job on real parts, and tell what happened and after how many milliseconds
    Demo {
        #[command(flatten)]
        cluster: Cluster,
        /// Leave everything running until Ctrl-C, and print how to talk to it
        #[arg(long)]
        keep: bool,
    },
    /// Everything a developer must pass, against real parts
    Test {
        #[command(flatten)]
        cluster: Cluster,
        /// Unit tests only: seconds after a build
        #[arg(long)]
        quick: bool,
        /// Test programs at the same time; fewer need less memory [default: 2, or 1 in a cluster that you name]
        #[arg(long, value_name = "NUMBER", conflicts_with = "quick")]
        programs: Option<NonZero<usize>>,
        /// Only tests whose name contains this
        filter: Option<String>,
    },
    /// The tests that talk to Vault, with an OpenBao in its place: the one that `BAO_BIN` names, else one that is built, once
    Openbao {
        /// Only tests whose name contains this
        filter: Option<String>,
    },
    /// The tests of the chart and the tutorials on the supported minor versions of Kubernetes before the newest one, which are built, once
    Kubernetes {
        /// Only tests whose name contains this
        filter: Option<String>,
    },
    /// The contract of openZro's management API, on the double and on the real server where this machine has one
    Openzro {
        /// Run it on the real server and write what it answered into the record that the double is held to
        #[arg(long)]
        record: bool,
    },
    /// The published server, command line and operator of zopp beside ours; builds them, once, from the crate registry
    Zopp {
        /// Write the record of the run
        #[arg(long)]
        record: bool,
    },
    /// Figures, as ratios of one run, from an optimised build
    Bench {
        /// Handed to the benchmark; see `cargo xtask bench -- --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Draw the shipped dashboards from a real run of the operators, with a real Prometheus, which is built once, from Go modules
    Dashboards {
        /// For the program; see `cargo xtask dashboards -- --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// All that CI asks for: tidy, fmt, unused, deny, lint, a crate outside, semver, generated files, test
    Ci,
    /// Build the test control plane and a Vault into the cache; the other commands do it when it is missing
    Setup,
    /// Format the code
    Fmt {
        /// Change nothing; fail if something would change
        #[arg(long)]
        check: bool,
    },
    /// Write the manifests and reference pages that our programs generate out of themselves
    Generate {
        /// Change nothing; fail if something would change
        #[arg(long)]
        check: bool,
    },
    /// Make images without a container daemon: static programs by default, non-root, with a bill of materials
    Image {
        /// For which machine, such as x86_64-unknown-linux-musl or aarch64-unknown-linux-musl; may be repeated; `host` is this machine with its own
        /// C library [default: this machine's architecture with musl]
        #[arg(long = "target", value_name = "TARGET")]
        targets: Vec<String>,
        /// How programs are built
        #[arg(long, default_value = "release")]
        profile: String,
        /// The folder for layout and root filesystems [default: target/image]
        #[arg(long, value_name = "FOLDER")]
        into: Option<std::path::PathBuf>,
    },
    /// Make the files of a release: archives with completions and man pages, the chart, checksums, and a manifest for krew
    Dist {
        /// For which machine, as for `image`; may be repeated [default: this machine's architecture with musl]
        #[arg(long = "target", value_name = "TARGET")]
        targets: Vec<String>,
        /// How programs are built
        #[arg(long, default_value = "release")]
        profile: String,
        /// The address at which the files will be; without it there is no manifest for krew
        #[arg(long, value_name = "URL")]
        url: Option<String>,
        /// The folder [default: target/dist]
        #[arg(long, value_name = "FOLDER")]
        into: Option<std::path::PathBuf>,
    },
    /// Build the site of the docs with mdBook, which is itself built once per machine
    Docs {
        /// The folder [default: target/docs]
        #[arg(long, value_name = "FOLDER")]
        into: Option<std::path::PathBuf>,
    },
    /// Clippy with warnings denied, and the docs
    Lint,
    /// Walls between the rooms, mains without logic, and tests and links in the docs
    Tidy,
    /// Licences, bans and sources of what we depend on
    Deny,
    /// Known vulnerabilities of what we depend on; fetches a database
    Advisories,
    /// Dependencies that nobody uses
    Unused,
    /// Whether the published crates break what the last release promised: compares them with its tag
    Semver {
        /// Another revision to compare with
        #[arg(long, value_name = "REVISION")]
        against: Option<String>,
    },
    /// Pack the published crates, and check a crate outside of the workspace against them: with each version of Kubernetes, and with
    /// each feature alone
    Outside {
        /// Only the newest version of Kubernetes, with all features and with none, as in CI
        #[arg(long)]
        quick: bool,
        /// Instead, with all features under the oldest Rust that the published crates state; rustup must have that toolchain
        #[arg(long, conflicts_with = "quick")]
        oldest_rust: bool,
    },
}

#[derive(Args)]
struct Cluster {
    /// Use the cluster of this kubeconfig, and take away at the end what was made in it; your current context is never used
    /// unasked. Tests that stop servers or read the audit log start their own all the same
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<std::path::PathBuf>,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nError: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Demo { cluster, keep } => recipes::demo(cluster.kubeconfig.as_deref(), keep),
        Command::Test { quick: true, filter, .. } => recipes::quick_tests(filter.as_deref()),
        Command::Test { cluster, programs, filter, .. } => {
            recipes::all_tests(cluster.kubeconfig.as_deref(), programs, filter.as_deref())
        }
        Command::Openbao { filter } => openbao::test(filter.as_deref()),
        Command::Kubernetes { filter } => kubernetes::test(filter.as_deref()),
        Command::Openzro { record } => openzro::test(record),
        Command::Zopp { record } => zopp::test(record),
        Command::Bench { arguments } => recipes::bench(&arguments),
        Command::Dashboards { arguments } => recipes::dashboards(&arguments),
        Command::Ci => ci::run(),
        Command::Setup => recipes::setup(),
        Command::Fmt { check } => recipes::fmt(check),
        Command::Generate { check } => generate::generate(check),
        Command::Image { targets, profile, into } => {
            image::run(&image::programs::builds(&targets, &profile), &into.unwrap_or_else(image::folder))
        }
        Command::Dist { targets, profile, url, into } => {
            dist::run(&image::programs::builds(&targets, &profile), url.as_deref(), &into.unwrap_or_else(dist::folder))
        }
        Command::Docs { into } => docs::build(into),
        Command::Lint => recipes::lint(),
        Command::Tidy => tidy::run(),
        Command::Deny => recipes::deny(),
        Command::Advisories => recipes::advisories(),
        Command::Unused => recipes::unused(),
        Command::Semver { against } => semver::check(against.as_deref()),
        Command::Outside { oldest_rust: true, .. } => outside::check_oldest_rust(),
        Command::Outside { quick, .. } => outside::check(quick),
    }
}
