//! The principals that this device disabled, or removed from a workspace.
//!
//! A server can keep naming such a principal as a holder of a workspace's key, or name its public keys under another ID. The client
//! remembers the ID and the keys, and gives no new key to either.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// A principal that this device disabled, or removed from workspaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// Whether the principal is disabled, and thereby revoked in every workspace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub everywhere: bool,
    /// The names of the workspaces that the principal was removed from.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub workspaces: BTreeSet<String>,
    /// The public keys of the principal, of both kinds, in hexadecimal.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub public_keys: BTreeSet<String>,
}

/// A change of the revocations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RevocationChange {
    /// The principal was disabled, or removed from a workspace.
    Revoked {
        /// The ID of the principal.
        id: String,
        /// The workspace; `None` for all.
        workspace: Option<String>,
        /// The public keys of the principal.
        public_keys: BTreeSet<String>,
    },
    /// A person admitted the principal again.
    Readmitted {
        /// The ID of the principal.
        id: String,
        /// The workspace; `None` for the principal as such.
        workspace: Option<String>,
    },
}

impl RevocationChange {
    /// Applies the change to a record, keyed by the ID of the principal.
    pub(crate) fn apply(self, revoked: &mut BTreeMap<String, Revocation>) {
        match self {
            Self::Revoked { id, workspace, public_keys } => {
                let revocation = revoked.entry(id).or_default();
                revocation.everywhere |= workspace.is_none();
                revocation.workspaces.extend(workspace);
                revocation.public_keys.extend(public_keys);
            }
            Self::Readmitted { id, workspace } => {
                let Some(revocation) = revoked.get_mut(&id) else { return };
                // A principal that may hold the key of one workspace is not disabled.
                revocation.everywhere = false;
                if let Some(workspace) = workspace {
                    revocation.workspaces.remove(&workspace);
                }
                if revocation.workspaces.is_empty() {
                    revoked.remove(&id);
                }
            }
        }
    }
}

impl Revocation {
    /// Returns `true` if the principal must not get the key of this workspace.
    pub(crate) fn covers(&self, workspace: &str) -> bool {
        self.everywhere || self.workspaces.contains(workspace)
    }

    /// Returns `true` if one of these is a public key of the principal. An empty key matches no principal.
    pub(crate) fn has_key(&self, public_keys: &[&[u8]]) -> bool {
        public_keys.iter().any(|key| !key.is_empty() && self.public_keys.contains(&hex::encode(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_is_revoked_until_a_person_admits_it_again() {
        let revoke = |workspace: Option<&str>, key: u8| RevocationChange::Revoked {
            id: "p".into(),
            workspace: workspace.map(str::to_owned),
            public_keys: [hex::encode([key; 32])].into(),
        };
        let readmit = |workspace: Option<&str>| RevocationChange::Readmitted {
            id: "p".into(),
            workspace: workspace.map(str::to_owned),
        };
        let mut revoked = BTreeMap::new();
        revoke(Some("acme"), 1).apply(&mut revoked);
        revoke(Some("other"), 2).apply(&mut revoked);
        assert!(revoked["p"].covers("acme") && revoked["p"].covers("other") && !revoked["p"].covers("third"));
        assert!(revoked["p"].has_key(&[&[9; 32], &[2; 32]]) && revoked["p"].has_key(&[&[1; 32], &[]]));
        assert!(!revoked["p"].has_key(&[&[9; 32], &[]]));
        revoke(None, 1).apply(&mut revoked);
        assert!(revoked["p"].covers("third"));
        readmit(Some("acme")).apply(&mut revoked);
        assert!(!revoked["p"].covers("acme") && !revoked["p"].covers("third") && revoked["p"].covers("other"));
        readmit(None).apply(&mut revoked);
        assert!(revoked["p"].covers("other"), "an enabled principal is not a member again");
        readmit(Some("other")).apply(&mut revoked);
        assert_eq!(revoked, BTreeMap::new());
        readmit(Some("other")).apply(&mut revoked);
    }
}
