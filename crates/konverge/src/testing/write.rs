//! A request that changes something, as a test sees it.

use std::fmt;

use serde_json::Value;

/// The verb of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// A POST.
    Create,
    /// A PUT.
    Update,
    /// A server-side apply.
    Apply,
    /// A PATCH of another kind.
    Patch,
    /// A DELETE.
    Delete,
}

/// A request that a run sent to change something, in the order in which it was sent. It is here even if it was refused or changed nothing.
///
/// Its text is the verb, the kind, the namespace and the name: `apply ConfigMap shop/first`, `apply Greeting shop/first status`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Write {
    /// The verb.
    pub verb: Verb,
    /// The kind of the object.
    pub kind: String,
    /// The namespace of the object; none for kinds without.
    pub namespace: Option<String>,
    /// The name of the object.
    pub name: String,
    /// The subresource, such as `status`.
    pub subresource: Option<String>,
    /// The body of the request; `null` if it had none.
    pub body: Value,
    /// The status code of the answer.
    pub code: u16,
    pub(super) group: String,
}

impl Write {
    /// Whether it is an event, which a run sends beside its work.
    pub(super) fn is_event(&self) -> bool {
        self.group == "events.k8s.io"
    }
}

impl fmt::Display for Write {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.verb {
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Apply => "apply",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
        };
        write!(out, "{verb} {} ", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(out, "{namespace}/")?;
        }
        out.write_str(&self.name)?;
        self.subresource.as_ref().map_or(Ok(()), |subresource| write!(out, " {subresource}"))
    }
}

/// `write == "apply ConfigMap shop/first"`, so that a list of writes is compared with a list of texts.
impl PartialEq<&str> for Write {
    fn eq(&self, text: &&str) -> bool {
        let shown = self.to_string();
        shown == *text
    }
}
