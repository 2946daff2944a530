//! An object of the cluster, as a cache or an answer of the API server showed it.

use serde_json::Value;

use crate::object::{Target, metadata_string};

/// An object as it was seen.
pub(super) struct Observed {
    pub(super) target: Target,
    pub(super) state: Value,
}

impl Observed {
    pub(super) fn metadata(&self, field: &str) -> Option<String> {
        metadata_string(&self.state, field).map(ToOwned::to_owned)
    }
}
