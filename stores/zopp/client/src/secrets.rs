//! The calls of Konverge's own for environments as a whole. A stock server answers `UNIMPLEMENTED`.

use konverge_zopp_proto::secrets as proto;
use tonic::Code;

use crate::{client::Client, connection::Rpc, error::CallError};

macro_rules! own_calls {
    ($($method:ident($request:ident) -> $answer:ident = $name:literal;)*) => {
        impl Client {
            $(
                #[doc = concat!("Calls `konverge.zopp.secrets.v1.Secrets/", $name, "`, signed.")]
                pub async fn $method(&self, request: proto::$request) -> Result<proto::$answer, CallError> {
                    let rpc = Rpc { name: $name, path: concat!("/konverge.zopp.secrets.v1.Secrets/", $name) };
                    self.call(rpc, &request).await
                }
            )*
        }
    };
}

own_calls! {
    read_environment(ReadEnvironmentRequest) -> ReadEnvironmentResponse = "ReadEnvironment";
    read_secret(ReadSecretRequest) -> ReadEnvironmentResponse = "ReadSecret";
    change_secrets(ChangeSecretsRequest) -> ChangeSecretsResponse = "ChangeSecrets";
    read_secret_history(ReadSecretHistoryRequest) -> ReadSecretHistoryResponse = "ReadSecretHistory";
    forget_secret_history(ForgetSecretHistoryRequest) -> ForgetSecretHistoryResponse = "ForgetSecretHistory";
}

impl CallError {
    /// Whether the server itself says that it does not know the call. A proxy's 404 says nothing of the server behind it.
    pub fn is_unknown_call(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if status.code() == Code::Unimplemented)
    }
}
