//! Joining, registering, logging in, and who cannot.

use konverge_zopp_crypto::{Profile, SigningSeed, signature};
use konverge_zopp_proto::{self as proto, method_path};
use konverge_zopp_server::policy::Policy;
use prost::Message;
use tonic::Code;

use crate::harness::{Person, World, code, join_request, now, register_request};

#[tokio::test]
async fn the_bootstrap_from_invite_to_a_service_that_reads() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    owner.set("DATABASE_URL").await.unwrap();
    let mut service = world.service(&mut owner).await;
    assert_eq!(code(service.list().await), Code::PermissionDenied, "holding the key gives no role");
    owner.grant(&service.principal_id, proto::Role::Read).await.unwrap();

    let listed = service.list().await.unwrap();
    assert_eq!((listed.secrets[0].key.as_str(), listed.version), ("DATABASE_URL", 1));
    assert_eq!(code(service.set("A").await), Code::PermissionDenied);
    let keys = proto::GetWorkspaceKeysRequest { workspace_name: "acme".into() };
    let keys = service.client.get_workspace_keys(service.sign("GetWorkspaceKeys", keys)).await.unwrap();
    assert_eq!(keys.into_inner().kek_wrapped, vec![2; 48]);
    let denied = service.client.list_workspaces(service.sign("ListWorkspaces", proto::Empty {})).await;
    assert_eq!(code(denied), Code::Unauthenticated, "services have no workspaces of a user");

    let services = proto::ListWorkspaceServicePrincipalsRequest { workspace_name: "acme".into() };
    let services = owner.sign("ListWorkspaceServicePrincipals", services);
    let services = owner.client.list_workspace_service_principals(services).await.unwrap().into_inner();
    assert_eq!(services.service_principals[0].name, "operator");
}

#[tokio::test]
async fn an_email_alone_opens_nobodys_account() {
    let world = World::start().await;
    let owner = world.owner().await;
    let mallory = world.join("mallory@example.com").await;
    let seed = SigningSeed::generate().unwrap();

    for email in ["owner@example.com", "Owner@Example.COM "] {
        let request = register_request(email, "stolen", &seed);
        assert_eq!(code(world.client().register(request.clone()).await), Code::PermissionDenied);
        let signed = mallory.sign("Register", request);
        assert_eq!(code(world.client().register(signed).await), Code::PermissionDenied);

        let request = join_request(&world.invite().await, email, &seed);
        assert_eq!(code(world.client().join(request.clone()).await), Code::PermissionDenied);
        let signed = mallory.sign("Join", request);
        assert_eq!(code(world.client().join(signed).await), Code::PermissionDenied);
    }
    let principals = owner.sign("ListPrincipals", proto::Empty {});
    let principals = world.client().list_principals(principals).await.unwrap().into_inner();
    assert_eq!(principals.principals.len(), 1);
}

#[tokio::test]
async fn a_user_adds_principals_by_signing_for_them() {
    let world = World::start().await;
    let owner = world.owner().await;
    let seed = SigningSeed::generate().unwrap();
    let request = owner.sign("Register", register_request("OWNER@example.com", "desktop", &seed));
    let answer = world.client().register(request).await.unwrap().into_inner();
    assert_eq!(answer.user_id, owner.user_id);

    // The new one is the same user, and as good.
    let desktop = Person::new(answer.user_id, answer.principal_id, seed, world.client());
    let listed = world.client().list_workspaces(desktop.sign("ListWorkspaces", proto::Empty {})).await.unwrap();
    assert_eq!(listed.into_inner().workspaces[0].name, "acme");

    let again = owner.sign("Register", register_request("owner@example.com", "desktop", &desktop.seed));
    assert_eq!(code(world.client().register(again).await), Code::AlreadyExists);
}

#[tokio::test]
async fn a_new_email_registers_without_a_workspace_where_registration_is_open() {
    let world = World::start_with(Policy { open_registration: true, ..Policy::default() }).await;
    let seed = SigningSeed::generate().unwrap();
    let answer =
        world.client().register(register_request("new@example.com", "laptop", &seed)).await.unwrap().into_inner();
    let new = Person::new(answer.user_id, answer.principal_id, seed, world.client());
    let listed = world.client().list_workspaces(new.sign("ListWorkspaces", proto::Empty {})).await.unwrap();
    assert!(listed.into_inner().workspaces.is_empty());
}

#[tokio::test]
async fn login_is_signed_with_its_signature_left_out() {
    let world = World::start().await;
    let owner = world.owner().await;
    let mut request = proto::LoginRequest {
        email: "Owner@example.com".into(),
        principal_name: "laptop".into(),
        timestamp: now(),
        signature: Vec::new(),
    };
    let signed =
        signature::sign(Profile::V2, &owner.seed, &method_path("Login"), &request.encode_to_vec(), request.timestamp);
    request.signature = signed.signature.to_vec();
    let answer = world.client().login(request.clone()).await.unwrap().into_inner();
    assert_eq!((answer.user_id, answer.principal_id), (owner.user_id.clone(), owner.principal_id.clone()));

    assert_eq!(code(world.client().login(request.clone()).await), Code::Unauthenticated, "a replay");
    request.timestamp -= 1;
    assert_eq!(code(world.client().login(request.clone()).await), Code::Unauthenticated, "not what was signed");
    request.signature.truncate(10);
    assert_eq!(code(world.client().login(request.clone()).await), Code::Unauthenticated, "no signature at all");
    request.principal_name = "nobody".into();
    assert_eq!(code(world.client().login(request.clone()).await), Code::NotFound);
    // An attacker must not learn by guessing which devices a user has: ten wrong attempts, of which these were four.
    for _ in 0..6 {
        assert_eq!(code(world.client().login(request.clone()).await), Code::NotFound);
    }
    let refused = world.client().login(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.metadata().contains_key("retry-after") && refused.message().contains("logins"), "{refused}");
}

#[tokio::test]
async fn a_service_principal_needs_an_admin() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let outsider = world.join("outsider@example.com").await;
    let request = crate::harness::service_request("acme", &SigningSeed::generate().unwrap());
    assert_eq!(code(world.client().register(request.clone()).await), Code::Unauthenticated);
    let signed = outsider.sign("Register", request.clone());
    assert_eq!(code(world.client().register(signed).await), Code::NotFound, "the workspace is not there for others");
    let mut service = world.service(&mut owner).await;
    let signed = service.sign("Register", request);
    assert_eq!(code(service.client.register(signed).await), Code::PermissionDenied);
}
