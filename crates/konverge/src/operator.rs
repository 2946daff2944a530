//! A program: its controllers, its flags, and what it generates.

#[cfg(feature = "generate")]
mod generate;
#[cfg_attr(not(feature = "serve"), path = "operator/no_server.rs")]
mod server;
mod start;
mod telemetry;

use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_apply::{
    Applier,
    ledger::{Drain, DrainError},
};
use konverge_gen::{Access, role::Grant};
use kube::{Client, core::ApiResource};
use prometheus_client::registry::Registry;
use serde_json::Value;

use crate::{crds, flags::Flags, options::Options};

#[cfg(feature = "generate")]
pub use generate::GenerateError;
pub(crate) use start::both;
#[cfg(feature = "external")]
pub(crate) use start::elects;
pub use start::{Setup, StartError};

/// A program that is being put together. Make one with [`operator!`](crate::operator!).
pub struct Operator {
    pub(crate) program: &'static str,
    pub(crate) version: &'static str,
    pub(crate) parts: Vec<Box<dyn Part>>,
    pub(crate) flags: Flags,
    pub(crate) may_install_crds: bool,
    pub(crate) may_authenticate: bool,
    #[cfg(feature = "otlp")]
    pub(crate) sends_traces: bool,
}

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

    /// Returns the kind of objects on which it sets finalizers, for [`Operator::drain`].
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

/// The identity of a program in the cluster.
#[derive(Debug, Clone, Copy)]
pub struct Home<'a> {
    /// Its name, which is that of its service account, its Service and its configurations.
    pub program: &'a str,
    /// The namespace that it runs in.
    pub namespace: &'a str,
    /// The URL that its webhooks are called at, if that is not its Service.
    #[cfg(feature = "admission")]
    pub(crate) webhook_url: Option<&'a str>,
}

/// Makes an [`Operator`] named after the crate it is written in.
#[macro_export]
macro_rules! operator {
    () => {
        $crate::Operator::new(::core::env!("CARGO_PKG_NAME"), ::core::env!("CARGO_PKG_VERSION"))
    };
}

impl Operator {
    /// A program without parts. Its name is also its field manager and the value of the label `app.kubernetes.io/managed-by` of children.
    pub fn new(program: &'static str, version: &'static str) -> Self {
        Self {
            program,
            version,
            parts: Vec::new(),
            flags: Flags::default(),
            may_install_crds: false,
            may_authenticate: false,
            #[cfg(feature = "otlp")]
            sends_traces: false,
        }
    }

    /// Adds a controller.
    #[must_use]
    pub fn controller(self, controller: impl Part + 'static) -> Self {
        self.part(controller)
    }

    /// Adds a part of your own.
    #[must_use]
    pub fn part(mut self, part: impl Part + 'static) -> Self {
        self.parts.push(Box::new(part));
        self
    }

    /// Values of flags for a program that reads no command line, such as one that a test [assembles](Self::assemble_with). Declared flags
    /// without values have their defaults there.
    #[must_use]
    pub fn flag_values<F: Send + Sync + 'static>(mut self, values: F) -> Self {
        self.flags.set(values);
        self
    }

    /// Lets [`grant`](Self::grant) and what is generated allow what `--install-crds` needs: making resource definitions, and reading
    /// and changing the program's own.
    #[must_use]
    pub fn may_install_crds(mut self, may: bool) -> Self {
        self.may_install_crds = may;
        self
    }

    /// Lets [`grant`](Self::grant) and what is generated allow what `--metrics-authentication` needs: asking the API server who somebody is
    /// and what they may.
    #[must_use]
    pub fn may_authenticate(mut self, may: bool) -> Self {
        self.may_authenticate = may;
        self
    }

    /// Lets `--otlp-endpoint` send traces to an OpenTelemetry collector; see [`konverge_otlp`](crate::otlp). Without this, the flag is
    /// neither shown nor heeded: whether the feature is there may be up to another crate of the same build.
    #[cfg(feature = "otlp")]
    #[must_use]
    pub fn traces(mut self) -> Self {
        self.sends_traces = true;
        self
    }

    /// Answers the API server's webhooks, on every replica; see [`konverge_admission`](crate::admission). Takes
    /// [`Webhooks`](crate::admission::Webhooks), or a [`WebhookSetup`](crate::WebhookSetup) if they read caches or need other limits.
    #[cfg(feature = "admission")]
    #[must_use]
    pub fn webhooks(self, webhooks: impl Into<crate::WebhookSetup>) -> Self {
        self.part(crate::webhooks::Admission { setup: webhooks.into() })
    }

    /// Releases all objects of its kinds from its finalizers, before an uninstall. Systems outside stay as they are, and so do the records on the
    /// objects: a later installation goes on where this one ended. The program has to be stopped before. Of the options, the namespaces and the dry
    /// run count; with namespaces, kinds without one are left out.
    ///
    /// # Errors
    ///
    /// Returns an error that names what is not released. All else is released then, and the drain can be repeated.
    pub async fn drain(&self, client: &Client, options: &Options) -> Result<(), DrainError> {
        let applier = Applier::new(client.clone(), self.program).with_dry_run(options.dry_run);
        let mut drain = Drain::new(client, options.namespaces.iter().map(String::as_str));
        for Held { kind, is_optional, finalizers } in self.parts.iter().filter_map(|part| part.held()) {
            drain.finalizers(&applier, &kind, is_optional, &finalizers).await;
        }
        drain.end()
    }

    /// Returns the permissions of the program when it runs in `namespace`: those that its parts declare, its events, its lease.
    pub fn grant<'a>(&'a self, namespace: &'a str) -> Grant<'a> {
        let (mut everywhere, mut at_home) = (Access::default(), Access::default());
        for part in &self.parts {
            part.access(&self.home(namespace), &mut everywhere, &mut at_home);
        }
        if self.may_install_crds {
            crds::declare(&self.crds(namespace), &mut everywhere);
        }
        if self.may_authenticate {
            everywhere.to_resource("authentication.k8s.io", "tokenreviews", &["create"]);
            everywhere.to_resource("authorization.k8s.io", "subjectaccessreviews", &["create"]);
        }
        everywhere.to_resource("events.k8s.io", "events", &["create", "patch"]);
        at_home.to_resource("coordination.k8s.io", "leases", &["create", "get", "patch"]);
        Grant { program: self.program, namespace, everywhere: everywhere.rules(), at_home: at_home.rules() }
    }

    /// The custom resource definitions of its parts.
    pub fn crds(&self, namespace: &str) -> Vec<CustomResourceDefinition> {
        self.crds_at(&self.home(namespace))
    }

    fn crds_at(&self, home: &Home<'_>) -> Vec<CustomResourceDefinition> {
        let mut definitions: Vec<CustomResourceDefinition> = Vec::new();
        for definition in self.parts.iter().flat_map(|part| part.crds()) {
            if definitions.iter().all(|known| known.metadata.name != definition.metadata.name) {
                definitions.push(definition);
            }
        }
        for definition in &mut definitions {
            self.parts.iter().for_each(|part| part.amend(home, definition));
            konverge_gen::remove_unknown_formats(definition);
        }
        definitions
    }

    fn home<'a>(&self, namespace: &'a str) -> Home<'a> {
        Home {
            program: self.program,
            namespace,
            #[cfg(feature = "admission")]
            webhook_url: None,
        }
    }
}
