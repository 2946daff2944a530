//! The approval of deletions that an operator has stopped, because there are too many.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
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
    /// Approves the deletions that the operator in this namespace has stopped, or the only one in the cluster. Returns why it had.
    ///
    /// # Errors
    ///
    /// A failed request, or several operators that have stopped when no namespace is named: one of them may have stopped for good reason.
    pub async fn approve(&self, cluster: &Cluster, namespace: Option<&str>) -> Result<Vec<String>, Failure> {
        let mut approved = Vec::new();
        let lists = cluster.config_maps(self.config_map, namespace).await?;
        for Stopped { namespace, why } in only(self.stopped(&lists).collect())? {
            let api = Api::<ConfigMap>::namespaced(cluster.client.clone(), &namespace);
            let patch = Patch::Merge(json!({ "metadata": { "annotations": { self.approve: "true" } } }));
            let act = format!("patch configmap {} in {namespace}", self.config_map);
            request(act, async { api.patch(self.config_map, &PatchParams::default(), &patch).await }).await?;
            approved.push(why);
        }
        Ok(approved)
    }

    /// Returns a finding for each operator that has stopped deletions, by the `ConfigMap`s of this name. `instead` is what a person does who did not
    /// mean the deletions.
    pub fn findings(&self, lists: &[ConfigMap], instead: &str) -> Vec<Finding> {
        let finding = |stopped: Stopped| {
            let step = format!("{instead}, or, if the deletions are meant: kubectl konverge approve");
            Finding::wrong("deletions", format!("stopped: {}", stopped.why), step)
        };
        self.stopped(lists).map(finding).collect()
    }

    fn stopped<'a>(&self, lists: &'a [ConfigMap]) -> impl Iterator<Item = Stopped> + use<'a> {
        let stopped = self.stopped;
        lists.iter().filter_map(move |list| {
            let why = list.annotations().get(stopped)?.clone();
            Some(Stopped { namespace: list.namespace()?, why })
        })
    }
}

/// Refuses to choose among operators of several namespaces.
fn only(stopped: Vec<Stopped>) -> Result<Vec<Stopped>, Failure> {
    if stopped.len() < 2 {
        return Ok(stopped);
    }
    let each = stopped.iter().map(|Stopped { namespace, why }| format!("{namespace}: {why}"));
    let each = each.collect::<Vec<_>>().join("; ");
    Err(Failure::Usage(format!("operators in several namespaces have stopped deletions, name one with -n: {each}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    #[test]
    fn of_several_operators_one_has_to_be_named() {
        let stopped = |namespaces: &[&str]| {
            let of = |namespace: &&str| Stopped { namespace: (*namespace).to_owned(), why: "9 deletions".to_owned() };
            namespaces.iter().map(of).collect::<Vec<_>>()
        };
        assert!(only(Vec::new()).unwrap().is_empty());
        assert_eq!(only(stopped(&["a"])).unwrap().len(), 1);
        let refused = only(stopped(&["a", "b"])).err().unwrap().to_string();
        assert!(refused.contains("a: 9 deletions; b: 9 deletions") && refused.contains("-n"), "{refused}");
    }
}
