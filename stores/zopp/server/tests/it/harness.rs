//! A server of one's own, and people who use it.

use std::{collections::HashSet, net::SocketAddr, path::PathBuf, sync::Mutex, time::Duration};

use konverge_zopp_crypto::{
    Profile, SigningSeed,
    signature::{self, Signed},
};
use konverge_zopp_proto::{self as proto, method_path, zopp_service_client::ZoppServiceClient};
use konverge_zopp_server::{
    serve::{Options, RunError, Server},
    store::{Location, NewInvite, Store},
};
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Status, Streaming, metadata::MetadataMap, transport::Channel};

/// Longer than anything here takes, on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Unix seconds.
pub(crate) fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// A running server with its own directory.
pub(crate) struct World {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) address: SocketAddr,
    health_address: SocketAddr,
    pub(crate) channel: Channel,
    pub(crate) store: Store,
    pub(crate) stop: CancellationToken,
    running: JoinHandle<Result<(), RunError>>,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), Options::RECHECK).await
    }

    pub(crate) async fn start_in(directory: tempfile::TempDir, recheck: Duration) -> Self {
        let options = Options { recheck, ..Options::local(location(&directory)) };
        let server = Server::bind(options).await.unwrap();
        let (address, health_address) = (server.address(), server.health_address());
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect_lazy();
        let (store, stop) = (server.store().clone(), CancellationToken::new());
        let running = tokio::spawn(server.run(stop.clone()));
        Self { directory, address, health_address, channel, store, stop, running }
    }

    /// Stops in order and starts again on the same file.
    pub(crate) async fn restart(self) -> Self {
        let directory = self.end().await;
        Self::start_in(directory, Options::RECHECK).await
    }

    /// Stops in order; everything is on disk then.
    pub(crate) async fn end(self) -> tempfile::TempDir {
        self.stop.cancel();
        tokio::time::timeout(DEADLINE, self.running).await.expect("the server stops").unwrap().unwrap();
        self.directory
    }

    pub(crate) fn client(&self) -> ZoppServiceClient<Channel> {
        ZoppServiceClient::new(self.channel.clone())
    }

    /// Whoever meddles with the database; by one connection, which knows of its own changes to the schema.
    pub(crate) async fn saboteur(&self) -> sqlx::SqlitePool {
        let url = format!("sqlite://{}", database(&self.directory).display());
        sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).connect(&url).await.unwrap()
    }

    /// What a probe is told, from the status on.
    pub(crate) async fn probe(&self, path: &str) -> String {
        let mut connection = TcpStream::connect(self.health_address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        answer.strip_prefix("HTTP/1.1 ").expect("an HTTP answer").to_owned()
    }

    /// A token for a server invite.
    pub(crate) async fn invite(&self) -> String {
        let token = hex::encode(SigningSeed::generate().unwrap().expose());
        let invite = NewInvite {
            token: &token,
            workspace_ids: &[],
            expires_at: now() + 3600,
            kek_encrypted: None,
            kek_nonce: None,
        };
        self.store.create_invite(&invite, None).await.unwrap();
        token
    }

    /// A new user.
    pub(crate) async fn join(&self, email: &str) -> Person {
        let seed = SigningSeed::generate().unwrap();
        let request = join_request(&self.invite().await, email, &seed);
        let answer = self.client().join(request).await.unwrap().into_inner();
        Person::new(answer.user_id, answer.principal_id, seed, self.client())
    }

    /// A user who owns workspace `acme` with project `backend` and environment `production`.
    pub(crate) async fn owner(&self) -> Person {
        let mut owner = self.join("owner@example.com").await;
        owner.create_workspace("acme").await;
        let project = proto::CreateProjectRequest { workspace_name: "acme".into(), name: "backend".into() };
        owner.client.create_project(owner.sign("CreateProject", project)).await.unwrap();
        owner.create_environment("production").await.unwrap();
        owner
    }

    /// A service principal of `acme`, registered by `admin`.
    pub(crate) async fn service(&self, admin: &mut Person) -> Person {
        let seed = SigningSeed::generate().unwrap();
        let request = service_request("acme", &seed);
        let answer = admin.client.register(admin.sign("Register", request)).await.unwrap().into_inner();
        assert_eq!(answer.user_id, "");
        Person::new(String::new(), answer.principal_id, seed, self.client())
    }

    /// What is on record: action, result, principal, client ip; oldest first. Ends the server to have it all.
    pub(crate) async fn into_audit_trail(self) -> Vec<AuditEntry> {
        let directory = self.end().await;
        let url = format!("sqlite://{}", database(&directory).display());
        let pool = sqlx::SqlitePool::connect(&url).await.unwrap();
        let rows =
            sqlx::query_as("SELECT action, result, principal_id, client_ip FROM audit_logs ORDER BY timestamp, id");
        rows.fetch_all(&pool).await.unwrap()
    }
}

/// Action, result, principal, client ip.
pub(crate) type AuditEntry = (String, String, String, Option<String>);

/// So many seconds back a request is signed, which leaves enough of a signature's minute for the request to arrive.
const OLDEST: i64 = 20;

/// A principal with its key.
pub(crate) struct Person {
    pub(crate) user_id: String,
    pub(crate) principal_id: String,
    pub(crate) seed: SigningSeed,
    pub(crate) client: ZoppServiceClient<Channel>,
    /// The seconds that requests were signed for: equal ones of the same second would be replays.
    signed: Mutex<HashSet<i64>>,
}

impl Person {
    pub(crate) fn new(
        user_id: String,
        principal_id: String,
        seed: SigningSeed,
        client: ZoppServiceClient<Channel>,
    ) -> Self {
        Self { user_id, principal_id, seed, client, signed: Mutex::default() }
    }

    /// A request signed for a call, for the latest second that none was signed for.
    pub(crate) fn sign<M: Message>(&self, call: &str, message: M) -> Request<M> {
        let now = now();
        let mut signed = self.signed.lock().unwrap();
        let timestamp = (0..OLDEST).map(|age| now - age).find(|second| signed.insert(*second)).unwrap_or(now);
        drop(signed);
        self.sign_at(call, message, timestamp)
    }

    pub(crate) fn sign_at<M: Message>(&self, call: &str, message: M, timestamp: i64) -> Request<M> {
        let body = message.encode_to_vec();
        let signed = signature::sign(Profile::V2, &self.seed, &method_path(call), &body, timestamp);
        let mut request = Request::new(message);
        attach(request.metadata_mut(), &self.principal_id, &signed);
        request
    }

    pub(crate) async fn create_workspace(&mut self, name: &str) -> String {
        let request = workspace_request(name);
        let made = self.client.create_workspace(self.sign("CreateWorkspace", request)).await.unwrap();
        made.into_inner().id
    }

    pub(crate) async fn create_environment(&mut self, name: &str) -> Result<proto::Environment, Status> {
        let request = proto::CreateEnvironmentRequest {
            workspace_name: "acme".into(),
            project_name: "backend".into(),
            name: name.into(),
            dek_wrapped: vec![4; 48],
            dek_nonce: vec![5; 24],
        };
        let made = self.client.create_environment(self.sign("CreateEnvironment", request)).await?;
        Ok(made.into_inner())
    }

    pub(crate) async fn delete_environment(&mut self) -> Result<(), Status> {
        let request = proto::DeleteEnvironmentRequest {
            workspace_name: "acme".into(),
            project_name: "backend".into(),
            environment_name: "production".into(),
        };
        self.client.delete_environment(self.sign("DeleteEnvironment", request)).await.map(drop)
    }

    pub(crate) async fn set(&mut self, key: &str) -> Result<(), Status> {
        self.client.upsert_secret(self.sign("UpsertSecret", upsert(key))).await.map(drop)
    }

    pub(crate) async fn unset(&mut self, key: &str) -> Result<(), Status> {
        let [workspace_name, project_name, environment_name] = names();
        let request = proto::DeleteSecretRequest { workspace_name, project_name, environment_name, key: key.into() };
        self.client.delete_secret(self.sign("DeleteSecret", request)).await.map(drop)
    }

    pub(crate) async fn get(&mut self, key: &str) -> Result<proto::Secret, Status> {
        let [workspace_name, project_name, environment_name] = names();
        let request = proto::GetSecretRequest { workspace_name, project_name, environment_name, key: key.into() };
        Ok(self.client.get_secret(self.sign("GetSecret", request)).await?.into_inner())
    }

    pub(crate) async fn list(&mut self) -> Result<proto::SecretList, Status> {
        Ok(self.client.list_secrets(self.sign("ListSecrets", list_request())).await?.into_inner())
    }

    pub(crate) async fn watch(
        &mut self,
        since_version: Option<i64>,
    ) -> Result<Streaming<proto::WatchSecretsResponse>, Status> {
        let [workspace_name, project_name, environment_name] = names();
        let request = proto::WatchSecretsRequest { workspace_name, project_name, environment_name, since_version };
        Ok(self.client.watch_secrets(self.sign("WatchSecrets", request)).await?.into_inner())
    }

    /// Sets the grant of a principal on the workspace.
    pub(crate) async fn grant(&mut self, principal_id: &str, role: proto::Role) -> Result<(), Status> {
        let request = proto::SetWorkspacePermissionRequest {
            workspace_name: "acme".into(),
            principal_id: principal_id.into(),
            role: role.into(),
        };
        self.client.set_workspace_permission(self.sign("SetWorkspacePermission", request)).await.map(drop)
    }

    /// Removes the grant of a principal on the workspace.
    pub(crate) async fn revoke(&mut self, principal_id: &str) -> Result<(), Status> {
        let request = proto::RemoveWorkspacePermissionRequest {
            workspace_name: "acme".into(),
            principal_id: principal_id.into(),
        };
        self.client.remove_workspace_permission(self.sign("RemoveWorkspacePermission", request)).await.map(drop)
    }
}

pub(crate) fn attach(metadata: &mut MetadataMap, principal_id: &str, signed: &Signed) {
    metadata.insert(signature::PRINCIPAL_ID_KEY, principal_id.parse().unwrap());
    metadata.insert(signature::TIMESTAMP_KEY, signed.timestamp.to_string().parse().unwrap());
    metadata.insert(signature::SIGNATURE_KEY, signed.signature_hex().parse().unwrap());
    if let Some(hash) = signed.request_hash_hex() {
        metadata.insert(signature::REQUEST_HASH_KEY, hash.parse().unwrap());
    }
}

pub(crate) fn join_request(token: &str, email: &str, seed: &SigningSeed) -> proto::JoinRequest {
    proto::JoinRequest {
        invite_token: token.into(),
        email: email.into(),
        principal_name: "laptop".into(),
        public_key: seed.public().to_bytes().to_vec(),
        x25519_public_key: vec![9; 32],
        ..Default::default()
    }
}

pub(crate) fn service_request(workspace: &str, seed: &SigningSeed) -> proto::RegisterRequest {
    proto::RegisterRequest {
        email: String::new(),
        principal_name: "operator".into(),
        public_key: seed.public().to_bytes().to_vec(),
        x25519_public_key: vec![9; 32],
        is_service: true,
        workspace_name: Some(workspace.into()),
        ephemeral_pub: Some(vec![1; 32]),
        kek_wrapped: Some(vec![2; 48]),
        kek_nonce: Some(vec![3; 24]),
    }
}

pub(crate) fn workspace_request(name: &str) -> proto::CreateWorkspaceRequest {
    proto::CreateWorkspaceRequest {
        id: uuid::Uuid::now_v7().to_string(),
        name: name.into(),
        ephemeral_pub: vec![1; 32],
        kek_wrapped: vec![2; 48],
        kek_nonce: vec![3; 24],
    }
}

/// Workspace, project and environment of [`World::owner`].
pub(crate) fn names() -> [String; 3] {
    ["acme".into(), "backend".into(), "production".into()]
}

pub(crate) fn list_request() -> proto::ListSecretsRequest {
    let [workspace_name, project_name, environment_name] = names();
    proto::ListSecretsRequest { workspace_name, project_name, environment_name }
}

pub(crate) fn upsert(key: &str) -> proto::UpsertSecretRequest {
    let [workspace_name, project_name, environment_name] = names();
    proto::UpsertSecretRequest {
        workspace_name,
        project_name,
        environment_name,
        key: key.into(),
        nonce: vec![6; 24],
        ciphertext: vec![7; 20],
    }
}

/// The code of what must be an error.
pub(crate) fn code<T>(result: Result<T, Status>) -> Code {
    result.err().expect("it is refused").code()
}

pub(crate) fn location(directory: &tempfile::TempDir) -> Location {
    Location { path: database(directory), create: true }
}

pub(crate) fn database(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("zopp.db")
}
