//! Which control plane a test gets.

use std::path::PathBuf;

use crate::environment::{self, KUBECONFIG_VARIABLE};

/// Which cluster to use. `KUBECONFIG` and the current context of the user are never looked at.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Cluster {
    /// The cluster that `KONVERGE_TEST_KUBECONFIG` names; else one that is started for the test.
    #[default]
    NamedOrOurs,
    /// The cluster of this kubeconfig.
    Named(PathBuf),
    /// A control plane of the test's own, even when the user named a cluster. For tests that stop servers, read the audit log, or count the objects
    /// of a whole cluster.
    Ours,
}

impl Cluster {
    /// Returns the kubeconfig of the named cluster, or `None` if a control plane is started.
    pub fn kubeconfig(&self) -> Option<PathBuf> {
        match self {
            Self::NamedOrOurs => environment::variable(KUBECONFIG_VARIABLE),
            Self::Named(path) => Some(path.clone()),
            Self::Ours => None,
        }
    }
}

/// The servers to start.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Options {
    /// Which cluster.
    pub cluster: Cluster,
    /// Start kube-controller-manager too, where the control plane is ours.
    pub controller_manager: bool,
    /// Build kubectl too if it is missing, where the control plane is ours.
    pub kubectl: bool,
}

impl Options {
    /// These settings with a change.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// A control plane that is started for the test in any case; see [`Cluster::Ours`].
    pub fn ours() -> Self {
        Self { cluster: Cluster::Ours, ..Self::default() }
    }
}
