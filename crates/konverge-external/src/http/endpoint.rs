//! Where and how to ask.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use konverge_core::error::in_one_line;
use konverge_endpoint::{address, retry_after};
use url::Url;

use super::{HttpError, Token, client};

/// An address, who asks, and the limits of asking.
///
/// Guarantees: neither token nor headers go to another origin than that of the address, whatever redirects say, and no
/// redirect leads from TLS to none.
pub struct Endpoint {
    url: Url,
    shown: String,
    headers: HeaderMap,
    token: Option<Token>,
    client: Option<reqwest::Client>,
    authorities: Vec<u8>,
    connect_timeout: Duration,
    timeout: Duration,
    redirects: u32,
}

/// The given address is not valid.
#[derive(Debug, thiserror::Error)]
#[error("not an address of a document: {why}")]
pub struct InvalidEndpoint {
    why: String,
}

impl Endpoint {
    /// An `http` or `https` address. A user and password in it go into an `Authorization` header.
    pub fn new(url: &str) -> Result<Self, InvalidEndpoint> {
        let url = Url::parse(url).map_err(|error| InvalidEndpoint { why: error.to_string() })?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(InvalidEndpoint { why: format!("{} is neither http nor https", address::shown(&url)) });
        }
        Ok(Self {
            shown: address::shown(&url),
            url,
            headers: HeaderMap::new(),
            token: None,
            client: None,
            authorities: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            redirects: 5,
        })
    }

    /// Adds a header. Its value is taken for a secret: it is not printed and not sent to another origin.
    #[must_use]
    pub fn header(mut self, name: HeaderName, mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        self.headers.append(name, value);
        self
    }

    /// Asks as the bearer of a token.
    #[must_use]
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// Asks with this client, for example one with a certificate of its own. It had better follow no redirects by
    /// itself, since headers would follow them. [`Endpoint::connect_timeout`] and [`Endpoint::authorities`] are the
    /// client's own then.
    #[must_use]
    pub fn client(mut self, client: reqwest::Client) -> Self {
        self.client = Some(client);
        self
    }

    /// Trusts these certificate authorities too: one or more certificates in PEM.
    #[must_use]
    pub fn authorities(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authorities = pem.into();
        self
    }

    /// The limit for making a connection, TLS included; 10 s unless set.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// The limit for the whole answer, redirects and body included; 30 s unless set. Of an event stream, until it begins.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// How many redirects are followed; 5 unless set.
    #[must_use]
    pub fn redirects(mut self, limit: u32) -> Self {
        self.redirects = limit;
        self
    }

    /// The address without user, password and query: fit for logs, metrics and errors.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    pub(crate) fn whole_timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends a request and follows redirects; the answer's body is not read. Whether it was redirected comes with it.
    ///
    /// `query` is added to that of the address. Without a time limit of its own.
    pub(crate) async fn send(
        &mut self,
        extra: HeaderMap,
        query: &[(String, String)],
    ) -> Result<(reqwest::Response, bool), HttpError> {
        let client = match &self.client {
            Some(client) => client.clone(),
            None => self.client.insert(client::client(self.connect_timeout, &self.authorities)?).clone(),
        };
        let mut url = self.url.clone();
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let origin = url.origin();
        let mut followed = 0;
        loop {
            let mut headers = extra.clone();
            if url.origin() == origin {
                headers.extend(self.headers.clone());
                if let Some(token) = &self.token {
                    headers.insert(header::AUTHORIZATION, token.header().await?);
                }
            }
            let answer = client.get(url.clone()).headers(headers).send().await;
            let answer = answer.map_err(|error| self.transport(error))?;
            let redirect = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
            let location = answer.headers().get(header::LOCATION).filter(|_| redirect);
            let Some(location) = location.and_then(|location| location.to_str().ok()) else {
                // The client may be the user's, and follow redirects by itself.
                let by_client = answer.url().path() != url.path() || answer.url().origin() != url.origin();
                let redirected = followed > 0 || by_client;
                return Ok((answer, redirected));
            };
            let to = url.join(location).map_or_else(|_| "no address".to_owned(), |to| address::shown(&to));
            let refused = |why| HttpError::Redirect { url: self.shown.clone(), to, why };
            let Some(next) = address::follow(&url, location) else {
                return Err(refused("it is not HTTP, or gives up TLS"));
            };
            if followed == self.redirects {
                return Err(refused("there were too many before"));
            }
            followed += 1;
            url = next;
        }
    }

    /// Reads a body up to a limit.
    pub(crate) async fn body(&self, mut answer: reqwest::Response, limit: usize) -> Result<Bytes, HttpError> {
        let too_large = || HttpError::TooLarge { url: self.shown.clone(), limit };
        if answer.content_length().is_some_and(|length| length > limit as u64) {
            return Err(too_large());
        }
        let mut body = BytesMut::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.transport(error))? {
            if body.len() + chunk.len() > limit {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    pub(crate) fn status(&self, status: StatusCode, headers: &HeaderMap) -> HttpError {
        let asks = matches!(status.as_u16(), 429 | 503);
        let retry_after = asks.then(|| retry_after(headers, std::time::SystemTime::now())).flatten();
        HttpError::Status { url: self.shown.clone(), status, retry_after }
    }

    fn transport(&self, error: reqwest::Error) -> HttpError {
        let url = self.shown.clone();
        if error.is_connect() && error.is_timeout() {
            return HttpError::Timeout { url, limit: self.connect_timeout };
        }
        HttpError::Transport { url, cause: in_one_line(&error.without_url()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_of_a_document_is_refused() {
        for url in ["", "example.com", "file:///etc/passwd", "ftp://example.com/", "http://"] {
            assert!(Endpoint::new(url).is_err(), "{url}");
        }
        let endpoint = Endpoint::new("https://me:secret@example.com/a?b=c").unwrap();
        assert_eq!(endpoint.shown(), "https://example.com/a");
    }
}
