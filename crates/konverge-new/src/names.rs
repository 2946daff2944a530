//! Which names an operator may have.

use konverge::core::names::is_label;

use crate::{files::SOURCES, substitution::identifiers};

/// Names that Rust or cargo keeps for itself. A crate of such a name cannot be built.
const RESERVED: &str = "abstract alloc as async await become box break const continue core crate do dyn else enum examples extern false \
    final fn for gen if impl in incremental let loop macro match mod move mut override priv proc-macro pub ref return self \
    static std struct super test trait true try type typeof unsafe unsized use virtual where while yield build deps doc";

/// Crates that the operator uses; a crate cannot use one of its own name.
const USED: [&str; 8] =
    ["konverge", "konverge-testkit", "k8s-openapi", "kube", "schemars", "serde", "serde-json", "tokio"];

/// The names of Rust's own prelude.
const STANDARD: &str = "Box Clone Copy Debug Default Drop Eq Err Fn FnMut FnOnce From Into Iterator None Ok Option Ord Result Self Send \
    Some String Sync ToOwned ToString Vec";

/// The kinds that Kubernetes has itself.
const BUILT_IN: &str = "APIGroup APIService Binding CSIDriver CSINode CSIStorageCapacity CertificateSigningRequest ClusterRole \
    ClusterRoleBinding ClusterTrustBundle ComponentStatus ConfigMap ControllerRevision CronJob CustomResourceDefinition DaemonSet \
    Deployment DeviceClass DeviceTaintRule EndpointSlice Endpoints Event Eviction FlowSchema HorizontalPodAutoscaler IPAddress Ingress \
    IngressClass Job Lease LeaseCandidate LimitRange LocalSubjectAccessReview MutatingAdmissionPolicy MutatingAdmissionPolicyBinding \
    MutatingWebhookConfiguration Namespace NetworkPolicy Node PersistentVolume PersistentVolumeClaim Pod PodCertificateRequest \
    PodDisruptionBudget PodGroup PodTemplate PriorityClass PriorityLevelConfiguration ReplicaSet ReplicationController ResourceClaim \
    ResourceClaimTemplate ResourcePoolStatusRequest ResourceQuota ResourceSlice Role RoleBinding RuntimeClass Scale Secret \
    SelfSubjectAccessReview SelfSubjectReview SelfSubjectRulesReview Service ServiceAccount ServiceCIDR StatefulSet Status StorageClass \
    StorageVersion StorageVersionMigration SubjectAccessReview TokenRequest TokenReview ValidatingAdmissionPolicy \
    ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration VolumeAttachment VolumeAttributesClass Workload";

/// A name is not good.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// The name of the operator.
    #[error("{0:?} cannot be the name of an operator: {1}")]
    Name(String, &'static str),
    /// The kind of its custom resource.
    #[error("{0:?} cannot be a kind: {1}")]
    Kind(String, &'static str),
    /// The group of its custom resource.
    #[error("{0:?} cannot be an API group: {1}")]
    Group(String, &'static str),
}

/// Whether an operator may be called this: it names a crate, a program, a service account and a lease.
pub fn check_name(name: &str) -> Result<(), BadName> {
    let is_reserved = || RESERVED.split(' ').chain(USED).any(|reserved| reserved == name);
    let fault = if !is_label(name) {
        "use up to 63 lower-case letters, digits and -, with a letter or digit at the end, such as \"greeter\""
    } else if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        "begin with a letter, since it names a crate"
    } else if is_reserved() {
        "the name has a meaning for Rust or is that of a crate it uses; add a word, such as -operator"
    } else {
        return Ok(());
    };
    Err(BadName::Name(name.to_owned(), fault))
}

/// Whether a custom resource may be of this kind.
pub fn check_kind(kind: &str) -> Result<(), BadName> {
    let is_camel_case = kind.starts_with(|first: char| first.is_ascii_uppercase())
        && kind.contains(|letter: char| letter.is_ascii_lowercase())
        && kind.chars().all(|letter| letter.is_ascii_alphanumeric());
    let fault = if !is_camel_case || kind.len() > 50 {
        "use CamelCase, up to 50 letters and digits, such as \"Greeting\""
    } else if BUILT_IN.split(' ').any(|built_in| built_in == kind) {
        "Kubernetes has a kind of that name, and kubectl would mean that one; choose another"
    } else if is_taken(kind) {
        "the code of every operator uses that word for something else; choose another"
    } else {
        return Ok(());
    };
    Err(BadName::Kind(kind.to_owned(), fault))
}

/// Whether a custom resource may be of this group.
pub fn check_group(group: &str) -> Result<(), BadName> {
    let fault = if group.len() > 200 || !group.contains('.') || !group.split('.').all(is_label) {
        "use a domain of yours in lower case, such as \"example.io\""
    } else if ["k8s.io", "kubernetes.io"].iter().any(|kept| group == *kept || group.ends_with(&format!(".{kept}"))) {
        "Kubernetes keeps it for itself; use a domain of yours"
    } else {
        return Ok(());
    };
    Err(BadName::Group(group.to_owned(), fault))
}

/// Whether a type of that name, or one of those named after it, would hide another that the sources mean.
fn is_taken(kind: &str) -> bool {
    let names = [kind.to_owned(), format!("{kind}Spec"), format!("{kind}Status")];
    let is_name = |word: &str| names.iter().any(|name| name == word);
    // The kind that the template has is free: it is what gives way.
    SOURCES.iter().flat_map(|source| identifiers(source)).any(|word| is_name(word) && !word.starts_with("Greeting"))
        || STANDARD.split(' ').any(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (name, is_good) in [
            ("hello", true),
            ("hello-2-operator", true),
            ("", false),
            ("Hello", false),
            ("hello_world", false),
            ("-hello", false),
            ("hello-", false),
            ("2hello", false),
            ("héllo", false),
            ("../hello", false),
            ("test", false),
            ("type", false),
            ("kube", false),
            (&"a".repeat(63), true),
            (&"a".repeat(64), false),
        ] {
            assert_eq!(check_name(name).is_ok(), is_good, "{name}");
        }
    }

    #[test]
    fn kinds() {
        for (kind, is_good) in [
            ("Greeting", true),
            ("GreetingCard", true),
            ("S3Bucket", true),
            ("", false),
            ("greeting", false),
            ("Greet-ing", false),
            ("HTTP", false),
            ("ConfigMap", false),
            ("Event", false),
            ("Job", false),
            ("Pod", false),
            ("PodSchedule", true),
            ("Context", false),
            ("Custom", false),
            ("Error", false),
            ("Option", false),
            ("Reconciler", false),
            ("String", false),
        ] {
            assert_eq!(check_kind(kind).is_ok(), is_good, "{kind}");
        }
    }

    #[test]
    fn groups() {
        for (group, is_good) in [
            ("example.io", true),
            ("a.b-c.example.io", true),
            ("example", false),
            ("Example.io", false),
            ("example..io", false),
            ("example.io.", false),
            ("apps.k8s.io", false),
            ("kubernetes.io", false),
            ("notk8s.io", true),
        ] {
            assert_eq!(check_group(group).is_ok(), is_good, "{group}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = check_name("Hello").unwrap_err().to_string();
        assert!(error.starts_with("\"Hello\" cannot be the name of an operator: use up to 63 lower-case"), "{error}");
        let error = check_kind("Pod").unwrap_err().to_string();
        assert!(error.starts_with("\"Pod\" cannot be a kind: Kubernetes has a kind of that name"), "{error}");
    }
}
