//! The operator that rolls what uses a changed Secret.

use std::process::ExitStatus;

use anyhow::Result;
use konverge_testkit::ControlPlane;

use crate::{Operator, rbac};

/// An operator with the role that we ship, which can be killed for a while. It ends with this; what it made in the cluster is
/// labelled as that of a [`Stage`](crate::Stage).
pub struct RollStage {
    operator: Operator,
    is_killed: bool,
}

impl RollStage {
    /// Starts an operator that looks after one namespace, and waits until it is ready.
    pub async fn set(control_plane: &ControlPlane, namespace: &str, arguments: &[&str]) -> Result<Self> {
        let client = control_plane.admin_client().await?;
        let home = control_plane.namespace("vault-rollout-operator-system").await?;
        rbac::create(&client, &rbac::ROLL, &home).await?;
        let kubeconfig = control_plane.service_account_kubeconfig(&home, rbac::ROLL.account).await?;
        let arguments = [&["--namespace", namespace], arguments].concat();
        let mut operator = Operator::start_roll(control_plane.run_directory(), &kubeconfig, &arguments)?;
        operator.ready().await?;
        Ok(Self { operator, is_killed: false })
    }

    /// Where its metrics are.
    pub fn address(&self) -> &str {
        self.operator.address()
    }

    /// Kills it as nothing else does, with no moment left for a last word, and does not count that as an end that is to be mended.
    pub fn kill(&mut self) {
        self.is_killed = true;
        self.operator.process().kill();
    }

    /// Starts it again, and waits until it is ready.
    pub async fn start(&mut self) -> Result<()> {
        self.operator.process().start_again()?;
        self.is_killed = false;
        self.operator.ready().await
    }

    /// How it has ended, if it was not killed here.
    pub fn ended(&mut self) -> Option<(String, ExitStatus)> {
        let process = self.operator.process();
        let status = process.status().filter(|_| !self.is_killed)?;
        Some((process.name().to_owned(), status))
    }

    /// Starts it again if it has ended, unless it was killed here.
    pub async fn start_ended(&mut self) -> Result<()> {
        if self.is_killed {
            return Ok(());
        }
        self.operator.process().start_again()?;
        self.operator.ready().await
    }
}
