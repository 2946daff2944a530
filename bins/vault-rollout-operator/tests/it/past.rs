//! An API server that lags behind: lists are those of an earlier time, and watches tell nothing. Reads of single objects and writes reach the store,
//! not a cache.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use futures::{FutureExt, StreamExt, stream};
use konverge_testkit::{RunDirectory, client_for};
use kube::{Client, config::Kubeconfig};
use serde_json::json;
use tokio::{net::TcpListener, sync::watch};

use crate::stage::Result;

/// A server in front of the real one. It ends with the test.
pub(crate) struct Past {
    kubeconfig: PathBuf,
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    is_past: watch::Sender<bool>,
    /// The last list of each kind that was asked for in the present.
    lists: Mutex<HashMap<String, (StatusCode, Bytes)>>,
    /// Attempts to write, and how they were answered.
    writes: Mutex<Vec<(String, u16)>>,
}

impl Past {
    /// In the present for now. It asks as the user of the kubeconfig.
    pub(crate) async fn serve(run: &RunDirectory, kubeconfig: &Path) -> Result<Self> {
        let shared = Shared {
            client: client_for(kubeconfig).await?,
            is_past: watch::Sender::new(false),
            lists: Mutex::default(),
            writes: Mutex::default(),
        };
        let shared = Arc::new(shared);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let application = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        tokio::spawn(axum::serve(listener, application).into_future());
        let mut own = serde_json::to_value(Kubeconfig::read_from(kubeconfig)?)?;
        for cluster in own["clusters"].as_array_mut().into_iter().flatten() {
            cluster["cluster"] = json!({ "server": format!("http://{address}") });
        }
        let path = run.path().join(format!("kubeconfig-past-{}", address.port()));
        std::fs::write(&path, own.to_string())?;
        Ok(Self { kubeconfig: path, shared })
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// From now on lists are those that were told last, and watches tell nothing.
    pub(crate) fn begins(&self) {
        self.shared.is_past.send_replace(true);
    }

    /// All is as it is. Watches of the past have ended.
    pub(crate) fn ends(&self) {
        self.shared.is_past.send_replace(false);
    }

    /// Attempts to write since the past began or ended, but events: what was asked for and the code of the answer.
    pub(crate) fn take_writes(&self) -> Vec<(String, u16)> {
        std::mem::take(&mut *self.shared.writes.lock().unwrap())
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    match shared.answer(request).await {
        Ok(response) => response,
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

/// Whether it is about all objects of a kind in a namespace, and which.
fn collection(method: &Method, uri: &Uri) -> Option<String> {
    let mut rest = uri.path().split("/namespaces/").nth(1)?.split('/');
    let is_collection = rest.next().is_some() && rest.next().is_some() && rest.next().is_none();
    (method == Method::GET && is_collection).then(|| uri.path().to_owned())
}

impl Shared {
    async fn answer(&self, request: Request) -> Result<Response> {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        let is_past = *self.is_past.borrow();
        match collection(request.method(), request.uri()) {
            Some(_) if is_watch && is_past => Ok(self.silence()),
            Some(_) if is_watch => {
                // It ends when the past begins, as all connections to a server that goes away do.
                let mut ends = self.is_past.subscribe();
                let response = self.forward(request).await?;
                let (parts, body) = response.into_parts();
                let ended = async move { drop(ends.wait_for(|is_past| *is_past).await) };
                let body = body.into_data_stream().take_until(ended.boxed());
                Ok(Response::from_parts(parts, Body::from_stream(body)))
            }
            Some(list) if is_past => {
                let told = self.lists.lock().unwrap().get(&list).cloned();
                let (status, told) = told.ok_or("nobody has asked for that before")?;
                Ok((status, [(header::CONTENT_TYPE, "application/json")], told).into_response())
            }
            Some(list) => {
                let (parts, body) = self.forward(request).await?.into_parts();
                let told = axum::body::to_bytes(body, usize::MAX).await?;
                // Also that there is no such kind.
                if parts.status.is_success() || parts.status == StatusCode::NOT_FOUND {
                    self.lists.lock().unwrap().insert(list, (parts.status, told.clone()));
                }
                Ok((parts.status, [(header::CONTENT_TYPE, "application/json")], told).into_response())
            }
            None => {
                let asked = format!("{} {}", request.method(), request.uri().path());
                let counts = request.method() != Method::GET && !asked.ends_with("/events");
                let response = self.forward(request).await?;
                if counts {
                    self.writes.lock().unwrap().push((asked, response.status().as_u16()));
                }
                Ok(response)
            }
        }
    }

    /// A watch that tells nothing as long as the past lasts.
    fn silence(&self) -> Response {
        let mut ends = self.is_past.subscribe();
        let ended = async move { drop(ends.wait_for(|is_past| !*is_past).await) };
        let nothing = stream::pending::<std::result::Result<Bytes, std::io::Error>>().take_until(ended.boxed());
        ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(nothing)).into_response()
    }

    async fn forward(&self, request: Request) -> Result<Response> {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await?;
        let mut asked = axum::http::Request::new(kube::client::Body::from(body.to_vec()));
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        *asked.method_mut() = parts.method;
        *asked.uri_mut() = target.parse()?;
        for name in [header::ACCEPT, header::CONTENT_TYPE] {
            asked.headers_mut().extend(parts.headers.get(&name).map(|value| (name, value.clone())));
        }
        let (answer, body) = self.client.send(asked).await?.into_parts();
        let mut response = Response::new(Body::new(body));
        *response.status_mut() = answer.status;
        let kind = answer.headers.get(header::CONTENT_TYPE).cloned();
        response.headers_mut().extend(kind.map(|kind| (header::CONTENT_TYPE, kind)));
        Ok(response)
    }
}
