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
    slot::Slot,
};
use crate::metrics::AdmissionMetrics;

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
        /// What the system said.
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
        /// What is wrong with them.
        #[source]
        source: PairError,
    },
}

/// Two files, and what was in them.
#[derive(Debug)]
pub(super) struct Files {
    certificate: PathBuf,
    key: PathBuf,
    seen: Option<Contents>,
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

impl Files {
    pub(super) fn new(certificate: &Path, key: &Path) -> Self {
        Self { certificate: certificate.to_owned(), key: key.to_owned(), seen: None, look_every: LOOK_EVERY }
    }

    pub(super) fn look_every(&mut self, pause: Duration) {
        self.look_every = pause;
    }

    /// The pair, unless the files are as they were when they last gave one.
    pub(super) fn changed(&mut self) -> Result<Option<Pair>, FilesError> {
        let read =
            |path: &Path| std::fs::read(path).map_err(|source| FilesError::Read { path: path.to_owned(), source });
        let contents = Contents { certificate: read(&self.certificate)?, key: Zeroizing::new(read(&self.key)?) };
        if self.seen.as_ref() == Some(&contents) {
            return Ok(None);
        }
        let pair = Pair::from_pem(&contents.certificate, &contents.key).map_err(|source| FilesError::Pair {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            source,
        })?;
        self.seen = Some(contents);
        Ok(Some(pair))
    }

    /// Looks at the files until told to stop. What cannot be served leaves the pair as it is.
    pub(super) async fn keep(mut self, slot: Slot, metrics: AdmissionMetrics, stop: CancellationToken) {
        let mut trouble = None;
        while stop.run_until_cancelled(tokio::time::sleep(self.look_every)).await.is_some() {
            // Two small local files: what a task of its own would cost is more than they take.
            let now = match self.changed() {
                Ok(None) => None,
                Ok(Some(pair)) => {
                    metrics.certificate_read(true);
                    tracing::info!(ends = %pair.validity.ends, "serving a new certificate");
                    slot.put(pair, &metrics);
                    None
                }
                Err(error) => {
                    metrics.certificate_read(false);
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
