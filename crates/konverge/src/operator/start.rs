//! From a declaration to a running program.

use std::time::Duration;

use konverge_apply::{Applier, events::EventSink};
use konverge_runtime::{
    Manager, Metrics, Queue,
    cache::{Caches, Selection},
    client::{self, ClientError},
    lease::{Elector, Leadership, TimingsError},
    manager::RunError,
    object::ObjectKey,
    telemetry::TelemetryError,
};
use kube::Client;

use super::{
    Home, Operator,
    server::{self, Queues},
    telemetry::Telemetry,
};
use crate::{
    crds, flags::Flags, metrics::ObjectMetrics, options::Options, owner_keys::OwnerKeys, schedule::ScheduleError,
};

/// A program that is about to run, for the parts that put themselves into it.
pub struct Setup {
    /// Tasks, checks, controllers.
    pub manager: Manager,
    /// The caches that all controllers share.
    pub caches: Caches,
    /// The client that all share. Every call has a deadline and is counted. With leader election, writes are sent only while the program
    /// leads; see [`client_of_each_replica`](Self::client_of_each_replica).
    pub client: Client,
    /// Writes as the program.
    pub applier: Applier,
    /// Tells events as the program.
    pub events: EventSink,
    /// The series of the program.
    pub metrics: Metrics,
    /// The name of the program.
    pub program: &'static str,
    pub(crate) object_metrics: ObjectMetrics,
    #[cfg(feature = "external")]
    pub(crate) outside: Option<konverge_external::Metrics>,
    /// The series of items on servers, once one needs them.
    #[cfg(feature = "remote")]
    pub(crate) remote: Option<crate::remote_objects::RemoteMetrics>,
    election: Election,
    options: Options,
    pub(crate) flags: Flags,
    queues: Queues,
    pub(crate) owner_keys: OwnerKeys,
}

/// The clients and settings of elections.
pub(crate) struct Election {
    /// A client without the gate of a lease.
    ungated: Client,
    /// A client whose calls are short, if there are elections.
    lease_client: Option<Client>,
    /// Whether the program leads, if there are elections.
    leadership: Option<Leadership>,
}

/// A program could not start, or ended with an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Logging could not be set up.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// Spans cannot be sent, whatever the collector does.
    #[cfg(feature = "otlp")]
    #[error(transparent)]
    Traces(#[from] konverge_otlp::OtlpError),
    /// The address for health and metrics is not available.
    #[cfg(feature = "serve")]
    #[error(transparent)]
    Bind(#[from] konverge_runtime::http_server::BindError),
    /// There is no usable configuration of the API server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The lease's times contradict each other.
    #[error(transparent)]
    Lease(#[from] TimingsError),
    /// Children in other namespaces outlive their owner without a finalizer.
    #[error(
        "controller {controller} has children in any namespace and needs a finalizer to delete them; add .finalizer(\"…\")"
    )]
    NeedsFinalizer {
        /// Which one.
        controller: String,
    },
    /// A controller has a schedule that is not in cron syntax.
    #[error("controller {controller} cannot be scheduled")]
    Schedule {
        /// The name of the controller.
        controller: String,
        /// The reason why it is not usable.
        #[source]
        source: ScheduleError,
    },
    /// A part of the author's own could not be put in.
    #[error("cannot set up {part}")]
    Part {
        /// Which one.
        part: String,
        /// The underlying error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Flags of the author's own lack a value where no command line is read.
    #[cfg(feature = "cli")]
    #[error("the program's own flags have no values; give them with flag_values")]
    Flags(#[source] clap::Error),
    /// There is no runtime for it.
    #[error("cannot start threads")]
    Threads(#[source] std::io::Error),
    /// It ran and failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Setup {
    pub(crate) fn new(
        program: &'static str,
        manager: Manager,
        client: Client,
        events: EventSink,
        options: Options,
        flags: Flags,
    ) -> Self {
        let metrics = manager.metrics().clone();
        metrics.register(|registry| events.register(registry));
        let object_metrics = metrics.register(ObjectMetrics::register);
        let client_of_each_replica = client.clone();
        Self {
            caches: Caches::new(client.clone(), program, metrics.caches()),
            applier: Applier::new(client.clone(), program).with_dry_run(options.dry_run),
            manager,
            client,
            events,
            metrics,
            program,
            object_metrics,
            #[cfg(feature = "external")]
            outside: None,
            #[cfg(feature = "remote")]
            remote: None,
            election: Election { ungated: client_of_each_replica, lease_client: None, leadership: None },
            options,
            flags,
            queues: Queues::default(),
            owner_keys: OwnerKeys::default(),
        }
    }

    /// Narrows a selection to the namespaces and labels of the command line; for the objects that the program works on.
    pub fn narrowed(&self, selection: Selection) -> Selection {
        let label_selector = both(selection.label_selector.as_deref(), self.options.selector.as_deref());
        self.within(selection).with(|selection| selection.label_selector = label_selector)
    }

    /// Narrows a selection to the namespaces of the command line; for other objects that the program reads. A selection
    /// that names namespaces itself keeps them.
    pub fn within(&self, selection: Selection) -> Selection {
        if selection.namespaces.is_empty() {
            selection.with(|selection| selection.namespaces.clone_from(&self.options.namespaces))
        } else {
            selection
        }
    }

    /// The settings in force.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The values of flags that the program [declares](crate::Operator::flags).
    pub fn flags<F: Send + Sync + 'static>(&self) -> Option<&F> {
        self.flags.get()
    }

    /// The namespace that the program runs in: that of its lease if one was named, else the client's own.
    pub fn namespace(&self) -> &str {
        self.options.lease_namespace.as_deref().unwrap_or_else(|| self.client.default_namespace())
    }

    pub(crate) fn home(&self) -> Home<'_> {
        Home {
            program: self.program,
            namespace: self.namespace(),
            #[cfg(feature = "admission")]
            webhook_url: self.options.webhook.url.as_deref(),
        }
    }

    /// The client without the lease's gate, for what each replica writes whether it leads or not, such as a certificate of its own.
    pub fn client_of_each_replica(&self) -> &Client {
        &self.election.ungated
    }

    /// An elector for one controller; `None` where there are no elections.
    pub(crate) fn elector_of(&self, controller: &str) -> Result<Option<Elector>, StartError> {
        let Some(client) = &self.election.lease_client else { return Ok(None) };
        let mut lease = self.options.lease(self.program, client.default_namespace())?;
        lease.name = format!("{}-{controller}", lease.name);
        Ok(Some(Elector::new(client.clone(), lease)))
    }

    /// Whether the program leads; `None` where there are no elections.
    pub(crate) fn leadership(&self) -> Option<&Leadership> {
        self.election.leadership.as_ref()
    }

    /// As in a program that has lost its lease.
    #[cfg(feature = "testing")]
    pub(crate) fn set_leadership(&mut self, leadership: Leadership) {
        self.election.leadership = Some(leadership);
    }

    /// The owner keys of one controller, which writes with this client. One with a lease of its own may write while the program does not lead.
    pub(crate) fn owner_keys_with(&self, client: &Client, has_own_lease: bool) -> OwnerKeys {
        if has_own_lease {
            OwnerKeys::stored(client.clone(), self.namespace(), self.program, self.options.dry_run)
        } else {
            self.owner_keys.clone()
        }
    }

    pub(crate) fn show_queue(&mut self, queue: &Queue<ObjectKey>) {
        self.queues.add(queue);
    }
}

impl Operator {
    /// Runs the program with threads and logs of its own, until a signal or a failure: what [`main`](Self::main) does once it has read the command line.
    ///
    /// It waits for the end, so it must not be called from asynchronous code; see [`assemble`](Self::assemble) for that.
    pub fn run(self, options: Options) -> Result<(), StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(StartError::Threads)?;
        runtime.block_on(async {
            let telemetry = Telemetry::start(&options, &self)?;
            tracing::info!(program = self.program, version = self.version, %options, "starting");
            let filter = telemetry.filter.clone();
            let run = async {
                let mut manager = self.assemble(options).await?;
                server::show_filter(&mut manager, filter);
                Ok(manager.run().await?)
            };
            let ended = run.await;
            #[cfg(feature = "otlp")]
            telemetry.finish().await;
            ended
        })
    }

    /// The program, ready to run. Nothing is sent before it runs. Logging is left to the caller.
    pub async fn assemble(self, options: Options) -> Result<Manager, StartError> {
        let metrics = Metrics::new(self.program, self.version);
        let manager = server::manager(&options, metrics.clone()).await?;
        let client = client::build(&options.client(), metrics.client()).await?;
        let lease_client = if elects(&options) {
            Some(client::build(&options.client().impatient(), metrics.client()).await?)
        } else {
            None
        };
        self.assemble_on(manager, client, lease_client, options).await
    }

    /// [`assemble`](Self::assemble) with a client of the caller's, such as one of a model of an API server or one that is shared with
    /// the rest of a program. The settings about how to reach the API server have no effect, and requests are not counted in metrics.
    pub async fn assemble_with(self, client: Client, options: Options) -> Result<Manager, StartError> {
        let metrics = Metrics::new(self.program, self.version);
        let manager = server::manager(&options, metrics).await?;
        let lease_client = elects(&options).then(|| client.clone());
        self.assemble_on(manager, client, lease_client, options).await
    }

    async fn assemble_on(
        self,
        manager: Manager,
        client: Client,
        lease_client: Option<Client>,
        options: Options,
    ) -> Result<Manager, StartError> {
        #[cfg_attr(not(feature = "cli"), expect(unused_mut, reason = "only flags are filled in"))]
        let mut flags = self.flags.clone();
        #[cfg(feature = "cli")]
        flags.fill().map_err(StartError::Flags)?;
        let program = self.program;
        let mut manager = manager.grace(Duration::from_secs(options.grace_period));
        server::serve_metrics(&options, &mut manager, &client).await?;
        let ungated = client;
        let mut client = ungated.clone();
        let mut leadership = None;
        if let Some(lease_client) = &lease_client {
            let lease = options.lease(program, lease_client.default_namespace())?;
            let elector = Elector::new(lease_client.clone(), lease);
            client = elector.leadership().gate(client);
            leadership = Some(elector.leadership());
            manager = manager.leader_election(elector);
        }
        let stop = manager.stop_tasks().cancelled_owned();
        let events = if options.dry_run {
            let (events, log) = EventSink::dry_run(stop);
            manager.stopping_task("events", kept(events.clone(), log));
            events
        } else {
            let (events, publish) = EventSink::new(ungated.clone(), program, stop);
            manager.stopping_task("events", kept(events.clone(), publish));
            events
        };
        let mut setup = Setup::new(program, manager, client, events, options, flags);
        setup.election = Election { ungated, lease_client, leadership };
        setup.owner_keys = OwnerKeys::stored(setup.client.clone(), setup.namespace(), program, setup.options.dry_run);
        if setup.options.install_crds {
            let definitions = self.crds_at(&setup.home());
            let may_stand_by = elects(&setup.options);
            crds::install(definitions, self.version, may_stand_by, &setup.applier, &mut setup.manager);
        }
        for part in self.parts {
            part.install(&mut setup).await?;
        }
        let Setup { mut manager, caches, queues, options, .. } = setup;
        if options.cache_sync_timeout > 0 {
            caches.require_within(&mut manager, Duration::from_secs(options.cache_sync_timeout));
        }
        caches.install(&mut manager);
        queues.serve(&options, &mut manager);
        Ok(manager)
    }
}

/// Runs the task of events with a handle to them: without one, it ends, and a program without a controller has none.
async fn kept(events: EventSink, task: impl Future<Output = ()>) {
    task.await;
    drop(events);
}

/// Whether replicas elect a leader. A dry run writes nothing, not even a lease, and so takes the work away from nobody.
pub(crate) fn elects(options: &Options) -> bool {
    options.leader_election && !options.dry_run
}

/// Returns the selector for objects that fit both selectors. An empty one, such as that of an empty variable, fits everything.
pub(crate) fn both(of_the_author: Option<&str>, of_the_operator: Option<&str>) -> Option<String> {
    let labels: Vec<_> =
        [of_the_author, of_the_operator].into_iter().flatten().filter(|labels| !labels.is_empty()).collect();
    (!labels.is_empty()).then(|| labels.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_narrow_each_other_and_an_empty_one_nothing() {
        for (of_the_author, of_the_operator, expected) in [
            (None, None, None),
            (Some("a"), None, Some("a")),
            (None, Some("b"), Some("b")),
            (Some("a"), Some("b=c"), Some("a,b=c")),
            (Some("a"), Some(""), Some("a")),
            (None, Some(""), None),
        ] {
            assert_eq!(both(of_the_author, of_the_operator).as_deref(), expected);
        }
    }
}
