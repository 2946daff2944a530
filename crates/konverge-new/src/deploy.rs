//! The files that a new operator would generate, made before it is built for the first time.

use std::future::ready;

use futures::future::BoxFuture;
use k8s_openapi::{
    api::rbac::v1::PolicyRule, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use konverge::{
    GenerateError, Home, Operator, Part, Setup, StartError,
    generate::{Access, Files},
};

use crate::substitution::Names;

/// The files cannot be generated.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// The custom resource definition of the template cannot be renamed.
    #[error("cannot make the custom resource definition: {0}")]
    Definition(#[from] serde_json::Error),
    /// It cannot be written down.
    #[error("cannot generate the manifests: {0}")]
    Generate(#[from] GenerateError),
}

/// The generated files of the template's operator under other names, for the namespace `default`.
pub fn generated(names: &Names, name: &str) -> Result<Files, DeployError> {
    let template = konverge_template::operator();
    let crds = template.crds(NAMESPACE);
    let renamed = crds.iter().map(|crd| serde_json::from_str(&names.put_into(&serde_json::to_string(crd)?)));
    let grant = template.grant(NAMESPACE);
    // An operator lives as long as its program, and so do its words.
    let mut operator = Operator::new(name.to_owned().leak(), env!("CARGO_PKG_VERSION")).part(Granted {
        everywhere: renamed_access(&grant.everywhere, names),
        at_home: renamed_access(&grant.at_home, names),
    });
    for crd in renamed.collect::<Result<Vec<_>, _>>()? {
        operator = operator.part(Defined { crd });
    }
    Ok(operator.generate(NAMESPACE)?)
}

/// The default namespace of `generate`.
const NAMESPACE: &str = "default";

fn renamed_access(rules: &[PolicyRule], names: &Names) -> Access {
    let leaked = |text: &String| -> &'static str { names.put_into(text).leak() };
    let mut access = Access::default();
    for rule in rules {
        if rule.resource_names.is_some() {
            // A permission for objects of certain names must not become one for all.
            let renamed = |texts: &Option<Vec<String>>| {
                texts.as_ref().map(|texts| texts.iter().map(|text| names.put_into(text)).collect())
            };
            let (api_groups, resources) = (renamed(&rule.api_groups), renamed(&rule.resources));
            let resource_names = renamed(&rule.resource_names);
            access.rules_of([PolicyRule { api_groups, resources, resource_names, ..rule.clone() }]);
            continue;
        }
        let verbs: Vec<_> = rule.verbs.iter().map(leaked).collect();
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                access.to_resource(leaked(group), leaked(resource), &verbs);
            }
        }
    }
    access
}

/// A kind of the template under another name. There is nothing to install: this operator only generates.
struct Defined {
    crd: CustomResourceDefinition,
}

impl Part for Defined {
    fn crd(&self) -> Option<&CustomResourceDefinition> {
        Some(&self.crd)
    }

    fn access(&self, _home: &Home<'_>, _everywhere: &mut Access, _at_home: &mut Access) {}

    fn install(self: Box<Self>, _setup: &mut Setup) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(ready(Ok(())))
    }
}

/// The permissions of the template's controllers, under other names. There is nothing to install here either.
struct Granted {
    everywhere: Access,
    at_home: Access,
}

impl Part for Granted {
    fn access(&self, _home: &Home<'_>, everywhere: &mut Access, at_home: &mut Access) {
        everywhere.merge(&self.everywhere);
        at_home.merge(&self.at_home);
    }

    fn install(self: Box<Self>, _setup: &mut Setup) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(ready(Ok(())))
    }
}
