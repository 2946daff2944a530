//! Connections to the API server, and how soon a dead one is noticed.
//!
//! kube's own connector leaves that to the kernel, which takes minutes, and its pool hands out connections that have been idle for up to
//! 90 seconds. Each dead connection of the pool then costs a call its whole deadline.

use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Client as Connections, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use konverge_endpoint::{Connector, UnsupportedProxy};
use kube::{
    Config,
    client::{Body, ClientBuilder, ConfigExt, DynBody},
};
use tower::{BoxError, ServiceBuilder, ServiceExt, util::BoxService};
use tower_http::{ServiceExt as _, classify::ServerErrorsFailureClass, trace::TraceLayer};
use tracing::{Span, field::Empty};

use crate::telemetry::REQUESTS;

/// How long a connection stays in the pool without a request. The kernel of a peer that hangs still answers its probes, so only a short
/// stay keeps such a connection from the next call.
const IDLE: Duration = Duration::from_secs(10);

/// After so long without data, the kernel begins to probe the peer, and goes on in this interval.
const PROBED: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));

/// The number of probes without an answer that end the connection. With [`PROBED`], that is 20 seconds after the last
/// data.
const PROBES: u32 = 2;

/// After so long, data that the peer has not acknowledged ends the connection. Less than the deadline of a call.
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);

type Service = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// Creates the builder of a client that notices dead connections within 30 seconds. The client uses the proxy that the configuration or
/// `HTTPS_PROXY` names, if any.
pub fn builder(config: Config) -> Result<ClientBuilder<Service>, kube::Error> {
    let connector = connector(&config).map_err(|error| kube::Error::Service(error.into()))?;
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(connector)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let connections: Connections<_, Body> = Connections::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .layer(
            TraceLayer::new_for_http()
                .make_span_with(span)
                .on_request(())
                .on_response(|answer: &Response<Incoming>, _: Duration, span: &Span| {
                    span.record("http.status_code", answer.status().as_u16());
                    if answer.status().is_client_error() {
                        span.record("otel.status_code", "ERROR");
                    }
                })
                .on_body_chunk(())
                .on_eos(())
                .on_failure(|_: ServerErrorsFailureClass, _: Duration, span: &Span| {
                    span.record("otel.status_code", "ERROR");
                }),
        )
        .map_err(BoxError::from)
        .service(connections)
        .map_response_body(|body| Box::new(BodyExt::map_err(body, BoxError::from)) as Box<DynBody>);
    Ok(ClientBuilder::new(service.boxed(), config.default_namespace))
}

/// Connects to the API server as kubectl does: through the proxy of the kubeconfig, else of `HTTPS_PROXY`, unless `NO_PROXY` names the API
/// server. kube reads both variables for a kubeconfig only, so a pod connects directly.
fn connector(config: &Config) -> Result<Connector, UnsupportedProxy> {
    let Some(proxy) = &config.proxy_url else { return Ok(Connector::direct(tcp())) };
    let of_environment = ["HTTPS_PROXY", "https_proxy"].into_iter().filter_map(|name| std::env::var(name).ok());
    // kube ignores NO_PROXY, and does not say which of the two set the proxy.
    if of_environment.into_iter().any(|named| named.parse().is_ok_and(|named: http::Uri| named == *proxy)) {
        Connector::from_environment(&config.cluster_url, tcp())
    } else {
        Connector::through(proxy, tcp())
    }
}

/// Makes plain connections, over which the TLS ones go.
fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(PROBED.0));
    tcp.set_keepalive_interval(Some(PROBED.1));
    tcp.set_keepalive_retries(Some(PROBES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    tcp
}

/// The span of a request, with the attributes that kube gives it.
fn span<B>(request: &Request<B>) -> Span {
    tracing::debug_span!(
        target: REQUESTS,
        "HTTP",
        http.method = %request.method(),
        http.url = %request.uri(),
        http.status_code = Empty,
        otel.name = request.extensions().get::<&'static str>().copied().unwrap_or("HTTP"),
        otel.kind = "client",
        otel.status_code = Empty,
    )
}

#[cfg(test)]
mod tests {
    use socket2::SockRef;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_proxy_that_is_not_supported_is_refused_without_its_password() {
        let mut config = Config::new(http::Uri::from_static("https://192.0.2.1:6443"));
        config.proxy_url = Some(http::Uri::from_static("ftp://me:hunter2@127.0.0.1:3128"));
        let error = builder(config).err().expect("an error");
        let text = konverge_core::error::in_one_line(&error);
        assert!(text.contains("ftp://127.0.0.1:3128") && !text.contains("hunter2"), "{text}");
    }

    /// The kernel's own values are two hours for an idle connection, and a quarter of an hour for data without an acknowledgement.
    #[tokio::test]
    async fn a_peer_that_has_gone_is_noticed_within_thirty_seconds() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri: http::Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let stream = tcp().oneshot(uri).await.unwrap();
        let socket = SockRef::from(stream.inner());
        assert!(socket.keepalive().unwrap());
        let idle = socket.tcp_keepalive_time().unwrap()
            + socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
        assert!(idle < Duration::from_secs(30), "{idle:?}");
        #[cfg(target_os = "linux")]
        {
            let unacknowledged = socket.tcp_user_timeout().unwrap().unwrap_or(Duration::MAX);
            assert!(unacknowledged < Duration::from_secs(30), "{unacknowledged:?}");
        }
    }
}
