//! A proxy before the API server that writes down what is asked, headers included, which the audit log leaves out.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::State,
    http::{Method, Request, StatusCode, header},
    response::{IntoResponse, Response},
};
use kube::Client;
use serde_json::json;
use tokio::{net::TcpListener, task::JoinHandle};

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: Method,
    /// Without the query.
    pub(crate) path: String,
    /// The representation that was asked for.
    pub(crate) accept: String,
}

/// The proxy; it ends when it is dropped.
pub(crate) struct Recorder {
    kubeconfig: PathBuf,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    task: JoinHandle<()>,
}

impl Recorder {
    /// Puts a proxy before the API server of a kubeconfig. A client with the proxy's own kubeconfig, which is written into `folder`, has the identity
    /// of the given one.
    pub(crate) async fn start(kubeconfig: &Path, namespace: &str, folder: &Path) -> Self {
        let upstream = konverge_testkit::client_for(kubeconfig).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let router = Router::new().fallback(pass_on).with_state((upstream, Arc::clone(&requests)));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let content = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "recorded",
            "clusters": [{ "name": "recorded", "cluster": { "server": server } }],
            "users": [{ "name": "recorded", "user": {} }],
            "contexts": [{
                "name": "recorded",
                "context": { "cluster": "recorded", "user": "recorded", "namespace": namespace },
            }],
        });
        let kubeconfig = folder.join("recorded-kubeconfig");
        std::fs::write(&kubeconfig, content.to_string()).unwrap();
        Self { kubeconfig, requests, task }
    }

    /// Leads to the proxy.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// All that was asked so far.
    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Shared = (Client, Arc<Mutex<Vec<ReceivedRequest>>>);

async fn pass_on(State((upstream, requests)): State<Shared>, request: Request<Body>) -> Response {
    let (mut parts, body) = request.into_parts();
    let accept = parts.headers.get(header::ACCEPT).map(|value| value.to_str().unwrap().to_owned());
    let path = parts.uri.path().to_owned();
    requests.lock().unwrap().push(ReceivedRequest {
        method: parts.method.clone(),
        path,
        accept: accept.unwrap_or_default(),
    });
    parts.headers.remove(header::HOST);
    let Ok(body) = to_bytes(body, usize::MAX).await else { return StatusCode::BAD_REQUEST.into_response() };
    match upstream.send(Request::from_parts(parts, body.to_vec().into())).await {
        Ok(answer) => answer.map(Body::new),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}
