//! From a declaration to a running program.

use std::time::Duration;

use konverge_apply::events::EventSink;
use konverge_runtime::{Manager, Metrics, client, lease::Elector, manager::Signals};
use kube::Client;

use super::{Operator, server, telemetry::Telemetry};
use crate::{
    crds,
    options::Options,
    owner_keys::OwnerKeys,
    setup::{Election, Settings, Setup, elects},
    start_error::StartError,
};

impl Operator {
    /// Runs the program with threads and logs of its own, until a signal or a failure: what [`main`](Self::main) does once it has read the command line.
    ///
    /// It waits for the end, so it must not be called from asynchronous code; see [`assemble`](Self::assemble) for that.
    pub fn run(self, options: Options) -> Result<(), StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(StartError::Threads)?;
        runtime.block_on(async {
            let mut signals = Signals::catch()?;
            let telemetry = Telemetry::start(&options, &self)?;
            tracing::info!(program = self.program, version = self.version, %options, "starting");
            let filter = telemetry.filter.clone();
            let run = async {
                // No task runs yet that would have to be ended.
                let Some(manager) = signals.until(Box::pin(self.assemble(options))).await else { return Ok(()) };
                let mut manager = manager?;
                server::show_filter(&mut manager, filter);
                Ok(manager.run_with(signals).await?)
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
            Some(client::build(&options.client().fail_fast(), metrics.client()).await?)
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
        let mut setup = Setup::new(program, manager, client, events, Settings { options, flags });
        setup.election = Election { ungated, lease_client, leadership };
        let is_dry_run = setup.options().dry_run;
        setup.owner_keys = OwnerKeys::stored(setup.client.clone(), setup.namespace(), program, is_dry_run);
        if setup.options().install_crds {
            let definitions = self.crds_at(&setup.home());
            let may_stand_by = elects(setup.options());
            crds::install(definitions, self.version, may_stand_by, &setup.applier, &mut setup.manager);
        }
        for part in self.parts {
            part.install(&mut setup).await?;
        }
        let Setup { mut manager, caches, queues, settings: Settings { options, .. }, .. } = setup;
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
