//! The people who may replace the key of a workspace, and the replacements that the server refuses.

use std::collections::BTreeMap;

use konverge_zopp_crypto::{Fingerprint, Kek, KeyAdministrators, KeyLink, SigningSeed, X25519Public};
use konverge_zopp_proto::{
    Role,
    identity::{
        GetKeyChainRequest, GetKeyStateRequest, GetKeyStateResponse, KeyLink as WireLink, RewrappedDek,
        RotateWorkspaceKeyRequest, RotateWorkspaceKeyResponse, WrappedKek,
    },
};
use tonic::{Code, Status};

use crate::harness::{Person, World, code};

async fn state(world: &World, person: &Person) -> Result<GetKeyStateResponse, Status> {
    let request = GetKeyStateRequest { workspace_name: "acme".into() };
    Ok(world.identity().get_key_state(person.sign_own("GetKeyState", request)).await?.into_inner())
}

async fn rotate(
    world: &World,
    person: &Person,
    request: RotateWorkspaceKeyRequest,
) -> Result<RotateWorkspaceKeyResponse, Status> {
    Ok(world.identity().rotate_workspace_key(person.sign_own("RotateWorkspaceKey", request)).await?.into_inner())
}

async fn links(world: &World, person: &Person) -> Result<Vec<WireLink>, Status> {
    let request = GetKeyChainRequest { workspace_name: "acme".into() };
    let chain = world.identity().get_key_chain(person.sign_own("GetKeyChain", request)).await?;
    Ok(chain.into_inner().links)
}

async fn generations(world: &World, person: &Person) -> Result<usize, Status> {
    Ok(links(world, person).await?.len())
}

fn print(number: usize) -> Fingerprint {
    Fingerprint::of_principal(&number.to_le_bytes(), &[])
}

/// Has the link name so many administrators, as a client of this version does.
fn name_administrators(link: &mut WireLink, count: usize, seed: &SigningSeed) {
    let key = Fingerprint::from_slice(&link.fingerprint).unwrap();
    let list = KeyAdministrators { key, administrators: (0..count).map(print).collect() };
    link.administrators_signature = list.sign(seed).to_vec();
    link.administrators = list.administrators.iter().map(|print| print.to_bytes().to_vec()).collect();
}

/// A new key for all holders. The server cannot tell of which key the link and the wraps are.
pub(crate) fn rotation(state: &GetKeyStateResponse, seed: &SigningSeed) -> RotateWorkspaceKeyRequest {
    let (former, new) = (Kek::from_slice(&[1; 32]).unwrap(), Kek::from_slice(&[2; 32]).unwrap());
    let link = KeyLink::new(&state.workspace_id, state.generation + 1, &former, &new).unwrap();
    let wraps = state.holders.iter().map(|holder| {
        let recipient = X25519Public::from_slice(&holder.x25519_public_key).unwrap();
        let wrapped = new.wrap_for(&recipient, &state.workspace_id).unwrap();
        WrappedKek {
            principal_id: holder.principal_id.clone(),
            signature: wrapped.sign(seed, &recipient, &state.workspace_id).to_vec(),
            ephemeral_pub: wrapped.ephemeral_public.to_bytes().to_vec(),
            kek_wrapped: wrapped.sealed.ciphertext,
            kek_nonce: wrapped.sealed.nonce.to_vec(),
        }
    });
    let environments = state.environments.iter().map(|environment| RewrappedDek {
        environment_id: environment.environment_id.clone(),
        dek_wrapped: vec![9; 48],
        dek_nonce: vec![9; 24],
    });
    RotateWorkspaceKeyRequest {
        workspace_name: "acme".into(),
        expected_generation: state.generation,
        wraps: wraps.collect(),
        left_out: Vec::new(),
        environments: environments.collect(),
        link: Some(WireLink {
            signature: link.sign(&state.workspace_id, seed).to_vec(),
            former_fingerprint: link.former.to_bytes().to_vec(),
            fingerprint: link.new.to_bytes().to_vec(),
            former_nonce: link.sealed.nonce.to_vec(),
            former_sealed: link.sealed.ciphertext,
            ..WireLink::default()
        }),
    }
}

#[tokio::test]
async fn admins_replace_the_key_and_nobody_else() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let member = world.member(&owner, "member@example.com", Some("write")).await;
    let service = world.service(&mut owner).await;
    owner.grant(&service.principal_id, Role::Admin).await.unwrap();
    let stranger = world.join("eve@example.com").await;
    let known = state(&world, &owner).await.unwrap();
    for (caller, refused) in
        [(&member, Code::PermissionDenied), (&service, Code::Unauthenticated), (&stranger, Code::NotFound)]
    {
        assert_eq!(code(state(&world, caller).await), refused);
        assert_eq!(code(rotate(&world, caller, rotation(&known, &caller.seed)).await), refused);
    }
    assert_eq!(code(generations(&world, &stranger).await), Code::NotFound);
    assert_eq!(rotate(&world, &owner, rotation(&known, &owner.seed)).await.unwrap().generation, 2);
    assert_eq!(generations(&world, &service).await.unwrap(), 1, "each holder can follow");
    assert_eq!(code(rotate(&world, &owner, rotation(&known, &owner.seed)).await), Code::Aborted, "of generation 1");
}

#[tokio::test]
async fn the_key_of_a_large_workspace_is_replaced() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    for number in 0..200 {
        owner.create_environment(&format!("environment-{number}")).await.unwrap();
    }
    let known = state(&world, &owner).await.unwrap();
    assert_eq!(known.environments.len(), 201);
    assert_eq!(rotate(&world, &owner, rotation(&known, &owner.seed)).await.unwrap().generation, 2);
}

#[tokio::test]
async fn a_link_or_a_wrap_that_others_would_refuse_is_not_kept() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    world.service(&mut owner).await;
    let known = state(&world, &owner).await.unwrap();
    let other = SigningSeed::generate().unwrap();
    let right = || rotation(&known, &owner.seed);
    let altered = |alter: &dyn Fn(&mut RotateWorkspaceKeyRequest)| {
        let mut request = right();
        alter(&mut request);
        request
    };
    let link = |request: &mut RotateWorkspaceKeyRequest, alter: &dyn Fn(&mut WireLink)| {
        alter(request.link.as_mut().unwrap());
    };
    let own = owner.principal_id.clone();
    for (what, request, refused) in [
        ("by another signer", rotation(&known, &other), Code::InvalidArgument),
        ("without a link", altered(&|request| request.link = None), Code::InvalidArgument),
        (
            "with another key",
            altered(&|request| link(request, &|link| link.fingerprint = vec![1; 20])),
            Code::InvalidArgument,
        ),
        (
            "to the same key",
            altered(&|request| link(request, &|link| link.fingerprint = link.former_fingerprint.clone())),
            Code::InvalidArgument,
        ),
        (
            "with a wrap that nobody signed",
            altered(&|request| request.wraps[0].signature.clear()),
            Code::InvalidArgument,
        ),
        (
            "with a wrap for another key",
            altered(&|request| request.wraps[0].ephemeral_pub = vec![7; 32]),
            Code::InvalidArgument,
        ),
        (
            "without the caller",
            altered(&|request| request.wraps.retain(|wrap| wrap.principal_id != own)),
            Code::InvalidArgument,
        ),
        (
            "with administrators that another principal signed",
            altered(&|request| link(request, &|link| name_administrators(link, 2, &other))),
            Code::InvalidArgument,
        ),
        (
            "with administrators that nobody signed",
            altered(&|request| link(request, &|link| link.administrators = vec![vec![1; 20]])),
            Code::InvalidArgument,
        ),
        (
            "with other administrators than the signed ones",
            altered(&|request| {
                link(request, &|link| {
                    name_administrators(link, 2, &owner.seed);
                    link.administrators.pop();
                });
            }),
            Code::InvalidArgument,
        ),
        (
            "without the administrators that were signed",
            altered(&|request| {
                link(request, &|link| {
                    name_administrators(link, 2, &owner.seed);
                    link.administrators.clear();
                });
            }),
            Code::InvalidArgument,
        ),
        (
            "with a short fingerprint of an administrator",
            altered(&|request| {
                link(request, &|link| {
                    name_administrators(link, 1, &owner.seed);
                    link.administrators[0].pop();
                });
            }),
            Code::InvalidArgument,
        ),
        (
            "with too many administrators",
            altered(&|request| link(request, &|link| name_administrators(link, 1001, &owner.seed))),
            Code::InvalidArgument,
        ),
        ("without an environment", altered(&|request| request.environments.clear()), Code::Aborted),
        (
            "without the service",
            altered(&|request| request.wraps.retain(|wrap| wrap.principal_id == own)),
            Code::Aborted,
        ),
    ] {
        assert_eq!(code(rotate(&world, &owner, request).await), refused, "{what}");
    }
    assert_eq!(state(&world, &owner).await.unwrap(), known);
    rotate(&world, &owner, right()).await.unwrap();
}

#[tokio::test]
async fn the_key_state_tells_which_holders_are_administrators() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let admin = world.member(&owner, "admin@example.com", Some("admin")).await;
    let limited = admin.add_device("admin@example.com", "limited").await.unwrap();
    let lost = admin.add_device("admin@example.com", "lost").await.unwrap();
    for device in [&limited, &lost] {
        owner.grant_access(&device.principal_id).await.unwrap();
    }
    owner.grant(&limited.principal_id, Role::Write).await.unwrap();
    admin.disable(&world, &lost.principal_id).await.unwrap();
    let writer = world.member(&owner, "writer@example.com", Some("write")).await;
    let service = world.service(&mut owner).await;
    owner.grant(&service.principal_id, Role::Admin).await.unwrap();
    let told: BTreeMap<_, _> = state(&world, &owner)
        .await
        .unwrap()
        .holders
        .into_iter()
        .map(|holder| (holder.principal_id, holder.administrator))
        .collect();
    assert_eq!(told.len(), 6);
    for (what, caller, expected) in [
        ("the owner", &owner, true),
        ("an admin", &admin, true),
        ("a device of an admin under a ceiling", &limited, false),
        ("a disabled device of an admin", &lost, false),
        ("a writer", &writer, false),
        ("a service with the role", &service, false),
    ] {
        assert_eq!(told[&caller.principal_id], expected, "{what}");
        assert_eq!(state(&world, caller).await.is_ok(), expected, "{what} may prepare a rotation");
    }
}

#[tokio::test]
async fn the_administrators_of_a_key_are_kept_as_signed() {
    for count in [0, 2, 1000] {
        let world = World::start().await;
        let owner = world.owner().await;
        let known = state(&world, &owner).await.unwrap();
        let mut request = rotation(&known, &owner.seed);
        let link = request.link.as_mut().unwrap();
        if count > 0 {
            name_administrators(link, count, &owner.seed);
        }
        let sent = link.clone();
        rotate(&world, &owner, request).await.unwrap();
        let kept = links(&world, &owner).await.unwrap().remove(0);
        assert_eq!((kept.administrators.len(), &kept.administrators), (count, &sent.administrators));
        assert_eq!(kept.administrators_signature, sent.administrators_signature, "{count}");
        assert_eq!(kept.administrators_signature.is_empty(), count == 0, "an earlier client signs none");
    }
}
