//! Limits: hostile callers stop nobody.

use std::{io::ErrorKind, net::SocketAddr};

use konverge_zopp_crypto::SigningSeed;
use konverge_zopp_proto::{self as proto, zopp_service_client::ZoppServiceClient};
use konverge_zopp_server::{
    limits::Limits,
    serve::{Options, Server, TlsFiles},
};
use konverge_zopp_testing::{Authority, Issued, UnfinishedRequest};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, transport::Channel};

use crate::{
    command::{Serving, program, set_up, stdout},
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
    let limits = Limits {
        workspaces: 2,
        environments: 2,
        invites: 1,
        principals: 2,
        groups: 1,
        exports: 1,
        ..Limits::default()
    };
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

    let group = |name: &str| {
        let request =
            proto::CreateGroupRequest { workspace_name: "acme".into(), name: name.into(), ..Default::default() };
        owner.sign("CreateGroup", request)
    };
    world.client().create_group(group("first")).await.unwrap();
    exhausted(world.client().create_group(group("second")).await, "--max-groups");
    let export = |digit: &str| {
        let request = proto::CreatePrincipalExportRequest {
            token_hash: digit.repeat(64),
            verification_salt: vec![1; 16],
            encrypted_data: vec![2; 200],
            salt: vec![3; 16],
            nonce: vec![4; 24],
            expires_at: now() + 3600,
        };
        owner.sign("CreatePrincipalExport", request)
    };
    world.client().create_principal_export(export("a")).await.unwrap();
    exhausted(world.client().create_principal_export(export("b")).await, "--max-exports");
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

/// A request of which so many bytes arrive, and no more.
fn unfinished(bytes: usize) -> UnfinishedRequest {
    UnfinishedRequest::new(u32::try_from(HUGE).unwrap(), bytes)
}

#[tokio::test]
async fn requests_that_never_end_take_a_share_of_the_memory_and_no_more() {
    const MIB: usize = 1024 * 1024;
    let world = World::start_limited(Limits { request_bytes_per_address: 4 * 1024 * 1024, ..Limits::default() }).await;
    let mut owner = world.owner().await;
    let mut hostile = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (request, channel) = (unfinished(MIB), world.channel.clone());
        hostile.spawn(async move { request.send(channel).await.unwrap() });
    }
    // Three of them fit, each with its base.
    for _ in 0..17 {
        let refused = timeout(crate::harness::DEADLINE, hostile.join_next()).await.expect("there is no room for it");
        exhausted::<()>(Err(refused.unwrap().unwrap()), "--max-request-bytes-per-address");
    }
    let text = world.probe("/metrics").await;
    assert!(text.contains("limits_reached_total{limit=\"--max-request-bytes-per-address\"} 17\n"), "{text}");
    // Requests of the usual size go on, from the same address; a large one has no room until the others are gone.
    owner.set("A").await.unwrap();
    let large = || {
        let mut request = upsert("LARGE");
        request.ciphertext = vec![7; 2 * MIB];
        owner.sign("UpsertSecret", request)
    };
    exhausted(world.client().upsert_secret(large()).await, "--max-request-bytes-per-address");
    assert_eq!(hostile.len(), 3);
    hostile.shutdown().await;
    let given_back = async { while world.client().upsert_secret(large()).await.is_err() {} };
    timeout(crate::harness::DEADLINE, given_back).await.expect("a request that ended makes room");
}

/// The most memory that a server ever had, in bytes.
fn peak(serving: &Serving) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", serving.child.id().unwrap())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn hostile_callers_do_not_fill_the_memory() {
    const MIB: u64 = 1024 * 1024;
    let directory = tempfile::tempdir().unwrap();
    let mut invite = program(directory.path());
    let token = stdout(&invite.args(["--db", "zopp.db", "invite", "create", "--plain"]).output().unwrap());
    let mut server = program(directory.path());
    server.args(["--db", "zopp.db"]);
    let mut serving = Serving::start_as(server).await;
    let before = peak(&serving);
    // A member makes the largest environment, and lists it on many connections without taking an answer.
    let mut member = serving.join(token.trim()).await;
    set_up(&mut member).await;
    for key in ["A", "B", "C", "D"] {
        let mut request = upsert(key);
        request.ciphertext = vec![7; 2 * 1024 * 1024 - 16];
        member.client.upsert_secret(member.sign("UpsertSecret", request)).await.unwrap();
    }
    let mut lists = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let deaf = Channel::from_shared(serving.url.clone()).unwrap().initial_stream_window_size(0);
        let client = ZoppServiceClient::new(deaf.connect().await.unwrap());
        for _ in 0..10 {
            let (mut client, request) = (client.clone(), member.sign("ListSecrets", list_request()));
            lists.spawn(async move { client.list_secrets(request).await.map(drop) });
        }
    }
    // One of them holds all that an address may have, so the others wait in vain.
    for _ in 0..99 {
        let refused = timeout(crate::harness::DEADLINE, lists.join_next()).await.expect("there is no room for it");
        exhausted(refused.unwrap().unwrap(), "--max-answer-bytes");
    }
    lists.shutdown().await;
    let connect = || async { Channel::from_shared(serving.url.clone()).unwrap().connect().await.unwrap() };
    let request = unfinished(512 * 1024);
    let mut hostile = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let channel = connect().await;
        for _ in 0..40 {
            let (request, channel) = (request.clone(), channel.clone());
            hostile.spawn(async move { request.send(channel).await.unwrap() });
        }
    }
    // Without a limit, all of them would stay: 400 MiB.
    for _ in 0..700 {
        let refused = timeout(crate::harness::DEADLINE, hostile.join_next()).await.expect("there is no room for it");
        exhausted::<()>(Err(refused.unwrap().unwrap()), "--max-request-bytes-per-address");
    }
    hostile.shutdown().await;
    let huge = "x".repeat(HUGE);
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (mut client, huge) = (ZoppServiceClient::new(connect().await), huge.clone());
        callers.spawn(async move {
            for _ in 0..10 {
                let seed = SigningSeed::generate().unwrap();
                client.join(join_request(&huge, "a@example.com", &seed)).await.unwrap_err();
                client.get_invite(proto::GetInviteRequest { token: huge.clone() }).await.unwrap_err();
            }
        });
    }
    callers.join_all().await;
    // An idle server has less than 20 MiB, and less than 64 at all times. This program is not optimised, which makes its code larger, not its data.
    let grown = (peak(&serving) - before) / MIB;
    assert!(grown < 44, "{grown} MiB beyond the {} MiB of an idle server", before / MIB);
}

#[tokio::test]
async fn one_connection_carries_all_that_a_principal_may_have_open() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut streams = Vec::new();
    // More than an HTTP/2 server lets a connection carry by default.
    for _ in 0..250 {
        let opened = timeout(crate::harness::DEADLINE, owner.watch(None)).await.expect("there is room for it");
        streams.push(opened.unwrap());
    }
    timeout(crate::harness::DEADLINE, owner.set("A")).await.expect("and for other calls").unwrap();
    for stream in &mut streams {
        timeout(crate::harness::DEADLINE, stream.message()).await.expect("each is told").unwrap();
    }
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

/// Each way to reach a limit counts by the flag of the limit, and the audit log names the caller once a minute.
#[tokio::test]
async fn each_reached_limit_is_counted_by_its_flag_and_recorded_once_a_minute() {
    let limits = Limits { environments: 1, watches: 1, requests: 1, changes: 8, ..Limits::default() };
    let world = World::start_limited(limits).await;
    let mut owner = world.owner().await;
    let mut writer = world.member(&owner, "bob@example.com", Some("write")).await;
    // Found by a handler, and by the database in a transaction.
    let open = owner.watch(None).await.unwrap();
    for name in ["staging", "testing"] {
        exhausted(owner.watch(None).await, "--max-watches");
        exhausted(owner.create_environment(name).await, "--max-environments");
    }
    drop(open);
    // Before the call begins.
    for number in 0..8 {
        writer.set(&format!("K{number}")).await.unwrap();
    }
    for _ in 0..3 {
        exhausted(writer.set("LAST").await, "--max-changes");
    }
    let saboteur = world.saboteur().await;
    let lock = saboteur.lock().await;
    // Neither of two changes can end, so one of them comes while the other is under way.
    let mut changes = tokio::task::JoinSet::new();
    for key in ["ONE", "TWO"] {
        let (mut client, change) = (world.client(), owner.sign("UpsertSecret", upsert(key)));
        changes.spawn(async move { client.upsert_secret(change).await });
    }
    let refused = timeout(crate::harness::DEADLINE, changes.join_next()).await.expect("one is refused");
    exhausted(refused.unwrap().unwrap(), "--max-requests");
    lock.release().await;
    changes.join_next().await.unwrap().unwrap().unwrap();
    let mut other = world.client();
    // Of an address, for which nobody signed.
    for number in 0..13 {
        let code = format!("exp_guess{number:03}");
        let guess = proto::GetPrincipalExportRequest { export_code: code, token_hash: String::new() };
        let refused = other.get_principal_export(guess).await.unwrap_err();
        if number < 10 {
            assert_eq!(refused.code(), Code::NotFound, "{refused}");
        } else {
            assert!(refused.metadata().contains_key("retry-after"), "{refused:?}");
            exhausted::<()>(Err(refused), "wrong export codes");
        }
    }

    let text = world.probe("/metrics").await;
    for (limit, hits) in
        [("--max-watches", 2), ("--max-environments", 2), ("--max-changes", 3), ("--max-requests", 1), ("built-in", 3)]
    {
        let line = format!("zopp_server_limits_reached_total{{limit=\"{limit}\"}} {hits}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
    let rows = world.into_audit_trail().await;
    for (action, principal) in [
        ("secret.watch", &owner.principal_id),
        ("environment.create", &owner.principal_id),
        ("secret.update", &writer.principal_id),
        ("secret.update", &owner.principal_id),
        ("principal_export.read", &"anonymous".to_owned()),
    ] {
        let is_of = |row: &&crate::harness::AuditEntry| (&*row.0, &*row.1, &row.2) == (action, "error", principal);
        assert_eq!(rows.iter().filter(is_of).count(), 1, "{action}: {rows:?}");
    }
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
async fn connections_of_probes_are_bounded_and_silent_ones_end() {
    let world = World::start().await;
    let mut silent = Vec::new();
    for _ in 0..32 {
        silent.push(TcpStream::connect(world.health_address).await.unwrap());
    }
    let one_too_many = TcpStream::connect(world.health_address).await.unwrap();
    assert_eq!(until_closed(one_too_many).await, Some(Vec::new()), "nobody answers");
    for connection in silent {
        assert!(until_closed(connection).await.is_some(), "it never said anything");
    }
    assert!(world.probe("/readyz").await.starts_with("200"));
    let text = world.probe("/metrics").await;
    assert!(text.contains("zopp_server_connections_refused_total{limit=\"--health-addr\"} 1\n"), "{text}");
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
