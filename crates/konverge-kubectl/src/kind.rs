//! Kinds of objects, and the words that people type for them. Pure.

use kube::core::ApiResource;

/// A kind of object that some job works with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// Its names in the API.
    pub resource: ApiResource,
    /// The names that kubectl accepts, such as `deploy`.
    pub short: &'static [&'static str],
    /// How much of its objects is read.
    pub detail: Detail,
    /// Whether its objects have a namespace.
    pub is_namespaced: bool,
}

/// How much of an object is read to tell its health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Its metadata. For whatever holds more than the plugin should see, and whatever is large.
    Metadata,
    /// All of it, since its state stands in its status.
    Whole,
}

impl Kind {
    /// Returns a kind whose objects have a namespace, without short names.
    pub fn namespaced(resource: ApiResource, detail: Detail) -> Self {
        Self { resource, short: &[], detail, is_namespaced: true }
    }

    /// As people write it: `deployment`.
    pub fn singular(&self) -> String {
        self.resource.kind.to_ascii_lowercase()
    }

    /// Whether the word means it: `deployment`, `deployments`, `deploy`, `deployments.apps`, `deployments.v1.apps`, in any case.
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

    /// Whether both are one in the API.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.resource.group == other.resource.group && self.resource.plural == other.resource.plural
    }
}
