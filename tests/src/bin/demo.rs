//! The main job, shown: a value changed in the secrets manager is in the Kubernetes Secret well under a second later.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use clap::Parser;
use konverge_e2e::{Stage, Watcher, binary};

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

async fn demo(keep: bool) -> Result<()> {
    println!(
        "Setting the stage: etcd, kube-apiserver, zopp-server; a user, a workspace and a project; a service principal."
    );
    let began = Instant::now();
    let stage = tokio::select! {
        stage = Stage::set() => stage?,
        () = interrupted() => return Ok(()),
    };
    told(began, "the stage is set");
    let namespace = stage.control_plane.namespace("demo").await?;
    let shown = tokio::select! {
        shown = show(&stage, &namespace, keep) => shown,
        () = interrupted() => Ok(()),
    };
    stage.take_down(&[namespace]).await?;
    println!("\nEverything is taken down.");
    shown?;
    println!("To try next:");
    println!("  cargo xtask demo --keep     the same, left running, with the commands to play with");
    println!("  cargo xtask test            what a developer must pass");
    println!("  ARCHITECTURE.md             how it works, on one page");
    Ok(())
}

/// Ctrl-C.
async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        // Without a handler Ctrl-C ends the process, and the guards of what it started do the rest.
        std::future::pending::<()>().await;
    }
    println!("\nInterrupted.");
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
    for line in MANIFEST.lines() {
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

const MANIFEST: &str = "\
apiVersion: v1
kind: Secret
metadata:
  name: backend
  annotations:
    zopp.dev/sync: \"true\"
    zopp.dev/workspace: acme
    zopp.dev/project: backend
    zopp.dev/environment: production";

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
