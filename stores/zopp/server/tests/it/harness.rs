//! A server of one's own, and people who use it.

use std::{collections::HashSet, net::SocketAddr, sync::Mutex, time::Duration};

use konverge_zopp_crypto::{
    Profile, SigningSeed, X25519Private,
    signature::{self, Signed},
};
use konverge_zopp_proto::{
    self as proto,
    identity::{self, identity_client::IdentityClient},
    method_path,
    secrets::{self, secrets_client::SecretsClient},
    zopp_service_client::ZoppServiceClient,
};
use konverge_zopp_server::{
    limits::Limits,
    policy::Policy,
    serve::{Options, RunError, Server},
    store::{NewInvite, Store},
};
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Status, Streaming, metadata::MetadataMap, transport::Channel};

use crate::database::{Saboteur, options};

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
    pub(crate) health_address: SocketAddr,
    pub(crate) channel: Channel,
    pub(crate) store: Store,
    pub(crate) stop: CancellationToken,
    running: JoinHandle<Result<(), RunError>>,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), Options::RECHECK).await
    }

    /// With other limits than the usual ones.
    pub(crate) async fn start_limited(limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { limits, ..options(&directory).await };
        Self::start_as(directory, options).await
    }

    /// With another policy than the usual one.
    pub(crate) async fn start_with(policy: Policy) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { policy, ..options(&directory).await };
        Self::start_as(directory, options).await
    }

    pub(crate) async fn start_in(directory: tempfile::TempDir, recheck: Duration) -> Self {
        let options = Options { recheck, ..options(&directory).await };
        Self::start_as(directory, options).await
    }

    pub(crate) async fn start_as(directory: tempfile::TempDir, options: Options) -> Self {
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

    pub(crate) fn identity(&self) -> IdentityClient<Channel> {
        IdentityClient::new(self.channel.clone())
    }

    pub(crate) fn secrets(&self) -> SecretsClient<Channel> {
        SecretsClient::new(self.channel.clone())
    }

    /// Somebody who alters the database.
    pub(crate) async fn saboteur(&self) -> Saboteur {
        Saboteur::of(&self.directory).await
    }

    /// The response to a probe, from the status on.
    pub(crate) async fn probe(&self, path: &str) -> String {
        probe(&self.health_address.to_string(), path).await
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
            max_uses: None,
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

    /// A new user with a role (none if `None`) in workspace `acme`, who joined by an invite of the owner's.
    pub(crate) async fn member(&self, owner: &Person, email: &str, role: Option<&str>) -> Person {
        let seed = SigningSeed::generate().unwrap();
        let request = self.workspace_join(owner, email, &seed).await;
        let answer = self.client().join(request).await.unwrap().into_inner();
        if let Some(role) = role {
            self.give_role(&answer.user_id, role).await;
        }
        Person::new(answer.user_id, answer.principal_id, seed, self.client())
    }

    /// A request to join `acme` by a new invite of the owner's.
    pub(crate) async fn workspace_join(&self, owner: &Person, email: &str, seed: &SigningSeed) -> proto::JoinRequest {
        let token = hex::encode(SigningSeed::generate().unwrap().expose());
        let listed = self.client().list_workspaces(owner.sign("ListWorkspaces", proto::Empty {})).await.unwrap();
        let acme = listed.into_inner().workspaces.into_iter().find(|workspace| workspace.name == "acme").unwrap();
        let request = proto::CreateInviteRequest {
            workspace_ids: vec![acme.id],
            expires_at: now() + 3600,
            token: token.clone(),
            kek_encrypted: vec![1; 48],
            kek_nonce: vec![2; 24],
        };
        self.client().create_invite(owner.sign("CreateInvite", request)).await.unwrap();
        proto::JoinRequest {
            ephemeral_pub: vec![1; 32],
            kek_wrapped: vec![2; 48],
            kek_nonce: vec![3; 24],
            ..join_request(&token, email, seed)
        }
    }

    /// The id of workspace `acme`.
    pub(crate) async fn workspace_id(&self) -> String {
        let saboteur = self.saboteur().await;
        let (id,): (String,) = saboteur.rows("SELECT id FROM workspaces WHERE name = 'acme'").await.remove(0);
        id
    }

    /// Gives a user a role in workspace `acme`, past the server.
    pub(crate) async fn give_role(&self, user_id: &str, role: &str) {
        let saboteur = self.saboteur().await;
        let give = format!(
            "INSERT INTO user_workspace_permissions (workspace_id, user_id, role, created_at, updated_at) \
             SELECT id, '{user_id}', '{role}', 0, 0 FROM workspaces WHERE name = 'acme' \
             ON CONFLICT (workspace_id, user_id) DO UPDATE SET role = excluded.role"
        );
        saboteur.run(&give).await;
    }

    /// A service principal of `acme`, registered by `admin`.
    pub(crate) async fn service(&self, admin: &mut Person) -> Person {
        let seed = SigningSeed::generate().unwrap();
        let request = service_request("acme", &seed);
        let answer = admin.client.register(admin.sign("Register", request)).await.unwrap().into_inner();
        assert_eq!(answer.user_id, "");
        Person::new(String::new(), answer.principal_id, seed, self.client())
    }

    /// The audit log: action, result, principal, client address; oldest first. Ends the server to have it all.
    pub(crate) async fn into_audit_trail(self) -> Vec<AuditEntry> {
        let directory = self.end().await;
        let all = "SELECT action, result, principal_id, client_ip FROM audit_logs ORDER BY timestamp, id";
        Saboteur::of(&directory).await.rows(all).await
    }
}

/// The response to a probe at an address, from the status on.
pub(crate) async fn probe(address: &str, path: &str) -> String {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    answer.strip_prefix("HTTP/1.1 ").expect("an HTTP answer").to_owned()
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
    /// The requests that were signed, each with its second: equal ones of the same second would be replays.
    signed: Mutex<HashSet<(i64, String, Vec<u8>)>>,
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

    /// A request signed for a call, for the latest second that an equal one was not signed for.
    pub(crate) fn sign<M: Message>(&self, call: &str, message: M) -> Request<M> {
        let now = now();
        let mut signed = self.signed.lock().unwrap();
        let body = message.encode_to_vec();
        let is_new = |second: &i64| signed.insert((*second, call.to_owned(), body.clone()));
        let timestamp = (0..OLDEST).map(|age| now - age).find(is_new).unwrap_or(now);
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

    /// A request signed for a call of our own about identities.
    pub(crate) fn sign_own<M: Message>(&self, call: &str, message: M) -> Request<M> {
        self.sign_path(&identity::method_path(call), message)
    }

    /// A request signed for a call of our own about environments.
    pub(crate) fn sign_secrets<M: Message>(&self, call: &str, message: M) -> Request<M> {
        self.sign_path(&secrets::method_path(call), message)
    }

    fn sign_path<M: Message>(&self, path: &str, message: M) -> Request<M> {
        let signed = self.sign("", ());
        let timestamp = signed.metadata().get(signature::TIMESTAMP_KEY).unwrap().to_str().unwrap().parse().unwrap();
        let body = message.encode_to_vec();
        let signed = signature::sign(Profile::V2, &self.seed, path, &body, timestamp);
        let mut request = Request::new(message);
        attach(request.metadata_mut(), &self.principal_id, &signed);
        request
    }

    pub(crate) async fn disable(&self, world: &World, principal_id: &str) -> Result<String, Status> {
        let request = identity::DisablePrincipalRequest { principal_id: principal_id.into(), even_if_last_key: false };
        let answer = world.identity().disable_principal(self.sign_own("DisablePrincipal", request)).await?;
        Ok(answer.into_inner().name)
    }

    pub(crate) async fn enable(&self, world: &World, principal_id: &str) -> Result<String, Status> {
        let request = identity::EnablePrincipalRequest { principal_id: principal_id.into() };
        let answer = world.identity().enable_principal(self.sign_own("EnablePrincipal", request)).await?;
        Ok(answer.into_inner().name)
    }

    pub(crate) async fn remove_member(
        &self,
        world: &World,
        email: &str,
    ) -> Result<identity::RemoveMemberResponse, Status> {
        let request = identity::RemoveMemberRequest { workspace_name: "acme".into(), user_email: email.into() };
        Ok(world.identity().remove_member(self.sign_own("RemoveMember", request)).await?.into_inner())
    }

    pub(crate) async fn remove_user(&self, world: &World, email: &str) -> Result<identity::RemoveUserResponse, Status> {
        let request = identity::RemoveUserRequest { user_email: email.into() };
        Ok(world.identity().remove_user(self.sign_own("RemoveUser", request)).await?.into_inner())
    }

    pub(crate) async fn transfer(&self, world: &World, email: &str) -> Result<(), Status> {
        let request = identity::TransferOwnershipRequest { workspace_name: "acme".into(), user_email: email.into() };
        world.identity().transfer_ownership(self.sign_own("TransferOwnership", request)).await.map(drop)
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

    /// Sets the grant of a principal on the environment.
    pub(crate) async fn grant_environment(&mut self, principal_id: &str, role: proto::Role) -> Result<(), Status> {
        let [workspace_name, project_name, environment_name] = names();
        let request = proto::SetEnvironmentPermissionRequest {
            workspace_name,
            project_name,
            environment_name,
            principal_id: principal_id.into(),
            role: role.into(),
        };
        self.client.set_environment_permission(self.sign("SetEnvironmentPermission", request)).await.map(drop)
    }

    /// Registers a further device of the same user.
    pub(crate) async fn add_device(&self, email: &str, name: &str) -> Result<Person, Status> {
        let seed = SigningSeed::generate().unwrap();
        let request = register_request(email, name, &seed);
        let answer = self.client.clone().register(self.sign("Register", request)).await?.into_inner();
        Ok(Person::new(answer.user_id, answer.principal_id, seed, self.client.clone()))
    }

    /// Takes `acme` from a principal.
    pub(crate) async fn remove_from_workspace(&mut self, principal_id: &str) -> Result<(), Status> {
        let request = proto::RemovePrincipalFromWorkspaceRequest {
            workspace_name: "acme".into(),
            principal_id: principal_id.into(),
        };
        let request = self.sign("RemovePrincipalFromWorkspace", request);
        self.client.remove_principal_from_workspace(request).await.map(drop)
    }

    /// Hands the key of `acme` to a principal.
    pub(crate) async fn grant_access(&mut self, principal_id: &str) -> Result<(), Status> {
        let request = proto::GrantPrincipalWorkspaceAccessRequest {
            workspace_name: "acme".into(),
            principal_id: principal_id.into(),
            ephemeral_pub: vec![1; 32],
            kek_wrapped: vec![2; 48],
            kek_nonce: vec![3; 24],
        };
        let request = self.sign("GrantPrincipalWorkspaceAccess", request);
        self.client.grant_principal_workspace_access(request).await.map(drop)
    }

    /// Takes all grants in `acme` from a principal.
    pub(crate) async fn revoke_all(
        &mut self,
        principal_id: &str,
    ) -> Result<proto::RevokeAllPrincipalPermissionsResponse, Status> {
        let request = proto::RevokeAllPrincipalPermissionsRequest {
            workspace_name: "acme".into(),
            principal_id: principal_id.into(),
        };
        let request = self.sign("RevokeAllPrincipalPermissions", request);
        Ok(self.client.revoke_all_principal_permissions(request).await?.into_inner())
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

/// The public X25519 key of somebody new.
pub(crate) fn exchange_key() -> Vec<u8> {
    X25519Private::generate().unwrap().public().to_bytes().to_vec()
}

pub(crate) fn join_request(token: &str, email: &str, seed: &SigningSeed) -> proto::JoinRequest {
    proto::JoinRequest {
        invite_token: token.into(),
        email: email.into(),
        principal_name: "laptop".into(),
        public_key: seed.public().to_bytes().to_vec(),
        x25519_public_key: exchange_key(),
        ..Default::default()
    }
}

pub(crate) fn register_request(email: &str, name: &str, seed: &SigningSeed) -> proto::RegisterRequest {
    proto::RegisterRequest {
        email: email.into(),
        principal_name: name.into(),
        public_key: seed.public().to_bytes().to_vec(),
        x25519_public_key: exchange_key(),
        ..Default::default()
    }
}

pub(crate) fn service_request(workspace: &str, seed: &SigningSeed) -> proto::RegisterRequest {
    proto::RegisterRequest {
        email: String::new(),
        principal_name: "operator".into(),
        public_key: seed.public().to_bytes().to_vec(),
        x25519_public_key: exchange_key(),
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
