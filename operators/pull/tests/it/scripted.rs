//! A zopp server that behaves as a test says: hides events, hangs, refuses, hands out rubbish. Its cryptography is the real one.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use futures::{FutureExt, Stream, StreamExt, stream::BoxStream};
use konverge_core::SecretValue;
use konverge_zopp_client::{
    Client, ClientConfig, ConfigFile, Connection, EnvironmentName, Fingerprint, Identity, Profile, ServerRecord,
    config_file::Principal,
};
use konverge_zopp_crypto::{Dek, Manifest, Protection, SigningSeed, X25519Private, X25519Public};
use konverge_zopp_proto::{
    Environment, GetEnvironmentRequest, GetWorkspaceKeysRequest, ListSecretsRequest, ResyncRequired, Secret,
    SecretChangeEvent, SecretList, WatchSecretsRequest, WatchSecretsResponse, WorkspaceKeys,
    identity::identity_server::IdentityServer,
    secrets::{
        EncryptedSecret, ReadEnvironmentRequest, ReadEnvironmentResponse, SealedManifest,
        secrets_server::{Secrets, SecretsServer},
    },
    watch_secrets_response::Response as Message,
    zopp_service_server::{ZoppService, ZoppServiceServer},
};
use tokio::{
    net::TcpListener,
    sync::{broadcast, watch},
};
use tokio_stream::wrappers::{BroadcastStream, TcpListenerStream};
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Response, Status};

use self::workspace_key::{Generations, fingerprints};

mod workspace_key;

const WORKSPACE_ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const PRINCIPAL_ID: &str = "01890a5d-ac96-774b-bcce-b302099a8058";

/// The server, ended when dropped.
pub(crate) struct Scripted {
    state: Arc<State>,
    address: String,
    principal: Principal,
    _serving: AbortOnDropHandle<()>,
}

struct State {
    environments: Mutex<HashMap<String, Arc<Scene>>>,
    generations: Mutex<Generations>,
    recipient: X25519Public,
}

/// One environment: what it holds and how the server treats who asks for it.
pub(crate) struct Scene {
    name: EnvironmentName,
    script: Mutex<Script>,
    events: broadcast::Sender<StreamEvent>,
    asked: AtomicUsize,
    lists: AtomicUsize,
    streams: Arc<AtomicUsize>,
    hangs: watch::Sender<bool>,
}

#[derive(Clone)]
enum StreamEvent {
    Changed(i64),
    HangUp,
}

/// The content of an environment, and how the server states it.
pub(crate) struct Script {
    id: String,
    dek: Arc<Dek>,
    version: i64,
    values: BTreeMap<String, Secret>,
    refusal: Option<Status>,
    /// Whether a manifest shows what the environment holds.
    protected: bool,
    /// Whether the server answers our own calls for an environment without a manifest. Otherwise it is a stock one.
    has_own_calls: bool,
    /// Keys that the manifest shows and the server keeps back.
    kept_back: BTreeSet<String>,
}

impl Scripted {
    /// A server without environments, and a client of it.
    pub(crate) async fn start() -> (Self, Client) {
        let (seed, exchange) = (SigningSeed::generate().unwrap(), X25519Private::generate().unwrap());
        let state = Arc::new(State {
            environments: Mutex::default(),
            generations: Mutex::new(Generations::new()),
            recipient: exchange.public(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tonic::transport::Server::builder()
            .add_service(ZoppServiceServer::new(Service(Arc::clone(&state))))
            .add_service(SecretsServer::new(Service(Arc::clone(&state))))
            .add_service(IdentityServer::new(Service(Arc::clone(&state))))
            .serve_with_incoming(TcpListenerStream::new(listener))
            .map(|ended| ended.unwrap());
        let (address, principal) = (format!("http://{address}"), principal(&seed, &exchange));
        let server = Self { state, address, principal, _serving: AbortOnDropHandle::new(tokio::spawn(serving)) };
        let client = server.client();
        (server, client)
    }

    /// Creates a client without memory of the server, as after a process start.
    pub(crate) fn client(&self) -> Client {
        self.client_with(|_| {})
    }

    /// Like [`client`](Self::client), but with changed settings.
    pub(crate) fn client_with(&self, change: impl FnOnce(&mut ClientConfig)) -> Client {
        let mut config = ClientConfig { profile: Some(Profile::V2), ..ClientConfig::new(&self.address) };
        change(&mut config);
        Client::new(Connection::new(&config).unwrap(), identity(self.principal.clone()))
    }

    /// Creates a client of another principal, for which the same keys are wrapped.
    pub(crate) fn client_of_another_principal(&self) -> Client {
        let seed = SigningSeed::generate().unwrap();
        let principal = Principal {
            private_key: seed.to_hex(),
            public_key: hex::encode(seed.public().to_bytes()),
            ..self.principal.clone()
        };
        let config = ClientConfig { profile: Some(Profile::V2), ..ClientConfig::new(&self.address) };
        Client::new(Connection::new(&config).unwrap(), identity(principal))
    }

    /// Makes `acme/backend/<name>`, without keys, in place of what had the name before.
    pub(crate) fn create(&self, name: &str) -> Arc<Scene> {
        let name = EnvironmentName::new("acme", "backend", name);
        let scene = Arc::new(Scene {
            name: name.clone(),
            script: Mutex::new(Script::new()),
            events: broadcast::channel(256).0,
            asked: AtomicUsize::new(0),
            lists: AtomicUsize::new(0),
            streams: Arc::default(),
            hangs: watch::Sender::new(false),
        });
        self.state.environments.lock().unwrap().insert(name.to_string(), Arc::clone(&scene));
        scene
    }

    /// Hands out a workspace key of its own from now on, wrapped as the real one was, and wraps everything by it.
    pub(crate) fn forge_key(&self) {
        *self.state.generations() = Generations::new();
    }

    /// Replaces the workspace key as a client with this seed does. `administrators` are those of the new key.
    pub(crate) fn rotate_key(&self, maker: &SigningSeed, administrators: &[&SigningSeed]) {
        self.state.generations().rotate(maker, administrators);
    }

    /// Hands out the workspace key of before the last rotation from now on, as if it had not been replaced.
    pub(crate) fn bring_back_former_key(&self) {
        self.state.generations().go_back();
    }

    /// Returns the record of the server in the credentials file of a service: the key of the workspace, and its administrators.
    pub(crate) fn file(&self, administrators: &[&SigningSeed]) -> ServerRecord {
        let mut record = ServerRecord::default();
        record
            .workspaces
            .insert("acme".into(), Fingerprint::of_workspace(WORKSPACE_ID, self.state.generations().kek()));
        record.administrators.insert("acme".into(), fingerprints(administrators));
        record
    }
}

impl State {
    fn generations(&self) -> MutexGuard<'_, Generations> {
        self.generations.lock().unwrap()
    }
}

fn principal(seed: &SigningSeed, exchange: &X25519Private) -> Principal {
    Principal {
        id: PRINCIPAL_ID.into(),
        name: "operator".into(),
        user_id: None,
        email: None,
        private_key: seed.to_hex(),
        public_key: hex::encode(seed.public().to_bytes()),
        x25519_private_key: Some(exchange.to_hex()),
        x25519_public_key: Some(hex::encode(exchange.public().to_bytes())),
        other: serde_json::Map::new(),
    }
}

fn identity(principal: Principal) -> Identity {
    let file = ConfigFile { principals: vec![principal], ..ConfigFile::default() };
    Identity::from_config(&file, Path::new("config.json"), None).unwrap()
}

impl Script {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let dek = Arc::new(Dek::generate().unwrap());
        // Sorts by time, as the IDs of servers do.
        let id = format!("{:016x}", COUNT.fetch_add(1, Ordering::Relaxed));
        let (values, kept_back) = (BTreeMap::new(), BTreeSet::new());
        Self { id, dek, version: 0, values, refusal: None, protected: false, has_own_calls: false, kept_back }
    }

    fn put(&mut self, secret: Secret) -> i64 {
        self.values.insert(secret.key.clone(), secret);
        self.version += 1;
        self.version
    }

    fn remove(&mut self, key: &str) -> i64 {
        self.values.remove(key);
        self.version += 1;
        self.version
    }
}

impl Scene {
    pub(crate) fn name(&self) -> &EnvironmentName {
        &self.name
    }

    /// Sets a key and tells the streams.
    pub(crate) fn set(&self, key: &str, value: impl AsRef<[u8]>) {
        let version = self.put(key, value.as_ref());
        self.tell(version);
    }

    /// Removes a key and tells the streams.
    pub(crate) fn remove(&self, key: &str) {
        let version = self.script().remove(key);
        self.tell(version);
    }

    /// Sets a key to what no key opens, and tells the streams.
    pub(crate) fn spoil(&self, key: &str) {
        // A nonce of one byte ended the original's task.
        let rubbish = Secret { key: key.into(), nonce: vec![1], ciphertext: b"rubbish".to_vec() };
        let version = self.script().put(rubbish);
        self.tell(version);
    }

    /// Sets a key and tells nobody, as a server does that loses events.
    pub(crate) fn set_silently(&self, key: &str, value: impl AsRef<[u8]>) {
        self.put(key, value.as_ref());
    }

    /// Removes a key and tells nobody.
    pub(crate) fn remove_silently(&self, key: &str) {
        self.script().remove(key);
    }

    /// Sets a key, and states the version that was stated before, as a server does that lost a change and made another. Tells nobody.
    pub(crate) fn set_at_the_same_version(&self, key: &str, value: impl AsRef<[u8]>) {
        let version = self.put(key, value.as_ref());
        self.script().version = version - 1;
    }

    /// States this version and tells the streams, as a server does that was restored from a backup.
    pub(crate) fn state_version(&self, version: i64) {
        self.script().version = version;
        self.tell(version);
    }

    /// Shows by a manifest, from now on, what it holds.
    pub(crate) fn protect(&self) {
        self.script().protected = true;
    }

    /// Answers our own calls from now on, also without a manifest.
    pub(crate) fn answer_own_calls(&self) {
        self.script().has_own_calls = true;
    }

    /// Behaves like a stock server from now on.
    pub(crate) fn unprotect(&self) {
        let mut script = self.script();
        (script.protected, script.has_own_calls) = (false, false);
    }

    /// Leaves a key out of its answers, though the manifest shows it, and tells the streams.
    pub(crate) fn keep_back(&self, key: &str) {
        let mut script = self.script();
        script.kept_back.insert(key.into());
        let version = script.version;
        drop(script);
        self.tell(version);
    }

    /// Gives everything again, and tells the streams.
    pub(crate) fn give_everything(&self) {
        let mut script = self.script();
        script.kept_back.clear();
        let version = script.version;
        drop(script);
        self.tell(version);
    }

    /// Deletes the environment and creates another one of its name: another ID, another key, no values, version 0. The open streams say nothing. Returns the
    /// former one.
    pub(crate) fn recreate(&self) -> Script {
        let mut script = self.script();
        let has_own_calls = script.has_own_calls;
        std::mem::replace(&mut script, Script { has_own_calls, ..Script::new() })
    }

    /// Brings a former environment of this name back, as a server does that was restored from a backup. The open streams say nothing.
    pub(crate) fn bring_back(&self, former: Script) {
        *self.script() = former;
    }

    /// Which environment has the name now.
    pub(crate) fn id(&self) -> String {
        self.script().id.clone()
    }

    /// Ends all streams, without an error.
    pub(crate) fn hang_up(&self) {
        self.tell_all(StreamEvent::HangUp);
    }

    /// Answers everything with this from now on; `None` for the truth.
    pub(crate) fn refuse(&self, refusal: Option<Status>) {
        self.script().refusal = refusal;
    }

    /// Leaves `ListSecrets` without an answer, until told otherwise.
    pub(crate) fn hang(&self, hangs: bool) {
        self.hangs.send_replace(hangs);
    }

    /// Calls that wait for that now.
    pub(crate) fn hanging(&self) -> usize {
        self.hangs.receiver_count()
    }

    /// Calls of any kind so far.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Calls of `ListSecrets` so far that were not refused.
    pub(crate) fn lists(&self) -> usize {
        self.lists.load(Ordering::SeqCst)
    }

    /// Streams that are open now.
    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::SeqCst)
    }

    /// Encrypts once, as a client does, so that each list has the same nonce.
    fn put(&self, key: &str, value: &[u8]) -> i64 {
        let mut script = self.script();
        let sealed = script.dek.encrypt(&self.name, key, &SecretValue::new(value.to_vec())).unwrap();
        script.put(Secret { key: key.into(), nonce: sealed.nonce.to_vec(), ciphertext: sealed.ciphertext })
    }

    fn tell(&self, version: i64) {
        self.tell_all(StreamEvent::Changed(version));
    }

    fn tell_all(&self, event: StreamEvent) {
        // Without a stream nobody is told.
        let _ = self.events.send(event);
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }
}

struct Service(Arc<State>);

impl Service {
    fn scene(&self, workspace: String, project: String, environment: String) -> Result<Arc<Scene>, Status> {
        let name = EnvironmentName::new(workspace, project, environment).to_string();
        let scene = self.0.environments.lock().unwrap().get(&name).cloned();
        let scene = scene.ok_or_else(|| Status::not_found("environment not found"))?;
        scene.asked.fetch_add(1, Ordering::SeqCst);
        let refusal = scene.script().refusal.clone();
        refusal.map_or(Ok(scene), Err)
    }
}

#[tonic::async_trait]
impl ZoppService for Service {
    async fn get_environment(&self, request: Request<GetEnvironmentRequest>) -> Result<Response<Environment>, Status> {
        let request = request.into_inner();
        let scene = self.scene(request.workspace_name, request.project_name, request.environment_name)?;
        let script = scene.script();
        let wrapped = script.dek.wrap(self.0.generations().kek(), &scene.name).unwrap();
        Ok(Response::new(Environment {
            id: script.id.clone(),
            name: scene.name.environment.clone(),
            dek_wrapped: wrapped.ciphertext,
            dek_nonce: wrapped.nonce.to_vec(),
            ..Environment::default()
        }))
    }

    async fn get_workspace_keys(&self, _: Request<GetWorkspaceKeysRequest>) -> Result<Response<WorkspaceKeys>, Status> {
        let generations = self.0.generations();
        let wrapped = generations.kek().wrap_for(&self.0.recipient, WORKSPACE_ID).unwrap();
        Ok(Response::new(WorkspaceKeys {
            workspace_id: WORKSPACE_ID.into(),
            ephemeral_pub: wrapped.ephemeral_public.to_bytes().to_vec(),
            kek_wrapped: wrapped.sealed.ciphertext,
            kek_nonce: wrapped.sealed.nonce.to_vec(),
            generation: generations.number(),
        }))
    }

    async fn list_secrets(&self, request: Request<ListSecretsRequest>) -> Result<Response<SecretList>, Status> {
        let request = request.into_inner();
        let scene = self.scene(request.workspace_name, request.project_name, request.environment_name)?;
        scene.lists.fetch_add(1, Ordering::SeqCst);
        // Ended only by the end of the scene, which needs no answer.
        let _ = scene.hangs.subscribe().wait_for(|hangs| !hangs).await;
        let script = scene.script();
        let secrets = script.values.values().cloned().collect();
        Ok(Response::new(SecretList { secrets, version: script.version }))
    }

    async fn watch_secrets(
        &self,
        request: Request<WatchSecretsRequest>,
    ) -> Result<Response<BoxStream<'static, Result<WatchSecretsResponse, Status>>>, Status> {
        let request = request.into_inner();
        let scene = self.scene(request.workspace_name, request.project_name, request.environment_name)?;
        let live = BroadcastStream::new(scene.events.subscribe());
        let current_version = scene.script().version;
        let behind = request.since_version.is_some_and(|since| since != current_version);
        let resync = behind.then_some(Message::Resync(ResyncRequired { current_version }));
        let live = live
            .map(|event| match event.unwrap() {
                StreamEvent::Changed(version) => Some(changed(version)),
                StreamEvent::HangUp => None,
            })
            .take_while(|change| std::future::ready(change.is_some()))
            .filter_map(std::future::ready);
        let stream = futures::stream::iter(resync).chain(live);
        let stream = stream.map(|message| Ok(WatchSecretsResponse { response: Some(message) }));
        Ok(Response::new(Counted::new(stream.boxed(), &scene.streams).boxed()))
    }
}

#[tonic::async_trait]
impl Secrets for Service {
    async fn read_environment(
        &self,
        request: Request<ReadEnvironmentRequest>,
    ) -> Result<Response<ReadEnvironmentResponse>, Status> {
        let request = request.into_inner();
        let name = EnvironmentName::new(&request.workspace_name, &request.project_name, &request.environment_name);
        let scene = self.0.environments.lock().unwrap().get(&name.to_string()).cloned();
        let answers = |script: &Script| script.protected || script.has_own_calls;
        if !scene.is_some_and(|scene| answers(&scene.script())) {
            return Err(Status::unimplemented(""));
        }
        let scene = self.scene(request.workspace_name, request.project_name, request.environment_name)?;
        let script = scene.script();
        let tag = format!("{}.{}.{}.{}", script.id, script.version, script.protected, script.kept_back.len());
        let (environment_id, version) = (script.id.clone(), script.version);
        let head = ReadEnvironmentResponse { environment_id, version, tag, ..Default::default() };
        if request.known_tag.as_ref() == Some(&head.tag) {
            return Ok(Response::new(ReadEnvironmentResponse { unchanged: true, ..head }));
        }
        let sealed: Vec<Secret> = script.values.values().cloned().collect();
        let manifest = Manifest {
            environment_id: script.id.clone(),
            serial: u64::try_from(version).unwrap() + 1,
            version,
            protection: Protection::On,
            entries: sealed
                .iter()
                .map(|secret| (secret.key.clone(), secret.nonce.as_slice().try_into().unwrap()))
                .collect(),
        };
        let manifest = script.protected.then(|| manifest.seal(&script.dek, &scene.name).unwrap());
        let given = sealed.into_iter().filter(|secret| !script.kept_back.contains(&secret.key));
        let wrapped = script.dek.wrap(self.0.generations().kek(), &scene.name).unwrap();
        Ok(Response::new(ReadEnvironmentResponse {
            dek_wrapped: wrapped.ciphertext,
            dek_nonce: wrapped.nonce.to_vec(),
            secrets: given
                .map(|Secret { key, nonce, ciphertext }| EncryptedSecret { key, nonce, ciphertext })
                .collect(),
            manifest: manifest
                .map(|sealed| SealedManifest { nonce: sealed.nonce.to_vec(), ciphertext: sealed.ciphertext }),
            ..head
        }))
    }
}

fn changed(version: i64) -> Message {
    Message::Event(SecretChangeEvent { key: "KEY".into(), version, ..SecretChangeEvent::default() })
}

/// Counts a stream while it lives.
struct Counted<S>(S, Arc<AtomicUsize>);

impl<S> Counted<S> {
    fn new(stream: S, count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(stream, Arc::clone(count))
    }
}

impl<S> Drop for Counted<S> {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<S: Stream + Unpin> Stream for Counted<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.0.poll_next_unpin(context)
    }
}
