//! A random key that is made once and kept in a Secret, for digests and proofs that outlive a process.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use konverge_core::digest::DIGEST_KEY_LENGTH;
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use zeroize::Zeroizing;

/// The name of the key in the Secret's data.
pub const DATA_KEY: &str = "key";

/// The bytes of a key. They are wiped when they are dropped.
pub type StoredKey = Zeroizing<[u8; DIGEST_KEY_LENGTH]>;

/// A key cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoredKeyError {
    /// The API server did not answer a request for the Secret as it should.
    #[error(transparent)]
    Request(Box<kube::Error>),
    /// The Secret holds no key of the right length.
    #[error("no key of {DIGEST_KEY_LENGTH} bytes under {DATA_KEY:?}")]
    Unusable,
}

impl From<kube::Error> for StoredKeyError {
    fn from(error: kube::Error) -> Self {
        Self::Request(Box::new(error))
    }
}

/// Returns the key that the Secret `name` holds, or makes `made` the key if there is no such Secret. Returns `None` if there is none and none is
/// given.
///
/// Replicas that call this at the same time agree on one key: the first one creates the Secret, and the others read it. The Secret is
/// immutable, because everything that was made with a key is worthless with another one.
///
/// # Errors
///
/// Returns an error if the API server refuses a request, or if the Secret holds something else than a key.
pub async fn get_or_create(
    api: &Api<Secret>,
    name: &str,
    made: Option<StoredKey>,
) -> Result<Option<StoredKey>, StoredKeyError> {
    let found = match (api.get_opt(name).await?, made) {
        (Some(found), _) => found,
        (None, None) => return Ok(None),
        (None, Some(made)) => match api.create(&PostParams::default(), &secret(name, &made)).await {
            Ok(created) => created,
            // Another replica was quicker.
            Err(kube::Error::Api(status)) if status.code == 409 => api.get(name).await?,
            Err(error) => return Err(error.into()),
        },
    };
    of(found).map(Some).ok_or(StoredKeyError::Unusable)
}

/// Returns the key that a Secret holds, or `None` if it holds something else.
pub fn of(secret: Secret) -> Option<StoredKey> {
    let key = secret.data.and_then(|mut data| data.remove(DATA_KEY)).map(|bytes| Zeroizing::new(bytes.0))?;
    <[u8; DIGEST_KEY_LENGTH]>::try_from(key.as_slice()).ok().map(Zeroizing::new)
}

fn secret(name: &str, key: &StoredKey) -> Secret {
    Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([(DATA_KEY.to_owned(), ByteString(key.to_vec()))])),
        immutable: Some(true),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_holds_its_key_and_nothing_else_is_one() {
        let key = Zeroizing::new([7; DIGEST_KEY_LENGTH]);
        let made = secret("key-of-digests", &key);
        assert_eq!((made.immutable, made.metadata.name.as_deref()), (Some(true), Some("key-of-digests")));
        assert_eq!(of(made), Some(key));
        for (name, length) in [(DATA_KEY, DIGEST_KEY_LENGTH - 1), (DATA_KEY, 0), ("other", DIGEST_KEY_LENGTH)] {
            let data = Some(BTreeMap::from([(name.to_owned(), ByteString(vec![7; length]))]));
            assert_eq!(of(Secret { data, ..Secret::default() }), None, "{name} {length}");
        }
        assert_eq!(of(Secret::default()), None);
    }
}
