//! Connections to a server, direct or through a proxy, below TLS.

use std::{
    net::IpAddr,
    task::{Context, Poll},
};

use futures::{TryFutureExt, future::BoxFuture};
use http::{HeaderValue, Uri};
use hyper_util::{
    client::{
        legacy::connect::{
            HttpConnector,
            proxy::{SocksV5, Tunnel},
        },
        proxy::matcher::{Intercept, Matcher},
    },
    rt::TokioIo,
};
use tokio::net::TcpStream;
use tower_service::Service;

/// The default port of a SOCKS proxy.
const SOCKS_PORT: u16 = 1080;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Makes connections to a server, direct or through a proxy.
///
/// An `http://` proxy gets a CONNECT request, so it sees the name of the server and nothing that TLS protects. A `socks5://` proxy gets the
/// address, a `socks5h://` proxy the name. User and password in the address of the proxy are sent to it.
#[derive(Clone)]
pub struct Connector(Route);

#[derive(Clone)]
enum Route {
    Direct(HttpConnector),
    Tunnel(Tunnel<HttpConnector>),
    Socks(SocksV5<HttpConnector>),
}

/// An address of a proxy that is not supported. The text has no password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the proxy {proxy} is not supported; use the address of an http:// or a socks5:// proxy")]
pub struct UnsupportedProxy {
    proxy: String,
}

impl Connector {
    /// Connects without a proxy.
    pub fn direct(tcp: HttpConnector) -> Self {
        Self(Route::Direct(tcp))
    }

    /// Connects to every server through this proxy.
    pub fn through(proxy: &Uri, tcp: HttpConnector) -> Result<Self, UnsupportedProxy> {
        let matcher = Matcher::builder().all(proxy.to_string()).build();
        match matcher.intercept(&Uri::from_static("https://server.invalid")) {
            Some(intercept) => Self::by(&intercept, tcp),
            None => Err(UnsupportedProxy { proxy: shown(proxy) }),
        }
    }

    /// Connects through the proxy that `HTTPS_PROXY` and `NO_PROXY` name for this server, if any. Connections without TLS, or to this
    /// machine, never use it.
    pub fn from_environment(server: &Uri, tcp: HttpConnector) -> Result<Self, UnsupportedProxy> {
        match from_environment(server, &Matcher::from_env()) {
            Some(intercept) => Self::by(&intercept, tcp),
            None => Ok(Self::direct(tcp)),
        }
    }

    /// Returns `true` if there is a proxy.
    pub fn is_proxied(&self) -> bool {
        !matches!(self.0, Route::Direct(_))
    }

    fn by(intercept: &Intercept, tcp: HttpConnector) -> Result<Self, UnsupportedProxy> {
        let proxy = intercept.uri();
        let unsupported = || UnsupportedProxy { proxy: shown(proxy) };
        let route = match proxy.scheme_str() {
            Some("http") => {
                let tunnel = Tunnel::new(proxy.clone(), tcp);
                Route::Tunnel(match intercept.basic_auth() {
                    Some(auth) => tunnel.with_auth(HeaderValue::clone(auth)),
                    None => tunnel,
                })
            }
            Some(scheme @ ("socks5" | "socks5h")) => {
                let socks = SocksV5::new(with_port(proxy).ok_or_else(unsupported)?, tcp).local_dns(scheme == "socks5");
                Route::Socks(match intercept.raw_auth() {
                    Some((user, password)) => socks.with_auth(user.to_owned(), password.to_owned()),
                    None => socks,
                })
            }
            _ => return Err(unsupported()),
        };
        Ok(Self(route))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match &mut self.0 {
            Route::Direct(tcp) => tcp.poll_ready(context).map_err(Into::into),
            Route::Tunnel(tunnel) => tunnel.poll_ready(context).map_err(Into::into),
            Route::Socks(socks) => socks.poll_ready(context).map_err(Into::into),
        }
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        match &mut self.0 {
            Route::Direct(tcp) => Box::pin(tcp.call(server).map_err(Into::into)),
            Route::Tunnel(tunnel) => Box::pin(tunnel.call(server).map_err(Into::into)),
            Route::Socks(socks) => Box::pin(socks.call(server).map_err(Into::into)),
        }
    }
}

/// Returns the proxy for this server by the rules of Go's programs, such as kubectl.
fn from_environment(server: &Uri, matcher: &Matcher) -> Option<Intercept> {
    let host = server.host()?.trim_start_matches('[').trim_end_matches(']');
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if is_here || server.scheme_str() != Some("https") { None } else { matcher.intercept(server) }
}

fn with_port(proxy: &Uri) -> Option<Uri> {
    if proxy.port().is_some() {
        return Some(proxy.clone());
    }
    let authority = format!("{}:{SOCKS_PORT}", proxy.host()?);
    Uri::builder().scheme(proxy.scheme_str()?).authority(authority).path_and_query("/").build().ok()
}

/// Returns the address without user and password.
fn shown(proxy: &Uri) -> String {
    let port = proxy.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", proxy.scheme_str().unwrap_or("http"), proxy.host().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_a_proxy_for_servers_with_tls_elsewhere() {
        let matcher = Matcher::builder().https("http://proxy:3128").no("10.0.0.0/8,.internal,example.com").build();
        for (server, is_proxied) in [
            ("https://192.0.2.1:6443", true),
            ("https://api.cluster.example:6443", true),
            ("https://10.1.2.3:6443", false),
            ("https://api.internal", false),
            ("https://example.com", false),
            ("https://127.0.0.1:6443", false),
            ("https://[::1]:6443", false),
            ("https://localhost:6443", false),
            ("http://192.0.2.1", false),
        ] {
            let found = from_environment(&server.parse().unwrap(), &matcher);
            assert_eq!(found.is_some(), is_proxied, "{server}");
        }
    }

    #[test]
    fn proxies_by_their_addresses() {
        for (proxy, is_supported) in [
            ("http://proxy:3128", true),
            ("http://me:hunter2@proxy:3128", true),
            ("proxy:3128", true),
            ("socks5://proxy", true),
            ("socks5h://me:hunter2@proxy:1080", true),
            ("https://me:hunter2@proxy:3128", false),
            ("socks4://me:hunter2@proxy:3128", false),
            ("ftp://me:hunter2@proxy", false),
        ] {
            let connector = Connector::through(&proxy.parse().unwrap(), HttpConnector::new());
            assert_eq!(connector.as_ref().is_ok_and(Connector::is_proxied), is_supported, "{proxy}");
            if let Err(error) = connector {
                assert!(error.to_string().contains("proxy") && !error.to_string().contains("hunter2"), "{error}");
            }
        }
    }

    #[test]
    fn a_socks_proxy_has_a_usual_port() {
        for (proxy, expected) in [("socks5://a", "socks5://a:1080/"), ("socks5://a:9", "socks5://a:9/")] {
            assert_eq!(with_port(&proxy.parse().unwrap()).unwrap().to_string(), expected);
        }
    }
}
