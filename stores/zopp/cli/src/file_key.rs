//! The key of a protected configuration file, derived from a passphrase. The user enters it once.

use std::{io::IsTerminal, sync::OnceLock};

use konverge_zopp_client::ConfigFile;
use konverge_zopp_crypto::{
    at_rest::FileKey,
    export::{Passphrase, SALT_LENGTH},
};

use crate::failure::Failure;

/// The passphrase from scripts. Without it, the command asks for the passphrase.
pub const VARIABLE: &str = "ZOPP_KEY_PASSPHRASE";

/// The minimum number of guesses for a chosen passphrase, as a power of ten. A guess takes 64 MiB and about a quarter of a
/// second ([`konverge_zopp_crypto::export`]).
const MIN_GUESSES_LOG10: f64 = 15.0;

/// The key of the only configuration file of this process.
static KEY: OnceLock<FileKey> = OnceLock::new();

/// Returns the key of a protected file; `None` if the file is not protected.
///
/// # Errors
/// If there is no passphrase, and no terminal to ask at.
pub fn of(config: &ConfigFile) -> Result<Option<&'static FileKey>, Failure> {
    let Some(protection) = config.protection else { return Ok(None) };
    if KEY.get().is_none() {
        let passphrase = obtain("Passphrase of this device's keys: ")?;
        let _ = KEY.set(derive(&passphrase, &protection.salt)?);
    }
    Ok(KEY.get())
}

/// Asks for the passphrase of a file to protect, and keeps its key for the rest of the process.
///
/// # Errors
/// If there is no passphrase, or a weak one, or two different ones are typed.
pub fn choose(salt: &[u8; SALT_LENGTH]) -> Result<(), Failure> {
    let passphrase = obtain("New passphrase of this device's keys: ")?;
    if is_weak(passphrase.expose()) {
        return Err(weak("the passphrase", "Use six random words, or 20 random characters."));
    }
    let is_typed = variable().is_none();
    if is_typed && obtain("The same again: ")?.expose() != passphrase.expose() {
        return Err(Failure::usage("the two passphrases differ"));
    }
    let _ = KEY.set(derive(&passphrase, salt)?);
    Ok(())
}

/// Returns `true` if the passphrase is too easy to guess.
pub fn is_weak(passphrase: &str) -> bool {
    zxcvbn::zxcvbn(passphrase, &[]).guesses_log10() < MIN_GUESSES_LOG10
}

/// Returns the failure for a weak passphrase.
pub fn weak(what: &str, next: &str) -> Failure {
    Failure::usage(format!("{what} is weak: it can be guessed")).next(next)
}

fn derive(passphrase: &Passphrase, salt: &[u8; SALT_LENGTH]) -> Result<FileKey, Failure> {
    passphrase
        .file_key(salt)
        .map_err(|source| Failure::new("the key of the configuration file cannot be derived").because(source))
}

fn variable() -> Option<String> {
    std::env::var(VARIABLE).ok().filter(|value| !value.is_empty())
}

fn obtain(prompt: &str) -> Result<Passphrase, Failure> {
    match variable() {
        Some(words) => Ok(Passphrase::new(words)),
        None if std::io::stdin().is_terminal() => rpassword::prompt_password(prompt)
            .map(Passphrase::new)
            .map_err(|source| Failure::new("cannot ask for the passphrase").because(source)),
        None => Err(Failure::usage("the private keys of this device need a passphrase")
            .next(format!("Set {VARIABLE}, or run the command in a terminal, which asks for it."))),
    }
}
