//! Why a store could not be read.

use std::{io, path::Path, time::Duration};

use konverge_core::error::{Classify, ErrorClass, in_one_line};
use object_store::Error;

/// An answer of a store that is taken up into an error is cut after so many characters: some stores repeat the whole request.
const LONGEST_CAUSE: usize = 400;

/// A store that did not tell what is in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectsError {
    /// It refused, failed or is not there.
    #[error("cannot {act} {place}: {cause}{}", hint(*.kind))]
    Store {
        /// List or read.
        act: &'static str,
        /// The store, and the prefix or object.
        place: String,
        /// The response.
        cause: String,
        /// The kind of refusal.
        kind: Kind,
    },
    /// It fell silent.
    #[error("cannot {act} {place}: nothing came for {} s", limit.as_secs())]
    Silent {
        /// List or read.
        act: &'static str,
        /// The store, and the prefix or object.
        place: String,
        /// For how long it was waited.
        limit: Duration,
    },
    /// There is too much.
    #[error(
        "there are more than {limit} objects in {place}, and that many are remembered at most; narrow the prefix or raise the limit"
    )]
    TooMany {
        /// The store and the prefix.
        place: String,
        /// The limit.
        limit: usize,
    },
    /// The system has no randomness for a key.
    #[error("cannot make a key for fingerprints: {0}")]
    Key(#[from] getrandom::Error),
}

/// The kind of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The credentials are wrong or may not do this.
    Forbidden,
    /// There is no such bucket, container, folder or object.
    NotFound,
    /// It will never work like this.
    Unsupported,
    /// Anything else; it may go away.
    Unavailable,
}

fn hint(kind: Kind) -> &'static str {
    match kind {
        Kind::Forbidden => "; are the credentials right, and may they list and read here?",
        Kind::NotFound => "; is the name of the bucket, container or folder right?",
        Kind::Unsupported | Kind::Unavailable => "",
    }
}

impl ObjectsError {
    pub(super) fn store(act: &'static str, place: String, error: &Error) -> Self {
        let text = in_one_line(error);
        let kind = kind(error, &text);
        Self::Store { act, place, cause: shorten(&text), kind }
    }

    pub(super) fn folder(folder: &Path, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Kind::NotFound,
            io::ErrorKind::PermissionDenied => Kind::Forbidden,
            _ => Kind::Unavailable,
        };
        Self::Store { act: "list", place: folder.display().to_string(), cause: error.to_string(), kind }
    }
}

/// Errors of listings come without their kind, so the status in their text has to do.
fn kind(error: &Error, text: &str) -> Kind {
    let status = |code| text.contains(&format!("status code: {code}"));
    match error {
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Kind::Forbidden,
        Error::NotFound { .. } => Kind::NotFound,
        Error::NotSupported { .. }
        | Error::NotImplemented { .. }
        | Error::InvalidPath { .. }
        | Error::UnknownConfigurationKey { .. } => Kind::Unsupported,
        _ if status(401) || status(403) => Kind::Forbidden,
        _ if status(404) => Kind::NotFound,
        _ => Kind::Unavailable,
    }
}

/// Of an answer in XML only what was meant for people: its code and message.
fn shorten(text: &str) -> String {
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once('<')?.0)
    };
    let short = match (text.split_once('<'), element("Code")) {
        (Some((before, _)), Some(code)) => format!("{before}{code}: {}", element("Message").unwrap_or_default()),
        _ => text.to_owned(),
    };
    match short.char_indices().nth(LONGEST_CAUSE) {
        Some((end, _)) => format!("{} ...", &short[..end]),
        None => short,
    }
}

impl Classify for ObjectsError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Store { kind: Kind::Forbidden, .. } => ErrorClass::Refused,
            // A missing object may appear.
            Self::Store { kind: Kind::Unavailable | Kind::NotFound, .. } | Self::Silent { .. } | Self::Key(_) => {
                ErrorClass::Transient
            }
            Self::Store { kind: Kind::Unsupported, .. } | Self::TooMany { .. } => ErrorClass::Permanent,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Store { kind: Kind::Forbidden, .. } => "Forbidden",
            Self::Store { kind: Kind::NotFound, .. } => "NotFound",
            Self::Store { kind: Kind::Unsupported, .. } => "Unsupported",
            Self::Store { kind: Kind::Unavailable, .. } => "StoreUnavailable",
            Self::Silent { .. } => "Timeout",
            Self::TooMany { .. } => "TooManyObjects",
            Self::Key(_) => "ClientUnavailable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_cut_to_what_people_need() {
        for (text, short) in [
            ("connection refused", "connection refused"),
            (
                "status code: 403: <?xml?><Error><Code>A</Code><Message>B.</Message><More>c</More></Error>",
                "status code: 403: A: B.",
            ),
            ("status code: 500: <html><body>oops</body></html>", "status code: 500: <html><body>oops</body></html>"),
            ("status: <Code>A</Code>", "status: A: "),
        ] {
            assert_eq!(shorten(text), short);
        }
        assert_eq!(shorten(&"é".repeat(1000)).chars().count(), LONGEST_CAUSE + 4);
    }

    #[test]
    fn kinds() {
        let generic = |text: &str| Error::Generic { store: "S3", source: text.into() };
        for (error, expected) in [
            (generic("Server returned non-2xx status code: 403 Forbidden"), Kind::Forbidden),
            (generic("Server returned non-2xx status code: 404 Not Found"), Kind::NotFound),
            (generic("Server returned non-2xx status code: 503 Slow Down"), Kind::Unavailable),
            (Error::NotSupported { source: "".into() }, Kind::Unsupported),
        ] {
            assert_eq!(kind(&error, &error.to_string()), expected, "{error}");
        }
    }
    #[test]
    fn a_listing_that_is_refused_is_tried_again_and_one_that_is_impossible_is_not() {
        for (kind, expected) in [
            (Kind::Forbidden, ErrorClass::Refused),
            (Kind::NotFound, ErrorClass::Transient),
            (Kind::Unavailable, ErrorClass::Transient),
            (Kind::Unsupported, ErrorClass::Permanent),
        ] {
            let (place, cause) = ("s3://bucket".to_owned(), "no".to_owned());
            assert_eq!(ObjectsError::Store { act: "list", place, cause, kind }.class(), expected);
        }
    }
}
