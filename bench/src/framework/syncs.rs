//! Objects of the example configmapsync, and the copies that are made of them.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use configmapsync_operator::{ConfigMapSync, ConfigMapSyncSpec};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use konverge_testkit::eventually;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::field::object_name;

const LIMIT: Duration = Duration::from_mins(3);

/// Requests under way at once while objects are made.
const AT_ONCE: usize = 16;

/// Objects and copies of one namespace.
pub(crate) struct Syncs {
    objects: Api<ConfigMapSync>,
    copies: Api<ConfigMap>,
    namespace: String,
}

impl Syncs {
    pub(crate) fn new(client: &Client, namespace: &str) -> Self {
        Self {
            objects: Api::namespaced(client.clone(), namespace),
            copies: Api::namespaced(client.clone(), namespace),
            namespace: namespace.to_owned(),
        }
    }

    pub(crate) async fn create(&self, count: usize) -> Result<()> {
        let parameters = PostParams::default();
        let create = |number| {
            let data = BTreeMap::from([("value".to_owned(), "initial".to_owned())]);
            let spec = ConfigMapSyncSpec { target_namespace: self.namespace.clone(), data };
            let (objects, parameters) = (&self.objects, &parameters);
            async move { objects.create(parameters, &ConfigMapSync::new(&object_name(number), spec)).await.map(drop) }
        };
        stream::iter(0..count).map(create).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        Ok(())
    }

    /// Changes what one of them is to copy, and waits until its copy has it.
    pub(crate) async fn change(&self, number: usize, value: &str) -> Result<()> {
        let patch = Patch::Merge(json!({ "spec": { "data": { "value": value } } }));
        self.objects.patch(&object_name(number), &PatchParams::default(), &patch).await?;
        self.copied(number, value).await
    }

    /// Waits until a copy has this value.
    pub(crate) async fn copied(&self, number: usize, value: &str) -> Result<()> {
        let name = format!("cms-{}", object_name(number));
        let has_it = || async {
            let copy = self.copies.get_opt(&name).await.ok().flatten()?;
            (copy.data?.get("value")? == value).then_some(())
        };
        Ok(eventually(LIMIT, has_it).await?)
    }

    /// Waits until there are as many copies.
    pub(crate) async fn copies(&self, count: usize) -> Result<()> {
        // From the API server's cache, so that waiting costs those who work as little as can be.
        let all = ListParams::default().match_any();
        loop {
            if self.copies.list_metadata(&all).await?.items.len() >= count {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until as many objects say that they are ready.
    pub(crate) async fn ready(&self, count: usize) -> Result<()> {
        let all = ListParams::default().match_any();
        loop {
            let objects = self.objects.list(&all).await?.items;
            let ready = objects.iter().filter(|object| object.status.as_ref().is_some_and(|status| status.ready));
            if ready.count() >= count {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}
