//! An error, in words for the person at the terminal.

use konverge_core::error::in_one_line;

/// An error that ends the program.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// The command failed. The text names the cause and the next step.
    #[error("{0}")]
    Failed(String),
    /// The API server forbids the request to this user.
    #[error("{0}")]
    Forbidden(String),
}

impl Failure {
    /// Creates the failure of an attempt to `act`, such as `list secrets in namespace shop`.
    pub fn of(act: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if matches!(status.code, 401 | 403) => {
                Self::Forbidden(format!("you may not {act}: {}", status.message))
            }
            kube::Error::Api(status) => Self::Failed(format!("cannot {act}: {}", status.message)),
            error => Self::Failed(format!(
                "cannot {act}: {}; check the cluster and the context with: kubectl cluster-info",
                in_one_line(error)
            )),
        }
    }
}
