//! A secret to authenticate with.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::BoxFuture;
use http::HeaderValue;
use konverge_core::SecretValue;
use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

use crate::unusable::Unusable;

/// No token, role id or key is longer; a larger file is another file.
const LONGEST: u64 = 64 * 1024;

/// A secret from memory, from a file or from a function. It cannot be printed.
///
/// A file is read and a function is called again for each use, so a rotation takes effect at once. Blanks around the secret do not count.
#[derive(Clone)]
pub struct Credential(Place);

#[derive(Clone)]
enum Place {
    Value(Arc<SecretValue>),
    File(PathBuf),
    Issued(Arc<Issue>),
}

/// Returns a secret, or why there is none.
type Issue = dyn Fn() -> BoxFuture<'static, Result<SecretValue, String>> + Send + Sync;

impl Credential {
    /// This value.
    pub fn value(value: SecretValue) -> Self {
        Self::shared(Arc::new(value))
    }

    /// This value, which others hold, too.
    pub fn shared(value: Arc<SecretValue>) -> Self {
        Self(Place::Value(value))
    }

    /// The content of the file at the time of each use.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Place::File(path.into()))
    }

    /// A secret that the function returns at each use. The error of the function must not repeat a secret.
    pub fn issued(issue: impl Fn() -> BoxFuture<'static, Result<SecretValue, String>> + Send + Sync + 'static) -> Self {
        Self(Place::Issued(Arc::new(issue)))
    }

    /// Returns its current text, trimmed. `what` names it in errors.
    pub async fn read(&self, what: &'static str) -> Result<Zeroizing<String>, Unusable> {
        let content = self.bytes(what).await?;
        let text = std::str::from_utf8(&content).map_err(|_| self.unusable(what, "it is not text"))?.trim();
        if text.is_empty() {
            return Err(self.unusable(what, "it is empty"));
        }
        Ok(Zeroizing::new(text.to_owned()))
    }

    /// Returns an `Authorization` header of this scheme, such as `Bearer`. The header is marked as sensitive, so that HTTP clients do not
    /// print it; the copies that they make are not wiped.
    pub async fn authorization(&self, what: &'static str, scheme: &str) -> Result<HeaderValue, Unusable> {
        let content = self.bytes(what).await?;
        let token = content.trim_ascii();
        if token.is_empty() {
            return Err(self.unusable(what, "it is empty"));
        }
        let value = Zeroizing::new([scheme.as_bytes(), b" ", token].concat());
        let mut value = HeaderValue::from_bytes(&value)
            .map_err(|_| self.unusable(what, "it has characters that no header can carry"))?;
        value.set_sensitive(true);
        Ok(value)
    }

    async fn bytes(&self, what: &'static str) -> Result<Zeroizing<Vec<u8>>, Unusable> {
        match &self.0 {
            Place::Value(value) => Ok(Zeroizing::new(value.expose().to_vec())),
            Place::File(path) => read_file(what, path, LONGEST).await,
            Place::Issued(issue) => {
                let secret = issue().await.map_err(|cause| Unusable::content(what, None, cause))?;
                Ok(Zeroizing::new(secret.expose().to_vec()))
            }
        }
    }

    fn unusable(&self, what: &'static str, cause: &'static str) -> Unusable {
        let path = match &self.0 {
            Place::Value(_) | Place::Issued(_) => None,
            Place::File(path) => Some(path.clone()),
        };
        Unusable::content(what, path, cause)
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Value(_) => f.write_str("Credential(value)"),
            Place::Issued(_) => f.write_str("Credential(issued)"),
            Place::File(path) => f.debug_tuple("Credential").field(path).finish(),
        }
    }
}

/// Reads a file of at most `limit` bytes; a longer one is not the expected file.
pub(crate) async fn read_file(what: &'static str, path: &Path, limit: u64) -> Result<Zeroizing<Vec<u8>>, Unusable> {
    let owned = path.to_owned();
    let read = move || {
        // Most fit into this, so that no copy is left behind by a longer buffer.
        let mut content = Zeroizing::new(Vec::with_capacity(4096));
        File::open(owned)?.take(limit + 1).read_to_end(&mut content)?;
        io::Result::Ok(content)
    };
    // One turn of another thread. Tokio's file takes several, and a call may begin with this.
    let content = spawn_blocking(read).await.unwrap_or_else(|error| Err(error.into()));
    let content = content.map_err(|error| Unusable::read(what, path.to_owned(), error))?;
    if content.len() as u64 > limit {
        return Err(Unusable::content(what, Some(path.to_owned()), "it is too long"));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_file_is_read_again_for_each_use_and_errors_name_it_but_never_show_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let credential = Credential::file(&path);
        let failure = async || credential.authorization("token", "Bearer").await.unwrap_err().to_string();
        assert!(failure().await.contains("token"));
        for content in ["one\n", " two"] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(&**credential.read("token").await.unwrap(), content.trim());
            let header = credential.authorization("token", "Bearer").await.unwrap();
            assert_eq!(header, format!("Bearer {}", content.trim()));
            assert!(header.is_sensitive());
        }
        for (content, why) in [("\n", "empty"), ("hunter2\nx", "characters"), (&"x".repeat(70_000), "long")] {
            std::fs::write(&path, content).unwrap();
            let text = failure().await;
            assert!(
                text.contains(why) && text.contains(&*path.to_string_lossy()) && !text.contains("hunter2"),
                "{text}"
            );
        }
    }

    #[tokio::test]
    async fn a_value_is_not_printed() {
        let credential = Credential::value(SecretValue::from("hunter2".to_owned()));
        assert_eq!(credential.authorization("token", "Token").await.unwrap(), "Token hunter2");
        assert!(!format!("{credential:?}").contains("hunter2"));
        assert!(Credential::value(SecretValue::from(String::new())).read("token").await.is_err());
    }

    #[tokio::test]
    async fn a_function_is_called_for_each_use() {
        let calls = AtomicUsize::new(0);
        let credential = Credential::issued(move || {
            let number = calls.fetch_add(1, Ordering::Relaxed);
            async move { if number < 2 { Ok(format!("token-{number}").into()) } else { Err("it is refused".into()) } }
                .boxed()
        });
        for number in 0..2 {
            assert_eq!(&**credential.read("token").await.unwrap(), format!("token-{number}"));
        }
        let error = credential.read("token").await.unwrap_err().to_string();
        assert_eq!(error, "the token is not usable: it is refused");
        assert_eq!(format!("{credential:?}"), "Credential(issued)");
    }
}
