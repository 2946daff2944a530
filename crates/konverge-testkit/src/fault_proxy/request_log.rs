//! The requests of a part of a run, as tests count them.

use super::journal::{JournalEntry, Reached};
use crate::api_request::{ApiRequest, Verb};

/// The requests from a place in the journal on, in the order of their arrival.
#[derive(Debug, Clone)]
pub struct RequestLog(pub(super) Vec<JournalEntry>);

impl RequestLog {
    /// All of it.
    pub fn entries(&self) -> &[JournalEntry] {
        &self.0
    }

    /// The requests that changed objects or may have, including those without a response yet: `patch configmaps shop/a`. Leases, which are renewed with
    /// time, and events, which say what is known already, do not count.
    pub fn writes(&self) -> Vec<String> {
        let counts = |entry: &&JournalEntry| {
            let is_under_way = entry.mutation.is_some() && entry.reached == Reached::Server;
            (is_under_way || entry.is_committed()) && !["events", "leases"].contains(&entry.request.resource.as_str())
        };
        self.0.iter().filter(counts).map(|entry| entry.request.to_string()).collect()
    }

    /// How often a list of a collection began. Its further pages do not count, and neither does a list of one object by its name.
    pub fn lists(&self) -> usize {
        let is_one = |request: &ApiRequest| {
            request.parameter("fieldSelector").is_some_and(|fields| fields.starts_with("metadata.name="))
        };
        let begins = |entry: &&JournalEntry| {
            entry.request.verb == Verb::List && entry.request.parameter("continue").is_none() && !is_one(&entry.request)
        };
        self.0.iter().filter(begins).count()
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, StatusCode, Uri};

    use super::{super::journal::Journal, *};

    #[test]
    fn writes_are_what_was_committed_and_lists_are_their_first_pages() {
        let journal = Journal::default();
        for (method, uri, code) in [
            (Method::PATCH, "/api/v1/namespaces/shop/configmaps/a", StatusCode::OK),
            (Method::PATCH, "/api/v1/namespaces/shop/configmaps/b", StatusCode::CONFLICT),
            (Method::PATCH, "/apis/coordination.k8s.io/v1/namespaces/shop/leases/a", StatusCode::OK),
            (Method::POST, "/apis/events.k8s.io/v1/namespaces/shop/events", StatusCode::CREATED),
            (Method::GET, "/api/v1/configmaps?limit=500", StatusCode::OK),
            (Method::GET, "/api/v1/configmaps?limit=500&continue=x", StatusCode::OK),
            (Method::GET, "/api/v1/configmaps?watch=true", StatusCode::OK),
            (Method::GET, "/api/v1/namespaces/shop/configmaps?fieldSelector=metadata.name%3Da", StatusCode::OK),
        ] {
            let request = ApiRequest::parse(&method, &uri.parse::<Uri>().unwrap());
            journal.begin(request, uri.to_owned()).answered(code);
        }
        let uri = "/api/v1/namespaces/shop/configmaps/c";
        let request = ApiRequest::parse(&Method::DELETE, &uri.parse::<Uri>().unwrap());
        journal.begin(request, uri.to_owned()).forwarded();
        let asked = RequestLog(journal.entries());
        assert_eq!(asked.writes(), ["patch configmaps shop/a", "delete configmaps shop/c"]);
        assert_eq!((asked.lists(), asked.entries().len()), (1, 9));
    }
}
