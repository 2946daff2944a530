//! Disabling principals, removing members and users, handing workspaces on, invites that are used up, proofs of keys.

use std::time::Duration;

use konverge_zopp_crypto::{SigningSeed, signature};
use konverge_zopp_proto::{self as proto, Role, identity, method_path};
use konverge_zopp_server::{policy::Policy, serve::Options};
use prost::Message;
use tokio::time::timeout;
use tonic::{Code, Request, Streaming};

use crate::harness::{DEADLINE, Person, World, code, exchange_key, join_request, now, register_request};

/// How a stream without changes ends, in less time than it would take it to ask by itself.
async fn end_of(stream: &mut Streaming<proto::WatchSecretsResponse>) -> Code {
    let ended = timeout(DEADLINE.min(Options::RECHECK.mul_f32(0.9)), stream.message()).await;
    ended.expect("the stream ends at once").unwrap_err().code()
}

#[tokio::test]
async fn a_lost_device_is_cut_off_everywhere_at_once_and_can_be_let_in_again() {
    let world = World::start().await;
    let owner = world.owner().await;
    let mut lost = world.member(&owner, "bob@example.com", Some("write")).await;
    let mut tablet = lost.add_device("bob@example.com", "tablet").await.unwrap();
    tablet.set("A").await.unwrap();
    let mut stream = lost.watch(None).await.unwrap();
    let mut other_stream = tablet.watch(None).await.unwrap();

    assert_eq!(tablet.disable(&world, &lost.principal_id).await.unwrap(), "laptop");
    assert_eq!(end_of(&mut stream).await, Code::PermissionDenied);
    let refused = lost.set("A").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(refused.message().contains("disabled"), "{refused}");
    assert_eq!(code(lost.get("A").await), Code::Unauthenticated);
    let listed = lost.client.list_workspaces(lost.sign("ListWorkspaces", proto::Empty {})).await;
    assert_eq!(code(listed), Code::Unauthenticated);
    assert_eq!(code(lost.add_device("bob@example.com", "another").await), Code::Unauthenticated);
    assert_eq!(code(lost.enable(&world, &lost.principal_id).await), Code::Unauthenticated, "nor does it enable itself");
    let again = world.workspace_join(&owner, "bob@example.com", &SigningSeed::generate().unwrap()).await;
    assert_eq!(code(world.client().join(lost.sign("Join", again)).await), Code::Unauthenticated);
    // A disabled principal is handed no key.
    let mut admin = world.member(&owner, "admin@example.com", Some("admin")).await;
    assert_eq!(code(admin.grant_access(&lost.principal_id).await), Code::FailedPrecondition);

    // Others go on.
    tablet.set("B").await.unwrap();
    other_stream.message().await.unwrap().unwrap();
    tablet.enable(&world, &lost.principal_id).await.unwrap();
    lost.set("C").await.unwrap();
}

#[tokio::test]
async fn only_its_own_user_disables_a_device_and_no_weaker_one() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let bob = world.member(&owner, "bob@example.com", Some("write")).await;
    let weak = bob.add_device("bob@example.com", "weak").await.unwrap();
    owner.grant_environment(&weak.principal_id, Role::Read).await.unwrap();
    let service = world.service(&mut owner).await;
    let stranger = world.join("stranger@example.com").await;

    for (caller, target) in
        [(&stranger, &bob), (&owner, &bob), (&service, &bob), (&bob, &service), (&stranger, &service)]
    {
        assert_eq!(code(caller.disable(&world, &target.principal_id).await), Code::PermissionDenied);
    }
    let refused = weak.disable(&world, &bob.principal_id).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("ceiling"), "{refused}");
    weak.disable(&world, &weak.principal_id).await.unwrap();
    assert_eq!(code(weak.disable(&world, &weak.principal_id).await), Code::Unauthenticated, "it was its own last call");
    let nobody = uuid::Uuid::now_v7().to_string();
    assert_eq!(code(owner.disable(&world, &nobody).await), Code::NotFound);
}

#[tokio::test]
async fn a_service_is_disabled_by_an_admin_of_every_workspace_that_it_is_in() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut service = world.service(&mut owner).await;
    let id = service.principal_id.clone();
    owner.grant(&id, Role::Read).await.unwrap();
    let mut other = world.member(&owner, "other@example.com", Some("admin")).await;
    other.create_workspace("elsewhere").await;
    let grant = proto::GrantPrincipalWorkspaceAccessRequest {
        workspace_name: "elsewhere".into(),
        principal_id: id.clone(),
        ephemeral_pub: vec![1; 32],
        kek_wrapped: vec![2; 48],
        kek_nonce: vec![3; 24],
    };
    let grant = other.sign("GrantPrincipalWorkspaceAccess", grant);
    other.client.grant_principal_workspace_access(grant).await.unwrap();

    assert_eq!(code(owner.disable(&world, &id).await), Code::PermissionDenied, "no admin of the other workspace");
    let mut stream = service.watch(None).await.unwrap();
    other.disable(&world, &id).await.unwrap();
    assert_eq!(end_of(&mut stream).await, Code::PermissionDenied);
    assert_eq!(code(service.list().await), Code::Unauthenticated);
}

#[tokio::test]
async fn the_last_copy_of_a_key_is_disabled_only_on_request() {
    let world = World::start().await;
    let owner = world.owner().await;
    let tablet = owner.add_device("owner@example.com", "tablet").await.unwrap();
    let refused = tablet.disable(&world, &owner.principal_id).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("last copy") && refused.message().contains("\"acme\""), "{refused}");
    let request =
        identity::DisablePrincipalRequest { principal_id: owner.principal_id.clone(), even_if_last_key: true };
    world.identity().disable_principal(tablet.sign_own("DisablePrincipal", request)).await.unwrap();
    assert_eq!(
        code(owner.client.clone().list_workspaces(owner.sign("ListWorkspaces", proto::Empty {})).await),
        Code::Unauthenticated
    );
    tablet.enable(&world, &owner.principal_id).await.unwrap();
    let keys = proto::GetWorkspaceKeysRequest { workspace_name: "acme".into() };
    owner.client.clone().get_workspace_keys(owner.sign("GetWorkspaceKeys", keys)).await.unwrap();
}

#[tokio::test]
async fn a_removed_member_is_out_with_all_devices_roles_and_invites() {
    let world = World::start().await;
    let owner = world.owner().await;
    let seed = SigningSeed::generate().unwrap();
    let came_by = world.workspace_join(&owner, "bob@example.com", &seed).await;
    let answer = world.client().join(came_by.clone()).await.unwrap().into_inner();
    let mut bob = Person::new(answer.user_id, answer.principal_id, seed, world.client());
    world.give_role(&bob.user_id, "admin").await;
    let mut tablet = bob.add_device("bob@example.com", "tablet").await.unwrap();
    tablet.set("A").await.unwrap();
    let made = world.workspace_join(&bob, "eve@example.com", &SigningSeed::generate().unwrap()).await;
    let mut stream = tablet.watch(None).await.unwrap();

    // Members without the role remove nobody but themselves.
    let carol = world.member(&owner, "carol@example.com", Some("write")).await;
    assert_eq!(code(carol.remove_member(&world, "bob@example.com").await), Code::PermissionDenied);
    let stranger = world.join("stranger@example.com").await;
    assert_eq!(code(stranger.remove_member(&world, "bob@example.com").await), Code::NotFound);
    assert_eq!(code(bob.remove_member(&world, "stranger@example.com").await), Code::NotFound, "is no member");
    assert_eq!(code(bob.remove_member(&world, "owner@example.com").await), Code::FailedPrecondition);
    carol.remove_member(&world, "Carol@example.com").await.unwrap();

    let removed = owner.remove_member(&world, "Bob@Example.com").await.unwrap();
    assert_eq!((removed.keys_removed, removed.invites_revoked), (1, 2));
    assert_eq!(end_of(&mut stream).await, Code::PermissionDenied);
    assert_eq!(code(tablet.set("A").await), Code::NotFound);
    let keys = proto::GetWorkspaceKeysRequest { workspace_name: "acme".into() };
    assert_eq!(code(bob.client.get_workspace_keys(bob.sign("GetWorkspaceKeys", keys)).await), Code::NotFound);
    // Neither the code that brought him in nor one that he made himself lets him in again, as himself or as another.
    for (mut request, email) in [(came_by, "bob2@example.com"), (made, "eve@example.com")] {
        email.clone_into(&mut request.email);
        request.x25519_public_key = exchange_key();
        request.public_key = SigningSeed::generate().unwrap().public().to_bytes().to_vec();
        assert_eq!(code(world.client().join(request).await), Code::NotFound);
    }
    // His roles do not wait for him.
    let mut again = world.workspace_join(&owner, "bob@example.com", &SigningSeed::generate().unwrap()).await;
    again.principal_name = "again".into();
    world.client().join(bob.sign("Join", again)).await.unwrap();
    assert_eq!(code(tablet.list().await), Code::PermissionDenied);
}

#[tokio::test]
async fn the_last_copy_of_a_key_leaves_with_no_member() {
    let world = World::start().await;
    let owner = world.owner().await;
    let bob = world.member(&owner, "bob@example.com", Some("admin")).await;
    let mut tablet = owner.add_device("owner@example.com", "tablet").await.unwrap();
    tablet.remove_from_workspace(&owner.principal_id).await.unwrap();
    for refused in
        [tablet.remove_member(&world, "bob@example.com").await, bob.remove_member(&world, "bob@example.com").await]
    {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains("last copy"), "{refused}");
    }
    assert_eq!(code(bob.remove_user(&world, "bob@example.com").await), Code::FailedPrecondition);
}

#[tokio::test]
async fn a_workspace_is_handed_on_by_its_owner_to_a_member_with_its_key() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut bob = world.member(&owner, "bob@example.com", Some("admin")).await;
    world.join("stranger@example.com").await;
    assert_eq!(code(bob.transfer(&world, "bob@example.com").await), Code::PermissionDenied, "an admin is no owner");
    assert_eq!(code(owner.transfer(&world, "stranger@example.com").await), Code::NotFound);
    let mut weak = owner.add_device("owner@example.com", "weak").await.unwrap();
    owner.grant_environment(&weak.principal_id, Role::Read).await.unwrap();
    assert_eq!(
        code(weak.transfer(&world, "bob@example.com").await),
        Code::PermissionDenied,
        "a device under a ceiling"
    );

    owner.transfer(&world, "bob@example.com").await.unwrap();
    bob.set("A").await.unwrap();
    // The former owner is an admin now, and ceilings hold for the devices.
    owner.set("B").await.unwrap();
    assert_eq!(code(weak.set("C").await), Code::PermissionDenied);
    assert_eq!(code(owner.transfer(&world, "owner@example.com").await), Code::PermissionDenied);
    assert_eq!(code(owner.remove_from_workspace(&bob.principal_id).await), Code::PermissionDenied);
    bob.remove_member(&world, "owner@example.com").await.unwrap();
    assert_eq!(code(owner.set("B").await), Code::NotFound);
}

#[tokio::test]
async fn a_user_removes_only_itself_and_leaves_no_workspace_without_an_owner() {
    let world = World::start().await;
    let owner = world.owner().await;
    let mut bob = world.member(&owner, "bob@example.com", Some("write")).await;
    let mut stream = bob.watch(None).await.unwrap();
    assert_eq!(code(owner.remove_user(&world, "bob@example.com").await), Code::PermissionDenied);
    let refused = owner.remove_user(&world, "owner@example.com").await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("\"acme\""), "{refused}");
    let tablet = bob.add_device("bob@example.com", "tablet").await.unwrap();

    let removed = bob.remove_user(&world, "bob@example.com").await.unwrap();
    assert_eq!((removed.principals_removed, removed.invites_revoked), (2, 1));
    assert_eq!(end_of(&mut stream).await, Code::PermissionDenied);
    assert_eq!(
        code(tablet.client.clone().list_workspaces(tablet.sign("ListWorkspaces", proto::Empty {})).await),
        Code::Unauthenticated
    );
    // The address is free for an invited person.
    world.join("bob@example.com").await;
}

#[tokio::test]
async fn an_invite_is_used_as_often_as_it_may_be_also_by_all_at_once() {
    let world = World::start().await;
    let owner = world.owner().await;
    let token = "cd".repeat(32);
    let request = identity::CreateInviteRequest {
        workspace_id: world.workspace_id().await,
        expires_at: now() + 3600,
        token: token.clone(),
        kek_encrypted: vec![1; 48],
        kek_nonce: vec![2; 24],
        max_uses: 3,
    };
    let none = identity::CreateInviteRequest { max_uses: 0, token: "none".into(), ..request.clone() };
    assert_eq!(code(world.identity().create_invite(owner.sign_own("CreateInvite", none)).await), Code::InvalidArgument);
    let bob = world.member(&owner, "bob@example.com", Some("write")).await;
    let denied = world.identity().create_invite(bob.sign_own("CreateInvite", request.clone())).await;
    assert_eq!(code(denied), Code::PermissionDenied);
    world.identity().create_invite(owner.sign_own("CreateInvite", request)).await.unwrap();

    let mut joining = tokio::task::JoinSet::new();
    for number in 0..12 {
        let request = proto::JoinRequest {
            ephemeral_pub: vec![1; 32],
            kek_wrapped: vec![2; 48],
            kek_nonce: vec![3; 24],
            ..join_request(&token, &format!("p{number}@example.com"), &SigningSeed::generate().unwrap())
        };
        let mut client = world.client();
        joining.spawn(async move { client.join(request).await.map(drop) });
    }
    let ended = joining.join_all().await;
    assert_eq!(ended.iter().filter(|joined| joined.is_ok()).count(), 3);
    for refused in ended.into_iter().filter_map(Result::err) {
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        assert!(refused.message().contains("as often as"), "{refused}");
    }
    let shown = world.client().get_invite(proto::GetInviteRequest { token: token.clone() }).await;
    assert_eq!(code(shown), Code::NotFound, "the key in it is handed out no more");
    let listed = owner.sign_own("ListInvites", identity::ListInvitesRequest {});
    let listed = world.identity().list_invites(listed).await.unwrap().into_inner().invites;
    let uses: Vec<_> = listed.iter().map(|invite| (invite.uses, invite.max_uses)).collect();
    assert!(uses.contains(&(3, Some(3))) && uses.contains(&(1, None)), "{uses:?}");
}

/// A holder of the code can open the key without joining.
#[tokio::test]
async fn reading_the_key_of_a_limited_invite_uses_it_up() {
    let world = World::start().await;
    let owner = world.owner().await;
    let token = "ef".repeat(32);
    let request = identity::CreateInviteRequest {
        workspace_id: world.workspace_id().await,
        expires_at: now() + 3600,
        token: token.clone(),
        kek_encrypted: vec![1; 48],
        kek_nonce: vec![2; 24],
        max_uses: 2,
    };
    world.identity().create_invite(owner.sign_own("CreateInvite", request)).await.unwrap();
    let mut reading = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (mut client, token) = (world.client(), token.clone());
        reading.spawn(async move { client.get_invite(proto::GetInviteRequest { token }).await.map(drop) });
    }
    let ended = reading.join_all().await;
    assert_eq!(ended.iter().filter(|read| read.is_ok()).count(), 2);
    assert!(ended.into_iter().filter_map(Result::err).all(|refused| refused.code() == Code::NotFound));
    let listed = owner.sign_own("ListInvites", identity::ListInvitesRequest {});
    let listed = world.identity().list_invites(listed).await.unwrap().into_inner().invites;
    assert!(listed.iter().any(|invite| (invite.uses, invite.max_uses) == (2, Some(2))), "{listed:?}");
    let rows: Vec<(String, String)> =
        world.saboteur().await.rows("SELECT action, result FROM audit_logs WHERE action = 'invite.read'").await;
    assert_eq!(rows.len(), 2, "{rows:?}");
    // Users who have read the key can still join with the second of the two calls.
    let join = |email: &str| proto::JoinRequest {
        ephemeral_pub: vec![1; 32],
        kek_wrapped: vec![2; 48],
        kek_nonce: vec![3; 24],
        ..join_request(&token, email, &SigningSeed::generate().unwrap())
    };
    world.client().join(join("p1@example.com")).await.unwrap();
    world.client().join(join("p2@example.com")).await.unwrap();
    assert_eq!(code(world.client().join(join("p3@example.com")).await), Code::PermissionDenied);
}

#[tokio::test]
async fn an_invite_lives_no_longer_than_the_server_allows() {
    let world = World::start_with(Policy { invite_max_hours: 2, ..Policy::default() }).await;
    let owner = world.owner().await;
    let request = |expires_at| proto::CreateInviteRequest {
        workspace_ids: Vec::new(),
        expires_at,
        token: format!("token until {expires_at}"),
        kek_encrypted: vec![1; 48],
        kek_nonce: vec![2; 24],
    };
    let id = world.workspace_id().await;
    let request = |expires_at| proto::CreateInviteRequest { workspace_ids: vec![id.clone()], ..request(expires_at) };
    for expires_at in [now() + 3 * 3600, i64::MAX] {
        let refused = world.client().create_invite(owner.sign("CreateInvite", request(expires_at))).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains("--invite-max-hours"), "{refused}");
    }
    world.client().create_invite(owner.sign("CreateInvite", request(now() + 3600))).await.unwrap();
}

/// Adds the proof that `prover` holds the key that is registered.
fn prove<M: Message>(mut request: Request<M>, call: &str, prover: &SigningSeed) -> Request<M> {
    let proof = signature::prove_key(prover, &method_path(call), &request.get_ref().encode_to_vec());
    request.metadata_mut().insert(signature::KEY_PROOF_KEY, hex::encode(proof).parse().unwrap());
    request
}

#[tokio::test]
async fn a_key_is_registered_by_the_one_who_holds_it() {
    for required in [false, true] {
        let world = World::start_with(Policy { require_key_proof: required, ..Policy::default() }).await;
        let (seed, other) = (SigningSeed::generate().unwrap(), SigningSeed::generate().unwrap());
        let request = join_request(&world.invite().await, "ann@example.com", &seed);
        let wrong = prove(Request::new(request.clone()), "Join", &other);
        assert_eq!(code(world.client().join(wrong).await), Code::PermissionDenied);
        let mut altered = prove(Request::new(request.clone()), "Join", &seed);
        altered.get_mut().x25519_public_key = exchange_key();
        assert_eq!(code(world.client().join(altered).await), Code::PermissionDenied, "the other key is proven with it");
        let mut garbage = Request::new(request.clone());
        garbage.metadata_mut().insert(signature::KEY_PROOF_KEY, "zz".parse().unwrap());
        assert_eq!(code(world.client().join(garbage).await), Code::PermissionDenied);

        let answer = world.client().join(prove(Request::new(request), "Join", &seed)).await.unwrap().into_inner();
        let ann = Person::new(answer.user_id, answer.principal_id, seed, world.client());
        let tablet = || register_request("ann@example.com", "tablet", &other);
        let wrong = prove(ann.sign("Register", tablet()), "Register", &ann.seed);
        assert_eq!(code(world.client().register(wrong).await), Code::PermissionDenied);
        let bare = world.client().register(ann.sign("Register", tablet())).await;
        if required {
            let refused = bare.unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied);
            assert!(refused.message().contains("--require-key-proof"), "{refused}");
            world.client().register(prove(ann.sign("Register", tablet()), "Register", &other)).await.unwrap();
        } else {
            bare.unwrap();
        }
    }
}

/// As `no_write_commits_after_its_right_was_taken`, for a principal that is disabled and a member that is removed.
#[tokio::test]
async fn no_write_commits_after_an_identity_was_lost() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    for round in 0..4 {
        let email = format!("bob{round}@example.com");
        let mut bob = world.member(&owner, &email, Some("write")).await;
        bob.set(&format!("FIRST_{round}")).await.unwrap();
        let tablet = bob.add_device(&email, "tablet").await.unwrap();
        let mut writes = tokio::task::JoinSet::new();
        for number in 0..64 {
            let key = format!("K{round}_{number}");
            let (request, mut client) = (bob.sign("UpsertSecret", crate::harness::upsert(&key)), world.client());
            writes.spawn(async move { client.upsert_secret(request).await.map(drop) });
        }
        writes.join_next().await.unwrap().unwrap().unwrap();
        match round {
            0 => drop(tablet.disable(&world, &bob.principal_id).await.unwrap()),
            1 => drop(owner.remove_member(&world, &email).await.unwrap()),
            2 => drop(tablet.remove_user(&world, &email).await.unwrap()),
            _ => owner.remove_from_workspace(&bob.principal_id).await.unwrap(),
        }
        let after = owner.list().await.unwrap().version;
        writes.join_all().await;
        assert_eq!(owner.list().await.unwrap().version, after, "nothing was written after the loss, round {round}");
    }
}

/// Losses that another process makes are noticed with the next look.
#[tokio::test]
async fn a_principal_that_the_operator_disables_loses_its_stream_soon() {
    let world = World::start_in(tempfile::tempdir().unwrap(), Duration::from_millis(50)).await;
    let mut owner = world.owner().await;
    let mut service = world.service(&mut owner).await;
    owner.grant(&service.principal_id, Role::Read).await.unwrap();
    let mut stream = service.watch(None).await.unwrap();
    let mut out = Vec::new();
    let command = konverge_zopp_server::args::PrincipalCommand::Disable {
        id: service.principal_id.clone(),
        even_if_last_key: false,
    };
    konverge_zopp_server::admin::principal(&world.store, &command, &mut out).await.unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "Principal 'operator' disabled\n");
    assert_eq!(end_of(&mut stream).await, Code::PermissionDenied);
    assert_eq!(code(service.list().await), Code::Unauthenticated);

    let remove = |email: &str| konverge_zopp_server::args::UserCommand::Remove { email: email.into() };
    let kept = konverge_zopp_server::admin::user(&world.store, &remove("owner@example.com"), &mut Vec::new()).await;
    assert!(kept.unwrap_err().to_string().contains("zopp workspace transfer"));
    let bob = world.member(&owner, "bob@example.com", None).await;
    konverge_zopp_server::admin::user(&world.store, &remove("Bob@example.com"), &mut Vec::new()).await.unwrap();
    assert_eq!(
        code(bob.client.clone().list_workspaces(bob.sign("ListWorkspaces", proto::Empty {})).await),
        Code::Unauthenticated
    );
}

#[tokio::test]
async fn a_deleted_workspace_leaves_nothing_and_lets_nobody_in() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    owner.set("A").await.unwrap();
    let mut admin = world.member(&owner, "ann@example.com", Some("admin")).await;
    let mut service = world.service(&mut owner).await;
    owner.grant(&service.principal_id, Role::Read).await.unwrap();
    let mut stream = service.watch(None).await.unwrap();
    let late = world.workspace_join(&owner, "late@example.com", &SigningSeed::generate().unwrap()).await;
    let delete = async |person: &Person, even_if_not_empty: bool| {
        let request = identity::DeleteWorkspaceRequest { workspace_name: "acme".into(), even_if_not_empty };
        world.identity().delete_workspace(person.sign_own("DeleteWorkspace", request)).await
    };
    for (person, expected) in [(&admin, Code::PermissionDenied), (&service, Code::Unauthenticated)] {
        assert_eq!(code(delete(person, true).await), expected);
    }
    assert_eq!(code(delete(&owner, false).await), Code::FailedPrecondition);
    // A device under a ceiling decides nothing for the others.
    let weak = owner.add_device("owner@example.com", "weak").await.unwrap();
    owner.grant(&weak.principal_id, Role::Read).await.unwrap();
    assert_eq!(code(delete(&weak, true).await), Code::PermissionDenied);
    assert_eq!(owner.list().await.unwrap().secrets.len(), 1, "it is all there");

    let deleted = delete(&owner, true).await.unwrap().into_inner();
    assert_eq!((deleted.environments_deleted, deleted.services_removed, deleted.invites_revoked), (1, 1, 2));
    // By the end of the environment or by that of the service, whichever is heard first.
    let end = end_of(&mut stream).await;
    assert!([Code::NotFound, Code::PermissionDenied].contains(&end), "{end:?}");
    for person in [&mut owner, &mut admin] {
        assert_eq!(code(person.list().await), Code::NotFound);
    }
    assert_eq!(code(service.list().await), Code::Unauthenticated, "it was in no other workspace");
    // An invite to no workspace would be one to the server.
    assert_eq!(code(world.client().join(late).await), Code::NotFound);
    owner.create_workspace("acme").await;
    assert_eq!(
        code(admin.list().await),
        Code::NotFound,
        "the name is free, and whoever was in it is not in the new one"
    );
    let saboteur = world.saboteur().await;
    for table in ["projects", "environments", "secrets", "user_workspace_permissions", "workspace_permissions"] {
        let rows: Vec<(i64,)> = saboteur.rows(&format!("SELECT count(*) FROM {table}")).await;
        let count = rows[0].0;
        assert_eq!(count, 0, "{table}");
    }
}
