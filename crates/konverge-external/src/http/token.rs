//! The bearer token of an endpoint.

use std::{borrow::Cow, io, path::PathBuf};

use http::HeaderValue;
use konverge_core::SecretValue;
use konverge_endpoint::{Credential, Fault, Unusable};

/// A bearer token. It cannot be printed.
///
/// That of a file is read again for each request: it is a short file, and so a rotation is never missed. Blanks around
/// it do not count. Does not: wipe the copies that the HTTP client makes.
#[derive(Clone)]
pub struct Token(Credential);

/// There is no usable token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the token file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// There is nothing in it, or too much, or what no header can carry.
    #[error("the token{place} is not usable: {why}")]
    Unusable {
        /// Which one.
        place: String,
        /// The reason.
        why: Cow<'static, str>,
    },
}

impl Token {
    /// This value.
    pub fn value(value: SecretValue) -> Self {
        Self(Credential::value(value))
    }

    /// The content of the file at the time of each request.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Credential::file(path))
    }

    /// The `Authorization` header, which the client does not print.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or if it holds no token.
    pub async fn header(&self) -> Result<HeaderValue, TokenError> {
        Ok(self.0.authorization("token", "Bearer").await?)
    }
}

impl From<Unusable> for TokenError {
    fn from(unusable: Unusable) -> Self {
        let place = unusable.path.as_ref().map(|path| format!(" file {}", path.display())).unwrap_or_default();
        match (unusable.fault, unusable.path) {
            (Fault::Read(source), Some(path)) => Self::Read { path, source },
            (Fault::Content(why), _) => Self::Unusable { place, why },
            (fault, _) => Self::Unusable { place, why: fault.to_string().into() },
        }
    }
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
