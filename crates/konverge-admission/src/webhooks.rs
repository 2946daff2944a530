//! All webhooks of a program: what the server answers and what the API server is told.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_core::names::is_domain;
use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    admission::{Admission, Defaulting, Judge, Mutating, Validating},
    conversion::{Conversion, Converter},
    endpoint::Endpoint,
    handler::{Defaulter, Mutator, Validator},
    versions::{CrdVersions, VersionedDefinition},
    webhook::Webhook,
};

/// Paths that the server answers itself.
pub(crate) const OWN_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// The webhooks of a program. Made without a client and without a clock, so that a generator can write down what a program answers.
#[derive(Default)]
#[must_use = "webhooks answer only when a server serves them"]
pub struct Webhooks {
    pub(crate) validating: Vec<Declared>,
    pub(crate) mutating: Vec<Declared>,
    pub(crate) conversions: Vec<Converted>,
    definitions: Vec<VersionedDefinition>,
    endpoints: Vec<(String, Arc<dyn Endpoint>)>,
}

/// A webhook with the name and the path that it has got.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Declared {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) webhook: Webhook,
}

/// A kind whose versions are converted here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Converted {
    /// Name of its custom resource definition.
    pub(crate) definition: String,
    pub(crate) path: String,
    pub(crate) versions: Vec<String>,
}

/// Webhooks that cannot be served as they were registered: a mistake in the program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistrationError {
    /// Two have one path.
    #[error("path {path} is registered twice; give one of them another with Webhook::path")]
    PathTaken {
        /// The path.
        path: String,
    },
    /// Not a path that the API server would call.
    #[error("{path} cannot be the path of a webhook; it begins with / and is neither /healthz nor /readyz")]
    PathUnusable {
        /// The path.
        path: String,
    },
    /// Two have one name in one configuration.
    #[error("webhook {name} is registered twice; each needs a name of its own")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The API server would refuse the name.
    #[error(
        "{name} cannot be the name of a webhook; take a domain of three parts at least, such as widgets.shop.example.com"
    )]
    NameUnusable {
        /// The name.
        name: String,
    },
    /// The versions of a kind do not fit together.
    #[error("the versions of {definition} do not fit together: {mistake}")]
    VersionsMismatch {
        /// The custom resource definition.
        definition: String,
        /// The conflict.
        mistake: String,
    },
    /// A version has two conversions.
    #[error("version {version} of {definition} is registered twice")]
    VersionTaken {
        /// The version.
        version: String,
        /// The custom resource definition.
        definition: String,
    },
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.endpoints.iter().map(|(path, _)| path)).finish()
    }
}

impl Webhooks {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a webhook that judges.
    pub fn validate<T>(mut self, webhook: Webhook, validator: impl Validator<T>) -> Self
    where
        T: DeserializeOwned + Send + Sync + 'static,
    {
        let declared = self.admit("validate", webhook, Validating::new(validator));
        self.validating.push(declared);
        self
    }

    /// Adds a webhook that changes objects.
    pub fn mutate<T>(mut self, webhook: Webhook, mutator: impl Mutator<T>) -> Self
    where
        T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let declared = self.admit("mutate", webhook, Mutating::new(mutator));
        self.mutating.push(declared);
        self
    }

    /// Adds a webhook that fills in what is missing. It is a mutating one with `/default-…` as its path.
    pub fn defaults<T>(mut self, webhook: Webhook, defaulter: impl Defaulter<T>) -> Self
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let declared = self.admit("default", webhook, Defaulting::new(defaulter));
        self.mutating.push(declared);
        self
    }

    /// Adds the versions of a kind, under `/convert-<group>-<kind>`.
    pub fn convert<H>(mut self, converter: Converter<H>) -> Self
    where
        H: Resource<DynamicType = ()> + Serialize + DeserializeOwned + 'static,
    {
        let (group, kind) = (H::group(&()), H::kind(&()));
        let path = format!("/convert-{}-{}", group.replace('.', "-"), kind.to_lowercase());
        self.conversions.push(Converted {
            definition: format!("{}.{group}", H::plural(&())),
            path: path.clone(),
            versions: converter.versions().into_iter().map(str::to_owned).collect(),
        });
        self.endpoints.push((path, Arc::new(Conversion(converter))));
        self
    }

    /// Adds a kind of several versions: its definition, and its conversions as [`convert`](Self::convert) does.
    pub fn versions<H>(mut self, versions: CrdVersions<H>) -> Self
    where
        H: Resource<DynamicType = ()> + Serialize + DeserializeOwned + 'static,
    {
        let CrdVersions { converter, definition } = versions;
        self.definitions.push(definition);
        // One version alone needs no conversion.
        if converter.versions().len() > 1 { self.convert(converter) } else { self }
    }

    /// The definitions of the kinds of several versions, without their conversions; see [`conversions`](Self::conversions).
    pub fn definitions(&self) -> impl Iterator<Item = &CustomResourceDefinition> {
        self.definitions.iter().map(|versioned| &versioned.definition)
    }

    /// Those of the [`definitions`](Self::definitions) whose stored objects are to be migrated.
    pub fn migrations(&self) -> impl Iterator<Item = &CustomResourceDefinition> {
        self.definitions.iter().filter(|versioned| versioned.migrates).map(|versioned| &versioned.definition)
    }

    /// Adds those of another part of the program.
    pub fn and(mut self, others: Self) -> Self {
        self.validating.extend(others.validating);
        self.mutating.extend(others.mutating);
        self.conversions.extend(others.conversions);
        self.definitions.extend(others.definitions);
        self.endpoints.extend(others.endpoints);
        self
    }

    fn admit(&mut self, purpose: &str, webhook: Webhook, judge: impl Judge) -> Declared {
        let (name, path) = (webhook.name_for(purpose), webhook.path_for(purpose));
        let admission = Admission { judge, on_undecodable: webhook.on_undecodable };
        self.endpoints.push((path.clone(), Arc::new(admission)));
        Declared { name, path, webhook }
    }

    /// Whether they can be served and declared as they are.
    pub fn check(&self) -> Result<(), RegistrationError> {
        let mut paths = BTreeSet::new();
        for (path, _) in &self.endpoints {
            if !path.starts_with('/') || path.contains(['?', '#', ' ']) || OWN_PATHS.contains(&path.as_str()) {
                return Err(RegistrationError::PathUnusable { path: path.clone() });
            }
            if !paths.insert(path) {
                return Err(RegistrationError::PathTaken { path: path.clone() });
            }
        }
        for webhooks in [&self.validating, &self.mutating] {
            let mut names = BTreeSet::new();
            for Declared { name, .. } in webhooks {
                if !is_domain_of_three(name) {
                    return Err(RegistrationError::NameUnusable { name: name.clone() });
                }
                if !names.insert(name) {
                    return Err(RegistrationError::NameTaken { name: name.clone() });
                }
            }
        }
        for VersionedDefinition { definition, mistake, .. } in &self.definitions {
            if let Some(mistake) = mistake.clone() {
                let definition = definition.metadata.name.clone().unwrap_or_default();
                return Err(RegistrationError::VersionsMismatch { definition, mistake });
            }
        }
        for Converted { definition, versions, .. } in &self.conversions {
            let mut seen = BTreeSet::new();
            if let Some(version) = versions.iter().find(|version| !seen.insert(*version)) {
                let (version, definition) = (version.clone(), definition.clone());
                return Err(RegistrationError::VersionTaken { version, definition });
            }
        }
        Ok(())
    }

    /// The endpoint of each path.
    pub(crate) fn into_endpoints(self) -> BTreeMap<String, Arc<dyn Endpoint>> {
        self.endpoints.into_iter().collect()
    }
}

/// The API server's rule for names of webhooks.
fn is_domain_of_three(name: &str) -> bool {
    is_domain(name) && name.split('.').count() >= 3
}
