//! One environment behind a real socket. Its state can be changed in ways no honest server would.

use std::{
    collections::{BTreeMap, HashSet},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::StreamExt;
use konverge_core::SecretValue;
use konverge_zopp_client::{
    Client, ClientConfig, ConfigFile, Connection, EnvironmentName, EnvironmentReader, Identity, config_file::Principal,
};
use konverge_zopp_crypto::{Dek, Kek, Profile, Signed, SigningSeed, X25519Private, signature};
use konverge_zopp_proto::{
    Environment, GetEnvironmentRequest, GetPrincipalExportRequest, GetPrincipalExportResponse, GetWorkspaceKeysRequest,
    ListSecretsRequest, Secret, SecretList, WatchSecretsRequest, WatchSecretsResponse, WorkspaceKeys, method_path,
    zopp_service_server::{ZoppService, ZoppServiceServer},
};
use prost::Message;
use tokio::{net::TcpListener, sync::broadcast};
use tokio_stream::wrappers::{BroadcastStream, TcpListenerStream};
use tonic::{Request, Response, Status, codegen::BoxStream, transport::ServerTlsConfig};

pub(crate) const PRINCIPAL_ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

pub(crate) fn name() -> EnvironmentName {
    EnvironmentName::new("acme", "backend", "production")
}

pub(crate) struct State {
    pub(crate) generation: Profile,
    pub(crate) version: i64,
    pub(crate) environment_id: String,
    pub(crate) secrets: BTreeMap<String, Secret>,
    /// The response to every call except the question for the generation, if set.
    pub(crate) refusal: Option<Status>,
    pub(crate) calls: Vec<&'static str>,
    /// Whether a signature counts once only.
    pub(crate) refuse_repeats: bool,
    signatures: HashSet<[u8; 64]>,
    pub(crate) last_watch: Option<WatchSecretsRequest>,
    /// How many of the next lists find the environment made anew since the call before.
    pub(crate) recreated_before_lists: usize,
    /// How often it was made anew.
    recreated: usize,
    dek: Dek,
}

#[derive(Clone)]
pub(crate) struct Server {
    state: Arc<Mutex<State>>,
    kek: Arc<Kek>,
    seed: Arc<SigningSeed>,
    exchange: Arc<X25519Private>,
    pub(crate) events: broadcast::Sender<WatchSecretsResponse>,
    address: SocketAddr,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    pub(crate) async fn start_with(tls: Option<ServerTlsConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            state: Arc::new(Mutex::new(State {
                generation: Profile::V2,
                version: 0,
                environment_id: "first".to_owned(),
                secrets: BTreeMap::new(),
                refusal: None,
                calls: Vec::new(),
                refuse_repeats: false,
                signatures: HashSet::new(),
                last_watch: None,
                recreated_before_lists: 0,
                recreated: 0,
                dek: Dek::generate().unwrap(),
            })),
            kek: Arc::new(Kek::generate().unwrap()),
            seed: Arc::new(SigningSeed::generate().unwrap()),
            exchange: Arc::new(X25519Private::generate().unwrap()),
            events: broadcast::channel(16).0,
            address: listener.local_addr().unwrap(),
        };
        let mut builder = tonic::transport::Server::builder();
        if let Some(tls) = tls {
            builder = builder.tls_config(tls).unwrap();
        }
        let serving = builder
            .add_service(ZoppServiceServer::new(server.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(serving);
        server
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn config(&self) -> ClientConfig {
        ClientConfig::new(format!("http://{}", self.address))
    }

    pub(crate) fn identity(&self) -> Identity {
        let principal = Principal {
            id: PRINCIPAL_ID.to_owned(),
            name: "operator".to_owned(),
            user_id: None,
            email: None,
            private_key: self.seed.to_hex(),
            public_key: hex::encode(self.seed.public().to_bytes()),
            x25519_private_key: Some(self.exchange.to_hex()),
            x25519_public_key: Some(hex::encode(self.exchange.public().to_bytes())),
            other: serde_json::Map::new(),
        };
        let file = ConfigFile { principals: vec![principal], ..ConfigFile::default() };
        Identity::from_config(&file, "config.json".as_ref(), None).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn client(&self) -> Client {
        self.client_with(&self.config())
    }

    pub(crate) fn client_with(&self, config: &ClientConfig) -> Client {
        Client::new(Connection::new(config).unwrap(), self.identity())
    }

    pub(crate) fn reader(&self) -> EnvironmentReader {
        EnvironmentReader::new(self.client(), name())
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls since the last time.
    pub(crate) fn take_calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.state().calls)
    }

    fn admit(&self, call: &'static str, request: &Request<impl Message>) -> Result<(), Status> {
        let mut state = self.state();
        state.calls.push(call);
        if let Some(refusal) = &state.refusal {
            return Err(Status::new(refusal.code(), refusal.message()));
        }
        let text = |key: &str| request.metadata().get(key).map(|value| value.to_str().unwrap());
        let signed = Signed::parse(
            text(signature::TIMESTAMP_KEY).unwrap(),
            text(signature::SIGNATURE_KEY).unwrap(),
            text(signature::REQUEST_HASH_KEY),
        )
        .unwrap();
        assert_eq!(text(signature::PRINCIPAL_ID_KEY), Some(PRINCIPAL_ID));
        assert!(request.metadata().contains_key("grpc-timeout") || call == "WatchSecrets");
        let body = request.get_ref().encode_to_vec();
        if state.refuse_repeats && !state.signatures.insert(signed.signature) {
            return Err(Status::unauthenticated("this very request was received before; to repeat it, sign it again"));
        }
        signature::verify(state.generation, &self.seed.public(), &method_path(call), &body, &signed)
            .map_err(|error| Status::unauthenticated(error.to_string()))
    }
}

impl State {
    pub(crate) fn set(&mut self, key: &str, value: &[u8]) {
        let sealed = self.dek.encrypt(&name(), key, &SecretValue::new(value.to_vec())).unwrap();
        let secret = Secret { key: key.to_owned(), nonce: sealed.nonce.to_vec(), ciphertext: sealed.ciphertext };
        self.secrets.insert(key.to_owned(), secret);
        self.version += 1;
    }

    /// Deletes the environment and makes it again under the same name.
    pub(crate) fn recreate(&mut self) {
        self.dek = Dek::generate().unwrap();
        self.recreated += 1;
        self.environment_id = match self.recreated {
            1 => "second".to_owned(),
            times => format!("made anew {times} times"),
        };
        self.secrets.clear();
        self.version = 0;
    }
}

#[tonic::async_trait]
impl ZoppService for Server {
    async fn get_principal_export(
        &self,
        _: Request<GetPrincipalExportRequest>,
    ) -> Result<Response<GetPrincipalExportResponse>, Status> {
        let mut state = self.state();
        state.calls.push("GetPrincipalExport");
        match state.generation {
            Profile::V1 => Err(Status::unimplemented("")),
            Profile::V2 => Err(Status::not_found("no such export")),
        }
    }

    async fn get_workspace_keys(
        &self,
        request: Request<GetWorkspaceKeysRequest>,
    ) -> Result<Response<WorkspaceKeys>, Status> {
        self.admit("GetWorkspaceKeys", &request)?;
        let wrapped = self.kek.wrap_for(&self.exchange.public(), "workspace-id").unwrap();
        Ok(Response::new(WorkspaceKeys {
            workspace_id: "workspace-id".to_owned(),
            ephemeral_pub: wrapped.ephemeral_public.to_bytes().to_vec(),
            kek_wrapped: wrapped.sealed.ciphertext,
            kek_nonce: wrapped.sealed.nonce.to_vec(),
            ..WorkspaceKeys::default()
        }))
    }

    async fn get_environment(&self, request: Request<GetEnvironmentRequest>) -> Result<Response<Environment>, Status> {
        self.admit("GetEnvironment", &request)?;
        let state = self.state();
        let sealed = state.dek.wrap(&self.kek, &name()).unwrap();
        Ok(Response::new(Environment {
            id: state.environment_id.clone(),
            dek_wrapped: sealed.ciphertext,
            dek_nonce: sealed.nonce.to_vec(),
            ..Environment::default()
        }))
    }

    async fn list_secrets(&self, request: Request<ListSecretsRequest>) -> Result<Response<SecretList>, Status> {
        self.admit("ListSecrets", &request)?;
        let mut state = self.state();
        if let Some(left) = state.recreated_before_lists.checked_sub(1) {
            state.recreated_before_lists = left;
            state.recreate();
        }
        Ok(Response::new(SecretList { secrets: state.secrets.values().cloned().collect(), version: state.version }))
    }

    async fn watch_secrets(
        &self,
        request: Request<WatchSecretsRequest>,
    ) -> Result<Response<BoxStream<WatchSecretsResponse>>, Status> {
        self.admit("WatchSecrets", &request)?;
        self.state().last_watch = Some(request.into_inner());
        let events = BroadcastStream::new(self.events.subscribe());
        Ok(Response::new(Box::pin(events.map(|event| event.map_err(|_| Status::data_loss("lagged"))))))
    }
}
