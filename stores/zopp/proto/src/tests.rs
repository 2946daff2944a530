//! The contract, held against what is known of it from outside: the number of calls and encodings computed elsewhere.

use prost::Message;

use super::*;

fn hex_of(message: &impl Message) -> String {
    hex::encode(message.encode_to_vec())
}

fn names() -> (String, String, String) {
    ("acme".into(), "backend".into(), "production".into())
}

#[test]
fn all_calls_are_there() {
    let schema = include_str!("../proto/zopp.proto");
    assert_eq!(schema.lines().filter(|line| line.trim_start().starts_with("rpc ")).count(), 82);
}

#[test]
fn own_calls_are_apart_from_the_contract() {
    assert_eq!(identity::method_path("RemoveMember"), "/konverge.zopp.v1.Identity/RemoveMember");
    assert_eq!(secrets::method_path("ChangeSecrets"), "/konverge.zopp.secrets.v1.Secrets/ChangeSecrets");
    for schema in [
        include_str!("../proto/konverge/zopp/v1/identity.proto"),
        include_str!("../proto/konverge/zopp/secrets/v1/secrets.proto"),
    ] {
        assert!(
            !schema.contains("import"),
            "no message of the contract is shared, so that none is ever changed for these"
        );
    }
}

#[test]
fn method_paths_begin_with_the_service() {
    assert_eq!(method_path("ListSecrets"), "/zopp.ZoppService/ListSecrets");
}

#[test]
fn requests_encode_as_the_test_vectors_do() {
    let (workspace_name, project_name, environment_name) = names();
    let list = ListSecretsRequest { workspace_name, project_name, environment_name };
    assert_eq!(hex_of(&list), "0a0461636d6512076261636b656e641a0a70726f64756374696f6e");

    assert_eq!(hex_of(&Empty {}), "");

    let (workspace_name, project_name, environment_name) = names();
    let watch = WatchSecretsRequest { workspace_name, project_name, environment_name, since_version: Some(0) };
    assert_eq!(hex_of(&watch), "0a0461636d6512076261636b656e641a0a70726f64756374696f6e2000");

    let set = SetWorkspacePermissionRequest {
        workspace_name: "acme".into(),
        principal_id: "01890a5d-ac96-774b-bcce-b302099a8057".into(),
        role: Role::Read.into(),
    };
    assert_eq!(
        hex_of(&set),
        "0a0461636d65122430313839306135642d616339362d373734622d626363652d6233303230393961383035371803"
    );
}

#[test]
fn a_watch_answer_is_one_of_resync_and_event() {
    use watch_secrets_response::Response;
    let resync = WatchSecretsResponse { response: Some(Response::Resync(ResyncRequired { current_version: 7 })) };
    assert_eq!(hex_of(&resync), "0a020807");
    let event = SecretChangeEvent { event_type: 2, key: "K".into(), version: 8, timestamp: 0 };
    assert_eq!(hex_of(&WatchSecretsResponse { response: Some(Response::Event(event)) }), "1207080212014b1808");
}
