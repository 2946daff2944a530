//! The Deployment of routing peers, and its disruption budget.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{apps::v1::Deployment, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::FieldsV1,
};
use konverge::{
    Object,
    apply::{Owner, Writable},
    generate::Access,
    kube::Api,
    prelude::{Context, Error, EventType, ObjectKey},
};
use serde_json::{Value, json};

use super::{children, merge::merge};
use crate::{reasons, settings::Settings};

/// The default number of pods.
pub(super) const REPLICAS: i32 = 3;

type Labels = BTreeMap<String, String>;

/// The pod settings that an object requests.
#[derive(Clone, Debug, Default)]
pub(super) struct PodSettings {
    pub(super) replicas: Option<i32>,
    pub(super) labels: Labels,
    pub(super) annotations: Labels,
    pub(super) node_selector: Labels,
    pub(super) tolerations: Vec<Value>,
    pub(super) volumes: Vec<Value>,
    pub(super) volume_mounts: Vec<Value>,
    pub(super) resources: Option<Value>,
    pub(super) privileged: bool,
    /// Merged into the pod template at last.
    pub(super) pod_template: Option<Value>,
}

/// A routing workload.
pub(super) struct Workload<'a> {
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) owner: &'a Owner,
    /// Selects the pods of this object and no others.
    pub(super) selector: Labels,
    /// The Secret with the setup key, and the key in it.
    pub(super) secret: (&'a str, &'a str),
    pub(super) pod_settings: &'a PodSettings,
}

impl PodSettings {
    /// Returns the settings that change the privileges of a container.
    fn privileges(&self) -> Vec<&'static str> {
        let requested = [
            ("spec.privileged", self.privileged),
            ("spec.volumes", !self.volumes.is_empty()),
            ("spec.volumeMounts", !self.volume_mounts.is_empty()),
            ("spec.workloadOverride.podTemplate", self.pod_template.is_some()),
        ];
        requested.into_iter().filter(|(_, is_requested)| *is_requested).map(|(field, _)| field).collect()
    }
}

/// Refuses pods with more privileges than the namespace may use.
fn check_privileges(workload: &Workload<'_>, settings: &Settings) -> Result<(), Error> {
    let advice =
        ", because a routing peer needs NET_ADMIN alone where the kernel of the node has the modules wireguard and tun";
    let checked = settings.check_privileges(workload.namespace, workload.pod_settings.privileges(), advice);
    checked.map_err(|why| Error::permanent(reasons::PRIVILEGE_NOT_ALLOWED, why))
}

/// Returns the number of replicas to write: that of the object, or else that of the Deployment while only the operator has set it. `None` leaves
/// it to an autoscaler or a person. `manager` is the field manager of the operator.
fn replicas(wanted: Option<i32>, existing: Option<&Deployment>, manager: &str) -> Option<i32> {
    let Some(existing) = existing.filter(|_| wanted.is_none()) else { return Some(wanted.unwrap_or(REPLICAS)) };
    let entries = existing.metadata.managed_fields.iter().flatten();
    let own = entries.filter(|entry| entry.manager.as_deref() == Some(manager) && entry.subresource.is_none());
    let sets_replicas = |fields: &FieldsV1| fields.0["f:spec"].get("f:replicas").is_some();
    let is_own = own.filter_map(|entry| entry.fields_v1.as_ref()).any(sets_replicas);
    existing.spec.as_ref().and_then(|spec| spec.replicas).filter(|_| is_own)
}

impl Workload<'_> {
    /// Returns the Deployment. A Deployment that exists keeps its selector, which cannot change. The error says which field of the object no
    /// Deployment can have.
    ///
    /// There is no probe: the client has no command that tells whether it is connected and that exists in each of its versions.
    pub(super) fn deployment(
        &self,
        settings: &Settings,
        existing: Option<&Deployment>,
        manager: &str,
    ) -> Result<Deployment, String> {
        let known = existing.and_then(|existing| existing.spec.as_ref()?.selector.match_labels.clone());
        let selector = known.unwrap_or_else(|| self.selector.clone());
        let labels = self.labels(settings, &selector);
        let mut metadata = self.metadata(settings, &labels);
        if !self.pod_settings.annotations.is_empty() {
            metadata["annotations"] = json!(self.pod_settings.annotations);
        }
        let mut deployment = json!({
            "metadata": metadata,
            "spec": {
                "selector": { "matchLabels": selector },
                "template": self.pod_template(settings, &selector, &labels),
            },
        });
        if let Some(replicas) = replicas(self.pod_settings.replicas, existing, manager) {
            deployment["spec"]["replicas"] = json!(replicas);
        }
        serde_json::from_value(deployment)
            .map_err(|error| format!("no Deployment can have what the spec says of its pods: {error}"))
    }

    fn pod_template(&self, settings: &Settings, selector: &Labels, labels: &Labels) -> Value {
        let pod_settings = self.pod_settings;
        let mut spec = json!({
            "containers": [self.container(settings)],
            "topologySpreadConstraints": [{
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": { "matchLabels": selector },
            }],
        });
        if !pod_settings.node_selector.is_empty() {
            spec["nodeSelector"] = json!(pod_settings.node_selector);
        }
        if !pod_settings.tolerations.is_empty() {
            spec["tolerations"] = json!(pod_settings.tolerations);
        }
        if !pod_settings.volumes.is_empty() {
            spec["volumes"] = json!(pod_settings.volumes);
        }
        let mut template = json!({ "metadata": { "labels": labels }, "spec": spec });
        if !pod_settings.annotations.is_empty() {
            template["metadata"]["annotations"] = json!(pod_settings.annotations);
        }
        if let Some(patch) = &pod_settings.pod_template {
            merge(&mut template, patch);
            // Pods that the selector does not find would be made without end.
            merge(&mut template, &json!({ "metadata": { "labels": selector } }));
        }
        template
    }

    fn container(&self, settings: &Settings) -> Value {
        let pod_settings = self.pod_settings;
        let (secret, key) = self.secret;
        let mut container = json!({
            "name": "openzro",
            "image": settings.client_image,
            "env": [
                { "name": "OZ_SETUP_KEY", "valueFrom": { "secretKeyRef": { "name": secret, "key": key } } },
                { "name": "OZ_MANAGEMENT_URL", "value": settings.url(self.namespace) },
            ],
            "securityContext": { "capabilities": { "add": ["NET_ADMIN"] } },
        });
        if pod_settings.privileged {
            container["securityContext"]["privileged"] = json!(true);
        }
        if let Some(resources) = &pod_settings.resources {
            container["resources"] = resources.clone();
        }
        if !pod_settings.volume_mounts.is_empty() {
            container["volumeMounts"] = json!(pod_settings.volume_mounts);
        }
        container
    }

    /// Returns the budget that lets one pod at a time be evicted.
    pub(super) fn budget(&self, settings: &Settings, deployment: &Deployment) -> Result<PodDisruptionBudget, String> {
        let selector = deployment.spec.as_ref().map(|spec| &spec.selector);
        let labels = self.labels(settings, &self.selector);
        let budget = json!({
            "metadata": self.metadata(settings, &labels),
            "spec": { "maxUnavailable": 1, "selector": selector },
        });
        serde_json::from_value(budget).map_err(|error| error.to_string())
    }

    fn labels(&self, settings: &Settings, selector: &Labels) -> Labels {
        let own = self.pod_settings.labels.iter().chain(selector);
        settings.default_labels.iter().chain(own).map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    fn metadata(&self, _: &Settings, labels: &Labels) -> Value {
        json!({
            "name": self.name,
            "namespace": self.namespace,
            "labels": labels,
            "ownerReferences": [self.owner.controller_reference()],
        })
    }
}

/// Why the pods of a Deployment are not available yet; `None` if all are.
pub(super) fn unavailable(deployment: &Deployment) -> Option<String> {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.as_ref();
    let is_seen = status.and_then(|status| status.observed_generation) >= deployment.metadata.generation;
    let available = status.and_then(|status| status.available_replicas).unwrap_or_default();
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    match (is_seen, available >= wanted) {
        (true, true) => None,
        (false, _) => Some(format!("waits for the Deployment {name} to be rolled out")),
        (true, false) => Some(format!("{available} of {wanted} pods of the Deployment {name} are available")),
    }
}

/// Declares the permissions to write workloads.
pub(super) fn declare(access: &mut Access) {
    access.to::<Deployment>(&(), &["create", "get", "patch"]);
    access.to::<PodDisruptionBudget>(&(), &["create", "get", "patch"]);
}

/// The objects of a routing workload, and the Deployment that they are based on.
pub(super) struct Desired {
    existing: Option<Arc<Deployment>>,
    deployment: Deployment,
    budget: PodDisruptionBudget,
}

/// Returns the Deployment and its budget. Fails if the API server would not accept the Deployment. Writes nothing.
pub(super) async fn desired<K>(
    context: &Context<K>,
    workload: &Workload<'_>,
    settings: &Settings,
) -> Result<Desired, Error>
where
    K: Object + Writable,
{
    let invalid = |why: String| Error::permanent(reasons::INVALID_SPEC, why);
    let key = ObjectKey { namespace: Some(workload.namespace.to_owned()), name: workload.name.to_owned() };
    let existing = match context.watched::<Deployment>()?.get(&key) {
        // The cache may not have it yet, and another client may have scaled it.
        None => {
            let deployments = Api::<Deployment>::namespaced(context.client().clone(), workload.namespace);
            deployments.get_opt(workload.name).await?.map(Arc::new)
        }
        known => known,
    };
    check_privileges(workload, settings)?;
    let manager = context.applier().manager();
    let deployment = workload.deployment(settings, existing.as_deref(), manager).map_err(invalid)?;
    let budget = workload.budget(settings, &deployment).map_err(invalid)?;
    let preview = context.applier().clone().with_dry_run(true);
    children::apply_as_seen(&preview, context, &deployment, existing.as_deref()).await?;
    Ok(Desired { existing, deployment, budget })
}

/// Makes the Deployment and its budget as desired. Returns why pods are not available yet; `None` if all are.
pub(super) async fn apply<K>(
    context: &Context<K>,
    workload: &Workload<'_>,
    desired: &Desired,
) -> Result<Option<String>, Error>
where
    K: Object + Writable,
{
    let observed = desired.existing.as_deref();
    children::apply_as_seen(context.applier(), context, &desired.deployment, observed).await?;
    let budgets = Api::<PodDisruptionBudget>::namespaced(context.client().clone(), workload.namespace);
    let known = match budgets.get_opt(workload.name).await {
        // The role of the original does not have budgets, and the pods run without one.
        Err(konverge::kube::Error::Api(status)) if status.code == 403 => {
            let note = "the role allows no PodDisruptionBudget; apply the generated role to have one";
            context.event(EventType::Normal, reasons::NO_DISRUPTION_BUDGET, "Reconcile", note);
            return Ok(waits(observed, workload.name));
        }
        known => known?,
    };
    if known.as_ref().is_some_and(|known| !children::belongs_to(known, &**context.object())) {
        let note = format!("the PodDisruptionBudget {} is left as it is, because somebody else made it", workload.name);
        context.event(EventType::Normal, reasons::DISRUPTION_BUDGET_NOT_OURS, "Reconcile", note);
        return Ok(waits(observed, workload.name));
    }
    let _ = context.applier().apply(&desired.budget, known.as_ref()).await?;
    Ok(waits(observed, workload.name))
}

fn waits(observed: Option<&Deployment>, name: &str) -> Option<String> {
    observed.map_or_else(|| Some(format!("waits for the Deployment {name}")), unavailable)
}

#[cfg(test)]
mod tests {
    use konverge::kube::api::ObjectMeta;

    use super::*;
    use crate::api::v1::{OZRoutingPeer, OZRoutingPeerSpec};

    fn settings() -> Settings {
        Settings {
            cluster_name: "c".to_owned(),
            management_url: "https://oz".to_owned(),
            client_image: "openzro:1".to_owned(),
            default_labels: [("team".to_owned(), "net".to_owned())].into(),
            ..Settings::default()
        }
    }

    fn owner() -> Owner {
        let mut peer = OZRoutingPeer::new("r", OZRoutingPeerSpec::default());
        peer.metadata.namespace = Some("n".to_owned());
        peer.metadata.uid = Some("u".to_owned());
        Owner::of(&peer).unwrap()
    }

    fn deployment(pod_settings: &PodSettings, existing: Option<&Deployment>) -> Value {
        let owner = owner();
        let selector = [("app.kubernetes.io/instance".to_owned(), "r".to_owned())].into();
        let workload =
            Workload { name: "r", namespace: "n", owner: &owner, selector, secret: ("s", "k"), pod_settings };
        serde_json::to_value(workload.deployment(&settings(), existing, "m").unwrap()).unwrap()
    }

    #[test]
    fn w12_pods_get_net_admin_alone_unless_more_is_requested() {
        let plain = deployment(&PodSettings::default(), None);
        let container = &plain["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["securityContext"], json!({ "capabilities": { "add": ["NET_ADMIN"] } }));
        assert_eq!((&plain["spec"]["replicas"], container.get("readinessProbe")), (&json!(3), None));
        let privileged = deployment(&PodSettings { privileged: true, ..PodSettings::default() }, None);
        let container = &privileged["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["securityContext"]["privileged"], true);
    }

    #[test]
    fn replicas_that_the_object_does_not_set_are_left_to_whoever_sets_them() {
        let existing = |manager: &str| {
            let fields = json!({ "f:spec": { "f:replicas": {} } });
            let entry = json!({ "manager": manager, "operation": "Apply", "fieldsV1": fields });
            let deployment = json!({ "metadata": { "managedFields": [entry] },
                "spec": { "replicas": 5, "selector": {}, "template": {} } });
            serde_json::from_value::<Deployment>(deployment).unwrap()
        };
        for (wanted, existing, expected) in [
            (None, None, Some(3)),
            (Some(2), None, Some(2)),
            (Some(2), Some(existing("kubectl")), Some(2)),
            (None, Some(existing("m")), Some(5)),
            (None, Some(existing("kubectl")), None),
        ] {
            assert_eq!(replicas(wanted, existing.as_ref(), "m"), expected, "{wanted:?} {existing:?}");
        }
    }

    #[test]
    fn only_a_namespace_that_the_platform_names_gets_more_than_net_admin() {
        let settings = Settings { privileged: Some(["net".to_owned()].into()), ..settings() };
        let refused = |namespace: &'static str, pod_settings: &PodSettings| {
            let owner = owner();
            let selector = Labels::new();
            let workload = Workload { name: "r", namespace, owner: &owner, selector, secret: ("s", "k"), pod_settings };
            check_privileges(&workload, &settings).err().map(|error| error.to_string())
        };
        let pod_settings = PodSettings { privileged: true, volumes: vec![json!({})], ..PodSettings::default() };
        let message = refused("shop", &pod_settings).unwrap();
        for part in ["spec.privileged", "spec.volumes", "NET_ADMIN", "--privileged-namespace=shop"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let template = PodSettings { pod_template: Some(json!({})), ..PodSettings::default() };
        assert!(refused("shop", &template).unwrap().contains("spec.workloadOverride.podTemplate"));
        assert_eq!((refused("net", &pod_settings), refused("shop", &PodSettings::default())), (None, None));
    }

    #[test]
    fn w28_each_object_has_a_selector_and_labels_of_its_own_and_an_existing_selector_stays() {
        let pod_settings = PodSettings { labels: [("a".to_owned(), "b".to_owned())].into(), ..PodSettings::default() };
        let made = deployment(&pod_settings, None);
        assert_eq!(made["spec"]["selector"]["matchLabels"], json!({ "app.kubernetes.io/instance": "r" }));
        let labels = json!({ "a": "b", "app.kubernetes.io/instance": "r", "team": "net" });
        assert_eq!(made["spec"]["template"]["metadata"]["labels"], labels);
        let old = json!({ "metadata": {}, "spec": { "selector": { "matchLabels": { "app.kubernetes.io/name": "openzro-router" } },
            "template": {} } });
        let kept = deployment(&pod_settings, Some(&serde_json::from_value(old).unwrap()));
        assert_eq!(kept["spec"]["selector"]["matchLabels"], json!({ "app.kubernetes.io/name": "openzro-router" }));
        assert_eq!(kept["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"], "openzro-router");
    }

    #[test]
    fn w31_an_override_changes_the_pods_and_never_their_selector() {
        let template = json!({ "metadata": { "labels": { "app.kubernetes.io/instance": "other", "x": "y" } },
            "spec": { "containers": [{ "name": "openzro", "securityContext": { "privileged": true } }] } });
        let made = deployment(&PodSettings { pod_template: Some(template), ..PodSettings::default() }, None);
        let pod = &made["spec"]["template"];
        assert_eq!(pod["metadata"]["labels"]["app.kubernetes.io/instance"], "r");
        assert_eq!(pod["metadata"]["labels"]["x"], "y");
        assert_eq!(pod["spec"]["containers"][0]["image"], "openzro:1");
        assert_eq!(pod["spec"]["containers"][0]["securityContext"]["privileged"], true);
    }

    #[test]
    fn ready_follows_the_available_pods_of_the_latest_rollout() {
        let of = |generation: i64, observed: i64, available: i32, wanted: i32| {
            let status = json!({ "observedGeneration": observed, "availableReplicas": available });
            let spec = json!({ "replicas": wanted, "selector": {}, "template": {} });
            let mut deployment: Deployment =
                serde_json::from_value(json!({ "metadata": {}, "spec": spec, "status": status })).unwrap();
            deployment.metadata = ObjectMeta { generation: Some(generation), ..ObjectMeta::default() };
            unavailable(&deployment).is_none()
        };
        assert!(of(1, 1, 3, 3) && of(1, 1, 0, 0) && of(2, 2, 4, 3));
        assert!(!of(2, 1, 3, 3) && !of(1, 1, 2, 3));
        let fresh =
            json!({ "metadata": { "generation": 1 }, "spec": { "replicas": 0, "selector": {}, "template": {} } });
        assert!(unavailable(&serde_json::from_value(fresh).unwrap()).is_some(), "w31: nothing was rolled out yet");
    }
}
