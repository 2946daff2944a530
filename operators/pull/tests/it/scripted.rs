//! A zopp server that behaves as a test says: hides events, hangs, refuses. Its cryptography is the real one.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{FutureExt, Stream, StreamExt, stream::BoxStream};
use konverge_core::SecretValue;
use konverge_zopp_client::{
    Client, ClientConfig, ConfigFile, Connection, EnvironmentName, Identity, Profile, config_file::Principal,
};
use konverge_zopp_crypto::{Dek, Kek, SigningSeed, X25519Private, X25519Public};
use konverge_zopp_proto::{
    Environment, GetEnvironmentRequest, GetWorkspaceKeysRequest, ListSecretsRequest, ResyncRequired, Secret,
    SecretChangeEvent, SecretList, WatchSecretsRequest, WatchSecretsResponse, WorkspaceKeys, watch_secrets_response,
    zopp_service_server::{ZoppService, ZoppServiceServer},
};
use tokio::{net::TcpListener, sync::broadcast};
use tokio_stream::wrappers::{BroadcastStream, TcpListenerStream};
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Response, Status};

const WORKSPACE_ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

/// The only environment of the server.
pub(crate) fn environment() -> EnvironmentName {
    EnvironmentName::new("acme", "backend", "production")
}

/// The server, ended when dropped.
pub(crate) struct Scripted {
    pub(crate) state: Arc<State>,
    _serving: AbortOnDropHandle<()>,
}

/// What the server holds and how it behaves.
pub(crate) struct State {
    script: Mutex<Script>,
    told: broadcast::Sender<Told>,
    lists: AtomicUsize,
    streams: Arc<AtomicUsize>,
    kek: Kek,
    dek: Dek,
    recipient: X25519Public,
}

#[derive(Clone)]
enum Told {
    Changed(i64),
    Hangup,
}

struct Script {
    environment_id: String,
    version: i64,
    values: BTreeMap<String, String>,
    refusal: Option<Status>,
}

impl Scripted {
    /// A server with an environment without keys, and a client of it.
    pub(crate) async fn start() -> (Self, Client) {
        let (seed, exchange) = (SigningSeed::generate().unwrap(), X25519Private::generate().unwrap());
        let state = Arc::new(State {
            script: Mutex::new(Script {
                environment_id: "environment-1".into(),
                version: 0,
                values: BTreeMap::new(),
                refusal: None,
            }),
            told: broadcast::channel(64).0,
            lists: AtomicUsize::new(0),
            streams: Arc::default(),
            kek: Kek::generate().unwrap(),
            dek: Dek::generate().unwrap(),
            recipient: exchange.public(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = ZoppServiceServer::from_arc(Arc::new(Service(Arc::clone(&state))));
        let serving = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(listener))
            .map(|ended| ended.unwrap());
        let config = ClientConfig { profile: Some(Profile::V2), ..ClientConfig::new(format!("http://{address}")) };
        let client = Client::new(Connection::new(&config).unwrap(), identity(&seed, &exchange));
        (Self { state, _serving: AbortOnDropHandle::new(tokio::spawn(serving)) }, client)
    }
}

fn identity(seed: &SigningSeed, exchange: &X25519Private) -> Identity {
    let principal = Principal {
        id: "01890a5d-ac96-774b-bcce-b302099a8058".into(),
        name: "operator".into(),
        user_id: None,
        email: None,
        private_key: seed.to_hex(),
        public_key: hex::encode(seed.public().to_bytes()),
        x25519_private_key: Some(exchange.to_hex()),
        x25519_public_key: Some(hex::encode(exchange.public().to_bytes())),
        other: serde_json::Map::new(),
    };
    let file = ConfigFile { principals: vec![principal], ..ConfigFile::default() };
    Identity::from_config(&file, Path::new("config.json"), None).unwrap()
}

impl State {
    /// Sets a key and tells the streams.
    pub(crate) fn set(&self, key: &str, value: &str) {
        let version = self.set_silently(key, value);
        // Without a stream nobody is told.
        let _ = self.told.send(Told::Changed(version));
    }

    /// Sets a key and tells nobody, as a server does that loses events.
    pub(crate) fn set_silently(&self, key: &str, value: &str) -> i64 {
        let mut script = self.script();
        script.version += 1;
        script.values.insert(key.into(), value.into());
        script.version
    }

    /// Ends all streams, without an error.
    pub(crate) fn hang_up(&self) {
        let _ = self.told.send(Told::Hangup);
    }

    /// Answers everything with this from now on; `None` for the truth.
    pub(crate) fn refuse(&self, refusal: Option<Status>) {
        self.script().refusal = refusal;
    }

    /// Calls of `ListSecrets` so far.
    pub(crate) fn lists(&self) -> usize {
        self.lists.load(Ordering::SeqCst)
    }

    /// Streams that are open now.
    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::SeqCst)
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    fn refused(&self) -> Result<(), Status> {
        self.script().refusal.clone().map_or(Ok(()), Err)
    }
}

struct Service(Arc<State>);

#[tonic::async_trait]
impl ZoppService for Service {
    async fn get_environment(&self, _: Request<GetEnvironmentRequest>) -> Result<Response<Environment>, Status> {
        self.0.refused()?;
        let wrapped = self.0.dek.wrap(&self.0.kek, &environment()).unwrap();
        Ok(Response::new(Environment {
            id: self.0.script().environment_id.clone(),
            name: environment().environment,
            dek_wrapped: wrapped.ciphertext,
            dek_nonce: wrapped.nonce.to_vec(),
            ..Environment::default()
        }))
    }

    async fn get_workspace_keys(&self, _: Request<GetWorkspaceKeysRequest>) -> Result<Response<WorkspaceKeys>, Status> {
        self.0.refused()?;
        let wrapped = self.0.kek.wrap_for(&self.0.recipient, WORKSPACE_ID).unwrap();
        Ok(Response::new(WorkspaceKeys {
            workspace_id: WORKSPACE_ID.into(),
            ephemeral_pub: wrapped.ephemeral_public.to_bytes().to_vec(),
            kek_wrapped: wrapped.sealed.ciphertext,
            kek_nonce: wrapped.sealed.nonce.to_vec(),
        }))
    }

    async fn list_secrets(&self, _: Request<ListSecretsRequest>) -> Result<Response<SecretList>, Status> {
        self.0.lists.fetch_add(1, Ordering::SeqCst);
        self.0.refused()?;
        let script = self.0.script();
        let seal = |(key, value): (&String, &String)| {
            let sealed = self.0.dek.encrypt(&environment(), key, &SecretValue::from(value.clone())).unwrap();
            Secret { key: key.clone(), nonce: sealed.nonce.to_vec(), ciphertext: sealed.ciphertext }
        };
        Ok(Response::new(SecretList { secrets: script.values.iter().map(seal).collect(), version: script.version }))
    }

    async fn watch_secrets(
        &self,
        request: Request<WatchSecretsRequest>,
    ) -> Result<Response<BoxStream<'static, Result<WatchSecretsResponse, Status>>>, Status> {
        self.0.refused()?;
        let live = BroadcastStream::new(self.0.told.subscribe());
        let current = self.0.script().version;
        let behind = request.into_inner().since_version.is_some_and(|since| since != current);
        let resync = behind
            .then(|| answer(watch_secrets_response::Response::Resync(ResyncRequired { current_version: current })));
        let live = live
            .map(Result::unwrap)
            .take_while(|told| std::future::ready(!matches!(told, Told::Hangup)))
            .filter_map(|told| {
                std::future::ready(match told {
                    Told::Changed(version) => Some(changed(version)),
                    Told::Hangup => None,
                })
            });
        let stream = futures::stream::iter(resync).chain(live).map(Ok);
        Ok(Response::new(Counted::new(stream, &self.0.streams).boxed()))
    }
}

fn answer(response: watch_secrets_response::Response) -> WatchSecretsResponse {
    WatchSecretsResponse { response: Some(response) }
}

fn changed(version: i64) -> WatchSecretsResponse {
    let event = SecretChangeEvent { key: "KEY".into(), version, ..SecretChangeEvent::default() };
    answer(watch_secrets_response::Response::Event(event))
}

/// Counts a stream while it lives.
struct Counted<S>(std::pin::Pin<Box<S>>, Arc<AtomicUsize>);

impl<S> Counted<S> {
    fn new(stream: S, count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Box::pin(stream), Arc::clone(count))
    }
}

impl<S> Drop for Counted<S> {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<S: Stream> Stream for Counted<S> {
    type Item = S::Item;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<S::Item>> {
        self.0.as_mut().poll_next(context)
    }
}
