//! The main job, shown: a value changed in the secrets manager is in the Kubernetes Secret well under a second later.

use std::{
    panic::AssertUnwindSafe,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use futures::FutureExt;
use konverge_core::error::in_one_line;
use konverge_e2e::{Cast, Signals, Stage, User, Watcher, annotated_secret, binary, bind, quoted, yaml};
use konverge_testkit::{Cluster, run_name, take_away};
use tokio::time::timeout;

/// Far beyond what a change takes; only a broken way takes longer.
const LIMIT: Duration = Duration::from_secs(30);

/// The same after somebody killed a process: an API server that lost its etcd may take most of a minute to find it again.
const LIMIT_AGAIN: Duration = Duration::from_mins(2);

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
            eprintln!("\nError: {}", in_one_line(error.as_ref()));
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
    let cluster = match Cluster::default().kubeconfig() {
        Some(named) => format!("in the cluster of {}", named.display()),
        None => "etcd, kube-apiserver".to_owned(),
    };
    println!("Setting the stage: {cluster}, zopp-server; a user, a workspace and a project; a service principal.");
    let began = Instant::now();
    let stage = Stage::set().await?;
    told(began, "the stage is set");
    let namespace = stage.control_plane.namespace("demo").await?;
    show(stage, &namespace, keep).await
}

async fn show(stage: Stage, namespace: &str, keep: bool) -> Result<()> {
    let environment = stage.environment("production").await?;
    println!("  environment {environment}, which the operator's principal may read");
    let began = Instant::now();
    let operator = stage.operator("zopp-operator", namespace).await?;
    told(began, "zopp-operator is ready, under its own service account");

    let (watcher, user, client) = (stage.watcher(namespace), stage.user.clone(), stage.client().clone());
    let cast = Cast::new(stage, operator);
    let mut scene = Scene { cast, user, watcher: &watcher, environment: &environment };

    println!("\nA Secret with four annotations and no data is applied to namespace {namespace}:\n");
    scene.cast.perform(async |_| bind(&client, namespace, SECRET, &environment).await).await?;
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
        explain(scene.cast.stage(), namespace, &environment)?;
        scene.cast.perform(async |_| std::future::pending().await).await?;
    }
    Ok(())
}

/// Where the changes are made and watched.
struct Scene<'a> {
    cast: Cast,
    user: User,
    watcher: &'a Watcher,
    environment: &'a str,
}

impl Scene<'_> {
    async fn set(&mut self, key: &str, value: &str, expected: &[(&str, &str)]) -> Result<()> {
        let (user, environment) = (self.user.clone(), self.environment);
        let set = async |_| user.set(environment, key, value.as_bytes()).await;
        self.change(&format!("set {key}"), set, expected).await
    }

    async fn delete(&mut self, key: &str, expected: &[(&str, &str)]) -> Result<()> {
        let (user, environment) = (self.user.clone(), self.environment);
        let delete = async |again| match user.delete(environment, key).await {
            // The first time it was killed behind the deed, and before the answer.
            Err(error) if again && error.to_string().contains("(NotFound)") => Ok(()),
            outcome => outcome,
        };
        self.change(&format!("delete {key}"), delete, expected).await
    }

    /// Makes a change and says how long after the command's start, and after its end, the Secret held it.
    async fn change(
        &mut self,
        what: &str,
        change: impl AsyncFn(bool) -> Result<()>,
        expected: &[(&str, &str)],
    ) -> Result<()> {
        let watcher = self.watcher;
        let act = async |again| {
            let began = Instant::now();
            let limit = if again { LIMIT_AGAIN } else { LIMIT };
            let (changed, seen) = tokio::try_join!(
                async { change(again).await.map(|()| Instant::now()) },
                watcher.holds(SECRET, limit, expected)
            )?;
            if again {
                // It may have been there since the first time, so there is nothing to measure.
                println!("  zopp secret {what:18} in the Secret");
                return Ok(());
            }
            let seen = seen.at.into_std();
            println!(
                "  zopp secret {what:18} in the Secret {:3} ms after the command ended, {:3} ms after it began",
                seen.saturating_duration_since(changed).as_millis(),
                seen.saturating_duration_since(began).as_millis()
            );
            Ok(())
        };
        self.cast.perform(act).await
    }
}

fn told(began: Instant, what: &str) {
    println!("  {what} ({:.2} s)", began.elapsed().as_secs_f32());
}

fn explain(stage: &Stage, namespace: &str, environment: &str) -> Result<()> {
    let [workspace, project, name] = environment.split('/').collect::<Vec<_>>()[..] else {
        anyhow::bail!("{environment} is no environment's path")
    };
    let kubectl = stage.control_plane.kubectl().map_or_else(|| "kubectl".to_owned(), shown);
    println!("\nEverything is left running. In another terminal:\n");
    println!("  export KUBECONFIG={}", shown(stage.control_plane.kubeconfig()));
    println!("  export HOME={} ZOPP_SERVER={}", shown(stage.user.home()), stage.server.url());
    println!("  export ZOPP_WORKSPACE={workspace} ZOPP_PROJECT={project} ZOPP_ENVIRONMENT={name}");
    // What an alias stands for is read by the shell once more.
    println!("  alias kubectl={} zopp={}\n", quoted(&kubectl), quoted(&shown(&binary("zopp")?)));
    println!("  kubectl get secret {SECRET} -n {namespace} -o yaml");
    println!("  kubectl get events -n {namespace}");
    println!("  zopp secret set GREETING hello");
    println!("  zopp secret list");
    let killable =
        if stage.control_plane.is_ours() { "zopp-operator, kube-apiserver or etcd" } else { "zopp-operator" };
    println!("  pkill -9 -P {} zopp-server    # or {killable}: it is started again\n", std::process::id());
    println!("Their logs are in {}.", stage.control_plane.run_directory().path().display());
    println!("Ctrl-C takes everything down.");
    Ok(())
}

fn shown(path: &Path) -> String {
    quoted(&path.display().to_string())
}
