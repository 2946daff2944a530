//! The form in which the server keeps the address of a network resource.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the form in which the server shows an address: an IP address as a prefix, a domain as it is. `None` if the server refuses it, which it
/// does with a 500 that has no reason.
pub fn canonical(address: &str) -> Option<String> {
    if let Ok(ip) = address.parse::<IpAddr>() {
        return Some(format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 }));
    }
    if let Some((ip, bits)) = address.split_once('/') {
        let bits: u8 = bits.parse().ok()?;
        return match (ip.parse::<Ipv4Addr>(), ip.parse::<Ipv6Addr>()) {
            (Ok(ip), _) if bits <= 32 => Some(format!("{ip}/{bits}")),
            (_, Ok(ip)) if bits <= 128 => Some(format!("{ip}/{bits}")),
            _ => None,
        };
    }
    let (labels, last) = address.strip_prefix("*.").unwrap_or(address).rsplit_once('.')?;
    let is_label = |label: &str| {
        !label.is_empty() && label.chars().all(|character| character.is_ascii_alphanumeric() || character == '-')
    };
    let is_domain =
        labels.split('.').all(is_label) && last.len() >= 2 && last.chars().all(|last| last.is_ascii_alphabetic());
    is_domain.then(|| address.to_owned())
}

/// Returns the server's word for an address in its canonical form: `host`, `subnet` or `domain`.
pub fn address_type(canonical: &str) -> &'static str {
    match canonical.rsplit_once('/') {
        Some((_, "32" | "128")) => "host",
        Some(_) => "subnet",
        None => "domain",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w27_addresses_are_compared_in_the_form_of_the_server() {
        for (address, expected) in [
            ("10.0.0.1", Some("10.0.0.1/32")),
            ("10.0.0.1/32", Some("10.0.0.1/32")),
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("fd00::1", Some("fd00::1/128")),
            ("FD00:0::1", Some("fd00::1/128")),
            ("web.shop.svc.cluster.local", Some("web.shop.svc.cluster.local")),
            ("*.example.com", Some("*.example.com")),
            ("10.0.0.0/33", None),
            ("10.0.0.1 ", None),
            ("localhost", None),
            ("a..b.com", None),
            ("", None),
        ] {
            assert_eq!(canonical(address).as_deref(), expected, "{address}");
        }
    }
}
