//! The size that all figures are stated for: a hundred Secrets on twenty environments.

use std::time::Duration;

use anyhow::{Context, Result};
use konverge_e2e::{Operator, Stage, Watcher};
use konverge_zopp_client::{
    Client, ClientConfig, Connection, EnvironmentName, EnvironmentWriter, Identity, writer::KeyChange,
};

pub(crate) const ENVIRONMENTS: usize = 20;
pub(crate) const SECRETS: usize = 100;

/// The key that is changed.
pub(crate) const KEY: &str = "VALUE";

/// Far beyond what anything here takes.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

pub(crate) struct Scene {
    pub(crate) stage: Stage,
    pub(crate) namespace: String,
    pub(crate) operator: Operator,
    pub(crate) watcher: Watcher,
    client: Client,
}

impl Scene {
    /// All Secrets are in sync when this returns.
    pub(crate) async fn set() -> Result<Self> {
        let stage = Stage::set_on_ours().await?;
        let namespace = stage.control_plane.namespace("bench").await?;
        for number in 0..ENVIRONMENTS {
            stage.environment(&environment(number)).await?;
        }
        let file = stage.user.home().join(".zopp/config.json");
        let connection = Connection::new(&ClientConfig::new(stage.server.url()))?;
        let client = Client::new(connection, Identity::from_file(&file, None)?);
        let operator = stage.operator("zopp-operator", &namespace).await?;
        let watcher = stage.watcher(&namespace);
        let scene = Self { stage, namespace, operator, watcher, client };
        for number in 0..ENVIRONMENTS {
            scene.change(number, "initial").await?;
        }
        for number in 0..SECRETS {
            let path = format!("acme/backend/{}", environment(number % ENVIRONMENTS));
            scene.stage.bind(&scene.namespace, &secret(number), &path).await?;
        }
        scene.all_hold("initial").await?;
        Ok(scene)
    }

    /// Sets the value of an environment, as a client in this process, so that no process start is measured.
    pub(crate) async fn change(&self, number: usize, value: &str) -> Result<()> {
        let name = EnvironmentName::new("acme", "backend", environment(number));
        // With the manifest that the operator asks for.
        let writer = EnvironmentWriter::new(self.client.clone(), name);
        let change = KeyChange::Set(value.to_owned().into());
        writer.write(&[(KEY.to_owned(), change)].into()).await.context("cannot set a value")
    }

    /// Waits until every Secret holds the value.
    pub(crate) async fn all_hold(&self, value: &str) -> Result<()> {
        for number in 0..SECRETS {
            self.watcher.holds(&secret(number), LIMIT, &[(KEY, value)]).await?;
        }
        Ok(())
    }
}

pub(crate) fn environment(number: usize) -> String {
    format!("environment-{number}")
}

pub(crate) fn secret(number: usize) -> String {
    format!("secret-{number}")
}

/// The Secrets that are bound to an environment.
pub(crate) fn secrets_of(number: usize) -> impl Iterator<Item = String> {
    (number..SECRETS).step_by(ENVIRONMENTS).map(secret)
}
