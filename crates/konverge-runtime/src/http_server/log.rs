//! `/debug/log`: the log filter, for those who are on the machine or in the pod already.
//!
//! Only a peer at 127.0.0.1 or `::1` is answered. That is who may enter the pod (`kubectl port-forward`, `kubectl exec`), so the
//! cluster's own roles decide who may. Proxies that stand in for others within the pod, as those of a mesh do, come from other
//! addresses of the loopback network and are refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::{
    Router,
    extract::{ConnectInfo, DefaultBodyLimit, State},
    http::StatusCode,
    routing::get,
};

use crate::telemetry::{FilterError, LogFilter};

pub(super) const PATH: &str = "/debug/log";

/// More than any filter has.
const LONGEST: usize = 4096;

type Answer = (StatusCode, String);

/// `GET` tells the filter, `PUT` puts its body in force, `DELETE` goes back to that of the start.
pub(super) fn router<S: Clone + Send + Sync + 'static>(filter: LogFilter) -> Router<S> {
    let methods = get(async |peer: Peer, State(filter): State<LogFilter>| guarded(peer, || filter.get()))
        .put(async |peer: Peer, State(filter): State<LogFilter>, text: String| {
            guarded(peer, || {
                filter.set(&text)?;
                told(&filter)
            })
        })
        .delete(async |peer: Peer, State(filter): State<LogFilter>| {
            guarded(peer, || {
                filter.reset()?;
                told(&filter)
            })
        });
    Router::new().route(PATH, methods).layer(DefaultBodyLimit::max(LONGEST)).with_state(filter)
}

type Peer = ConnectInfo<SocketAddr>;

fn guarded(ConnectInfo(peer): Peer, act: impl FnOnce() -> Result<String, FilterError>) -> Answer {
    if !is_here(peer.ip()) {
        let how = "only from within: use kubectl port-forward, and http://127.0.0.1\n";
        return (StatusCode::FORBIDDEN, how.to_owned());
    }
    match act() {
        Ok(filter) => (StatusCode::OK, format!("{filter}\n")),
        Err(error @ FilterError::Text { .. }) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

/// Returns the filter in force. It is also logged, because readers of the log must know why its detail changes.
fn told(filter: &LogFilter) -> Result<String, FilterError> {
    let text = filter.get()?;
    tracing::warn!(filter = text, "the log filter was changed");
    Ok(text)
}

fn is_here(peer: IpAddr) -> bool {
    matches!(peer.to_canonical(), IpAddr::V4(Ipv4Addr::LOCALHOST) | IpAddr::V6(Ipv6Addr::LOCALHOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_here_is_heard() {
        for (peer, expected) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("127.0.0.6", false),
            ("10.0.0.1", false),
            ("::ffff:10.0.0.1", false),
            ("fe80::1", false),
        ] {
            assert_eq!(is_here(peer.parse().expect("an address")), expected, "{peer}");
        }
    }
}
