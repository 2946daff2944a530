//! A source of one's own: the `ConfigMaps` of a namespace, by polling.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_external::{Change, Polled, Source, SourceError, watch};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{config_map::control_plane, next, options, quiet_until};

struct ConfigMaps {
    api: Api<ConfigMap>,
    known: BTreeMap<String, Option<String>>,
}

impl Source for ConfigMaps {
    type Item = String;

    fn name(&self) -> &'static str {
        "config maps"
    }

    async fn poll(&mut self) -> Result<Polled<String>, SourceError> {
        let listed = self.api.list(&kube::api::ListParams::default().labels("test=external")).await;
        let listed = listed.map_err(|error| SourceError::transient("ApiServer", error))?;
        let now: BTreeMap<_, _> = listed.iter().map(|map| (map.name_any(), map.resource_version())).collect();
        let mut changes = Vec::new();
        for (name, version) in &now {
            match self.known.get(name) {
                None => changes.push(Change::Added(name.clone())),
                Some(known) if known != version => changes.push(Change::Modified(name.clone())),
                Some(_) => {}
            }
        }
        changes.extend(self.known.keys().filter(|name| !now.contains_key(*name)).cloned().map(Change::Removed));
        self.known = now;
        Ok(changes.into())
    }
}

#[tokio::test]
async fn a_config_map_through_its_life() {
    let control_plane = control_plane().await;
    let namespace = control_plane.namespace("external").await.unwrap();
    let api = Api::<ConfigMap>::namespaced(control_plane.admin_client().await.unwrap(), &namespace);
    let (mut changes, health) = watch(ConfigMaps { api: api.clone(), known: BTreeMap::new() }, options());
    quiet_until(&mut changes, || health.ready().is_ok()).await;
    let map = json!({ "metadata": { "name": "a", "labels": { "test": "external" } }, "data": { "a": "1" } });
    api.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    assert_eq!(next(&mut changes).await, Change::Added("a".to_owned()));
    let patch = Patch::Merge(json!({ "data": { "a": "2" } }));
    api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(next(&mut changes).await, Change::Modified("a".to_owned()));
    api.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(next(&mut changes).await, Change::Removed("a".to_owned()));
}
