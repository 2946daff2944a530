//! The `ConfigMap` in the operator's namespace, with the approvals of deletions and the list of items that are left behind.

use k8s_openapi::api::core::v1::ConfigMap;
use konverge::kube::{
    Api, Error,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::Value;

use crate::{config::PROGRAM, deletions::CONFIG_MAP};

/// Merges a change into the `ConfigMap`. Creates it first if `known`, which is the last state that was read, is `None`.
pub(crate) async fn merge(api: &Api<ConfigMap>, known: Option<&ConfigMap>, change: &Value) -> Result<ConfigMap, Error> {
    if known.is_none() {
        let metadata = ObjectMeta { name: Some(CONFIG_MAP.to_owned()), ..ObjectMeta::default() };
        match api.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await {
            Err(Error::Api(status)) if status.code == 409 => {}
            created => drop(created?),
        }
    }
    let parameters = PatchParams { field_manager: Some(PROGRAM.to_owned()), ..PatchParams::default() };
    api.patch(CONFIG_MAP, &parameters, &Patch::Merge(change)).await
}
