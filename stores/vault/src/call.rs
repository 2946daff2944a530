//! A request to Vault.

use bytes::Bytes;
use http::Method;
use zeroize::Zeroizing;

/// A request to Vault.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Beneath `/v1/`, escaped, with its query.
    pub(crate) route: String,
    pub(crate) body: Bytes,
    /// Of the body, if it is not plain JSON.
    pub(crate) content_type: &'static str,
    /// In words, for errors.
    pub(crate) what: String,
    /// The capability that a policy must grant.
    pub(crate) capability: &'static str,
}

impl Call {
    pub(crate) fn new(method: Method, route: String, what: String, capability: &'static str) -> Self {
        Self { method, route, body: Bytes::new(), content_type: "application/json", what, capability }
    }

    pub(crate) fn body(mut self, body: Zeroizing<Vec<u8>>) -> Self {
        // The bytes are wiped when the last part of the request is gone.
        self.body = Bytes::from_owner(body);
        self
    }

    /// A body without anything secret.
    pub(crate) fn json(mut self, body: &serde_json::Value) -> Self {
        self.body = Bytes::from(body.to_string());
        self
    }
}
