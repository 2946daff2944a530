//! Asking a Vault on this machine, for what a test sets up.

use std::{io, path::PathBuf};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use konverge_testkit::{BuildError, ProcessError};
use serde_json::Value;

/// No Vault could be had, or it refused.
#[derive(Debug, thiserror::Error)]
pub enum VaultServerError {
    /// It could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A variable names a program that is not there.
    #[error("{variable} names {}, which is no file; unset the variable to have a Vault built, or mend it", path.display())]
    Missing {
        /// The variable.
        variable: &'static str,
        /// The path that it names.
        path: PathBuf,
    },
    /// It did not come up.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A file could not be written.
    #[error("cannot prepare the Vault's files: {0}")]
    File(#[from] io::Error),
    /// A certificate could not be made.
    #[error("cannot make the Vault's certificates: {0}")]
    Certificate(#[from] rcgen::Error),
    /// It was started without TLS and so has no authority.
    #[error("this Vault was started without TLS; ask for it with `VaultOptions {{ tls: true, .. }}`")]
    NoTls,
    /// No answer.
    #[error("the test's Vault did not answer {method} {path}: {why}; its log says why")]
    NoAnswer {
        /// The request.
        method: String,
        /// Of what.
        path: String,
        /// The error.
        why: String,
    },
    /// It said no.
    #[error("the test's Vault answered {method} {path} with {status}: {answer}")]
    Refused {
        /// The request.
        method: String,
        /// Of what.
        path: String,
        /// The status.
        status: u16,
        /// The answer.
        answer: Value,
    },
}

/// A client without TLS.
pub(super) struct Administration {
    client: Client<HttpConnector, Full<Bytes>>,
    port: u16,
}

impl Administration {
    pub(super) fn new(port: u16) -> Self {
        // A kept connection would end with the runtime of the test that opened it, under the request of another test.
        Self { client: Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http(), port }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) async fn call(
        &self,
        method: &str,
        path: &str,
        token: &str,
        body: &Value,
    ) -> Result<Value, VaultServerError> {
        let no_answer =
            |why: String| VaultServerError::NoAnswer { method: method.to_owned(), path: path.to_owned(), why };
        let content = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).map_err(|error| no_answer(error.to_string()))?)
            .uri(format!("http://127.0.0.1:{}/v1/{path}", self.port))
            .header("x-vault-token", token)
            .header("x-vault-request", "true")
            .header("content-type", "application/json")
            .body(Full::new(content))
            .map_err(|error| no_answer(error.to_string()))?;
        let answer = self.client.request(request).await.map_err(|error| no_answer(error.to_string()))?;
        let status = answer.status();
        let content = answer.into_body().collect().await.map_err(|error| no_answer(error.to_string()))?.to_bytes();
        let answer = serde_json::from_slice(&content).unwrap_or(Value::Null);
        if status.is_success() {
            return Ok(answer);
        }
        Err(VaultServerError::Refused {
            method: method.to_owned(),
            path: path.to_owned(),
            status: status.as_u16(),
            answer,
        })
    }
}
