//! The key of a workspace.

use konverge_zopp_crypto::{Fingerprint, Kek};

/// A workspace's id and its key.
pub struct WorkspaceKey {
    /// The workspace's UUID, to which wrapped keys are bound.
    pub id: String,
    /// Opens the keys of the workspace's environments.
    pub kek: Kek,
    /// How often it was replaced, from 1; `None` if the server cannot tell.
    pub generation: Option<u32>,
}

impl WorkspaceKey {
    /// Returns the fingerprint by which people compare the key.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of_workspace(&self.id, &self.kek)
    }
}
