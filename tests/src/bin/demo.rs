//! The main job, shown: a value changed in the secrets manager is in the Kubernetes Secret well under a second later.

use std::{
    panic::AssertUnwindSafe,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use futures::FutureExt;
use konverge_e2e::{Signals, Stage, Watcher, annotated_secret, binary, yaml};
use konverge_testkit::{Cluster, run_name, take_away};
use tokio::time::timeout;

/// Far beyond what a change takes; only a broken way takes longer.
const LIMIT: Duration = Duration::from_secs(30);

const SECRET: &str = "backend";

/// Runs the main job on real parts and tells what happened.
#[derive(Parser)]
struct Cli {
    /// Leave everything running until Ctrl-C
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match demo(Cli::parse().keep).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nError: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whichever way it ends — done, failed, interrupted or in panic, such as when nobody reads what it prints — what it set up is
/// taken down before.
async fn demo(keep: bool) -> Result<()> {
    let mut signals = Signals::listen()?;
    let played = tokio::select! {
        played = AssertUnwindSafe(play(keep)).catch_unwind() => Some(played),
        () = signals.any() => None,
    };
    // What was started has ended with the future; what was made in a cluster that goes on is left.
    let taken_down = take_down().await;
    match played {
        Some(Ok(played)) => played.and(taken_down)?,
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
    println!(
        "Setting the stage: etcd, kube-apiserver, zopp-server; a user, a workspace and a project; a service principal."
    );
    let began = Instant::now();
    let stage = Stage::set().await?;
    told(began, "the stage is set");
    let namespace = stage.control_plane.namespace("demo").await?;
    show(&stage, &namespace, keep).await
}

async fn show(stage: &Stage, namespace: &str, keep: bool) -> Result<()> {
    let environment = stage.environment("production").await?;
    println!("  environment {environment}, which the operator's principal may read");
    let began = Instant::now();
    let _operator = stage.operator("zopp-operator", namespace).await?;
    told(began, "zopp-operator is ready, under its own service account");

    let watcher = stage.watcher(namespace);
    let scene = Scene { stage, watcher: &watcher, environment: &environment };

    println!("\nA Secret with four annotations and no data is applied to namespace {namespace}:\n");
    stage.bind(namespace, SECRET, &environment).await?;
    for line in yaml(&annotated_secret(SECRET, &environment))?.lines() {
        println!("    {line}");
    }
    println!("\nValues are changed with the zopp command line, and somebody else watches the Secret:\n");
    scene.set("DATABASE_URL", "postgres://db/one", &[("DATABASE_URL", "postgres://db/one")]).await?;
    scene.set("API_KEY", "k-1", &[("API_KEY", "k-1"), ("DATABASE_URL", "postgres://db/one")]).await?;
    scene
        .set("DATABASE_URL", "postgres://db/two", &[("API_KEY", "k-1"), ("DATABASE_URL", "postgres://db/two")])
        .await?;
    scene.delete("API_KEY", &[("DATABASE_URL", "postgres://db/two")]).await?;

    let seen = watcher.now(SECRET).context("the Secret is gone")?;
    let keys: Vec<&str> = seen.data.keys().map(String::as_str).collect();
    println!("\nThe Secret holds exactly the environment's keys: {}", keys.join(", "));
    if keep {
        explain(stage, namespace, &environment)?;
        std::future::pending::<()>().await;
    }
    Ok(())
}

/// Where the changes are made and watched.
struct Scene<'a> {
    stage: &'a Stage,
    watcher: &'a Watcher,
    environment: &'a str,
}

impl Scene<'_> {
    async fn set(&self, key: &str, value: &str, expected: &[(&str, &str)]) -> Result<()> {
        self.change(&format!("set {key}"), self.stage.user.set(self.environment, key, value.as_bytes()), expected).await
    }

    async fn delete(&self, key: &str, expected: &[(&str, &str)]) -> Result<()> {
        self.change(&format!("delete {key}"), self.stage.user.delete(self.environment, key), expected).await
    }

    /// Makes a change and says how long after the command's start, and after its end, the Secret held it.
    async fn change(
        &self,
        what: &str,
        change: impl Future<Output = Result<()>>,
        expected: &[(&str, &str)],
    ) -> Result<()> {
        let began = Instant::now();
        let (changed, seen) =
            tokio::join!(async { change.await.map(|()| Instant::now()) }, self.watcher.holds(SECRET, LIMIT, expected));
        let (changed, seen) = (changed?, seen?.at.into_std());
        let after = seen.saturating_duration_since(changed).as_millis();
        println!(
            "  zopp secret {what:18} in the Secret {after:3} ms after the command ended, {:3} ms after it began",
            (seen - began).as_millis()
        );
        Ok(())
    }
}

fn told(began: Instant, what: &str) {
    println!("  {what} ({:.1} s)", began.elapsed().as_secs_f32());
}

fn explain(stage: &Stage, namespace: &str, environment: &str) -> Result<()> {
    let [workspace, project, name] = environment.split('/').collect::<Vec<_>>()[..] else {
        anyhow::bail!("{environment} is no environment's path")
    };
    let kubectl = stage.control_plane.kubectl().map_or_else(|| "kubectl".to_owned(), |path| path.display().to_string());
    println!("\nEverything is left running. In another terminal:\n");
    println!("  export KUBECONFIG={}", stage.control_plane.kubeconfig().display());
    println!("  export HOME={} ZOPP_SERVER={}", stage.user.home().display(), stage.server.url());
    println!("  export ZOPP_WORKSPACE={workspace} ZOPP_PROJECT={project} ZOPP_ENVIRONMENT={name}");
    println!("  alias kubectl={kubectl} zopp={}\n", binary("zopp")?.display());
    println!("  kubectl get secret {SECRET} -n {namespace} -o yaml");
    println!("  kubectl get events -n {namespace}");
    println!("  zopp secret set GREETING hello");
    println!("  zopp secret list\n");
    println!("Ctrl-C takes everything down.");
    Ok(())
}
