//! Keys that a secret cannot get, such as `KEY=value`.
//!
//! Servers see keys in the clear and record them, so a value that is typed behind a key must not be sent. An older client may have stored a
//! secret with such a key. It stays reachable: the client sends the key if the server lists it, and so knows it already.

use konverge_zopp_client::{
    Client, EnvironmentName, EnvironmentReader,
    writer::{WriteError, may_be_set},
};

use crate::failure::Failure;

/// Checks that a secret may get this key. `right_form` is the next step for the user.
///
/// # Errors
/// A usage error that does not repeat the key, because the text after the equals sign is most likely the value.
pub(super) fn refuse(key: &str, right_form: &str) -> Result<(), Failure> {
    if may_be_set(key) {
        return Ok(());
    }
    Err(Failure::usage(WriteError::BadKey.to_string() + "; nothing was sent").next(right_form))
}

/// Like [`refuse`], but accepts the key of an existing secret. `verb` is the command.
///
/// # Errors
/// A usage error that does not repeat the key.
pub(super) async fn refuse_unknown(
    client: &Client,
    name: &EnvironmentName,
    key: &str,
    verb: &str,
) -> Result<(), Failure> {
    if may_be_set(key) {
        return Ok(());
    }
    let failure = Failure::usage(WriteError::BadKey.to_string() + "; it was not sent")
        .next(format!("Write the key alone: zopp secret {verb} KEY. An existing key of this kind is accepted."));
    match EnvironmentReader::new(client.clone(), name.clone()).keys().await {
        Ok((_, keys)) if keys.iter().any(|known| known == key) => Ok(()),
        Ok(_) => Err(failure),
        Err(error) => Err(failure.because(error)),
    }
}
