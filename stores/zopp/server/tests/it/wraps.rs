//! Signatures over wrapped workspace keys: taken from their signer only, and told to the recipient.

use konverge_zopp_crypto::{SigningSeed, WrapToSign, wrap_signature::WRAP_SIGNATURE_KEY};
use konverge_zopp_proto::{
    self as proto,
    identity::{GetKeySignatureRequest, GetKeySignatureResponse},
};
use tonic::{Code, Request, Status};

use crate::harness::{Person, World, code, service_request};

const EPHEMERAL: [u8; 32] = [1; 32];
const WRAPPED: [u8; 48] = [2; 48];
const NONCE: [u8; 24] = [3; 24];

fn sign(seed: &SigningSeed, workspace_id: &str, recipient: &[u8]) -> [u8; 64] {
    let wrap = WrapToSign { workspace_id, recipient, ephemeral_public: &EPHEMERAL, nonce: &NONCE, wrapped: &WRAPPED };
    wrap.sign(seed)
}

fn with_signature<M>(mut request: Request<M>, signature: &str) -> Request<M> {
    request.metadata_mut().insert(WRAP_SIGNATURE_KEY, signature.parse().unwrap());
    request
}

async fn signature_of(world: &World, person: &Person) -> Result<GetKeySignatureResponse, Status> {
    let request = GetKeySignatureRequest { workspace_name: "acme".into() };
    let answer = world.identity().get_key_signature(person.sign_own("GetKeySignature", request)).await?;
    Ok(answer.into_inner())
}

/// A service principal of `acme` whose key bears this signature, made by the function from the workspace's ID and the recipient.
async fn service(
    world: &World,
    owner: &mut Person,
    signature: impl Fn(&str, &[u8]) -> String,
) -> Result<Person, Status> {
    let seed = SigningSeed::generate().unwrap();
    let request = service_request("acme", &seed);
    let signature = signature(&world.workspace_id().await, &request.x25519_public_key);
    let request = with_signature(owner.sign("Register", request), &signature);
    let answer = owner.client.register(request).await?.into_inner();
    Ok(Person::new(String::new(), answer.principal_id, seed, world.client()))
}

#[tokio::test]
async fn a_recipient_learns_who_wrapped_its_key() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    assert_eq!(code(signature_of(&world, &owner).await), Code::NotFound, "a stock client signs nothing");

    let seed = SigningSeed::from_slice(owner.seed.expose()).unwrap();
    let robot = service(&world, &mut owner, |id, to| hex::encode(sign(&seed, id, to))).await.unwrap();
    let told = signature_of(&world, &robot).await.unwrap();
    assert_eq!((&told.principal_id, told.principal_name.as_str()), (&owner.principal_id, "laptop"));
    assert_eq!(told.public_key, owner.seed.public().to_bytes());
    assert_eq!(told.signature.len(), 64);

    let tablet = owner.add_device("owner@example.com", "tablet").await.unwrap();
    let id = proto::GetPrincipalRequest { principal_id: tablet.principal_id.clone() };
    let principal = owner.client.get_principal(owner.sign("GetPrincipal", id)).await.unwrap().into_inner();
    let request = proto::GrantPrincipalWorkspaceAccessRequest {
        workspace_name: "acme".into(),
        principal_id: tablet.principal_id.clone(),
        ephemeral_pub: EPHEMERAL.into(),
        kek_wrapped: WRAPPED.into(),
        kek_nonce: NONCE.into(),
    };
    let signature = hex::encode(sign(&seed, &world.workspace_id().await, &principal.x25519_public_key));
    let request = with_signature(owner.sign("GrantPrincipalWorkspaceAccess", request), &signature);
    owner.client.grant_principal_workspace_access(request).await.unwrap();
    assert_eq!(signature_of(&world, &tablet).await.unwrap().principal_id, owner.principal_id);
}

/// Makes a signature for a workspace and a recipient's key.
type Forge = Box<dyn Fn(&str, &[u8]) -> String>;

#[tokio::test]
async fn a_signature_that_its_recipient_would_refuse_is_not_kept() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let (seed, other) = (SigningSeed::from_slice(owner.seed.expose()).unwrap(), SigningSeed::generate().unwrap());
    let cases: [(&str, Forge); 5] = [
        ("by another key", Box::new(move |id, to| hex::encode(sign(&other, id, to)))),
        ("for another recipient", Box::new(move |id, _| hex::encode(sign(&seed, id, &[7; 32])))),
        ("not hexadecimal", Box::new(|_, _| "zz".repeat(64))),
        ("too short", Box::new(|_, _| "00".repeat(63))),
        ("no signature at all", Box::new(|_, _| "00".repeat(64))),
    ];
    for (what, signature) in cases {
        assert_eq!(code(service(&world, &mut owner, signature).await), Code::InvalidArgument, "{what}");
    }
}

#[tokio::test]
async fn only_holders_of_the_key_are_told_and_a_removed_signer_signs_nothing() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let seed = SigningSeed::from_slice(owner.seed.expose()).unwrap();
    let robot = service(&world, &mut owner, |id, to| hex::encode(sign(&seed, id, to))).await.unwrap();
    let stranger = world.join("eve@example.com").await;
    assert_eq!(code(signature_of(&world, &stranger).await), Code::NotFound);
    let saboteur = world.saboteur().await;
    let id = &robot.principal_id;
    saboteur.run(&format!("UPDATE workspace_principals SET signer_id = 'gone' WHERE principal_id = '{id}'")).await;
    assert_eq!(code(signature_of(&world, &robot).await), Code::NotFound);
}
