//! The demo shows the main jobs. A value changed in the secrets manager is in the Kubernetes Secret well under a second later, and a
//! changed Kubernetes Secret is in Vault. A workload that uses a changed Secret restarts once. The objects that custom resources
//! declare are in openZro.

mod manage;
mod pull;
mod push;
mod roll;

use std::{
    any::Any,
    panic::{self, AssertUnwindSafe},
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use futures::FutureExt;
use konverge_core::error::in_one_line;
use konverge_e2e::{Cast, Signals, Stage, binary, quoted};
use konverge_testkit::{Assets, AssetsError, Binary, Cluster, run_name, take_away};
use tokio::time::timeout;

/// Far beyond what a change takes; only a broken way takes longer.
const LIMIT: Duration = Duration::from_secs(30);

/// The same after somebody killed a process: an API server that lost its etcd may take most of a minute to find it again.
const LIMIT_AGAIN: Duration = Duration::from_mins(2);

/// Runs the main jobs on real parts and tells what happened.
#[derive(Parser)]
struct Cli {
    /// Leave everything running until Ctrl-C
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |about| {
        if !nobody_reads(about.payload()) {
            usual(about);
        }
    }));
    match demo(Cli::parse().keep).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nError: {}", in_one_line(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// `println!` panics where its reader has gone, as `head` has after some lines. Nothing is wrong then, and nobody would read of it.
fn nobody_reads(panic: &(dyn Any + Send)) -> bool {
    panic.downcast_ref::<String>().is_some_and(|text| text.starts_with("failed printing to stdout"))
}

/// Whichever way it ends — done, failed, interrupted or in panic, such as when nobody reads what it prints — what it set up is
/// taken down before.
async fn demo(keep: bool) -> Result<()> {
    let mut signals = Signals::listen()?;
    let played = tokio::select! {
        played = AssertUnwindSafe(play(keep)).catch_unwind() => Some(played),
        () = signals.any() => None,
    };
    // The started processes end with the future. Objects in a cluster that goes on are left.
    let taken_down = take_down().await;
    match played {
        Some(Ok(played)) => played.and(taken_down)?,
        Some(Err(panic)) if nobody_reads(&*panic) => return taken_down,
        Some(Err(_)) => return taken_down.and(Err(anyhow!("the demo broke off; the reason is above"))),
        None => {
            taken_down?;
            println!("\nInterrupted. Everything is taken down.");
            return Ok(());
        }
    }
    println!("\nEverything is taken down.");
    println!("To try next:");
    println!("  cargo xtask demo --keep     the same, left running, with the commands to play with");
    println!("  cargo xtask test            what a developer must pass");
    println!("  ARCHITECTURE.md             how it works, on one page");
    Ok(())
}

/// Takes away what was made in a cluster that the user named.
async fn take_down() -> Result<()> {
    let Some(kubeconfig) = Cluster::default().kubeconfig() else { return Ok(()) };
    let outcome = match timeout(LIMIT, take_away(&kubeconfig)).await {
        Ok(outcome) => outcome.map(drop).map_err(anyhow::Error::from),
        Err(_) => Err(anyhow!("no answer within {} s", LIMIT.as_secs())),
    };
    outcome.with_context(|| {
        format!(
            "what the demo made is still in the cluster; take it away with: {} take-away --kubeconfig {} {}",
            binary("konverge-control-plane").unwrap_or_else(|_| "konverge-control-plane".into()).display(),
            kubeconfig.display(),
            run_name()
        )
    })
}

async fn play(keep: bool) -> Result<()> {
    let cluster = match Cluster::default().kubeconfig() {
        Some(named) => format!("in the cluster of {}", named.display()),
        None => "etcd, kube-apiserver".to_owned(),
    };
    println!("Setting the stage: {cluster}, zopp-server; a user, a workspace and a project; a service principal.");
    let began = Instant::now();
    let stage = Stage::set().await?;
    told(began, "the stage is set");
    let namespace = stage.control_plane.namespace("demo").await?;
    let mut cast = pull::show(stage, &namespace).await?;
    push::show(&mut cast, &namespace, keep).await?;
    roll::show(&mut cast, &namespace).await?;
    manage::show(&mut cast, &namespace, keep).await?;
    if keep {
        explain(&cast, &namespace)?;
        cast.perform(async |_| std::future::pending().await).await?;
    }
    Ok(())
}

fn told(began: Instant, what: &str) {
    println!("  {what} ({:.2} s)", began.elapsed().as_secs_f32());
}

/// The kubectl of the control plane's version. It is built only now, because nothing before needs it.
fn kubectl(stage: &Stage) -> Result<String> {
    if !stage.control_plane.is_ours() {
        return Ok("kubectl".to_owned());
    }
    match Assets::find(&[Binary::Kubectl]) {
        Ok(assets) => Ok(shown(&assets.path(Binary::Kubectl))),
        // Other test kits' folders need not hold it.
        Err(AssetsError::Missing { .. }) => Ok("kubectl".to_owned()),
        Err(error) => Err(error).context("there is no kubectl to play with"),
    }
}

fn explain(cast: &Cast, namespace: &str) -> Result<()> {
    let stage = cast.stage();
    let kubectl = kubectl(stage)?;
    println!("\nEverything is left running. In another terminal:\n");
    println!("  export KUBECONFIG={}", shown(stage.control_plane.kubeconfig()));
    let zopp = pull::explain_exports(stage)?;
    push::explain_exports(cast)?;
    manage::explain_exports(cast);
    // The shell parses the value of an alias once more.
    println!("  alias kubectl={} zopp={}\n", quoted(&kubectl), quoted(&zopp));
    pull::explain(namespace);
    push::explain(namespace);
    roll::explain(namespace);
    manage::explain(cast);
    let killable = if stage.control_plane.is_ours() { "kube-apiserver, etcd, " } else { "" };
    let also = format!("zopp-operator, {killable}vault with its operator, vault-rollout-operator, or openzro-operator");
    println!("  pkill -9 -P {} zopp-server    # or {also}: it is started again\n", std::process::id());
    println!("Their logs are in {}", stage.control_plane.run_directory().path().display());
    if let Some(push) = cast.push() {
        println!("and in {}.", push.server().run_directory().path().display());
    }
    println!("Ctrl-C takes everything down.");
    Ok(())
}

fn shown(path: &Path) -> String {
    quoted(&path.display().to_string())
}
