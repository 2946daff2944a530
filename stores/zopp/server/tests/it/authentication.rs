//! Signatures: what is covered, for how long, and once.

use konverge_zopp_crypto::{Profile, SigningSeed, signature};
use konverge_zopp_proto::{self as proto, method_path};
use prost::Message;
use tonic::{Code, Request};

use crate::harness::{World, attach, code, list_request, now, upsert};

#[tokio::test]
async fn a_change_counts_once() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let timestamp = now();
    let send = || world.client();
    send().upsert_secret(owner.sign_at("UpsertSecret", upsert("A"), timestamp)).await.unwrap();
    let replay = send().upsert_secret(owner.sign_at("UpsertSecret", upsert("A"), timestamp)).await.unwrap_err();
    assert_eq!(replay.code(), Code::Unauthenticated);
    assert!(replay.message().contains("received before"), "{replay}");
    assert_eq!(owner.list().await.unwrap().version, 1, "the replay changed nothing");

    // Equal questions within a second are no attack: command lines ask them all the time.
    for _ in 0..2 {
        send().list_secrets(owner.sign_at("ListSecrets", list_request(), timestamp)).await.unwrap();
    }
}

#[tokio::test]
async fn a_change_counts_once_also_for_a_server_that_started_anew() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    // Also what a client with a fast clock signs is remembered.
    let times = [now(), now() + 20];
    let signed = || times.map(|time| owner.sign_at("UpsertSecret", upsert("A"), time));
    for request in signed() {
        world.client().upsert_secret(request).await.unwrap();
    }
    let captured = signed();
    let world = world.restart().await;
    for replay in captured {
        let refused = world.client().upsert_secret(replay).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated);
        assert!(refused.message().contains("received before"), "{refused}");
    }
    // Nobody else is kept waiting, whatever the clock says, within its limits.
    owner.client = world.client();
    for timestamp in [now() - 40, now() + 1] {
        owner.client.upsert_secret(owner.sign_at("UpsertSecret", upsert("B"), timestamp)).await.unwrap();
    }
    assert_eq!(owner.list().await.unwrap().version, 4, "the replays changed nothing");
}

#[tokio::test]
async fn a_signature_is_for_one_call_with_one_content_at_one_time() {
    let world = World::start().await;
    let owner = world.owner().await;
    let mut other_content = owner.sign("UpsertSecret", upsert("A"));
    other_content.get_mut().key = "B".into();
    assert_eq!(code(world.client().upsert_secret(other_content).await), Code::Unauthenticated);

    let other_call = owner.sign("ListPrincipals", proto::Empty {});
    assert_eq!(code(world.client().list_workspaces(other_call).await), Code::Unauthenticated);

    for timestamp in [now() - 120, now() + 120, i64::MIN, i64::MAX] {
        let request = owner.sign_at("ListWorkspaces", proto::Empty {}, timestamp);
        let refused = world.client().list_workspaces(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated);
        assert!(refused.message().contains("clock"), "{refused}");
    }
}

#[tokio::test]
async fn a_stranger_and_a_wrong_key_look_the_same() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let known = owner.principal_id.clone();
    owner.seed = SigningSeed::generate().unwrap();
    let wrong_key = owner.list().await.unwrap_err();
    owner.principal_id = uuid::Uuid::now_v7().to_string();
    let stranger = owner.list().await.unwrap_err();
    assert_ne!(known, owner.principal_id);
    assert_eq!((wrong_key.code(), wrong_key.message()), (stranger.code(), stranger.message()));
    assert_eq!(stranger.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn missing_or_malformed_metadata_is_named() {
    let world = World::start().await;
    let owner = world.owner().await;
    for key in [signature::PRINCIPAL_ID_KEY, signature::TIMESTAMP_KEY, signature::SIGNATURE_KEY] {
        let mut missing = owner.sign("ListSecrets", list_request());
        missing.metadata_mut().remove(key);
        let mut malformed = owner.sign("ListSecrets", list_request());
        malformed.metadata_mut().insert(key, "zz".parse().unwrap());
        for request in [missing, malformed] {
            let refused = world.client().list_secrets(request).await.unwrap_err();
            assert_eq!(refused.code(), Code::Unauthenticated);
            assert!(refused.message().contains(key), "{key}: {refused}");
        }
    }
}

#[tokio::test]
async fn the_first_generation_is_told_that_it_is_one() {
    let world = World::start().await;
    let owner = world.owner().await;
    let message = list_request();
    let body = message.encode_to_vec();
    let signed = signature::sign(Profile::V1, &owner.seed, &method_path("ListSecrets"), &body, now());
    let mut request = Request::new(message);
    attach(request.metadata_mut(), &owner.principal_id, &signed);
    let refused = world.client().list_secrets(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(refused.message().contains("first-generation"), "{refused}");
}

#[tokio::test]
async fn clients_can_tell_the_generation() {
    let world = World::start().await;
    let request = proto::GetPrincipalExportRequest { export_code: "exp_abcdefgh".into(), token_hash: String::new() };
    assert_eq!(code(world.client().get_principal_export(request).await), Code::NotFound);
    assert_eq!(empty_call(&world, "NoSuchCall").await, Code::Unimplemented);
}

/// Each of the 82 has a handler: it is refused for want of a signature or of content, and not for being unknown.
#[tokio::test]
async fn every_call_of_the_schema_is_served() {
    let world = World::start().await;
    let schema = include_str!("../../../proto/proto/zopp.proto");
    let calls: Vec<_> =
        schema.lines().filter_map(|line| line.trim_start().strip_prefix("rpc ")?.split('(').next()).collect();
    assert_eq!(calls.len(), 82);
    for call in calls {
        assert_ne!(empty_call(&world, call).await, Code::Unimplemented, "{call}");
    }
}

/// The answer to a call with an empty message and no metadata.
async fn empty_call(world: &World, call: &str) -> Code {
    let mut client = tonic::client::Grpc::new(world.channel.clone());
    client.ready().await.unwrap();
    let answer = client.unary(Request::new(()), method_path(call).parse().unwrap(), Empty).await;
    code(answer)
}

/// Messages without a field, in both directions.
#[derive(Clone, Copy)]
struct Empty;

impl tonic::codec::Codec for Empty {
    type Encode = ();
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl tonic::codec::Encoder for Empty {
    type Item = ();
    type Error = tonic::Status;

    fn encode(&mut self, (): (), _: &mut tonic::codec::EncodeBuf<'_>) -> Result<(), tonic::Status> {
        Ok(())
    }
}

impl tonic::codec::Decoder for Empty {
    type Item = ();
    type Error = tonic::Status;

    fn decode(&mut self, _: &mut tonic::codec::DecodeBuf<'_>) -> Result<Option<()>, tonic::Status> {
        Ok(Some(()))
    }
}

#[tokio::test]
async fn a_request_over_4_mib_is_refused() {
    let world = World::start().await;
    let owner = world.owner().await;
    let mut large = upsert("A");
    large.ciphertext = vec![0; 5 * 1024 * 1024];
    assert_eq!(code(world.client().upsert_secret(owner.sign("UpsertSecret", large)).await), Code::OutOfRange);
}
