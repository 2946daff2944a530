//! The doctor's checks of push: its rules, finalizers without an operator, annotated objects of kinds that it does not follow, orphans, and Vault.

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    core::v1::{ConfigMap, Pod},
};
use konverge_core::{error::in_one_line, names::few};
use konverge_kubectl::{Approval, Cluster, Detail, Failure, Finding, Installation, Installed, Kind, Objects, named};
use konverge_vault::Health;
use kube::{ResourceExt, api::ApiResource, core::DynamicObject};

use super::vault;
use crate::{
    annotations::{APPROVE_DELETIONS, DELETIONS_STOPPED, PATH, SEARCH_REFUSED},
    config::Config,
    object::has_finalizer,
    orphans::{CONFIG_MAP, is_early, left_sentence},
};

/// Where the operator tells that it has stopped deletions.
pub(super) const APPROVAL: Approval =
    Approval { config_map: CONFIG_MAP, stopped: DELETIONS_STOPPED, approve: APPROVE_DELETIONS };

/// Checks the flags of the operator that decide who may write where.
pub(super) fn settings(operator: &Installed<Config>) -> Vec<Finding> {
    let Installed { installation, config } = operator;
    let rules = match config.push.allow_path.len() {
        0 => Finding::note(
            "settings",
            "any namespace may write anywhere in Vault",
            Some("give it --allow-path, as docs/how-to/tenancy.md says"),
        ),
        1 => Finding::fine("settings", format!("one rule says who may write where: {}", config.push.allow_path[0])),
        more => Finding::fine("settings", format!("{more} rules say who may write where")),
    };
    let wanted = installation.wanted;
    let several = (!config.server.leader_elect && wanted > 1).then(|| {
        Finding::wrong("settings", format!("{wanted} processes work at the same time"), "give it --leader-elect")
    });
    [rules].into_iter().chain(several).collect()
}

/// Finds objects that cannot be deleted, because no operator runs that would release them.
pub(super) fn deserted(objects: &[Objects], installations: Option<&[Installation]>) -> Option<Finding> {
    let nobody = installations?.iter().all(|installation| installation.wanted == 0);
    let held: Vec<String> = objects
        .iter()
        .flat_map(|Objects { kind, found }| found.iter().flatten().map(move |object| (kind, object)))
        .filter(|(_, object)| has_finalizer(&object.metadata))
        .map(|(kind, object)| named(kind, object))
        .collect();
    if !nobody || held.is_empty() {
        return None;
    }
    Some(Finding::wrong(
        "finalizers",
        format!("no Deployment of the operator would release these objects when they are deleted: {}", few(&held)),
        "install the operator, or release all with deploy/vault-sync-operator-drain.yaml; Vault then stays as it is",
    ))
}

/// Finds annotated Pods and `ReplicaSet`s of a namespace, or of all, which the operator does not follow. The doctor lists their metadata, so that the operator need not
/// watch every Pod of the cluster.
pub(super) async fn unserved(cluster: &Cluster, namespace: Option<&str>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut findings = Vec::new();
    for resource in [ApiResource::erase::<Pod>(&()), ApiResource::erase::<ReplicaSet>(&())] {
        let kind = Kind::namespaced(resource, Detail::Metadata);
        match cluster.list(&kind, namespace).await {
            Ok(objects) => {
                found.extend(objects.iter().filter(|object| is_unserved(object)).map(|object| named(&kind, object)));
            }
            Err(failure) => findings.push(Finding::unknown("annotations", &failure)),
        }
    }
    if !found.is_empty() {
        findings.push(Finding::wrong(
            "annotations",
            format!("the operator does not follow Pods and ReplicaSets, so {PATH} has no effect on: {}", few(&found)),
            format!("put {PATH} on the metadata of the workload itself, or on the Secret, or create a VaultPush"),
        ));
    }
    findings
}

/// Returns `true` if the annotation on a Pod or a `ReplicaSet` is a mistake. On `ReplicaSet`s of Deployments and Rollouts it is not, because their
/// controllers copy annotations. On a Pod with an owner, the annotation comes from the pod template, where it has no effect.
fn is_unserved(object: &DynamicObject) -> bool {
    let is_pod = object.types.as_ref().is_some_and(|types| types.kind == "Pod");
    object.annotations().contains_key(PATH) && (is_pod || object.owner_references().is_empty())
}

/// Returns the content that objects of this namespace, or of all, have left behind.
pub(super) async fn left_behind(cluster: &Cluster, namespace: Option<&str>) -> Result<Vec<String>, Failure> {
    let lists = cluster.config_maps(CONFIG_MAP, None).await?;
    let texts = lists.iter().flat_map(|list| list.data.iter().flatten());
    Ok(texts.filter_map(|(_, text)| left_sentence(text, namespace)).collect())
}

/// Checks for paths that were left behind in Vault, for a search that is refused, and for deletions that wait for an approval.
pub(super) async fn orphans(cluster: &Cluster) -> Vec<Finding> {
    let lists = match cluster.config_maps(CONFIG_MAP, None).await {
        Ok(lists) => lists,
        Err(failure) => return vec![Finding::unknown("orphans", &failure)],
    };
    let mut findings = listed(&lists, Timestamp::now());
    findings.extend(APPROVAL.findings(&lists, "restore the requests"));
    findings
}

fn listed(lists: &[ConfigMap], now: Timestamp) -> Vec<Finding> {
    let refused = lists.iter().filter_map(|list| list.annotations().get(SEARCH_REFUSED)).map(|why| {
        Finding::wrong(
            "search",
            format!("content in Vault that no object requests stays unnoticed: {why}"),
            "give the operator the policy of docs/reference/vault-policies.md",
        )
    });
    [left(lists, now)].into_iter().chain(refused).collect()
}

fn left(lists: &[ConfigMap], now: Timestamp) -> Finding {
    let orphans = || lists.iter().flat_map(|list| list.data.iter().flatten().map(|(_, text)| text));
    let early = orphans().filter(|text| is_early(text, now)).count();
    match orphans().count() - early {
        0 if early > 0 => Finding::note(
            "orphans",
            format!("deleted objects whose content in Vault is about to be cleared: {early}"),
            None,
        ),
        0 => Finding::fine("orphans", "nothing was left behind in Vault"),
        left => {
            let namespace = lists.iter().find_map(|list| list.metadata.namespace.as_deref()).unwrap_or_default();
            Finding::wrong(
                "orphans",
                format!(
                    "deleted objects with content left in Vault: {left}; the operator clears it when Vault allows it"
                ),
                format!("kubectl get configmap {CONFIG_MAP} -n {namespace} -o yaml"),
            )
        }
    }
}

/// Whether the person's own Vault serves; that is the operator's if both have the same address.
pub(super) async fn vault_serves() -> Finding {
    if !vault::is_named() {
        return Finding::note("vault", "not looked at: VAULT_ADDR is not set", None);
    }
    let vault = match vault::own() {
        Ok(vault) => vault,
        Err(failure) => return Finding::unknown("vault", &failure),
    };
    match vault.health().await {
        Ok(health) => serves(&health),
        Err(error) => {
            Finding::wrong("vault", in_one_line(&error), "check VAULT_ADDR and the network with: vault status")
        }
    }
}

/// A Vault that is not initialised also says that it is sealed.
fn serves(health: &Health) -> Finding {
    match health {
        Health { initialized: false, .. } => Finding::wrong("vault", "it is not initialised", "vault operator init"),
        Health { sealed: true, .. } => Finding::wrong("vault", "it is sealed", "vault operator unseal"),
        Health { version, .. } => Finding::fine("vault", format!("it serves, version {version}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn annotations_that_controllers_copy_to_replica_sets_are_no_mistake() {
        let owner = json!([{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1" }]);
        for (kind, owners, annotations, expected) in [
            ("Pod", json!([]), json!({ PATH: "secret/data/a" }), true),
            ("Pod", owner.clone(), json!({ PATH: "secret/data/a" }), true),
            ("Pod", json!([]), json!({}), false),
            ("ReplicaSet", json!([]), json!({ PATH: "secret/data/a" }), true),
            ("ReplicaSet", owner, json!({ PATH: "secret/data/a" }), false),
        ] {
            let metadata = json!({ "name": "web", "ownerReferences": owners, "annotations": annotations });
            let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata });
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            assert_eq!(is_unserved(&object), expected, "{object:?}");
        }
    }

    #[test]
    fn a_refused_search_is_a_finding_with_a_next_step() {
        let list = json!({ "metadata": { "annotations": { SEARCH_REFUSED: "the reason" } } });
        let lists = [ConfigMap::default(), serde_json::from_value(list).unwrap()];
        let findings = listed(&lists, Timestamp::UNIX_EPOCH);
        let [left, finding] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!((left.next.as_deref(), finding.about), (None, "search"), "{findings:?}");
        assert!(finding.text.contains("the reason"), "{finding:?}");
        assert!(
            finding.next.as_ref().is_some_and(|step| step.contains("docs/reference/vault-policies.md")),
            "{finding:?}"
        );
    }

    #[test]
    fn what_vault_says_of_itself_and_what_to_do() {
        for (initialized, sealed, next) in [
            (false, true, Some("vault operator init")),
            (false, false, Some("vault operator init")),
            (true, true, Some("vault operator unseal")),
            (true, false, None),
        ] {
            let health = Health { initialized, sealed, standby: false, version: "1.21.4".to_owned() };
            assert_eq!(serves(&health).next.as_deref(), next, "{health:?}");
        }
    }
}
