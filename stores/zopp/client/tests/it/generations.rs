//! Both generations of servers, told apart by one question.

use konverge_zopp_client::{ClientConfig, Profile};
use konverge_zopp_proto::{GetEnvironmentRequest, ListSecretsRequest};

use crate::server::Server;

#[tokio::test]
async fn each_generation_gets_its_own_signatures_and_is_asked_once() {
    for generation in [Profile::V1, Profile::V2] {
        let server = Server::start().await;
        server.state().generation = generation;
        let client = server.client();
        client.list_secrets(ListSecretsRequest::default()).await.unwrap();
        client.clone().get_environment(GetEnvironmentRequest::default()).await.unwrap();
        assert_eq!(client.connection().profile().await.unwrap(), generation);
        assert_eq!(server.take_calls(), ["GetPrincipalExport", "ListSecrets", "GetEnvironment"]);
    }
}

#[tokio::test]
async fn a_server_replaced_by_the_other_generation_is_asked_again() {
    let server = Server::start().await;
    server.state().generation = Profile::V1;
    let client = server.client();
    client.list_secrets(ListSecretsRequest::default()).await.unwrap();
    server.state().generation = Profile::V2;
    assert_eq!(
        client.list_secrets(ListSecretsRequest::default()).await.unwrap_err().code(),
        tonic::Code::Unauthenticated
    );
    client.list_secrets(ListSecretsRequest::default()).await.unwrap();
}

#[tokio::test]
async fn a_configured_generation_is_not_asked_for() {
    let server = Server::start().await;
    server.state().generation = Profile::V1;
    let client = server.client_with(&ClientConfig { profile: Some(Profile::V1), ..server.config() });
    client.list_secrets(ListSecretsRequest::default()).await.unwrap();
    assert_eq!(server.take_calls(), ["ListSecrets"]);
}
