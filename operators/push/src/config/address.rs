//! Addresses to listen on, as Go's programs take them: `:8080`, `127.0.0.1:8080`, `[::1]:8080`; `0` is none.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
};

/// The port that the original's library takes for metrics if it is given nothing.
const METRICS_PORT: u16 = 8080;

/// An address to listen on, or that there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bind(pub Option<SocketAddr>);

impl fmt::Display for Bind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(formatter),
            None => formatter.write_str("nowhere"),
        }
    }
}

/// That of metrics; an empty text is the default.
pub(super) fn metrics(text: &str) -> Result<Bind, String> {
    if text.is_empty() { Ok(Bind(Some(SocketAddr::new(everywhere(), METRICS_PORT)))) } else { parse(text, everywhere) }
}

/// That of health; an empty text is none.
pub(super) fn health(text: &str) -> Result<Bind, String> {
    if text.is_empty() { Ok(Bind(None)) } else { parse(text, everywhere) }
}

/// All addresses of the machine: those of both families where IPv6 can be had, as Go does it.
fn everywhere() -> IpAddr {
    match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

fn parse(text: &str, everywhere: impl FnOnce() -> IpAddr) -> Result<Bind, String> {
    if text == "0" {
        return Ok(Bind(None));
    }
    let wrong = || format!("{text:?} is no address such as :8080, 127.0.0.1:8080 or [::1]:8080, and not 0 for none");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    let host = match host {
        "" => everywhere(),
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        host => match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inner) => IpAddr::V6(inner.parse().map_err(|_| wrong())?),
            None => IpAddr::V4(host.parse().map_err(|_| wrong())?),
        },
    };
    Ok(Bind(Some(SocketAddr::new(host, port))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, expected) in [
            ("0", Some("nowhere")),
            (":8080", Some("0.0.0.0:8080")),
            ("127.0.0.1:0", Some("127.0.0.1:0")),
            ("localhost:80", Some("127.0.0.1:80")),
            ("[::1]:8080", Some("[::1]:8080")),
            ("[::]:8080", Some("[::]:8080")),
            ("8080", None),
            (":", None),
            (":http", None),
            (":65536", None),
            ("::1:8080", None),
            ("[127.0.0.1]:80", None),
            ("vault:8080", None),
        ] {
            let bind = parse(text, || Ipv4Addr::UNSPECIFIED.into());
            assert_eq!(bind.ok().map(|bind| bind.to_string()).as_deref(), expected, "{text}");
        }
        assert_eq!(health(""), Ok(Bind(None)));
        assert_eq!(metrics("").unwrap().0.unwrap().port(), 8080);
        assert!(metrics(":9").unwrap().0.unwrap().ip().is_unspecified());
    }
}
