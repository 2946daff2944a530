//! Both generations of servers. The second is told by one question, the first must be requested.

use konverge_zopp_client::{CallError, ClientConfig, ConfigError, Connection, Profile, ServerRecord, Trust};
use konverge_zopp_proto::{GetEnvironmentRequest, ListSecretsRequest};
use tonic::Code;

use crate::server::Server;

#[tokio::test]
async fn the_second_generation_is_asked_for_once() {
    let server = Server::start().await;
    let client = server.client();
    client.list_secrets(ListSecretsRequest::default()).await.unwrap();
    client.clone().get_environment(GetEnvironmentRequest::default()).await.unwrap();
    assert_eq!(client.connection().profile().await.unwrap(), Profile::V2);
    assert_eq!(server.take_calls(), ["GetPrincipalExport", "ListSecrets", "GetEnvironment"]);
}

#[tokio::test]
async fn an_answer_of_the_first_generation_is_no_permission_to_sign_for_it() {
    let server = Server::start().await;
    server.state().generation = Profile::V1;
    let client = server.client();
    for _ in 0..2 {
        let error = client.list_secrets(ListSecretsRequest::default()).await.unwrap_err();
        assert!(matches!(error, CallError::FirstGeneration { .. }), "{error}");
        assert!(error.to_string().contains("--generation v1"), "{error}");
        assert_eq!(server.take_calls(), ["GetPrincipalExport"], "nothing is signed");
    }
}

#[tokio::test]
async fn a_server_that_was_of_the_second_generation_never_becomes_one_of_the_first() {
    let server = Server::start().await;
    let client = server.client();
    client.list_secrets(ListSecretsRequest::default()).await.unwrap();
    server.state().generation = Profile::V1;
    server.state().refusal = Some(tonic::Status::unauthenticated("unknown principal"));
    for _ in 0..2 {
        let error = client.list_secrets(ListSecretsRequest::default()).await.unwrap_err();
        assert_eq!(error.code(), Code::Unauthenticated, "{error}");
    }
    assert_eq!(server.take_calls(), ["GetPrincipalExport", "ListSecrets", "ListSecrets", "ListSecrets"]);
}

#[tokio::test]
async fn what_is_remembered_is_not_asked_for() {
    for generation in [Profile::V1, Profile::V2] {
        let server = Server::start().await;
        server.state().generation = generation;
        let mut record = ServerRecord::default();
        record.generation = Some(generation);
        let client = server.client_with(&ClientConfig { trust: Trust::new(record), ..server.config() });
        client.list_secrets(ListSecretsRequest::default()).await.unwrap();
        assert_eq!(server.take_calls(), ["ListSecrets"]);
        assert_eq!(client.connection().trust().take_learnt(), None);
    }
}

#[tokio::test]
async fn a_request_for_the_first_generation_is_refused_where_the_second_was_seen() {
    let mut record = ServerRecord::default();
    record.generation = Some(Profile::V2);
    let config = ClientConfig {
        profile: Some(Profile::V1),
        trust: Trust::new(record),
        ..ClientConfig::new("http://127.0.0.1:50051")
    };
    assert!(matches!(Connection::new(&config), Err(ConfigError::Downgrade { .. })));
}

#[tokio::test]
async fn a_configured_generation_is_not_asked_for() {
    let server = Server::start().await;
    server.state().generation = Profile::V1;
    let client = server.client_with(&ClientConfig { profile: Some(Profile::V1), ..server.config() });
    client.list_secrets(ListSecretsRequest::default()).await.unwrap();
    assert_eq!(server.take_calls(), ["ListSecrets"]);
}
