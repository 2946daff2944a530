//! An operator as it is installed: its Deployment, and who of its processes leads.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::Deployment, coordination::v1::Lease};
use konverge_runtime::object::Scope;
use kube::{Api, api::ListParams, core::NamespaceResourceScope};

use crate::{
    Cluster, Failure, Job,
    cluster::{of_namespace, request},
};

/// The name of the program that runs several jobs, and of the chart.
const KONVERGE: &str = "konverge";

/// The label that says which program a Deployment is. The Deployments of the chart have the name of the chart there.
const PROGRAM: &str = "app.kubernetes.io/name";

/// The label that each Deployment of the chart has, whatever the values say.
const CHART: &str = "app.kubernetes.io/part-of=konverge";

/// The annotation with the name of the release that a Deployment belongs to.
const RELEASE: &str = "meta.helm.sh/release-name";

/// A Deployment of an operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installation {
    /// The namespace of the Deployment.
    pub namespace: String,
    /// The name of the Deployment.
    pub name: String,
    /// The number of desired replicas.
    pub wanted: i32,
    /// The number of ready replicas.
    pub ready: i32,
    /// The service account of the pods.
    pub account: String,
    /// Whether it runs several jobs, of which this is one.
    pub all_in_one: bool,
    /// The release of Helm that it belongs to.
    pub release: Option<String>,
    /// The arguments of the first container, with variables put in; of one of several jobs its own.
    pub arguments: Vec<String>,
    /// Variables of the first container whose value stands in the Deployment.
    pub variables: BTreeMap<String, String>,
}

/// The leader, by its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// The namespace of the lease.
    pub namespace: String,
    /// The holder; `None` if the lease was released.
    pub holder: Option<String>,
    /// The time of the last renewal.
    pub renewed: Option<Timestamp>,
    /// Whether the lease has expired.
    pub stale: bool,
}

impl Cluster {
    /// The Deployments of a job's operator: those of its own program, by their label or, of the chart, by their command; and those of
    /// `konverge run` that run it. In all namespaces if the person may list those, else in the cluster's own.
    pub async fn installations(&self, job: &dyn Job) -> Result<Vec<Installation>, Failure> {
        let mut deployments = self.deployments(&format!("{PROGRAM} in ({}, {KONVERGE})", job.operator())).await?;
        for deployment in self.deployments(CHART).await? {
            let is_known = deployments.iter().any(|known| known.metadata.uid == deployment.metadata.uid);
            if !is_known {
                deployments.push(deployment);
            }
        }
        let installation = |deployment| Installation::of(deployment, job.name(), job.operator());
        Ok(deployments.into_iter().filter_map(installation).collect())
    }

    async fn deployments(&self, labels: &str) -> Result<Vec<Deployment>, Failure> {
        let parameters = ListParams::default().labels(labels);
        let list = async |namespace: Option<&str>| {
            let api: Api<Deployment> = NamespaceResourceScope::api(self.client.clone(), &(), namespace);
            let act = format!("list deployments{}", of_namespace(namespace));
            request(act, async { api.list(&parameters).await }).await
        };
        let found = match list(None).await {
            Err(Failure::Forbidden(_)) => list(Some(&self.namespace)).await?,
            found => found?,
        };
        Ok(found.items)
    }

    /// The leases of this name, in all namespaces.
    pub async fn leaders(&self, lease: &str, now: Timestamp) -> Result<Vec<Leader>, Failure> {
        let parameters = ListParams::default().fields(&format!("metadata.name={lease}"));
        let api = Api::<Lease>::all(self.client.clone());
        let found = request("list leases", async { api.list(&parameters).await }).await?;
        Ok(found.items.into_iter().map(|lease| Leader::of(lease, now)).collect())
    }
}

impl Installation {
    /// The message if there is none.
    pub fn missing(job: &dyn Job) -> String {
        format!(
            "there is no Deployment labelled {PROGRAM}={}, and neither the chart nor konverge run has one for the job {}",
            job.operator(),
            job.name()
        )
    }

    /// Returns how to grant the service account its permissions. `own` is the manifest in `deploy/` with the role of this operator alone.
    pub fn grant(&self, own: &str) -> String {
        match &self.release {
            Some(release) => {
                format!(
                    "helm upgrade {release} -n {} --reset-then-reuse-values, with the chart of this version",
                    self.namespace
                )
            }
            None if self.all_in_one => "apply deploy/rbac/konverge.yaml".to_owned(),
            None => format!("apply {own}"),
        }
    }

    /// A Deployment as the operator of this job; nothing if it is another one. The command of the container says which program it starts; if there is
    /// none, the label does.
    fn of(deployment: Deployment, job: &str, operator: &str) -> Option<Self> {
        let labelled = deployment.metadata.labels.as_ref().and_then(|labels| labels.get(PROGRAM)).cloned();
        let release =
            deployment.metadata.annotations.as_ref().and_then(|annotations| annotations.get(RELEASE)).cloned();
        let spec = deployment.spec.unwrap_or_default();
        let pod = spec.template.spec.unwrap_or_default();
        let account = pod.service_account_name.unwrap_or_else(|| "default".to_owned());
        let container = pod.containers.into_iter().next().unwrap_or_default();
        let variables: BTreeMap<String, String> =
            container.env.into_iter().flatten().filter_map(|variable| Some((variable.name, variable.value?))).collect();
        let arguments: Vec<_> =
            container.args.into_iter().flatten().map(|argument| expanded(&argument, &variables)).collect();
        let command = container.command.unwrap_or_default().into_iter().next();
        let program = command.as_ref().and_then(|command| command.rsplit('/').next());
        let all_in_one = labelled.as_deref() != Some(operator) && program != Some(operator);
        let arguments = if all_in_one { konverge_jobs::flags_of(job, &arguments)? } else { arguments };
        Some(Self {
            namespace: deployment.metadata.namespace.unwrap_or_default(),
            name: deployment.metadata.name.unwrap_or_default(),
            wanted: spec.replicas.unwrap_or(1),
            ready: deployment.status.and_then(|status| status.ready_replicas).unwrap_or_default(),
            account,
            all_in_one,
            release,
            arguments,
            variables,
        })
    }
}

impl Leader {
    fn of(lease: Lease, now: Timestamp) -> Self {
        let spec = lease.spec.unwrap_or_default();
        let renewed = spec.renew_time.map(|time| time.0);
        let lasts = i64::from(spec.lease_duration_seconds.unwrap_or_default());
        // Clocks differ, so it counts as run out when it has been so for its own length again.
        let stale = renewed.is_none_or(|renewed| now.as_second() > renewed.as_second() + 2 * lasts);
        Self {
            namespace: lease.metadata.namespace.unwrap_or_default(),
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            renewed,
            stale,
        }
    }
}

/// Expands `$(NAME)` as Kubernetes does.
fn expanded(argument: &str, variables: &BTreeMap<String, String>) -> String {
    variables.iter().fold(argument.to_owned(), |text, (name, value)| text.replace(&format!("$({name})"), value))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(program: &str, arguments: &[&str]) -> Deployment {
        let container = json!({
            "name": "manager", "args": arguments,
            "env": [{ "name": "VAULT_ADDR", "value": "https://v" }, { "name": "TOKEN", "valueFrom": {} }],
        });
        let deployment = json!({
            "metadata": { "namespace": "system", "name": "manager", "labels": { "app.kubernetes.io/name": program } },
            "spec": { "replicas": 2, "selector": {}, "template": { "spec": { "serviceAccountName": "account", "containers": [container] } } },
            "status": { "readyReplicas": 1 },
        });
        serde_json::from_value(deployment).unwrap()
    }

    /// A Deployment as the operator of one of our jobs.
    fn of(deployment: Deployment, job: &str) -> Option<Installation> {
        let operators =
            [("pull", "zopp-operator"), ("push", "vault-sync-operator"), ("roll", "vault-rollout-operator")];
        let (_, operator) = operators.into_iter().find(|(known, _)| *known == job).unwrap();
        Installation::of(deployment, job, operator)
    }

    #[test]
    fn what_a_deployment_tells() {
        let arguments = ["--vault-addr=$(VAULT_ADDR)", "--leader-elect"];
        let installation = of(deployment("vault-sync-operator", &arguments), "push").unwrap();
        assert_eq!(installation.arguments, ["--vault-addr=https://v", "--leader-elect"]);
        assert_eq!((installation.wanted, installation.ready, &*installation.account), (2, 1, "account"));
        assert_eq!(installation.variables.keys().collect::<Vec<_>>(), ["VAULT_ADDR"]);
        assert_eq!(installation.grant("deploy/rbac/own.yaml"), "apply deploy/rbac/own.yaml");
    }

    #[test]
    fn a_deployment_of_the_chart_is_the_operator_that_its_command_starts() {
        let of_chart = |command: &str, arguments: &[&str]| {
            let mut deployment = deployment("any", arguments);
            deployment.metadata.annotations = Some([(RELEASE.to_owned(), "konverge".to_owned())].into());
            let pod = deployment.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
            pod.containers[0].command = Some(vec![command.to_owned()]);
            of(deployment, "push")
        };
        let push = of_chart("/usr/bin/vault-sync-operator", &["--vault-addr=$(VAULT_ADDR)"]).unwrap();
        assert_eq!((push.arguments.join(" "), push.all_in_one), ("--vault-addr=https://v".to_owned(), false));
        let next = "helm upgrade konverge -n system --reset-then-reuse-values, with the chart of this version";
        assert_eq!(push.grant("deploy/rbac/own.yaml"), next);
        assert_eq!(of_chart("/usr/bin/vault-rollout-operator", &["--leader-elect"]), None);
        assert_eq!(of_chart("/usr/bin/zopp-server", &["serve"]), None);
        assert!(of_chart("/usr/bin/konverge", &["run", "--job=push"]).unwrap().all_in_one);
    }

    #[test]
    fn one_of_several_jobs_has_its_own_arguments() {
        let arguments = ["run", "--job=pull --leader-election", "--job", "push --vault-addr=$(VAULT_ADDR)"];
        let of = |job: &str| of(deployment("konverge", &arguments), job);
        assert_eq!(of("pull").unwrap().arguments, ["--leader-election"]);
        assert_eq!(of("push").unwrap().arguments, ["--vault-addr=https://v"]);
        assert_eq!(of("push").unwrap().grant("deploy/rbac/own.yaml"), "apply deploy/rbac/konverge.yaml");
        assert_eq!(of("roll"), None);
    }

    #[test]
    fn a_lease_counts_as_run_out_after_twice_its_length() {
        let now = Timestamp::from_second(1_000).unwrap();
        let lease = |ago: i64, holder: &str| {
            let renewed = Timestamp::from_second(1_000 - ago).unwrap();
            let spec =
                json!({ "holderIdentity": holder, "renewTime": format!("{renewed:.6}"), "leaseDurationSeconds": 15 });
            Leader::of(serde_json::from_value(json!({ "spec": spec })).unwrap(), now)
        };
        assert!(!lease(30, "a").stale);
        assert!(lease(31, "a").stale);
        assert_eq!(lease(0, "").holder, None);
        assert!(Leader::of(Lease::default(), now).stale);
    }
}
