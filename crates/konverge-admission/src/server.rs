//! The server: one address, all webhooks.

mod connection;
mod limits;
mod request;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use konverge_runtime::tls::Slot;
use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use limits::Limits;
use request::{Answerer, Ready};

use crate::{Certificates, RegistrationError, Webhooks, metrics::AdmissionMetrics};

/// How connections are secured.
#[derive(Debug)]
#[non_exhaustive]
pub enum Security {
    /// HTTPS, with HTTP/2 or HTTP/1.1 as the caller likes.
    Tls(Certificates),
    /// HTTPS as this configuration says. Its certificate is its owner's matter, and readiness says nothing about it. HTTP/2 is
    /// spoken if `h2` is among its ALPN protocols.
    Config(Arc<ServerConfig>),
    /// HTTP/1.1 in the clear, for a sidecar that secures it. Not for the API server, which calls HTTPS only.
    Plain,
}

impl From<Certificates> for Security {
    fn from(certificates: Certificates) -> Self {
        Self::Tls(certificates)
    }
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The webhooks cannot be served as they were registered.
    #[error("the webhooks cannot be served")]
    Registration(#[from] RegistrationError),
    /// The address is not available.
    #[error("cannot listen on {address} for webhooks; is another process using it? choose another address")]
    Address {
        /// The requested address.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The TLS library has no protocol that it can speak.
    #[error("cannot secure connections")]
    Tls(#[source] rustls::Error),
}

/// A server that has its address but does not answer yet.
///
/// It is made for callers inside a cluster: it bounds what a caller can use up, and asks who they are only with
/// [`Certificates::only_for`]. A network policy that lets nobody but the API server in is good company.
#[must_use = "a server answers only when it runs"]
pub struct WebhookServer {
    listener: TcpListener,
    address: SocketAddr,
    webhooks: Webhooks,
    tls: Option<TlsAcceptor>,
    certificates: Option<Certificates>,
    limits: Limits,
    metrics: AdmissionMetrics,
    admits: Box<Ready>,
    state: Readiness,
}

/// How far the server is, and with which certificate.
#[derive(Clone)]
struct Readiness {
    stage: Arc<AtomicU8>,
    slot: Option<Slot>,
}

const BOUND: u8 = 0;
const SERVING: u8 = 1;
const STOPPING: u8 = 2;

impl Readiness {
    fn set(&self, stage: u8) {
        self.stage.store(stage, Ordering::Release);
    }

    fn check(&self) -> Result<(), String> {
        match self.stage.load(Ordering::Acquire) {
            SERVING => self.slot.as_ref().map_or(Ok(()), |slot| slot.holds(Timestamp::now())),
            STOPPING => Err("the webhook server is stopping".to_owned()),
            _ => Err("the webhook server does not answer yet".to_owned()),
        }
    }
}

impl WebhookServer {
    /// Takes the address; port 0 takes a free one. Callers may connect from now on, and are answered when it runs.
    pub async fn bind(
        address: SocketAddr,
        webhooks: Webhooks,
        security: impl Into<Security>,
    ) -> Result<Self, BindError> {
        webhooks.check()?;
        let (tls, certificates) = match security.into() {
            Security::Plain => (None, None),
            Security::Config(config) => (Some(TlsAcceptor::from(config)), None),
            Security::Tls(certificates) => {
                let config = certificates.server_config().map_err(BindError::Tls)?;
                (Some(TlsAcceptor::from(Arc::new(config))), Some(certificates))
            }
        };
        let bind = async {
            let listener = TcpListener::bind(address).await?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = bind.await.map_err(|source| BindError::Address { address, source })?;
        let slot = certificates.as_ref().map(Certificates::slot);
        let state = Readiness { stage: Arc::new(AtomicU8::new(BOUND)), slot };
        let (limits, metrics) = (Limits::default(), AdmissionMetrics::default());
        let admits = Box::new(|| Ok(()));
        Ok(Self { listener, address, webhooks, tls, certificates, limits, metrics, admits, state })
    }

    /// Other bounds than the usual ones.
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Sets the metrics that count the calls.
    pub fn metrics(self, metrics: AdmissionMetrics) -> Self {
        Self { metrics, ..self }
    }

    /// Decides about nothing until this passes, such as until the caches are complete that its rules read: reviews are answered with
    /// 503, so that their failure policy decides. Conversions are answered all the same, since a cache may wait for one.
    pub fn admit_once(self, admits: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self { admits: Box::new(admits), ..self }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A check that passes while the server answers with a certificate that callers accept, for a minute more at least.
    pub fn readiness(&self) -> impl Fn() -> Result<(), String> + Send + Sync + 'static {
        let state = self.state.clone();
        move || state.check()
    }

    /// Answers until told to stop, then lets the calls that are under way end, within [`Limits::drain`]. Calls that are not done
    /// then are cut off.
    pub async fn run(self, stop: CancellationToken) {
        self.run_until(stop.clone(), stop).await;
    }

    /// [`run`](Self::run) of a program that still needs its webhooks while it ends. From `leave` on readiness fails, so that callers
    /// look for another replica. The port stays open until `stop` is cancelled too, and for [`Limits::linger`] after `leave` at
    /// least.
    pub async fn run_until(self, leave: CancellationToken, stop: CancellationToken) {
        let Self { listener, address, webhooks, tls, certificates, limits, metrics, admits, state } = self;
        let endpoints = webhooks.into_endpoints();
        for path in endpoints.keys() {
            metrics.path(path);
        }
        tracing::info!(%address, webhooks = ?endpoints.keys(), secure = tls.is_some(), "answering the API server's webhooks");
        let ready = state.clone();
        let answerer = Arc::new(Answerer {
            endpoints,
            limits,
            calls: Semaphore::new(limits.calls.clamp(1, Semaphore::MAX_PERMITS)),
            metrics: metrics.clone(),
            ready: Box::new(move || ready.check()),
            admits,
        });
        let keeping = async {
            if let Some(certificates) = certificates {
                certificates.keep(metrics, stop.child_token()).await;
            }
        };
        let serving = async {
            state.set(SERVING);
            let connections = Connections { limits, ..Connections::default() };
            let closing = async {
                leave.cancelled().await;
                state.set(STOPPING);
                tokio::time::sleep(limits.linger).await;
                stop.cancelled().await;
            };
            tokio::select! {
                () = closing => {}
                () = connections.accept(&listener, tls.as_ref(), &answerer) => {}
            }
            drop(listener);
            connections.end().await;
        };
        tokio::join!(keeping, serving);
        tracing::info!(%address, "the webhook server has stopped");
    }
}

/// The connections of a server that runs.
#[derive(Default)]
struct Connections {
    limits: Limits,
    tasks: TaskTracker,
    /// Tells each connection to end after the calls that are under way.
    finish: CancellationToken,
    /// Ends them where they are.
    cut: CancellationToken,
}

impl Connections {
    /// Serves all connections that come, as many at once as the limits allow. Never ends.
    async fn accept(&self, listener: &TcpListener, tls: Option<&TlsAcceptor>, answerer: &Arc<Answerer>) {
        let slots = Arc::new(Semaphore::new(self.limits.connections.clamp(1, Semaphore::MAX_PERMITS)));
        loop {
            // Never closed, so the permit always comes.
            let permit = Arc::clone(&slots).acquire_owned().await;
            let stream = accept(listener).await;
            let connection = connection::serve(stream, tls.cloned(), Arc::clone(answerer), self.finish.clone());
            let cut = self.cut.clone();
            self.tasks.spawn(async move {
                cut.run_until_cancelled(connection).await;
                drop(permit);
            });
        }
    }

    /// Lets the calls that are under way end, and cuts off those that do not end in time.
    async fn end(self) {
        self.finish.cancel();
        self.tasks.close();
        if tokio::time::timeout(self.limits.drain, self.tasks.wait()).await.is_err() {
            tracing::warn!(connections = self.tasks.len(), "some webhook calls did not end in time and are cut off");
            self.cut.cancel();
            self.tasks.wait().await;
        }
    }
}

/// The next connection. An error of `accept` concerns one client, or passes when others end, as with too many open files.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to the webhooks");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
