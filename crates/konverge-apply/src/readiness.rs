//! Whether an object has become what it should be, by the rules that kstatus has made common. Pure.
//!
//! Differs from kstatus where that looks at a clock or stops early. A pod that cannot be scheduled is in progress however long it
//! lasts. A volume claim that has lost its volume has failed, and a load balancer without an address is not ready.

mod pods;
mod workloads;

use std::fmt;

use serde_json::Value;

/// How far an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Readiness {
    /// It is as its specification says.
    Current,
    /// It is on its way, and why it is not there yet.
    InProgress(String),
    /// It will not get there without a change, and why.
    Failed(String),
    /// It is being deleted.
    Terminating,
    /// It does not exist.
    NotFound,
}

impl Readiness {
    /// Whether there is nothing to wait for.
    pub fn is_current(&self) -> bool {
        *self == Self::Current
    }
}

impl From<bool> for Readiness {
    fn from(is_ready: bool) -> Self {
        if is_ready {
            Self::Current
        } else {
            Self::InProgress("it is not ready by the rule of its operator".to_owned())
        }
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Current => out.write_str("current"),
            Self::InProgress(why) => write!(out, "in progress: {why}"),
            Self::Failed(why) => write!(out, "failed: {why}"),
            Self::Terminating => out.write_str("being deleted"),
            Self::NotFound => out.write_str("not found"),
        }
    }
}

/// How far the object is, or that there is none. It is a whole object in JSON, with `apiVersion` and `kind`.
///
/// Knows `Deployment`, `ReplicaSet`, `StatefulSet`, `DaemonSet`, `Job`, `CronJob`, `Pod`, `PersistentVolumeClaim`, `Service` and
/// `CustomResourceDefinition`. All others, custom resources among them, are judged by `status.observedGeneration` and the conditions
/// `Reconciling`, `Stalled` and `Ready`; an object without any of these is current as soon as it exists.
pub fn readiness(object: Option<&Value>) -> Readiness {
    let Some(object) = object else { return Readiness::NotFound };
    let object = View(object);
    if object.text("/metadata/deletionTimestamp").is_some() {
        return Readiness::Terminating;
    }
    let (generation, observed) = (object.number("/metadata/generation"), object.number("/status/observedGeneration"));
    if let (Some(generation), Some(observed)) = (generation, observed)
        && observed < generation
    {
        return Readiness::InProgress(format!("generation {generation} is not observed yet, only {observed}"));
    }
    if let Some(stalled) = object.condition("Stalled").filter(Condition::is_true) {
        return Readiness::Failed(stalled.why());
    }
    if let Some(reconciling) = object.condition("Reconciling").filter(Condition::is_true) {
        return Readiness::InProgress(reconciling.why());
    }
    match (object.group(), object.text("/kind").unwrap_or_default()) {
        ("apps", "Deployment") => workloads::deployment(&object),
        ("apps", "ReplicaSet") => workloads::replica_set(&object),
        ("apps", "StatefulSet") => workloads::stateful_set(&object),
        ("apps", "DaemonSet") => workloads::daemon_set(&object),
        ("batch", "Job") => workloads::job(&object),
        // It is there to make jobs, and does so from now on.
        ("batch", "CronJob") => Readiness::Current,
        ("", "Pod") => pods::pod(&object),
        ("", "PersistentVolumeClaim") => volume_claim(&object),
        ("", "Service") => service(&object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(&object),
        _ => generic(&object),
    }
}

fn generic(object: &View<'_>) -> Readiness {
    match object.condition("Ready") {
        Some(ready) if !ready.is_true() => Readiness::InProgress(ready.why()),
        _ => Readiness::Current,
    }
}

fn volume_claim(object: &View<'_>) -> Readiness {
    match object.text("/status/phase").unwrap_or("not looked at yet") {
        "Bound" => Readiness::Current,
        "Lost" => Readiness::Failed("the volume is lost".to_owned()),
        phase => Readiness::InProgress(format!("the claim is not bound: {phase}")),
    }
}

fn service(object: &View<'_>) -> Readiness {
    let addresses = object.0.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
    if object.text("/spec/type") == Some("LoadBalancer") && addresses.is_none_or(Vec::is_empty) {
        return Readiness::InProgress("the load balancer has no address yet".to_owned());
    }
    Readiness::Current
}

fn definition(object: &View<'_>) -> Readiness {
    if let Some(names) = object.condition("NamesAccepted").filter(|names| names.status == "False") {
        return Readiness::Failed(names.why());
    }
    match object.condition("Established") {
        Some(established) if established.is_true() => Readiness::Current,
        Some(established) if established.status == "False" && established.reason != "Installing" => {
            Readiness::Failed(established.why())
        }
        _ => Readiness::InProgress("the kind is not served yet".to_owned()),
    }
}

/// An object, looked at by path.
struct View<'a>(&'a Value);

impl<'a> View<'a> {
    fn text(&self, path: &str) -> Option<&'a str> {
        self.0.pointer(path)?.as_str()
    }

    fn number(&self, path: &str) -> Option<i64> {
        self.0.pointer(path)?.as_i64()
    }

    /// A number of the status, which is left out when it is zero.
    fn status(&self, field: &str) -> i64 {
        self.0.get("status").and_then(|status| status.get(field)).and_then(Value::as_i64).unwrap_or(0)
    }

    fn group(&self) -> &'a str {
        self.text("/apiVersion").and_then(|version| version.split_once('/')).map_or("", |(group, _)| group)
    }

    fn condition(&self, condition_type: &str) -> Option<Condition<'a>> {
        let conditions = self.0.pointer("/status/conditions")?.as_array()?;
        let text = |of: &'a Value, field: &str| of.get(field).and_then(Value::as_str).unwrap_or_default();
        let found = conditions.iter().find(|condition| text(condition, "type") == condition_type)?;
        Some(Condition {
            status: text(found, "status"),
            reason: text(found, "reason"),
            message: text(found, "message"),
        })
    }
}

struct Condition<'a> {
    status: &'a str,
    reason: &'a str,
    message: &'a str,
}

impl Condition<'_> {
    fn is_true(&self) -> bool {
        self.status == "True"
    }

    /// The words for people if there are any, else the one for programs.
    fn why(&self) -> String {
        match (self.reason, self.message) {
            ("", "") => "no reason is given".to_owned(),
            (reason, "") => reason.to_owned(),
            ("", message) => message.to_owned(),
            (reason, message) => format!("{reason}: {message}"),
        }
    }
}

#[cfg(test)]
mod tests;
