//! The owner of a secret, by its custom metadata. Pure.

use std::collections::BTreeMap;

/// Vault's limits for custom metadata.
const LONGEST_VALUE: usize = 512;

/// The owner of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Which writer's mark it is; the keys begin with this and a slash, such as `vault-sync.io`.
    pub prefix: String,
    /// The object for which the secret is kept, readable by people: cluster, namespace, kind and name.
    pub name: String,
    /// The uid, which tells the object from a later one of the same name.
    pub uid: String,
    /// Which installation writes; [`Owner::SOME_INSTANCE`] if it does not know.
    pub instance: String,
}

/// The owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ownership {
    /// It carries no mark.
    Unowned,
    /// It is the asker's.
    Ours,
    /// It was kept for one of the same name, by the same installation, that is not there any more.
    Predecessor,
    /// It is somebody else's, who is named.
    Foreign(String),
}

/// The owner is not one that Vault can note.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the owner's {part} cannot be noted in Vault: it must have 1 to {LONGEST_VALUE} bytes and no control characters"
)]
pub struct InvalidOwner {
    part: &'static str,
}

impl Owner {
    /// The installation of one that could not find out which it is. Any object of the same name may then take over a secret with this mark.
    pub const SOME_INSTANCE: &str = "default";

    /// The entries of the custom metadata.
    pub fn mark(&self) -> Result<BTreeMap<String, Option<String>>, InvalidOwner> {
        let parts = [("owner", &self.name), ("uid", &self.uid), ("instance", &self.instance)];
        let noted = |(part, value): (&'static str, &String)| {
            let good = !value.is_empty() && value.len() <= LONGEST_VALUE && !value.chars().any(char::is_control);
            if good { Ok((self.key(part), Some(value.clone()))) } else { Err(InvalidOwner { part }) }
        };
        parts.into_iter().map(noted).collect()
    }

    /// Returns the owner in the mark with this prefix in the custom metadata. Returns `None` if the mark lacks a part.
    pub fn noted(prefix: &str, custom_metadata: &BTreeMap<String, String>) -> Option<Self> {
        let noted = |part| custom_metadata.get(&format!("{prefix}/{part}")).cloned();
        Some(Self {
            prefix: prefix.to_owned(),
            name: noted("owner")?,
            uid: noted("uid")?,
            instance: noted("instance")?,
        })
    }

    /// The entries that remove the mark.
    pub fn unmark(&self) -> BTreeMap<String, Option<String>> {
        ["owner", "uid", "instance"].into_iter().map(|part| (self.key(part), None)).collect()
    }

    /// Returns the owner of the secret with this custom metadata.
    pub fn ownership(&self, custom_metadata: &BTreeMap<String, String>) -> Ownership {
        let noted = |part| custom_metadata.get(&self.key(part));
        let Some(name) = noted("owner") else { return Ownership::Unowned };
        if *name != self.name {
            return Ownership::Foreign(name.clone());
        }
        if let Some(instance) = noted("instance")
            && *instance != self.instance
            && instance != Self::SOME_INSTANCE
        {
            return Ownership::Foreign(format!("{name} of the installation {instance}"));
        }
        if noted("uid").is_none_or(|uid| *uid == self.uid) { Ownership::Ours } else { Ownership::Predecessor }
    }

    fn key(&self, part: &str) -> String {
        format!("{}/{part}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str, uid: &str, instance: &str) -> Owner {
        let owned = str::to_owned;
        Owner { prefix: owned("vault-sync.io"), name: owned(name), uid: owned(uid), instance: owned(instance) }
    }

    #[test]
    fn ownerships() {
        let us = owner("c/shop/Secret/db", "1", "a");
        for (noted, expected) in [
            (Some(owner("c/shop/Secret/db", "1", "a")), Ownership::Ours),
            (Some(owner("c/shop/Secret/db", "2", "a")), Ownership::Predecessor),
            (
                Some(owner("c/shop/Secret/db", "1", "b")),
                Ownership::Foreign("c/shop/Secret/db of the installation b".to_owned()),
            ),
            (Some(owner("c/shop/Secret/db", "1", Owner::SOME_INSTANCE)), Ownership::Ours),
            (Some(owner("d/shop/Secret/db", "1", "a")), Ownership::Foreign("d/shop/Secret/db".to_owned())),
            (None, Ownership::Unowned),
        ] {
            let mark = noted.as_ref().map(|owner| owner.mark().unwrap()).unwrap_or_default();
            let metadata: BTreeMap<_, _> = mark.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
            assert_eq!(us.ownership(&metadata), expected, "{metadata:?}");
            assert_eq!(Owner::noted("vault-sync.io", &metadata), noted);
        }
        assert_eq!(us.ownership(&BTreeMap::from([("managed-by".to_owned(), "me".to_owned())])), Ownership::Unowned);
    }

    #[test]
    fn what_vault_cannot_note_is_refused() {
        assert!(owner("", "1", "a").mark().is_err());
        assert!(owner(&"x".repeat(513), "1", "a").mark().is_err());
        assert!(owner("a\nb", "1", "a").mark().is_err());
        assert_eq!(owner("a", "1", "a").unmark().len(), 3);
    }
}
