//! Addresses: how they are shown, and where a redirect may lead. Pure.

use url::Url;

/// Without user, password, query and fragment, any of which may hold a secret.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // These fail only for addresses that have no user to begin with.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

/// Where a redirect leads; nothing if it is not to be followed: to what is no address, away from HTTP, or from TLS to none.
pub(super) fn follow(from: &Url, location: &str) -> Option<Url> {
    let to = from.join(location).ok()?;
    match (from.scheme(), to.scheme()) {
        (_, "https") | ("http", "http") => Some(to),
        _ => None,
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
