//! The operator of a job as the plugin finds it, and the doctor that is the same for all jobs.
//!
//! ```text
//! Deployments ─▶ settings ─▶ permissions, leader ─▶ objects ─▶ findings
//! ```
//!
//! A job says what it knows about its operator by [`Operator`]. That makes it [`Examined`]: the same examination asks the cluster about the operator of each job,
//! in the order in which one thing explains the next.

use std::collections::BTreeMap;

use async_trait::async_trait;
use konverge_core::names::few;
use konverge_jobs::Settings;
use kube::core::DynamicObject;

use crate::{Cluster, Failure, Finding, Grade, Installation, Job, Kind, Permission, Verdict};

/// The operator of a job, as its command-line verbs see it.
#[async_trait]
pub trait Operator: Job {
    /// The settings of the operator.
    type Config: Settings + Sync;

    /// Returns how to install the operator.
    fn how_to_install(&self) -> &'static str;

    /// Returns the manifest with the role of the operator alone, such as `deploy/rbac/vault-sync-operator.yaml`.
    fn role(&self) -> &'static str;

    /// Returns every permission that the operator needs with these settings. `home` is its own namespace.
    fn needed(&self, config: &Self::Config, home: &str) -> Vec<Permission>;

    /// Returns how the operator does without a permission, such as "leave a kind out with --kinds". `None` if it does not.
    fn does_without(&self) -> Option<&'static str> {
        None
    }

    /// Returns `true` if the operator watches objects of this kind with these settings, in [its namespaces](Settings::namespace). Pure.
    fn watches(&self, config: &Self::Config, kind: &Kind) -> bool {
        let _ = (config, kind);
        true
    }

    /// Returns the flags that decide which objects the operator watches, such as "--kinds and --namespace".
    fn watch_flags(&self) -> &'static str {
        "--namespace"
    }

    /// Checks the settings of an installation. Pure.
    fn check_settings(&self, operator: &Installed<Self::Config>) -> Vec<Finding> {
        let _ = operator;
        Vec::new()
    }

    /// Checks what one installation needs beside its permissions.
    async fn check_installation(&self, cluster: &Cluster, operator: &Installed<Self::Config>) -> Vec<Finding> {
        let _ = (cluster, operator);
        Vec::new()
    }

    /// Checks the objects that concern the job, and what more it needs.
    async fn check_objects(&self, cluster: &Cluster, found: &Found<'_, Self::Config>) -> Vec<Finding>;
}

/// An operator and its settings.
#[derive(Debug, Clone)]
pub struct Installed<C> {
    /// The Deployment of the operator.
    pub installation: Installation,
    /// The settings of the operator.
    pub config: C,
}

/// The operators and the objects of a job.
#[derive(Debug)]
pub struct Found<'a, C> {
    /// The Deployments of operators. `None` if they cannot be listed.
    pub installations: Option<&'a [Installation]>,
    /// The operators whose settings can be understood.
    pub operators: &'a [Installed<C>],
    /// The objects that concern the job.
    pub objects: &'a [Objects],
    /// The namespace that the doctor is confined to. `None` is all of them.
    pub namespace: Option<&'a str>,
}

/// The objects of a kind that concern a job.
#[derive(Debug)]
pub struct Objects {
    /// The kind.
    pub kind: Kind,
    /// The objects, or why they cannot be listed.
    pub found: Result<Vec<DynamicObject>, Failure>,
}

/// Returns the operator for objects of a namespace, if there is a Deployment of one whose settings can be understood. An operator for just this namespace goes
/// before one for all.
///
/// # Errors
///
/// Returns an error if Deployments cannot be listed.
pub async fn operator_of<O: Operator>(
    job: &O,
    cluster: &Cluster,
    namespace: &str,
) -> Result<Option<Installed<O::Config>>, Failure> {
    let found = cluster.installations(job).await?;
    let understood = found.into_iter().filter_map(|installation| {
        let config = settings::<O>(&installation).ok()?;
        Some(Installed { installation, config })
    });
    let fits = |operator: &Installed<O::Config>| operator.config.namespace().is_none_or(|only| only == namespace);
    Ok(understood.filter(fits).min_by_key(|operator| operator.config.namespace().is_none()))
}

/// A job whose operator can be examined. Every [`Operator`] is one.
#[async_trait]
pub trait Examined: Job {
    /// Examines the job: its operators, their permissions and leader, then its objects. `namespace` is where objects are looked at.
    async fn doctor(&self, cluster: &Cluster, namespace: Option<&str>) -> Vec<Finding>;
}

#[async_trait]
impl<O: Operator> Examined for O {
    async fn doctor(&self, cluster: &Cluster, namespace: Option<&str>) -> Vec<Finding> {
        let installations = cluster.installations(self).await;
        let objects = objects(self, cluster, namespace).await;
        let is_requested = objects.iter().flat_map(|objects| &objects.found).any(|found| !found.is_empty());
        let (mut findings, mut operators) = (Vec::new(), Vec::new());
        match &installations {
            Err(failure) => findings.push(Finding::unknown("operator", failure)),
            Ok(found) if found.is_empty() && !is_requested => {
                return vec![Finding::note("operator", "it is not installed, and no object needs it", None)];
            }
            Ok(found) if found.is_empty() => {
                findings.push(Finding::note("operator", Installation::missing(self), Some(self.how_to_install())));
            }
            Ok(found) => {
                for installation in found {
                    findings.push(installation.finding());
                    match settings::<O>(installation) {
                        Err(error) => findings.push(installation.does_not_start(&error)),
                        Ok(config) => {
                            let operator = Installed { installation: installation.clone(), config };
                            findings.extend(examine(self, cluster, &operator).await);
                            operators.push(operator);
                        }
                    }
                }
            }
        }
        let elects = operators.iter().any(|operator| operator.config.program().lease.is_some());
        findings.push(cluster.leader_finding(O::Config::LEASE, elects).await);
        let installations = installations.as_deref().ok();
        let found = Found { installations, operators: &operators, objects: &objects, namespace };
        findings.extend(unwatched(self, &found));
        findings.extend(self.check_objects(cluster, &found).await);
        findings
    }
}

/// Returns the objects that have opted in and that no operator watches. Returns `None` if there are none, or if the settings of an operator are not known.
fn unwatched<O: Operator>(job: &O, found: &Found<'_, O::Config>) -> Option<Finding> {
    let Found { installations, operators, objects, namespace: _ } = found;
    if installations.is_none_or(|installations| installations.len() > operators.len()) {
        return None;
    }
    let sees = |config: &O::Config, kind: &Kind, object: &DynamicObject| {
        let is_inside = config.namespace().is_none_or(|only| object.metadata.namespace.as_deref() == Some(only));
        is_inside && job.watches(config, kind)
    };
    let all =
        objects.iter().flat_map(|Objects { kind, found }| found.iter().flatten().map(move |object| (kind, object)));
    let unseen = all.filter(|(kind, object)| !operators.iter().any(|operator| sees(&operator.config, kind, object)));
    let unseen: Vec<_> = unseen.map(|(kind, object)| named(kind, object)).collect();
    if unseen.is_empty() {
        return None;
    }
    let unseen = few(&unseen);
    Some(if operators.is_empty() {
        // An operator may run outside of the cluster.
        let text = format!("no operator in this cluster watches these objects, which have opted in: {unseen}");
        Finding::note("watches", text, Some(job.how_to_install()))
    } else {
        let text = format!("the operator does not watch these objects, which have opted in: {unseen}");
        Finding::wrong("watches", text, format!("see {} of the operator", job.watch_flags()))
    })
}

/// Returns the settings of an installation, or why it would not start with them.
fn settings<O: Operator>(installation: &Installation) -> Result<O::Config, clap::Error> {
    O::Config::of_container(&installation.arguments, &installation.variables)
}

/// Checks the settings, the permissions and the needs of one installation.
async fn examine<O: Operator>(job: &O, cluster: &Cluster, operator: &Installed<O::Config>) -> Vec<Finding> {
    let Installed { installation, config } = operator;
    let mut findings = job.check_settings(operator);
    let mut next = installation.grant(job.role());
    if let Some(without) = job.does_without() {
        next = format!("{next}, or {without}");
    }
    let needed = job.needed(config, &installation.namespace);
    findings.push(cluster.permissions_finding(installation, needed, next).await);
    findings.extend(job.check_installation(cluster, operator).await);
    findings
}

/// Lists the objects of each kind that concern the job.
async fn objects(job: &impl Job, cluster: &Cluster, namespace: Option<&str>) -> Vec<Objects> {
    let mut objects = Vec::new();
    for kind in job.kinds() {
        let found = cluster.list(&kind, namespace).await.map(|mut found| {
            found.retain(|object| job.health(&kind, object).is_some());
            found
        });
        objects.push(Objects { kind, found });
    }
    objects
}

/// Returns how many objects are in sync, and why the others are not.
pub fn in_sync(job: &impl Job, objects: &[Objects]) -> Vec<Finding> {
    let failures = objects.iter().filter_map(|objects| objects.found.as_ref().err());
    let mut findings: Vec<_> = failures.map(|failure| Finding::unknown("objects", failure)).collect();
    let (mut good, mut all) = (0, 0);
    let mut others: BTreeMap<String, (Grade, Vec<String>)> = BTreeMap::new();
    for Objects { kind, found } in objects {
        for object in found.iter().flatten() {
            let Some(health) = job.health(kind, object) else { continue };
            all += 1;
            if health.grade == Grade::InSync {
                good += 1;
                continue;
            }
            let (worst, names) = others.entry(health.state).or_insert((health.grade, Vec::new()));
            *worst = (*worst).max(health.grade);
            names.push(named(kind, object));
        }
    }
    findings.push(Finding::fine("objects", format!("{good} of {all} in sync")));
    for (state, (grade, names)) in others {
        let next = format!("kubectl konverge why {}", names.first().cloned().unwrap_or_default());
        let verdict = if grade == Grade::Wrong { Verdict::Wrong } else { Verdict::Note };
        findings.push(Finding {
            about: "objects",
            verdict,
            text: format!("{state}: {}", few(&names)),
            next: Some(next),
        });
    }
    findings
}

/// Returns an object as the verbs of the plugin take it: `secret/db -n shop`.
pub fn named(kind: &Kind, object: &DynamicObject) -> String {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let namespace = object.metadata.namespace.as_deref().map(|namespace| format!(" -n {namespace}"));
    format!("{}/{name}{}", kind.singular(), namespace.unwrap_or_default())
}
