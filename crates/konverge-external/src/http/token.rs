//! Who asks.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use http::HeaderValue;
use konverge_core::SecretValue;
use tokio::io::AsyncReadExt;
use zeroize::Zeroizing;

/// No token is longer; a larger file is another file.
const LONGEST: u64 = 64 * 1024;

/// A bearer token. It cannot be printed.
///
/// That of a file is read anew for each request: it is a short file, and so a rotation is never missed. Blanks around it do not
/// count. Does not: wipe the copies that the HTTP client makes.
#[derive(Clone)]
pub struct Token(Place);

#[derive(Clone)]
enum Place {
    Value(Arc<SecretValue>),
    File(PathBuf),
}

/// There is no usable token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the token file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is nothing in it, or too much, or what no header can carry.
    #[error("the token{place} is not usable: {why}")]
    Unusable {
        /// Which one.
        place: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl Token {
    /// This one.
    pub fn value(value: SecretValue) -> Self {
        Self(Place::Value(Arc::new(value)))
    }

    /// Whatever is in the file at the time of a request.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Place::File(path.into()))
    }

    /// The `Authorization` header, which the client does not print.
    pub(super) async fn header(&self) -> Result<HeaderValue, TokenError> {
        match &self.0 {
            Place::Value(value) => {
                header(value.expose()).map_err(|why| TokenError::Unusable { place: String::new(), why })
            }
            Place::File(path) => {
                let content = read(path).await.map_err(|source| TokenError::Read { path: path.clone(), source })?;
                let place = format!(" file {}", path.display());
                header(&content).map_err(|why| TokenError::Unusable { place, why })
            }
        }
    }
}

async fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut content = Zeroizing::new(Vec::new());
    tokio::fs::File::open(path).await?.take(LONGEST + 1).read_to_end(&mut content).await?;
    Ok(content)
}

fn header(token: &[u8]) -> Result<HeaderValue, &'static str> {
    if token.len() as u64 > LONGEST {
        return Err("it is too long");
    }
    let token = token.trim_ascii();
    if token.is_empty() {
        return Err("it is empty");
    }
    let value = Zeroizing::new([b"Bearer ".as_slice(), token].concat());
    let mut value = HeaderValue::from_bytes(&value).map_err(|_| "it has characters that no header can carry")?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_read_anew_and_errors_name_it_but_never_the_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = Token::file(&path);
        assert!(token.header().await.unwrap_err().to_string().contains("cannot read the token file"));
        std::fs::write(&path, "one\n").unwrap();
        let header = token.header().await.unwrap();
        assert_eq!(header, "Bearer one");
        assert!(!format!("{header:?}").contains("one"));
        std::fs::write(&path, "two").unwrap();
        assert_eq!(token.header().await.unwrap(), "Bearer two");
        for (content, why) in
            [(" \n".to_owned(), "empty"), ("t\nx".to_owned(), "characters"), ("x".repeat(70_000), "long")]
        {
            std::fs::write(&path, &content).unwrap();
            let error = token.header().await.unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(&*path.to_string_lossy()), "{error}");
        }
    }

    #[tokio::test]
    async fn a_value() {
        assert_eq!(Token::value(SecretValue::from("abc".to_owned())).header().await.unwrap(), "Bearer abc");
        assert!(Token::value(SecretValue::from(String::new())).header().await.is_err());
    }
}
