//! Helpers of all tests.

use std::time::Duration;

use konverge_core::SecretValue;
use konverge_testkit_stores::{VaultOptions, VaultServer};
use konverge_vault::{Content, Credential, Field, Found, Location, Login, Secret, SecretPath, Vault, VaultConfig};

/// The time limit of every wait in these tests.
pub(crate) const SOON: Duration = Duration::from_mins(1);

pub(crate) async fn server() -> VaultServer {
    VaultServer::start(VaultOptions::default()).await.unwrap()
}

pub(crate) fn secret(text: &str) -> SecretValue {
    SecretValue::from(text.to_owned())
}

pub(crate) fn credential(text: &str) -> Credential {
    Credential::value(secret(text))
}

pub(crate) fn config(server: &VaultServer, login: Login) -> VaultConfig {
    VaultConfig::new(server.address(), login).unwrap()
}

/// A client with the administrator's token.
pub(crate) fn administrator(server: &VaultServer) -> Vault {
    Vault::new(&config(server, Login::Token(credential(server.root_token()))))
}

pub(crate) async fn locate(vault: &Vault, path: &str) -> Location {
    vault.locate(&SecretPath::parse(path).unwrap()).await.unwrap()
}

pub(crate) fn content(fields: &[(&str, &str)]) -> Content {
    fields.iter().map(|(key, value)| ((*key).to_owned(), secret(value))).collect()
}

pub(crate) async fn live(vault: &Vault, location: &Location) -> Secret {
    match vault.read(location).await.unwrap() {
        Found::Live(secret) => secret,
        Found::Absent => panic!("nothing is at {location}"),
        Found::Deleted(version) => panic!("version {} of {location} is deleted", version.number),
    }
}

/// The field's text.
pub(crate) fn text(content: &Content, key: &str) -> String {
    let field = content.get(key).map(Field::bytes).unwrap_or_default();
    String::from_utf8(field.to_vec()).unwrap()
}
