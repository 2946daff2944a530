//! The table of the calls of Konverge's own for environments as a whole.

use crate::{
    call::Record::{Change, Read},
    handlers::{changes, history},
    own_service::own_service,
    store::Action,
};

own_service! {
    /// The gRPC service `konverge.zopp.secrets.v1.Secrets`.
    SecretsService: secrets, secrets_server::Secrets {
        read_environment(ReadEnvironmentRequest) -> ReadEnvironmentResponse = "ReadEnvironment",
            Read(Action::SecretList, "environment"), changes::read_environment, in environment;
        read_secret(ReadSecretRequest) -> ReadEnvironmentResponse = "ReadSecret",
            Read(Action::SecretRead, "secret"), changes::read_secret, in environment;
        change_secrets(ChangeSecretsRequest) -> ChangeSecretsResponse = "ChangeSecrets",
            Change(Action::SecretUpdate, "environment"), changes::change, in environment;
        read_secret_history(ReadSecretHistoryRequest) -> ReadSecretHistoryResponse = "ReadSecretHistory",
            Read(Action::SecretHistory, "secret"), history::read, in environment;
        forget_secret_history(ForgetSecretHistoryRequest) -> ForgetSecretHistoryResponse = "ForgetSecretHistory",
            Change(Action::SecretForget, "secret"), history::forget, in environment;
    }
}
