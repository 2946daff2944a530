//! Whether all is well with the operator, with what it needs, and with the objects that ask it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_core::{error::in_one_line, names::few};
use konverge_kubectl::{Cluster, Failure, Finding, Grade, Installation, Job};
use konverge_vault::Health;
use kube::{Api, api::ListParams, core::DynamicObject};

use super::{Push, permissions, shown_kind, standing, vault};
use crate::{config::Config, object::Kind, orphans::CONFIG_MAP, run::LEASE};

/// All that is looked at, in the order in which one thing explains the next.
pub(super) async fn findings(push: &Push, cluster: &Cluster, namespace: Option<&str>) -> Vec<Finding> {
    let installations = cluster.installations(push).await;
    let objects = objects(push, cluster, namespace).await;
    let spec = objects.iter().flat_map(|(_, found)| found).flatten().count();
    let mut findings = Vec::new();
    match &installations {
        Err(failure) => findings.push(Finding::unknown("operator", failure)),
        Ok(found) if found.is_empty() && spec == 0 => {
            return vec![Finding::note("operator", "it is not installed, and nothing asks for it", None)];
        }
        Ok(found) if found.is_empty() => findings.push(Finding::note(
            "operator",
            Installation::missing(push),
            Some("install it as docs/install.md says, unless it runs outside of the cluster"),
        )),
        Ok(found) => {
            for installation in found {
                findings.extend(operator(cluster, installation).await);
            }
        }
    }
    findings.push(cluster.leader_finding(LEASE, installations.iter().flatten().any(elects)).await);
    findings.extend(in_step(&objects));
    findings.extend(deserted(&objects, installations.as_deref().ok()));
    findings.push(orphans(cluster).await);
    findings.push(vault_serves().await);
    findings
}

type Objects = Vec<(Kind, Result<Vec<DynamicObject>, Failure>)>;

/// The objects of each kind that concern us.
async fn objects(push: &Push, cluster: &Cluster, namespace: Option<&str>) -> Objects {
    let mut objects = Vec::new();
    for (kind, shown) in Kind::ALL.into_iter().zip(push.kinds()) {
        let found = cluster
            .list(&shown, namespace)
            .await
            .map(|found| found.into_iter().filter(|object| push.standing(&shown, object).is_some()).collect());
        objects.push((kind, found));
    }
    objects
}

async fn operator(cluster: &Cluster, installation: &Installation) -> Vec<Finding> {
    let Installation { wanted, .. } = installation;
    let mut findings = vec![installation.finding()];
    let config = match Config::of_container(&installation.arguments, &installation.variables) {
        Ok(config) => config,
        Err(error) => {
            findings.push(installation.does_not_start(&error));
            return findings;
        }
    };
    findings.push(match config.allow_path.len() {
        0 => Finding::note(
            "settings",
            "any namespace may write anywhere in Vault",
            Some("give it --allow-path, as docs/how-to/tenancy.md says"),
        ),
        1 => Finding::fine("settings", format!("one rule says who may write where: {}", config.allow_path[0])),
        more => Finding::fine("settings", format!("{more} rules say who may write where")),
    });
    if !config.leader_elect && *wanted > 1 {
        findings.push(Finding::wrong(
            "settings",
            format!("{wanted} processes work at the same time"),
            "give it --leader-elect",
        ));
    }
    findings.push(permissions::finding(cluster, installation, &config).await);
    findings
}

fn elects(installation: &Installation) -> bool {
    Config::of_container(&installation.arguments, &installation.variables).is_ok_and(|config| config.leader_elect)
}

/// The number of objects in sync, and why the others are not.
fn in_step(objects: &Objects) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut good = 0;
    let mut all = 0;
    let mut others: BTreeMap<String, (Grade, Vec<String>)> = BTreeMap::new();
    for (kind, found) in objects {
        let found = match found {
            Ok(found) => found,
            Err(failure) => {
                findings.push(Finding::unknown("objects", failure));
                continue;
            }
        };
        for object in found {
            let Some(standing) = Push.standing(&shown_kind(*kind), object) else { continue };
            all += 1;
            if standing.grade == Grade::InStep {
                good += 1;
                continue;
            }
            let (worst, names) = others.entry(standing.state).or_insert((standing.grade, Vec::new()));
            *worst = (*worst).max(standing.grade);
            names.push(named(*kind, object));
        }
    }
    findings.push(Finding::fine("objects", format!("{good} of {all} in step")));
    for (state, (grade, names)) in others {
        let first = names.first().cloned().unwrap_or_default();
        let what = format!("{state}: {}", few(&names));
        findings.push(match grade {
            Grade::Wrong => Finding::wrong("objects", what, format!("kubectl konverge why {first}")),
            _ => Finding::note("objects", what, Some(&format!("kubectl konverge why {first}"))),
        });
    }
    findings
}

/// Objects that could not be deleted, because nobody is there who would let them go.
fn deserted(objects: &Objects, installations: Option<&[Installation]>) -> Option<Finding> {
    let nobody = installations?.iter().all(|installation| installation.wanted == 0);
    let held: Vec<String> = objects
        .iter()
        .flat_map(|(kind, found)| found.iter().flatten().map(|object| (*kind, object)))
        .filter(|(_, object)| standing::has_finalizer(object))
        .map(|(kind, object)| named(kind, object))
        .collect();
    if !nobody || held.is_empty() {
        return None;
    }
    Some(Finding::wrong(
        "finalizers",
        format!("no Deployment of the operator would let these go when they are deleted: {}", few(&held)),
        "install the operator, or let all go with deploy/vault-sync-operator-drain.yaml; Vault stays as it is then",
    ))
}

fn named(kind: Kind, object: &DynamicObject) -> String {
    let metadata = &object.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    format!("{}/{name} -n {namespace}", kind.name().to_ascii_lowercase())
}

/// The paths that were left behind in Vault.
async fn orphans(cluster: &Cluster) -> Finding {
    let api = Api::<ConfigMap>::all(cluster.client.clone());
    let parameters = ListParams::default().fields(&format!("metadata.name={CONFIG_MAP}"));
    match api.list(&parameters).await {
        Err(error) => Finding::unknown("orphans", &Failure::of("list config maps", &error)),
        Ok(found) => match found.items.iter().flat_map(|list| &list.data).map(BTreeMap::len).sum::<usize>() {
            0 => Finding::fine("orphans", "nothing was left behind in Vault"),
            left => {
                let namespace =
                    found.items.iter().find_map(|list| list.metadata.namespace.as_deref()).unwrap_or_default();
                Finding::wrong(
                    "orphans",
                    format!(
                        "of {left} deleted objects there is still something in Vault; it is cleared when Vault lets the operator"
                    ),
                    format!("kubectl get configmap {CONFIG_MAP} -n {namespace} -o yaml"),
                )
            }
        },
    }
}

/// Whether the person's own Vault serves; that is the operator's if both have the same address.
async fn vault_serves() -> Finding {
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
            Finding::wrong("vault", in_one_line(&error), "check VAULT_ADDR and the way there with: vault status")
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
    use super::*;

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
