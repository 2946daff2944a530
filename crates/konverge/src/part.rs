//! The parts of a program.

use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_gen::Access;
use kube::core::ApiResource;
use prometheus_client::registry::Registry;
use serde_json::Value;

use crate::{home::Home, setup::Setup, start_error::StartError};

/// Something a program has: a controller, or a part of your own.
pub trait Part: Send {
    /// The custom resource definition that it brings.
    fn crd(&self) -> Option<&CustomResourceDefinition> {
        None
    }

    /// The custom resource definitions that it brings, if there may be several. If two parts bring one of the same name, that of the
    /// first counts.
    fn crds(&self) -> Vec<CustomResourceDefinition> {
        self.crd().cloned().into_iter().collect()
    }

    /// Shapes the command line: shows the flags that only it heeds.
    #[cfg(feature = "cli")]
    fn command(&self, command: clap::Command) -> clap::Command {
        command
    }

    /// Returns the kind of objects on which it sets finalizers, for [`Operator::drain`](crate::Operator::drain).
    fn held(&self) -> Option<Held> {
        None
    }

    /// Changes the definition of a part of the program, its own or another's.
    fn amend(&self, home: &Home<'_>, definition: &mut CustomResourceDefinition) {
        let _ = (home, definition);
    }

    /// More objects that are to be in the cluster.
    fn objects(&self, home: &Home<'_>) -> Result<Vec<Value>, serde_json::Error> {
        let _ = home;
        Ok(Vec::new())
    }

    /// Adds the series that it will have when it runs, without a value, for the reference, the dashboard and the alerts. Several parts
    /// may add the same ones.
    fn describe(&self, registry: &mut Registry) {
        let _ = registry;
    }

    /// Alerts about its own series, before those of all programs.
    #[cfg(feature = "generate")]
    fn alerts(&self) -> &'static [konverge_gen::watching::Alert] {
        &[]
    }

    /// Inhibitions that involve its own alerts: one outage is to fire one alert.
    #[cfg(feature = "generate")]
    fn inhibitions(&self) -> &'static [konverge_gen::watching::Inhibition] {
        &[]
    }

    /// Panels of its own series on the dashboard, before those of all programs.
    #[cfg(feature = "generate")]
    fn panels(&self) -> &'static [konverge_gen::watching::Panel] {
        &[]
    }

    /// The reasons that it gives besides those of the framework, with their meanings, for the reference.
    fn reasons(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    /// Adds what it needs of the API server: in all namespaces that the program looks at, and in its own.
    fn access(&self, home: &Home<'_>, everywhere: &mut Access, at_home: &mut Access);

    /// Puts itself into a program that is about to run: with tasks ([`Manager::task`](konverge_runtime::Manager::task)), tasks for one
    /// replica only ([`Manager::leader_task`](konverge_runtime::Manager::leader_task)), controllers, checks.
    fn install(self: Box<Self>, setup: &mut Setup) -> BoxFuture<'_, Result<(), StartError>>;
}

/// A kind of objects on which a program sets finalizers. It gets no further field, so that it can be written as a literal.
#[derive(Debug, Clone)]
pub struct Held {
    /// The kind.
    pub kind: ApiResource,
    /// Whether the cluster need not know the kind.
    pub is_optional: bool,
    /// The finalizers, also those of earlier releases.
    pub finalizers: Vec<&'static str>,
}
