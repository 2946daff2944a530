//! Limits: hostile callers stop nobody.

use std::{io::ErrorKind, net::SocketAddr};

use konverge_zopp_crypto::SigningSeed;
use konverge_zopp_proto as proto;
use konverge_zopp_server::{
    limits::Limits,
    serve::{Options, Server, TlsFiles},
};
use konverge_zopp_testing::{Authority, Issued};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use crate::{
    database::Saboteur,
    harness::{World, join_request, list_request, now, register_request, upsert, workspace_request},
};

/// Larger than any name, smaller than the largest request.
const HUGE: usize = 3 * 1024 * 1024;

fn exhausted<T>(result: Result<T, Status>, flag: &str) {
    let refused = result.err().expect("it is refused");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains(flag), "{flag} is not in: {}", refused.message());
}

#[tokio::test]
async fn a_huge_name_is_neither_quoted_nor_recorded() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let service = world.service(&mut owner).await;
    let huge = || "x".repeat(HUGE);
    let mut messages = Vec::new();
    let mut check = |result: Result<(), Status>| messages.push(result.unwrap_err());

    // Callers without any right.
    let list = |change: &dyn Fn(&mut proto::ListSecretsRequest)| {
        let mut request = list_request();
        change(&mut request);
        service.sign("ListSecrets", request)
    };
    check(world.client().list_secrets(list(&|request| request.workspace_name = huge())).await.map(drop));
    check(world.client().list_secrets(list(&|request| request.project_name = huge())).await.map(drop));
    check(world.client().list_secrets(list(&|request| request.environment_name = huge())).await.map(drop));
    let mut secret = upsert("A");
    secret.key = huge();
    check(world.client().upsert_secret(service.sign("UpsertSecret", secret)).await.map(drop));
    let get = proto::GetPrincipalRequest { principal_id: huge() };
    check(world.client().get_principal(service.sign("GetPrincipal", get)).await.map(drop));
    let invite = proto::CreateInviteRequest {
        workspace_ids: vec![uuid::Uuid::now_v7().to_string(); 100_000],
        expires_at: now() + 60,
        ..Default::default()
    };
    check(world.client().create_invite(service.sign("CreateInvite", invite)).await.map(drop));
    let create = proto::CreateWorkspaceRequest { name: huge(), ..workspace_request("x") };
    check(world.client().create_workspace(service.sign("CreateWorkspace", create)).await.map(drop));
    // And callers who are nobody.
    let seed = SigningSeed::generate().unwrap();
    check(world.client().join(join_request(&huge(), "a@example.com", &seed)).await.map(drop));
    check(world.client().join(join_request("token", &huge(), &seed)).await.map(drop));
    check(world.client().register(register_request("a@example.com", &huge(), &seed)).await.map(drop));
    check(world.client().get_invite(proto::GetInviteRequest { token: huge() }).await.map(drop));
    let login = proto::LoginRequest { principal_name: huge(), email: "a@example.com".into(), ..Default::default() };
    check(world.client().login(login).await.map(drop));
    for refused in messages {
        // Roles come before arguments; a request that may be larger is refused by its caller's role.
        let code = refused.code();
        assert!(matches!(code, Code::InvalidArgument | Code::PermissionDenied), "{code:?}");
        assert!(refused.message().len() < 400, "{} bytes", refused.message().len());
    }

    let directory = world.end().await;
    let query = "SELECT CAST(max(length(resource_id) + length(coalesce(reason, '')) + length(coalesce(details, ''))) AS BIGINT) \
                 FROM audit_logs";
    let (longest,): (i64,) = Saboteur::of(&directory).await.rows(query).await.remove(0);
    assert!(longest < 1024, "{longest} bytes are on record");
}

#[tokio::test]
async fn values_and_environments_are_bounded() {
    let limits = Limits { value_bytes: 100, environment_keys: 3, environment_bytes: 250, ..Limits::default() };
    let world = World::start_limited(limits).await;
    let owner = world.owner().await;
    let set = async |key: &str, length: usize| {
        let mut request = upsert(key);
        request.ciphertext = vec![7; length];
        world.client().upsert_secret(owner.sign("UpsertSecret", request)).await.map(drop)
    };
    // The tag of 16 bytes is not the value's.
    set("A", 116).await.unwrap();
    exhausted(set("A", 117).await, "--max-value-bytes");
    set("B", 116).await.unwrap();
    exhausted(set("C", 19).await, "--max-environment-bytes");
    set("C", 16).await.unwrap();
    exhausted(set("D", 16).await, "--max-environment-keys");
    // Existing secrets can be replaced and deleted, and a deletion makes room.
    set("A", 16).await.unwrap();
    set("C", 116).await.unwrap();
    exhausted(set("B", 117).await, "--max-value-bytes");
    let [workspace_name, project_name, environment_name] = crate::harness::names();
    let delete = proto::DeleteSecretRequest { workspace_name, project_name, environment_name, key: "B".into() };
    world.client().delete_secret(owner.sign("DeleteSecret", delete)).await.unwrap();
    set("D", 100).await.unwrap();
    exhausted(set("D", 116 + 3).await, "--max-");
    let listed = world.client().list_secrets(owner.sign("ListSecrets", list_request())).await.unwrap();
    assert_eq!(listed.into_inner().secrets.len(), 3);
}

#[tokio::test]
async fn what_one_user_makes_is_bounded() {
    let limits = Limits { workspaces: 2, environments: 2, invites: 1, principals: 2, ..Limits::default() };
    let world = World::start_limited(limits).await;
    let mut owner = world.owner().await;
    owner.create_environment("staging").await.unwrap();
    exhausted(owner.create_environment("dev").await, "--max-environments");
    owner.create_workspace("second").await;
    let third = owner.sign("CreateWorkspace", workspace_request("third"));
    exhausted(owner.client.create_workspace(third).await, "--max-workspaces");
    owner.add_device("owner@example.com", "tablet").await.unwrap();
    exhausted(owner.add_device("owner@example.com", "phone").await, "--max-principals");
    world.service(&mut owner).await;
    world.service(&mut owner).await;
    let service = crate::harness::service_request("acme", &SigningSeed::generate().unwrap());
    exhausted(owner.client.register(owner.sign("Register", service)).await, "--max-principals");

    let id = world.workspace_id().await;
    let invite = |token: &str| proto::CreateInviteRequest {
        workspace_ids: vec![id.clone()],
        expires_at: now() + 60,
        token: token.into(),
        kek_encrypted: vec![1; 48],
        kek_nonce: vec![2; 24],
    };
    owner.client.create_invite(owner.sign("CreateInvite", invite("one"))).await.unwrap();
    exhausted(owner.client.create_invite(owner.sign("CreateInvite", invite("two"))).await, "--max-invites");
    let revoke = owner.sign("RevokeInvite", proto::RevokeInviteRequest { token: "one".into() });
    owner.client.revoke_invite(revoke).await.unwrap();
    owner.client.create_invite(owner.sign("CreateInvite", invite("two"))).await.unwrap();
}

#[tokio::test]
async fn watches_are_bounded_and_given_back() {
    let world = World::start_limited(Limits { watches: 2, ..Limits::default() }).await;
    let mut owner = world.owner().await;
    let first = owner.watch(None).await.unwrap();
    let _second = owner.watch(None).await.unwrap();
    exhausted(owner.watch(None).await, "--max-watches");
    // Others are not concerned.
    let mut other = world.member(&owner, "bob@example.com", Some("read")).await;
    let _others = other.watch(None).await.unwrap();
    drop(first);
    let given_back = async {
        while owner.watch(None).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::harness::DEADLINE, given_back).await.expect("a watch that ended makes room");
}

#[tokio::test]
async fn requests_under_way_are_bounded_and_given_back() {
    let world = World::start_limited(Limits { requests: 4, ..Limits::default() }).await;
    let owner = world.owner().await;
    let mut other = world.member(&owner, "bob@example.com", Some("write")).await;
    let mut writes = tokio::task::JoinSet::new();
    for number in 0..64 {
        let request = owner.sign("UpsertSecret", upsert(&format!("K{number}")));
        let mut client = world.client();
        writes.spawn(async move { client.upsert_secret(request).await.map(drop) });
    }
    // Others are not concerned.
    other.set("OTHER").await.unwrap();
    let ended = writes.join_all().await;
    let refused: Vec<_> = ended.into_iter().filter_map(Result::err).collect();
    assert!(!refused.is_empty() && refused.len() <= 60, "{} were refused", refused.len());
    for refused in refused {
        exhausted::<()>(Err(refused), "--max-requests");
    }
    world.client().upsert_secret(owner.sign("UpsertSecret", upsert("AFTER"))).await.unwrap();
}

#[tokio::test]
async fn one_principal_does_not_use_up_the_memory_of_signatures() {
    let world = World::start_limited(Limits { changes: 8, ..Limits::default() }).await;
    let owner = world.owner().await;
    let mut hostile = world.member(&owner, "mallory@example.com", None).await;
    let mut refused = None;
    for number in 0..40 {
        // Refused changes count as well: their signatures must be remembered, too.
        let answer = hostile.set(&format!("K{number}")).await.unwrap_err();
        if answer.code() == Code::ResourceExhausted {
            refused = Some((number, answer));
            break;
        }
    }
    let (number, refused) = refused.expect("the share is used up");
    assert_eq!(number, 8, "{refused}");
    assert!(refused.message().contains("--max-changes"), "{refused}");
    let wait: u32 = refused.metadata().get("retry-after").unwrap().to_str().unwrap().parse().unwrap();
    assert!((1..=91).contains(&wait), "{wait}");
    // Reads go on, and everybody else does.
    assert_eq!(hostile.list().await.unwrap_err().code(), Code::PermissionDenied);
    let mut other = world.member(&owner, "bob@example.com", Some("write")).await;
    other.set("A").await.unwrap();
}

#[tokio::test]
async fn a_bound_that_is_hit_again_and_again_is_recorded_once() {
    let world = World::start_limited(Limits { value_bytes: 1, ..Limits::default() }).await;
    let mut owner = world.owner().await;
    for number in 0..10 {
        exhausted(owner.set(&format!("K{number}")).await, "--max-value-bytes");
    }
    let rows = world.into_audit_trail().await;
    let errors = rows.iter().filter(|(action, result, ..)| action == "secret.update" && result == "error").count();
    assert_eq!(errors, 1, "{rows:?}");
}

#[tokio::test]
async fn a_stranger_calls_without_a_signature_so_often_and_no_more() {
    let world = World::start_limited(Limits { open_calls: 5, ..Limits::default() }).await;
    let stranger = async || world.client().get_invite(proto::GetInviteRequest { token: "guess".into() }).await;
    for _ in 0..5 {
        assert_eq!(stranger().await.unwrap_err().code(), Code::NotFound);
    }
    for _ in 0..10 {
        let refused = stranger().await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        let wait: u32 = refused.metadata().get("retry-after").unwrap().to_str().unwrap().parse().unwrap();
        assert!((1..=13).contains(&wait), "{wait}");
    }
    // The other open calls count together with it, and what a stranger says about its address is not believed.
    let seed = SigningSeed::generate().unwrap();
    let mut request = tonic::Request::new(join_request("token", "a@example.com", &seed));
    request.metadata_mut().insert("x-forwarded-for", "198.51.100.7".parse().unwrap());
    exhausted(world.client().join(request).await, "--max-open-calls");
    exhausted(world.client().register(register_request("a@example.com", "x", &seed)).await, "--max-open-calls");
    exhausted(world.client().login(proto::LoginRequest::default()).await, "--max-open-calls");
    let rows = world.into_audit_trail().await;
    let refused =
        |wanted: &str| rows.iter().filter(|(action, result, ..)| action == wanted && result == "error").count();
    assert_eq!((refused("invite.read"), refused("user.join"), refused("user.register")), (1, 1, 1), "{rows:?}");
}

/// The bytes that a connection receives until the other side closes it; `None` if it does not.
async fn until_closed(mut connection: TcpStream) -> Option<Vec<u8>> {
    let mut received = Vec::new();
    match timeout(crate::harness::DEADLINE, connection.read_to_end(&mut received)).await {
        Ok(Err(error)) if error.kind() != ErrorKind::ConnectionReset => None,
        Ok(_) => Some(received),
        Err(_) => None,
    }
}

#[tokio::test]
async fn connections_are_bounded_and_silent_ones_end() {
    let world = World::start_limited(Limits { connections_per_address: 3, ..Limits::default() }).await;
    let mut owner = world.owner().await;
    let connect = async |address: SocketAddr| TcpStream::connect(address).await.unwrap();
    let silent = [connect(world.address).await, connect(world.address).await];
    assert_eq!(until_closed(connect(world.address).await).await, Some(Vec::new()), "one too many, and nobody answers");
    owner.set("A").await.unwrap();
    for connection in silent {
        assert!(until_closed(connection).await.is_some(), "it never said anything");
    }
    // An ended stream makes room.
    let again = [connect(world.address).await, connect(world.address).await];
    owner.set("B").await.unwrap();
    drop(again);
}

#[tokio::test]
async fn a_handshake_that_is_not_finished_ends() {
    let directory = tempfile::tempdir().unwrap();
    let Issued { certificate, key } = Authority::new().unwrap().issue("localhost").unwrap();
    let [certificate, key] = [("cert.pem", certificate), ("key.pem", key)].map(|(name, content)| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        Some(path)
    });
    let tls = TlsFiles { certificate, key, client_authority: None };
    let options = Options { tls, ..crate::database::options(&directory).await };
    let server = Server::bind(options).await.unwrap();
    let (address, stop) = (server.address(), CancellationToken::new());
    let running = tokio::spawn(server.run(stop.clone()));
    let mut connection = TcpStream::connect(address).await.unwrap();
    // The first byte of a handshake, which ends the wait for a first byte.
    connection.write_all(&[0x16]).await.unwrap();
    assert_eq!(until_closed(connection).await, Some(Vec::new()));
    stop.cancel();
    running.await.unwrap().unwrap();
}
