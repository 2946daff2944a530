//! The approval of deletions that an operator has stopped, because there are too many.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{Cluster, Failure, Finding, cluster::request};

/// Where an operator tells that it has stopped deletions, and where people approve them: annotations of a `ConfigMap` in the operator's namespace. It
/// gets no further field, so that it can be written as a literal.
#[derive(Debug, Clone, Copy)]
pub struct Approval {
    /// The name of the `ConfigMap`.
    pub config_map: &'static str,
    /// The annotation that says why deletions are stopped.
    pub stopped: &'static str,
    /// The annotation that approves them.
    pub approve: &'static str,
}

/// An operator that has stopped deletions.
struct Stopped {
    namespace: String,
    why: String,
}

impl Approval {
    /// Approves the deletions that the operators of all installations have stopped. Returns why they had.
    pub async fn approve(&self, cluster: &Cluster) -> Result<Vec<String>, Failure> {
        let mut approved = Vec::new();
        for Stopped { namespace, why } in self.stopped(cluster).await? {
            let api = Api::<ConfigMap>::namespaced(cluster.client.clone(), &namespace);
            let patch = Patch::Merge(json!({ "metadata": { "annotations": { self.approve: "true" } } }));
            let act = format!("patch configmap {} in {namespace}", self.config_map);
            request(act, async { api.patch(self.config_map, &PatchParams::default(), &patch).await }).await?;
            approved.push(why);
        }
        Ok(approved)
    }

    /// Returns a finding for each operator that has stopped deletions. `instead` is what a person does who did not mean them.
    pub async fn findings(&self, cluster: &Cluster, instead: &str) -> Vec<Finding> {
        let finding = |stopped: Stopped| {
            let step = format!("{instead}, or, if the deletions are meant: kubectl konverge approve");
            Finding::wrong("deletions", format!("stopped: {}", stopped.why), step)
        };
        match self.stopped(cluster).await {
            Ok(stopped) => stopped.into_iter().map(finding).collect(),
            Err(failure) => vec![Finding::unknown("deletions", &failure)],
        }
    }

    async fn stopped(&self, cluster: &Cluster) -> Result<Vec<Stopped>, Failure> {
        let api = Api::<ConfigMap>::all(cluster.client.clone());
        let parameters = ListParams::default().fields(&format!("metadata.name={}", self.config_map));
        let lists = request("list config maps".to_owned(), async { api.list(&parameters).await }).await?;
        let stopped = lists.items.into_iter().filter_map(|list| {
            let why = list.annotations().get(self.stopped)?.clone();
            Some(Stopped { namespace: list.namespace()?, why })
        });
        Ok(stopped.collect())
    }
}
