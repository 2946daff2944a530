//! From which address a request comes, also behind a proxy: what a proxy says counts only if it is one that was configured.

use std::{net::IpAddr, str::FromStr, sync::Arc};

use http::HeaderMap;
use tonic::{Request, Status, service::Interceptor};

/// Where proxies write the addresses that a request came through, the nearest last.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// A proxy, or a network of them, that is believed: `10.0.0.1`, `10.0.0.0/8`, `fd00::/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustedProxy {
    network: IpAddr,
    prefix: u8,
}

/// It is no address and no network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an address such as 10.0.0.1 or a network such as 10.0.0.0/8")]
pub struct NoNetwork;

impl FromStr for TrustedProxy {
    type Err = NoNetwork;

    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let network: IpAddr = address.trim().parse().map_err(|_| NoNetwork)?;
        let longest = if network.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(longest), |prefix| prefix.trim().parse().map_err(|_| NoNetwork))?;
        if prefix > longest { Err(NoNetwork) } else { Ok(Self { network, prefix }) }
    }
}

impl TrustedProxy {
    /// Is the address this proxy's, or in this network?
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        let differing = match (self.network, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                u128::from(network.to_bits() ^ address.to_bits()) << (128 - 32)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => network.to_bits() ^ address.to_bits(),
            _ => return false,
        };
        // Of all bits, those of the network must not differ.
        self.prefix == 0 || differing >> (128 - u32::from(self.prefix)) == 0
    }
}

/// Puts the address of the client on each request.
#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    trusted: Arc<[TrustedProxy]>,
}

/// On a request: the address of its client.
#[derive(Debug, Clone, Copy)]
struct ClientAddress(IpAddr);

impl Addresses {
    pub(crate) fn new(trusted: &[TrustedProxy]) -> Self {
        Self { trusted: trusted.into() }
    }

    /// The address of the client whose request with these headers came from `peer`.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let is_trusted = |address| self.trusted.iter().any(|proxy| proxy.contains(address));
        if !is_trusted(peer) {
            return peer;
        }
        let lines: Vec<_> = headers.get_all(FORWARDED_FOR).iter().filter_map(|line| line.to_str().ok()).collect();
        // From the nearest on: the first that is no proxy of ours is the client, and what it wrote further left is its own tale.
        let mut client = peer;
        for hop in lines.iter().rev().flat_map(|line| line.rsplit(',')) {
            let Ok(address) = hop.trim().parse::<IpAddr>() else { break };
            client = address;
            if !is_trusted(address) {
                break;
            }
        }
        client
    }
}

impl Interceptor for Addresses {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(peer) = request.remote_addr() {
            let client = self.client(peer.ip().to_canonical(), request.metadata().as_ref()).to_canonical();
            request.extensions_mut().insert(ClientAddress(client));
        }
        Ok(request)
    }
}

/// The address of the client that sent a request.
pub(crate) fn client_address<M>(request: &Request<M>) -> Option<IpAddr> {
    request.extensions().get::<ClientAddress>().map(|ClientAddress(address)| *address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(trusted: &[&str], peer: &str, forwarded: &[&str]) -> String {
        let trusted: Vec<TrustedProxy> = trusted.iter().map(|text| text.parse().unwrap()).collect();
        let mut headers = HeaderMap::new();
        for line in forwarded {
            headers.append(FORWARDED_FOR, line.parse().unwrap());
        }
        Addresses::new(&trusted).client(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn only_configured_proxies_are_believed() {
        let table: [(&[&str], &str, &[&str], &str); 8] = [
            (&[], "192.0.2.1", &["198.51.100.7"], "192.0.2.1"),
            (&["10.0.0.0/8"], "192.0.2.1", &["198.51.100.7"], "192.0.2.1"),
            (&["10.0.0.0/8"], "10.1.2.3", &["198.51.100.7"], "198.51.100.7"),
            (&["10.0.0.0/8"], "10.1.2.3", &[], "10.1.2.3"),
            (&["10.0.0.0/8"], "10.1.2.3", &["nonsense"], "10.1.2.3"),
            // The client wrote the first one itself.
            (&["10.0.0.0/8"], "10.1.2.3", &["203.0.113.9, 198.51.100.7"], "198.51.100.7"),
            (&["10.0.0.0/8"], "10.1.2.3", &["203.0.113.9", "198.51.100.7, 10.9.9.9"], "198.51.100.7"),
            (&["fd00::/8", "0.0.0.0/0"], "fd00::1", &["2001:db8::1"], "2001:db8::1"),
        ];
        for (trusted, peer, forwarded, expected) in table {
            assert_eq!(client(trusted, peer, forwarded), expected, "{trusted:?} {peer} {forwarded:?}");
        }
    }

    #[test]
    fn networks_are_read_and_nothing_else() {
        for bad in ["", "10.0.0.0/33", "fd00::/129", "10.0.0", "proxy", "10.0.0.0/x"] {
            assert_eq!(bad.parse::<TrustedProxy>(), Err(NoNetwork), "{bad}");
        }
        let network: TrustedProxy = "10.0.0.0/30".parse().unwrap();
        for (address, inside) in [("10.0.0.3", true), ("10.0.0.4", false), ("::ffff:10.0.0.1", true), ("::1", false)] {
            assert_eq!(network.contains(address.parse().unwrap()), inside, "{address}");
        }
    }
}
