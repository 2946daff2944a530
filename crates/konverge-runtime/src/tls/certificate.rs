//! A server's certificate, in a form that keeps itself valid while the server runs.

use std::{path::Path, time::Duration};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::{
    files::{Files, FilesError},
    pair::{Pair, PairError},
    reading::Reading,
    self_signed::{SelfSigned, SelfSignedError},
    slot::Slot,
};

/// The certificate of a server.
#[derive(Debug)]
#[must_use = "a certificate is for a server"]
pub struct Certificate {
    slot: Slot,
    keeper: Keeper,
}

#[derive(Debug)]
enum Keeper {
    Nobody,
    Files(Files),
    SelfSigned(SelfSigned),
}

impl Certificate {
    /// A chain, leaf first, and the leaf's key, both PEM, which are served until the end and never renewed.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, PairError> {
        Ok(Self { slot: Slot::of(Pair::from_pem(certificate, key)?), keeper: Keeper::Nobody })
    }

    /// From files of a chain, leaf first, and the leaf's key, both PEM. They are read now, and every 10 seconds while the server runs: what
    /// is new is served from the next handshake on, and what is broken is reported and leaves the old pair in service.
    pub fn from_files(certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Self, FilesError> {
        let (files, pair) = Files::open(certificate.as_ref(), key.as_ref())?;
        Ok(Self { slot: Slot::of(pair), keeper: Keeper::Files(files) })
    }

    /// Made now, for these names, kept in memory only, and replaced by another after two thirds of a year.
    ///
    /// No authority vouches for it: it keeps what is sent from those who only listen, and proves nobody's name. A caller has to be
    /// told not to ask for one, as with `insecure_skip_verify` of Prometheus.
    pub fn self_signed<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Result<Self, SelfSignedError> {
        let maker = SelfSigned::new(names.into_iter().map(Into::into).collect());
        Ok(Self { slot: Slot::of(maker.make(Timestamp::now())?), keeper: Keeper::SelfSigned(maker) })
    }

    /// How often files are looked at, instead of every 10 seconds.
    pub fn look_every(mut self, pause: Duration) -> Self {
        if let Keeper::Files(files) = &mut self.keeper {
            files.look_every(pause);
        }
        self
    }

    /// Where handshakes take the pair from.
    pub fn slot(&self) -> Slot {
        self.slot.clone()
    }

    /// A check that fails before the certificate does: when a new one cannot be read, or is overdue.
    pub fn in_order(&self) -> impl Fn() -> Result<(), String> + Send + Sync + 'static {
        let slot = self.slot.clone();
        move || slot.in_order(Timestamp::now())
    }

    /// Keeps the certificate valid until told to stop, and tells what it finds on the way.
    pub async fn keep(self, told: impl Fn(Reading) + Send, stop: CancellationToken) {
        match self.keeper {
            Keeper::Nobody => {}
            Keeper::Files(files) => files.keep(self.slot, told, stop).await,
            Keeper::SelfSigned(maker) => maker.keep(self.slot, told, stop).await,
        }
    }
}
