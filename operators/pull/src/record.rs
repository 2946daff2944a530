//! The record on a Secret that is made for a custom resource: whose it is, and which source gave which keys.
//!
//! The operator writes it together with the data. After a restart, it tells which keys belong to a source that does not answer. An editor of the
//! Secret can change it, so it proves nothing: the states of zopp in it are authenticated for themselves ([`zopp::record`](crate::zopp::record)).

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// The record of a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetRecord {
    /// The kind and the name of the custom resource.
    pub owner: String,
    /// Its sources.
    pub sources: Vec<SourceRecord>,
}

/// The record of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRecord {
    /// The content.
    pub from: String,
    /// The number of the version. 0 in a store without versions.
    pub version: i64,
    /// The names of the keys in the Secret that it gave.
    pub keys: BTreeSet<String>,
    /// The store's own record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
}

impl TargetRecord {
    /// Reads the text of an annotation. `None` if it is no record.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the text of the annotation.
    pub fn text(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }

    /// Returns the record of a source.
    pub fn of(&self, from: &str) -> Option<&SourceRecord> {
        self.sources.iter().find(|source| source.from == from)
    }
}

/// Returns the stores' own records in the record of a Secret, which a custom resource has made or which is annotated.
pub fn proofs(record: &str, is_made: bool) -> Vec<String> {
    if !is_made {
        return vec![record.to_owned()];
    }
    TargetRecord::read(record).into_iter().flat_map(|record| record.sources).filter_map(|source| source.proof).collect()
}

/// The fields of the metadata that a manager has applied.
#[derive(Debug, Default)]
pub struct AppliedMetadata<'a> {
    fields: Vec<&'a serde_json::Value>,
    /// Whether it has set an owner.
    pub has_owner: bool,
}

impl AppliedMetadata<'_> {
    /// Returns the names in one map, such as `f:labels`.
    pub fn names(&self, map: &str) -> impl Iterator<Item = &str> {
        let maps = self.fields.iter().filter_map(move |fields| fields.get(map)?.as_object());
        maps.flat_map(|map| map.keys().filter_map(|name| name.strip_prefix("f:")))
    }
}

/// Returns the fields of the metadata that `manager` has applied, as the managed fields say.
pub fn applied_metadata<'a>(metadata: &'a ObjectMeta, manager: &str) -> AppliedMetadata<'a> {
    let entries = metadata
        .managed_fields
        .iter()
        .flatten()
        .filter(|entry| entry.manager.as_deref() == Some(manager) && entry.operation.as_deref() == Some("Apply"));
    let fields: Vec<_> = entries.filter_map(|entry| entry.fields_v1.as_ref()?.0.get("f:metadata")).collect();
    let has_owner = fields.iter().any(|fields| fields.get("f:ownerReferences").is_some());
    AppliedMetadata { fields, has_owner }
}
