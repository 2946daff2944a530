//! A file or setting that cannot be used.

use std::{borrow::Cow, io, path::PathBuf};

/// A credential, certificate or other local input that cannot be used. The text never repeats a secret.
#[derive(Debug, thiserror::Error)]
#[error("the {what} {}is not usable: {fault}", shown(path.as_ref()))]
#[non_exhaustive]
pub struct Unusable {
    /// The kind of input, such as `client certificate`.
    pub what: &'static str,
    /// Its file, if it is in one.
    pub path: Option<PathBuf>,
    /// The reason.
    pub fault: Fault,
}

/// Why an input cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Its file cannot be read.
    #[error("{0}")]
    Read(io::Error),
    /// Its content is wrong.
    #[error("{0}")]
    Content(Cow<'static, str>),
}

impl Unusable {
    pub(crate) fn content(what: &'static str, path: Option<PathBuf>, cause: impl Into<Cow<'static, str>>) -> Self {
        Self { what, path, fault: Fault::Content(cause.into()) }
    }

    pub(crate) fn read(what: &'static str, path: PathBuf, error: io::Error) -> Self {
        Self { what, path: Some(path), fault: Fault::Read(error) }
    }
}

fn shown(path: Option<&PathBuf>) -> String {
    path.map(|path| format!("{} ", path.display())).unwrap_or_default()
}
