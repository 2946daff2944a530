//! What a new operator would generate of itself, before it is built for the first time.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge::{
    GenerateError, Operator, Part, Setup, StartError,
    generate::{Access, Files},
};

use crate::words::Names;

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

/// The generated files of the template's operator under other names.
pub fn generated(names: &Names, name: &str) -> Result<Files, DeployError> {
    let template = konverge_template::operator();
    // An operator lives as long as its program, and so do its words.
    let leaked = |text: &str| -> &'static str { names.put_into(text).leak() };
    let mut operator = Operator::new(name.to_owned().leak(), env!("CARGO_PKG_VERSION"));
    for crd in template.crds() {
        let crd = serde_json::from_str(&names.put_into(&serde_json::to_string(crd)?))?;
        let mut access = Access::default();
        for rule in template.access().rules() {
            let verbs: Vec<&'static str> = rule.verbs.iter().map(|verb| leaked(verb)).collect();
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    access.to_resource(leaked(group), leaked(resource), &verbs);
                }
            }
        }
        operator = operator.part(Renamed { crd, access });
    }
    Ok(operator.generate("default")?)
}

/// A controller of the template under other names.
struct Renamed {
    crd: CustomResourceDefinition,
    access: Access,
}

impl Part for Renamed {
    fn crd(&self) -> Option<&CustomResourceDefinition> {
        Some(&self.crd)
    }

    fn access(&self, access: &mut Access) {
        access.merge(&self.access);
    }

    /// Has nothing to install: this operator only generates.
    fn install(self: Box<Self>, _setup: &mut Setup) -> Result<(), StartError> {
        Ok(())
    }
}
