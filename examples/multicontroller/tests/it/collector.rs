//! A collector that keeps what it is sent.

use std::sync::{Arc, Mutex};

use axum::{Router, body::Bytes, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use prost::Message;

pub(crate) struct Collector {
    pub(crate) endpoint: String,
    received: Arc<Mutex<Vec<Bytes>>>,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::<Mutex<Vec<Bytes>>>::default();
        let keep = Arc::clone(&received);
        let take = async move |body: Bytes| keep.lock().unwrap().push(body);
        let router = Router::new().route("/v1/traces", post(take));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { endpoint, received }
    }

    fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        let received = self.received.lock().unwrap();
        received.iter().map(|body| ExportTraceServiceRequest::decode(body.clone()).unwrap()).collect()
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        let resources = self.requests().into_iter().flat_map(|request| request.resource_spans);
        resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
    }

    /// The service of these spans.
    pub(crate) fn service(&self) -> Option<String> {
        let requests = self.requests();
        find(&requests.first()?.resource_spans.first()?.resource.as_ref()?.attributes, "service.name")
    }

    /// All bytes as they came, as far as they are text.
    pub(crate) fn everything(&self) -> String {
        self.received.lock().unwrap().iter().map(|body| String::from_utf8_lossy(body).into_owned()).collect()
    }
}

/// An attribute of a span, as text.
pub(crate) fn attribute(span: &Span, key: &str) -> Option<String> {
    find(&span.attributes, key)
}

fn find(attributes: &[KeyValue], key: &str) -> Option<String> {
    match attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        Value::IntValue(number) => Some(number.to_string()),
        other => Some(format!("{other:?}")),
    }
}
