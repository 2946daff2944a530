//! The audit log after calls.

use std::time::Duration;

use konverge_zopp_proto::{self as proto, Role};
use konverge_zopp_server::{admin, args::AuditCommand, serve::Options, store::Store};
use tonic::Code;

use crate::{
    database::{location, options},
    harness::{Person, World, code, names},
    team::call,
};

#[tokio::test]
async fn changes_reads_and_refusals_are_on_record_with_their_origin() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut service = world.service(&mut owner).await;
    owner.set("A").await.unwrap();
    owner.set("A").await.unwrap();
    service.list().await.unwrap_err();
    owner.grant(&service.principal_id, proto::Role::Read).await.unwrap();
    service.list().await.unwrap();
    service.get("A").await.unwrap();
    service.get("B").await.unwrap_err();
    service.set("A").await.unwrap_err();
    owner.set("A:B").await.unwrap_err();
    let (owner_id, service_id) = (owner.principal_id.clone(), service.principal_id.clone());

    let trail = world.into_audit_trail().await;
    let count = |action: &str, result: &str, principal: &str| {
        trail
            .iter()
            .filter(|row| (row.0.as_str(), row.1.as_str(), row.2.as_str()) == (action, result, principal))
            .count()
    };
    for (action, result, principal, times) in [
        ("user.join", "success", &owner_id, 1),
        ("workspace.create", "success", &owner_id, 1),
        ("project.create", "success", &owner_id, 1),
        ("environment.create", "success", &owner_id, 1),
        ("principal.create", "success", &owner_id, 1),
        ("secret.create", "success", &owner_id, 1),
        ("secret.update", "success", &owner_id, 1),
        ("secret.update", "invalid_request", &owner_id, 1),
        ("permission.set_workspace", "success", &owner_id, 1),
        ("secret.list", "permission_denied", &service_id, 1),
        ("secret.list", "success", &service_id, 1),
        ("secret.read", "success", &service_id, 1),
        ("secret.read", "not_found", &service_id, 1),
        ("secret.update", "permission_denied", &service_id, 1),
    ] {
        assert_eq!(count(action, result, principal), times, "{action} {result}: {trail:?}");
    }
    assert!(trail.iter().all(|row| row.3.as_deref() == Some("127.0.0.1")), "{trail:?}");
}

fn everything() -> proto::ListAuditLogsRequest {
    proto::ListAuditLogsRequest { workspace_name: "acme".into(), ..Default::default() }
}

async fn list(person: &Person, request: proto::ListAuditLogsRequest) -> Vec<proto::AuditLogEntry> {
    call!(person, list_audit_logs: "ListAuditLogs", request).unwrap().entries
}

async fn count(person: &Person, request: proto::CountAuditLogsRequest) -> u64 {
    call!(person, count_audit_logs: "CountAuditLogs", request).unwrap().count
}

/// Rows that the writer holds are in the file soon.
async fn eventually<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + crate::harness::DEADLINE;
    loop {
        if let Some(done) = attempt().await {
            return done;
        }
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_log_is_listed_counted_and_filtered() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut service = world.service(&mut owner).await;
    owner.grant(&service.principal_id, Role::Read).await.unwrap();
    owner.set("A").await.unwrap();
    service.get("A").await.unwrap();
    service.get("missing").await.unwrap_err();
    owner.create_environment("staging").await.unwrap();
    eventually("the refused read is on record", async || {
        let request = proto::ListAuditLogsRequest { result: Some("not_found".into()), ..everything() };
        (list(&owner, request).await.len() == 1).then_some(())
    })
    .await;

    let all = list(&owner, everything()).await;
    assert!(all.is_sorted_by(|newer, older| newer.timestamp >= older.timestamp), "newest first");
    let total = call!(owner, list_audit_logs: "ListAuditLogs", everything()).unwrap().total_count;
    assert_eq!(total, all.len() as u64);
    let actions =
        |entries: &[proto::AuditLogEntry]| entries.iter().map(|entry| entry.action.clone()).collect::<Vec<_>>();

    // Each filter by itself.
    let by = |change: fn(&mut proto::ListAuditLogsRequest, &str), value: &str| {
        let mut request = everything();
        change(&mut request, value);
        list(&owner, request)
    };
    let of_service = by(|request, id| request.principal_id = Some(id.into()), &service.principal_id).await;
    assert_eq!(actions(&of_service), ["secret.read", "secret.read"]);
    let of_user = by(|request, id| request.user_id = Some(id.into()), &owner.user_id).await;
    assert!(!of_user.is_empty() && of_user.iter().all(|entry| entry.user_id() == owner.user_id));
    let reads = by(|request, action| request.action = Some(action.into()), "secret.read").await;
    assert_eq!(reads.len(), 2);
    let refused = by(|request, result| request.result = Some(result.into()), "not_found").await;
    assert_eq!((refused[0].resource_id.as_str(), refused[0].reason().is_empty()), ("missing", false));
    let staging = by(|request, name| request.environment_name = Some(name.into()), "staging").await;
    assert_eq!(actions(&staging), ["environment.create"]);
    let backend = by(|request, name| request.project_name = Some(name.into()), "backend").await;
    assert!(backend.len() < all.len() && backend.iter().all(|entry| entry.project_id == staging[0].project_id));
    let by_id = by(|request, id| request.project_name = Some(id.into()), staging[0].project_id()).await;
    assert_eq!(by_id.len(), backend.len(), "what is gone is found by its id");

    // From is inclusive, to is exclusive.
    let moment = &refused[0].timestamp;
    let from = proto::ListAuditLogsRequest { from_timestamp: Some(moment.clone()), ..everything() };
    assert!(list(&owner, from).await.iter().any(|entry| entry.id == refused[0].id));
    let to = proto::ListAuditLogsRequest { to_timestamp: Some(moment.clone()), ..everything() };
    assert!(list(&owner, to).await.iter().all(|entry| entry.timestamp < *moment && entry.id != refused[0].id));

    // Pages.
    let page = proto::ListAuditLogsRequest { limit: Some(2), offset: Some(1), ..everything() };
    let page = call!(owner, list_audit_logs: "ListAuditLogs", page).unwrap();
    assert_eq!(page.total_count, total);
    assert_eq!(page.entries, all[1..3]);

    // Counting goes by the same filters.
    let counted = proto::CountAuditLogsRequest {
        workspace_name: "acme".into(),
        principal_id: Some(service.principal_id.clone()),
        project_name: Some("backend".into()),
        environment_name: Some("production".into()),
        action: Some("secret.read".into()),
        result: Some("success".into()),
        ..Default::default()
    };
    assert_eq!(count(&owner, counted).await, 1);
    let none = proto::CountAuditLogsRequest {
        workspace_name: "acme".into(),
        user_id: Some(uuid::Uuid::now_v7().to_string()),
        ..Default::default()
    };
    assert_eq!(count(&owner, none).await, 0);

    let get = |workspace: &str, id: &str| proto::GetAuditLogRequest {
        workspace_name: workspace.into(),
        audit_log_id: id.into(),
    };
    let entry = call!(owner, get_audit_log: "GetAuditLog", get("acme", &refused[0].id)).unwrap();
    assert_eq!(entry, refused[0]);
    owner.create_workspace("other").await;
    let elsewhere = call!(owner, get_audit_log: "GetAuditLog", get("other", &refused[0].id));
    assert_eq!(code(elsewhere), Code::NotFound, "an entry is its own workspace's");
    assert_eq!(code(call!(owner, get_audit_log: "GetAuditLog", get("acme", "x"))), Code::InvalidArgument);
}

#[tokio::test]
async fn filters_that_make_no_sense_are_refused() {
    let world = World::start().await;
    let owner = world.owner().await;
    let text = |text: &str| Some(text.to_owned());
    for (what, request) in [
        ("principal_id", proto::ListAuditLogsRequest { principal_id: text("x"), ..everything() }),
        ("user_id", proto::ListAuditLogsRequest { user_id: text("x"), ..everything() }),
        ("action", proto::ListAuditLogsRequest { action: text("x"), ..everything() }),
        ("result", proto::ListAuditLogsRequest { result: text("x"), ..everything() }),
        ("from_timestamp", proto::ListAuditLogsRequest { from_timestamp: text("yesterday"), ..everything() }),
        ("to_timestamp", proto::ListAuditLogsRequest { to_timestamp: text("1700000000"), ..everything() }),
    ] {
        let refused = call!(owner, list_audit_logs: "ListAuditLogs", request).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{what}");
        assert!(refused.message().starts_with(what), "{refused}");
    }
    // The original knows these actions, and records none of them either.
    for action in ["principal.remove", "invite.consume"] {
        let request = proto::ListAuditLogsRequest { action: text(action), ..everything() };
        assert_eq!(call!(owner, list_audit_logs: "ListAuditLogs", request).unwrap().total_count, 0);
    }
    for request in [
        proto::ListAuditLogsRequest { project_name: text("none"), ..everything() },
        proto::ListAuditLogsRequest { environment_name: text("none"), ..everything() },
        proto::ListAuditLogsRequest { workspace_name: "none".into(), ..everything() },
    ] {
        assert_eq!(code(call!(owner, list_audit_logs: "ListAuditLogs", request)), Code::NotFound);
    }
}

/// A writer, which is the highest role that is not enough; and a service that is an admin, which is.
#[tokio::test]
async fn only_admins_read_the_log() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let writer = world.member(&owner, "writer@example.com", Some("write")).await;
    let stranger = world.join("stranger@example.com").await;
    let auditor = world.service(&mut owner).await;
    let id = list(&owner, everything()).await[0].id.clone();
    let get = || proto::GetAuditLogRequest { workspace_name: "acme".into(), audit_log_id: id.clone() };
    let counted = || proto::CountAuditLogsRequest { workspace_name: "acme".into(), ..Default::default() };
    for (person, expected) in
        [(&writer, Code::PermissionDenied), (&stranger, Code::NotFound), (&auditor, Code::PermissionDenied)]
    {
        assert_eq!(code(call!(person, list_audit_logs: "ListAuditLogs", everything())), expected);
        assert_eq!(code(call!(person, get_audit_log: "GetAuditLog", get())), expected);
        assert_eq!(code(call!(person, count_audit_logs: "CountAuditLogs", counted())), expected);
    }
    owner.grant(&auditor.principal_id, Role::Admin).await.unwrap();
    assert!(!list(&auditor, everything()).await.is_empty());
}

/// S13: handed out keys, refused lookups and bad signatures.
#[tokio::test]
async fn keys_lookups_and_forged_requests_are_on_record() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let service = world.service(&mut owner).await;
    let member = world.member(&owner, "member@example.com", None).await;
    let keys = proto::GetWorkspaceKeysRequest { workspace_name: "acme".into() };
    call!(service, get_workspace_keys: "GetWorkspaceKeys", keys.clone()).unwrap();
    let [workspace_name, project_name, environment_name] = names();
    let environment = proto::GetEnvironmentRequest { workspace_name, project_name, environment_name };
    call!(owner, get_environment: "GetEnvironment", environment.clone()).unwrap();
    call!(service, get_environment: "GetEnvironment", environment).unwrap_err();
    let projects = proto::ListProjectsRequest { workspace_name: "acme".into() };
    call!(member, list_projects: "ListProjects", projects).unwrap_err();
    let environments = proto::ListEnvironmentsRequest { workspace_name: "acme".into(), project_name: "backend".into() };
    call!(owner, list_environments: "ListEnvironments", environments).unwrap();
    // Signed for another request, and not signed at all.
    let mut forged = member.sign("GetWorkspaceKeys", keys.clone());
    forged.get_mut().workspace_name = "other".into();
    assert_eq!(code(world.client().get_workspace_keys(forged).await), Code::Unauthenticated);
    assert_eq!(code(world.client().list_secrets(crate::harness::list_request()).await), Code::Unauthenticated);
    let (owner_id, service_id, member_id) =
        (owner.principal_id.clone(), service.principal_id.clone(), member.principal_id.clone());

    let trail = world.into_audit_trail().await;
    for (action, result, principal) in [
        ("workspace.read_key", "success", service_id.as_str()),
        ("environment.read", "success", owner_id.as_str()),
        ("environment.list", "success", owner_id.as_str()),
        ("environment.read", "permission_denied", service_id.as_str()),
        ("project.list", "permission_denied", member_id.as_str()),
        ("workspace.read_key", "permission_denied", "anonymous"),
        ("secret.list", "permission_denied", "anonymous"),
    ] {
        let wanted = |row: &&crate::harness::AuditEntry| {
            (row.0.as_str(), row.1.as_str(), row.2.as_str()) == (action, result, principal)
        };
        assert_eq!(trail.iter().filter(wanted).count(), 1, "{action} {result} {principal}: {trail:?}");
    }
}

#[tokio::test]
async fn polls_of_an_operator_are_one_row_that_counts_them() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut service = world.service(&mut owner).await;
    owner.grant(&service.principal_id, Role::Read).await.unwrap();
    for _ in 0..5 {
        service.list().await.unwrap();
        owner.list().await.unwrap();
    }
    let (service_id, owner_id) = (service.principal_id.clone(), owner.principal_id.clone());
    let directory = world.end().await;
    let world = World::start_in(directory, Options::RECHECK).await;
    let saboteur = world.saboteur().await;
    let rows = async |principal: &str| -> Vec<(String,)> {
        let lists = "SELECT details FROM audit_logs WHERE action = 'secret.list'";
        saboteur.rows(&format!("{lists} AND principal_id = '{principal}'")).await
    };
    let polls = rows(&service_id).await;
    assert_eq!(polls.len(), 1, "{polls:?}");
    assert!(polls[0].0.contains("\"repeated\":4") && polls[0].0.contains("\"count\":0"), "{polls:?}");
    assert_eq!(rows(&owner_id).await.len(), 5, "a person's reads are told one by one");
}

#[tokio::test]
async fn a_read_fails_on_demand_when_it_cannot_be_recorded() {
    for required in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let mut options = options(&directory).await;
        options.audit.required = required;
        let world = World::start_as(directory, options).await;
        let mut owner = world.owner().await;
        owner.set("A").await.unwrap();
        owner.get("A").await.unwrap();
        let saboteur = world.saboteur().await;
        saboteur.fill_audit_log().await;
        let read = owner.get("A").await;
        assert_eq!(read.as_ref().err().map(tonic::Status::code), required.then_some(Code::Unavailable), "{read:?}");
        assert_eq!(owner.watch(None).await.is_err(), required);
        saboteur.empty_audit_log().await;
        owner.get("A").await.unwrap();
    }
}

#[tokio::test]
async fn rows_beyond_the_retention_are_deleted() {
    let world = World::start().await;
    let owner = world.owner().await;
    let saboteur = world.saboteur().await;
    let old = list(&owner, everything()).await.pop().unwrap();
    let age = format!("UPDATE audit_logs SET timestamp = timestamp - 3 * 86400000 WHERE id = '{}'", old.id);
    saboteur.run(&age).await;
    let kept = list(&owner, everything()).await.len() - 1;
    let directory = world.end().await;
    let mut options = options(&directory).await;
    options.audit.retention = Some(Duration::from_hours(48));
    let world = World::start_as(directory, options).await;
    let owner = Person::new(owner.user_id, owner.principal_id, owner.seed, world.client());
    let left = eventually("the old row is deleted", async || {
        let left = list(&owner, everything()).await;
        left.iter().all(|entry| entry.id != old.id).then_some(left)
    })
    .await;
    assert_eq!(left.len(), kept, "and no other");
}

/// Data from the original is accepted and served. It is refused only if its encryption context would be ambiguous, or if the key may contain a
/// value.
#[tokio::test]
async fn keys_of_the_original_are_taken_and_served() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    for key in ["my key", "a+b", " x"] {
        owner.set(key).await.unwrap();
        assert_eq!(owner.get(key).await.unwrap().key, key);
    }
    assert_eq!(owner.list().await.unwrap().secrets.len(), 3);
    for key in ["a:b", "a=b"] {
        assert_eq!(code(owner.set(key).await), Code::InvalidArgument);
    }
    owner.unset("my key").await.unwrap();
}

/// The operator of the server also sees what belongs to no workspace.
#[tokio::test]
async fn the_operator_exports_all_of_it() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    owner.set("A").await.unwrap();
    assert_eq!(code(world.client().list_secrets(crate::harness::list_request()).await), Code::Unauthenticated);
    let directory = world.end().await;
    let store = Store::open(&location(&directory).await).await.unwrap();
    let lines = async |from: Option<&str>| {
        let command = AuditCommand::Export { from: from.map(|time| time.parse().unwrap()), to: None };
        let mut out = Vec::new();
        admin::audit(&store, &command, &mut out).await.unwrap();
        String::from_utf8(out).unwrap()
    };
    let text = lines(None).await;
    let times: Vec<_> =
        text.lines().map(|line| line.split("\"timestamp\":\"").nth(1).unwrap().split('"').next().unwrap()).collect();
    assert!(times.is_sorted() && times.iter().all(|time| time.parse::<jiff::Timestamp>().is_ok()), "{times:?}");
    for (action, result, principal) in [
        ("user.join", "success", owner.principal_id.as_str()),
        ("secret.create", "success", owner.principal_id.as_str()),
        ("secret.list", "permission_denied", "anonymous"),
    ] {
        let wanted = |line: &&str| {
            [("action", action), ("result", result), ("principal_id", principal)]
                .iter()
                .all(|(field, value)| line.contains(&format!("\"{field}\":\"{value}\"")))
        };
        assert_eq!(text.lines().filter(wanted).count(), 1, "{action}: {text}");
    }
    assert_eq!(
        lines(times.last().copied()).await.lines().count(),
        times.iter().filter(|time| Some(*time) == times.last()).count()
    );
    assert_eq!(lines(Some("2999-01-01T00:00:00Z")).await, "");
}
