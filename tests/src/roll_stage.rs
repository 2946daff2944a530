//! The operator that rolls what uses a changed Secret.

use anyhow::Result;
use konverge_testkit::ControlPlane;

use crate::{Operator, rbac};

/// An operator with the role that we ship. It ends with this; what it made in the cluster is
/// labelled as that of a [`Stage`](crate::Stage).
pub struct RollStage {
    operator: Operator,
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
        Ok(Self { operator })
    }

    /// Where its metrics are.
    pub fn address(&self) -> &str {
        self.operator.address()
    }

    /// The operator.
    pub fn operator(&mut self) -> &mut Operator {
        &mut self.operator
    }
}
