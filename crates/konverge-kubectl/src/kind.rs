//! Kinds of objects, and their names on the command line. Pure.

use kube::core::ApiResource;

/// A kind of object that some job works with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// The names of the kind in the API.
    pub resource: ApiResource,
    /// The names that kubectl accepts, such as `deploy`.
    pub short: &'static [&'static str],
    /// The part of the objects that is read.
    pub detail: Detail,
    /// Whether its objects have a namespace.
    pub is_namespaced: bool,
}

/// The part of an object that its health needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// The metadata: for objects that are large, or that hold more than the plugin should see.
    Metadata,
    /// The whole object, because its state is in its status.
    Whole,
}

impl Kind {
    /// Returns a kind whose objects have a namespace, without short names.
    pub fn namespaced(resource: ApiResource, detail: Detail) -> Self {
        Self { resource, short: &[], detail, is_namespaced: true }
    }

    /// Returns the name in lower case, such as `deployment`.
    pub fn singular(&self) -> String {
        self.resource.kind.to_ascii_lowercase()
    }

    /// Returns `true` if the word names this kind: `deployment`, `deployments`, `deploy`, `deployments.apps`, `deployments.v1.apps`, in any case.
    pub(crate) fn is_called(&self, word: &str) -> bool {
        let word = word.to_ascii_lowercase();
        let ApiResource { group, version, plural, .. } = &self.resource;
        let (name, rest) = word.split_once('.').map_or((&*word, None), |(name, rest)| (name, Some(rest)));
        let is_name = name == *plural || name == self.singular() || self.short.contains(&name);
        let is_group = rest.is_none_or(|rest| {
            rest.trim_end_matches('.') == *group
                || rest.trim_end_matches('.') == format!("{version}.{group}").trim_end_matches('.')
        });
        is_name && is_group
    }

    /// ` in namespace shop`, or nothing for a kind without namespaces.
    pub(crate) fn place(&self, namespace: &str) -> String {
        if self.is_namespaced { format!(" in namespace {namespace}") } else { String::new() }
    }

    /// Returns `true` if both are the same resource of the API.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.resource.group == other.resource.group && self.resource.plural == other.resource.plural
    }
}
