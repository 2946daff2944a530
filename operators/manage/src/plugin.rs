//! The answers of the kubectl plugin about custom resources of openZro and their items.
//!
//! It works with a person's own access to the cluster, and to openZro where a verb needs that. The state of an object comes from its own status and
//! record alone (`health`).

mod convert;
mod difference;
mod health;
mod leftovers;
mod server;

use async_trait::async_trait;
use konverge::{
    PAUSED, RECONCILE_AT,
    kube::{
        ResourceExt,
        core::{ApiResource, DynamicObject},
    },
    runtime::object::Scope,
};
use konverge_kubectl::{
    Approval, Cluster, Conversion, Detail, Difference, Fact, Failure, Finding, Found, Installed, Job, Kind, Leftover,
    ObjectHealth, Operator, Permission, RequestedAction, events_with_reason, in_sync,
};
use serde_json::Value;

use crate::{
    annotations::{ADOPT, APPROVE_DELETIONS, DELETION, DELETIONS_STOPPED},
    api::{v1, v1alpha1},
    config::{Config, PROGRAM},
    deletions::CONFIG_MAP,
    left_behind::{self, Entry},
    metrics::Metrics,
    program, reasons,
};

/// Where the operator tells that it has stopped deletions.
const APPROVAL: Approval = Approval { config_map: CONFIG_MAP, stopped: DELETIONS_STOPPED, approve: APPROVE_DELETIONS };

/// Manage, for the plugin.
pub struct Manage;

fn kind<K>() -> Kind
where
    K: konverge::kube::Resource<DynamicType = (), Scope: Scope>,
{
    let is_namespaced = <K::Scope as Scope>::IS_NAMESPACED;
    Kind { resource: ApiResource::erase::<K>(&()), short: &[], detail: Detail::Whole, is_namespaced }
}

#[async_trait]
impl Job for Manage {
    fn name(&self) -> &'static str {
        "manage"
    }

    fn operator(&self) -> &'static str {
        PROGRAM
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            kind::<v1::OZGroup>(),
            kind::<v1::OZPolicy>(),
            kind::<v1::OZResource>(),
            kind::<v1::OZRoutingPeer>(),
            kind::<v1::OZSetupKey>(),
            kind::<v1alpha1::Group>(),
            kind::<v1alpha1::NetworkResource>(),
            kind::<v1alpha1::NetworkRouter>(),
            kind::<v1alpha1::SetupKey>(),
        ]
    }

    fn health(&self, _: &Kind, object: &DynamicObject) -> Option<ObjectHealth> {
        Some(health::health(object))
    }

    fn how_to_opt_in(&self, kind: &Kind, _: &str) -> String {
        format!("The operator follows every {}.", kind.resource.kind)
    }

    async fn explain(&self, _: &Cluster, _: &Kind, object: &DynamicObject) -> Vec<Fact> {
        health::facts(object)
    }

    async fn difference(
        &self,
        cluster: &Cluster,
        kind: &Kind,
        object: &DynamicObject,
    ) -> Result<Vec<Difference>, Failure> {
        difference::differences(cluster, kind, object).await
    }

    fn annotation_for(&self, _: &DynamicObject, action: &RequestedAction) -> Result<(&'static str, Value), Failure> {
        Ok(match action {
            RequestedAction::Sync(token) => (RECONCILE_AT, token.clone().into()),
            RequestedAction::Pause => (PAUSED, "true".into()),
            RequestedAction::Resume => (PAUSED, Value::Null),
            RequestedAction::Adopt(id) => (ADOPT, id.clone().unwrap_or_else(|| "true".to_owned()).into()),
            RequestedAction::Release => (DELETION, "orphan".into()),
        })
    }

    fn acknowledges(&self) -> bool {
        false
    }

    fn convert(&self, kind: &Kind, object: &DynamicObject) -> Result<Conversion, Failure> {
        convert::convert(kind, object)
    }

    async fn leftovers(
        &self,
        cluster: &Cluster,
        only: &[String],
        delete: bool,
    ) -> Result<Option<Vec<Leftover>>, Failure> {
        leftovers::leftovers(cluster, &self.kinds(), only, delete).await.map(Some)
    }

    async fn left_behind(&self, cluster: &Cluster, namespace: Option<&str>) -> Result<Vec<String>, Failure> {
        let events = events_with_reason(cluster, PROGRAM, reasons::LEFT_BEHIND, namespace).await;
        // Most people who ask for their own objects may not read the operator's namespace.
        let Ok(entries) = left_behind::entries(cluster, namespace).await else { return events };
        // An event can be about an item of a list that was full.
        let is_listed = |event: &String| entries.iter().any(|entry| event.starts_with(&entry.item));
        let others = events.unwrap_or_default().into_iter().filter(|event| !is_listed(event));
        Ok(entries.iter().map(Entry::sentence).chain(others).collect())
    }

    async fn approve(&self, cluster: &Cluster, namespace: Option<&str>) -> Result<Vec<String>, Failure> {
        APPROVAL.approve(cluster, namespace).await
    }
}

#[async_trait]
impl Operator for Manage {
    type Config = Config;

    fn how_to_install(&self) -> &'static str {
        "apply deploy/openzro and deploy/openzro-operator.yaml, unless it runs outside of the cluster"
    }

    fn role(&self) -> &'static str {
        "deploy/openzro/role.yaml"
    }

    fn needed(&self, config: &Config, home: &str) -> Vec<Permission> {
        // Nothing is sent; the token only decides which controllers there are.
        let config = Config { openzro_api_key_file: Some("/nowhere".into()), ..config.clone() };
        let account = config.account(&Metrics::default()).ok().flatten();
        let operator = program::operator(&config, account, Metrics::default());
        let grant = operator.grant(home);
        let everywhere = grant.everywhere.iter().flat_map(Permission::all_of);
        let at_home = grant.at_home.iter().flat_map(Permission::all_of);
        everywhere.chain(at_home.map(|permission| permission.within(Some(home)))).collect()
    }

    fn check_settings(&self, operator: &Installed<Config>) -> Vec<Finding> {
        let Installed { installation, config } = operator;
        let mut findings = Vec::new();
        if config.openzro_api_key_file.is_some() {
            findings.push(Finding::fine("settings", format!("openZro at {}", config.openzro_management_url)));
        } else {
            // The value of a variable that comes from a Secret is not in the Deployment.
            let text = format!(
                "openZro at {}; the token is an argument or a variable, which other processes may read, and a new token needs a restart",
                config.openzro_management_url
            );
            findings.push(Finding::note("settings", text, Some("mount the Secret and use --openzro-api-key-file")));
        }
        for (namespace, url) in &config.settings().accounts {
            findings
                .push(Finding::fine("settings", format!("namespace {namespace} has an account of its own at {url}")));
        }
        findings.extend(open(config));
        if installation.wanted > 1 && !config.leader_elect {
            let text = format!("{} processes work at the same time and write over each other", installation.wanted);
            findings.push(Finding::wrong("settings", text, "give it --leader-elect"));
        }
        findings
    }

    async fn check_objects(&self, cluster: &Cluster, found: &Found<'_, Config>) -> Vec<Finding> {
        let mut findings = in_sync(self, found.objects);
        match cluster.config_maps(CONFIG_MAP, None).await {
            Ok(lists) => {
                findings.extend(APPROVAL.findings(&lists, "annotate the objects with konverge.dev/deletion=orphan"));
            }
            Err(failure) => findings.push(Finding::unknown("deletions", &failure)),
        }
        findings
    }
}

/// Returns a note about each missing rule, or one finding that none is missing.
fn open(config: &Config) -> Vec<Finding> {
    let open = config.open();
    if open.is_empty() {
        let text = "each namespace has names of its own, and privileged pods need the platform";
        return vec![Finding::fine("confinement", text)];
    }
    let step = "see the page \"Teams in one account\"";
    open.into_iter().map(|text| Finding::note("confinement", text, Some(step))).collect()
}

/// `OZGroup shop/devs`, as people write it.
fn named(object: &DynamicObject) -> String {
    let kind = object.types.as_ref().map(|types| types.kind.as_str()).unwrap_or_default();
    match object.namespace() {
        Some(namespace) => format!("{kind} {namespace}/{}", object.name_any()),
        None => format!("{kind} {}", object.name_any()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Parser;

    use super::*;

    #[test]
    fn the_operator_needs_what_its_role_grants() {
        let needed = Manage.needed(&Config::parse_from([PROGRAM]), "home");
        let needed: Vec<_> = needed.iter().map(Permission::to_string).collect();
        for permission in ["patch ozgroups/status", "watch secrets", "watch groups", "create leases in namespace home"]
        {
            assert!(needed.iter().any(|known| known == permission), "{permission}: {needed:#?}");
        }
    }

    #[test]
    fn the_doctor_says_what_a_switchers_settings_leave_open() {
        let texts = |flags: &[&str]| -> Vec<String> {
            let config = Config::parse_from([&[PROGRAM], flags].concat());
            open(&config).into_iter().map(|finding| finding.text).collect()
        };
        let native = texts(&["--openzro-api-key-file=/key"]);
        assert!(native.len() == 1 && native[0].contains("each namespace has names of its own"), "{native:?}");
        let original = texts(&["--openzro-api-key=nbp"]);
        assert!(
            original[0].contains("no --allow rule") && original[1].contains("privileged containers"),
            "{original:?}"
        );
    }

    #[test]
    fn a_wish_is_an_annotation() {
        let object = DynamicObject::new("devs", &ApiResource::erase::<v1::OZGroup>(&()));
        for (action, annotation, value) in [
            (RequestedAction::Sync("now".to_owned()), "konverge.dev/reconcile-at", Value::from("now")),
            (RequestedAction::Pause, "konverge.dev/paused", "true".into()),
            (RequestedAction::Resume, "konverge.dev/paused", Value::Null),
            (RequestedAction::Adopt(None), "konverge.dev/adopt", "true".into()),
            (RequestedAction::Adopt(Some("g1".to_owned())), "konverge.dev/adopt", "g1".into()),
            (RequestedAction::Release, "konverge.dev/deletion", "orphan".into()),
        ] {
            assert_eq!(Manage.annotation_for(&object, &action).unwrap(), (annotation, value));
        }
    }

    #[test]
    fn each_kind_that_can_have_items_is_known() {
        let kinds: BTreeSet<_> = Manage.kinds().iter().map(|kind| kind.resource.plural.clone()).collect();
        let defined = crate::api::definitions().into_iter().map(|definition| definition.spec.names.plural);
        assert_eq!(kinds, defined.filter(|plural| plural != "sidecarprofiles").collect());
    }

    #[test]
    fn only_policies_have_no_namespace() {
        let without: Vec<_> = Manage.kinds().into_iter().filter(|kind| !kind.is_namespaced).collect();
        assert_eq!(without.iter().map(Kind::singular).collect::<Vec<_>>(), ["ozpolicy"]);
    }
}
