//! New principals of this device.

use konverge_zopp_client::{ConfigFile, config_file::Principal};
use konverge_zopp_crypto::{SigningSeed, X25519Private};

use crate::failure::Failure;

/// Returns an error if a new principal cannot have this name on this device.
pub(super) fn refuse_duplicate(config: &ConfigFile, name: &str) -> Result<(), Failure> {
    if name.is_empty() {
        return Err(Failure::usage("the principal's name is empty"));
    }
    if config.principals.iter().any(|principal| principal.name == name) {
        return Err(Failure::new(format!("this device already has a principal named '{name}'"))
            .next("Choose another name; \"zopp principal list\" shows those there are."));
    }
    Ok(())
}

/// Generates both key pairs of a new principal.
pub(super) fn generate_keys() -> Result<(SigningSeed, X25519Private), Failure> {
    let keys = SigningSeed::generate().and_then(|seed| Ok((seed, X25519Private::generate()?)));
    keys.map_err(|source| Failure::new("no keys can be made").because(source))
}

/// Returns a principal as this device stores it, not yet of any user.
pub(super) fn new_principal(id: String, name: String, seed: &SigningSeed, exchange: &X25519Private) -> Principal {
    Principal {
        id,
        name,
        user_id: None,
        email: None,
        private_key: seed.to_hex(),
        public_key: hex::encode(seed.public().to_bytes()),
        x25519_private_key: Some(exchange.to_hex()),
        x25519_public_key: Some(hex::encode(exchange.public().to_bytes())),
        other: serde_json::Map::new(),
    }
}
