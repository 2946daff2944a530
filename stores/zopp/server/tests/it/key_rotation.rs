//! The people who may replace the key of a workspace, and the replacements that the server refuses.

use konverge_zopp_crypto::{Kek, KeyLink, SigningSeed, X25519Public};
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

async fn generations(world: &World, person: &Person) -> Result<usize, Status> {
    let request = GetKeyChainRequest { workspace_name: "acme".into() };
    let chain = world.identity().get_key_chain(person.sign_own("GetKeyChain", request)).await?;
    Ok(chain.into_inner().links.len())
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
