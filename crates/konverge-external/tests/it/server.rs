//! An HTTP server of this process that answers as the test says and keeps what it was asked.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::Body,
    extract::Request,
    response::{IntoResponse, Response},
};
use konverge_external::http::Endpoint;
use tokio::{net::TcpListener, task::JoinHandle};

type Answer = Arc<dyn Fn(&ReceivedRequest) -> Response + Send + Sync>;

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: axum::http::HeaderMap,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

pub(crate) struct Server {
    pub(crate) address: String,
    answer: Arc<Mutex<Answer>>,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(answer: impl Fn(&ReceivedRequest) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let answer: Arc<Mutex<Answer>> = Arc::new(Mutex::new(Arc::new(answer)));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (answers, keeps) = (Arc::clone(&answer), Arc::clone(&requests));
        let router = Router::new().fallback(move |request: Request<Body>| {
            let request = ReceivedRequest {
                path: request.uri().path().to_owned(),
                query: request.uri().query().unwrap_or_default().to_owned(),
                headers: request.headers().clone(),
            };
            let answer = Arc::clone(&answers.lock().unwrap());
            let response = answer(&request);
            keeps.lock().unwrap().push(request);
            std::future::ready(response)
        });
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, answer, requests, task }
    }

    /// From now on it answers like this.
    pub(crate) fn answers(&self, answer: impl Fn(&ReceivedRequest) -> Response + Send + Sync + 'static) {
        *self.answer.lock().unwrap() = Arc::new(answer);
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn last(&self) -> ReceivedRequest {
        self.requests().pop().expect("a request")
    }

    /// Says when it has been asked so often from now on.
    pub(crate) fn times(&self, more: usize) -> impl Fn() -> bool + use<> {
        let requests = Arc::clone(&self.requests);
        let target = requests.lock().unwrap().len() + more;
        move || requests.lock().unwrap().len() >= target
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::new(&format!("{}/document", self.address)).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An answer with some headers.
pub(crate) fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Body>) -> Response {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(body.into()).unwrap().into_response()
}
