//! The running server: listeners, TLS, health, shutdown.
//!
//! Start order, so that the cheap and wrong is found first: TLS files, ports, database. Stop order: readiness off and streams
//! ended, the gRPC health of the server and of its services changed, no new connections, calls under way finished (within nine seconds), audit rows written, database closed.

mod connections;
mod error;
mod health;
mod intake;
mod probe_connections;
mod tls;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use konverge_zopp_proto::{
    identity::identity_server::IdentityServer, secrets::secrets_server::SecretsServer,
    zopp_service_server::ZoppServiceServer,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::{service::interceptor::InterceptedService, transport::server::TcpIncoming};
use tonic_health::{ServingStatus, server::HealthReporter};

pub use error::{RunError, StartError};
pub(crate) use tls::Tls;
pub use tls::{TlsError, TlsFiles};

use self::{health::Probes, intake::Intake};
use crate::{
    address::{Addresses, TrustedProxy},
    audit::{AuditOptions, AuditQueue},
    auth::{
        known::KnownCallers,
        replay::{LIFETIME_SECONDS, ReplayCache},
    },
    events::{EventBus, Listener},
    identity_service::IdentityService,
    limits::Limits,
    memory::Memory,
    metrics::Metrics,
    policy::{FirstGeneration, Policy},
    rechecks::Rechecks,
    revocations::Revocations,
    secrets_service::SecretsService,
    service::Service,
    state::{State, Usage},
    store::{Location, PostgresAddress, Store},
    upkeep,
};

/// How long calls under way may take to finish once the server is to stop. A second before the ten after which container
/// runtimes kill by default.
const GRACE: Duration = Duration::from_secs(9);
/// A peer that does not answer a ping within the second of these is gone; its streams are freed.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that a peer sends before somebody reads them, on each connection: enough for 1.3 MB a second over 50 ms. It is HTTP/2's own default; the
/// library's is sixteen times as much.
const WINDOW: u32 = 64 * 1024;
/// Larger requests are refused. Values are small; what stock clients can send is bounded by the same.
const MAXIMUM_REQUEST: usize = 4 * 1024 * 1024;
/// The most that is read of a change of many keys, which also brings a manifest.
const MAXIMUM_CHANGE: usize = 2 * MAXIMUM_REQUEST;

/// How to serve.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the data is.
    pub database: Location,
    /// `host:port` for gRPC; port 0 takes a free one.
    pub address: String,
    /// `host:port` for `/healthz` and `/readyz`; port 0 takes a free one.
    pub health_address: String,
    /// With what to speak TLS.
    pub tls: TlsFiles,
    /// How often an idle watch stream asks whether its caller may still read.
    pub recheck: Duration,
    /// The policy for new identities.
    pub policy: Policy,
    /// How much one caller, and one environment, may use.
    pub limits: Limits,
    /// Proxies whose word about the address of a client is taken.
    pub trusted_proxies: Vec<TrustedProxy>,
    /// Which rows about reads and refusals are kept, and for how long.
    pub audit: AuditOptions,
    /// The PostgreSQL by which replicas tell each other of changes. Without one, changes are told within this process.
    pub events: Option<PostgresAddress>,
}

impl Options {
    /// Any free ports of the loopback address, without TLS.
    pub fn local(database: Location) -> Self {
        Self {
            database,
            address: "127.0.0.1:0".into(),
            health_address: "127.0.0.1:0".into(),
            tls: TlsFiles::default(),
            recheck: Self::RECHECK,
            policy: Policy::default(),
            limits: Limits::default(),
            trusted_proxies: Vec::new(),
            audit: AuditOptions::default(),
            events: None,
        }
    }

    /// The usual period for [`Options::recheck`].
    pub const RECHECK: Duration = Duration::from_secs(30);
}

/// A server that has its ports and its database and is ready to run.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use konverge_zopp_server::{serve::{Options, Server}, store::Location};
/// use tokio_util::sync::CancellationToken;
///
/// let server = Server::bind(Options::local(Location::file("zopp.db"))).await?;
/// println!("http://{}", server.address());
/// let stop = CancellationToken::new();
/// server.run(stop).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    health_listener: TcpListener,
    health_address: SocketAddr,
    tls: Option<Arc<Tls>>,
    store: Store,
    replays: ReplayCache,
    recheck: Duration,
    policy: Policy,
    trusted_proxies: Arc<[TrustedProxy]>,
    audit: AuditOptions,
    events: Option<Listener>,
}

impl Server {
    /// Takes ports and opens the database.
    pub async fn bind(options: Options) -> Result<Self, StartError> {
        let tls = options.tls.read()?.map(Arc::new);
        let (listener, address) = bind(&options.address, "--addr").await?;
        let (health_listener, health_address) = bind(&options.health_address, "--health-addr").await?;
        let store = Store::open(&options.database).await?.with_limits(options.limits);
        store.refuse_read_only(&options.database).await?;
        // Logged, so that a missing or wrong database setting shows here and not as an empty list.
        tracing::info!(database = %options.database, "database opened");
        let events = match &options.events {
            None => None,
            Some(address) => Some(
                Listener::connect(address)
                    .await
                    .map_err(|source| StartError::Events { address: address.to_string(), source })?,
            ),
        };
        // The change and its notice are one, where one database has both.
        let store = match (&options.events, &options.database) {
            (Some(events), Location::Postgres(database)) if events == database => store.announcing(),
            _ => store,
        };
        let member_role = match options.policy.first_generation {
            Some(FirstGeneration { member_role }) => store.choose_member_role(member_role).await.map(Some),
            None => store.remove_member_role().await.map(|()| None),
        };
        options.policy.warn(member_role.map_err(StartError::Read)?);
        if tls.is_none() && !address.ip().is_loopback() {
            tracing::warn!(
                %address,
                "other machines reach this server without TLS: everybody on the way can read requests, and can answer in its place; use \
                 --tls-cert and --tls-key, or listen on 127.0.0.1 behind a proxy with TLS"
            );
        }
        let used = store.used_signatures(LIFETIME_SECONDS).await.map_err(StartError::Read)?;
        let replays = ReplayCache::remembering(used);
        Ok(Self {
            listener,
            address,
            health_listener,
            health_address,
            tls,
            store,
            replays,
            recheck: options.recheck,
            policy: options.policy,
            trusted_proxies: options.trusted_proxies.into(),
            audit: options.audit,
            events,
        })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where `/healthz` and `/readyz` are.
    pub fn health_address(&self) -> SocketAddr {
        self.health_address
    }

    /// The server's database.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Serves until `stop`, then ends in order.
    pub async fn run(self, stop: CancellationToken) -> Result<(), RunError> {
        let limits = *self.store.limits();
        let finished = CancellationToken::new();
        let revocations = Revocations::default();
        tokio::spawn(upkeep::run(self.store.clone(), finished.clone()));
        let metrics = Metrics::new();
        let (audit, audit_writer) =
            AuditQueue::start(self.store.clone(), self.audit, metrics.clone(), finished.clone());
        let events = match self.events {
            Some(listener) => EventBus::shared(listener, self.store.announces(), &revocations, finished.clone()),
            None => EventBus::default(),
        };
        let told = (events, revocations);
        let rechecks = Rechecks::new(self.store.clone(), metrics.clone(), self.recheck);
        let state = state(&self.store, audit, told, self.replays, (self.policy, rechecks), &stop);
        let (reporter, grpc_health) = tonic_health::server::health_reporter();
        reporter.set_serving::<ZoppServiceServer<Service>>().await;
        reporter.set_serving::<IdentityServer<IdentityService>>().await;
        reporter.set_serving::<SecretsServer<SecretsService>>().await;

        let addresses = Addresses::new(&self.trusted_proxies);
        let memory = Memory::new(&limits);
        let intake = Intake::new(addresses.clone(), memory.clone());
        tokio::spawn(memory.end_late_connections(metrics.clone(), finished.clone()));
        let mut transport = transport(&limits).layer(metrics.clone()).layer(intake);
        let (service, identity, secrets) = services(state, &addresses);
        let router = transport.add_service(grpc_health).add_service(service).add_service(identity).add_service(secrets);
        let incoming = TcpIncoming::from(self.listener).with_nodelay(Some(true));
        let (tls, counts) = (self.tls.clone(), metrics.clone());
        let incoming = connections::bounded(incoming, limits, self.trusted_proxies, tls, counts);

        tracing::info!(address = %self.address, health_address = %self.health_address, "serving");
        let probes = Probes::new(self.store.clone(), stop.clone(), metrics.clone());
        let health = health::serve(self.health_listener, probes, finished.clone());
        let grpc = async {
            let served = serve_until(router.serve_with_incoming_shutdown(incoming, stop.cancelled()), &stop).await;
            finished.cancel();
            served
        };
        let others = async {
            tokio::join!(follow(self.tls.as_deref(), &metrics, &stop), stop_serving(&reporter, &stop));
            Ok(())
        };
        // On the heap: all that is served makes it large.
        let result = Box::pin(async { tokio::try_join!(grpc, health, others) }).await;
        // If one of them failed, streams that are still open end as well, and nothing new is recorded.
        stop.cancel();
        finished.cancel();
        if tokio::time::timeout(GRACE, audit_writer).await.is_err() {
            tracing::error!("audit rows of the last calls could not all be written in time");
        }
        self.store.close().await;
        tracing::info!("stopped");
        result.map(|_| ())
    }
}

/// How all services are transported.
fn transport(limits: &Limits) -> tonic::transport::Server {
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(PING_EVERY))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
        // A client has one connection for all that its principal may have open. Without a word, it would be 200 of them.
        .max_concurrent_streams(Some(limits.watches.saturating_add(limits.requests)))
        .initial_connection_window_size(Some(WINDOW))
        .initial_stream_window_size(Some(WINDOW))
}

/// A service whose requests know from where they came.
type Served<S> = InterceptedService<S, Addresses>;

/// The service of the original, and our own.
type Services = (
    Served<ZoppServiceServer<Service>>,
    Served<IdentityServer<IdentityService>>,
    Served<SecretsServer<SecretsService>>,
);

fn services(state: Arc<State>, addresses: &Addresses) -> Services {
    let identity = IdentityServer::new(IdentityService::new(Arc::clone(&state)));
    let secrets = SecretsServer::new(SecretsService::new(Arc::clone(&state)));
    let service = ZoppServiceServer::new(Service::new(state));
    (
        InterceptedService::new(service.max_decoding_message_size(MAXIMUM_REQUEST), addresses.clone()),
        InterceptedService::new(identity.max_decoding_message_size(MAXIMUM_REQUEST), addresses.clone()),
        InterceptedService::new(secrets.max_decoding_message_size(MAXIMUM_CHANGE), addresses.clone()),
    )
}

/// The state of a server that was just started.
fn state(
    store: &Store,
    audit: AuditQueue,
    (events, revocations): (EventBus, Revocations),
    replays: ReplayCache,
    (policy, rechecks): (Policy, Rechecks),
    stop: &CancellationToken,
) -> Arc<State> {
    Arc::new(State {
        usage: Usage::within(store.limits()),
        store: store.clone(),
        events,
        replays,
        known: KnownCallers::default(),
        audit,
        policy,
        revocations,
        rechecks,
        stopping: stop.clone(),
    })
}

/// Follows the certificate files, if there are any, until `stop`.
async fn follow(tls: Option<&Tls>, metrics: &Metrics, stop: &CancellationToken) {
    if let Some(tls) = tls {
        stop.run_until_cancelled(tls.follow(metrics)).await;
    }
}

/// At `stop`, changes the health of the server as a whole, which has the empty name, and of each service.
async fn stop_serving(reporter: &HealthReporter, stop: &CancellationToken) {
    stop.cancelled().await;
    reporter.set_service_status("", ServingStatus::NotServing).await;
    reporter.set_not_serving::<ZoppServiceServer<Service>>().await;
    reporter.set_not_serving::<IdentityServer<IdentityService>>().await;
    reporter.set_not_serving::<SecretsServer<SecretsService>>().await;
}

/// Serves until `stop`, then lets calls under way finish, but not for ever.
async fn serve_until(
    serving: impl Future<Output = Result<(), tonic::transport::Error>>,
    stop: &CancellationToken,
) -> Result<(), RunError> {
    let overdue = async {
        stop.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        result = serving => result.map_err(RunError::Serve),
        () = overdue => {
            tracing::warn!("calls still under way were cut off");
            Ok(())
        }
    }
}

async fn bind(address: &str, flag: &'static str) -> Result<(TcpListener, SocketAddr), StartError> {
    let error = |source| StartError::Bind { address: address.to_owned(), flag, source };
    // Host names are looked up.
    let listener = TcpListener::bind(address).await.map_err(error)?;
    let bound = listener.local_addr().map_err(error)?;
    Ok((listener, bound))
}
