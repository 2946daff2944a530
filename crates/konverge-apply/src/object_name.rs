//! The name of an object in errors and reports.

use std::fmt;

/// Kind, namespace and name, as errors show them: `ConfigMap shop/app`, `Namespace shop`. It gets no further field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// The kind, such as `ConfigMap`.
    pub kind: String,
    /// The namespace; none for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(out, "{} {namespace}/{}", self.kind, self.name),
            None => write!(out, "{} {}", self.kind, self.name),
        }
    }
}
