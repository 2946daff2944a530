//! What a Secret is to hold, whoever requests it. Pure.

use std::{collections::BTreeMap, fmt, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use konverge_apply::SecretMetadata;

use crate::{
    annotations::{RECORD, TARGET_RECORD, declaration, zopp_managed},
    record::{self, TargetRecord},
    select::Selection,
    source::Reference,
    template::SecretTemplate,
    zopp,
};

/// Types of Secrets that belong to Kubernetes or Helm. They are never filled.
pub const RESERVED_TYPES: [&str; 3] =
    ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token", "helm.sh/release.v1"];

/// The keys that a type demands. The API server refuses a Secret of the type without them.
const DEMANDED: [(&str, &[&str]); 5] = [
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
    ("bootstrap.kubernetes.io/token", &["token-id", "token-secret"]),
];

/// What a Secret is to hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// Its sources. A key of several sources is that of the first of them.
    pub sources: Vec<WantedSource>,
    /// The custom resource that has it made. `None` if annotations on the Secret itself request this.
    pub made: Option<Made>,
}

/// One source of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedSource {
    /// The content.
    pub reference: Reference,
    /// Which of its keys, under which names.
    pub selection: Selection,
    /// Whether the store may lack the content.
    pub is_optional: bool,
}

/// A Secret that is made for a custom resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Made {
    /// The custom resource.
    pub owner: Owner,
    /// The fields of the Secret besides its data and the record.
    pub metadata: SecretMetadata,
    /// Whether a Secret that somebody else made is taken over.
    pub adopts: bool,
    /// The keys that are made of the sources' keys.
    pub template: Option<SecretTemplate>,
    /// Whether a source that fails stops all others. If not, its keys stay and those of the others follow.
    pub is_strict: bool,
    /// How often the stores are asked at least. `None` leaves that to the settings of the operator.
    pub refresh: Option<Duration>,
}

/// A custom resource that has a Secret made. Its namespace is that of the Secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// Its kind.
    pub kind: OwnerKind,
    /// Its name.
    pub name: String,
}

/// The kinds of custom resources that have Secrets made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OwnerKind {
    /// `SecretPull` of `konverge.dev`.
    SecretPull,
    /// `ZoppSecretSync` of `zopp.dev`.
    ZoppSecretSync,
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, source) in self.sources.iter().enumerate() {
            let separator = if number > 0 { ", " } else { "" };
            write!(f, "{separator}{}", source.reference)?;
        }
        Ok(())
    }
}

impl fmt::Display for OwnerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SecretPull => "SecretPull",
            Self::ZoppSecretSync => "ZoppSecretSync",
        })
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// Why a Secret is not filled for a custom resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Foreign {
    /// Its type belongs to Kubernetes or Helm.
    Reserved(String),
    /// Annotations on it request a sync of their own.
    Annotated,
    /// Another custom resource made it, as its record says.
    Of(String),
    /// Nothing on it says that this operator made it.
    Unknown,
}

impl Wanted {
    /// A Secret whose annotations request one content.
    pub fn annotated(reference: Reference, selection: Selection) -> Self {
        Self { sources: vec![WantedSource { reference, selection, is_optional: false }], made: None }
    }

    /// Returns the name of the annotation with the record of such a Secret.
    pub fn record_annotation(&self) -> &'static str {
        let is_of_zopp = |source: &WantedSource| source.reference.scheme() == zopp::SCHEME;
        if self.made.is_none() && self.sources.iter().all(is_of_zopp) { RECORD } else { TARGET_RECORD }
    }

    /// Returns the record on an object with this metadata, if such a Secret has one.
    pub fn recorded<'a>(&self, metadata: &'a ObjectMeta) -> Option<&'a String> {
        metadata.annotations.as_ref()?.get(self.record_annotation())
    }

    /// Returns the reason why an existing Secret may not be filled, or `None` if it may.
    pub fn foreign(&self, metadata: &ObjectMeta, secret_type: &str) -> Option<Foreign> {
        if RESERVED_TYPES.contains(&secret_type) {
            return Some(Foreign::Reserved(secret_type.to_owned()));
        }
        self.made.as_ref()?.foreign(metadata)
    }
}

impl Made {
    fn foreign(&self, metadata: &ObjectMeta) -> Option<Foreign> {
        let annotations = metadata.annotations.clone().unwrap_or_default();
        if declaration(&annotations).is_some() {
            return Some(Foreign::Annotated);
        }
        if self.adopts {
            return None;
        }
        match annotations.get(TARGET_RECORD).and_then(|text| TargetRecord::read(text)) {
            Some(record) if record.owner == self.owner.to_string() => None,
            Some(record) => Some(Foreign::Of(record.owner)),
            // The original operator marks the Secrets that it creates.
            None if self.owner.kind == OwnerKind::ZoppSecretSync && zopp_managed(&annotations) => None,
            None => Some(Foreign::Unknown),
        }
    }

    /// Returns whether the labels, annotations and owner of an existing Secret are as wanted, apart from the record.
    pub fn has_metadata(&self, metadata: &ObjectMeta, manager: &str) -> bool {
        let applied = record::applied_metadata(metadata, manager);
        let is_same = |field: &str, wanted: &BTreeMap<String, String>, found: &BTreeMap<String, String>| {
            let has_all = wanted.iter().all(|(name, value)| found.get(name) == Some(value));
            has_all && applied.names(field).all(|name| wanted.contains_key(name) || name == TARGET_RECORD)
        };
        let SecretMetadata { labels, annotations, owner, .. } = &self.metadata;
        let has_owner = match owner {
            Some(owner) => metadata.owner_references.iter().flatten().any(|found| found.uid == owner.uid),
            None => !applied.has_owner,
        };
        let (none, found) = (BTreeMap::new(), metadata);
        has_owner
            && is_same("f:labels", labels, found.labels.as_ref().unwrap_or(&none))
            && is_same("f:annotations", annotations, found.annotations.as_ref().unwrap_or(&none))
    }
}

/// Returns the keys that a Secret of this type needs and does not have.
pub fn lacking<'a>(secret_type: Option<&str>, has: impl Fn(&str) -> bool) -> Vec<&'a str> {
    if secret_type == Some("kubernetes.io/basic-auth") {
        let keys = ["username", "password"];
        return if keys.iter().any(|key| has(key)) { Vec::new() } else { keys.into() };
    }
    let demanded = DEMANDED.iter().find(|(name, _)| secret_type == Some(*name)).map_or(&[][..], |(_, keys)| keys);
    demanded.iter().copied().filter(|key| !has(key)).collect()
}
