//! The registration of a new principal on the server.

use konverge_zopp_client::{Client, ServerRecord};
use konverge_zopp_crypto::{Fingerprint, SigningSeed, X25519Private};
use konverge_zopp_proto::RegisterRequest;

use crate::{
    commands::wrapped::{WrappedFields, wrap},
    context::Context,
    failure::{Failure, failed},
    scope::Place,
};

/// Registers a service in a workspace, and hands it the workspace's key. Returns its ID, and what it has to know of the server.
pub(super) async fn service(
    context: &Context,
    client: &Client,
    name: &str,
    (seed, exchange): (&SigningSeed, &X25519Private),
    workspace: &str,
) -> Result<(String, ServerRecord), Failure> {
    let what = format!("cannot create service principal '{name}'");
    let need = Place::Workspace { workspace: workspace.to_owned() }.need("admin", client);
    let key = client.workspace_key(workspace).await.map_err(failed(what.clone(), need.clone()))?;
    let WrappedFields { ephemeral_pub, kek_nonce, kek_wrapped } = wrap(&key.kek, &exchange.public(), &key.id)?;
    let request = RegisterRequest {
        workspace_name: Some(workspace.to_owned()),
        is_service: true,
        ephemeral_pub: Some(ephemeral_pub),
        kek_wrapped: Some(kek_wrapped),
        kek_nonce: Some(kek_nonce),
        ..device(name, (seed, exchange), String::new())
    };
    let id = client.register(request, seed, Some(&key)).await.map_err(failed(what, need))?.principal_id;
    let mut known = ServerRecord::default();
    known.generation = context.trust()?.generation();
    known.workspaces.insert(workspace.to_owned(), key.fingerprint());
    // The service follows a replacement of the key that is signed by the principal that created the service.
    let (own, own_exchange) = (client.identity().signing_seed().public(), client.identity().exchange_key());
    let own_exchange = own_exchange.map(|exchange| exchange.public().to_bytes().to_vec()).unwrap_or_default();
    let fingerprint = Fingerprint::of_principal(&own.to_bytes(), &own_exchange);
    known.principals.insert(client.identity().principal_id().to_owned(), fingerprint);
    Ok((id, known))
}

/// Returns the request to register a device of a person.
pub(super) fn device(name: &str, (seed, exchange): (&SigningSeed, &X25519Private), email: String) -> RegisterRequest {
    RegisterRequest {
        email,
        principal_name: name.to_owned(),
        public_key: seed.public().to_bytes().to_vec(),
        x25519_public_key: exchange.public().to_bytes().to_vec(),
        is_service: false,
        workspace_name: None,
        ephemeral_pub: None,
        kek_wrapped: None,
        kek_nonce: None,
    }
}
