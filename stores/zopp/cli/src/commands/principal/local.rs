//! The verbs that only read or change this device's file.

use konverge_zopp_client::{
    ConfigFile, Fingerprint, Identity,
    config_file::{KeyProtection, Principal},
};
use konverge_zopp_crypto::export::salt;
use serde::Serialize;

use crate::{
    context::Context,
    failure::Failure,
    file_key,
    output::{Outcome, listing, plain},
};

/// A principal of this device, without its keys.
#[derive(Serialize)]
struct PrincipalObject {
    id: String,
    name: String,
    current: bool,
    /// `null` for a service principal.
    email: Option<String>,
    user_id: Option<String>,
}

/// `principal list`
#[derive(Serialize)]
struct Principals {
    principals: Vec<PrincipalObject>,
}

pub(super) fn list() -> Outcome {
    let config = Context::config_or_empty()?;
    let current = config.current().map(|principal| principal.name.clone());
    let principals: Vec<_> =
        config.principals.into_iter().map(|principal| object(principal, current.as_deref())).collect();
    let lines = principals.iter().map(|PrincipalObject { id, name, current, email, .. }| {
        let mark = if *current { '*' } else { ' ' };
        format!("{mark} {name} (ID: {id}, User: {})", email.as_deref().unwrap_or("service principal"))
    });
    let text = listing("Principals:", "No principals found", lines);
    Ok(plain(Principals { principals }, text))
}

pub(super) fn current() -> Outcome {
    let mut config = Context::config()?;
    let name = current_name(&config)?;
    let index = config.principals.iter().position(|principal| principal.name == name).unwrap_or_default();
    Ok(plain(object(config.principals.swap_remove(index), Some(&name)), name))
}

/// `principal fingerprint`
#[derive(Serialize)]
struct PrincipalFingerprint {
    id: String,
    name: String,
    fingerprint: String,
}

pub(super) fn fingerprint(name: Option<&str>) -> Outcome {
    let mut config = Context::config()?;
    if let Some(name) = name {
        find(&config, name)?;
    }
    Context::open_keys(&mut config)?;
    let identity = Identity::from_config(&config, &Context::config_path()?, name)?;
    let exchange = identity.exchange_key().map(|key| key.public().to_bytes());
    let signing = identity.signing_seed().public().to_bytes();
    let fingerprint =
        Fingerprint::of_principal(&signing, exchange.as_ref().map_or(&[], <[u8; 32]>::as_slice)).to_string();
    let (id, name) = (identity.principal_id().to_owned(), identity.name().to_owned());
    Ok(plain(PrincipalFingerprint { id, name, fingerprint: fingerprint.clone() }, fingerprint))
}

pub(super) fn switch_to(name: &str) -> Outcome {
    let _lock = Context::lock()?;
    let mut config = Context::config()?;
    let index = find(&config, name)?;
    if super::pending::is_pending(&config.principals[index]) {
        return Err(Failure::new(format!("service principal '{name}' has not joined a workspace yet"))
            .next(format!("Make an invite (zopp invite create -w <workspace>), then: zopp join <invite> {name}@localhost --principal {name}")));
    }
    config.current_principal = Some(name.to_owned());
    Context::save(&config)?;
    Ok(plain(object(config.principals.swap_remove(index), Some(name)), format!("Now using principal '{name}'")))
}

pub(super) fn delete(name: &str) -> Outcome {
    let _lock = Context::lock()?;
    let mut config = Context::config()?;
    let index = find(&config, name)?;
    if config.principals.len() == 1 {
        return Err(Failure::new(format!(
            "'{name}' is the only principal of this device and its keys exist nowhere else"
        ))
        .next("Join or create another principal first."));
    }
    let was_current = config.current().is_none_or(|current| current.name == name);
    let deleted = config.principals.remove(index);
    if was_current {
        config.current_principal = config.principals.first().map(|first| first.name.clone());
    }
    Context::save(&config)?;
    let current = config.current().map(|current| current.name.clone());
    let text = format!(
        "Principal '{name}' deleted from this device; now using '{}'\nThe server still accepts its keys, \
         wherever they are: zopp principal disable --principal {}",
        current.as_deref().unwrap_or_default(),
        deleted.id
    );
    Ok(plain(object(deleted, current.as_deref()), text))
}

/// `principal encrypt-keys`, `principal decrypt-keys`
#[derive(Serialize)]
struct KeysAtRest {
    encrypted: bool,
    principals: usize,
}

/// Encrypts the private keys of this device with a passphrase, or with another one.
pub(super) fn encrypt_keys() -> Outcome {
    let _lock = Context::lock()?;
    let mut config = Context::config()?;
    if config.protection.is_some() {
        return Err(Failure::new("the private keys of this device are encrypted already")
            .next("For another passphrase: zopp principal decrypt-keys, then zopp principal encrypt-keys."));
    }
    let failure = |source| Failure::new("the private keys of this device cannot be encrypted").because(source);
    let salt = salt().map_err(failure)?;
    file_key::choose(&salt)?;
    config.protection = Some(KeyProtection { salt });
    Context::save(&config)?;
    let text = format!(
        "The private keys of this device are encrypted. Each command asks for the passphrase, or takes it from {}\nPublished clients cannot \
         read the file any more. Nobody can recover the passphrase",
        file_key::VARIABLE
    );
    Ok(plain(KeysAtRest { encrypted: true, principals: config.principals.len() }, text))
}

/// Stores the private keys of this device as they are.
pub(super) fn decrypt_keys() -> Outcome {
    let _lock = Context::lock()?;
    let mut config = Context::config_with_keys()?;
    config.protection = None;
    Context::save(&config)?;
    let text = "The private keys of this device are not encrypted";
    Ok(plain(KeysAtRest { encrypted: false, principals: config.principals.len() }, text))
}

fn object(principal: Principal, current: Option<&str>) -> PrincipalObject {
    let current = current == Some(principal.name.as_str());
    PrincipalObject {
        id: principal.id,
        name: principal.name,
        current,
        email: principal.email,
        user_id: principal.user_id,
    }
}

fn current_name(config: &ConfigFile) -> Result<String, Failure> {
    config.current().map(|principal| principal.name.clone()).ok_or_else(|| match &config.current_principal {
        Some(name) => unknown(config, name),
        None => Failure::new("this device has no principal").next("Join a server first: zopp join <invite> <email>"),
    })
}

/// The position of a principal in the file.
pub(super) fn find(config: &ConfigFile, name: &str) -> Result<usize, Failure> {
    config.principals.iter().position(|principal| principal.name == name).ok_or_else(|| unknown(config, name))
}

fn unknown(config: &ConfigFile, name: &str) -> Failure {
    let names: Vec<_> = config.principals.iter().map(|principal| principal.name.as_str()).collect();
    // The original's text has the words "not found", for which its tests look.
    Failure::new(format!("principal '{name}' not found on this device")).next(format!("It has: {}.", names.join(", ")))
}
