//! The real API server, asked as the user of one kubeconfig.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header, request::Parts};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use kube::{Config, client::ConfigExt};
use tower::{BoxError, ServiceBuilder, ServiceExt, util::BoxCloneSyncService};

/// Headers that belong to one connection and not to the message.
const HOP_BY_HOP: [HeaderName; 6] =
    [header::CONNECTION, header::TE, header::TRAILER, header::TRANSFER_ENCODING, header::UPGRADE, header::HOST];

/// Asks the API server. There are no retries: what a client sends twice is seen twice.
#[derive(Clone)]
pub(super) struct Upstream(BoxCloneSyncService<Request<Full<Bytes>>, Response<Incoming>, BoxError>);

impl Upstream {
    pub(super) fn new(config: &Config) -> Result<Self, kube::Error> {
        let connection = Client::builder(TokioExecutor::new()).build(config.rustls_https_connector()?);
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer()?)
            .layer(config.extra_headers_layer()?)
            .map_err(BoxError::from)
            .service(connection);
        Ok(Self(BoxCloneSyncService::new(service)))
    }

    pub(super) async fn ask(self, parts: &Parts, body: Bytes) -> Result<Response<Incoming>, BoxError> {
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::builder().method(&parts.method).uri(path).body(Full::new(body))?;
        *request.headers_mut() = request_headers(&parts.headers);
        self.0.oneshot(request).await
    }
}

/// The headers that go on to the API server. It is to answer in lines of JSON, which the proxy can read.
fn request_headers(headers: &HeaderMap) -> HeaderMap {
    let own = [header::AUTHORIZATION, header::ACCEPT_ENCODING, header::CONTENT_LENGTH, header::EXPECT];
    let mut kept = without_hop_by_hop(headers);
    for name in own {
        kept.remove(name);
    }
    let accepted = headers.get(header::ACCEPT).and_then(|accepted| accepted.to_str().ok()).map(|accepted| {
        let readable = accepted.split(',').map(str::trim).filter(|kind| !kind.contains("protobuf"));
        readable.collect::<Vec<_>>().join(",")
    });
    let accepted = accepted.filter(|accepted| !accepted.is_empty()).unwrap_or_else(|| "application/json".to_owned());
    if let Ok(value) = HeaderValue::from_str(&accepted) {
        kept.insert(header::ACCEPT, value);
    }
    kept
}

/// The headers that belong to the message.
pub(super) fn without_hop_by_hop(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    for name in HOP_BY_HOP {
        kept.remove(name);
    }
    kept.remove("keep-alive");
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_asked_for_what_the_proxy_can_read() {
        for (accepted, asked) in [
            ("application/json", "application/json"),
            ("application/vnd.kubernetes.protobuf, application/json", "application/json"),
            ("application/vnd.kubernetes.protobuf", "application/json"),
            ("application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v1;g=meta.k8s.io"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accepted));
            headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer of the client"));
            headers.insert(header::CONNECTION, HeaderValue::from_static("keep-alive"));
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/apply-patch+yaml"));
            let kept = request_headers(&headers);
            assert_eq!(kept[header::ACCEPT], asked);
            assert_eq!(kept[header::CONTENT_TYPE], "application/apply-patch+yaml");
            assert_eq!(kept.len(), 2, "{kept:?}");
        }
    }
}
