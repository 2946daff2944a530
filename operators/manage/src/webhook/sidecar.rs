//! The decision about a pod: which sidecar it gets, and why it gets none. Pure.
//!
//! The pod is JSON and not a type, so fields of newer versions of Kubernetes stay as they were sent.

mod container;
mod privileges;
mod selection;

use std::sync::Arc;

use konverge::kube::ResourceExt;
use serde_json::{Map, Value, json};

use self::{container::Container, privileges::privileges, selection::matches};
use crate::{
    annotations::{EXTRA_DNS_LABELS, INIT_SIDECAR, SETUP_KEY, SIDECAR_PROFILE},
    api::{
        v1::OZSetupKey,
        v1alpha1::{InjectionMode, SetupKey, SidecarProfile},
    },
    settings::Settings,
};

/// The namespace label that sets the level that Pod Security enforces. The values `baseline` and `restricted` refuse `NET_ADMIN`.
pub const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// The name of the sidecar.
pub const CONTAINER: &str = "openzro";

/// The objects of a namespace that decide about the sidecars of its pods.
#[derive(Debug, Clone, Default)]
pub struct Neighbours {
    /// Setup keys that annotations name.
    pub annotated_keys: Vec<Arc<OZSetupKey>>,
    /// Profiles.
    pub profiles: Vec<Arc<SidecarProfile>>,
    /// Setup keys that profiles name.
    pub profile_keys: Vec<Arc<SetupKey>>,
    /// Whether Pod Security is known to refuse every pod with `NET_ADMIN` in this namespace.
    pub is_confined: bool,
}

impl Neighbours {
    /// Refuses a sidecar that would make the API server refuse the whole pod.
    fn check_confinement(&self, namespace: &str, container: &Container) -> Result<(), String> {
        if !self.is_confined || !container.has_net_admin() {
            return Ok(());
        }
        Err(format!(
            "the sidecar needs NET_ADMIN, which the label {ENFORCE} of namespace {namespace} refuses; run the pod in a namespace with the value \
             privileged, or take NET_ADMIN from the sidecar in spec.containerOverride.securityContext of a SidecarProfile (example: \
             {{\"capabilities\": {{\"add\": []}}}})"
        ))
    }
}

/// The decision about a pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Injection {
    /// The pod with its sidecar, or `None` if the pod stays as it is.
    pub pod: Option<Value>,
    /// Texts for the sender of the pod.
    pub warnings: Vec<String>,
    /// Why the pod lacks a sidecar that it should have.
    pub unserved: Option<Unserved>,
}

/// Why a pod lacks a sidecar that it should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    /// The pod, the cause and the next step.
    pub why: String,
    /// Whether the pod itself asks for the sidecar. A pod that only a profile selects may start without it.
    pub is_requested: bool,
}

impl Injection {
    fn unserved(why: String, is_requested: bool) -> Self {
        Self { unserved: Some(Unserved { why, is_requested }), ..Self::default() }
    }

    /// Returns the decision with messages that repeat only names in the request: the pod, its annotations and the kinds of objects to check.
    /// The patch of the pod is complete, with the name of the Secret with the key.
    #[must_use]
    pub fn without_names(self, pod: &Value, namespace: &str) -> Self {
        let name = pod_name(pod, namespace);
        let unserved = self.unserved.map(|Unserved { is_requested, .. }| {
            let check = match annotation(pod, SETUP_KEY) {
                Some(key) => format!(
                    "annotation {SETUP_KEY} names OZSetupKey {key}; check that namespace {namespace} has it and that it is ready"
                ),
                None => format!("check the SidecarProfiles of namespace {namespace} and their SetupKeys"),
            };
            let why = format!("Pod {name} gets no sidecar: {check}. The operator's log has the cause");
            Unserved { why, is_requested }
        });
        let warning = || format!("the operator's log has a warning about the sidecar of pod {name}");
        let warnings = (!self.warnings.is_empty()).then(warning).into_iter().collect();
        Self { pod: self.pod, warnings, unserved }
    }
}

/// Decides about a pod that is created in this namespace.
///
/// A pod that has a container of the sidecar's name stays as it is. The API server may ask again after another webhook changed the pod, and the
/// operator's own routing peers have that container.
pub fn inject(pod: &Value, namespace: &str, neighbours: &Neighbours, settings: &Settings) -> Injection {
    if !pod.is_object() {
        return Injection::default();
    }
    let annotated = annotation(pod, SETUP_KEY);
    if has_container(pod) {
        let is_ours = annotated.is_none() || has_sidecar(pod);
        let warning =
            || format!("the pod has a container {CONTAINER} of its own, so it gets no sidecar; rename that container");
        return Injection { warnings: (!is_ours).then(warning).into_iter().collect(), ..Injection::default() };
    }
    match annotated {
        Some(key) => inject_annotated(pod, namespace, key, neighbours, settings),
        None => inject_by_profile(pod, namespace, neighbours, settings),
    }
}

fn inject_annotated(
    pod: &Value,
    namespace: &str,
    key_name: &str,
    neighbours: &Neighbours,
    settings: &Settings,
) -> Injection {
    let name = pod_name(pod, namespace);
    let refused = |why: String| Injection::unserved(format!("Pod {name} gets no sidecar: {why}"), true);
    let Some(key) = neighbours.annotated_keys.iter().find(|key| key.name_any() == key_name) else {
        return refused(format!(
            "annotation {SETUP_KEY} names OZSetupKey {key_name}, and namespace {namespace} has none of that name; \
             create it, or correct the annotation"
        ));
    };
    if let Some(why) = unready(key) {
        return refused(format!(
            "OZSetupKey {namespace}/{key_name} is not ready ({why}); correct it, then create the pod again"
        ));
    }
    let has_volumes = !key.spec.volumes.is_empty() || !key.spec.volume_mounts.is_empty();
    let url = key.spec.management_url.as_deref().filter(|url| !url.is_empty()).unwrap_or(settings.url(namespace));
    let requested =
        [("spec.volumes or spec.volumeMounts", has_volumes), ("spec.managementURL", url != settings.url(namespace))];
    let fields = requested.into_iter().filter(|(_, is_requested)| *is_requested).map(|(field, _)| field).collect();
    if let Err(why) = settings.check_privileges(namespace, fields, "") {
        return refused(format!("in OZSetupKey {namespace}/{key_name}, {why}"));
    }
    let labels = annotation(pod, EXTRA_DNS_LABELS);
    let secret = key.spec.secret(key_name);
    let container =
        Container::new(settings, url, &json!(secret), labels).in_pod(pod).with_mounts(&key.spec.volume_mounts);
    let container = match container {
        Ok(container) => container,
        Err(error) => return refused(format!("in OZSetupKey {namespace}/{key_name}, {error}")),
    };
    if let Err(why) = neighbours.check_confinement(namespace, &container) {
        return refused(why);
    }
    let mut pod = pod.clone();
    if let Err(why) = add_volumes(&mut pod, &key.spec.volumes) {
        return refused(format!("in OZSetupKey {namespace}/{key_name}, {why}"));
    }
    let mode = match annotation(&pod, INIT_SIDECAR) {
        Some("true") => InjectionMode::Sidecar,
        _ => InjectionMode::Container,
    };
    add_container(&mut pod, container, mode);
    let is_ours = key.spec.secret_key_ref.is_none();
    let lacks_permission = labels.is_some() && is_ours && key.spec.allow_extra_dns_labels != Some(true);
    let warnings = lacks_permission.then(|| unpermitted_labels(&format!("OZSetupKey {namespace}/{key_name}")));
    Injection { pod: Some(pod), warnings: warnings.into_iter().collect(), unserved: None }
}

fn inject_by_profile(pod: &Value, namespace: &str, neighbours: &Neighbours, settings: &Settings) -> Injection {
    let mut profiles: Vec<_> = neighbours.profiles.iter().collect();
    profiles.sort_by_key(|profile| profile.name_any());
    let mut invalid = Vec::new();
    for profile in profiles {
        let name = profile.name_any();
        match matches(profile.spec.pod_selector.as_ref(), pod) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(why) => {
                invalid.push(format!("SidecarProfile {namespace}/{name} is left out: {why}; correct spec.podSelector"));
                continue;
            }
        }
        let mut injection = apply_profile(pod, namespace, profile, neighbours, settings);
        injection.warnings.extend(invalid);
        return injection;
    }
    if invalid.is_empty() { Injection::default() } else { Injection::unserved(invalid.join("; "), false) }
}

fn apply_profile(
    pod: &Value,
    namespace: &str,
    profile: &SidecarProfile,
    neighbours: &Neighbours,
    settings: &Settings,
) -> Injection {
    let (name, spec) = (profile.name_any(), &profile.spec);
    let key_name = &spec.setup_key_ref.name;
    let unserved = |why: String| {
        let pod = pod_name(pod, namespace);
        Injection::unserved(format!("Pod {pod} gets no sidecar of SidecarProfile {namespace}/{name}: {why}"), false)
    };
    let Some(key) = neighbours.profile_keys.iter().find(|key| key.name_any() == *key_name) else {
        return unserved(format!(
            "spec.setupKeyRef names SetupKey {key_name}, and the namespace has none of that name; create it, or correct the profile"
        ));
    };
    let fields = spec.container_override.as_ref().map(privileges).unwrap_or_default();
    if let Err(why) = settings.check_privileges(namespace, fields, "") {
        return unserved(why);
    }
    let labels = (!spec.extra_dns_labels.is_empty()).then(|| spec.extra_dns_labels.join(","));
    let secret = json!({ "name": SetupKey::secret_name(key_name), "key": SetupKey::SECRET_KEY });
    let container = Container::new(settings, settings.url(namespace), &secret, labels.as_deref());
    let container = match &spec.container_override {
        Some(change) => container.overridden(change),
        None => Ok(container),
    };
    let container = match container {
        Ok(container) => container.in_pod(pod),
        Err(error) => return unserved(error.to_string()),
    };
    if let Err(why) = neighbours.check_confinement(namespace, &container) {
        return unserved(why);
    }
    let mut pod = pod.clone();
    add_container(&mut pod, container, spec.injection_mode);
    entry(entry(&mut pod, "metadata"), "annotations")[SIDECAR_PROFILE] = json!(name);
    let lacks_permission = labels.is_some() && key.spec.allow_extra_dns_labels != Some(true);
    let warnings = lacks_permission.then(|| unpermitted_labels(&format!("SetupKey {namespace}/{key_name}")));
    Injection { pod: Some(pod), warnings: warnings.into_iter().collect(), unserved: None }
}

fn unpermitted_labels(key: &str) -> String {
    format!(
        "openZro refuses peers with extra DNS labels whose setup key does not allow them; set spec.allowExtraDNSLabels of {key}"
    )
}

/// Returns why the setup key is not ready, or `None` if it is.
fn unready(key: &OZSetupKey) -> Option<String> {
    let conditions = key.status.as_ref().map(|status| &status.standard.conditions);
    let Some(ready) = conditions.and_then(|conditions| conditions.get("Ready")) else {
        return Some("the operator has not looked at it yet".to_owned());
    };
    (ready.status != "True").then(|| match (ready.reason.as_str(), ready.message.as_str()) {
        ("", "") => "it gives no reason".to_owned(),
        (reason, "") => reason.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    })
}

/// The value of an annotation that is not blank.
fn annotation<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    pod["metadata"]["annotations"][name].as_str().map(str::trim).filter(|value| !value.is_empty())
}

/// The pod in messages. A pod of a `ReplicaSet` has no name yet.
fn pod_name(pod: &Value, namespace: &str) -> String {
    let name = |field: &str| pod["metadata"][field].as_str().filter(|name| !name.is_empty());
    match (name("name"), name("generateName")) {
        (Some(name), _) => format!("{namespace}/{name}"),
        (None, Some(prefix)) => format!("{namespace}/{prefix}*"),
        (None, None) => format!("of namespace {namespace}"),
    }
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["containers", "initContainers"].into_iter().flat_map(|list| pod["spec"][list].as_array().into_iter().flatten())
}

fn has_container(pod: &Value) -> bool {
    containers(pod).any(|container| container["name"] == CONTAINER)
}

/// Whether the pod's container of the sidecar's name is a sidecar: it has a setup key from a Secret.
fn has_sidecar(pod: &Value) -> bool {
    let has_key = |container: &Value| {
        let variables = container["env"].as_array().into_iter().flatten();
        variables.filter(|variable| variable["name"] == "OZ_SETUP_KEY").any(|key| key["valueFrom"].is_object())
    };
    containers(pod).filter(|container| container["name"] == CONTAINER).any(has_key)
}

fn add_container(pod: &mut Value, container: Container, mode: InjectionMode) {
    let (list, container) = match mode {
        InjectionMode::Sidecar => ("initContainers", container.kept_running()),
        InjectionMode::Container => ("containers", container),
    };
    push(pod, list, container.into());
}

/// Adds the volumes that the pod lacks. A volume of the same name but with another content is an error.
fn add_volumes(pod: &mut Value, volumes: &[Value]) -> Result<(), String> {
    for volume in volumes {
        let has = pod["spec"]["volumes"].as_array().into_iter().flatten().find(|known| known["name"] == volume["name"]);
        match has {
            Some(known) if known == volume => {}
            Some(_) => {
                return Err(format!(
                    "spec.volumes has volume {}, and the pod has another one of that name; rename one",
                    volume["name"]
                ));
            }
            None => push(pod, "volumes", volume.clone()),
        }
    }
    Ok(())
}

fn push(pod: &mut Value, list: &str, item: Value) {
    let list = &mut entry(pod, "spec")[list];
    match list {
        Value::Array(items) => items.push(item),
        _ => *list = Value::Array(vec![item]),
    }
}

/// The object at this key, which is made if there is none.
fn entry<'a>(object: &'a mut Value, key: &str) -> &'a mut Value {
    let value = &mut object[key];
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value
}

#[cfg(test)]
mod tests;
