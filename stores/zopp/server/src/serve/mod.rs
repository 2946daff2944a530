//! The running server: listeners, TLS, health, shutdown.
//!
//! Start order, so that the cheap and wrong is found first: TLS files, ports, database. Stop order: readiness off and streams
//! ended, no new connections, calls under way finished (within nine seconds), audit rows written, database closed.

mod error;
mod health;
mod tls;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use konverge_zopp_proto::zopp_service_server::ZoppServiceServer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::{Router, TcpIncoming};

pub use error::{RunError, StartError};
pub use tls::{TlsError, TlsFiles};

use crate::{
    audit::AuditQueue,
    auth::{LIFETIME_SECONDS, ReplayCache},
    events::EventBus,
    service::Service,
    state::State,
    store::{Location, Store},
};

/// How long calls under way may take to finish once the server is to stop. A second before the ten after which container
/// runtimes kill by default.
const GRACE: Duration = Duration::from_secs(9);
/// A peer that does not answer a ping within the second of these is gone; its streams are freed.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Larger requests are refused. Values are small; what stock clients can send is bounded by the same.
const MAXIMUM_REQUEST: usize = 4 * 1024 * 1024;

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
/// let server = Server::bind(Options::local(Location { path: "zopp.db".into(), create: true })).await?;
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
    transport: tonic::transport::Server,
    store: Store,
    replays: ReplayCache,
    recheck: Duration,
}

impl Server {
    /// Takes ports and opens the database.
    pub async fn bind(options: Options) -> Result<Self, StartError> {
        let transport = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(PING_EVERY))
            .http2_keepalive_timeout(Some(PING_TIMEOUT));
        let transport = options.tls.apply(transport)?;
        let (listener, address) = bind(&options.address, "--addr").await?;
        let (health_listener, health_address) = bind(&options.health_address, "--health-addr").await?;
        let store = Store::open(&options.database).await?;
        // Whoever named none, or another than meant, learns it here and not from an empty list.
        let path = std::path::absolute(&options.database.path).unwrap_or(options.database.path);
        tracing::info!(path = %path.display(), "database opened");
        let used = store.used_signatures(LIFETIME_SECONDS).await.map_err(StartError::Read)?;
        let replays = ReplayCache::remembering(used);
        Ok(Self {
            listener,
            address,
            health_listener,
            health_address,
            transport,
            store,
            replays,
            recheck: options.recheck,
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

    /// What the server keeps its data in.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Serves until `stop`, then ends in order.
    pub async fn run(self, stop: CancellationToken) -> Result<(), RunError> {
        let finished = CancellationToken::new();
        let (audit, audit_writer) = AuditQueue::start(self.store.clone(), finished.clone());
        let state = Arc::new(State {
            store: self.store.clone(),
            events: EventBus::default(),
            publishing: tokio::sync::Mutex::default(),
            replays: self.replays,
            audit,
            recheck: self.recheck,
            stopping: stop.clone(),
        });
        let (reporter, grpc_health) = tonic_health::server::health_reporter();
        reporter.set_serving::<ZoppServiceServer<Service>>().await;

        let service = ZoppServiceServer::new(Service::new(state)).max_decoding_message_size(MAXIMUM_REQUEST);
        let mut transport = self.transport;
        let router = transport.add_service(grpc_health).add_service(service);

        tracing::info!(address = %self.address, health_address = %self.health_address, "serving");
        let health = health::serve(self.health_listener, self.store.clone(), stop.clone(), finished.clone());
        let grpc = async {
            let served = serve_until(router, self.listener, stop.clone()).await;
            finished.cancel();
            served
        };
        let flip = async {
            stop.cancelled().await;
            reporter.set_not_serving::<ZoppServiceServer<Service>>().await;
        };
        let result = async {
            tokio::try_join!(grpc, health, async {
                flip.await;
                Ok(())
            })
        }
        .await;
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

/// Serves until `stop`, then lets calls under way finish, but not for ever.
async fn serve_until(router: Router, listener: TcpListener, stop: CancellationToken) -> Result<(), RunError> {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let serving = router.serve_with_incoming_shutdown(incoming, stop.cancelled());
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
