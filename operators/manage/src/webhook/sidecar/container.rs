//! The container of a sidecar.

use k8s_openapi::api::core::v1::{EnvVar, SecurityContext, VolumeMount};
use serde_json::{Value, json};

use super::CONTAINER;
use crate::{
    api::{InvalidField, embedded, v1alpha1::ContainerOverride},
    settings::Settings,
};

pub(super) const NET_ADMIN: &str = "NET_ADMIN";

/// The container of a sidecar, as a pod has it.
pub(super) struct Container(Value);

impl Container {
    /// The client, which may change the network of the pod and nothing else. It has no probes: the client has no command for them.
    pub(super) fn new(settings: &Settings, management_url: &str, secret: &Value, labels: Option<&str>) -> Self {
        let mut env = vec![
            json!({ "name": "OZ_SETUP_KEY", "valueFrom": { "secretKeyRef": secret } }),
            json!({ "name": "OZ_MANAGEMENT_URL", "value": management_url }),
        ];
        env.extend(labels.map(|labels| json!({ "name": "OZ_EXTRA_DNS_LABELS", "value": labels })));
        Self(json!({
            "name": CONTAINER,
            "image": settings.client_image,
            "env": env,
            "securityContext": { "capabilities": { "add": [NET_ADMIN] } },
        }))
    }

    /// Runs the sidecar as root if the pod has another user, because the kernel grants the capabilities of a container to root
    /// alone. A sidecar without the capability, or with a user of its own, keeps its user.
    pub(super) fn in_pod(mut self, pod: &Value) -> Self {
        let (of_pod, own) = (&pod["spec"]["securityContext"], &self.0["securityContext"]);
        let has_user = of_pod["runAsUser"].as_i64().is_some_and(|user| user != 0) || of_pod["runAsNonRoot"] == true;
        let is_decided = !own["runAsUser"].is_null() || !own["runAsNonRoot"].is_null();
        if has_user && !is_decided && self.has_net_admin() {
            self.0["securityContext"]["runAsUser"] = json!(0);
            self.0["securityContext"]["runAsNonRoot"] = json!(false);
        }
        self
    }

    /// Adds mounts of volumes.
    pub(super) fn with_mounts(mut self, mounts: &[Value]) -> Result<Self, InvalidField> {
        if !mounts.is_empty() {
            let mounts = Value::from(mounts.to_vec());
            embedded::<Vec<VolumeMount>>("spec.volumeMounts", &mounts)?;
            self.0["volumeMounts"] = mounts;
        }
        Ok(self)
    }

    /// Changes it as a profile says, by the rules of a strategic merge.
    pub(super) fn overridden(mut self, change: &ContainerOverride) -> Result<Self, InvalidField> {
        if !change.image.is_empty() {
            self.0["image"] = json!(change.image);
        }
        embedded::<Vec<EnvVar>>("spec.containerOverride.env", &Value::from(change.env.clone()))?;
        if let Value::Array(env) = &mut self.0["env"] {
            for variable in &change.env {
                // As a whole: a variable with both a value and a source would be refused.
                match env.iter_mut().find(|known| known["name"] == variable["name"]) {
                    Some(known) => known.clone_from(variable),
                    None => env.push(variable.clone()),
                }
            }
        }
        if let Some(security_context) = &change.security_context {
            embedded::<SecurityContext>("spec.containerOverride.securityContext", security_context)?;
            merge(&mut self.0["securityContext"], security_context);
        }
        Ok(self)
    }

    /// Returns `true` if the sidecar has the capability to change the network of the pod.
    pub(super) fn has_net_admin(&self) -> bool {
        let added = self.0["securityContext"]["capabilities"]["add"].as_array();
        added.into_iter().flatten().any(|capability| capability == NET_ADMIN)
    }

    /// Makes it an init container that keeps running beside the others.
    pub(super) fn kept_running(mut self) -> Self {
        self.0["restartPolicy"] = json!("Always");
        self
    }
}

impl From<Container> for Value {
    fn from(container: Container) -> Self {
        container.0
    }
}

/// Merges objects key by key. `null` removes a key, and any other value replaces it: the lists in a security context are atomic.
fn merge(target: &mut Value, change: &Value) {
    let (Value::Object(object), Value::Object(changes)) = (&mut *target, change) else {
        target.clone_from(change);
        return;
    };
    for (key, change) in changes {
        if change.is_null() {
            object.remove(key);
        } else {
            merge(object.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}
