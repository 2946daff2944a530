//! The verb `generate`.

use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::{GenerateError, Operator};

pub(super) const VERB: &str = "generate";

/// Print the manifests, write them with the reference pages into a folder, or check what is there
#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
struct Arguments {
    /// The folder to write to
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
    /// Write nothing; fail if the folder is not as it would be
    #[arg(long, requires = "into")]
    check: bool,
    /// Write a Helm chart instead of the manifests
    #[arg(long, requires = "into")]
    helm: bool,
    /// Let the role allow what --install-crds of the program needs
    #[arg(long)]
    install_crds: bool,
    /// Let the role allow what --metrics-authentication of the program needs
    #[arg(long)]
    metrics_authentication: bool,
    /// The namespace that the program runs in
    #[arg(long, default_value = "default", value_name = "NAME", conflicts_with = "helm")]
    namespace: String,
}

pub(super) fn verb() -> Command {
    Arguments::augment_args(Command::new(VERB))
}

/// Prints, writes or checks.
pub(super) fn execute(operator: Operator, matches: &ArgMatches) -> Result<(), GenerateError> {
    let told = Arguments::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
    let may_install_crds = operator.may_install_crds || told.install_crds;
    let may_authenticate = operator.may_authenticate || told.metrics_authentication;
    let operator = operator.may_install_crds(may_install_crds).may_authenticate(may_authenticate);
    let files = if told.helm { operator.helm_chart()? } else { operator.generate(&told.namespace)? };
    match told.into {
        None => print!("{}", files.manifest()),
        Some(folder) if told.check => files.check(&folder)?,
        Some(folder) => files.write(&folder)?,
    }
    Ok(())
}
