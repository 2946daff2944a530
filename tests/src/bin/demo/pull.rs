//! Pull: what is changed with the zopp command line is in the Secret.

use std::time::Instant;

use anyhow::{Context, Result};
use konverge_e2e::{Cast, Stage, User, Watcher, annotated_secret, binary, bind, quoted, yaml};

use crate::{LIMIT, LIMIT_AGAIN, shown, told};

const SECRET: &str = "backend";

const ENVIRONMENT: &str = "production";

/// Shows it, and gives back the stage with the operator on it.
pub(crate) async fn show(stage: Stage, namespace: &str) -> Result<Cast> {
    let environment = stage.environment(ENVIRONMENT).await?;
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
    Ok(scene.cast)
}

/// Prints where the secrets manager is, and gives the command line.
pub(crate) fn explain_exports(stage: &Stage) -> Result<String> {
    println!("  export HOME={} ZOPP_SERVER={}", shown(stage.user.home()), quoted(&stage.server.url()));
    println!("  export ZOPP_WORKSPACE=acme ZOPP_PROJECT=backend ZOPP_ENVIRONMENT={ENVIRONMENT}");
    Ok(shown(&binary("zopp")?))
}

/// Prints what can be played with.
pub(crate) fn explain(namespace: &str) {
    println!("  kubectl get secret {SECRET} -n {namespace} -o yaml");
    println!("  kubectl get events -n {namespace}");
    println!("  zopp secret set GREETING hello");
    println!("  zopp secret list");
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
