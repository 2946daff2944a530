//! Addresses: how they are read and shown, and where a redirect may lead. Pure.

use url::{Host, ParseError, Url};

/// An address that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{address}: {why}")]
#[non_exhaustive]
pub struct NoAddress {
    /// The address without user, password, query and fragment.
    pub address: String,
    /// The reason.
    pub why: String,
}

/// Returns the address of an API, which begins at `base` beneath the address of its server; the text may name `base`, too. `server` is what an
/// error calls the server.
pub fn api(text: &str, server: &str, base: &str) -> Result<Url, NoAddress> {
    // Before it is parsed, nothing tells a password in it from the rest.
    let mut url = Url::parse(text.trim())
        .map_err(|error| NoAddress { address: "(not shown)".to_owned(), why: unreadable(error) })?;
    // A password after a forgotten `https://` is neither a password nor a path to the parser.
    let address = if url.has_host() { shown(&url) } else { "(not shown)".to_owned() };
    let refused = |why: String| Err(NoAddress { address, why });
    if !is_http(&url) {
        return refused("it is neither http nor https".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return refused(format!("it has a user or a password, which {server} does not know"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return refused("it has a query or a fragment".to_owned());
    }
    let path = url.path().trim_end_matches('/').trim_end_matches(&format!("/{base}")).to_owned();
    url.set_path(&format!("{path}/{base}/"));
    Ok(url)
}

/// Returns why a text is no address, in the words of a person who wrote one.
fn unreadable(error: ParseError) -> String {
    match error {
        ParseError::RelativeUrlWithoutBase => "it does not begin with http:// or https://".to_owned(),
        other => other.to_string(),
    }
}

/// Returns the address of an HTTP or SOCKS 5 proxy, or `None` if the text is no such address. Errors do not repeat the text, because it may contain a
/// password.
pub fn proxy(text: &str) -> Option<Url> {
    let is_socks = |url: &Url| matches!(url.scheme(), "socks5" | "socks5h") && url.has_host();
    Url::parse(text.trim()).ok().filter(|url| is_http(url) || is_socks(url))
}

fn is_http(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https") && url.host_str().is_some()
}

/// Returns the address without user, password, query and fragment, any of which may hold a secret.
pub fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // These fail only for addresses that have no user to begin with.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

/// Returns where a redirect leads, or `None` if it must not be followed: it is no address, leaves HTTP, or leaves TLS.
pub fn follow(from: &Url, location: &str) -> Option<Url> {
    let to = from.join(location).ok()?;
    match (from.scheme(), to.scheme()) {
        (_, "https") | ("http", "http") => Some(to),
        _ => None,
    }
}

/// Whether what is sent to this address leaves the machine without TLS.
pub fn is_in_the_clear(url: &Url) -> bool {
    url.scheme() == "http" && !url.host().is_some_and(|host| is_loopback(&host))
}

/// Whether what is sent there stays on this machine. A name does by its own promise (RFC 6761), not by what it leads to now.
fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => *name == "localhost" || name.ends_with(".localhost"),
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.to_canonical().is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn what_may_be_secret_is_not_shown() {
        assert_eq!(shown(&url("https://me:hunter2@example.com:8443/a/b?token=t#f")), "https://example.com:8443/a/b");
    }

    #[test]
    fn what_is_wrong_with_an_address_is_said_without_its_secrets() {
        for (text, address, why) in [
            ("ftp://x/?token=hunter2", "ftp://x/", "neither http"),
            ("https://me:hunter2@x", "https://x/", "which Vault does not know"),
            ("https://x/?token=hunter2", "https://x/", "a query"),
            ("me:hunter2@x", "(not shown)", "neither http"),
            ("hunter2", "(not shown)", "begin with http://"),
        ] {
            let error = api(text, "Vault", "v1").unwrap_err();
            assert!(error.address == address && error.why.contains(why), "{text}: {error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        assert_eq!(api(" https://x/y/v1/ ", "Vault", "v1"), Ok(url("https://x/y/v1/")));
    }

    #[test]
    fn proxies() {
        for (text, is_one) in [
            ("http://me:p@proxy:3128", true),
            (" https://proxy ", true),
            ("socks5://x", true),
            ("socks4://x", false),
            ("x", false),
        ] {
            assert_eq!(proxy(text).is_some(), is_one, "{text}");
        }
    }

    #[test]
    fn redirects() {
        let from = url("https://example.com/a/b");
        for (location, to) in [
            ("c", Some("https://example.com/a/c")),
            ("/c?d", Some("https://example.com/c?d")),
            ("https://other.example/", Some("https://other.example/")),
            ("http://example.com/a/b", None),
            ("file:///etc/passwd", None),
            ("https://", None),
        ] {
            assert_eq!(follow(&from, location), to.map(url), "{location}");
        }
        assert!(follow(&url("http://a/"), "http://b/").is_some());
        assert!(follow(&url("http://a/"), "https://a/").is_some());
    }
}
