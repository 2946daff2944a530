//! Where a server listens, in the words of a flag.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use tokio::net::TcpListener;

/// An address, or none. Reads what `--metrics-bind-address` and `--health-probe-bind-address` take in programs made with
/// controller-runtime: `host:port`, `:port` for all addresses of the machine, and `0` for no server at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Listen {
    /// There is no server.
    Nowhere,
    /// It listens here; port 0 takes a free one. `[::]` is IPv4, too, and only that on a machine without IPv6.
    At(SocketAddr),
}

/// Text that names no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no address to listen on; write host:port with the host as a number, :port for all addresses, or 0 for no server"
)]
pub struct ListenError {
    text: String,
}

/// An address that is not available.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for health and metrics; is another process using it? choose another address")]
#[non_exhaustive]
pub struct BindError {
    /// The requested address.
    pub address: SocketAddr,
    /// The error of the operating system.
    #[source]
    pub source: std::io::Error,
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Self {
        Self::At(address)
    }
}

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        let wrong = || ListenError { text: text.to_owned() };
        if text == "0" {
            return Ok(Self::Nowhere);
        }
        let port = |port: &str| port.parse().map_err(|_not_a_port| wrong());
        let address = match text.rsplit_once(':') {
            Some(("", number)) => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port(number)?),
            Some(("localhost", number)) => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port(number)?),
            _ => text.parse().map_err(|_not_an_address| wrong())?,
        };
        Ok(Self::At(address))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => formatter.write_str("0"),
            Self::At(address) => address.fmt(formatter),
        }
    }
}

/// Takes the address, and tells which one it is.
pub(super) async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), BindError> {
    let listener = match TcpListener::bind(address).await {
        Err(_) if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && !has_ipv6().await => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        tried => tried,
    };
    let bound = listener.and_then(|listener| listener.local_addr().map(|address| (listener, address)));
    bound.map_err(|source| BindError { address, source })
}

async fn has_ipv6() -> bool {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_what_programs_of_controller_runtime_take() {
        for (text, expected) in [
            ("0", Some("0")),
            (":8080", Some("[::]:8080")),
            ("127.0.0.1:8443", Some("127.0.0.1:8443")),
            ("localhost:8081", Some("127.0.0.1:8081")),
            ("[::1]:8080", Some("[::1]:8080")),
            ("", None),
            ("8080", None),
            (":", None),
            (":99999", None),
            ("example.org:80", None),
        ] {
            let read: Option<Listen> = text.parse().ok();
            assert_eq!(read.map(|read| read.to_string()).as_deref(), expected, "{text:?}");
        }
    }

    #[tokio::test]
    async fn all_addresses_are_those_of_ipv4_too() {
        let (listener, address) = bind((Ipv6Addr::UNSPECIFIED, 0).into()).await.unwrap();
        tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, address.port())).await.unwrap();
        drop(listener);
    }
}
