//! Whether a request is the one that was expected, and if not, why. No IO.

use std::fmt;

use http::{Method, Uri};
use serde_json::Value;

use crate::{
    api_request::{ApiRequest, Verb},
    pattern::Pattern,
};

/// A request that an [`ApiDouble`](super::ApiDouble) was asked.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RecordedRequest {
    /// The request.
    pub request: ApiRequest,
    /// Its HTTP method.
    pub method: Method,
    /// Its path, without the query.
    pub path: String,
    /// Its body; `null` if there is none. A body that is no JSON is here as a string.
    pub body: Value,
}

impl RecordedRequest {
    pub(super) fn new(method: &Method, uri: &Uri, body: &[u8]) -> Self {
        let body = match body {
            [] => Value::Null,
            body => serde_json::from_slice(body).unwrap_or_else(|_| String::from_utf8_lossy(body).into()),
        };
        Self { request: ApiRequest::parse(method, uri), method: method.clone(), path: uri.path().to_owned(), body }
    }
}

impl fmt::Display for RecordedRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.request.verb.name(), self.path)?;
        for (index, (name, value)) in self.request.query.iter().enumerate() {
            write!(formatter, "{}{name}={value}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

/// Which requests are meant: a verb, a path, and what else is asked of them. A field that is not set matches anything.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestMatcher {
    verb: Verb,
    path: Pattern,
    query: Vec<(String, Pattern)>,
    without: Vec<String>,
    body: Option<Value>,
}

macro_rules! verbs {
    ($($name:ident $verb:ident $what:literal;)*) => {
        $(
            #[doc = $what]
            #[doc = " A `*` in the path stands for any characters but `/`."]
            pub fn $name(path: impl Into<Pattern>) -> Self {
                Self::new(Verb::$verb, path)
            }
        )*
    };
}

impl RequestMatcher {
    /// Requests of a verb on a path, in which a `*` stands for any characters but `/`.
    pub fn new(verb: Verb, path: impl Into<Pattern>) -> Self {
        Self { verb, path: path.into(), query: Vec::new(), without: Vec::new(), body: None }
    }

    verbs! {
        get Get "A read of one object.";
        list List "A list of a collection.";
        watch Watch "A watch of a collection.";
        create Create "A POST.";
        update Update "A PUT.";
        patch Patch "A PATCH of any kind.";
        delete Delete "A DELETE of one object.";
    }

    /// It has this parameter, and its decoded value fits.
    #[must_use]
    pub fn query(mut self, name: impl Into<String>, value: impl Into<Pattern>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// It does not have this parameter.
    #[must_use]
    pub fn without_query(mut self, name: impl Into<String>) -> Self {
        self.without.push(name.into());
        self
    }

    /// Its body has at least this: every key of an object, and lists of the same length, item by item.
    #[must_use]
    pub fn body(mut self, subset: Value) -> Self {
        self.body = Some(subset);
        self
    }

    /// Returns why the request does not match, or `None` if it does.
    pub fn mismatch(&self, request: &RecordedRequest) -> Option<String> {
        if request.request.verb != self.verb {
            return Some(format!("the verb is {}, not {}", request.request.verb.name(), self.verb.name()));
        }
        if !self.path.matches(&request.path) {
            return Some(format!("the path is {}, not {}", request.path, self.path));
        }
        for (name, pattern) in &self.query {
            match request.request.parameter(name) {
                None => return Some(format!("there is no parameter {name}")),
                Some(value) if !pattern.matches(value) => {
                    return Some(format!("the parameter {name} is {value}, not {pattern}"));
                }
                Some(_) => {}
            }
        }
        if let Some(name) = self.without.iter().find(|name| request.request.parameter(name).is_some()) {
            return Some(format!("there is a parameter {name}"));
        }
        let subset = self.body.as_ref()?;
        difference(subset, &request.body, "the body")
    }
}

impl fmt::Display for RequestMatcher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.verb.name(), self.path)?;
        for (index, (name, value)) in self.query.iter().enumerate() {
            write!(formatter, "{}{name}={value}", if index == 0 { '?' } else { '&' })?;
        }
        self.body.as_ref().map_or(Ok(()), |body| write!(formatter, " with at least {body}"))
    }
}

/// The first place where `actual` has not what `subset` asks for.
fn difference(subset: &Value, actual: &Value, place: &str) -> Option<String> {
    match (subset, actual) {
        (Value::Object(subset), Value::Object(actual)) => subset.iter().find_map(|(key, wanted)| {
            let place = format!("{place}.{key}");
            match actual.get(key) {
                Some(found) => difference(wanted, found, &place),
                None => Some(format!("{place} is missing")),
            }
        }),
        (Value::Array(subset), Value::Array(actual)) if subset.len() == actual.len() => {
            let pairs = subset.iter().zip(actual).enumerate();
            pairs
                .into_iter()
                .find_map(|(index, (wanted, found))| difference(wanted, found, &format!("{place}[{index}]")))
        }
        (wanted, found) if wanted == found => None,
        (wanted, found) => Some(format!("{place} is {found}, not {wanted}")),
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri};
    use serde_json::json;

    use super::{RecordedRequest, RequestMatcher};

    const MAPS: &str = "/api/v1/namespaces/shop/configmaps";

    #[test]
    fn a_request_is_meant_or_it_is_said_why_not() {
        let body = json!({ "metadata": { "name": "a", "labels": { "sky": "blue" } }, "ports": [{ "number": 1, "name": "x" }] });
        let body = body.to_string();
        let uri: Uri = format!("{MAPS}/a?fieldManager=me%2Fyou&force=true").parse().unwrap();
        let request = RecordedRequest::new(&Method::PATCH, &uri, body.as_bytes());
        let meant = || RequestMatcher::patch(format!("{MAPS}/a"));
        for (matcher, why_not) in [
            (meant(), None),
            (RequestMatcher::patch("/api/v1/namespaces/*/configmaps/*"), None),
            (RequestMatcher::get(format!("{MAPS}/a")), Some("the verb is patch, not get")),
            (
                RequestMatcher::patch(MAPS),
                Some("the path is /api/v1/namespaces/shop/configmaps/a, not /api/v1/namespaces/shop/configmaps"),
            ),
            (meant().query("fieldManager", "me/you"), None),
            (meant().query("force", "t*"), None),
            (meant().query("fieldManager", "us"), Some("the parameter fieldManager is me/you, not us")),
            (meant().query("dryRun", "All"), Some("there is no parameter dryRun")),
            (meant().without_query("dryRun"), None),
            (meant().without_query("force"), Some("there is a parameter force")),
            (meant().body(json!({})), None),
            (meant().body(json!({ "metadata": { "labels": { "sky": "blue" } } })), None),
            (meant().body(json!({ "metadata": { "uid": "1" } })), Some("the body.metadata.uid is missing")),
            (meant().body(json!({ "metadata": { "name": "b" } })), Some(r#"the body.metadata.name is "a", not "b""#)),
            (meant().body(json!({ "ports": [{ "number": 1 }] })), None),
            (meant().body(json!({ "ports": [{ "number": 2 }] })), Some("the body.ports[0].number is 1, not 2")),
            (meant().body(json!({ "ports": [] })), Some(r#"the body.ports is [{"name":"x","number":1}], not []"#)),
        ] {
            assert_eq!(matcher.mismatch(&request).as_deref(), why_not, "{matcher}");
        }
    }

    #[test]
    fn bodies_that_are_none_or_no_json() {
        let uri: Uri = MAPS.parse().unwrap();
        assert_eq!(RecordedRequest::new(&Method::GET, &uri, b"").body, json!(null));
        assert_eq!(RecordedRequest::new(&Method::POST, &uri, b"\xffoo").body, json!("\u{fffd}oo"));
    }
}
