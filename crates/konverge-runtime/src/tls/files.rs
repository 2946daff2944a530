//! A pair from two files, such as those of a mounted Secret that cert-manager keeps.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use konverge_core::error::in_one_line;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::{
    pair::{Pair, PairError},
    reading::Reading,
    slot::Slot,
};

/// A mounted Secret changes up to a minute after the Secret, so ten seconds more do not matter; and reading two small files so
/// often costs nothing. Notices of the file system get lost where folders are swapped by links, as the kubelet does it.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Files that give no pair.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The files do not make a pair.
    #[error("cannot serve with {certificate} and {key}")]
    Pair {
        /// The chain's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The reason.
        #[source]
        source: PairError,
    },
}

/// Two files, and what was in them when they last gave a pair.
#[derive(Debug)]
pub(super) struct Files {
    certificate: PathBuf,
    key: PathBuf,
    seen: Contents,
    look_every: Duration,
}

#[derive(PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Contents")
    }
}

impl Contents {
    fn read(certificate: &Path, key: &Path) -> Result<Self, FilesError> {
        let read =
            |path: &Path| std::fs::read(path).map_err(|source| FilesError::Read { path: path.to_owned(), source });
        Ok(Self { certificate: read(certificate)?, key: Zeroizing::new(read(key)?) })
    }

    fn pair(&self, certificate: &Path, key: &Path) -> Result<Pair, FilesError> {
        Pair::from_pem(&self.certificate, &self.key).map_err(|source| FilesError::Pair {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            source,
        })
    }
}

impl Files {
    /// The files, and the pair that is in them now.
    pub(super) fn open(certificate: &Path, key: &Path) -> Result<(Self, Pair), FilesError> {
        let seen = Contents::read(certificate, key)?;
        let pair = seen.pair(certificate, key)?;
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        Ok((Self { certificate, key, seen, look_every: LOOK_EVERY }, pair))
    }

    pub(super) fn look_every(&mut self, pause: Duration) {
        self.look_every = pause;
    }

    /// The pair, unless the files are as they were when they last gave one.
    fn changed(&mut self) -> Result<Option<Pair>, FilesError> {
        let contents = Contents::read(&self.certificate, &self.key)?;
        if contents == self.seen {
            return Ok(None);
        }
        let pair = contents.pair(&self.certificate, &self.key)?;
        self.seen = contents;
        Ok(Some(pair))
    }

    /// Looks at the files until told to stop. An unusable file leaves the current pair in place.
    pub(super) async fn keep(mut self, slot: Slot, told: impl Fn(Reading), stop: CancellationToken) {
        let mut trouble = None;
        while stop.run_until_cancelled(tokio::time::sleep(self.look_every)).await.is_some() {
            // Two small local files: what a task of its own would cost is more than they take.
            let now = match self.changed() {
                Ok(None) => None,
                Ok(Some(pair)) => {
                    told(Reading::New(pair.validity.ends));
                    tracing::info!(ends = %pair.validity.ends, "serving a new certificate");
                    slot.put(pair);
                    None
                }
                Err(error) => {
                    told(Reading::Broken);
                    Some(in_one_line(&error))
                }
            };
            if now != trouble {
                if let Some(why) = &now {
                    tracing::error!(why, "the new certificate cannot be served; the old one still is");
                }
                slot.trouble(now.clone());
                trouble = now;
            }
        }
    }
}
