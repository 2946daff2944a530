//! A request to an API server, parsed from its method and address.

use std::fmt;

use http::{Method, Uri};
use serde::{Deserialize, Serialize};

/// The verb, in the terms of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Verb {
    /// One object, or a path that is no object such as `/version`.
    Get,
    /// A collection.
    List,
    /// A stream of changes.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH, of any kind; server-side apply is one.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
}

impl Verb {
    /// The name in audit logs and RBAC.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// A parsed request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApiRequest {
    /// The verb.
    pub verb: Verb,
    /// Empty for the core group and for paths that are no objects.
    pub group: String,
    /// Plural name of the kind; empty for paths that are no objects.
    pub resource: String,
    /// The subresource, for example `status`; usually empty.
    pub subresource: String,
    /// Empty for all namespaces and for kinds without.
    pub namespace: String,
    /// Empty for collections, and for a creation, whose name is in its body.
    pub name: String,
    /// The decoded parameters of its query, in their order.
    pub query: Vec<(String, String)>,
}

impl ApiRequest {
    /// Reads it.
    pub fn parse(method: &Method, uri: &Uri) -> Self {
        let segments: Vec<&str> = uri.path().split('/').filter(|segment| !segment.is_empty()).collect();
        let (group, rest) = match segments.as_slice() {
            ["api", _version, rest @ ..] => ("", rest),
            ["apis", group, _version, rest @ ..] if !rest.is_empty() => (*group, rest),
            _ => ("", [].as_slice()),
        };
        let (namespace, rest) = match rest {
            // These two belong to the namespace itself; any other name here is a kind within it.
            ["namespaces", _name, "status" | "finalize"] => ("", rest),
            ["namespaces", namespace, inside @ ..] if !inside.is_empty() => (*namespace, inside),
            _ => ("", rest),
        };
        let at = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
        let (resource, name, subresource) = (at(0), at(1), at(2));
        let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        let query: Vec<(String, String)> = query.map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        let watches = query.iter().any(|(name, value)| name == "watch" && ["true", "1"].contains(&value.as_str()));
        let collection = !resource.is_empty() && name.is_empty();
        let verb = match *method {
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if collection => Verb::DeleteCollection,
            Method::DELETE => Verb::Delete,
            _ if watches => Verb::Watch,
            _ if collection => Verb::List,
            _ => Verb::Get,
        };
        Self { verb, group: group.to_owned(), resource, subresource, namespace: namespace.to_owned(), name, query }
    }

    /// Whether it changes what is stored, if it succeeds. Dry runs, tokens and the questions that are asked by POST, such as access
    /// reviews, do not.
    pub fn is_mutating(&self) -> bool {
        let question = ["authentication.k8s.io", "authorization.k8s.io"].contains(&self.group.as_str());
        let read = matches!(self.verb, Verb::Get | Verb::List | Verb::Watch);
        let only_tries = self.parameter("dryRun").is_some();
        !read && !only_tries && !question && self.subresource != "token"
    }

    /// The decoded value of a parameter of its query.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// `configmaps`, `deployments.apps`, `pods/status`.
    pub fn full_resource(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        format!("{}{dot}{}{slash}{}", self.resource, self.group, self.subresource)
    }
}

impl fmt::Display for ApiRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.verb.name(), self.full_resource())?;
        match (self.namespace.as_str(), self.name.as_str()) {
            ("", "") => Ok(()),
            ("", name) => write!(formatter, " {name}"),
            (namespace, name) => write!(formatter, " {namespace}/{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri};

    use super::ApiRequest;

    #[test]
    fn requests() {
        for (method, uri, said, mutating) in [
            (Method::GET, "/api/v1/namespaces/shop/configmaps/a", "get configmaps shop/a", false),
            (Method::GET, "/api/v1/namespaces/shop/configmaps?limit=5", "list configmaps shop/", false),
            (Method::GET, "/api/v1/configmaps?watch=true", "watch configmaps", false),
            (Method::GET, "/api/v1/configmaps?watch=1&limit=0", "watch configmaps", false),
            (Method::GET, "/api/v1/configmaps?watch=false", "list configmaps", false),
            (Method::GET, "/api/v1/namespaces", "list namespaces", false),
            (Method::GET, "/api/v1/namespaces/shop", "get namespaces shop", false),
            (Method::PUT, "/api/v1/namespaces/shop/finalize", "update namespaces/finalize shop", true),
            (Method::POST, "/api/v1/namespaces/shop/configmaps", "create configmaps shop/", true),
            (Method::POST, "/api/v1/namespaces/shop/configmaps?dryRun=All", "create configmaps shop/", false),
            (Method::PATCH, "/apis/apps/v1/namespaces/s/deployments/d", "patch deployments.apps s/d", true),
            (Method::PUT, "/apis/e.org/v1/namespaces/s/ships/d/status", "update ships.e.org/status s/d", true),
            (Method::DELETE, "/api/v1/namespaces/shop/secrets/a", "delete secrets shop/a", true),
            (Method::DELETE, "/api/v1/namespaces/shop/secrets", "deletecollection secrets shop/", true),
            (Method::DELETE, "/api/v1/nodes/n", "delete nodes n", true),
            (Method::POST, "/api/v1/namespaces/s/serviceaccounts/a/token", "create serviceaccounts/token s/a", false),
            (
                Method::POST,
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                "create selfsubjectaccessreviews.authorization.k8s.io",
                false,
            ),
            (Method::GET, "/version", "get ", false),
            (Method::GET, "/apis/apps/v1", "get ", false),
        ] {
            let request = ApiRequest::parse(&method, &uri.parse::<Uri>().unwrap());
            assert_eq!((request.to_string().as_str(), request.is_mutating()), (said, mutating), "{method} {uri}");
        }
    }
}
