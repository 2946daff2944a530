//! The HTTP client of stores.

use std::time::Duration;

use futures::future::BoxFuture;
use object_store::{
    ClientConfigKey, ClientOptions, Error,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    },
};

use crate::http;

/// The limit for making a connection, and for the pause between two pieces of an answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The first bytes of a listing: of S3 and Google, and of Azure.
const ROOTS: [&[u8]; 2] = [b"<ListBucketResult", b"<EnumerationResults"];

/// The root element comes within so many bytes: before it is the XML declaration and at most a comment.
const BEGINNING: usize = 1024;

/// Hands our HTTP client to stores that are built by hand, with their `with_http_connector`; [`open`](super::open())
/// does it by itself.
///
/// TLS is rustls with ring and the system's certificate authorities; of the store's client options only `allow_http`
/// counts. And it looks at listings: `object_store` takes any XML for one, so that a page of HTML, sent with status 200
/// by a proxy in the way, would be a listing without objects.
#[derive(Debug, Clone, Copy, Default)]
pub struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let generic = |source| Error::Generic { store: "HTTP", source };
        let allow_http = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|value| value == "true");
        let builder = http::client_builder(CONNECT_TIMEOUT, &[]).map_err(|error| generic(Box::new(error)))?;
        let client = builder.read_timeout(READ_TIMEOUT).https_only(!allow_http).build();
        Ok(HttpClient::new(Checked(client.map_err(|error| generic(Box::new(error)))?)))
    }
}

#[derive(Debug)]
struct Checked(reqwest::Client);

impl HttpService for Checked {
    fn call<'this, 'future>(&'this self, request: HttpRequest) -> BoxFuture<'future, Result<HttpResponse, HttpError>>
    where
        'this: 'future,
        Self: 'future,
    {
        Box::pin(async move {
            let lists = is_listing(request.uri().query().unwrap_or_default());
            let answer = self.0.call(request).await?;
            if !lists || !answer.status().is_success() {
                return Ok(answer);
            }
            // One page: a thousand names.
            let (parts, body) = answer.into_parts();
            let body = body.bytes().await?;
            if !begins_a_listing(&body) {
                return Err(HttpError::new(HttpErrorKind::Decode, NoListing));
            }
            Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(body)))
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the answer to a request for a listing is none; is something between here and the store?")]
struct NoListing;

/// Whether a query asks for a listing: of S3 and Google, or of Azure.
fn is_listing(query: &str) -> bool {
    query.split('&').any(|part| part == "list-type=2" || part == "comp=list")
}

fn begins_a_listing(body: &[u8]) -> bool {
    let beginning = &body[..body.len().min(BEGINNING)];
    ROOTS.iter().any(|root| beginning.windows(root.len()).any(|window| window == *root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_are_told_from_pages() {
        assert!(is_listing("list-type=2&prefix=a%2F") && is_listing("restype=container&comp=list"));
        assert!(!is_listing("") && !is_listing("prefix=list-type=2"));
        for (body, expected) in [
            ("<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"x\"></ListBucketResult>", true),
            ("\u{feff}<?xml version=\"1.0\"?><EnumerationResults ContainerName=\"x\"/>", true),
            ("<html>please log in</html>", false),
            ("", false),
        ] {
            assert_eq!(begins_a_listing(body.as_bytes()), expected, "{body}");
        }
    }
}
