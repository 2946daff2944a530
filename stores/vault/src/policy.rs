//! Policies for the tokens of this client: the routes and capabilities that each task needs, and no more. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::{
    kv::Deletion,
    mount::{KvVersion, Mount},
};

/// A capability of Vault's policies, in the order in which they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// To write where nothing is.
    Create,
    /// To read.
    Read,
    /// To write where something is.
    Update,
    /// To change a part.
    Patch,
    /// To delete.
    Delete,
    /// The permission to list a folder.
    List,
}

impl Capability {
    /// The capability in Vault's own words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Read => "read",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::List => "list",
        }
    }
}

/// A task of a client with the secrets of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Compares content, and writes it with check-and-set.
    Write,
    /// Sets and removes marks of ownership. The engine lets [`Capability::Patch`] do that alone. Otherwise the client reads the metadata and writes it.
    Mark,
    /// Deletes in this way.
    Delete(Deletion),
    /// Searches all folders for marks of ownership.
    Search,
    /// Notices new versions; on an engine of version 1, new content.
    FollowVersions,
    /// Notices new versions, and reads their content.
    FollowContent,
}

/// A route of an engine, and what the token may do there.
pub type Permission = (&'static str, &'static [Capability]);

impl Task {
    /// Returns the permissions that the task needs on an engine of this version: none, if it has no such task. An engine of version 1 has one route, which
    /// is empty.
    pub fn permissions(self, version: KvVersion) -> &'static [Permission] {
        use Capability::{Create, Delete, List, Patch, Read, Update};
        match (version, self) {
            (KvVersion::One, Self::Write) => &[("", &[Create, Read, Update])],
            (KvVersion::One, Self::Mark | Self::Search) => &[],
            (KvVersion::One, Self::Delete(_)) => &[("", &[Delete])],
            (KvVersion::One, Self::FollowVersions | Self::FollowContent) => &[("", &[Read])],
            (KvVersion::Two, Self::Write) => &[("data", &[Create, Read, Update])],
            (KvVersion::Two, Self::Mark) => &[("metadata", &[Read, Update, Patch])],
            (KvVersion::Two, Self::Delete(Deletion::Soft)) => &[("data", &[Delete])],
            (KvVersion::Two, Self::Delete(Deletion::Destroy)) => &[("metadata", &[Read]), ("destroy", &[Update])],
            (KvVersion::Two, Self::Delete(Deletion::Metadata)) => &[("metadata", &[Delete])],
            (KvVersion::Two, Self::Search) => &[("metadata", &[Read, List])],
            (KvVersion::Two, Self::FollowVersions) => &[("metadata", &[Read])],
            (KvVersion::Two, Self::FollowContent) => &[("metadata", &[Read]), ("data", &[Read])],
        }
    }
}

/// The tasks of a client with its own token: it looks it up, renews it and revokes it. Vault's policy `default` allows the same.
pub const OWN_TOKEN: [Permission; 3] = [
    ("auth/token/lookup-self", &[Capability::Read]),
    ("auth/token/renew-self", &[Capability::Update]),
    ("auth/token/revoke-self", &[Capability::Update]),
];

/// A policy, which shows itself in the language of Vault's policies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy(BTreeMap<String, BTreeSet<Capability>>);

impl Policy {
    /// Adds a task for all secrets beneath a folder of an engine; the folder ends in a slash, and is empty for the whole engine.
    #[must_use]
    pub fn allow(mut self, mount: &Mount, folder: &str, task: Task) -> Self {
        for (route, capabilities) in task.permissions(mount.version()) {
            let slash = if route.is_empty() { "" } else { "/" };
            self.add(format!("{}/{route}{slash}{folder}*", mount.path()), capabilities);
        }
        self
    }

    /// Adds [`OWN_TOKEN`].
    #[must_use]
    pub fn allow_own_token(mut self) -> Self {
        for (route, capabilities) in OWN_TOKEN {
            self.add(route.to_owned(), capabilities);
        }
        self
    }

    fn add(&mut self, path: String, capabilities: &[Capability]) {
        self.0.entry(path).or_default().extend(capabilities);
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (path, capabilities)) in self.0.iter().enumerate() {
            let space = if number > 0 { "\n" } else { "" };
            let capabilities: Vec<_> =
                capabilities.iter().map(|capability| format!("\"{}\"", capability.as_str())).collect();
            writeln!(formatter, "{space}path \"{path}\" {{\n  capabilities = [{}]\n}}", capabilities.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_on_one_route_share_a_rule() {
        let secret = Mount::new("team/kv", KvVersion::Two);
        let policy = Policy::default().allow(&secret, "a/", Task::Write).allow(&secret, "a/", Task::Mark);
        let policy = policy.allow(&secret, "a/", Task::Delete(Deletion::Soft)).to_string();
        assert_eq!(
            policy,
            "path \"team/kv/data/a/*\" {\n  capabilities = [\"create\", \"read\", \"update\", \"delete\"]\n}\n\
             \npath \"team/kv/metadata/a/*\" {\n  capabilities = [\"read\", \"update\", \"patch\"]\n}\n"
        );
    }

    #[test]
    fn an_engine_of_version_one_has_one_route_and_no_marks() {
        let old = Mount::new("old", KvVersion::One);
        let policy = Policy::default().allow(&old, "", Task::FollowVersions).allow(&old, "", Task::Mark).to_string();
        assert_eq!(policy, "path \"old/*\" {\n  capabilities = [\"read\"]\n}\n");
    }
}
