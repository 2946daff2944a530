//! A program: its controllers, its flags, and what it generates.

#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "generate")]
mod generate;
#[cfg_attr(not(feature = "serve"), path = "operator/no_server.rs")]
pub(crate) mod server;
mod start;
mod telemetry;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_apply::{
    Applier,
    ledger::{Drain, DrainError},
};
use konverge_gen::{Access, role::Grant};
use konverge_runtime::lease::{self, PATIENCE};
use kube::Client;

use crate::{
    crds,
    flags::Flags,
    home::Home,
    options::Options,
    part::{Held, Part},
};

#[cfg(all(test, feature = "cli"))]
pub(crate) use cli::command;
#[cfg(feature = "generate")]
pub use generate::GenerateError;

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

    /// Adds flags to the command line: an `Args` of clap's, each flag with a variable of its own if it says so. Reconcilers read the values with
    /// [`Context::flags`](crate::Context::flags), parts with [`Setup::flags`](crate::Setup::flags).
    #[cfg(feature = "cli")]
    #[must_use]
    pub fn flags<F: clap::Args + Send + Sync + 'static>(mut self) -> Self {
        self.flags.declare::<F>();
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

    /// Gives items on a server their client and settings, which `begin` makes when the flags are known; see
    /// [`Setup::flags`](crate::Setup::flags). The list is read on the leader only.
    ///
    /// Unless the settings name the cluster, the role allows to get the namespace `kube-system`, whose uid is the name.
    #[cfg(feature = "remote")]
    #[must_use]
    pub fn remote<R: konverge_remote::Remote>(
        self,
        remotes: &konverge_remote::Remotes<R>,
        begin: impl FnOnce(&crate::Setup) -> Result<(R, konverge_remote::Settings), crate::Error> + Send + 'static,
    ) -> Self {
        self.part(crate::remote_objects::RemotePart { remotes: remotes.clone(), begin: Box::new(begin) })
    }

    /// Parses the command line and obeys it: runs until a signal, or generates. Prints an error to standard error and returns its kind as
    /// the exit code: see [`StartError::exit_code`](crate::StartError::exit_code).
    #[cfg(feature = "cli")]
    pub fn main(self) -> std::process::ExitCode {
        self.main_with(std::env::args_os())
    }

    /// [`main`](Self::main) with other arguments than those of the process. The first is the name of the program.
    #[cfg(feature = "cli")]
    pub fn main_with(
        self,
        arguments: impl IntoIterator<Item = impl Into<std::ffi::OsString> + Clone>,
    ) -> std::process::ExitCode {
        cli::execute(self, arguments)
    }

    /// Returns all generated files: `crds.yaml`, `role.yaml` for a service account in `namespace`, `others.yaml` with further objects of
    /// its parts, and `reference.md`. For monitoring, there are `dashboard.json` for Grafana and `alerts.yaml` for the Prometheus
    /// operator.
    #[cfg(feature = "generate")]
    pub fn generate(&self, namespace: &str) -> Result<konverge_gen::Files, GenerateError> {
        generate::files(self, namespace)
    }

    /// The files of a Helm chart: a deployment of the program, and what [`generate`](Self::generate) makes for the cluster.
    #[cfg(feature = "generate")]
    pub fn helm_chart(&self) -> Result<konverge_gen::Files, GenerateError> {
        generate::helm_chart(self)
    }

    /// Releases all objects of its kinds from its finalizers, before an uninstall. Systems outside stay as they are, and so do the records on the
    /// objects: a later installation goes on where this one ended. The program has to be stopped before: the drain waits up to [`PATIENCE`] for its lease,
    /// and holds it meanwhile. It does not wait for the leases of [single controllers](crate::Controller::own_lease). At the end, it names the objects that a
    /// program without that lease has taken up again. Of the options, the namespaces, the lease and the dry run count; with namespaces, kinds without one
    /// are left out.
    ///
    /// # Errors
    ///
    /// Returns an error that names what is not released, or who still runs. Nothing is released if the lease cannot be had; else all but what is named. The
    /// drain can be repeated.
    pub async fn drain(&self, client: &Client, options: &Options) -> Result<(), DrainError> {
        let mut drain = Drain::new(client, options.namespaces.iter().map(String::as_str));
        let mut release = async |client: Client| {
            let applier = Applier::new(client, self.program).with_dry_run(options.dry_run);
            for Held { kind, is_optional, finalizers } in self.parts.iter().filter_map(|part| part.held()) {
                drain.finalizers(&applier, &kind, is_optional, &finalizers).await;
            }
        };
        match options.lease(self.program, client.default_namespace()) {
            // Nothing is written, not even the lease.
            _ if options.dry_run => release(client.clone()).await,
            Ok(lease) => {
                let released = lease::stand_in(client, lease, PATIENCE, release).await;
                drain.step(released);
            }
            Err(error) => drain.step(Err(error)),
        }
        drain.end().await
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
