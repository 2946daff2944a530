//! Validation of names and values. Reading tolerates what older servers let in; writing does not.

use konverge_zopp_crypto::{
    KeyError, SigningPublic, X25519Public,
    envelope::{NONCE_LENGTH, TAG_LENGTH},
    export::SALT_LENGTH,
    keys::KEY_LENGTH,
};
use tonic::Status;

/// Names end up in paths, encryption contexts and terminals; none needs more.
const MAXIMUM_NAME: usize = 128;
/// Far more than Kubernetes allows (253), and little enough to be repeated in answers and records.
const MAXIMUM_KEY: usize = 1024;
/// Longer than any name that somebody looks for.
const MAXIMUM_LOOKUP: usize = 1024;
/// Longer than any request of names and keys.
const MAXIMUM_PLAIN_REQUEST: usize = 16 * 1024;
/// The calls that carry encrypted content or keys, which have limits of their own.
const LARGE_REQUESTS: [&str; 4] = [
    "/zopp.ZoppService/UpsertSecret",
    "/zopp.ZoppService/CreatePrincipalExport",
    "/konverge.zopp.secrets.v1.Secrets/ChangeSecrets",
    // A key for each holder and each environment of the workspace.
    "/konverge.zopp.v1.Identity/RotateWorkspaceKey",
];
/// RFC 5321's limit for a path, without its brackets.
const MAXIMUM_EMAIL: usize = 254;
/// Invite tokens are 64 hexadecimal digits; others are not ours to make up, but have no need for more either.
const MAXIMUM_TOKEN: usize = 256;

/// A few sentences.
const MAXIMUM_DESCRIPTION: usize = 1024;
/// The keys and names of one principal take less than a kilobyte.
const MAXIMUM_EXPORT: usize = 16 * 1024;

/// Length of a wrapped key: the key and the tag.
const WRAPPED_KEY: usize = KEY_LENGTH + TAG_LENGTH;

/// The name of a workspace, project, environment or principal. A colon would make encryption contexts, which join names with
/// colons, ambiguous.
pub(crate) fn name<'a>(what: &str, text: &'a str) -> Result<&'a str, Status> {
    if text.is_empty() || text.trim() != text {
        return Err(invalid(format!("{what} must not be empty nor begin or end with a space")));
    }
    if text.len() > MAXIMUM_NAME {
        return Err(invalid(format!("{what} must be at most {MAXIMUM_NAME} bytes long")));
    }
    if text.contains([':', '/']) || text.chars().any(char::is_control) {
        return Err(invalid(format!("{what} must not contain ':', '/' or control characters")));
    }
    Ok(text)
}

/// A name or key that is only looked up: older servers let in what this one does not write. Bounded all the same, because it is quoted
/// in refusals and recorded.
pub(crate) fn lookup(what: &str, text: &str) -> Result<(), Status> {
    if text.len() > MAXIMUM_LOOKUP {
        return Err(invalid(format!("{what} must be at most {MAXIMUM_LOOKUP} bytes long, but has {}", text.len())));
    }
    Ok(())
}

/// The most bytes that a request of the call with this path has. More of it does not even arrive.
pub(crate) fn largest_request(path: &str) -> Option<usize> {
    (!LARGE_REQUESTS.contains(&path)).then_some(MAXIMUM_PLAIN_REQUEST)
}

/// For a request that is larger.
pub(crate) fn too_large(most: usize) -> Status {
    invalid(format!("this call takes at most {most} bytes"))
}

/// Checks the key of a secret to set. The encryption context joins names with colons, so a colon would make it ambiguous. A key with `=` is
/// mostly a mistaken `KEY=value`; the refusal does not repeat it. All other keys are accepted, as in the original, even if Kubernetes or a
/// shell does not allow them.
pub(crate) fn secret_key(text: &str) -> Result<&str, Status> {
    let text = stored_key(text)?;
    if text.chars().any(|character| character == '=' || character.is_control()) {
        return Err(invalid("secret key must not contain '=' or control characters"));
    }
    Ok(text)
}

/// Checks the key of an existing secret, which may be older than a rule.
pub(crate) fn stored_key(text: &str) -> Result<&str, Status> {
    if text.is_empty() || text.len() > MAXIMUM_KEY {
        return Err(invalid(format!("secret key must be 1 to {MAXIMUM_KEY} bytes long")));
    }
    if text.contains(':') {
        return Err(invalid(
            "secret key must not contain ':', which separates the names that a value is encrypted under",
        ));
    }
    Ok(text)
}

/// An e-mail address in the one spelling it is kept and compared in: trimmed, lower case.
pub(crate) fn email(text: &str) -> Result<String, Status> {
    let email = text.trim().to_lowercase();
    let plausible = email.split_once('@').is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty());
    if !plausible || email.len() > MAXIMUM_EMAIL || email.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(invalid("email must be an address such as name@example.com"));
    }
    Ok(email)
}

/// The description of a group: text for people.
pub(crate) fn description(text: &str) -> Result<&str, Status> {
    if text.len() > MAXIMUM_DESCRIPTION || text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        return Err(invalid(format!(
            "description must be at most {MAXIMUM_DESCRIPTION} bytes long and contain no control characters"
        )));
    }
    Ok(text)
}

/// The hash that opens the export of a principal: 32 bytes in hexadecimal.
pub(crate) fn token_hash(text: &str) -> Result<&str, Status> {
    if text.len() != 2 * KEY_LENGTH || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(invalid(format!("token_hash must be {} hexadecimal digits", 2 * KEY_LENGTH)));
    }
    Ok(text)
}

/// A salt of a passphrase.
pub(crate) fn salt(what: &str, bytes: &[u8]) -> Result<Vec<u8>, Status> {
    length(what, bytes, SALT_LENGTH)
}

/// The encrypted export of a principal.
pub(crate) fn export(bytes: &[u8]) -> Result<&[u8], Status> {
    if bytes.len() < TAG_LENGTH || bytes.len() > MAXIMUM_EXPORT {
        return Err(invalid(format!("encrypted_data must be {TAG_LENGTH} to {MAXIMUM_EXPORT} bytes long")));
    }
    Ok(bytes)
}

/// A UUID given by a client, in the one spelling ids are kept in.
pub(crate) fn id(what: &str, text: &str) -> Result<String, Status> {
    match uuid::Uuid::try_parse(text) {
        Ok(id) if !id.is_nil() => Ok(id.to_string()),
        _ => Err(invalid(format!("{what} must be a UUID"))),
    }
}

/// An invite token.
pub(crate) fn token(text: &str) -> Result<&str, Status> {
    if text.is_empty() || text.len() > MAXIMUM_TOKEN {
        return Err(invalid(format!("token must be 1 to {MAXIMUM_TOKEN} bytes long")));
    }
    Ok(text)
}

/// An Ed25519 public key.
pub(crate) fn signing_key(bytes: &[u8]) -> Result<Vec<u8>, Status> {
    SigningPublic::from_slice(bytes).and_then(|key| key.check_strength()).map_err(|error| match error {
        KeyError::Weak => weak("public_key", error),
        _ => invalid(format!("public_key must be an Ed25519 public key of {KEY_LENGTH} bytes")),
    })?;
    Ok(bytes.to_vec())
}

/// An X25519 public key that may be missing.
pub(crate) fn optional_x25519_key(bytes: &[u8]) -> Result<Option<Vec<u8>>, Status> {
    if bytes.is_empty() { Ok(None) } else { x25519_key("x25519_public_key", bytes).map(Some) }
}

/// The public half of the key a workspace key was wrapped with.
pub(crate) fn ephemeral_key(bytes: &[u8]) -> Result<Vec<u8>, Status> {
    x25519_key("ephemeral_pub", bytes)
}

fn x25519_key(what: &str, bytes: &[u8]) -> Result<Vec<u8>, Status> {
    let bytes = length(what, bytes, KEY_LENGTH)?;
    X25519Public::from_slice(&bytes).and_then(|key| key.check_strength()).map_err(|error| weak(what, error))?;
    Ok(bytes)
}

fn weak(what: &str, error: KeyError) -> Status {
    invalid(format!("{what} is {error}; make a new key pair"))
}

/// A wrapped 32-byte key.
pub(crate) fn wrapped_key(what: &str, bytes: &[u8]) -> Result<Vec<u8>, Status> {
    length(what, bytes, WRAPPED_KEY)
}

/// A nonce.
pub(crate) fn nonce(what: &str, bytes: &[u8]) -> Result<Vec<u8>, Status> {
    length(what, bytes, NONCE_LENGTH)
}

/// An encrypted value; that of nothing is its tag.
pub(crate) fn ciphertext<B: AsRef<[u8]>>(bytes: B) -> Result<B, Status> {
    let length = bytes.as_ref().len();
    if length < TAG_LENGTH {
        return Err(invalid(format!("ciphertext must be at least {TAG_LENGTH} bytes long, but has {length}")));
    }
    Ok(bytes)
}

fn length(what: &str, bytes: &[u8], expected: usize) -> Result<Vec<u8>, Status> {
    if bytes.len() != expected {
        return Err(invalid(format!("{what} must be {expected} bytes long, but has {}", bytes.len())));
    }
    Ok(bytes.to_vec())
}

fn invalid(message: impl Into<String>) -> Status {
    Status::invalid_argument(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_meaning_elsewhere_are_refused() {
        for bad in ["", " a", "a ", "a:b", "a/b", "a\nb", &"x".repeat(129)] {
            assert!(name("name", bad).is_err(), "{bad:?}");
        }
        for good in ["a", "my project", "Größe", "a.b-c_d"] {
            assert!(name("name", good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn keys_are_taken_unless_their_encryption_context_is_ambiguous_or_they_are_a_mistake() {
        for bad in ["", "a:b", &"x".repeat(1025)] {
            assert!(secret_key(bad).is_err() && stored_key(bad).is_err(), "{bad:?}");
        }
        for bad in ["KEY=hunter2", "hunter2\n", "hunter2\0", "hunter2\u{85}"] {
            let refusal = secret_key(bad).unwrap_err();
            assert!(!refusal.message().contains("hunter2"), "{refusal}");
            assert!(stored_key(bad).is_ok(), "a new key of the environment encrypts it again");
        }
        for good in ["DATABASE_URL", "tls.crt", "a b", " a", &"x".repeat(254)] {
            assert!(secret_key(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn an_email_has_one_spelling() {
        assert_eq!(email(" Ann@Example.COM ").unwrap(), "ann@example.com");
        for bad in ["", "ann", "@example.com", "ann@", "a nn@example.com"] {
            assert!(email(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn lengths_are_exact() {
        for (given, fine) in [(0, false), (1, false), (23, false), (24, true), (25, false)] {
            assert_eq!(nonce("nonce", &vec![0; given]).is_ok(), fine, "{given}");
        }
        assert!(wrapped_key("dek_wrapped", &[0; 47]).is_err() && wrapped_key("dek_wrapped", &[0; 48]).is_ok());
        assert!(ciphertext([0; 15]).is_err() && ciphertext([0; 16]).is_ok());
        assert!(optional_x25519_key(&[]).unwrap().is_none() && optional_x25519_key(&[0; 31]).is_err());
    }
}
