//! The table of the calls of Konverge's own for environments as a whole.

use std::sync::Arc;

use konverge_zopp_proto::secrets::{self as proto, method_path, secrets_server::Secrets};
use tonic::{Request, Response, Status};

use crate::{
    call::{
        Call,
        Record::{self, Change, Read},
    },
    handlers::changes,
    state::State,
    store::Action,
};

/// The gRPC service `konverge.zopp.secrets.v1.Secrets`.
#[derive(Debug, Clone)]
pub(crate) struct SecretsService {
    state: Arc<State>,
}

impl SecretsService {
    /// A service on this state.
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state }
    }
}

macro_rules! service {
    ($($method:ident($request:ident) -> $answer:ident = $name:literal, $record:expr, $handler:path;)*) => {
        #[tonic::async_trait]
        impl Secrets for SecretsService {
            $(
                async fn $method(
                    &self,
                    request: Request<proto::$request>,
                ) -> Result<Response<proto::$answer>, Status> {
                    let record: Record = $record;
                    let mut call = Call::open_at(&self.state, &request, &method_path($name), record).await?;
                    let result = $handler(&mut call, request.into_inner()).await;
                    call.close(result).await
                }
            )*
        }
    };
}

service! {
    read_environment(ReadEnvironmentRequest) -> ReadEnvironmentResponse = "ReadEnvironment",
        Read(Action::SecretList, "environment"), changes::read_environment;
    read_secret(ReadSecretRequest) -> ReadEnvironmentResponse = "ReadSecret",
        Read(Action::SecretRead, "secret"), changes::read_secret;
    change_secrets(ChangeSecretsRequest) -> ChangeSecretsResponse = "ChangeSecrets",
        Change(Action::SecretUpdate, "environment"), changes::change;
}
