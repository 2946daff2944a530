//! `zopp sync k8s` and `zopp diff k8s`.
//!
//! This crate knows no Kubernetes. The verbs are in the program `zopp-k8s`, which has all verbs of `zopp`; `zopp` becomes it for these
//! two, with the same arguments. A person without a cluster needs no such program, and `zopp` stays small.

use std::{
    env,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use clap::{Args, Subcommand};

use crate::{context::Context, failure::Failure, output::Outcome, scope::EnvironmentArguments};

/// The program with the verbs for Kubernetes.
pub const PROGRAM: &str = "zopp-k8s";

const SYNC_EXAMPLES: &str = "\
Examples:
  zopp sync k8s -e production --namespace shop --secret backend
  zopp sync k8s -e production --namespace shop --secret backend --dry-run

Keys, labels and annotations that others have set stay. To keep a Secret in sync all the time,
run zopp-operator.";

const DIFF_EXAMPLES: &str = "\
Examples:
  zopp diff k8s -e production --namespace shop --secret backend
  zopp diff k8s -e production --namespace shop --secret backend --exit-code    3 if they differ";

/// `zopp sync`
#[derive(Debug, Subcommand)]
pub enum SyncCommand {
    /// Write the secrets into a Kubernetes Secret, once
    #[command(after_help = SYNC_EXAMPLES)]
    K8s(SyncK8s),
}

/// `zopp diff`
#[derive(Debug, Subcommand)]
pub enum DiffCommand {
    /// Compare the secrets with a Kubernetes Secret
    #[command(after_help = DIFF_EXAMPLES)]
    K8s(DiffK8s),
}

/// Which Secret of which cluster.
#[derive(Debug, Clone, Args)]
pub struct ClusterArguments {
    /// Namespace of the Secret
    #[arg(long)]
    pub namespace: String,
    /// Name of the Secret
    #[arg(long)]
    pub secret: String,
    /// Kubeconfig file [default: KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, value_name = "PATH")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// `zopp sync k8s`
#[derive(Debug, Args)]
pub struct SyncK8s {
    /// The environment.
    #[command(flatten)]
    pub environment: EnvironmentArguments,
    /// The Secret.
    #[command(flatten)]
    pub cluster: ClusterArguments,
    /// Also write a Secret that zopp does not manage, and keys that somebody else set
    #[arg(long)]
    pub force: bool,
    /// Print what would change, and write nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// `zopp diff k8s`
#[derive(Debug, Args)]
pub struct DiffK8s {
    /// The environment.
    #[command(flatten)]
    pub environment: EnvironmentArguments,
    /// The Secret.
    #[command(flatten)]
    pub cluster: ClusterArguments,
    /// End with code 3 if there are differences
    #[arg(long)]
    pub exit_code: bool,
}

/// The verbs that need a cluster.
#[allow(async_fn_in_trait, reason = "a command runs in one thread")]
pub trait Kubernetes {
    /// The name of the program that has them, which `--version` prints.
    const PROGRAM: &'static str;

    /// `zopp sync k8s`
    async fn sync(&self, context: &Context, arguments: SyncK8s) -> Outcome;

    /// `zopp diff k8s`
    async fn diff(&self, context: &Context, arguments: DiffK8s) -> Outcome;
}

/// Becomes the program that has the verbs.
pub struct OtherProgram;

impl Kubernetes for OtherProgram {
    const PROGRAM: &'static str = "zopp";

    async fn sync(&self, _: &Context, _: SyncK8s) -> Outcome {
        Err(exec_beside())
    }

    async fn diff(&self, _: &Context, _: DiffK8s) -> Outcome {
        Err(exec_beside())
    }
}

/// Returns only if it failed.
fn exec_beside() -> Failure {
    let beside = env::current_exe().ok().and_then(|own| beside(&own)).filter(|program| program.is_file());
    let source = Command::new(beside.unwrap_or_else(|| PROGRAM.into())).args(env::args_os().skip(1)).exec();
    Failure::new(format!("cannot run {PROGRAM}, which has the verbs for Kubernetes"))
        .because(source)
        .next(format!("Put {PROGRAM} beside zopp, or into a directory of PATH."))
}

/// Where the program is if both were installed together.
fn beside(own: &Path) -> Option<PathBuf> {
    Some(own.parent()?.join(PROGRAM))
}

pub(super) async fn sync(kubernetes: &impl Kubernetes, context: &Context, command: SyncCommand) -> Outcome {
    let SyncCommand::K8s(arguments) = command;
    kubernetes.sync(context, arguments).await
}

pub(super) async fn diff(kubernetes: &impl Kubernetes, context: &Context, command: DiffCommand) -> Outcome {
    let DiffCommand::K8s(arguments) = command;
    kubernetes.diff(context, arguments).await
}
