//! Gaining and losing an identity: each attack with the least that it takes.

use konverge_zopp_crypto::SigningSeed;
use konverge_zopp_proto::{self as proto, Role};
use tonic::Code;

use crate::harness::{World, code, exchange_key, join_request, register_request};

#[tokio::test]
async fn a_stranger_does_not_become_a_user_without_an_invite() {
    let world = World::start().await;
    let owner = world.owner().await;
    let seed = SigningSeed::generate().unwrap();
    let request = register_request("victim@example.com", "laptop", &seed);
    let anonymous = world.client().register(request.clone()).await.unwrap_err();
    assert_eq!(anonymous.code(), Code::PermissionDenied);
    assert!(anonymous.message().contains("--open-registration"), "{anonymous}");
    // One answer for addresses that are taken and for those that are not.
    let taken = register_request("owner@example.com", "laptop", &seed);
    assert_eq!(world.client().register(taken).await.unwrap_err().message(), anonymous.message());
    // Being somebody on the server does not help.
    let signed = owner.sign("Register", request);
    assert_eq!(code(world.client().register(signed).await), Code::PermissionDenied);
    // The address is still there for the invited person whose it is.
    world.join("victim@example.com").await;
}

#[tokio::test]
async fn a_new_device_is_no_stronger_than_the_one_that_vouched_for_it() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let bob = world.member(&owner, "bob@example.com", Some("write")).await;
    owner.grant_environment(&bob.principal_id, Role::Read).await.unwrap();

    let mut tablet = bob.add_device("bob@example.com", "tablet").await.unwrap();
    tablet.list().await.unwrap();
    assert_eq!(code(tablet.set("A").await), Code::PermissionDenied, "the ceiling of the laptop is the tablet's");

    // Joining once more by an invite is no way around.
    let seed = SigningSeed::generate().unwrap();
    let mut request = world.workspace_join(&owner, "bob@example.com", &seed).await;
    request.principal_name = "phone".into();
    let answer = world.client().join(bob.sign("Join", request)).await.unwrap().into_inner();
    let mut phone = crate::harness::Person::new(answer.user_id, answer.principal_id, seed, world.client());
    assert_eq!(code(phone.set("A").await), Code::PermissionDenied);
}

#[tokio::test]
async fn a_wider_grant_does_not_lift_a_ceiling_that_its_giver_could_not_lift() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut bob = world.member(&owner, "bob@example.com", Some("write")).await;
    let (id, other) = (bob.principal_id.clone(), world.service(&mut owner).await.principal_id);
    owner.grant_environment(&id, Role::Read).await.unwrap();

    // On the workspace bob may write, and so may set WRITE there; in the environment his device may only read.
    assert_eq!(code(bob.grant(&id, Role::Write).await), Code::PermissionDenied, "it would lift its own ceiling");
    assert_eq!(
        code(bob.grant(&other, Role::Write).await),
        Code::PermissionDenied,
        "the service would get more than it has"
    );
    bob.grant(&other, Role::Read).await.unwrap();
    assert_eq!(code(bob.set("A").await), Code::PermissionDenied);

    // Somebody who may lift it does so with the same call.
    owner.grant(&id, Role::Write).await.unwrap();
    bob.set("A").await.unwrap();
}

#[tokio::test]
async fn an_admin_under_a_ceiling_does_not_revoke_it() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut bob = world.member(&owner, "bob@example.com", Some("admin")).await;
    let id = bob.principal_id.clone();
    owner.grant_environment(&id, Role::Read).await.unwrap();
    assert_eq!(code(bob.revoke_all(&id).await), Code::PermissionDenied);
    assert_eq!(code(bob.set("A").await), Code::PermissionDenied);

    let revoked = owner.revoke_all(&id).await.unwrap();
    assert_eq!(revoked.permissions_revoked, 1);
    assert_eq!(revoked.role_afterwards, Some(Role::Admin.into()), "the device is as strong as its user now");
    bob.set("A").await.unwrap();
    let service = world.service(&mut owner).await.principal_id;
    owner.grant(&service, Role::Read).await.unwrap();
    assert_eq!(owner.revoke_all(&service).await.unwrap().role_afterwards, None);
}

#[tokio::test]
async fn a_removed_device_is_out_of_the_workspace_until_an_admin_lets_it_in_again() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut bob = world.member(&owner, "bob@example.com", Some("write")).await;
    let mut tablet = bob.add_device("bob@example.com", "tablet").await.unwrap();
    let lost = bob.principal_id.clone();
    owner.grant(&lost, Role::Read).await.unwrap();
    owner.remove_from_workspace(&lost).await.unwrap();

    assert_eq!(code(bob.set("A").await), Code::NotFound, "its ceiling is gone, and so is the workspace");
    assert_eq!(code(bob.list().await), Code::NotFound);
    let listed = bob.client.list_workspaces(bob.sign("ListWorkspaces", proto::Empty {})).await.unwrap();
    assert!(listed.into_inner().workspaces.is_empty());
    let successor = bob.add_device("bob@example.com", "another").await.unwrap();
    let mut successor = successor;
    assert_eq!(code(successor.list().await), Code::NotFound, "nor does a device that it vouches for get in");
    // The user's other devices are as they were, but let no barred device in.
    tablet.set("A").await.unwrap();
    assert_eq!(code(tablet.grant_access(&lost).await), Code::PermissionDenied);

    owner.grant_access(&lost).await.unwrap();
    bob.set("B").await.unwrap();
}

#[tokio::test]
async fn an_admin_takes_neither_the_owners_keys_nor_the_last_copy() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let owners = owner.principal_id.clone();
    let mut admin = world.member(&owner, "admin@example.com", Some("admin")).await;
    let refused = admin.remove_from_workspace(&owners).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("owner"), "{refused}");

    // A device of the owner's that has no key, and the only person's device that has one.
    let mut tablet = owner.add_device("owner@example.com", "tablet").await.unwrap();
    let admins = admin.principal_id.clone();
    tablet.remove_from_workspace(&admins).await.unwrap();
    let service = world.service(&mut owner).await.principal_id;
    let refused = tablet.remove_from_workspace(&owners).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("last copy"), "{refused}");
    tablet.remove_from_workspace(&service).await.unwrap();
    let keys = proto::GetWorkspaceKeysRequest { workspace_name: "acme".into() };
    owner.client.get_workspace_keys(owner.sign("GetWorkspaceKeys", keys)).await.unwrap();
}

#[tokio::test]
async fn a_key_belongs_to_one_principal() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mallory = world.join("mallory@example.com").await;
    let get = proto::GetPrincipalRequest { principal_id: owner.principal_id.clone() };
    let victim = mallory.client.clone().get_principal(mallory.sign("GetPrincipal", get)).await.unwrap().into_inner();

    let seed = SigningSeed::generate().unwrap();
    let mut signing = register_request("mallory@example.com", "copy", &seed);
    signing.public_key.clone_from(&victim.public_key);
    let mut exchange = register_request("mallory@example.com", "copy", &seed);
    exchange.x25519_public_key.clone_from(&victim.x25519_public_key);
    for request in [signing, exchange] {
        let refused = world.client().register(mallory.sign("Register", request)).await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists);
        assert!(refused.message().contains("key"), "{refused}");
    }
    let mut joining = join_request(&world.invite().await, "eve@example.com", &seed);
    joining.public_key.clone_from(&victim.public_key);
    assert_eq!(code(world.client().join(joining).await), Code::AlreadyExists);
    let service = crate::harness::service_request("acme", &owner.seed);
    assert_eq!(code(owner.client.register(owner.sign("Register", service)).await), Code::AlreadyExists);
}

#[tokio::test]
async fn weak_keys_are_refused() {
    let world = World::start().await;
    let owner = world.owner().await;
    let one = |first: u8| [vec![first], vec![0; 31]].concat();
    let order_eight = hex::decode("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800").unwrap();
    let mut other_spelling = exchange_key();
    other_spelling[31] |= 0x80;
    let seed = SigningSeed::generate().unwrap();
    for weak in [one(0), one(1), order_eight.clone(), other_spelling] {
        let mut request = register_request("owner@example.com", "tablet", &seed);
        request.x25519_public_key.clone_from(&weak);
        let refused = world.client().register(owner.sign("Register", request)).await;
        assert_eq!(code(refused), Code::InvalidArgument, "{}", hex::encode(weak));
    }
    for weak in [one(1), hex::decode("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05").unwrap()] {
        let mut request = register_request("owner@example.com", "tablet", &seed);
        request.public_key.clone_from(&weak);
        let refused = world.client().register(owner.sign("Register", request)).await;
        assert_eq!(code(refused), Code::InvalidArgument, "{}", hex::encode(weak));
    }
    // Nor is a key wrapped by way of one: everybody could open it.
    let mut request = crate::harness::workspace_request("other");
    request.ephemeral_pub = one(0);
    assert_eq!(
        code(world.client().create_workspace(owner.sign("CreateWorkspace", request)).await),
        Code::InvalidArgument
    );
}

#[tokio::test]
async fn an_invite_brings_one_workspace_because_it_carries_one_key() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let other = owner.create_workspace("other").await;
    let request = proto::CreateInviteRequest {
        workspace_ids: vec![world.workspace_id().await, other],
        expires_at: crate::harness::now() + 60,
        token: "two".into(),
        kek_encrypted: vec![1; 48],
        kek_nonce: vec![2; 24],
    };
    let refused = owner.client.create_invite(owner.sign("CreateInvite", request)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("one workspace"), "{refused}");
}

/// Changes that were decided upon before a revocation, and come to be written after it was acknowledged.
#[tokio::test]
async fn no_write_commits_after_its_right_was_taken() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut service = world.service(&mut owner).await;
    for round in 0..4 {
        let id = service.principal_id.clone();
        owner.grant(&id, Role::Write).await.unwrap();
        service.set(&format!("FIRST_{round}")).await.unwrap();
        let mut writes = tokio::task::JoinSet::new();
        for number in 0..64 {
            let key = format!("K{round}_{number}");
            let (request, mut client) = (service.sign("UpsertSecret", crate::harness::upsert(&key)), world.client());
            writes.spawn(async move { client.upsert_secret(request).await.map(drop) });
        }
        // Some are through by now, most are not.
        writes.join_next().await.unwrap().unwrap().unwrap();
        if round % 2 == 0 {
            owner.revoke(&id).await.unwrap();
        } else {
            owner.remove_from_workspace(&id).await.unwrap();
        }
        let after = owner.list().await.unwrap().version;
        while let Some(written) = writes.join_next().await {
            if let Err(refused) = written.unwrap() {
                assert!(matches!(refused.code(), Code::PermissionDenied | Code::NotFound), "{refused}");
            }
        }
        assert_eq!(owner.list().await.unwrap().version, after, "nothing was written after the revocation");
        if round % 2 == 1 {
            service = world.service(&mut owner).await;
        }
    }
}
