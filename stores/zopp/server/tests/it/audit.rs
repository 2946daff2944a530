//! What is on record afterwards.

use konverge_zopp_proto as proto;

use crate::harness::World;

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
    owner.set("A B").await.unwrap_err();
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
