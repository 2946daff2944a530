//! An account of openZro, and the operator that keeps it as custom resources say.

use std::{fs, path::Path, sync::Arc};

use anyhow::{Context, Result};
use konverge_core::SecretValue;
use konverge_openzro::{Credential, Limits, OpenZro, OpenZroConfig};
use konverge_openzro_testing::Double;
use konverge_testkit::ControlPlane;
use konverge_testkit_stores::OpenZroServer;

use crate::Operator;

/// The files that users apply, in the order of `deploy/openzro-operator.yaml`.
const DEFINITIONS: &str = include_str!("../../deploy/openzro/crds.yaml");
const ROLE: &str = include_str!("../../deploy/openzro/role.yaml");

/// The namespace in the role.
const HOME: &str = "openzro";
const ACCOUNT: &str = "openzro-operator";

/// An account of a management server, with the token of an administrator.
#[derive(Clone)]
pub struct OpenZroAccount {
    /// The address of the server.
    pub url: String,
    /// The token.
    pub token: String,
    /// Keeps the double alive.
    double: Option<Arc<Double>>,
}

impl OpenZroAccount {
    /// An account of the verified double, which runs in this process.
    pub async fn on_double() -> Result<Self> {
        let double = Double::start().await?;
        let token = double.account().tokens["admin"].clone();
        Ok(Self { url: double.url().to_owned(), token, double: Some(Arc::new(double)) })
    }

    /// An account of the real server, or `None` if this machine does not have it.
    pub async fn on_server() -> Result<Option<Self>> {
        let Some(server) = OpenZroServer::shared().await? else { return Ok(None) };
        let token = server.account().tokens["admin"].clone();
        Ok(Some(Self { url: OpenZroServer::URL.to_owned(), token, double: None }))
    }

    /// Another account on the same server.
    pub async fn another(&self) -> Result<Self> {
        match &self.double {
            Some(double) => Ok(Self { token: double.account().tokens["admin"].clone(), ..self.clone() }),
            None => Self::on_server().await?.context("the server is there no more"),
        }
    }

    /// The account past the operator: what people do in the dashboard.
    pub fn client(&self) -> Result<OpenZro> {
        self.client_at(&self.url, Limits::default().with(|limits| limits.rate = None))
    }

    /// The same at another address, such as that of a proxy, and with these limits.
    pub fn client_at(&self, url: &str, limits: Limits) -> Result<OpenZro> {
        let token = Credential::value(SecretValue::from(self.token.clone()));
        Ok(OpenZro::new(&OpenZroConfig::new(url, token)?.limits(limits)))
    }
}

/// An operator with the definitions and the role that we ship. It ends with this.
pub struct ManageStage {
    operator: Operator,
}

impl ManageStage {
    /// Starts an operator for the account with this token, and waits until it is ready. The cluster is its own, because it works in all namespaces.
    pub async fn set(control_plane: &ControlPlane, url: &str, token: &Path, arguments: &[&str]) -> Result<Self> {
        let home = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{ name: {HOME} }}");
        for manifest in [&*home, DEFINITIONS, ROLE] {
            control_plane.apply(manifest).await?;
        }
        let kubeconfig = control_plane.service_account_kubeconfig(HOME, ACCOUNT).await?;
        let run = control_plane.run_directory();
        let mut operator = Operator::start_manage(run, &kubeconfig, url, token, arguments)?;
        operator.ready().await?;
        Ok(Self { operator })
    }

    /// Writes a token into a file of a run.
    pub fn token_file(control_plane: &ControlPlane, token: &str) -> Result<std::path::PathBuf> {
        let file = control_plane.run_directory().path().join("openzro-token");
        fs::write(&file, token).context("cannot write the token of openZro")?;
        Ok(file)
    }

    /// The name by which the API server knows the operator.
    pub fn user() -> String {
        format!("system:serviceaccount:{HOME}:{ACCOUNT}")
    }

    /// The operator.
    pub fn operator(&mut self) -> &mut Operator {
        &mut self.operator
    }
}
