//! Cached rights decide nothing: the server verifies them when it answers each call, and refuses in the same words.

use std::time::Duration;

use konverge_zopp_proto::{self as proto, Role};
use konverge_zopp_testing::postgres_database;
use sqlx::{Connection, PgConnection};
use tonic::{Code, Status};

use crate::{
    harness::{Person, World, now, upsert},
    replicas::{at, on, start},
};

fn is_refused(changed: Result<(), Status>, code: Code, text: &str) {
    let refused = changed.expect_err(text);
    assert_eq!(refused.code(), code, "{refused}");
    assert!(refused.message().contains(text), "{refused}");
}

/// Waits for the next second: the same request of the same second is a replay.
async fn next_second() {
    let second = now();
    while now() == second {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Changes secrets by one server, and what that depends on by another one of the same database, or by the same.
async fn obeys(here: &World, there: &World) {
    let mut owner = here.owner().await;
    let mut admin = at(there, &owner);
    let mut service = here.service(&mut owner).await;
    let mut tablet = owner.add_device("owner@example.com", "tablet").await.unwrap();
    owner.grant(&service.principal_id, Role::Write).await.unwrap();
    for person in [&mut owner, &mut service, &mut tablet] {
        // The second time, all of it is remembered.
        person.set("A").await.unwrap();
        person.set("B").await.unwrap();
    }

    next_second().await;
    admin.delete_environment().await.unwrap();
    admin.create_environment("production").await.unwrap();
    owner.set("C").await.unwrap();
    service.set("D").await.unwrap();
    let listed = admin.list().await.unwrap();
    let keys: Vec<&str> = listed.secrets.iter().map(|secret| secret.key.as_str()).collect();
    assert_eq!((listed.version, keys), (2, vec!["C", "D"]), "another environment of the same name");
    next_second().await;
    admin.delete_environment().await.unwrap();
    is_refused(owner.set("C").await, Code::NotFound, "environment \"production\" not found");
    admin.create_environment("production").await.unwrap();
    owner.set("A").await.unwrap();
    owner.set("B").await.unwrap();
    is_refused(owner.unset("X").await, Code::NotFound, "secret \"X\" not found");

    next_second().await;
    service.set("A").await.unwrap();
    admin.grant(&service.principal_id, Role::Read).await.unwrap();
    is_refused(service.set("B").await, Code::PermissionDenied, "write role");
    is_refused(service.unset("A").await, Code::PermissionDenied, "write role");
    admin.grant(&service.principal_id, Role::Admin).await.unwrap();
    service.set("C").await.unwrap();
    admin.remove_from_workspace(&service.principal_id).await.unwrap();
    is_refused(service.set("D").await, Code::NotFound, "workspace \"acme\" not found or access denied");
    tablet.set("A").await.unwrap();
    admin.disable(there, &tablet.principal_id).await.unwrap();
    is_refused(tablet.set("D").await, Code::Unauthenticated, "disabled");
    assert!(admin.list().await.unwrap().secrets.iter().map(|secret| secret.key.as_str()).eq(["A", "B", "C"]));

    next_second().await;
    let request = proto::DeleteProjectRequest { workspace_name: "acme".into(), project_name: "backend".into() };
    admin.client.delete_project(admin.sign("DeleteProject", request)).await.unwrap();
    is_refused(owner.set("A").await, Code::NotFound, "project \"backend\" not found");
}

/// Reads secrets by one server, and changes what that depends on by another one of the same database, or by the same.
async fn reads_obey(here: &World, there: &World) {
    let mut owner = here.owner().await;
    let mut admin = at(there, &owner);
    let mut service = here.service(&mut owner).await;
    let mut member = here.member(&owner, "member@example.com", None).await;
    owner.grant_user("member@example.com", Role::Read).await.unwrap();
    let mut tablet = owner.add_device("owner@example.com", "tablet").await.unwrap();
    let mut phone = owner.add_device("owner@example.com", "phone").await.unwrap();
    owner.grant(&service.principal_id, Role::Read).await.unwrap();
    let gone = "secret \"A\" not found";
    for person in [&mut owner, &mut service, &mut member, &mut tablet, &mut phone] {
        // The second time, all of it is remembered.
        refuses(person, Code::NotFound, gone).await;
        refuses(person, Code::NotFound, gone).await;
    }

    // It is larger than all that there was.
    let large = proto::UpsertSecretRequest { ciphertext: vec![7; 100_000], ..upsert("A") };
    admin.client.upsert_secret(admin.sign("UpsertSecret", large)).await.unwrap();
    for person in [&mut owner, &mut service, &mut member, &mut tablet, &mut phone] {
        assert_eq!(person.get("A").await.unwrap().ciphertext.len(), 100_000);
    }
    admin.set("A").await.unwrap();
    for person in [&mut owner, &mut service, &mut member, &mut tablet, &mut phone] {
        assert!(person.get("A").await.unwrap().ciphertext.len() < 100_000);
    }

    next_second().await;
    admin.delete_environment().await.unwrap();
    admin.create_environment("production").await.unwrap();
    for person in [&mut owner, &mut service, &mut member, &mut tablet, &mut phone] {
        refuses(person, Code::NotFound, gone).await;
    }
    next_second().await;
    admin.delete_environment().await.unwrap();
    refuses(&mut owner, Code::NotFound, "environment \"production\" not found").await;
    refuses(&mut service, Code::NotFound, "environment \"production\" not found").await;
    admin.create_environment("production").await.unwrap();
    admin.set("A").await.unwrap();
    for person in [&mut owner, &mut service, &mut member, &mut tablet, &mut phone] {
        person.get("A").await.unwrap();
    }

    admin.revoke(&service.principal_id).await.unwrap();
    refuses(&mut service, Code::PermissionDenied, "read role").await;
    admin.grant_environment(&service.principal_id, Role::Read).await.unwrap();
    service.get("A").await.unwrap();
    is_refused(service.set("B").await, Code::PermissionDenied, "write role");
    admin.grant_environment(&service.principal_id, Role::Write).await.unwrap();
    service.set("B").await.unwrap();
    service.get("B").await.unwrap();
    let invisible = "workspace \"acme\" not found or access denied";
    admin.remove_from_workspace(&service.principal_id).await.unwrap();
    refuses(&mut service, Code::NotFound, invisible).await;
    admin.remove_member(there, "member@example.com").await.unwrap();
    refuses(&mut member, Code::NotFound, invisible).await;
    admin.remove_from_workspace(&tablet.principal_id).await.unwrap();
    refuses(&mut tablet, Code::NotFound, invisible).await;
    admin.disable(there, &phone.principal_id).await.unwrap();
    refuses(&mut phone, Code::Unauthenticated, "disabled").await;
    admin.enable(there, &phone.principal_id).await.unwrap();
    phone.get("A").await.unwrap();

    let request = proto::DeleteProjectRequest { workspace_name: "acme".into(), project_name: "backend".into() };
    admin.client.delete_project(admin.sign("DeleteProject", request)).await.unwrap();
    refuses(&mut owner, Code::NotFound, "project \"backend\" not found").await;
}

/// Reading `A` is refused.
async fn refuses(person: &mut Person, code: Code, text: &str) {
    is_refused(person.get("A").await.map(drop), code, text);
}

#[tokio::test]
async fn a_read_obeys_what_another_caller_changed() {
    let world = World::start().await;
    reads_obey(&world, &world).await;
}

#[tokio::test]
async fn a_read_obeys_what_another_replica_changed() {
    let address = postgres_database().await;
    let (one, other) = (start(on(&address)).await, start(on(&address)).await);
    reads_obey(&one, &other).await;
}

#[tokio::test]
async fn a_read_that_is_remembered_is_on_record_like_any_other() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut tablet = owner.add_device("owner@example.com", "tablet").await.unwrap();
    owner.set("A").await.unwrap();
    for _ in 0..3 {
        owner.get("A").await.unwrap();
        tablet.get("A").await.unwrap();
    }
    owner.get("B").await.unwrap_err();
    owner.disable(&world, &tablet.principal_id).await.unwrap();
    refuses(&mut tablet, Code::Unauthenticated, "disabled").await;
    let trail = world.into_audit_trail().await;
    let reads = trail.iter().filter(|(action, ..)| action == "secret.read");
    let mut reads: Vec<_> = reads.map(|(_, outcome, principal, _)| (principal.as_str(), outcome.as_str())).collect();
    let (of_owner, of_tablet) = ((owner.principal_id.as_str(), "success"), (tablet.principal_id.as_str(), "success"));
    let mut expected = vec![of_owner, of_owner, of_owner, of_tablet, of_tablet, of_tablet];
    // Equal refusals share a row. That of the disabled tablet is nobody's, as its first look would have found.
    expected.extend([(owner.principal_id.as_str(), "not_found"), ("anonymous", "permission_denied")]);
    reads.sort_unstable();
    expected.sort_unstable();
    assert_eq!(reads, expected);
}

#[tokio::test]
async fn a_change_obeys_what_another_caller_changed() {
    let world = World::start().await;
    obeys(&world, &world).await;
}

#[tokio::test]
async fn a_change_obeys_what_another_replica_changed() {
    let address = postgres_database().await;
    let (one, other) = (start(on(&address)).await, start(on(&address)).await);
    obeys(&one, &other).await;
}

#[tokio::test]
async fn a_change_that_was_signed_before_a_restore_is_refused() {
    let address = postgres_database().await;
    let world = start(on(&address)).await;
    let mut owner = world.owner().await;
    owner.set("A").await.unwrap();
    owner.set("B").await.unwrap();
    owner.get("A").await.unwrap();
    // As a restore leaves it, a minute from now.
    let mut database = PgConnection::connect(&address).await.unwrap();
    let restore = sqlx::query("INSERT INTO settings (name, value) VALUES ('restored_at', $1)");
    restore.bind((now() + 60).to_string()).execute(&mut database).await.unwrap();
    is_refused(owner.set("C").await, Code::Unauthenticated, "before the server's database was restored");
    assert_eq!(owner.list().await.unwrap().version, 2);
    owner.get("A").await.expect("reading changes nothing");
    sqlx::query("UPDATE settings SET value = '7' WHERE name = 'restored_at'").execute(&mut database).await.unwrap();
    owner.set("D").await.unwrap();
}
