//! A proxy in front of the real API server that does what networks and servers do on bad days, as a small file with a seed says.
//!
//! Read in this order: [`Plan`], what goes wrong and when; [`FaultProxy`], what a test starts; [`RequestLog`] and
//! [`JournalEntry`], what it can prove.

mod control;
mod decide;
mod exchange;
mod frame;
mod journal;
mod plan;
mod reply;
mod request_log;
mod server;
mod stream;
mod unobserved;
mod unsteady;
mod upstream;
mod values;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::HeaderValue;
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::{control::Control, journal::Journal, upstream::Upstream};
pub use self::{
    journal::{JournalEntry, Reached},
    plan::{Action, EventKind, Phase, Plan, PlanError, Rule, StatusAnswer, Trigger},
    request_log::RequestLog,
    unsteady::UNSTEADY,
    values::{Probability, Span},
};
use crate::{
    control_plane::credentials,
    guard::RunDirectory,
    tls::{self, HTTP_1_1, HTTP_2, TlsError},
};

/// For an outage whose end the test says.
const LONGER_THAN_ANY_TEST: Duration = Duration::from_secs(86_400);

/// A proxy for one identity: clients use its [`kubeconfig`](Self::kubeconfig), and it asks the API server as the user of the
/// kubeconfig that it was made with. Without a plan it changes nothing.
///
/// Guarantees: the same plan and the same requests give the same faults. A forwarded request is forwarded once, without retries,
/// and is in the journal even if the client has gone. Only a client that has read the proxy's kubeconfig gets in. Dropping it ends
/// all connections.
///
/// Does not: upgrade connections (exec, attach, port-forward), speak protobuf (clients are answered in JSON), follow a kubeconfig
/// that changes, serve an older state of the world than the API server has. Refusals while it is down come after the connection is accepted, so clients see a reset and not a closed port.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use konverge_testkit::{ControlPlane, Options, client_for, fault_proxy::{FaultProxy, Plan}};
///
/// let control_plane = ControlPlane::start(Options::default()).await?;
/// let proxy = FaultProxy::start(control_plane.run_directory(), control_plane.kubeconfig()).await?;
/// let client = client_for(proxy.kubeconfig()).await?;
/// proxy.set(Plan::parse("rules: [{ when: { verbs: [create], nth: 2 }, then: { status: { code: 503 } } }]")?)?;
/// // Use the client, or start an operator under the kubeconfig, then look at what happened.
/// assert!(proxy.journal().iter().all(|entry| entry.code != Some(500)));
/// # Ok(())
/// # }
/// ```
pub struct FaultProxy {
    proxy: Arc<Proxy>,
    kubeconfig: PathBuf,
    _end: DropGuard,
}

/// The state that all connections share.
struct Proxy {
    control: Control,
    journal: Journal,
    upstream: Upstream,
    authorization: HeaderValue,
}

/// The proxy could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The kubeconfig of its user is not usable.
    #[error("cannot use kubeconfig {}: {source}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: Box<KubeconfigError>,
    },
    /// The API server cannot be asked as that user.
    #[error("cannot connect as the user of kubeconfig {}: {source}", path.display())]
    Upstream {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: Box<kube::Error>,
    },
    /// Its certificate is not usable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system did not let it listen or write its kubeconfig.
    #[error("cannot start the proxy: {0}")]
    System(#[from] io::Error),
}

impl FaultProxy {
    /// Starts a proxy that asks as the user of the kubeconfig. Its own kubeconfig goes into the run's folder.
    pub async fn start(run: &RunDirectory, kubeconfig: &Path) -> Result<Self, ProxyError> {
        let unusable = |source| ProxyError::Kubeconfig { path: kubeconfig.to_owned(), source: Box::new(source) };
        let content = Kubeconfig::read_from(kubeconfig).map_err(unusable)?;
        let config = Config::from_custom_kubeconfig(content, &KubeConfigOptions::default()).await.map_err(unusable)?;
        let upstream = Upstream::new(&config)
            .map_err(|source| ProxyError::Upstream { path: kubeconfig.to_owned(), source: Box::new(source) })?;

        let (tls, authority) = tls::server("konverge-fault-proxy", &[HTTP_2, HTTP_1_1])?;
        let token = token()?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let path = run.path().join(format!("kubeconfig-fault-proxy-{port}"));
        let (address, user) = (format!("https://127.0.0.1:{port}"), json!({ "token": token }));
        credentials::write_kubeconfig(&path, &address, &authority, &config.default_namespace, &user)?;

        let authorization = HeaderValue::from_str(&format!("Bearer {token}")).map_err(io::Error::other)?;
        let proxy =
            Arc::new(Proxy { control: Control::default(), journal: Journal::default(), upstream, authorization });
        let end = CancellationToken::new();
        tokio::spawn(server::run(Arc::clone(&proxy), listener, tls, end.clone()));
        Ok(Self { proxy, kubeconfig: path, _end: end.drop_guard() })
    }

    /// Kubeconfig of the proxy, with the default namespace of its user.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Puts a plan in force instead of the one before, with its counts at zero. Requests that the previous plan held are released. Fails when it
    /// kills a process that is not registered.
    pub fn set(&self, plan: Plan) -> Result<(), PlanError> {
        self.proxy.control.set(plan)
    }

    /// Tells the watch events that are held, in their order, and ends what is frozen. The plan's rules that hold or freeze do so no
    /// more; all others stay.
    pub fn release(&self) {
        self.proxy.control.release();
    }

    /// No more faults: what is held is released, and an outage is over.
    pub fn clear(&self) {
        self.proxy.control.come_up();
        // An empty plan kills nobody, so nothing can be wrong with it.
        let _ = self.proxy.control.set(Plan::default());
    }

    /// Serves nobody for so long, and ends all connections.
    pub fn down(&self, length: Duration) {
        self.proxy.control.go_down(length);
    }

    /// Serves nobody until it is [cleared](Self::clear), and ends all connections.
    pub fn down_until_cleared(&self) {
        self.down(LONGER_THAN_ANY_TEST);
    }

    /// Ends all connections once; new ones are served.
    pub fn end_connections(&self) {
        self.proxy.control.end_connections();
    }

    /// Freezes all connections that are open now, idle ones too, as if the other end hung: they stay open, and nothing comes over them
    /// any more. A [release](Self::release) ends them. New connections are served.
    pub fn freeze_connections(&self) {
        self.proxy.control.freeze_connections();
    }

    /// How often each rule of the plan has acted.
    pub fn fired(&self) -> Vec<u64> {
        self.proxy.control.fired()
    }

    /// Registers what kills a process. It has to return only when the process is dead, as [`Process::kill`](crate::Process::kill)
    /// does.
    pub fn on_kill(&self, process: impl Into<String>, kill: impl Fn() + Send + Sync + 'static) {
        self.proxy.control.on_kill(process.into(), kill);
    }

    /// All requests so far, in the order of their arrival.
    pub fn journal(&self) -> Vec<JournalEntry> {
        self.proxy.journal.entries()
    }

    /// Where the journal ends now, for [`requests_since`](Self::requests_since).
    pub fn mark(&self) -> usize {
        self.journal().len()
    }

    /// Returns the requests since the mark.
    pub fn requests_since(&self, mark: usize) -> RequestLog {
        RequestLog(self.journal().into_iter().skip(mark).collect())
    }
}

impl Proxy {
    fn knows(&self, authorization: Option<&HeaderValue>) -> bool {
        authorization == Some(&self.authorization)
    }
}

/// The token by which a client proves that it has read the kubeconfig, because every user of the machine can reach the port.
fn token() -> io::Result<String> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
